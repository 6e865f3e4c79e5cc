//! Keys and values in the types that attention reads where they are.
#![allow(unsafe_code)]

use crate::FloatSlice;
use crate::arch::Simd;
use crate::element::Element;
use crate::error::{Error, at_least};

use super::Strides;

/// Keys or values: floats, or int8 with a scale and a zero point for each row.
#[derive(Debug, Clone, Copy)]
pub enum KeyValueSlice<'a> {
    Floats(FloatSlice<'a>),
    /// Goes with queries of f32.
    Quantized(QuantizedRows<'a>),
}

/// Rows of bytes, each with a scale and a zero point: a byte stands for `(byte - zero) * scale`.
///
/// The row whose first byte is `bytes[at]` has `scales[at / width]` and `zeros[at / width]`, where `width` is the number of
/// elements of a row. So the strides of keys and values are multiples of `width`.
#[derive(Debug, Clone, Copy)]
pub struct QuantizedRows<'a> {
    pub bytes: &'a [u8],
    pub scales: &'a [f32],
    pub zeros: &'a [u8],
}

impl<'a, T: Into<FloatSlice<'a>>> From<T> for KeyValueSlice<'a> {
    fn from(floats: T) -> Self {
        Self::Floats(floats.into())
    }
}

impl KeyValueSlice<'_> {
    /// The elements after the first `count`, which are whole rows of `width`.
    pub(super) fn after(self, count: usize, width: usize) -> Self {
        match self {
            Self::Floats(floats) => Self::Floats(floats.after(count)),
            Self::Quantized(QuantizedRows { bytes, scales, zeros }) => {
                let rows = count / width.max(1);
                Self::Quantized(QuantizedRows {
                    bytes: bytes.get(count..).unwrap_or_default(),
                    scales: scales.get(rows..).unwrap_or_default(),
                    zeros: zeros.get(rows..).unwrap_or_default(),
                })
            }
        }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Quantized(rows) => rows.bytes.len(),
        }
    }

    pub(super) fn is_bf16(&self) -> bool {
        matches!(self, Self::Floats(floats) if floats.is_bf16())
    }
}

impl QuantizedRows<'_> {
    /// Checks that each row has a scale and a zero point; `len` is the end of the last row. `names` are those of the strides, the
    /// scales and the zero points.
    pub(super) fn check(
        &self,
        [strides, scales, zeros]: [&'static str; 3],
        Strides { batch, head, row }: Strides,
        width: usize,
        len: usize,
    ) -> Result<(), Error> {
        if width == 0 || len == 0 {
            return Ok(());
        }
        if [batch, head, row].iter().any(|stride| !stride.is_multiple_of(width)) {
            return Err(Error::Size { what: strides });
        }
        at_least(scales, self.scales.len(), len.div_ceil(width))?;
        at_least(zeros, self.zeros.len(), len.div_ceil(width))
    }
}

/// Keys or values of one type, for code that is monomorphized over it. `T` is the type of the queries, and of the panels that
/// keys and values are packed into.
pub(super) trait Rows<T: Element>: Copy + Send + Sync {
    type Row: Copy;

    /// The row of `width` elements from `at` on.
    fn row(self, at: usize, width: usize) -> Self::Row;

    /// The elements of a row as they are stored, if they are of type `T`.
    fn plain(row: &Self::Row) -> Option<&[T]>;

    /// The address of a row, and its number of bytes.
    fn bytes(row: Self::Row) -> (*const u8, usize);

    /// The scale of a row, which its loaded elements are still to be multiplied by.
    fn scale(row: Self::Row) -> f32;

    /// Loads `n` elements (at most 16) from element `at` on, before they are multiplied by the scale. The other lanes are
    /// finite.
    ///
    /// # Safety
    /// The row has `at + n` elements; the processor supports the type.
    unsafe fn load<S: Simd>(s: S, row: Self::Row, at: usize, n: usize) -> S::V;
}

/// Keys or values of the type of the queries.
#[derive(Clone, Copy)]
pub(super) struct PlainRows<'a, T>(pub(super) &'a [T]);

impl<'a, T: Element> Rows<T> for PlainRows<'a, T> {
    type Row = &'a [T];

    #[inline(always)]
    fn row(self, at: usize, width: usize) -> &'a [T] {
        &self.0[at..][..width]
    }

    #[inline(always)]
    fn plain<'r>(row: &'r &'a [T]) -> Option<&'r [T]> {
        Some(row)
    }

    #[inline(always)]
    fn bytes(row: &'a [T]) -> (*const u8, usize) {
        (row.as_ptr().cast(), size_of_val(row))
    }

    #[inline(always)]
    fn scale(_: &'a [T]) -> f32 {
        1.0
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, row: &'a [T], at: usize, n: usize) -> S::V {
        // SAFETY: the caller guarantees that the row has these elements.
        unsafe { T::load(s, row.as_ptr().wrapping_add(at), n) }
    }
}

/// A row of [`QuantizedRows`].
#[derive(Clone, Copy)]
pub(super) struct QuantizedRow<'a> {
    bytes: &'a [u8],
    scale: f32,
    zero: f32,
}

impl<'a> Rows<f32> for QuantizedRows<'a> {
    type Row = QuantizedRow<'a>;

    #[inline(always)]
    fn row(self, at: usize, width: usize) -> QuantizedRow<'a> {
        let bytes = &self.bytes[at..][..width];
        // Rows of no elements have no scale.
        let parameters = at.checked_div(width).map(|row| (self.scales[row], self.zeros[row]));
        let (scale, zero) = parameters.unwrap_or_default();
        QuantizedRow { bytes, scale, zero: f32::from(zero) }
    }

    #[inline(always)]
    fn plain<'r>(_: &'r QuantizedRow<'a>) -> Option<&'r [f32]> {
        None
    }

    #[inline(always)]
    fn bytes(row: QuantizedRow<'a>) -> (*const u8, usize) {
        (row.bytes.as_ptr(), row.bytes.len())
    }

    #[inline(always)]
    fn scale(row: QuantizedRow<'a>) -> f32 {
        row.scale
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, row: QuantizedRow<'a>, at: usize, n: usize) -> S::V {
        // SAFETY: the caller guarantees that the row has these elements.
        let bytes = unsafe { s.load_u8(row.bytes.as_ptr().wrapping_add(at), n) };
        s.sub(s.i32_to_f32(bytes), s.splat(row.zero))
    }
}
