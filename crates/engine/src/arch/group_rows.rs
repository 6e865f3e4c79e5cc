//! Many rows times groups of quantized weights, for instruction sets that have [`Simd::multiply_groups`]: the groups of a panel are
//! unpacked once for all rows.
#![allow(unsafe_code)]

use super::tiles::UnpackedGroup;
use super::{Aligned, Kernel, LANES, Simd};
use crate::task_memory::AnyBytes;

/// Rows of K that share a scale.
const GROUP: usize = 32;

/// Groups that are unpacked together, a part of the L1 cache; only an instruction set of this architecture unpacks them.
const MAX_GROUPS: usize = if cfg!(target_arch = "aarch64") { 16 } else { 1 };

/// Rows whose totals are in memory at a time, a multiple of the rows of all tiles.
const MAX_ROWS: usize = if cfg!(target_arch = "aarch64") { 192 } else { 1 };

/// Unpacked groups of a panel, and totals of rows.
pub(crate) struct GroupMemory {
    groups: [UnpackedGroup; MAX_GROUPS],
    /// One more row for a last pair of rows.
    totals: [Aligned; MAX_ROWS + 1],
}

// SAFETY: numbers.
unsafe impl AnyBytes for GroupMemory {}

/// A group of 16 columns of a [`GroupwiseMatrix`](crate::pack::GroupwiseMatrix).
pub(crate) struct PackedGroup<'a> {
    pub(crate) weights: &'a [u8],
    pub(crate) is_four_bits: bool,
    /// 16 numbers, f32 or f16.
    pub(crate) scales: &'a [u8],
    pub(crate) has_half_scales: bool,
    /// Zero points of 4-bit weights, with the same bias.
    pub(crate) zeros: [u8; LANES],
}

impl GroupMemory {
    /// Number of groups that are unpacked together.
    pub(crate) const GROUPS: usize = MAX_GROUPS;

    /// Number of rows whose totals are in memory.
    pub(crate) const ROWS: usize = MAX_ROWS;

    /// Sets the totals of rows to zero.
    #[inline(always)]
    pub(crate) fn clear<S: Simd>(&mut self, s: S, rows: usize) {
        for total in &mut self.totals[..=rows] {
            // SAFETY: there is room for a vector.
            unsafe { s.store((&raw mut *total).cast(), s.splat(0.0)) };
        }
    }

    /// Unpacks a group.
    #[inline(always)]
    pub(crate) fn unpack<S: Simd>(&mut self, s: S, at: usize, group: &PackedGroup<'_>) {
        let &PackedGroup { weights, is_four_bits, scales, has_half_scales, zeros } = group;
        assert!(weights.len() >= GROUP * LANES / if is_four_bits { 2 } else { 1 }, "the weights");
        assert!(scales.len() >= LANES * if has_half_scales { 2 } else { 4 }, "the scales");
        let scales = if has_half_scales {
            // SAFETY: there are 16 f16 numbers.
            unsafe { s.load_f16(scales.as_ptr().cast()) }
        } else {
            // SAFETY: there are 16 floats.
            unsafe { s.load(scales.as_ptr().cast()) }
        };
        // SAFETY: the length was asserted.
        unsafe { s.unpack_group(weights.as_ptr(), is_four_bits, zeros, scales, &mut self.groups[at]) };
    }

    /// Multiplies rows, which begin `stride` bytes apart, by the first `groups` groups, and adds the products to the totals.
    #[inline(always)]
    pub(crate) fn multiply<S: Simd>(&mut self, s: S, left: &[u8], stride: usize, rows: usize, groups: usize) {
        let Self { groups: unpacked, totals } = self;
        let groups = &unpacked[..groups];
        assert!(rows <= MAX_ROWS, "the totals");
        assert!(rows == 0 || (rows - 1) * stride + groups.len() * GROUP <= left.len(), "the rows");
        s.vectorize(Tiles { groups, left: left.as_ptr(), stride, rows, totals: totals.as_mut_ptr().cast() });
    }

    /// Returns the totals of rows, `[rows][16]`. The next totals must be cleared.
    #[inline(always)]
    pub(crate) fn totals<S: Simd>(&mut self, s: S, rows: usize) -> *const f32 {
        assert!(rows <= MAX_ROWS, "the totals");
        s.vectorize(ArrangeTotals { rows, totals: self.totals.as_mut_ptr().cast() });
        self.totals.as_ptr().cast()
    }
}

/// Calls a function of a row for all rows: for the largest tiles, then for pairs.
macro_rules! each_tile {
    ($simd:ident, $rows:expr, $row:ident, $tile:ident $arguments:tt) => {
        let (rows, mut $row) = ($rows, 0);
        each_tile!(@ $simd, rows, $row, $tile, $arguments, 6 4 2 1);
    };
    (@ $simd:ident, $rows:ident, $row:ident, $tile:ident, $arguments:tt, $($height:literal)*) => {$(
        if const { $height == $simd::GROUP_ROWS || $height <= 2 } {
            while $rows - $row >= $height {
                $tile::<$simd, $height> $arguments;
                $row += $height;
            }
        }
    )*};
}

/// Multiplies all rows by unpacked groups. The pointers are to [`GroupMemory`] and to rows whose sizes it asserts.
struct Tiles<'a> {
    groups: &'a [UnpackedGroup],
    left: *const u8,
    stride: usize,
    rows: usize,
    totals: *mut f32,
}

impl Kernel for Tiles<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        #[inline(always)]
        fn tile<S: Simd, const R: usize>(s: S, tiles: &Tiles<'_>, row: usize) {
            let &Tiles { groups, left, stride, totals, .. } = tiles;
            let (left, totals) = (left.wrapping_add(row * stride), totals.wrapping_add(row * LANES));
            // SAFETY: each row has 32 bytes for each group, and there are totals for the rows and one more.
            unsafe { s.multiply_groups::<R>(left, stride, groups, totals) };
        }
        each_tile!(S, self.rows, row, tile(s, &self, row));
    }
}

/// Arranges the totals of all rows.
struct ArrangeTotals {
    rows: usize,
    totals: *mut f32,
}

impl Kernel for ArrangeTotals {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        #[inline(always)]
        fn tile<S: Simd, const R: usize>(s: S, totals: *mut f32, row: usize) {
            // SAFETY: there are totals for the rows and one more.
            unsafe { s.arrange_totals::<R>(totals.wrapping_add(row * LANES)) };
        }
        each_tile!(S, self.rows, row, tile(s, self.totals, row));
    }
}
