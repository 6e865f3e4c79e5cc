//! Products of bytes with weights of four or eight bits that have a scale for each group of 32 of K.

use core::mem::MaybeUninit;

use crate::Engine;
use crate::arch::{Aligned, Job, LANES, Simd};
use crate::cut::{Cut, Share};
use crate::error::{Error, at_least, size};
use crate::pack::{GROUP, GroupMatrix};
use crate::tail::Activation;

use super::RowScales;

/// A product `c = activation(a b + bias)` with a scale and a zero for each row of `a`.
#[derive(Debug, Clone, Copy)]
pub struct GroupTail<'a> {
    pub rows: RowScales<'a>,
    /// For each column: the sum of its weights, each less its zero and with its scale.
    pub sums: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub activation: Activation,
}

/// How far ahead of a group weights are asked for, in bytes, where one row after the other waits for them: all of them, since
/// processors by themselves stop at the end of a page.
const AHEAD: usize = 8192;
/// Lines of 64 bytes that the weights of four bits of a group take.
const LINES: usize = 4;

/// Rows of the largest tile, which has two panels.
const MOST_ROWS: usize = 6;

/// Computes `c = tail(a b)` with `a` of `m` rows of `k` bytes, and `b` packed by
/// [`pack::groups_into`](crate::pack::groups_into). All is dense.
///
/// # Errors
/// When a slice is too short, or `k` is no multiple of 32.
pub fn gemm_groups(
    engine: &Engine,
    m: usize,
    a: &[u8],
    (matrix, packed): (GroupMatrix, &[u8]),
    c: &mut [f32],
    tail: &GroupTail,
) -> Result<(), Error> {
    let GroupMatrix { k, n, .. } = matrix;
    at_least("a", a.len(), size("a", &[m, k])?)?;
    at_least("c", c.len(), size("c", &[m, n])?)?;
    let bytes = matrix.len().ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), bytes)?;
    at_least("sums", tail.sums.len(), n)?;
    tail.rows.check(m)?;
    if let Some(bias) = tail.bias {
        at_least("bias", bias.len(), n)?;
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    let product = Product { a, packed, c: c.as_mut_ptr(), matrix, tail };
    let cut = Cut::whole(1, [1, m], n).among(engine, n, k / 4, (MOST_ROWS, 2));
    engine.pool.run(cut.tasks(), |task| {
        engine.level.run_quads(Panels { product: &product, share: cut.share(task) });
    });
    Ok(())
}

#[derive(Clone, Copy)]
struct Product<'a> {
    a: &'a [u8],
    packed: &'a [u8],
    c: *mut f32,
    matrix: GroupMatrix,
    tail: &'a GroupTail<'a>,
}

// SAFETY: tasks write disjoint parts of `c`, which `gemm_groups` borrows exclusively.
unsafe impl Sync for Product<'_> {}

/// One task.
struct Panels<'a> {
    product: &'a Product<'a>,
    share: Share,
}

impl Job for Panels<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let GroupMatrix { is_four_bits, has_zeros, .. } = self.product.matrix;
        match (is_four_bits, has_zeros) {
            (true, true) => self.tiles::<S, FOUR_WITH_ZEROS>(s),
            (true, false) => self.tiles::<S, FOUR>(s),
            (false, _) => self.tiles::<S, EIGHT>(s),
        }
    }
}

/// What the code of a tile is for: weights of four bits without zeros, with them, or weights of eight bits with or without them,
/// which make so little difference there that the code is the same.
const FOUR: u8 = 0;
const FOUR_WITH_ZEROS: u8 = 1;
const EIGHT: u8 = 2;

impl Panels<'_> {
    #[inline(always)]
    fn tiles<S: Simd, const KIND: u8>(self, s: S) {
        let Self { product, share: Share { rows, panels, .. } } = self;
        let mut panel = panels.start;
        while panel < panels.end {
            let mut row = rows.start;
            // Products with few rows wait for the weights, of which one panel after the other is read then.
            let is_pair = const { S::VECTORS >= 32 } && panels.end - panel >= 2 && rows.len() >= MOST_ROWS;
            if is_pair {
                while rows.end - row >= MOST_ROWS {
                    s.vectorize(Tile::<MOST_ROWS, 2, KIND> { product, panel, row });
                    row += MOST_ROWS;
                }
            }
            for panel in panel..panel + if is_pair { 2 } else { 1 } {
                let mut row = row;
                while rows.end - row >= 4 {
                    s.vectorize(Tile::<4, 1, KIND> { product, panel, row });
                    row += 4;
                }
                while row < rows.end {
                    s.vectorize(Tile::<1, 1, KIND> { product, panel, row });
                    row += 1;
                }
            }
            panel += if is_pair { 2 } else { 1 };
        }
    }
}

/// `R` rows times `P` panels.
struct Tile<'a, const R: usize, const P: usize, const KIND: u8> {
    product: &'a Product<'a>,
    panel: usize,
    row: usize,
}

impl<const R: usize, const P: usize, const KIND: u8> Job for Tile<'_, R, P, KIND> {
    type Out = ();

    // Sums stay in registers only if each access to them is in a loop of known length over indices.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Product { a, packed, matrix, .. } = *self.product;
        // What is known when this is compiled.
        let matrix = GroupMatrix { is_four_bits: const { KIND != EIGHT }, ..matrix };
        let GroupMatrix { n, k, .. } = matrix;
        let groups = k / GROUP;
        let has_zeros = const { KIND == FOUR_WITH_ZEROS } || (const { KIND == EIGHT } && matrix.has_zeros);
        let lowest = s.splat(if const { KIND == EIGHT } { 128.0 } else { 8.0 });
        let stride = matrix.panel_bytes();
        let panel = packed.as_ptr().wrapping_add(self.panel * stride);
        let mut left = a.as_ptr().wrapping_add(self.row * k);
        let mut zeros = packed.as_ptr().wrapping_add(n.div_ceil(LANES) * stride + self.panel * groups * LANES);
        let ones = s.splat(f32::from_bits(0x0101_0101));
        let mut numbers = [[s.splat(0.0); P]; R];
        for group in 0..groups {
            let (scales, weights) = matrix.group(group);
            let (scales, weights) = (panel.wrapping_add(scales), panel.wrapping_add(weights));
            let mut sums = [[s.splat(0.0); P]; R];
            let mut bytes = [s.splat(0.0); R];
            for line in 0..LINES {
                let (mut low, mut high) = ([s.splat(0.0); P], [s.splat(0.0); P]);
                for p in 0..P {
                    let at = weights.wrapping_add(p * stride + line * 4 * LANES);
                    // SAFETY: each panel has so many bytes for each group: 16 scales and four lines of weights, or eight.
                    let first = unsafe { s.load(at.cast()) };
                    if const { KIND == EIGHT } {
                        // SAFETY: likewise.
                        (low[p], high[p]) = (first, unsafe { s.load(at.wrapping_add(LINES * 4 * LANES).cast()) });
                    } else {
                        (low[p], high[p]) = s.nibbles(first);
                    }
                }
                for r in 0..R {
                    let at = left.wrapping_add(r * k + 4 * line);
                    // SAFETY: each row has 32 bytes for each group.
                    let first = unsafe { at.cast::<u32>().read_unaligned() };
                    // SAFETY: likewise.
                    let second = unsafe { at.wrapping_add(GROUP / 2).cast::<u32>().read_unaligned() };
                    let first = s.splat(f32::from_bits(u32::from_le(first)));
                    let second = s.splat(f32::from_bits(u32::from_le(second)));
                    if const { R == 1 } && has_zeros {
                        bytes[r] = s.dot4(first, ones, bytes[r]);
                        bytes[r] = s.dot4(second, ones, bytes[r]);
                    }
                    for p in 0..P {
                        sums[r][p] = s.dot4(first, low[p], sums[r][p]);
                        sums[r][p] = s.dot4(second, high[p], sums[r][p]);
                    }
                }
            }
            if has_zeros {
                // Sums of bytes times zeros are integers that `f32` holds.
                for r in 0..R {
                    if const { R > 1 } {
                        // SAFETY: each row has 32 bytes for each group.
                        let row = unsafe { left.wrapping_add(r * k).cast::<[u8; GROUP]>().read_unaligned() };
                        bytes[r] = s.splat(f32::from_bits(row.iter().map(|byte| u32::from(*byte)).sum()));
                    }
                }
                for p in 0..P {
                    // SAFETY: after all groups each has 16 zeros.
                    let zero = unsafe { s.load_bytes(zeros.wrapping_add(p * groups * LANES), LANES) };
                    let zero = s.sub(s.floats(zero), lowest);
                    // SAFETY: as above.
                    let scale = unsafe { scale(s, &matrix, scales.wrapping_add(p * stride)) };
                    for r in 0..R {
                        let sum = s.sub(s.floats(sums[r][p]), s.mul(s.floats(bytes[r]), zero));
                        numbers[r][p] = s.add(numbers[r][p], s.mul(sum, scale));
                    }
                }
                zeros = zeros.wrapping_add(LANES);
            } else {
                for p in 0..P {
                    // SAFETY: as above.
                    let scale = unsafe { scale(s, &matrix, scales.wrapping_add(p * stride)) };
                    for r in 0..R {
                        numbers[r][p] = s.add(numbers[r][p], s.mul(s.floats(sums[r][p]), scale));
                    }
                }
            }
            left = left.wrapping_add(GROUP);
            if const { P == 1 } {
                let lines = 1 + if const { KIND == EIGHT } { 2 * LINES } else { LINES };
                for line in 0..lines {
                    s.prefetch(weights.wrapping_add(AHEAD + line * 64).cast());
                }
            }
        }
        let mut copy = [[MaybeUninit::<Aligned>::uninit(); P]; R];
        for r in 0..R {
            for p in 0..P {
                // SAFETY: there is room for a vector.
                unsafe { s.store(copy[r][p].as_mut_ptr().cast(), numbers[r][p]) };
            }
        }
        let numbers = copy.as_ptr().cast();
        s.vectorize(Finish { product: self.product, numbers, rows: R, panels: P, row: self.row, panel: self.panel });
    }
}

/// The scales of the columns of a group.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn scale<S: Simd>(s: S, matrix: &GroupMatrix, at: *const u8) -> S::V {
    if matrix.has_half_scales {
        // SAFETY: the caller vouches for 16 numbers.
        unsafe { s.widen_f16(at.cast()) }
    } else {
        // SAFETY: likewise.
        unsafe { s.load(at.cast()) }
    }
}

/// What follows the sums of a tile: code of its own for all sizes of tiles.
struct Finish<'a> {
    product: &'a Product<'a>,
    /// `[rows][panels][16]`, which the maker has written.
    numbers: *const f32,
    rows: usize,
    panels: usize,
    row: usize,
    panel: usize,
}

impl Job for Finish<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Product { c, matrix: GroupMatrix { n, .. }, tail, .. } = *self.product;
        for p in 0..self.panels {
            let column = (self.panel + p) * LANES;
            let lanes = (n - column).min(LANES);
            let sums = s.read(&tail.sums[column..column + lanes]);
            let bias = match tail.bias {
                Some(bias) => s.read(&bias[column..column + lanes]),
                None => s.splat(0.0),
            };
            for r in 0..self.rows {
                let row = self.row + r;
                let own = row * tail.rows.step();
                let (scale, zero) = (tail.rows.scales[own], tail.rows.zeros[own]);
                // SAFETY: the maker has written it.
                let v = unsafe { s.load(self.numbers.wrapping_add((r * self.panels + p) * LANES)) };
                let v = s.mul(s.sub(v, s.mul(s.splat(zero), sums)), s.splat(scale));
                let v = tail.activation.apply(s, s.add(v, bias));
                // SAFETY: `gemm_groups` has checked the output, and this task alone has these elements.
                unsafe { s.store_part(c.wrapping_add(row * n + column), lanes, v) };
            }
        }
    }
}
