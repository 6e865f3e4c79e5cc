//! Operations and bytes of a step.

use rushlight_cpu_payload::{Attention, Convolution, ConvolutionKind, Matmul, ResizeMode, Size, Step, TensorId};
use rushlight_format::ScalarType;
use rushlight_runtime::Cost;

use crate::memory::Memory;
use crate::prepared::PreparedStep;
use crate::shapes::Shapes;

/// For each element: maximum, difference, exponential, sum and quotient.
const SOFTMAX_OPERATIONS: f64 = 5.0;

/// Returns the cost of a step at the sizes of the present call.
pub(crate) fn of(step: &PreparedStep, shapes: &Shapes, memory: &Memory<'_>) -> Cost {
    let width = |tensor: TensorId| memory.dtype(tensor).map_or(0, ScalarType::size);
    of_sizes(step, |tensor| shapes.dims(tensor), width, |size| shapes.size(size).unwrap_or(0))
}

/// As [`of`]. `width` is the size of an element in bytes.
fn of_sizes<'s>(
    step: &PreparedStep,
    dims: impl Fn(TensorId) -> &'s [usize],
    width: impl Fn(TensorId) -> usize,
    size: impl Fn(Size) -> usize,
) -> Cost {
    let elements = |tensor: TensorId| dims(tensor).iter().map(|&size| size as f64).product::<f64>();
    let y = elements(step.output());
    let mut bytes = y * width(step.output()) as f64;
    step.for_each_input(&mut |tensor| bytes += elements(tensor) * width(tensor) as f64);
    let step = match step {
        PreparedStep::Elementwise(step) => return Cost { flops: y * step.instructions.len() as f64, bytes },
        PreparedStep::Softmax(_) => return Cost { flops: SOFTMAX_OPERATIONS * y, bytes },
        PreparedStep::Other(step) => &**step,
    };
    let last = |tensor: TensorId| dims(tensor).last().map_or(1.0, |&size| size as f64);
    if let Step::Experts(step) = step {
        // The weights of experts that no row has chosen are not read. At most one expert is read for each row.
        let weights = elements(step.matmul.b) * width(step.matmul.b) as f64;
        bytes -= weights * (1.0 - (elements(step.index) / f64::from(step.count.max(1))).min(1.0));
    }
    let flops = match step {
        Step::Matmul(Matmul { a, .. }) => 2.0 * y * last(*a),
        Step::Experts(step) => 2.0 * y * last(step.matmul.a),
        Step::Convolution(Convolution { x, kind, .. }) => {
            let taps: f64 = kind.kernel().iter().map(|&size| f64::from(size)).product();
            let of_group = |channels: f64| kind.groups().map_or(1.0, |groups| channels / f64::from(groups.max(1)));
            if matches!(kind, ConvolutionKind::Transposed { .. } | ConvolutionKind::Int8Transposed { .. }) {
                2.0 * elements(*x) * taps * of_group(last(step.output()))
            } else {
                2.0 * y * taps * of_group(last(*x))
            }
        }
        Step::Pooling(step) => y * f64::from(step.kernel[0]) * f64::from(step.kernel[1]),
        Step::Reduce(step) => elements(step.x),
        // `ChooseQparams`: minimum and maximum. `QuantizeRows`: quotient and rounding.
        Step::ChooseQparams(step) => 2.0 * elements(step.x),
        Step::QuantizeRows(step) => 2.0 * elements(step.x),
        Step::Softmax { .. } => SOFTMAX_OPERATIONS * y,
        // Mean, difference, square and its mean, quotient, factor and offset.
        Step::Normalization(_) => 7.0 * y,
        Step::Attention(Attention { batch, heads, rows, keys, depth, value_depth, .. }) => {
            let product = |sizes: &[Size]| sizes.iter().map(|of| size(*of) as f64).product::<f64>();
            2.0 * product(&[*batch, *heads, *rows, *keys]) * (size(*depth) + size(*value_depth)) as f64
        }
        // Prediction, change of the state, and result.
        Step::DeltaRule(step) => 2.0 * (2.0 * elements(step.k) + elements(step.q)) * last(step.v),
        Step::Resize(step) if step.mode == ResizeMode::Bilinear => 6.0 * y,
        _ => 0.0,
    };
    Cost { flops, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_cpu_payload::{Epilogue, FloatFormat, MatmulKind};

    #[test]
    fn a_matmul_counts_multiplications_and_additions() {
        let dims: [&[usize]; 3] = [&[2, 8, 32], &[32 * 16], &[2, 8, 10]];
        let kind = MatmulKind::Packed { format: FloatFormat::F32, epilogue: Epilogue::default() };
        let step = Step::Matmul(Matmul { a: 0, b: 1, y: 2, kind });
        let step = PreparedStep::Other(Box::new(step));
        let cost = of_sizes(&step, |tensor| dims[tensor as usize], |tensor| [4, 2, 4][tensor as usize], |_| 0);
        assert_eq!(cost, Cost { flops: 2.0 * 160.0 * 32.0, bytes: 4.0 * (512.0 + 160.0) + 2.0 * 512.0 });
    }
}
