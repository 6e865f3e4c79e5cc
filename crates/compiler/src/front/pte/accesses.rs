//! Reads and writes of each instruction of a method.

use std::collections::HashMap;

use rushlight_format::pte::{InstructionModel, PlanModel, StorageModel, ValueModel};

use crate::front::payload::Arguments;
use rushlight_graph::Schemas;
use rushlight_graph::operators::{aten, executorch_prim};
use rushlight_graph::ops::written_caches;

use super::twins::written_params;

/// The values of the program that an instruction reads and writes. A list counts as its items.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    pub reads: Vec<u32>,
    pub writes: Vec<u32>,
    /// The stack that a row is appended to.
    pub stack: Option<u32>,
    /// A handle that is set to the memory of another value: `(handle, other)`.
    pub handle: Option<(u32, u32)>,
}

/// True if an operator computes a number.
pub(super) fn is_prim(name: &str) -> bool {
    let is_tensor = matches!(name, executorch_prim::ET_VIEW_DEFAULT | executorch_prim::ET_COPY_INDEX_TENSOR);
    let of_tensors = [aten::SYM_SIZE_INT, aten::SYM_STRIDE_INT, aten::SYM_NUMEL, aten::SYM_STORAGE_OFFSET];
    (name.starts_with("executorch_prim::") && !is_tensor)
        || of_tensors.contains(&name)
        || matches!(name, aten::SYM_IS_CONTIGUOUS | aten::_LOCAL_SCALAR_DENSE)
}

/// Returns the accesses of every instruction. `arguments` returns the arguments that a delegate reads and writes, if
/// its payload has them.
pub(super) fn accesses(
    plan: &PlanModel<'_>,
    schemas: &Schemas,
    arguments: impl Fn(u32) -> Option<Arguments>,
) -> Vec<Access> {
    let mut delegates = HashMap::new();
    let mut written = vec![false; plan.values.len()];
    for input in &plan.inputs {
        set(&mut written, *input);
    }
    let mut all = Vec::with_capacity(plan.instructions.len());
    for instruction in &plan.instructions {
        let access = match instruction {
            InstructionModel::Delegate { delegate, args } => {
                let known = *delegates.entry(*delegate).or_insert_with(|| arguments(*delegate));
                delegate_access(plan, args, known, &written)
            }
            _ => access(plan, schemas, instruction),
        };
        for value in access.writes.iter().chain(&access.stack) {
            set(&mut written, *value);
        }
        if let Some((handle, _)) = access.handle {
            set(&mut written, handle);
        }
        all.push(access);
    }
    all
}

/// Returns the full name of the operator of a call.
pub(super) fn operator_name(plan: &PlanModel<'_>, operator: u32) -> String {
    match plan.operators.get(operator as usize) {
        Some(operator) if operator.overload.is_empty() => operator.name.clone(),
        Some(operator) => format!("{}.{}", operator.name, operator.overload),
        None => String::new(),
    }
}

/// Returns the accesses of a delegate call: inputs come first, then outputs. If the payload does not have their
/// numbers, the outputs are the last arguments that no earlier instruction has written.
fn delegate_access(plan: &PlanModel<'_>, args: &[u32], known: Option<Arguments>, written: &[bool]) -> Access {
    let is_fresh = |arg: &u32| match plan.values.get(*arg as usize) {
        Some(ValueModel::Tensor(tensor)) => {
            let has_data = !matches!(tensor.storage, StorageModel::Planned { .. } | StorageModel::Unplanned);
            // State has a name.
            let is_state = tensor.fully_qualified_name.is_some();
            !has_data && !is_state && !written.get(*arg as usize).copied().unwrap_or(true)
        }
        _ => false,
    };
    // A static view shares the memory of its tensor, and no instruction writes it. Only the payload tells it from an
    // output.
    let first = known.map_or(0, |known| known.inputs).min(args.len());
    let last = known.and_then(|known| known.first_output).unwrap_or(args.len()).clamp(first, args.len());
    let between = args.get(first..last).unwrap_or_default();
    let fresh = between.iter().rev().take_while(|arg| is_fresh(arg)).count();
    let (reads, writes) = args.split_at(last.saturating_sub(fresh));
    let mut access = Access::default();
    push_all(plan, reads, &mut access.reads);
    access.writes = writes.to_vec();
    access
}

/// Splits the arguments of an operator that no table knows into those that it reads and those that it writes.
pub(super) fn split_opaque<'a>(plan: &PlanModel<'_>, args: &'a [u32]) -> (&'a [u32], &'a [u32]) {
    let Some((last, before)) = args.split_last() else { return (args, &[]) };
    let count = match plan.values.get(*last as usize) {
        Some(ValueModel::TensorList(items)) if before.ends_with(items) => items.len(),
        _ if before.last() == Some(last) => 1,
        _ => 0,
    };
    before.split_at(before.len().saturating_sub(count))
}

fn access(plan: &PlanModel<'_>, schemas: &Schemas, instruction: &InstructionModel) -> Access {
    let mut access = Access::default();
    match instruction {
        InstructionModel::Kernel { operator, args } => {
            let name = operator_name(plan, *operator);
            match (name.as_str(), args.as_slice()) {
                (executorch_prim::ET_COPY_INDEX_TENSOR, [stack, row, index, ..]) => {
                    access.reads = vec![*row, *index];
                    access.stack = Some(*stack);
                }
                (executorch_prim::ET_VIEW_DEFAULT, [of, sizes, view, ..]) => {
                    access.reads.push(*of);
                    push(plan, *sizes, &mut access.reads);
                    access.handle = Some((*view, *of));
                }
                (name, args) if is_prim(name) => {
                    if let Some((result, args)) = args.split_last() {
                        access.reads = args.to_vec();
                        access.writes.push(*result);
                    }
                }
                (name, args) => match schemas.get(name) {
                    Some(schema) => {
                        let outs = written_params(&schema);
                        let caches = written_caches(&schema);
                        for (index, arg) in args.iter().take(schema.params.len()).enumerate() {
                            let is_out = outs.contains(&index);
                            // An argument that is written in place is also read.
                            if !is_out || schema.flags.in_place || caches.contains(&index) {
                                push(plan, *arg, &mut access.reads);
                            }
                            if is_out {
                                push(plan, *arg, &mut access.writes);
                            }
                        }
                    }
                    None => {
                        let (reads, writes) = split_opaque(plan, args);
                        push_all(plan, reads, &mut access.reads);
                        access.writes = writes.to_vec();
                    }
                },
            }
        }
        InstructionModel::Move { from, to } => {
            access.reads.push(*from);
            access.writes.push(*to);
        }
        InstructionModel::JumpFalse { cond, .. } => access.reads.push(*cond),
        InstructionModel::Delegate { .. } | InstructionModel::Free { .. } => {}
    }
    access
}

fn push_all(plan: &PlanModel<'_>, values: &[u32], to: &mut Vec<u32>) {
    for value in values {
        push(plan, *value, to);
    }
}

/// Adds a value, or the items of a list.
fn push(plan: &PlanModel<'_>, value: u32, to: &mut Vec<u32>) {
    match plan.values.get(value as usize) {
        Some(ValueModel::TensorList(items) | ValueModel::IntList(items)) => to.extend(items),
        Some(ValueModel::OptionalTensorList(items)) => to.extend(items.iter().flatten()),
        _ => to.push(value),
    }
}

fn set(written: &mut [bool], value: u32) {
    if let Some(flag) = written.get_mut(value as usize) {
        *flag = true;
    }
}
