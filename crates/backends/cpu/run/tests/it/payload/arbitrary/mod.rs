//! Payloads from arbitrary bytes: steps of all kinds over tensors that fit, and then changes anywhere.

mod attention;
mod convolution;
mod data_movement;
mod elementwise;
mod matmul;
mod pooling;
mod tensors;

use rushlight_cpu_payload::{Attention, Copy, Scatter, Size, SizeOp, Step};

use super::Payload;
use super::source::Source;

/// Maximum number of steps of a payload, besides those that write its tensors.
const MAX_STEPS: usize = 3;

/// Makes a payload from bytes.
pub fn payload(source: &mut Source<'_>) -> Payload {
    let mut maker = Maker { payload: Payload::default(), source };
    maker.payload.values = maker.source.some(64);
    for _ in 0..=maker.source.below(MAX_STEPS) {
        let step = maker.step();
        maker.payload.program.steps.push(step);
    }
    let Maker { mut payload, source } = maker;
    if source.once_in(4) {
        compute_sizes(&mut payload, source);
    }
    if source.once_in(2) {
        let mut bytes = payload.program.to_bytes();
        for _ in 0..=source.below(4) {
            change(&mut bytes, source);
        }
        payload.bytes = Some(bytes);
    }
    payload
}

/// Replaces fixed sizes by computed ones.
fn compute_sizes(payload: &mut Payload, source: &mut Source<'_>) {
    let program = &mut payload.program;
    let inputs = payload.inputs.len();
    let sizes = &mut program.sizes;
    let mut compute = |size: &mut Size| {
        let Size::Fixed(value) = *size else { return };
        let next = sizes.len() as u32;
        match source.byte() % 8 {
            0..4 => return,
            4 => sizes.push(SizeOp::Fixed(value as i64)),
            5 => sizes.extend([SizeOp::Fixed(value as i64 - 1), SizeOp::Fixed(1), SizeOp::Add(next, next + 1)]),
            6 => sizes.extend([SizeOp::Fixed(2 * value as i64), SizeOp::Fixed(2), SizeOp::FloorDiv(next, next + 1)]),
            _ if inputs > 0 => {
                let (input, dim) = (source.below(inputs) as u32, source.below(4) as u32);
                sizes.push(SizeOp::Input { input, dim });
            }
            _ => sizes.extend([SizeOp::Fixed(value as i64), SizeOp::Min(next, next), SizeOp::Max(next, next + 1)]),
        }
        *size = Size::Computed(sizes.len() as u32 - 1);
    };
    program.tensors.iter_mut().for_each(|tensor| {
        tensor.dims.iter_mut().for_each(&mut compute);
        compute(&mut tensor.offset);
    });
    for step in &mut program.steps {
        match step {
            Step::Copy(Copy { sizes, x_strides, y_strides, x_offset, y_offset, .. }) => {
                sizes.iter_mut().chain(x_strides).chain(y_strides).chain([x_offset, y_offset]).for_each(&mut compute);
            }
            Step::Scatter(step) => {
                let Scatter { sizes, x_strides, y_strides, x_step, y_step, dim_size, .. } = step;
                let all = sizes.iter_mut().chain(x_strides).chain(y_strides);
                all.chain([x_step, y_step, dim_size]).for_each(&mut compute);
            }
            Step::Attention(step) => {
                let Attention { batch, heads, groups, rows, keys, depth, value_depth, strides, .. } = step;
                let all = [batch, heads, groups, rows, keys, depth, value_depth].into_iter();
                all.chain(strides.iter_mut().flatten()).for_each(&mut compute);
            }
            _ => {}
        }
    }
}

/// Changes one of the numbers of a payload. Each is one byte as long as it is small.
fn change(bytes: &mut Vec<u8>, source: &mut Source<'_>) {
    let at = 4 + source.below(bytes.len().saturating_sub(4).max(1));
    let Some(byte) = bytes.get_mut(at) else { return };
    match source.byte() % 4 {
        0 => *byte = source.byte() & 0x7f,
        1 => *byte = byte.wrapping_add(1) & 0x7f,
        2 => *byte ^= 1 << source.below(8),
        _ => {
            let mut number = source.number();
            let mut digits = Vec::new();
            while number >= 0x80 {
                digits.push(number as u8 | 0x80);
                number >>= 7;
            }
            digits.push(number as u8);
            bytes.splice(at..=at, digits);
        }
    }
}

struct Maker<'s, 'b> {
    payload: Payload,
    source: &'s mut Source<'b>,
}
impl Maker<'_, '_> {
    fn step(&mut self) -> Step {
        match self.source.byte() % 29 {
            0 => self.linear(),
            1 => self.batched(),
            2 => self.int8_linear(),
            3 => self.groupwise_linear(),
            4 => self.direct(false),
            5 => self.direct(true),
            6 => self.depthwise(false),
            7 => self.transposed(false),
            8 => self.volume(false),
            9 => self.elementwise(),
            10 => self.pooling(),
            11 => self.reduction(),
            12 => self.softmax(),
            13 => self.normalisation(),
            14 => self.copy(),
            15 => self.gather(),
            16 => self.attention(),
            17 => self.resize(),
            18 => self.convert(),
            19 => self.depthwise(true),
            20 => self.transposed(true),
            21 => self.winograd(),
            22 => self.scatter(),
            23 => self.experts(),
            24 => self.top_k(),
            25 => self.gather_elements(),
            26 => self.delta_rule(),
            27 => self.volume(true),
            _ => self.dynamic_quantization(),
        }
    }
}
