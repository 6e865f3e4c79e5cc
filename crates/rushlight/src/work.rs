//! Estimates the work of a program from its plan, and reports a slow build. The compiler is not needed.

use rushlight_format::pte::{Instruction, Plan, ValueSpec};
use rushlight_format::{Program, Vector};

/// Minimum number of operations of one execution for which lowering pays. The reference operators take about a
/// nanosecond for each operation, and lowering takes some milliseconds. It pays off after some dozens of executions.
pub const WORTHWHILE: u64 = 1 << 17;

/// Estimates the operations of one execution of every method, at the upper bounds of the sizes. Stops counting once the
/// result is [`WORTHWHILE`]. The body of a loop counts once.
pub fn work(program: &Program<'_>) -> u64 {
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

/// Prints once in a process that this build runs programs on the reference operators, if `program` has enough work for that to matter.
/// Libraries print to standard error, because standard output has results.
#[cfg(not(feature = "lower"))]
pub fn say_if_slow(program: &Program<'_>, has_backends: bool) {
    static SAID: std::sync::Once = std::sync::Once::new();
    if !has_backends && is_slow(program) {
        SAID.call_once(|| eprintln!("{SLOW}"));
    }
}

#[cfg(not(feature = "lower"))]
const SLOW: &str = "rushlight: this build runs portable programs on the reference operators, which use one thread and no vector \
                    instructions; add the feature `lower` to the crate `rushlight`";

/// True if a program has much work, and none of it is for a backend.
#[cfg(any(test, not(feature = "lower")))]
fn is_slow(program: &Program<'_>) -> bool {
    program.methods().all(|plan| plan.num_delegates() == 0) && work(program) >= WORTHWHILE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_portable_programs_with_much_work_are_slow() {
        for (name, expected) in [
            ("tests/corpus/1.5.1/add.pte", false),
            ("crates/cli/templates/detect/model.pte", true),
            ("tests/corpus/1.5.1-xnnpack/conv.pte", false),
        ] {
            let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
            let module = crate::Module::load(&path).expect(name);
            assert_eq!(is_slow(&module.program().parsed()), expected, "{name}");
        }
    }
}
