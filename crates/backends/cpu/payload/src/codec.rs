//! Bytes of a CPU program: little-endian base-128 numbers, lists with their lengths, unions with their tags.

use alloc::string::String;
use alloc::vec::Vec;

use rushlight_engine::pack::{Bits, Offsets, ScaleFormat};
use rushlight_engine::{
    Activation, AveragePool, Binary, Half, Instruction, Operand, PoolKind, Reduction, ResizeMode, Unary, Winograd,
    ZeroPointRule,
};
use rushlight_format::ScalarType;

use super::{
    Affine, Attention, Buffer, ChooseQparams, Convert, ConvertedType, Convolution, ConvolutionKind, Copy, CpuProgram,
    DeltaRule, Direction, Elementwise, Epilogue, Experts, FakeQuantize, FloatFormat, Gather, GroupwiseEpilogue,
    GroupwiseFormat, Int8Epilogue, KeyValueFormat, Matmul, MatmulKind, Normalization, PayloadError, PayloadFault,
    PayloadSite, Pooling, QuantizeRows, QuantizedFormat, Reduce, Residual, Resize, RowQparams, Scatter, Size, SizeOp,
    State, Step, TableFormat, Tensor, VERSION, Window,
};

/// The magic number of payloads, before the version.
const MAGIC: [u8; 3] = *b"RLC";

/// Stored as a character, so that the first versions are digits.
const FIRST_VERSION: u8 = b'0';

/// The bytes that each payload of this version begins with.
pub const HEADER: [u8; 4] = [MAGIC[0], MAGIC[1], MAGIC[2], FIRST_VERSION + VERSION];

pub(super) fn write(program: &CpuProgram) -> Vec<u8> {
    let mut out = HEADER.to_vec();
    program.put(&mut out);
    out
}

pub(super) fn read(bytes: &[u8]) -> Result<CpuProgram, PayloadError> {
    let mut reader = Reader { bytes, at: 0 };
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(PayloadError::new(PayloadFault::Magic).at(PayloadSite::Byte(0)));
    }
    let got = reader.byte()?.wrapping_sub(FIRST_VERSION);
    if got != VERSION {
        return Err(PayloadError::new(PayloadFault::Version { expected: VERSION, got }));
    }
    CpuProgram::get(&mut reader)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, fault: PayloadFault) -> PayloadError {
        PayloadError::new(fault).at(PayloadSite::Byte(self.at))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], PayloadError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let piece = rest.get(..len);
        let truncated = PayloadFault::Truncated { needed: len as u64, available: rest.len() as u64 };
        let piece = piece.ok_or_else(|| self.error(truncated))?;
        self.at += len;
        Ok(piece)
    }

    fn byte(&mut self) -> Result<u8, PayloadError> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    fn unknown<T>(&self, tag: u8) -> Result<T, PayloadError> {
        Err(self.error(PayloadFault::UnknownTag { tag }))
    }
}

trait Codec: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError>;
}

impl Codec for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = reader.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(reader.error(PayloadFault::Overflow))
    }
}

impl Codec for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        // Small numbers of either sign are short.
        (((*self << 1) ^ (*self >> 63)) as u64).put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let folded = u64::get(reader)?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }
}

impl Codec for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let value = u64::get(reader)?;
        let limit = u64::from(Self::MAX);
        Self::try_from(value).map_err(|_| reader.error(PayloadFault::OutOfRange { value, limit }))
    }
}

impl Codec for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        reader.byte()
    }
}

impl Codec for f32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        Ok(Self::from_le_bytes(reader.take(4)?.try_into().unwrap_or_default()))
    }
}

impl Codec for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        match reader.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            tag => reader.unknown(tag),
        }
    }
}

impl Codec for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let len = u64::get(reader)?;
        let bytes = reader.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        let text = core::str::from_utf8(bytes).map_err(|_| reader.error(PayloadFault::InvalidUtf8))?;
        Ok(text.into())
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let len = u64::get(reader)?;
        let available = (reader.bytes.len() - reader.at) as u64;
        // Every item takes a byte at least, so that a short file cannot ask for much memory.
        if len > available {
            return Err(reader.error(PayloadFault::Truncated { needed: len, available }));
        }
        let mut items = Self::new();
        for _ in 0..len {
            items.push(T::get(reader)?);
        }
        Ok(items)
    }
}

impl<T: Codec> Codec for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(item) = self {
            item.put(out);
        }
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        Ok(if bool::get(reader)? { Some(T::get(reader)?) } else { None })
    }
}

impl<T: Codec + Default + core::marker::Copy, const N: usize> Codec for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(out));
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::get(reader)?;
        }
        Ok(items)
    }
}

impl Codec for ScalarType {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let code = reader.byte()?;
        match Self::ALL.get(code as usize) {
            Some(dtype) => Ok(*dtype),
            None => reader.unknown(code),
        }
    }
}

/// A structure is its fields, one after the other.
macro_rules! structure {
    ($($name:ident { $($field:ident),* })*) => { $(
        impl Codec for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $( self.$field.put(out); )*
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
                Ok(Self { $( $field: Codec::get(reader)? ),* })
            }
        }
    )* };
}

/// A union is the tag of its variant, and that one's fields.
macro_rules! union {
    ($($name:ident { $( $tag:literal $variant:ident $( ( $($item:ident),* ) )? $( { $($field:ident),* } )? ),* })*) => { $(
        impl Codec for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$variant $( ( $($item),* ) )? $( { $($field),* } )? => {
                        out.push($tag);
                        $( $($item.put(out);)* )?
                        $( $($field.put(out);)* )?
                    } )*
                }
            }

            fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
                Ok(match reader.byte()? {
                    $( $tag => Self::$variant
                        $( ( $({ let $item = Codec::get(reader)?; $item }),* ) )?
                        $( { $($field: Codec::get(reader)?),* } )?, )*
                    tag => return reader.unknown(tag),
                })
            }
        }
    )* };
}

structure! {
    CpuProgram { sizes, buffers, tensors, inputs, outputs, output_sizes, blobs, states, inline_floats, arena, scratch, steps, names }
    State { key, len, initial, is_cache }
    Tensor { dtype, buffer, offset, dims, affine }
    Affine { scale, zero, min, max }
    Matmul { a, b, y, kind }
    Convolution { x, w, y, kind }
    QuantizedFormat { bits, offsets, scales, group }
    GroupwiseFormat { is_four_bits, has_zeros, has_half_scales }
    Epilogue { bias, residual, activation }
    FakeQuantize { activation, affine }
    GroupwiseEpilogue { qparams, sums, bias, activation }
    ChooseQparams { x, y, rule, per_tensor, range }
    QuantizeRows { x, qparams, y, range }
    Elementwise { operands, y, instructions }
    Pooling { kind, x, y, kernel, stride, padding, dilation }
    AveragePool { count_include_pad, divisor_override }
    Reduce { op, x, y, first, count }
    Normalization { x, y, weight, bias, dims, eps, centered }
    Copy { x, y, sizes, x_offset, x_strides, y_offset, y_strides, fill }
    Gather { table, format, indices, y }
    Scatter { x, y, indices, dim_size, sizes, x_offset, x_step, x_strides, y_offset, y_step, y_strides }
    Attention {
        q, k, v, mask, format, y, batch, heads, groups, rows, keys, depth, value_depth, scale, causal, strides
    }
    RowQparams { scales, zeros }
    DeltaRule { q, k, v, decay, beta, state, y }
    Experts { matmul, index, count }
    Resize { x, y, mode, align_corners, scales }
    Convert { x, y, element, direction }
}

impl<const D: usize> Codec for Window<D> {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { kernel, stride, padding, dilation } = self;
        kernel.put(out);
        stride.put(out);
        padding.put(out);
        dilation.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let (kernel, stride) = (Codec::get(reader)?, Codec::get(reader)?);
        Ok(Self { kernel, stride, padding: Codec::get(reader)?, dilation: Codec::get(reader)? })
    }
}

union! {
    Size { 0 Fixed(size), 1 Computed(index) }
    SizeOp {
        0 Fixed(value), 1 Input { input, dim }, 2 Add(a, b), 3 Mul(a, b), 4 FloorDiv(a, b), 5 Mod(a, b), 6 Max(a, b), 7 Min(a, b),
        8 Element { input, index, min, max }
    }
    Buffer { 0 Input(index), 1 Output(index), 2 Arena { offset, len }, 3 Blob(index), 4 Inline { offset, len }, 5 State(index) }
    Step {
        0 Matmul(step), 1 Convolution(step), 2 Elementwise(step), 3 Pooling(step), 4 Reduce(step), 5 Softmax { x, y, log },
        6 Normalization(step), 7 Copy(step), 8 Gather(step), 9 Attention(step), 10 Resize(step),
        11 Convert(step), 12 ChooseQparams(step), 13 QuantizeRows(step), 14 Scatter(step),
        15 PackNibbles { x, y }, 16 UnpackNibbles { x, y }, 17 Experts(step), 18 TopK { x, y },
        19 GatherElements { x, index, y },
        20 DeltaRule(step)
    }
    MatmulKind {
        0 Dense { transposed, epilogue }, 1 Packed { format, epilogue }, 2 WeightOnly { format, epilogue },
        3 Int8 { epilogue }, 4 Groupwise { format, epilogue }
    }
    ConvolutionKind {
        0 Direct { window, groups, format, epilogue }, 1 Direct3d { window, groups, format, epilogue },
        2 Depthwise { window, epilogue }, 3 Transposed { window, output_padding, groups, format, epilogue },
        4 Winograd { tile, padding, epilogue }, 5 Int8Direct { window, groups, epilogue },
        6 Int8Depthwise { window, epilogue }, 7 Int8Transposed { window, output_padding, groups, epilogue }
    }
    FloatFormat { 0 F32, 1 Half(half) }
    KeyValueFormat { 0 Floats, 1 Int8(qparams), 2 Int4(qparams) }
    TableFormat { 0 F32, 1 Quantized { format, rows } }
    Residual { 0 BeforeActivation(tensor), 1 AfterActivation(tensor) }
    Int8Epilogue {
        0 Static { offsets, scales, bias, fake_quantize, residual, activation },
        1 Dynamic { qparams, sums, scales, bias, activation }
    }
    ConvertedType { 0 Half(half), 1 Bool, 2 Int8, 3 Uint8, 4 Int64 }
    Direction { 0 Enter, 1 Leave }
    Half { 0 F16, 1 Bf16 }
    Bits { 0 Four, 1 Six, 2 Eight }
    Offsets { 0 None, 1 ZeroPoints, 2 Minima }
    ScaleFormat { 0 F32, 1 F16, 2 Products }
    ZeroPointRule { 0 FromMin { eps }, 1 MinError, 2 Inverse { half } }
    Activation {
        0 None, 1 Clamp { min, max }, 2 LeakyRelu { slope }, 3 HardSwish, 4 HardSigmoid, 5 Sigmoid, 6 Silu, 7 Tanh, 8 GeluErf,
        9 GeluTanh, 10 Elu { alpha }
    }
    Operand { 0 Register(register), 1 Tensor(index), 2 Constant(value) }
    Instruction {
        0 Unary { to, function, x }, 1 Binary { to, function, a, b }, 2 Select { to, condition, a, b },
        3 Activate { to, activation, x }
    }
    Unary {
        0 Identity, 1 Neg, 2 Abs, 3 Sqrt, 4 Rsqrt, 5 Reciprocal, 6 Square, 7 Exp, 8 Log, 9 Sin, 10 Cos, 11 Tanh, 12 Sigmoid,
        13 Erf, 14 Floor, 15 Ceil, 16 Round, 17 Trunc, 18 Not, 19 IsNan, 20 Log1p, 21 Expm1,
        22 RoundF16, 23 RoundBf16
    }
    Binary {
        0 Add, 1 Sub, 2 Mul, 3 Div, 4 Max, 5 Min, 6 Pow, 7 Eq, 8 Ne, 9 Lt, 10 Le, 11 Gt, 12 Ge, 13 And, 14 Or
    }
    Winograd { 0 F2, 1 F4 }
    PoolKind { 0 Max, 1 Average(average) }
    Reduction { 0 Sum, 1 Mean, 2 Max, 3 Min }
    ResizeMode { 0 Nearest, 1 Bilinear }
}
