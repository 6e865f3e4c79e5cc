//! Estimates from a program's plan if lowering pays. The compiler is not needed.

use rushlight_format::pte::{Instruction, Plan, ValueSpec};
use rushlight_format::{Program, Vector};

use crate::backends::runs_backend;

/// Targets that a program was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Portability {
    /// Compiled for a backend that is built in, or given to the module.
    Compiled,
    /// Compiled for the reference operators, and so small that lowering takes longer than it saves.
    Small,
    /// Compiled for the reference operators.
    Portable,
    /// Compiled at least partly for a missing backend. It may run once it is lowered.
    Foreign,
}

impl Portability {
    /// Classifies a program. `is_own` returns true if the caller has a backend with a name.
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

/// Minimum number of operations of one execution for which lowering pays. The reference operators take about a
/// nanosecond for each operation, and lowering takes some milliseconds. It pays off after some dozens of executions.
pub(crate) const WORTHWHILE: u64 = 1 << 17;

/// Estimates the operations of one execution of every method, at the upper bounds of the sizes. Stops counting once the
/// result is [`WORTHWHILE`]. The body of a loop counts once.
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

/// Estimates the operations of a call: the elements of its largest tensor. For a matmul or a convolution it is the
/// square root of the product of its three tensors' sizes.
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
