//! Payloads from arbitrary bytes: steps of all kinds over tensors that fit, and then changes anywhere.

use rushlight_cpu_payload::{
    Activation, Affine, Attention, AveragePool, Binary, ChooseQparams, Convert, ConvertedType, Convolution,
    ConvolutionKind, Copy, DeltaRule, Direction, Elementwise, Epilogue, Experts, FakeQuantize, FloatFormat, Gather,
    GatherElements, GroupwiseEpilogue, GroupwiseFormat, Half, Instruction, Int8Epilogue, KeyValueFormat, Matmul,
    MatmulKind, Normalization, Operand, PackNibbles, PoolKind, Pooling, QuantizeRows, QuantizedFormat, Reduce,
    Reduction, Residual, Resize, ResizeMode, RowQparams, Scatter, Size, SizeOp, Softmax, Step, TableFormat, TensorId,
    TopK, Unary, UnpackNibbles, Window, Winograd, ZeroPointRule,
};
use rushlight_engine::pack::{self, Bits, GroupNumbers, Offsets, QuantizedGroups, ScaleFormat};
use rushlight_engine::{Conv2d, Conv3d, ConvTranspose2d, Strides};
use rushlight_format::ScalarType;

use super::source::Source;
use super::{Payload, fixed};

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
                self.payload.inline(dims, &floats)
            }
            _ => self.payload.input(ScalarType::Float, dims),
        }
    }

    /// Bytes that a step may read.
    fn bytes(&mut self, dims: &[u64]) -> TensorId {
        let element = self.source.one_of(&[ConvertedType::Uint8, ConvertedType::Int8]);
        let affine = self.affine();
        let x = self.payload.input(element.dtype(), dims);
        let y = self.payload.arena(len(dims).div_ceil(4), ScalarType::Byte, dims, Some(affine));
        self.payload.program.steps.push(Step::Convert(Convert { x, y, element, direction: Direction::Enter }));
        y
    }

    /// Bytes that a step has packed as pairs of nibbles.
    fn nibbles(&mut self, x: TensorId, count: u64) -> TensorId {
        let affine = self.affine();
        let y = self.payload.arena(count.div_ceil(4), ScalarType::Byte, &[count], Some(affine));
        self.payload.program.steps.push(Step::PackNibbles(PackNibbles { x, y }));
        y
    }

    /// Floats of 16 bits that a step has rounded.
    fn halves(&mut self, dims: &[u64], half: Half) -> TensorId {
        let (x, element) = (self.floats(dims), ConvertedType::Half(half));
        let y = self.payload.arena(len(dims).div_ceil(2), element.dtype(), dims, None);
        self.payload.program.steps.push(Step::Convert(Convert { x, y, element, direction: Direction::Leave }));
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

    /// Weights of f32 or of a 16-bit float type.
    fn weights(&mut self, elements: Option<usize>) -> (TensorId, FloatFormat) {
        let all = [FloatFormat::F32, FloatFormat::Half(Half::F16), FloatFormat::Half(Half::Bf16)];
        let format = self.source.one_of(&all);
        (self.blob(format.dtype(), elements.unwrap_or(0).min(1 << 16) as u64), format)
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
            GeluErf,
            GeluTanh,
        ];
        self.source.one_of(&all)
    }

    fn optional(&mut self, times: u8, dims: &[u64]) -> Option<TensorId> {
        if self.source.once_in(times) { Some(self.floats(dims)) } else { None }
    }

    fn epilogue(&mut self, columns: u64, y: &[u64]) -> Epilogue {
        let bias = self.optional(2, &[columns]);
        let residual = self.optional(3, y);
        let place = self.source.one_of(&[Residual::BeforeActivation as fn(_) -> _, Residual::AfterActivation]);
        Epilogue { bias, residual: residual.map(place), activation: self.activation() }
    }

    /// The epilogue of an int8 GEMM with this number of offsets. Its left side may have this number of scales.
    fn int8_epilogue(&mut self, columns: u64, offsets: u64, rows: u64, y: &[u64]) -> Int8Epilogue {
        let bias = self.optional(3, &[columns]);
        let (offsets, scales, activation) = (self.floats(&[offsets]), self.floats(&[columns]), self.activation());
        if self.source.once_in(2) {
            let qparams = self.floats(&[2, rows]);
            return Int8Epilogue::Dynamic { qparams, sums: offsets, scales, bias, activation };
        }
        let residual = if self.source.once_in(3) { Some(self.bytes(y)) } else { None };
        let fake_quantize = if self.source.once_in(3) {
            Some(FakeQuantize { activation: self.activation(), affine: self.affine() })
        } else {
            None
        };
        Int8Epilogue::Static { offsets, scales, bias, fake_quantize, residual, activation }
    }

    fn linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), self.source.size(70), self.source.size(40));
        let (a, y) = (self.floats(&[m, k]), [m, n]);
        let (b, kind) = if self.source.once_in(3) {
            let (b, format) = self.integers(k, n);
            (b, MatmulKind::WeightOnly { format, epilogue: self.epilogue(n, &y) })
        } else {
            let (b, format) = self.weights(pack::matrix_f32_len(k as usize, n as usize));
            (b, MatmulKind::Packed { format, epilogue: self.epilogue(n, &y) })
        };
        Step::Matmul(Matmul { a, b, y: self.output(&y), kind })
    }

    /// A packed matrix of integers.
    fn integers(&mut self, k: u64, n: u64) -> (TensorId, QuantizedFormat) {
        let bits = self.source.one_of(&[Bits::Four, Bits::Six, Bits::Eight]);
        let offsets = self.source.one_of(&[Offsets::None, Offsets::ZeroPoints, Offsets::Minima]);
        let scales = self.source.one_of(&[ScaleFormat::F32, ScaleFormat::F16, ScaleFormat::Products]);
        let format = QuantizedFormat { bits, offsets, scales, group: 2 * self.source.size(20) as u32 };
        let matrix = &format.matrix(k as usize, n as usize);
        let mut bytes = vec![0; pack::quantized_len(matrix).unwrap_or(0).min(1 << 16)];
        if Some(bytes.len()) == pack::quantized_len(matrix) {
            let weight = self.source.byte().cast_signed();
            let (k, n) = (k as usize, n as usize);
            let groups = k.div_ceil((format.group as usize).clamp(2, k.next_multiple_of(2).max(2)));
            let columns: Vec<i8> = (0..n * k).map(|at| weight.wrapping_add((at % k * 7 + at / k) as i8)).collect();
            let scales: Vec<f32> = (0..n * groups).map(|at| (at % groups + at / groups) as f32).collect();
            let zeros = vec![1; if offsets == Offsets::ZeroPoints { n * groups } else { 0 }];
            let factors: Vec<i8> = (0..n * groups).map(|at| at as i8).collect();
            let numbers = if format.scales == ScaleFormat::Products {
                GroupNumbers::Products { units: &scales[..n * k / pack::UNIT_ROWS], factors: &factors }
            } else {
                GroupNumbers::Each(&scales)
            };
            let minima = if offsets == Offsets::Minima { numbers } else { GroupNumbers::Each(&[]) };
            pack::quantized(&mut bytes, matrix, &columns, &QuantizedGroups { scales: numbers, zeros: &zeros, minima });
        }
        let len = bytes.len() as u64;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        (self.payload.blob(ScalarType::Byte, &[len], bytes), format)
    }

    fn batched(&mut self) -> Step {
        let (batch, m, k, n) = (self.source.size(4), self.source.size(12), self.source.size(40), self.source.size(40));
        let transposed = self.source.once_in(2);
        let of_b = if self.source.once_in(2) { 1 } else { batch };
        let (a, y) = (self.floats(&[batch, m, k]), [batch, m, n]);
        let b = self.floats(&if transposed { [of_b, n, k] } else { [of_b, k, n] });
        self.scratch(pack::matrix_f32_len(k as usize, n as usize).unwrap_or(0));
        let kind = MatmulKind::Dense { transposed, epilogue: self.epilogue(n, &y) };
        Step::Matmul(Matmul { a, b, y: self.output(&y), kind })
    }

    fn scratch(&mut self, floats: usize) {
        let program = &mut self.payload.program;
        program.scratch = program.scratch.max(floats.min(1 << 16) as u64);
    }

    fn int8_linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), self.source.size(70), self.source.size(40));
        let (a, y) = (self.bytes(&[m, k]), [m, n]);
        let b = self.blob(ScalarType::Char, pack::matrix_i8_len(k as usize, n as usize).unwrap_or(0) as u64);
        let kind = MatmulKind::Int8 { epilogue: self.int8_epilogue(n, n, m, &y) };
        Step::Matmul(Matmul { a, b, y: self.any_output(&y), kind })
    }

    fn groupwise_linear(&mut self) -> Step {
        let (m, k, n) = (self.source.size(20), 32 * self.source.size(5), self.source.size(40));
        let [is_four_bits, has_zeros, has_half_scales] = [(); 3].map(|()| self.source.once_in(2));
        let format = GroupwiseFormat { is_four_bits, has_zeros, has_half_scales };
        let (a, y) = (self.bytes(&[m, k]), [m, n]);
        let b = self.blob(ScalarType::Byte, format.matrix(k as usize, n as usize).len().unwrap_or(0) as u64);
        let (qparams, sums) = (self.floats(&[2, m]), self.floats(&[n]));
        let (bias, activation) = (self.optional(3, &[n]), self.activation());
        let epilogue = GroupwiseEpilogue { qparams, sums, bias, activation };
        Step::Matmul(Matmul { a, b, y: self.output(&y), kind: MatmulKind::Groupwise { format, epilogue } })
    }

    /// The window of a convolution, with equal padding before and after.
    fn window<const D: usize>(&mut self, largest: [u64; 4]) -> Window<D> {
        let mut sizes = |largest| core::array::from_fn(|_| self.source.size(largest) as u32);
        let [kernel, stride, dilation, padding]: [[u32; D]; 4] = largest.map(&mut sizes);
        Window { kernel, stride, dilation, padding: padding.map(|size| [size - size.min(1); 2]) }
    }

    fn image_of(&mut self, channels: u64) -> [u64; 4] {
        [self.source.size(2), self.source.size(9), self.source.size(12), channels]
    }

    /// The tensor that a convolution reads.
    fn image(&mut self, dims: &[u64], is_int8: bool) -> TensorId {
        if is_int8 { self.bytes(dims) } else { self.floats(dims) }
    }

    /// Numbers of input and output channels that `groups` divides.
    fn channels(&mut self, groups: u64) -> (u64, u64) {
        (groups * self.source.size(9), groups * self.source.size(9))
    }

    fn direct(&mut self, is_int8: bool) -> Step {
        let groups = if self.source.once_in(3) { self.source.size(3).max(1) } else { 1 };
        let (in_c, out_c) = self.channels(groups);
        let (window, x) = (self.window([4, 4, 3, 4]), self.image_of(in_c));
        let conv = conv2d(&window, groups, x, out_c);
        let y = [x[0], conv.out_h() as u64, conv.out_w() as u64, out_c];
        let (x, groups) = (self.image(&x, is_int8), groups as u32);
        if is_int8 {
            let w = self.blob(ScalarType::Char, pack::conv2d_i8_len(&conv).unwrap_or(0) as u64);
            let epilogue = self.int8_epilogue(out_c, out_c, 1, &y);
            let kind = ConvolutionKind::Int8Direct { window, groups, epilogue };
            return Step::Convolution(Convolution { x, w, y: self.any_output(&y), kind });
        }
        let (w, format) = self.weights(pack::conv2d_f32_len(&conv));
        let kind = ConvolutionKind::Direct { window, groups, format, epilogue: self.epilogue(out_c, &y) };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }

    fn depthwise(&mut self, is_int8: bool) -> Step {
        let channels = self.source.size(40);
        let (window, x) = (self.window([4, 4, 3, 4]), self.image_of(channels));
        let conv = conv2d(&window, channels.max(1), x, channels);
        let y = [x[0], conv.out_h() as u64, conv.out_w() as u64, channels];
        let x = self.image(&x, is_int8);
        if is_int8 {
            let w = self.blob(ScalarType::Char, pack::depthwise2d_i8_len(&conv).unwrap_or(0) as u64);
            let kind =
                ConvolutionKind::Int8Depthwise { window, epilogue: self.int8_epilogue(channels, channels, 1, &y) };
            return Step::Convolution(Convolution { x, w, y: self.any_output(&y), kind });
        }
        let w = self.blob(ScalarType::Float, (conv.kernel[0] * conv.kernel[1] * conv.in_c) as u64);
        let kind = ConvolutionKind::Depthwise { window, epilogue: self.epilogue(channels, &y) };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }

    fn transposed(&mut self, is_int8: bool) -> Step {
        let groups = if self.source.once_in(3) { self.source.size(3).max(1) } else { 1 };
        let (in_c, out_c) = self.channels(groups);
        let (window, x): (Window<2>, _) = (self.window([4, 4, 3, 4]), self.image_of(in_c));
        let output_padding = [(); 2].map(|()| self.source.below(2) as u32);
        let [batch, in_h, in_w, in_c] = x.map(|size| size as usize);
        let conv = ConvTranspose2d {
            batch,
            in_h,
            in_w,
            in_c,
            out_c: out_c as usize,
            kernel: usizes(window.kernel),
            stride: usizes(window.stride),
            padding: window.padding.map(usizes),
            output_padding: usizes(output_padding),
            dilation: usizes(window.dilation),
            groups: groups as usize,
            in_stride: in_c,
            out_stride: out_c as usize,
        };
        let y = [x[0], conv.out_h() as u64, conv.out_w() as u64, out_c];
        let (x, groups) = (self.image(&x, is_int8), groups as u32);
        if is_int8 {
            let phases = window.stride.iter().map(|size| u64::from(*size)).product::<u64>();
            let w = self.blob(ScalarType::Char, pack::conv_transpose2d_i8_len(&conv).unwrap_or(0) as u64);
            let epilogue = self.int8_epilogue(out_c, phases * out_c, 1, &y);
            let kind = ConvolutionKind::Int8Transposed { window, output_padding, groups, epilogue };
            return Step::Convolution(Convolution { x, w, y: self.any_output(&y), kind });
        }
        let (w, format) = self.weights(pack::conv_transpose2d_f32_len(&conv));
        let epilogue = self.epilogue(out_c, &y);
        let kind = ConvolutionKind::Transposed { window, output_padding, groups, format, epilogue };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }

    fn winograd(&mut self) -> Step {
        let (in_c, out_c) = (16 + self.source.size(9), 16 + self.source.size(9));
        let padding = [(); 2].map(|()| [self.source.below(3) as u32, self.source.below(3) as u32]);
        let x = self.image_of(in_c);
        let conv = conv2d(&Window { kernel: [3; 2], stride: [1; 2], padding, dilation: [1; 2] }, 1, x, out_c);
        let y = [x[0], conv.out_h() as u64, conv.out_w() as u64, out_c];
        let tile = self.source.one_of(&[Winograd::F2, Winograd::F4]);
        self.scratch(conv.out_h().div_ceil(2).max(4) * conv.out_w().div_ceil(2).max(4) * 40 * (in_c + out_c) as usize);
        let x = self.floats(&x);
        let w = self.blob(ScalarType::Float, pack::winograd_f32_len(tile, &conv).unwrap_or(0) as u64);
        let kind = ConvolutionKind::Winograd { tile, padding, epilogue: self.epilogue(out_c, &y) };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }

    fn volume(&mut self, is_int8: bool) -> Step {
        let groups = self.source.size(2).max(1);
        let (in_c, out_c) = (groups * self.source.size(5), groups * self.source.size(20));
        let window: Window<3> = self.window([3, 3, 2, 3]);
        let (batch, size) = (self.source.size(2), [(); 3].map(|()| self.source.size(6)));
        let conv = Conv3d {
            batch: batch as usize,
            in_size: size.map(|size| size as usize),
            in_c: in_c as usize,
            out_c: out_c as usize,
            kernel: usizes(window.kernel),
            stride: usizes(window.stride),
            padding: window.padding.map(usizes),
            dilation: usizes(window.dilation),
            groups: groups as usize,
            in_stride: in_c as usize,
            out_stride: out_c as usize,
        };
        let [d, h, w] = conv.out_size().map(|size| size as u64);
        let y = [batch, d, h, w, out_c];
        let (x, groups) = (self.image(&[batch, size[0], size[1], size[2], in_c], is_int8), groups as u32);
        if is_int8 {
            let w = self.blob(ScalarType::Char, pack::conv3d_i8_len(&conv).unwrap_or(0) as u64);
            let kind =
                ConvolutionKind::Int8Direct3d { window, groups, epilogue: self.int8_epilogue(out_c, out_c, 1, &y) };
            return Step::Convolution(Convolution { x, w, y: self.any_output(&y), kind });
        }
        let (w, format) = self.weights(pack::conv3d_f32_len(&conv));
        let kind = ConvolutionKind::Direct3d { window, groups, format, epilogue: self.epilogue(out_c, &y) };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
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
                1 => Operand::Constant(self.source.float()),
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
        let count_include_pad = self.source.once_in(2);
        let divisor_override = if self.source.once_in(3) { Some(u32::from(self.source.byte())) } else { None };
        let average = AveragePool { count_include_pad, divisor_override };
        Step::Pooling(Pooling {
            kind: self.source.one_of(&[PoolKind::Max, PoolKind::Average(average)]),
            x,
            y: self.any_output(&[batch, out_h, out_w, channels]),
            kernel,
            stride,
            padding: [[before[0], after[0]], [before[1], after[1]]],
            dilation,
        })
    }

    fn reduction(&mut self) -> Step {
        let dims = self.dims(4, 12);
        let first = self.source.below(dims.len() + 1);
        let count = self.source.below(dims.len() - first + 1);
        let mut y = dims.clone();
        y.drain(first..first + count);
        let x = self.either(&dims);
        let op = self.source.one_of(&[Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min]);
        Step::Reduce(Reduce { op, x, y: self.any_output(&y), first: first as u32, count: count as u32 })
    }

    fn softmax(&mut self) -> Step {
        let dims = self.dims(3, 40);
        if self.source.once_in(2) {
            return Step::Softmax(Softmax {
                x: self.floats(&dims),
                y: self.output(&dims),
                log: self.source.once_in(2),
            });
        }
        let (x, affine) = (self.bytes(&dims), self.affine());
        let y = self.payload.arena(len(&dims).div_ceil(4), ScalarType::Byte, &dims, Some(affine));
        Step::Softmax(Softmax { x, y, log: false })
    }

    fn normalisation(&mut self) -> Step {
        let dims = self.dims(3, 40);
        let count = self.source.below(dims.len() + 1);
        let columns = [len(&dims[dims.len() - count..])];
        let weight = if self.source.once_in(2) { Some(self.floats(&columns)) } else { None };
        let bias = if self.source.once_in(2) { Some(self.floats(&columns)) } else { None };
        let (x, y) = (self.floats(&dims), self.output(&dims));
        let (eps, centered) = (self.source.float(), self.source.once_in(2));
        Step::Normalization(Normalization { x, y, weight, bias, dims: count as u32, eps, centered })
    }

    fn copy(&mut self) -> Step {
        let sizes = self.dims(4, 12);
        // The dimensions have one order in `x`, and another in `y`.
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

    /// A scatter of rows to integer positions, of which a few are one past the last row.
    fn scatter(&mut self) -> Step {
        let (count, rows, width) = (self.source.size(6), self.source.size(9), self.source.size(40));
        let reach = if self.source.once_in(8) { rows + 2 } else { rows };
        let place = |byte: u8| (u64::from(byte) % (2 * reach).max(1)) as f32 - reach as f32;
        let places: Vec<f32> = (0..count).map(|_| place(self.source.byte())).collect();
        let indices = self.payload.inline(&[count], &places);
        Step::Scatter(Scatter {
            x: self.floats(&[count, width]),
            y: self.output(&[rows, width]),
            indices,
            dim_size: Size::Fixed(rows),
            sizes: fixed(&[width]),
            x_offset: Size::Fixed(0),
            x_step: Size::Fixed(width),
            x_strides: fixed(&[1]),
            y_offset: Size::Fixed(0),
            y_step: Size::Fixed(width),
            y_strides: fixed(&[1]),
        })
    }

    /// A GEMM of rows with the matrices of experts.
    fn experts(&mut self) -> Step {
        let (count, rows, k) = (self.source.size(4), self.source.size(9), self.source.size(24));
        let n = 16 * (1 + self.source.size(2));
        let reach = if self.source.once_in(8) { count + 1 } else { count };
        let chosen: Vec<f32> = (0..rows).map(|_| (u64::from(self.source.byte()) % reach.max(1)) as f32).collect();
        let index = self.payload.inline(&[rows], &chosen);
        let len = pack::matrix_f32_len(k as usize, (n * count) as usize).unwrap_or(0);
        let floats: Vec<u8> = (0..len).flat_map(|_| self.source.float().to_le_bytes()).collect();
        let b = self.payload.blob(ScalarType::Float, &[len as u64], floats);
        let kind = MatmulKind::Packed { format: FloatFormat::F32, epilogue: Epilogue::default() };
        let given = if self.source.once_in(8) { rows + 1 } else { rows };
        let matmul = Matmul { a: self.floats(&[given, k]), b, y: self.output(&[rows, n]), kind };
        Step::Experts(Experts { matmul, index, count: count as u32 })
    }

    fn top_k(&mut self) -> Step {
        let (rows, columns) = (self.source.size(9), self.source.size(40));
        let k = self.source.size(columns.max(1) + 1);
        Step::TopK(TopK { x: self.floats(&[rows, columns]), y: self.output(&[2, rows, k]) })
    }

    fn gather_elements(&mut self) -> Step {
        let (rows, columns, k) = (self.source.size(9), self.source.size(40), self.source.size(9));
        let index = self.floats(&[rows, k]);
        Step::GatherElements(GatherElements { x: self.floats(&[rows, columns]), index, y: self.output(&[rows, k]) })
    }

    fn delta_rule(&mut self) -> Step {
        let (batch, tokens, groups) = (self.source.size(2), self.source.size(5), self.source.size(3));
        let (heads, rows, columns) = (groups * self.source.size(2), self.source.size(20), self.source.size(80));
        let all = [batch, tokens, groups, rows];
        let decay = if self.source.once_in(2) { &all[..] } else { &all[..3] };
        let results = batch * tokens * heads * columns;
        Step::DeltaRule(DeltaRule {
            q: self.floats(&[batch, tokens, heads, rows]),
            k: self.floats(&all),
            v: self.floats(&[batch, tokens, groups, columns]),
            decay: self.floats(decay),
            beta: self.floats(&all[..3]),
            state: self.floats(&[batch, groups, rows, columns]),
            y: self.output(&[results + batch * groups * rows * columns]),
        })
    }

    fn gather(&mut self) -> Step {
        let (rows, width, count) = (self.source.size(20), self.source.size(40), self.source.size(9));
        let dtype = self.source.one_of(&[ScalarType::Long, ScalarType::Int]);
        let indices = self.payload.input(dtype, &[count]);
        let (table, format) = if self.source.once_in(2) {
            let (table, format) = self.integers(width, rows);
            (table, TableFormat::Quantized { format, rows: rows as u32 })
        } else {
            (self.floats(&[rows, width]), TableFormat::F32)
        };
        Step::Gather(Gather { table, format, indices, y: self.output(&[count, width]) })
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
        let (key_sizes, value_sizes) = ([batch * groups * keys, depth], [batch * groups * keys, value_depth]);
        let (are_quantized, are_nibbles) = (self.source.once_in(3), self.source.once_in(2));
        let [(k, k_qparams), (v, v_qparams)] = if are_quantized {
            [key_sizes, value_sizes].map(|[rows, width]| {
                let bytes = self.bytes(&[rows * width]);
                let (scales, zeros) = (self.floats(&[rows]), self.bytes(&[rows]));
                let bytes = if are_nibbles { self.nibbles(bytes, rows * width / 2) } else { bytes };
                (bytes, Some(RowQparams { scales, zeros }))
            })
        } else if self.source.once_in(3) {
            let half = self.source.one_of(&[Half::F16, Half::Bf16]);
            [key_sizes, value_sizes].map(|sizes| (self.halves(&[len(&sizes)], half), None))
        } else {
            [key_sizes, value_sizes].map(|sizes| (self.floats(&[len(&sizes)]), None))
        };
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
            causal: None,
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
            format: match k_qparams.zip(v_qparams) {
                Some((k, v)) if are_nibbles => KeyValueFormat::Int4([k, v]),
                Some((k, v)) => KeyValueFormat::Int8([k, v]),
                None => KeyValueFormat::Floats,
            },
            y: self.output(&y),
            batch,
            heads,
            groups,
            rows,
            keys,
            depth,
            value_depth,
            scale: self.source.float(),
            causal: self.source.once_in(2).then_some(Size::Fixed(0)),
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
        let all = [
            ConvertedType::Half(Half::F16),
            ConvertedType::Half(Half::Bf16),
            ConvertedType::Bool,
            ConvertedType::Int8,
            ConvertedType::Uint8,
            ConvertedType::Int64,
        ];
        let element = self.source.one_of(&all);
        if self.source.once_in(2) {
            let x = if element.is_quantized() { self.bytes(&dims) } else { self.floats(&dims) };
            let y = self.payload.output(element.dtype(), &dims);
            return Step::Convert(Convert { x, y, element, direction: Direction::Leave });
        }
        let x = self.payload.input(element.dtype(), &dims);
        let affine = if element.is_quantized() { Some(self.affine()) } else { None };
        let inside = if element.is_quantized() { ScalarType::Byte } else { ScalarType::Float };
        let y = self.payload.arena(len(&dims), inside, &dims, affine);
        Step::Convert(Convert { x, y, element, direction: Direction::Enter })
    }

    fn dynamic_quantization(&mut self) -> Step {
        let (rows, columns) = (self.source.size(9), self.source.size(40));
        let per_tensor = self.source.once_in(2);
        let has_factors = self.source.once_in(2);
        let qparams = [if has_factors { 3 } else { 2 }, if per_tensor { 1 } else { rows }];
        let range = if self.source.once_in(4) { [self.source.byte(), self.source.byte()] } else { [0, 255] };
        if self.source.once_in(4) {
            let (x, affine) = (self.bytes(&[rows, columns]), self.affine());
            let y = self.payload.arena(
                (rows * columns * 2).div_ceil(4),
                ScalarType::Byte,
                &[rows, 2 * columns],
                Some(affine),
            );
            return Step::UnpackNibbles(UnpackNibbles { x, y });
        }
        let x = self.floats(&[rows, columns]);
        if self.source.once_in(2) {
            let (qparams, affine) = (self.floats(&qparams), self.affine());
            let dims = [rows, columns];
            let y = self.payload.arena(len(&dims).div_ceil(4), ScalarType::Byte, &dims, Some(affine));
            return Step::QuantizeRows(QuantizeRows { x, qparams, y, range });
        }
        let eps = self.source.float();
        let rules = if has_factors {
            [None, Some(Half::F16)].map(|half| ZeroPointRule::Inverse { half })
        } else {
            [ZeroPointRule::MinError, ZeroPointRule::FromMin { eps }]
        };
        let rule = self.source.one_of(&rules);
        Step::ChooseQparams(ChooseQparams { x, y: self.output(&qparams), rule, per_tensor, range })
    }
}

fn usizes<const D: usize>(sizes: [u32; D]) -> [usize; D] {
    sizes.map(|size| size as usize)
}

/// The shape of a convolution of an image `[N, H, W, C]`.
fn conv2d(window: &Window<2>, groups: u64, x: [u64; 4], out_c: u64) -> Conv2d {
    Conv2d {
        // The sizes of outputs are divided by the stride.
        stride: usizes(window.stride).map(|size| size.max(1)),
        padding: window.padding.map(usizes),
        dilation: usizes(window.dilation),
        groups: groups as usize,
        ..Conv2d::new(x.map(|size| size as usize), out_c as usize, usizes(window.kernel))
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
