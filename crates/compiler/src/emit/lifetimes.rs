//! Computes the lifetimes of planned memory and its offsets.

use rushlight_format::pte::{InstructionModel, PlanModel, StorageModel, ValueModel};

use crate::memory::{self, Buffer, MemoryPlan};
use rushlight_graph::{Error, ErrorKind};

use super::storage::{Slot, Slots};

/// The first and last instruction that uses each slot.
struct Lifetimes(Vec<Option<(usize, usize)>>);

/// Plans an offset for every slot of the method's own memory, and writes it into the plan's tensors. `slot_of` has the
/// slot of each tensor value.
pub(super) fn place(
    plan: &mut PlanModel<'_>,
    slots: &Slots,
    slot_of: &[Option<Slot>],
    alignment: u64,
    keep_results: bool,
) -> Result<(), Error> {
    let lifetimes = lifetimes(plan, slots, slot_of, keep_results);
    let mut buffers = Vec::new();
    let mut buffer_of: Vec<Option<usize>> = vec![None; slots.len()];
    for (index, lifetime) in lifetimes.0.iter().enumerate() {
        let Some((first, last)) = *lifetime else { continue };
        let info = slots.get(Slot(index as u32));
        if info.elsewhere || slots.find(Slot(index as u32)).0 as usize != index {
            continue;
        }
        buffer_of[index] = Some(buffers.len());
        let (memory_id, fixed) = (info.memory_id, info.fixed);
        buffers.push(Buffer { bytes: info.bytes, alignment, first, last, memory_id, fixed });
    }
    let MemoryPlan { offsets, arenas } = memory::plan(&buffers)
        .map_err(|error| Error::new(ErrorKind::Output, format!("the memory cannot be planned: {error}")))?;
    plan.buffer_sizes = vec![0];
    for (id, bytes) in arenas {
        plan.buffer_sizes.resize((id as usize + 1).max(plan.buffer_sizes.len()), 0);
        plan.buffer_sizes[id as usize] = bytes;
    }
    for (value, slot) in plan.values.iter_mut().zip(slot_of) {
        let (ValueModel::Tensor(tensor), Some(slot)) = (value, slot) else { continue };
        let root = slots.find(*slot);
        let Some(buffer) = buffer_of.get(root.0 as usize).copied().flatten() else { continue };
        let memory_id = slots.get(root).memory_id;
        let offset = offsets.get(buffer).copied().unwrap_or(0);
        tensor.storage = match tensor.storage {
            StorageModel::PlannedInit { index, .. } => StorageModel::PlannedInit { memory_id, offset, index },
            _ => StorageModel::Planned { memory_id, offset },
        };
    }
    Ok(())
}

fn lifetimes(plan: &PlanModel<'_>, slots: &Slots, slot_of: &[Option<Slot>], keep_results: bool) -> Lifetimes {
    let end = plan.instructions.len();
    let mut lifetimes = Lifetimes(vec![None; slots.len()]);
    for (at, instruction) in plan.instructions.iter().enumerate() {
        for_each_value(instruction, &mut |value| lifetimes.touch(plan, slots, slot_of, value, at));
    }
    for value in &plan.inputs {
        lifetimes.touch(plan, slots, slot_of, *value, 0);
    }
    for value in &plan.outputs {
        lifetimes.touch(plan, slots, slot_of, *value, end);
    }
    for index in 0..slots.len() {
        let info = slots.get(Slot(index as u32));
        let whole = info.whole_call || keep_results;
        if let Some(lifetime) = lifetimes.0[index].as_mut().filter(|_| whole) {
            *lifetime = (if info.whole_call { 0 } else { lifetime.0 }, end);
        }
    }
    // A value that a loop reads from outside stays in use until the loop ends. Inner loops end first; a lifetime that
    // one of them extends may be extended by the outer one.
    for (at, instruction) in plan.instructions.iter().enumerate() {
        let InstructionModel::JumpFalse { destination, .. } = instruction else { continue };
        let start = *destination as usize;
        if start > at {
            continue;
        }
        for (first, last) in lifetimes.0.iter_mut().flatten() {
            if *first < start && *last >= start && *last < at {
                *last = at;
            }
            // A value that a round leaves for after the loop, such as the rows of a stack, must survive the next round.
            if *first > start && *first <= at && *last > at {
                *first = start;
            }
        }
    }
    lifetimes
}

impl Lifetimes {
    fn touch(&mut self, plan: &PlanModel<'_>, slots: &Slots, slot_of: &[Option<Slot>], value: u32, at: usize) {
        match plan.values.get(value as usize) {
            Some(ValueModel::TensorList(items)) => {
                items.iter().for_each(|item| self.touch(plan, slots, slot_of, *item, at));
            }
            Some(ValueModel::OptionalTensorList(items)) => {
                items.iter().flatten().for_each(|item| self.touch(plan, slots, slot_of, *item, at));
            }
            _ => {
                let Some(slot) = slot_of.get(value as usize).copied().flatten() else { return };
                let root = slots.find(slot).0 as usize;
                let lifetime = self.0[root].get_or_insert((at, at));
                *lifetime = (lifetime.0.min(at), lifetime.1.max(at));
            }
        }
    }
}

fn for_each_value(instruction: &InstructionModel, visit: &mut impl FnMut(u32)) {
    match instruction {
        InstructionModel::Kernel { args, .. } | InstructionModel::Delegate { args, .. } => {
            args.iter().for_each(|arg| visit(*arg));
        }
        InstructionModel::Move { from, to } => {
            visit(*from);
            visit(*to);
        }
        InstructionModel::JumpFalse { cond, .. } => visit(*cond),
        InstructionModel::Free { value } => visit(*value),
    }
}
