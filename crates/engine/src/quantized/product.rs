//! The driver of products of bytes, and its register tile.
//!
//! It is the one of [`product`](crate::product) but for K, which is not cut: sums are bytes when they leave the registers,
//! and a panel of bytes is small. Each step of a tile multiplies four bytes of each row with a line of 64 weights.

use core::mem::MaybeUninit;

use crate::Engine;
use crate::arch::{Aligned, Job, LANES, Simd};
use crate::cut::{Cut, Share};
use crate::error::Error;
use crate::pack::quads;
use crate::product::Place;

use super::MAX_QUANT_K;
use super::rows::{ByteRows, by_copies};
use super::tail::{ByteSteps, Finish, Registers, Start};

/// What one block of rows may need.
pub(super) const MAX_POINTERS: usize = 4096;

/// Bytes of copies that a block of rows may need.
pub(super) const COPIES: usize = 64 << 10;

/// Bytes of padding that a tap may have.
pub(super) const MAX_PAD: usize = 4096;

/// Bytes of the left side in a block of rows: some of the second-level cache.
const BLOCK_ROWS_BYTES: usize = 192 << 10;

/// Rows and panels of the largest tile.
const MOST_ROWS: usize = 14;
const MOST_PANELS: usize = 2;

/// That a window of so many taps, of so many bytes each, is not beyond what is pointed to and added up.
pub(super) fn check_window(taps: usize, depth: usize, is_padded: bool) -> Result<(), Error> {
    let quads = quads(depth);
    let beyond = taps > MAX_POINTERS / 16 || (is_padded && quads > MAX_PAD);
    if beyond || taps.saturating_mul(quads) > MAX_QUANT_K {
        return Err(Error::Size { what: "a window of bytes" });
    }
    Ok(())
}

/// Pointers into the left side, to copies of parts of it, or to padding.
pub(super) struct BytePointers {
    pub(super) pointers: [MaybeUninit<*const u8>; MAX_POINTERS],
    pub(super) copies: [MaybeUninit<u8>; COPIES],
    pub(super) pad: [MaybeUninit<u8>; MAX_PAD],
}

/// A product for each group of columns.
#[derive(Clone, Copy)]
pub(super) struct ByteProduct<'a, R> {
    pub(super) rows: &'a R,
    pub(super) lines: usize,
    pub(super) rows_per_line: usize,
    /// Where the rows lie in the output.
    pub(super) place: Place,
    pub(super) groups: usize,
    /// Columns of one group.
    pub(super) columns: usize,
    /// The packed weights of all groups.
    pub(super) packed: &'a [i8],
    pub(super) out: Start,
    /// Elements between pixels of the output.
    pub(super) out_stride: usize,
    pub(super) steps: ByteSteps,
    /// What padding consists of.
    pub(super) zero: u8,
}

// SAFETY: tasks write disjoint parts of `out`, which the maker of the product borrows exclusively; the rest is shared reads.
unsafe impl<R: Sync> Sync for ByteProduct<'_, R> {}

impl<R: ByteRows> ByteProduct<'_, R> {
    /// Computes all of it.
    ///
    /// # Safety
    /// `packed` has `groups` packed matrices of `taps * depth` rows and `columns` columns; `out` and what the steps read have
    /// all places; nobody else touches the output's places meanwhile; `rows` keeps its promise.
    pub(super) unsafe fn run(&self, engine: &Engine) {
        if self.lines == 0 || self.rows_per_line == 0 || self.groups == 0 || self.columns == 0 {
            return;
        }
        let quads = self.rows.taps() * self.rows.depth() / 4;
        let whole = Cut::whole(self.groups, [self.lines, self.rows_per_line], self.columns);
        let cut = whole.among(engine, self.columns, quads, engine.level.tile());
        engine.pool.run(cut.tasks(), |task| {
            engine.level.run_quads(Block { product: self, share: cut.share(task) });
        });
    }
}

/// One task.
struct Block<'a, R> {
    product: &'a ByteProduct<'a, R>,
    share: Share,
}

impl<R: ByteRows> Job for Block<'_, R> {
    type Out = ();

    #[inline(always)]
    #[expect(
        clippy::large_stack_arrays,
        reason = "64 KB, in the stacks of threads of our own or of a caller with threads"
    )]
    fn run<S: Simd>(self, s: S) {
        let Self { product, share: Share { group, lines, rows, panels } } = self;
        let mut pointers = BytePointers {
            pointers: [const { MaybeUninit::uninit() }; MAX_POINTERS],
            copies: [const { MaybeUninit::uninit() }; COPIES],
            pad: [const { MaybeUninit::uninit() }; MAX_PAD],
        };
        let (taps, depth) = (product.rows.taps(), product.rows.depth());
        pointers.pad[..depth.clamp(1, MAX_PAD)].fill(MaybeUninit::new(product.zero));
        let by_cache = (BLOCK_ROWS_BYTES / (taps * depth).max(1)).max(S::QUAD_ROWS);
        let most = by_cache.min(MAX_POINTERS / taps.max(1)).min(by_copies(product.rows.copies())).max(1);
        let most = if most > S::QUAD_ROWS { most / S::QUAD_ROWS * S::QUAD_ROWS } else { most };
        let chunk = rows.len().div_ceil(rows.len().div_ceil(most)).next_multiple_of(S::QUAD_ROWS).min(most);
        let panel_bytes = taps * depth * LANES;
        let group_panels = product.columns.div_ceil(LANES);
        for line in lines {
            let pixel = product.place.pixel(line, 0);
            let steps = product.steps.at_pixel(pixel, product.place.step);
            let out = product.out.at(pixel * product.out_stride);
            let out_stride = product.out_stride * product.place.step;
            for first in rows.clone().step_by(chunk) {
                let count = (rows.end - first).min(chunk);
                product.rows.point(group, line * product.rows_per_line + first, count, &mut pointers);
                for panel in panels.clone().step_by(S::PANELS) {
                    let together = (panels.end - panel).min(S::PANELS);
                    let group_column = panel * LANES;
                    let weights = product.packed.as_ptr().wrapping_add((group * group_panels + panel) * panel_bytes);
                    // Each tile asks for a part of the next panels, if there are any.
                    let is_last = panel + together >= panels.end;
                    let tiles = (count / S::QUAD_ROWS).max(1);
                    let (ahead, ahead_step) = if is_last {
                        (weights, 0)
                    } else {
                        (weights.wrapping_add(together * panel_bytes), (4 * LANES).div_ceil(tiles))
                    };
                    let tile = Tile {
                        ahead,
                        ahead_step,
                        steps: &steps,
                        out,
                        out_stride,
                        pointers: pointers.pointers.as_ptr().cast(),
                        pointer_stride: count,
                        taps,
                        quads: depth / 4,
                        weights,
                        weights_stride: panel_bytes,
                        row: first,
                        column: group * product.columns + group_column,
                        columns: (product.columns - group_column).min(together * LANES),
                    };
                    if together == 2 {
                        tile.all_rows::<S, 2>(s, count);
                    } else {
                        tile.all_rows::<S, 1>(s, count);
                    }
                }
            }
        }
    }
}

/// Rows times panels, with their sums in registers. It is the same code for all ways in which rows are found.
#[derive(Clone, Copy)]
struct Tile<'a> {
    steps: &'a ByteSteps,
    out: Start,
    out_stride: usize,
    /// Where the rows' elements are: `[taps][pointer_stride]`, beginning with the tile's first row.
    pointers: *const *const u8,
    pointer_stride: usize,
    taps: usize,
    /// Steps of K of a tap.
    quads: usize,
    /// The first panel, and the bytes to the next.
    weights: *const i8,
    weights_stride: usize,
    /// What is asked for in the first step, and bytes to what is in the next one; of a second panel likewise.
    ahead: *const i8,
    ahead_step: usize,
    /// The first row, counted from the start of the line, and the first column in the output.
    row: usize,
    column: usize,
    columns: usize,
}

impl Tile<'_> {
    /// Computes `count` rows below each other, in tiles as high as there are, and lower ones at the end.
    #[inline(always)]
    fn all_rows<S: Simd, const P: usize>(mut self, s: S, count: usize) {
        if const { P > S::PANELS } {
            return;
        }
        let mut left = count;
        macro_rules! by_height {
            ($($rows:literal)*) => {$(
                // Few heights for each instruction set: each is compiled.
                if const { $rows == S::QUAD_ROWS || $rows == S::QUAD_ROWS / 2 || $rows == 1 || ($rows == 4 && S::QUAD_ROWS > 4) } {
                    while left >= $rows {
                        s.vectorize(Fixed::<$rows, P>(self));
                        left -= $rows;
                        self.row += $rows;
                        self.ahead = self.ahead.wrapping_add(self.taps * self.quads * self.ahead_step);
                        self.pointers = self.pointers.wrapping_add($rows);
                    }
                }
            )*};
        }
        by_height!(14 12 7 6 4 3 2 1);
    }
}

/// A tile of `N` rows and `P` panels.
struct Fixed<'a, const N: usize, const P: usize>(Tile<'a>);

impl<const N: usize, const P: usize> Job for Fixed<'_, N, P> {
    type Out = ();

    // Sums stay in registers only if each access to them is in a loop of known length over indices.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tile = self.0;
        let steps = tile.steps;
        let mut sums = [[s.splat(0.0); P]; N];
        for p in 0..P {
            let n = (tile.columns - p * LANES).min(LANES);
            // SAFETY: there is an offset for each column.
            let offset = unsafe { s.load_part(steps.offsets.wrapping_add(tile.column + p * LANES).cast(), n) };
            for r in 0..N {
                // SAFETY: there is a zero for each row.
                sums[r][p] = unsafe { steps.start(s, offset, tile.row + r) };
            }
        }
        let (mut weights, mut ahead) = (tile.weights, tile.ahead);
        for tap in 0..tile.taps {
            let pointers = tile.pointers.wrapping_add(tap * tile.pointer_stride);
            let mut left = [core::ptr::null::<u8>(); N];
            for r in 0..N {
                // SAFETY: there is a pointer for each row and tap.
                left[r] = unsafe { *pointers.wrapping_add(r) };
            }
            for quad in 0..tile.quads {
                let mut right = [s.splat(0.0); P];
                for p in 0..P {
                    // SAFETY: each panel has 64 weights for each four of K.
                    right[p] = unsafe { s.load(weights.wrapping_add(p * tile.weights_stride).cast()) };
                }
                if const { N == S::QUAD_ROWS } {
                    for p in 0..P {
                        s.prefetch(ahead.wrapping_add(p * tile.weights_stride).cast());
                    }
                    ahead = ahead.wrapping_add(tile.ahead_step);
                }
                for r in 0..N {
                    // SAFETY: each pointer is to four bytes for each step.
                    let bytes = unsafe { left[r].wrapping_add(quad * 4).cast::<u32>().read_unaligned() };
                    let x = s.splat(f32::from_bits(u32::from_le(bytes)));
                    for p in 0..P {
                        sums[r][p] = s.dot4(x, right[p], sums[r][p]);
                    }
                }
                weights = weights.wrapping_add(4 * LANES);
            }
        }
        if const { N == S::QUAD_ROWS && S::VECTORS >= 32 } && tile.columns == P * LANES {
            let Tile { row, column, out_stride, .. } = tile;
            let registers = Registers { sums: &sums, row, column, out_stride };
            // SAFETY: `ByteProduct::run` asks for the places of all tensors, and tasks are disjoint.
            if unsafe { registers.run_on(s, steps, tile.out) } {
                return;
            }
        }
        let mut copy = [MaybeUninit::<Aligned>::uninit(); MOST_ROWS * MOST_PANELS];
        for r in 0..N {
            for p in 0..P {
                // SAFETY: there is room for the largest tile.
                unsafe { s.store(copy.as_mut_ptr().wrapping_add(p * N + r).cast(), sums[r][p]) };
            }
        }
        let finish = Finish {
            steps,
            sums: copy.as_ptr().cast(),
            panels: P,
            rows: N,
            row: tile.row,
            column: tile.column,
            columns: tile.columns,
            out: tile.out,
            out_stride: tile.out_stride,
        };
        // SAFETY: `ByteProduct::run` asks for the places of all tensors, and tasks are disjoint.
        unsafe { finish.run_on(s) };
    }
}
