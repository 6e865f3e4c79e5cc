//! Operations and bytes of a step.

use rushlight_cpu_payload::{Sizes, StepKind, TensorId};
use rushlight_format::ScalarType;
use rushlight_runtime::Cost;

use crate::memory::Memory;

/// Returns the cost of a step at the sizes of the present call.
pub(crate) fn of(step: &dyn StepKind, sizes: &dyn Sizes, memory: &Memory<'_>) -> Cost {
    of_widths(step, sizes, |tensor| memory.dtype(tensor).map_or(0, ScalarType::size))
}

/// As [`of`]. `width` is the size of an element in bytes.
fn of_widths(step: &dyn StepKind, sizes: &dyn Sizes, width: impl Fn(TensorId) -> usize) -> Cost {
    let bytes_of = |tensor: TensorId| sizes.elements(tensor) as f64 * width(tensor) as f64;
    let mut bytes = bytes_of(step.output());
    step.for_each_input(&mut |tensor| bytes += bytes_of(tensor) * step.share_read(tensor, sizes));
    Cost { flops: step.flops(sizes), bytes }
}

#[cfg(test)]
mod tests {
    use rushlight_cpu_payload::{Epilogue, Experts, FloatFormat, Matmul, MatmulKind, Size};

    use super::*;

    /// Sizes of tensors by position.
    struct Of<'a>(&'a [&'a [u64]]);

    impl Sizes for Of<'_> {
        fn rank(&self, tensor: TensorId) -> usize {
            self.0[tensor as usize].len()
        }

        fn dim(&self, tensor: TensorId, index: usize) -> u64 {
            self.0[tensor as usize][index]
        }

        fn size(&self, size: Size) -> u64 {
            size.fixed().unwrap_or(0)
        }
    }

    const MATMUL: Matmul = Matmul {
        a: 0,
        b: 1,
        y: 2,
        kind: MatmulKind::Packed {
            format: FloatFormat::F32,
            epilogue: Epilogue { bias: None, residual: None, activation: rushlight_cpu_payload::Activation::None },
        },
    };

    #[test]
    fn a_matmul_counts_multiplications_and_additions() {
        let sizes = Of(&[&[2, 8, 32], &[32 * 16], &[2, 8, 10]]);
        let cost = of_widths(&MATMUL, &sizes, |tensor| [4, 2, 4][tensor as usize]);
        assert_eq!(cost, Cost { flops: 2.0 * 160.0 * 32.0, bytes: 4.0 * (512.0 + 160.0) + 2.0 * 512.0 });
    }

    #[test]
    fn experts_that_no_row_chooses_are_not_read() {
        let step = Experts { matmul: MATMUL, index: 3, count: 8 };
        let sizes = Of(&[&[2, 32], &[32 * 16 * 8], &[2, 16], &[2]]);
        let cost = of_widths(&step, &sizes, |_| 4);
        let bytes = 4.0 * (64.0 + 32.0 * 16.0 * 2.0 + 32.0 + 2.0);
        assert_eq!(cost, Cost { flops: 2.0 * 32.0 * 32.0, bytes });
    }
}
