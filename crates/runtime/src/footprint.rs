//! Calculates on any host the memory that a method takes on a 32-bit target.
//!
//! [`walk`] repeats the allocations of `load` one by one, with the sizes of types on such a target. On Arm the compiler
//! checks those sizes. On the host, a test runs the same walk with the host's sizes and compares it with the memory that
//! loading really takes.

use core::mem::{align_of, size_of};

use rushlight_format::pte::{Instruction, Plan, ValueSpec};

use crate::memory::{ALIGNMENT, PlannedBuffer, Temp};
use crate::op::Op;
use crate::step::{Loaded, LoadedDelegate, MemoryUse, Step, max_outputs};
use crate::tensor::{Rebound, TensorState};
use crate::value::EValue;

/// Size and alignment of a type, in bytes.
type Layout = (usize, usize);

/// The sizes of the types in a method's memory, on one target.
struct Target {
    planned_buffer: Layout,
    planned_alignment: usize,
    dimension: Layout,
    tensor: Layout,
    value: Layout,
    delegate: Layout,
    operator: Layout,
    step: Layout,
    rebound: Layout,
    temp: Layout,
}

/// 32-bit Arm and RISC-V.
const SMALL: Target = Target {
    planned_buffer: (12, 4),
    planned_alignment: ALIGNMENT,
    dimension: (4, 4),
    tensor: (36, 4),
    value: (16, 8),
    delegate: (32, 4),
    operator: (4, 4),
    step: (16, 4),
    rebound: (12, 4),
    temp: (12, 4),
};

const fn layout<T>() -> Layout {
    (size_of::<T>(), align_of::<T>())
}

/// The target that this code is compiled for.
const HERE: Target = Target {
    planned_buffer: layout::<PlannedBuffer>(),
    planned_alignment: crate::memory::PLANNED_ALIGNMENT,
    dimension: layout::<usize>(),
    tensor: layout::<TensorState<'static>>(),
    value: layout::<EValue<'static>>(),
    delegate: layout::<Option<LoadedDelegate<'static>>>(),
    operator: layout::<Option<&'static Op>>(),
    step: layout::<Step<'static>>(),
    rebound: layout::<Rebound<'static>>(),
    temp: layout::<Temp<'static>>(),
};

#[cfg(target_arch = "arm")]
const _: () = {
    const fn same(a: Layout, b: Layout) -> bool {
        a.0 == b.0 && a.1 == b.1
    }
    assert!(same(SMALL.planned_buffer, HERE.planned_buffer));
    assert!(same(SMALL.tensor, HERE.tensor));
    assert!(same(SMALL.value, HERE.value));
    assert!(same(SMALL.step, HERE.step));
    assert!(same(SMALL.rebound, HERE.rebound));
    assert!(same(SMALL.temp, HERE.temp));
};

/// Memory of `loaded` on a 32-bit target, without allocations of its delegates.
pub(crate) fn on_32_bit(loaded: &Loaded<'_>) -> MemoryUse {
    walk(loaded, &SMALL)
}

/// Memory of `loaded` on this target, computed in the same way.
pub(crate) fn here(loaded: &Loaded<'_>) -> MemoryUse {
    walk(loaded, &HERE)
}

/// Counts allocations without making them.
#[derive(Default)]
struct Tally {
    used: usize,
    peak: usize,
}

impl Tally {
    fn slice(&mut self, len: usize, (size, align): Layout) {
        if len > 0 {
            self.used = self.used.next_multiple_of(align) + len * size;
            self.peak = self.peak.max(self.used);
        }
    }
}

const U32: Layout = (4, 4);
const BOOL: Layout = (1, 1);

/// Repeats the allocations of `load` with the sizes of `target`.
fn walk(loaded: &Loaded<'_>, target: &Target) -> MemoryUse {
    let plan = &loaded.plan;
    let mut tally = Tally::default();
    tally.slice(plan.num_operators(), target.operator);
    tally.slice(plan.num_buffers().saturating_sub(1), target.planned_buffer);
    let mut planned_with_padding = 0;
    for id in 1..plan.num_buffers() {
        let before = tally.used;
        let len = usize::try_from(plan.buffer_size(id as u32)).unwrap_or(usize::MAX / 4);
        tally.slice(len, (1, target.planned_alignment));
        planned_with_padding += tally.used - before;
    }
    tally.slice(plan.inputs().len(), U32);
    tally.slice(plan.outputs().len(), U32);
    values(&mut tally, plan, target);
    tally.slice(plan.num_delegates(), target.delegate);
    tally.slice(loaded.steps.len(), target.step);
    for instruction in plan.instructions() {
        if let Instruction::Kernel { args, .. } | Instruction::Delegate { args, .. } = instruction {
            tally.slice(args.len(), U32);
        }
    }
    tally.slice(loaded.rebound.len(), target.rebound);
    tally.slice(plan.inputs().len(), BOOL);
    alias_scratch(&mut tally, loaded);
    let (word, _) = target.dimension;
    tally.slice(max_outputs(loaded.plain_steps(), &loaded.delegates).div_ceil(8 * word), target.dimension);
    tally.slice(1, target.temp);
    let method = tally.used - planned_with_padding;
    tally.slice(loaded.sizes.temp, (1, ALIGNMENT));
    MemoryUse { method, planned: loaded.sizes.planned, temp: loaded.sizes.temp, total: tally.peak }
}

fn values(tally: &mut Tally, plan: &Plan<'_>, target: &Target) {
    tally.slice(plan.num_values(), target.value);
    for value in plan.values() {
        match value {
            ValueSpec::Tensor(spec) => {
                tally.slice(3 * spec.sizes.len(), target.dimension);
                tally.slice(1, target.tensor);
            }
            ValueSpec::IntList(items) => tally.slice(items.len(), U32),
            ValueSpec::TensorList(items) => tally.slice(items.len(), U32),
            ValueSpec::OptionalTensorList(items) => tally.slice(items.len(), U32),
            ValueSpec::DoubleList(items) => tally.slice(items.len(), (8, 8)),
            ValueSpec::BoolList(items) => tally.slice(items.len(), BOOL),
            _ => {}
        }
    }
}

/// Temporary memory of the alias check.
fn alias_scratch(tally: &mut Tally, loaded: &Loaded<'_>) {
    let used = tally.used;
    let edges: usize = loaded
        .plain_steps()
        .map(|step| match step {
            Step::Move { .. } => 2,
            Step::Kernel { op, .. } if op.is_view => 1,
            _ => 0,
        })
        .sum();
    let nodes = if edges == 0 { 0 } else { loaded.values.len() };
    tally.slice(nodes, U32);
    tally.slice(edges, (8, 4));
    tally.slice(nodes, U32);
    tally.slice(loaded.values.len(), BOOL);
    tally.slice(nodes, U32);
    tally.slice(nodes, U32);
    tally.used = used;
}
