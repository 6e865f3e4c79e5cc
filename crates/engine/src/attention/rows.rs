//! Keys and values in the types that attention reads where they are.
#![allow(unsafe_code)]

use crate::arch::{LANES, Simd};
use crate::element::Element;
use crate::error::{Error, at_least};
use crate::{FloatSlice, Half};

use super::Strides;

/// Keys or values: floats as queries are, floats of 16 bits, or integers with scales and zero points.
#[derive(Debug, Clone, Copy)]
pub enum KeyValueSlice<'a> {
    Floats(FloatSlice<'a>),
    /// Bit patterns; widened to queries of f32, on every processor.
    Half(HalfRows<'a>),
    /// Goes with queries of f32.
    Quantized(QuantizedRows<'a>),
    /// Goes with queries of f32.
    Nibbles(NibbleRows<'a>),
}

/// Rows of 16-bit floats.
#[derive(Debug, Clone, Copy)]
pub struct HalfRows<'a> {
    pub half: Half,
    pub bits: &'a [u16],
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

/// Rows of 4-bit integers in groups, each with a scale and a zero point: an integer stands for `(integer - zero) * scale`.
///
/// A byte has an even element in its low half and the next one in the high half, as [`pack_nibbles`](crate::pack_nibbles) puts
/// them. A group has 32 elements, if a row has a multiple of that, or else all of a row, which are an even number. The group that
/// begins with element `e` has `scales[e / group]` and `zeros[e / group]`. Strides count elements, and are multiples of a row's.
#[derive(Debug, Clone, Copy)]
pub struct NibbleRows<'a> {
    pub bytes: &'a [u8],
    pub scales: &'a [f32],
    pub zeros: &'a [u8],
}

/// Elements of a group of 4-bit integers.
const GROUP: usize = 32;

impl NibbleRows<'_> {
    /// The elements of a group in rows of `width` elements.
    pub const fn group(width: usize) -> usize {
        if width.is_multiple_of(GROUP) { GROUP } else { width }
    }
}

/// The group of a row of `width` elements that element `at` is in; of all rows, if it is counted from the first of them.
#[inline(always)]
fn group(at: usize, width: usize) -> usize {
    if width.is_multiple_of(GROUP) { at / GROUP } else { at / width.max(1) }
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
            Self::Half(rows) => Self::Half(HalfRows { bits: rows.bits.get(count..).unwrap_or_default(), ..rows }),
            Self::Quantized(QuantizedRows { bytes, scales, zeros }) => {
                let rows = count / width.max(1);
                Self::Quantized(QuantizedRows {
                    bytes: bytes.get(count..).unwrap_or_default(),
                    scales: scales.get(rows..).unwrap_or_default(),
                    zeros: zeros.get(rows..).unwrap_or_default(),
                })
            }
            Self::Nibbles(NibbleRows { bytes, scales, zeros }) => {
                let groups = group(count, width);
                Self::Nibbles(NibbleRows {
                    bytes: bytes.get(count / 2..).unwrap_or_default(),
                    scales: scales.get(groups..).unwrap_or_default(),
                    zeros: zeros.get(groups..).unwrap_or_default(),
                })
            }
        }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Half(rows) => rows.bits.len(),
            Self::Quantized(rows) => rows.bytes.len(),
            Self::Nibbles(rows) => 2 * rows.bytes.len(),
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
        names: [&'static str; 3],
        strides: Strides,
        width: usize,
        len: usize,
    ) -> Result<(), Error> {
        check_groups(names, strides, [width, len, width], [self.scales.len(), self.zeros.len()])
    }
}

/// Checks that each group of elements of whole rows has a scale and a zero point, of which there are `counts`.
fn check_groups(
    [name_of_strides, scales, zeros]: [&'static str; 3],
    Strides { batch, head, row }: Strides,
    [width, len, group]: [usize; 3],
    counts: [usize; 2],
) -> Result<(), Error> {
    if width == 0 || len == 0 {
        return Ok(());
    }
    if [batch, head, row].iter().any(|stride| !stride.is_multiple_of(width)) {
        return Err(Error::Size { what: name_of_strides });
    }
    at_least(scales, counts[0], len.div_ceil(group))?;
    at_least(zeros, counts[1], len.div_ceil(group))
}

impl NibbleRows<'_> {
    /// Checks rows, strides, and that each group has a scale and a zero point, as [`QuantizedRows::check`] does for rows.
    pub(super) fn check(
        &self,
        names: [&'static str; 3],
        strides: Strides,
        width: usize,
        len: usize,
    ) -> Result<(), Error> {
        if len > 0 && !width.is_multiple_of(2) {
            return Err(Error::Size { what: names[0] });
        }
        check_groups(names, strides, [width, len, Self::group(width)], [self.scales.len(), self.zeros.len()])
    }
}

/// Keys or values of one type, for code that is monomorphized over it. `T` is the type of the queries, and of the panels that
/// keys and values are packed into.
pub(super) trait Rows<T: Element>: Copy + Send + Sync {
    type Row: Copy;

    /// The row of `width` elements from `at` on.
    fn row(self, at: usize, width: usize) -> Self::Row;

    /// The elements of a row as they are stored, if they are of type `T`.
    #[inline(always)]
    fn plain(_: &Self::Row) -> Option<&[T]> {
        None
    }

    /// The address of the first element, and the bits of one.
    fn address(self) -> (*const u8, usize);

    /// Prefetches element `column`, a multiple of 16, of the row from `at` on: its part of a cache line.
    #[inline(always)]
    fn prefetch<S: Simd>(self, s: S, at: usize, column: usize) {
        /// Bits of a cache line.
        const LINE: usize = 512;
        let (start, bits) = self.address();
        if (column * bits).is_multiple_of(LINE) {
            s.prefetch(start.wrapping_add((at + column) * bits / 8).cast());
        }
    }

    /// The scale of a row, which its loaded elements are still to be multiplied by.
    #[inline(always)]
    fn scale(_: Self::Row) -> f32 {
        1.0
    }

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
    fn address(self) -> (*const u8, usize) {
        (self.0.as_ptr().cast(), 8 * size_of::<T>())
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, row: &'a [T], at: usize, n: usize) -> S::V {
        // SAFETY: the caller guarantees that the row has these elements.
        unsafe { T::load(s, row.as_ptr().wrapping_add(at), n) }
    }
}

impl Rows<f32> for HalfRows<'_> {
    type Row = Self;

    #[inline(always)]
    fn row(self, at: usize, width: usize) -> Self {
        Self { bits: &self.bits[at..][..width], ..self }
    }

    #[inline(always)]
    fn address(self) -> (*const u8, usize) {
        (self.bits.as_ptr().cast(), 16)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, row: Self, at: usize, n: usize) -> S::V {
        let from = row.bits.as_ptr().wrapping_add(at);
        match row.half {
            // SAFETY: the caller guarantees these elements of the row, which are `LANES` here.
            Half::F16 if n == LANES => unsafe { s.load_f16(from) },
            Half::F16 => {
                let mut narrow = [0u16; LANES];
                // Behind the end of the row there are none to load.
                let elements = row.bits.get(at..).unwrap_or_default();
                narrow[..n].copy_from_slice(&elements[..n]);
                // SAFETY: there are 16 elements.
                unsafe { s.load_f16(narrow.as_ptr()) }
            }
            // SAFETY: the caller guarantees that the row has these elements.
            Half::Bf16 => unsafe { s.load_bf16(from, n) },
        }
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
    fn address(self) -> (*const u8, usize) {
        (self.bytes.as_ptr(), 8)
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

/// A row of [`NibbleRows`].
#[derive(Clone, Copy)]
pub(super) struct NibbleRow<'a> {
    bytes: &'a [u8],
    scales: &'a [f32],
    zeros: &'a [u8],
}

impl<'a> Rows<f32> for NibbleRows<'a> {
    type Row = NibbleRow<'a>;

    #[inline(always)]
    fn row(self, at: usize, width: usize) -> NibbleRow<'a> {
        let (first, groups) = (group(at, width), group(width, width));
        NibbleRow {
            bytes: &self.bytes[at / 2..][..width / 2],
            scales: &self.scales[first..][..groups],
            zeros: &self.zeros[first..][..groups],
        }
    }

    #[inline(always)]
    fn address(self) -> (*const u8, usize) {
        (self.bytes.as_ptr(), 4)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, row: NibbleRow<'a>, at: usize, n: usize) -> S::V {
        // Sixteen elements from a multiple of sixteen on are of one group.
        let group = if row.scales.len() > 1 { at / GROUP } else { 0 };
        let Some((&scale, &zero)) = row.scales.get(group).zip(row.zeros.get(group)) else { return s.splat(0.0) };
        let bytes = row.bytes.get(at / 2..).unwrap_or_default();
        let pairs = match bytes.first_chunk::<{ LANES / 2 }>() {
            Some(pairs) if n == LANES => *pairs,
            _ => {
                let mut pairs = [0; LANES / 2];
                let count = (n / 2).min(bytes.len());
                pairs[..count].copy_from_slice(&bytes[..count]);
                pairs
            }
        };
        let integers = s.i32_to_f32(s.widen_nibbles(pairs));
        s.mul(s.sub(integers, s.splat(f32::from(zero))), s.splat(scale))
    }
}
