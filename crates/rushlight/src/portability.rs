//! Whether a program would gain from being lowered, as far as its plan shows: without the compiler.

use rushlight_format::pte::{Instruction, Plan, ValueSpec};
use rushlight_format::{Program, Vector};

use crate::backends::runs_backend;

/// Targets that a program was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Portability {
    /// For a back end that is built in, or given to the module.
    Compiled,
    /// For the reference operators, and so small that lowering takes longer than it saves.
    Small,
    /// For the reference operators.
    Portable,
    /// At least partly for a back end that is not here: it may run once it is lowered.
    Foreign,
}

impl Portability {
    /// `is_own` says whether the caller has a back end of a name.
    pub(crate) fn of(program: &Program<'_>, is_own: impl Fn(&str) -> bool) -> Self {
        let mut is_compiled = false;
        for plan in program.methods() {
            for delegate in (0..plan.num_delegates()).filter_map(|index| plan.delegate(index)) {
                if !is_own(delegate.id) && !runs_backend(delegate.id) {
                    return Self::Foreign;
                }
                is_compiled = true;
            }
        }
        match is_compiled {
            true => Self::Compiled,
            false if work(program) < WORTHWHILE => Self::Small,
            false => Self::Portable,
        }
    }
}

/// Operations of one execution from which on a program is lowered. The reference operators take about a nanosecond for
/// each, and lowering takes some milliseconds: it is made good within some dozens of executions.
pub(crate) const WORTHWHILE: u64 = 1 << 17;

/// About how many operations one execution of every method is, at the upper bounds of the sizes; no more than are needed
/// to tell that it is [`WORTHWHILE`]. A loop counts once.
pub(crate) fn work(program: &Program<'_>) -> u64 {
    let mut work = 0u64;
    for plan in program.methods() {
        for instruction in plan.instructions() {
            let Instruction::Kernel { operator, args } = instruction else { continue };
            let is_matmul = plan.operator(operator as usize).is_some_and(|operator| is_matmul(operator.name));
            work = work.saturating_add(call(&plan, args, is_matmul));
            if work >= WORTHWHILE {
                return work;
            }
        }
    }
    work
}

fn is_matmul(name: &str) -> bool {
    matches!(name, "aten::convolution" | "aten::mm" | "aten::addmm" | "aten::bmm" | "aten::linear")
}

/// Estimates the operations of a call: the elements of its largest tensor. A matmul counts as the square root of the product of its
/// three tensors' sizes, a convolution likewise.
fn call(plan: &Plan<'_>, args: Vector<'_, u32>, is_matmul: bool) -> u64 {
    let (mut largest, mut product) = (0u64, 1f64);
    for value in args.iter().collect::<std::collections::BTreeSet<_>>() {
        let ValueSpec::Tensor(spec) = plan.value(value as usize) else { continue };
        let elements = spec.nbytes / spec.scalar_type.size().max(1);
        largest = largest.max(elements as u64);
        product *= (elements as f64).max(1.0);
    }
    if is_matmul { largest.max(product.sqrt() as u64) } else { largest }
}
