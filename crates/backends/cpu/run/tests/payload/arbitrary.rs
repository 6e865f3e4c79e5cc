//! Payloads of arbitrary bytes: steps of all kinds over tensors that fit, and then changes anywhere.

use rushlight_cpu_payload::{
    self, Activation, Affine, Attention, Binary, Choice, Convert, Convolution, Copy, Elementwise, Fold, Gather, Inner,
    Instruction, Integers, Matmul, Normalisation, Operand, Pooling, PoolingKind, Reduction, Resize, ResizeMode,
    RoundRows, RowScales, Size, SizeOp, Step, Tail, TensorId, Unary,
};
use rushlight_engine::pack::{self, GroupwiseMatrix, QuantizedMatrix};
use rushlight_engine::{Conv2d, Conv3d, ConvTranspose2d, Strides, Winograd};
use rushlight_format::ScalarType;

use super::source::Source;
use super::{Payload, fixed};

/// Steps of a payload, at most, beside those that make its tensors.
const MAX_STEPS: usize = 3;

/// Makes a payload of bytes.
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

/// Computes sizes that were fixed.
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
            Step::Attention(step) => {
                let Attention { batch, heads, groups, rows, keys, depth, value_depth, strides, .. } = step;
                let all = [batch, heads, groups, rows, keys, depth, value_depth].into_iter();
                all.chain(strides.iter_mut().flatten()).for_each(&mut compute);
            }
            _ => {}
        }
    }
}

/// Changes one of the numbers of a payload: each is one byte as long as it is small.
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
        match self.source.byte() % 20 {
            0 => self.linear(),
            1 => self.batched(),
            2 => self.integer_linear(),
            3 => self.group_linear(),
            4 | 5 => self.convolution(false),
            6 | 7 => self.convolution(true),
            8 => self.volume(),
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
            _ => self.rows(),
        }
    }

    fn affine(&mut self) -> Affine {
        let source = &mut *self.source;
        let scale = source.one_of(&[0.5f32, 0.01, 1.0, 100.0]);
        let min = if source.once_in(4) { source.byte() / 2 } else { 0 };
        Affine::new(scale, source.byte(), [min, if source.once_in(4) { min.max(source.byte()) } else { 255 }])
    }

    /// Floats that a step may read.
    fn floats(&mut self, dims: &[u64]) -> TensorId {
        match self.source.byte() % 4 {
            0 => {
                let x = self.payload.input(ScalarType::Float, dims);
                let y = self.payload.arena(len(dims), ScalarType::Float, dims, None);
                let one = Instruction::Unary { to: 0, function: Unary::Identity, x: Operand::Tensor(0) };
                let step = Elementwise { operands: vec![x], y, instructions: vec![one] };
                self.payload.program.steps.push(Step::Elementwise(step));
                y
            }
            1 => {
                let floats: Vec<f32> = (0..len(dims)).map(|_| self.source.float()).collect();
                self.payload.small(dims, &floats)
            }
            _ => self.payload.input(ScalarType::Float, dims),
        }
    }

    /// Bytes that a step may read.
    fn bytes(&mut self, dims: &[u64]) -> TensorId {
        let dtype = self.source.one_of(&[ScalarType::Byte, ScalarType::Char]);
        let affine = self.affine();
        let x = self.payload.input(dtype, dims);
        let y = self.payload.arena(len(dims).div_ceil(4), ScalarType::Byte, dims, Some(affine));
        self.payload.program.steps.push(Step::Convert(Convert { x, y, dtype, enters: true }));
        y
    }

    /// Floats that a step writes.
    fn output(&mut self, dims: &[u64]) -> TensorId {
        if self.source.once_in(4) {
            self.payload.arena(len(dims), ScalarType::Float, dims, None)
        } else {
            self.payload.output(ScalarType::Float, dims)
        }
    }

    /// Floats or bytes that a step writes.
    fn any_output(&mut self, dims: &[u64]) -> TensorId {
        if self.source.once_in(2) {
            let affine = self.affine();
            self.payload.arena(len(dims).div_ceil(4), ScalarType::Byte, dims, Some(affine))
        } else {
            self.output(dims)
        }
    }

    fn either(&mut self, dims: &[u64]) -> TensorId {
        if self.source.once_in(2) { self.bytes(dims) } else { self.floats(dims) }
    }

    /// Adds weights of `elements` elements.
    fn blob(&mut self, dtype: ScalarType, elements: u64) -> TensorId {
        let pattern = self.source.some(16);
        let bytes = (elements as usize * dtype.size()).next_multiple_of(4);
        let bytes = (0..bytes).map(|at| pattern.get(at % pattern.len().max(1)).copied().unwrap_or(0)).collect();
        self.payload.blob(dtype, &[elements], bytes)
    }

    /// Weights of floats, or of such a type with 16 bits.
    fn weights(&mut self, elements: Option<usize>) -> TensorId {
        let dtype = self.source.one_of(&[ScalarType::Float, ScalarType::Half, ScalarType::BFloat16]);
        self.blob(dtype, elements.unwrap_or(0).min(1 << 16) as u64)
    }

    fn activation(&mut self) -> Activation {
        use Activation::*;
        let (min, max) = (self.source.float(), self.source.float());
        let all = [
            None,
            Clamp { min, max },
            LeakyRelu { slope: min },
            Elu { alpha: max },
            HardSwish,
            HardSigmoid,
            Sigmoid,
            Silu,
            Tanh,
            Gelu,
            GeluTanh,
        ];
        self.source.one_of(&all)
    }

    fn tail(&mut self, columns: u64, y: &[u64]) -> Tail {
        let bias = if self.source.once_in(2) { Some(self.floats(&[columns])) } else { None };
        let residual = if self.source.once_in(3) { Some(self.floats(y)) } else { None };
        let residual_last = self.source.once_in(2);
        Tail { bias, residual, residual_last, activation: self.activation(), integers: None }
    }

    /// The epilogue of an int8 GEMM, with this number of offsets.
    fn integer_tail(&mut self, columns: u64, offsets: u64, rows: Option<u64>, y: &[u64]) -> Tail {
        let bias = if self.source.once_in(3) { Some(self.floats(&[columns])) } else { None };
        let residual = if self.source.once_in(3) { Some(self.bytes(y)) } else { None };
        let inner = if self.source.once_in(3) {
            Some(Inner { activation: self.activation(), affine: self.affine() })
        } else {
            None
        };
        let rows = rows.map(|rows| self.floats(&[2, rows]));
        let (offsets, scales) = (self.floats(&[offsets]), Some(self.floats(&[columns])));
        let integers = Some(Integers { offsets, scales, rows, inner });
        Tail { bias, residual, residual_last: self.source.once_in(2), activation: self.activation(), integers }
    }

    fn linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), self.source.size(70), self.source.size(40));
        let (a, y) = (self.floats(&[m, k]), [m, n]);
        let b = if self.source.once_in(3) {
            let is_four_bits = self.source.once_in(2);
            let (has_zeros, group) = (self.source.once_in(2), 2 * self.source.size(20) as usize);
            let matrix = QuantizedMatrix { k: k as usize, n: n as usize, is_four_bits, has_zeros, group };
            self.integers(&matrix)
        } else {
            self.weights(pack::matrix_f32_len(k as usize, n as usize))
        };
        let tail = self.tail(n, &y);
        Step::Matmul(Matmul { a, b, y: self.output(&y), packed: true, transposed: false, tail })
    }

    /// A packed matrix of integers.
    fn integers(&mut self, matrix: &QuantizedMatrix) -> TensorId {
        let mut bytes = vec![0; pack::quantized_len(matrix).unwrap_or(0).min(1 << 16)];
        if Some(bytes.len()) == pack::quantized_len(matrix) {
            let weight = self.source.byte().cast_signed();
            pack::quantized(
                &mut bytes,
                matrix,
                |k, n| weight.wrapping_add((k * 7 + n) as i8),
                |k, n| ((k + n) as f32, 1),
            );
        }
        let len = bytes.len() as u64;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.payload.blob(ScalarType::Byte, &[len], bytes)
    }

    fn batched(&mut self) -> Step {
        let (batch, m, k, n) = (self.source.size(4), self.source.size(12), self.source.size(40), self.source.size(40));
        let transposed = self.source.once_in(2);
        let of_b = if self.source.once_in(2) { 1 } else { batch };
        let (a, y) = (self.floats(&[batch, m, k]), [batch, m, n]);
        let b = self.floats(&if transposed { [of_b, n, k] } else { [of_b, k, n] });
        self.scratch(pack::matrix_f32_len(k as usize, n as usize).unwrap_or(0));
        let tail = self.tail(n, &y);
        Step::Matmul(Matmul { a, b, y: self.output(&y), packed: false, transposed, tail })
    }

    fn scratch(&mut self, floats: usize) {
        let program = &mut self.payload.program;
        program.scratch = program.scratch.max(floats.min(1 << 16) as u64);
    }

    fn integer_linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), self.source.size(70), self.source.size(40));
        let (a, y) = (self.bytes(&[m, k]), [m, n]);
        let b = self.blob(ScalarType::Char, pack::matrix_i8_len(k as usize, n as usize).unwrap_or(0) as u64);
        let rows = if self.source.once_in(2) { Some(m) } else { None };
        let tail = self.integer_tail(n, n, rows, &y);
        Step::Matmul(Matmul { a, b, y: self.any_output(&y), packed: true, transposed: false, tail })
    }

    fn group_linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), 32 * self.source.size(5), self.source.size(40));
        let [is_four_bits, has_zeros, has_half_scales] = [(); 3].map(|()| self.source.once_in(2));
        let matrix = GroupwiseMatrix { k: k as usize, n: n as usize, is_four_bits, has_zeros, has_half_scales };
        let (a, y) = (self.bytes(&[m, k]), [m, n]);
        let b = self.blob(ScalarType::Byte, matrix.len().unwrap_or(0) as u64);
        let mut tail = self.integer_tail(n, n, Some(m), &y);
        tail.residual = None;
        if let Some(integers) = &mut tail.integers {
            (integers.scales, integers.inner) = (None, None);
        }
        Step::Matmul(Matmul { a, b, y: self.output(&y), packed: true, transposed: false, tail })
    }

    fn convolution(&mut self, is_integer: bool) -> Step {
        let transposed = self.source.once_in(3);
        let depthwise = !transposed && self.source.once_in(3);
        let winograd = !is_integer && !transposed && !depthwise && self.source.once_in(3);
        let groups = if self.source.once_in(3) { self.source.size(3).max(1) } else { 1 };
        let wide = if winograd { 16 } else { 0 };
        let groups = if winograd { 1 } else { groups };
        let (in_c, out_c) = (groups * self.source.size(9) + wide, groups * self.source.size(9) + wide);
        let (groups, out_c) = if depthwise { (in_c.max(1), in_c) } else { (groups, out_c) };
        let [kernel, stride, dilation, padding, added] = if winograd {
            let pads = [self.source.below(3) as u32, self.source.below(3) as u32];
            [[3, 3], [1, 1], [1, 1], pads, [0, 0]]
        } else {
            let mut pair = |largest| [self.source.size(largest) as u32, self.source.size(largest) as u32];
            [pair(4), pair(4), pair(3), pair(4).map(|size| size - size.min(1)), pair(2).map(|size| size - size.min(1))]
        };
        let [batch, in_h, in_w] = [self.source.size(2), self.source.size(9), self.source.size(12)];
        let sizes = [batch, in_h, in_w, in_c].map(|size| size as usize);
        let usizes = |pair: [u32; 2]| pair.map(|size| size as usize);
        let both = padding.map(|size| [size; 2]);
        let conv = Conv2d {
            stride: usizes(stride).map(|size| size.max(1)),
            padding: both.map(usizes),
            dilation: usizes(dilation),
            groups: groups as usize,
            ..Conv2d::new(sizes, out_c as usize, usizes(kernel))
        };
        let transposed_conv = ConvTranspose2d {
            batch: sizes[0],
            in_h: sizes[1],
            in_w: sizes[2],
            in_c: sizes[3],
            out_c: out_c as usize,
            kernel: conv.kernel,
            stride: conv.stride,
            padding: conv.padding,
            output_padding: usizes(added),
            dilation: conv.dilation,
            groups: conv.groups,
            in_stride: sizes[3],
            out_stride: out_c as usize,
        };
        let (out_h, out_w) =
            if transposed { (transposed_conv.out_h(), transposed_conv.out_w()) } else { (conv.out_h(), conv.out_w()) };
        let y = [batch, out_h as u64, out_w as u64, out_c];
        let form = if winograd { Some(self.source.one_of(&[Winograd::F2, Winograd::F4])) } else { None };
        let x = [batch, in_h, in_w, in_c];
        let x = if is_integer { self.bytes(&x) } else { self.floats(&x) };
        let taps = conv.kernel[0] * conv.kernel[1];
        let w = match (form, is_integer) {
            (Some(form), _) => {
                self.scratch(out_h.div_ceil(2).max(4) * out_w.div_ceil(2).max(4) * 40 * (in_c + out_c) as usize);
                let len = pack::winograd_f32_len(form, &conv).unwrap_or(0);
                self.blob(ScalarType::Float, len as u64)
            }
            (None, true) => {
                let len = match (transposed, depthwise) {
                    (true, _) => pack::conv_transpose2d_i8_len(&transposed_conv),
                    (_, true) => pack::depthwise2d_i8_len(&conv),
                    _ => pack::conv2d_i8_len(&conv),
                };
                self.blob(ScalarType::Char, len.unwrap_or(0) as u64)
            }
            (None, false) if transposed => self.weights(pack::conv_transpose2d_f32_len(&transposed_conv)),
            (None, false) if depthwise => self.blob(ScalarType::Float, (taps * sizes[3]) as u64),
            (None, false) => self.weights(pack::conv2d_f32_len(&conv)),
        };
        let (y, tail) = if is_integer {
            let phases = if transposed { u64::from(stride[0]) * u64::from(stride[1]) } else { 1 };
            let rows = if self.source.once_in(3) { Some(1) } else { None };
            let tail = self.integer_tail(out_c, phases * out_c, rows, &y);
            (self.any_output(&y), tail)
        } else {
            let tail = self.tail(out_c, &y);
            (self.output(&y), tail)
        };
        Step::Convolution(Convolution {
            x,
            w,
            y,
            kernel: kernel.into(),
            stride: stride.into(),
            padding: both.into(),
            dilation: dilation.into(),
            groups: groups as u32,
            depthwise,
            output_padding: transposed.then(|| added.into()),
            winograd: form.map(|form| match form {
                Winograd::F2 => rushlight_cpu_payload::Winograd::F2,
                Winograd::F4 => rushlight_cpu_payload::Winograd::F4,
            }),
            tail,
        })
    }

    fn volume(&mut self) -> Step {
        let groups = self.source.size(2).max(1);
        let (in_c, out_c) = (groups * self.source.size(5), groups * self.source.size(20));
        let mut triple = |largest| [(); 3].map(|()| self.source.size(largest) as u32);
        let [kernel, stride, dilation, padding] =
            [triple(3), triple(3), triple(2), triple(3).map(|size| size - size.min(1))];
        let (batch, size) = (self.source.size(2), [(); 3].map(|()| self.source.size(6)));
        let usizes = |triple: [u32; 3]| triple.map(|size| size as usize);
        let conv = Conv3d {
            batch: batch as usize,
            in_size: size.map(|size| size as usize),
            in_c: in_c as usize,
            out_c: out_c as usize,
            kernel: usizes(kernel),
            stride: usizes(stride),
            padding: padding.map(|size| [size as usize; 2]),
            dilation: usizes(dilation),
            groups: groups as usize,
            in_stride: in_c as usize,
            out_stride: out_c as usize,
        };
        let [d, h, w] = conv.out_size().map(|size| size as u64);
        let y = [batch, d, h, w, out_c];
        let x = self.floats(&[batch, size[0], size[1], size[2], in_c]);
        let w = self.weights(pack::conv3d_f32_len(&conv));
        let tail = self.tail(out_c, &y);
        Step::Convolution(Convolution {
            x,
            w,
            y: self.output(&y),
            kernel: kernel.into(),
            stride: stride.into(),
            padding: padding.map(|size| [size; 2]).into(),
            dilation: dilation.into(),
            groups: groups as u32,
            depthwise: false,
            output_padding: None,
            winograd: None,
            tail,
        })
    }

    /// Sizes of a few dimensions.
    fn dims(&mut self, most: usize, largest: u64) -> Vec<u64> {
        (0..self.source.below(most + 1)).map(|_| self.source.size(largest)).collect()
    }

    fn elementwise(&mut self) -> Step {
        let dims = self.dims(4, 9);
        let count = 1 + self.source.below(4);
        let operands: Vec<_> = (0..count)
            .map(|_| {
                let own: Vec<u64> = dims.iter().map(|size| if self.source.once_in(4) { 1 } else { *size }).collect();
                self.either(&own)
            })
            .collect();
        let mut instructions = Vec::new();
        for at in 0..=self.source.below(6) {
            let registers = at.min(8) as u8;
            let mut operand = || match self.source.byte() % 3 {
                0 if registers > 0 => Operand::Register(self.source.byte() % registers),
                1 => Operand::Number(self.source.float()),
                _ => Operand::Tensor(self.source.below(count) as u8),
            };
            let (to, [x, a, b]) = (registers.min(7), [operand(), operand(), operand()]);
            instructions.push(match self.source.byte() % 4 {
                0 => Instruction::Unary { to, function: self.source.one_of(&UNARY), x },
                1 => Instruction::Binary { to, function: self.source.one_of(&BINARY), a, b },
                2 => Instruction::Select { to, condition: x, a, b },
                _ => Instruction::Activate { to, activation: self.activation(), x },
            });
        }
        Step::Elementwise(Elementwise { operands, y: self.any_output(&dims), instructions })
    }

    fn pooling(&mut self) -> Step {
        let [batch, in_h, in_w, out_h, out_w] = [2, 9, 9, 7, 7].map(|largest| self.source.size(largest));
        let channels = self.source.size(70);
        let mut pair = |largest| [self.source.size(largest) as u32, self.source.size(largest) as u32];
        let [kernel, stride, dilation, before, after] = [pair(4), pair(3), pair(3), pair(2), pair(2)];
        let x = self.either(&[batch, in_h, in_w, channels]);
        Step::Pooling(Pooling {
            kind: self.source.one_of(&[PoolingKind::Max, PoolingKind::Mean]),
            x,
            y: self.any_output(&[batch, out_h, out_w, channels]),
            kernel,
            stride,
            padding: [[before[0], after[0]], [before[1], after[1]]],
            dilation,
            count_padding: self.source.once_in(2),
            divisor: if self.source.once_in(3) { Some(u32::from(self.source.byte())) } else { None },
        })
    }

    fn reduction(&mut self) -> Step {
        let dims = self.dims(4, 12);
        let first = self.source.below(dims.len() + 1);
        let count = self.source.below(dims.len() - first + 1);
        let mut y = dims.clone();
        y.drain(first..first + count);
        let x = self.either(&dims);
        let function = self.source.one_of(&[Fold::Sum, Fold::Mean, Fold::Max, Fold::Min]);
        Step::Reduction(Reduction { function, x, y: self.any_output(&y), first: first as u32, count: count as u32 })
    }

    fn softmax(&mut self) -> Step {
        let dims = self.dims(3, 40);
        if self.source.once_in(2) {
            return Step::Softmax { x: self.floats(&dims), y: self.output(&dims), log: self.source.once_in(2) };
        }
        let (x, affine) = (self.bytes(&dims), self.affine());
        let y = self.payload.arena(len(&dims).div_ceil(4), ScalarType::Byte, &dims, Some(affine));
        Step::Softmax { x, y, log: false }
    }

    fn normalisation(&mut self) -> Step {
        let dims = self.dims(3, 40);
        let count = self.source.below(dims.len() + 1);
        let columns = [len(&dims[dims.len() - count..])];
        let weight = if self.source.once_in(2) { Some(self.floats(&columns)) } else { None };
        let bias = if self.source.once_in(2) { Some(self.floats(&columns)) } else { None };
        let (x, y) = (self.floats(&dims), self.output(&dims));
        let (eps, centred) = (self.source.float(), self.source.once_in(2));
        Step::Normalisation(Normalisation { x, y, weight, bias, dims: count as u32, eps, centred })
    }

    fn copy(&mut self) -> Step {
        let sizes = self.dims(4, 12);
        // One order of the dimensions in `x`, and one in `y`.
        let mut strides = || {
            let mut order: Vec<usize> = (0..sizes.len()).collect();
            let turn = self.source.below(sizes.len().max(1));
            order.rotate_left(turn.min(sizes.len()));
            let mut strides = vec![0; sizes.len()];
            let mut step = if self.source.once_in(4) { 2 } else { 1 };
            for at in order {
                strides[at] = if self.source.once_in(8) { 0 } else { step };
                step *= sizes[at].max(1);
            }
            let span: u64 = sizes.iter().zip(&strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
            (strides, span + 1)
        };
        let ((x_strides, from), (y_strides, to)) = (strides(), strides());
        let (x_offset, y_offset) = (self.source.below(4) as u64, self.source.below(4) as u64);
        let fill = if self.source.once_in(3) { Some(self.source.float()) } else { None };
        let (x_dims, y_dims) = ([from + x_offset], [to + y_offset]);
        let (x, y) = if self.source.once_in(3) {
            let (x, affine) = (self.bytes(&x_dims), self.affine());
            (x, self.payload.arena(y_dims[0].div_ceil(4), ScalarType::Byte, &y_dims, Some(affine)))
        } else {
            (self.floats(&x_dims), self.output(&y_dims))
        };
        Step::Copy(Copy {
            x,
            y,
            sizes: fixed(&sizes),
            x_offset: Size::Fixed(x_offset),
            x_strides: fixed(&x_strides),
            y_offset: Size::Fixed(y_offset),
            y_strides: fixed(&y_strides),
            fill,
        })
    }

    fn gather(&mut self) -> Step {
        let (rows, width, count) = (self.source.size(20), self.source.size(40), self.source.size(9));
        let dtype = self.source.one_of(&[ScalarType::Long, ScalarType::Int]);
        let indices = self.payload.input(dtype, &[count]);
        let table = if self.source.once_in(2) {
            let (is_four_bits, has_zeros) = (self.source.once_in(2), self.source.once_in(2));
            let group = 2 * self.source.size(10) as usize;
            self.integers(&QuantizedMatrix { k: width as usize, n: rows as usize, is_four_bits, has_zeros, group })
        } else {
            self.floats(&[rows, width])
        };
        Step::Gather(Gather { table, indices, y: self.output(&[count, width]) })
    }

    fn attention(&mut self) -> Step {
        let (batch, groups) = (self.source.size(2), self.source.size(2));
        let heads = groups * self.source.size(2);
        let (rows, keys) = (self.source.size(20), if self.source.once_in(4) { 250 } else { 1 } * self.source.size(3));
        let (depth, value_depth) = (self.source.size(20), self.source.size(20));
        // Heads outside of rows, or rows outside of heads.
        let mut laid_out = |heads: u64, rows: u64, width: u64| {
            let strides = if self.source.once_in(2) {
                [heads * rows * width, rows * width, width]
            } else {
                [rows * heads * width, width, heads * width]
            };
            strides.map(|stride| if self.source.once_in(16) { 0 } else { stride })
        };
        let strides = [
            laid_out(heads, rows, depth),
            laid_out(groups, keys, depth),
            laid_out(groups, keys, value_depth),
            laid_out(heads, rows, value_depth),
        ];
        let q = self.floats(&[batch * heads * rows * depth]);
        let k = self.floats(&[batch * groups * keys * depth]);
        let v = self.floats(&[batch * groups * keys * value_depth]);
        let mask = if self.source.once_in(3) {
            let own = [batch, heads, rows].map(|size| if self.source.once_in(2) { 1 } else { size });
            Some(self.floats(&[own[0], own[1], own[2], keys]))
        } else {
            None
        };
        let none = Strides { batch: 0, head: 0, row: 0 };
        let sizes = rushlight_engine::Attention {
            batch: batch as usize,
            heads: heads as usize,
            kv_heads: groups as usize,
            rows: rows as usize,
            keys: keys as usize,
            depth: depth as usize,
            value_depth: value_depth as usize,
            scale: 1.0,
            causal: false,
            q: none,
            k: none,
            v: none,
            y: none,
            mask: None,
        };
        self.scratch(sizes.scratch_per_thread());
        let [batch, heads, groups, rows, keys, depth, value_depth] =
            [batch, heads, groups, rows, keys, depth, value_depth].map(Size::Fixed);
        let y = [sizes.batch * sizes.heads * sizes.rows * sizes.value_depth].map(|size| size as u64);
        Step::Attention(Attention {
            q,
            k,
            v,
            mask,
            y: self.output(&y),
            batch,
            heads,
            groups,
            rows,
            keys,
            depth,
            value_depth,
            scale: self.source.float(),
            causal: self.source.once_in(2),
            strides: strides.map(|list| list.map(Size::Fixed)),
        })
    }

    fn resize(&mut self) -> Step {
        let [batch, in_h, in_w, out_h, out_w, channels] = [2, 9, 9, 9, 9, 40].map(|largest| self.source.size(largest));
        let (from, to) = ([batch, in_h, in_w, channels], [batch, out_h, out_w, channels]);
        let (x, y) = if self.source.once_in(2) {
            let (x, affine) = (self.bytes(&from), self.affine());
            (x, self.payload.arena(len(&to).div_ceil(4), ScalarType::Byte, &to, Some(affine)))
        } else {
            (self.floats(&from), self.output(&to))
        };
        let mode = self.source.one_of(&[ResizeMode::Nearest, ResizeMode::Bilinear]);
        let scales = [(); 2].map(|()| if self.source.once_in(3) { Some(self.source.float()) } else { None });
        Step::Resize(Resize { x, y, mode, align_corners: self.source.once_in(2), scales })
    }

    fn convert(&mut self) -> Step {
        let dims = self.dims(3, 12);
        let all = [ScalarType::Half, ScalarType::BFloat16, ScalarType::Bool, ScalarType::Char, ScalarType::Byte];
        let dtype = self.source.one_of(&all);
        let are_bytes = matches!(dtype, ScalarType::Char | ScalarType::Byte);
        if self.source.once_in(2) {
            let x = if are_bytes { self.bytes(&dims) } else { self.floats(&dims) };
            return Step::Convert(Convert { x, y: self.payload.output(dtype, &dims), dtype, enters: false });
        }
        let x = self.payload.input(dtype, &dims);
        let affine = if are_bytes { Some(self.affine()) } else { None };
        let inside = if are_bytes { ScalarType::Byte } else { ScalarType::Float };
        let y = self.payload.arena(len(&dims), inside, &dims, affine);
        Step::Convert(Convert { x, y, dtype, enters: true })
    }

    fn rows(&mut self) -> Step {
        let (rows, columns) = (self.source.size(9), self.source.size(40));
        let is_shared = self.source.once_in(2);
        let chosen = [2, if is_shared { 1 } else { rows }];
        let range = if self.source.once_in(4) { [self.source.byte(), self.source.byte()] } else { [0, 255] };
        let x = self.floats(&[rows, columns]);
        if self.source.once_in(2) {
            let (scales, affine) = (self.floats(&chosen), self.affine());
            let dims = [rows, columns];
            let y = self.payload.arena(len(&dims).div_ceil(4), ScalarType::Byte, &dims, Some(affine));
            return Step::RoundRows(RoundRows { x, scales, y, range });
        }
        let eps = self.source.float();
        let choice = self.source.one_of(&[Choice::Nearer, Choice::Lower { eps }]);
        Step::RowScales(RowScales { x, y: self.output(&chosen), choice, is_shared, range })
    }
}

/// The number of elements.
fn len(dims: &[u64]) -> u64 {
    dims.iter().product()
}

const UNARY: [Unary; 24] = [
    Unary::Identity,
    Unary::Neg,
    Unary::Abs,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Reciprocal,
    Unary::Square,
    Unary::Exp,
    Unary::Log,
    Unary::Sin,
    Unary::Cos,
    Unary::Tanh,
    Unary::Sigmoid,
    Unary::Erf,
    Unary::Floor,
    Unary::Ceil,
    Unary::Round,
    Unary::Trunc,
    Unary::Not,
    Unary::IsNan,
    Unary::Log1p,
    Unary::Expm1,
    Unary::RoundF16,
    Unary::RoundBf16,
];

const BINARY: [Binary; 15] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Max,
    Binary::Min,
    Binary::Pow,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
    Binary::And,
    Binary::Or,
];
