//! Quantization and dequantization of slices.

use rushlight_runtime::{Result, Tensor, TensorMut};

/// An integer that quantized tensors store.
pub(crate) trait Stored: Copy {
    /// Converts an integer, and drops bits that do not fit.
    fn from_i32(value: i32) -> Self;
    /// Returns the low 32 bits.
    fn to_i32(self) -> i32;
    /// The elements of a tensor of this type.
    fn slice<'a>(tensor: &Tensor<'a>) -> Result<&'a [Self]>;
    fn slice_mut<'a>(tensor: &'a mut TensorMut<'_>) -> Result<&'a mut [Self]>;
}

macro_rules! stored {
    ($($t:ty),*) => {$(
        impl Stored for $t {
            #[inline(always)]
            fn from_i32(value: i32) -> Self {
                value as Self
            }
            #[inline(always)]
            fn to_i32(self) -> i32 {
                self as i32
            }
            fn slice<'a>(tensor: &Tensor<'a>) -> Result<&'a [Self]> {
                tensor.as_slice()
            }
            fn slice_mut<'a>(tensor: &'a mut TensorMut<'_>) -> Result<&'a mut [Self]> {
                tensor.as_mut_slice()
            }
        }
    )*};
}

stored!(u8, i8, i16, i32, i64);

/// `UInt16` and `Bits16`, in the machine's byte order.
impl Stored for [u8; 2] {
    #[inline(always)]
    fn from_i32(value: i32) -> Self {
        (value as u16).to_ne_bytes()
    }
    #[inline(always)]
    fn to_i32(self) -> i32 {
        i32::from(u16::from_ne_bytes(self))
    }
    fn slice<'a>(tensor: &Tensor<'a>) -> Result<&'a [Self]> {
        Ok(tensor.bytes().as_chunks().0)
    }
    fn slice_mut<'a>(tensor: &'a mut TensorMut<'_>) -> Result<&'a mut [Self]> {
        Ok(tensor.bytes_mut().as_chunks_mut().0)
    }
}

/// Runs `body` with `Q` as the [`Stored`] type of a quantized tensor's dtype.
macro_rules! dispatch_stored {
    ($dtype:expr, $Q:ident => $body:expr) => {
        dispatch_types!("u8, i8, i16, u16, bits16 or i32", $dtype, $Q => $body,
            [Byte = u8, Char = i8, Short = i16, Int = i32, UInt16 = [u8; 2], Bits16 = [u8; 2]])
    };
}

/// `1.5 * 2^23`. Adding it to a float of magnitude up to 2^22 rounds that to the nearest integer, ties to even. The low bits
/// of the sum are the integer.
const ROUND: f32 = 12_582_912.0;

/// Parameters of quantization: `clamp(round(x * inverse) + zero_point, min, max)`, with ties to even.
#[derive(Clone, Copy)]
pub(crate) struct Quantizer {
    pub(super) inverse: f32,
    zero_point: i32,
    min: i64,
    max: i64,
}

impl Quantizer {
    pub(crate) fn new(scale: f32, zero_point: i32, min: i64, max: i64) -> Self {
        Self { inverse: 1.0 / scale, zero_point, min, max }
    }

    /// Returns a quantizer of values that are already multiplied by `inverse`.
    pub(super) fn scaled(self) -> Self {
        Self { inverse: 1.0, ..self }
    }

    /// Returns the parameters of [`quantize_within`]; `None` if they are not exact in f32. They are the bounds before the
    /// zero point is added, and the offset that converts the bits of `ROUND + integer` to the quantized integer.
    fn bounds(&self) -> Option<(f32, f32, i32)> {
        let zero_point = i64::from(self.zero_point);
        let (low, high) = (self.min.saturating_sub(zero_point), self.max.saturating_sub(zero_point));
        let exact = -(1 << 22)..=1 << 22;
        let offset = self.zero_point.wrapping_sub(ROUND.to_bits() as i32);
        (exact.contains(&low) && exact.contains(&high)).then_some((low as f32, high as f32, offset))
    }

    /// Quantizes as many elements as both slices have. NaN becomes `min`, infinities `min` and `max`.
    #[inline]
    pub(crate) fn quantize<Q: Stored>(&self, input: &[f32], out: &mut [Q]) {
        if let Some((low, high, offset)) = self.bounds() {
            for (q, &x) in out.iter_mut().zip(input) {
                *q = quantize_within(x * self.inverse, low, high, offset);
            }
        } else {
            let zero_point = self.zero_point as f32;
            for (q, &x) in out.iter_mut().zip(input) {
                let x = zero_point + libm::rintf(x * self.inverse);
                let x = if x.is_nan() { self.min } else { (x as i64).max(self.min).min(self.max) };
                *q = Q::from_i32(x as i32);
            }
        }
    }
}

/// Quantizes a scaled value, with the parameters of [`Quantizer::bounds`].
#[inline(always)]
fn quantize_within<Q: Stored>(x: f32, low: f32, high: f32, offset: i32) -> Q {
    let x = if x > low { x } else { low };
    let x = if x < high { x } else { high };
    Q::from_i32(((x + ROUND).to_bits() as i32).wrapping_add(offset))
}

/// Maximum columns of a [`ColumnQuantizer`].
pub(super) const COLUMNS: usize = 128;

/// A [`Quantizer`] for each of several columns.
pub(super) struct ColumnQuantizer {
    inverse: [f32; COLUMNS],
    low: [f32; COLUMNS],
    high: [f32; COLUMNS],
    offset: [i32; COLUMNS],
}

impl ColumnQuantizer {
    /// Returns `None` if the bounds of a quantizer are not exact in f32.
    pub(super) fn new(quantizers: impl Iterator<Item = Quantizer>) -> Option<Self> {
        let zeros = [0.0; COLUMNS];
        let mut columns = Self { inverse: zeros, low: zeros, high: zeros, offset: [0; COLUMNS] };
        for (i, quantizer) in quantizers.take(COLUMNS).enumerate() {
            (columns.low[i], columns.high[i], columns.offset[i]) = quantizer.bounds()?;
            columns.inverse[i] = quantizer.inverse;
        }
        Some(columns)
    }

    /// Quantizes one row of at most [`COLUMNS`] elements.
    #[inline]
    pub(super) fn quantize<Q: Stored>(&self, input: &[f32], out: &mut [Q]) {
        let parameters = self.inverse.iter().zip(&self.low).zip(&self.high).zip(&self.offset);
        for ((q, &x), (((&inverse, &low), &high), &offset)) in out.iter_mut().zip(input).zip(parameters) {
            *q = quantize_within(x * inverse, low, high, offset);
        }
    }
}

/// The parameters of [`dequantize`] for each of several columns.
pub(super) struct ColumnDequantizer {
    scale: [f32; COLUMNS],
    zero_point: [i32; COLUMNS],
}

impl ColumnDequantizer {
    pub(super) fn new(parameters: impl Iterator<Item = (f64, i32)>) -> Self {
        let mut columns = Self { scale: [0.0; COLUMNS], zero_point: [0; COLUMNS] };
        for (i, (scale, zero_point)) in parameters.take(COLUMNS).enumerate() {
            (columns.scale[i], columns.zero_point[i]) = (scale as f32, zero_point);
        }
        columns
    }

    /// Dequantizes one row of at most [`COLUMNS`] elements.
    #[inline]
    pub(super) fn dequantize<Q: Stored>(&self, input: &[Q], out: &mut [f32]) {
        let parameters = self.scale.iter().zip(&self.zero_point);
        for ((x, &q), (&scale, &zero_point)) in out.iter_mut().zip(input).zip(parameters) {
            *x = q.to_i32().wrapping_sub(zero_point) as f32 * scale;
        }
    }
}

/// Computes `(q - zero_point) * scale` in f32, for the length of the shorter slice.
#[inline]
pub(crate) fn dequantize<Q: Stored>(input: &[Q], out: &mut [f32], scale: f32, zero_point: i32) {
    // Bytes become the low bits of 2^23: bit operations and a subtraction take fewer instructions than a conversion.
    const START: f32 = 8_388_608.0;
    if size_of::<Q>() == 1 && zero_point.unsigned_abs() < 1 << 22 {
        let raised = if Q::from_i32(-1).to_i32() < 0 { 128u8 } else { 0 };
        let zero = START + f32::from(raised) + zero_point as f32;
        let start = START.to_bits() | u32::from(raised);
        let value = |q: Q| (f32::from_bits(start ^ u32::from(q.to_i32() as u8)) - zero) * scale;
        // Blocks of constant length take a third fewer instructions than a loop of unknown length.
        let length = input.len().min(out.len());
        let (input, input_rest) = input[..length].as_chunks::<16>();
        let (out, out_rest) = out[..length].as_chunks_mut::<16>();
        for (out, input) in out.iter_mut().zip(input) {
            for (x, &q) in out.iter_mut().zip(input) {
                *x = value(q);
            }
        }
        for (x, &q) in out_rest.iter_mut().zip(input_rest) {
            *x = value(q);
        }
        return;
    }
    for (x, &q) in out.iter_mut().zip(input) {
        *x = q.to_i32().wrapping_sub(zero_point) as f32 * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantize<Q: Stored + Default>(quantizer: Quantizer, x: f32) -> Q {
        let mut q = [Q::default()];
        quantizer.quantize(&[x], &mut q);
        q[0]
    }

    #[test]
    fn halves_round_to_even_and_ends_clamp() {
        let quantizer = Quantizer::new(0.5, 10, 0, 255);
        for (x, expected) in [(0.25, 10), (0.75, 12), (1.25, 12), (-0.25, 10), (-0.75, 8), (-100.0, 0), (1000.0, 255)] {
            assert_eq!(quantize::<u8>(quantizer, x), expected, "{x}");
        }
        assert_eq!(quantize::<u8>(quantizer, f32::NAN), 0);
        assert_eq!(quantize::<u8>(quantizer, f32::INFINITY), 255);
        assert_eq!(quantize::<u8>(quantizer, f32::NEG_INFINITY), 0);
    }

    #[test]
    fn wide_ranges() {
        let (min, max) = (i64::from(i32::MIN), i64::from(i32::MAX));
        let quantizer = Quantizer::new(1.0, 0, min, max);
        for (x, expected) in [(2.5, 2), (3.5, 4), (1e9, 1_000_000_000), (1e20, i32::MAX), (f32::NAN, i32::MIN)] {
            assert_eq!(quantize::<i32>(quantizer, x), expected, "{x}");
        }
        assert_eq!(quantize::<i8>(Quantizer::new(1.0, i32::MAX, -128, 127), 1.0), 127);
        assert_eq!(quantize::<i8>(Quantizer::new(1.0, 0, 5, -5), 1.0), -5);
    }

    #[test]
    fn dequantize_wraps_like_int32() {
        let mut out = [0.0; 2];
        dequantize(&[i32::MIN, 3], &mut out, 2.0, 1);
        assert_eq!(out, [i32::MAX as f32 * 2.0, 4.0]);
    }

    #[test]
    fn dequantize_stops_at_the_shorter_slice() {
        for (from, to) in [(12, 128), (40, 64), (64, 40), (0, 5)] {
            let (input, mut out) = ([3u8; 64], [0.0; 128]);
            dequantize(&input[..from], &mut out[..to], 2.0, 1);
            let count = out.iter().filter(|&&x| x == 4.0).count();
            assert_eq!(count, from.min(to));
        }
    }

    #[test]
    fn bytes_dequantize_like_wider_integers() {
        for zero_point in [0, 3, -128, 255, 1 << 22, -(1 << 22) + 1, i32::MIN] {
            for value in i16::from(i8::MIN)..=i16::from(u8::MAX) {
                let (mut expected, mut out) = ([0.0], [0.0]);
                dequantize(&[value], &mut expected, 0.3, zero_point);
                match (u8::try_from(value), i8::try_from(value)) {
                    (_, Ok(value)) => dequantize(&[value], &mut out, 0.3, zero_point),
                    (Ok(value), _) => dequantize(&[value], &mut out, 0.3, zero_point),
                    _ => {}
                }
                assert_eq!(out, expected, "{value} - {zero_point}");
            }
        }
    }
}
