//! The driver of all products: rows that are found through pointers, times packed weights.
//!
//! Work is cut three times. Tasks, for threads, are blocks of the output. A task goes through its rows in blocks whose
//! part of the left side stays in the second-level cache, through K in blocks whose part of one panel stays in the first
//! level, and through panels and register tiles inside. Sums over K continue in the output between blocks.
#![allow(unsafe_code)]

mod narrow;
pub(crate) mod tile;

use core::mem::MaybeUninit;

use crate::arch::{Job, LANES, Level, Simd};
use crate::cut::{Cut, Share};
use crate::error::Error;
use crate::numbers::Writable;
use crate::pack::rows;
use crate::tail::Steps;
use crate::{Engine, Half, Numbers, NumbersMut, Tail, Weights};

use narrow::Narrow;
use tile::{Factors, Floats, Tile, Upcoming};

/// The left side: where the elements of each row are.
pub(crate) trait Rows: Sync {
    /// Taps of a row, and the contiguous elements of each: K is their product.
    fn taps(&self) -> usize;
    fn depth(&self) -> usize;

    /// The most rows for all of whose taps [`point`](Self::point) has room; at least a tile's.
    fn most_rows(&self) -> usize {
        usize::MAX
    }

    /// Whether they are bf16. What [`point`](Self::point) writes points to them then, and all of K is read at once. Of an
    /// odd depth there are [`MOST_PAIRS`] at most in all taps.
    const IS_BF16: bool = false;

    /// Writes the pointers of rows `first..first + count` for taps `tap..tap + taps`, from element `offset` of each tap
    /// on, as `[taps][count]`. Each is to at least `depth - offset` floats, at most [`MAX_DEPTH`] of which will be read.
    fn point(&self, group: usize, first: usize, count: usize, taps: (usize, usize), offset: usize, to: &mut Pointers);
}

/// Pointers into the left side, or to copies of parts of it.
pub(crate) struct Pointers {
    pub(crate) pointers: [MaybeUninit<*const f32>; MAX_POINTERS],
    pub(crate) copies: [MaybeUninit<f32>; MAX_COPIES],
    /// Copies as bf16.
    pub(crate) halves: [MaybeUninit<u16>; MAX_HALVES],
}

/// What one block of rows and taps may need.
pub(crate) const MAX_POINTERS: usize = 2048;

/// Floats of copies that a block of rows may need.
pub(crate) const MAX_COPIES: usize = 4096;

/// Bf16 of copies that a block of rows may need.
pub(crate) const MAX_HALVES: usize = 8192;

/// The most elements of a tap that are read through one pointer.
pub(crate) const MAX_DEPTH: usize = 512;

/// Elements of K in a block: 16 columns of them are half of a first-level cache.
const BLOCK_K: usize = 256;

/// The most that a block has: it is not cut for a little more than [`BLOCK_K`].
const MOST_K: usize = BLOCK_K * 3 / 2;

/// Bytes of the left side in a block of rows: some of the second-level cache.
const BLOCK_ROWS_BYTES: usize = 224 << 10;

/// Bytes of weights that stay in the second-level cache, and of the rows on both sides that they go through beside them.
const SOME_WEIGHTS_BYTES: usize = 160 << 10;
const LOCAL_ROWS_BYTES: usize = 128 << 10;

/// The most pairs of K that a product lays out anew, as it does where rows are bf16 of an odd depth.
pub(crate) const MOST_PAIRS: usize = 192;

/// What padding points to.
pub(crate) static ZEROS: [f32; MAX_DEPTH] = [0.0; MAX_DEPTH];

/// Whether rows of bf16 are taken whose taps have so many elements: pairs of them are multiplied.
pub fn takes_bf16(taps: usize, depth: usize) -> bool {
    // Padding is read like any other tap.
    depth.is_multiple_of(2) && taps <= MAX_TAPS && (taps == 1 || depth <= 2 * MAX_DEPTH)
}

/// Whether results may be bf16: sums are finished at once.
pub fn gives_bf16(taps: usize, depth: usize, from_bf16: bool) -> bool {
    from_bf16 && takes_bf16(taps, depth) || Blocks::new(taps, depth).is_one()
}

/// Whether a residual may be bf16: pairs are multiplied, wherever K is cut.
pub fn takes_bf16_residual(taps: usize, depth: usize) -> bool {
    Blocks::new(taps, depth).are_pairs()
}

/// The most taps of a block.
pub(crate) const MAX_TAPS: usize = 64;

/// That a product of so many taps and elements of each takes and gives what there is.
pub(crate) fn check_bf16(
    engine: &Engine,
    [taps, depth]: [usize; 2],
    input: Numbers<'_>,
    packed: Weights<'_>,
    out: &NumbersMut<'_>,
    tail: &Tail<'_>,
) -> Result<(), Error> {
    let residual = tail.residual.is_some_and(|residual| residual.data.is_bf16());
    if !input.is_bf16() && !out.is_bf16() && !residual {
        return Ok(());
    }
    engine.check_numbers(true)?;
    if !matches!(packed, Weights::Half(Half::Bf16, _)) {
        return Err(Error::Type { what: "packed weights" });
    }
    if input.is_bf16() && !takes_bf16(taps, depth) {
        return Err(Error::Type { what: "input" });
    }
    if out.is_bf16() && !gives_bf16(taps, depth, input.is_bf16()) {
        return Err(Error::Type { what: "output" });
    }
    if residual && !takes_bf16_residual(taps, depth) {
        return Err(Error::Type { what: "residual" });
    }
    Ok(())
}

/// Where rows lie in an output whose pixels are `stride` floats apart. Rows come in lines: within one, pixels are `step`
/// apart; lines are `line` pixels apart within an image, and images `image` pixels.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) first: usize,
    pub(crate) step: usize,
    pub(crate) line: usize,
    pub(crate) lines_per_image: usize,
    pub(crate) image: usize,
}

impl Place {
    /// All rows in one line, one after the other.
    pub(crate) const DENSE: Place = Place { first: 0, step: 1, line: 0, lines_per_image: 1, image: 0 };

    pub(crate) fn pixel(&self, line: usize, row: usize) -> usize {
        let (image, line) = (line / self.lines_per_image, line % self.lines_per_image);
        self.first + image * self.image + line * self.line + row * self.step
    }
}

/// A product for each group of columns.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a, R> {
    pub(crate) rows: &'a R,
    pub(crate) lines: usize,
    pub(crate) rows_per_line: usize,
    pub(crate) groups: usize,
    /// Columns of one group.
    pub(crate) columns: usize,
    /// The packed weights of all groups.
    pub(crate) packed: Weights<'a>,
    pub(crate) out: Writable,
    /// Numbers between pixels of the output. Those of bf16 are written once: rows are of it too, or K is one block.
    pub(crate) out_stride: usize,
    pub(crate) place: Place,
    pub(crate) steps: Steps,
}

// SAFETY: tasks write disjoint parts of `out`, which the maker of the product borrows exclusively; the rest is shared reads.
unsafe impl<R: Sync> Sync for Product<'_, R> {}

impl<R: Rows> Product<'_, R> {
    /// Computes all of it.
    ///
    /// # Safety
    /// `packed` has `groups` packed matrices of `taps * depth` rows and `columns` columns; `out`, the bias and the residual have
    /// all places; nobody else touches the output's places meanwhile; `rows` keeps its promise.
    pub(crate) unsafe fn run(&self, engine: &Engine) {
        if self.lines == 0 || self.rows_per_line == 0 || self.groups == 0 || self.columns == 0 {
            return;
        }
        let cut = self.cut(engine);
        engine.pool.run(cut.tasks(), |task| {
            engine.level.run(Block { product: self, cut, task });
        });
    }

    /// Computes all of it in this thread.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub(crate) unsafe fn run_here(&self, level: Level) {
        if self.lines == 0 || self.rows_per_line == 0 || self.groups == 0 || self.columns == 0 {
            return;
        }
        // One task a group.
        for task in 0..self.groups {
            level.run(Block { product: self, cut: self.whole(), task });
        }
    }

    /// A task for each group.
    fn whole(&self) -> Cut {
        Cut::whole(self.groups, [self.lines, self.rows_per_line], self.columns)
    }

    /// How the output is cut into tasks.
    fn cut(&self, engine: &Engine) -> Cut {
        let k = self.rows.taps() * self.rows.depth();
        self.whole().among(engine, self.columns, k, engine.level.tile())
    }
}

/// One task.
struct Block<'a, R> {
    product: &'a Product<'a, R>,
    cut: Cut,
    task: usize,
}

impl<R: Rows> Job for Block<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { product, cut, task } = self;
        let Share { group, lines, rows, panels } = cut.share(task);
        let (taps, depth) = (product.rows.taps(), product.rows.depth());
        let blocks = if R::IS_BF16 { Blocks::whole(taps, depth) } else { Blocks::new(taps, depth) };
        let most_rows =
            blocks.most_rows::<R>(S::ROWS, product.rows.most_rows(), panels.len() * LANES, product.out.is_bf16());
        let mut pointers = Pointers {
            pointers: [const { MaybeUninit::uninit() }; MAX_POINTERS],
            copies: [const { MaybeUninit::uninit() }; MAX_COPIES],
            halves: [const { MaybeUninit::uninit() }; MAX_HALVES],
        };
        for line in lines {
            let row_blocks = rows.len().div_ceil(most_rows);
            let row_block = rows.len().div_ceil(row_blocks).next_multiple_of(S::ROWS).min(most_rows);
            for first in rows.clone().step_by(row_block) {
                let count = (rows.end - first).min(row_block);
                // Once even when K is empty: the bias and what follows it remain to be done.
                for tap in (0..blocks.taps.max(1)).step_by(blocks.block_taps) {
                    let taps = blocks.taps.saturating_sub(tap).min(blocks.block_taps);
                    for offset in (0..blocks.depth.max(1)).step_by(blocks.block_depth) {
                        let depth = (blocks.depth - offset).min(blocks.block_depth);
                        let is_last = tap + taps == blocks.taps && offset + depth == blocks.depth;
                        let whole_row = line * product.rows_per_line + first;
                        product.rows.point(group, whole_row, count, (tap, taps), offset, &mut pointers);
                        let part = Part { group, line, first, count, tap, taps, offset, depth, is_last };
                        let panels = panels.clone();
                        match product.packed {
                            Weights::F32(packed) if const { !R::IS_BF16 } => {
                                let right = InPlace(packed.as_ptr());
                                part.run(s, product, &blocks, panels, &mut ByPointers { pointers: &pointers, right });
                            }
                            packed => {
                                let (blocks, pointers) = (&blocks, &mut pointers);
                                Narrow { packed, part, product, blocks, panels, pointers }.run(s);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// How K is cut into blocks: whole taps together, or parts of one.
struct Blocks {
    taps: usize,
    depth: usize,
    block_taps: usize,
    block_depth: usize,
}

impl Blocks {
    fn new(taps: usize, depth: usize) -> Self {
        if depth > MOST_K {
            let blocks = depth.div_ceil(BLOCK_K);
            return Self { taps, depth, block_taps: 1, block_depth: depth.div_ceil(blocks).next_multiple_of(8) };
        }
        let together = (MOST_K / depth.max(1)).clamp(1, MAX_TAPS);
        let blocks = taps.div_ceil(together);
        Self { taps, depth, block_taps: taps.div_ceil(blocks.max(1)).max(1), block_depth: depth.max(1) }
    }

    /// All of K at once.
    fn whole(taps: usize, depth: usize) -> Self {
        Self { taps, depth, block_taps: taps.max(1), block_depth: depth.max(1) }
    }

    /// Whether each block begins at an even place of K, and all but the last have an even number of them.
    fn are_pairs(&self) -> bool {
        self.depth.is_multiple_of(2) || self.is_one()
    }

    /// Whether all of K is one block.
    fn is_one(&self) -> bool {
        self.block_taps >= self.taps && self.block_depth >= self.depth
    }

    /// Rows of a block: as many as the pointers, the left side and the caches allow, a multiple of `tile_rows`.
    ///
    /// Weights that are small enough to stay in a cache are gone through again for every few rows, whose results then
    /// stay there too until all `columns` of them are written.
    fn most_rows<R: Rows>(&self, tile_rows: usize, left_rows: usize, columns: usize, to_bf16: bool) -> usize {
        let depth = self.block_taps * self.block_depth;
        let size = |is_bf16| if is_bf16 { size_of::<u16>() } else { size_of::<f32>() };
        let row = size(R::IS_BF16) * depth;
        let (weights, both) = (row.saturating_mul(columns), row + size(to_bf16) * columns);
        let by_cache = if weights <= SOME_WEIGHTS_BYTES { LOCAL_ROWS_BYTES / both } else { BLOCK_ROWS_BYTES / row };
        let most = by_cache.min(MAX_POINTERS / self.block_taps).min(left_rows);
        (most / tile_rows * tile_rows).max(tile_rows)
    }
}

/// A block of rows times a block of K.
#[derive(Clone, Copy)]
struct Part {
    group: usize,
    line: usize,
    first: usize,
    count: usize,
    tap: usize,
    taps: usize,
    offset: usize,
    depth: usize,
    is_last: bool,
}

impl Part {
    #[inline(always)]
    fn run<S: Simd, R: Rows>(
        &self,
        s: S,
        product: &Product<'_, R>,
        blocks: &Blocks,
        panels: core::ops::Range<usize>,
        operands: &mut impl Operands,
    ) {
        let panel_stride = rows(blocks.taps * blocks.depth) * LANES;
        let group_panels = product.columns.div_ceil(LANES);
        let k = self.tap * blocks.depth + self.offset;
        let tiles = self.count.div_ceil(S::ROWS);
        let (height, taller) = (self.count / tiles, self.count % tiles);
        let steps = &product.steps;
        let pixel = product.place.pixel(self.line, self.first);
        for panel in panels.clone().step_by(S::PANELS) {
            let together = (panels.end - panel).min(S::PANELS);
            let group_column = panel * LANES;
            let column = self.group * product.columns + group_column;
            let first = (self.group * group_panels + panel) * panel_stride + k * LANES;
            // The first tile of the next panel would wait for memory where weights are too many for the caches.
            let upcoming = match panels.end.saturating_sub(panel + together) {
                0 => Upcoming::NOTHING,
                others => Upcoming {
                    from: core::ptr::null(),
                    stride: if others == 1 { 0 } else { panel_stride },
                    lines: (self.taps * self.depth).div_ceil(tiles),
                    tiles,
                },
            };
            let right = Panels { first, count: together, stride: panel_stride, upcoming };
            operands.place(s, self, &right);
            let bias = if steps.bias.is_null() { steps.bias } else { steps.bias.wrapping_add(column) };
            let mut row = 0;
            for (rows, first_tile, repeat) in [(height + 1, 0, taller), (height, taller, tiles - taller)] {
                if repeat == 0 {
                    continue;
                }
                let pixel = pixel + row * product.place.step;
                let tile = Tile {
                    factors: operands.factors(self, &right, row, first_tile),
                    rows,
                    repeat,
                    panels: together,
                    columns: (product.columns - group_column).min(together * LANES),
                    out: product.out.plus(s, pixel * product.out_stride + column),
                    out_stride: product.out_stride * product.place.step,
                    bias,
                    residual: steps.residual.plus(s, pixel * steps.residual_stride + column),
                    residual_stride: steps.residual_stride * product.place.step,
                    is_first: k == 0,
                    is_last: self.is_last,
                    steps,
                };
                // SAFETY: `Product::run` asks for the places in all tensors; `point` has written a pointer for each tap
                // and row; tasks are disjoint.
                unsafe { tile.run_on(s) };
                row += rows * repeat;
            }
        }
    }
}

/// Panels of packed weights that are multiplied together.
struct Panels {
    /// Where the first begins, at the part's first K.
    first: usize,
    count: usize,
    /// Numbers to the next panel.
    stride: usize,
    /// What follows them, but for its address, which [`Operands::factors`] fills in: it depends on the type of the weights.
    upcoming: Upcoming,
}

/// Both sides of a part.
trait Operands {
    type Factors: Factors;

    /// Makes panels ready to be multiplied.
    fn place<S: Simd>(&mut self, s: S, part: &Part, panels: &Panels);

    /// The factors of the tiles from a row on, of which the first is the `tile`-th of the part.
    fn factors(&self, part: &Part, panels: &Panels, row: usize, tile: usize) -> Self::Factors;
}

/// Rows where they are, and panels of floats.
struct ByPointers<'a, W> {
    pointers: &'a Pointers,
    right: W,
}

/// Where panels can be read as floats.
trait Right {
    fn place<S: Simd>(&mut self, s: S, part: &Part, panels: &Panels);

    /// The first panel, the floats to the next, and what is read after them.
    fn panels(&self, part: &Part, panels: &Panels, tile: usize) -> (*const f32, usize, Upcoming);
}

impl<W: Right> Operands for ByPointers<'_, W> {
    type Factors = Floats;

    #[inline(always)]
    fn place<S: Simd>(&mut self, s: S, part: &Part, panels: &Panels) {
        self.right.place(s, part, panels);
    }

    #[inline(always)]
    fn factors(&self, part: &Part, panels: &Panels, row: usize, tile: usize) -> Floats {
        let (panel, panel_stride, upcoming) = self.right.panels(part, panels, tile);
        Floats {
            pointers: self.pointers.pointers.as_ptr().cast::<*const f32>().wrapping_add(row),
            pointer_stride: part.count,
            taps: part.taps,
            depth: part.depth,
            panel,
            panel_stride,
            upcoming,
        }
    }
}

/// Weights that are floats.
struct InPlace(*const f32);

impl Right for InPlace {
    #[inline(always)]
    fn place<S: Simd>(&mut self, _: S, _: &Part, _: &Panels) {}

    #[inline(always)]
    fn panels(&self, _: &Part, panels: &Panels, tile: usize) -> (*const f32, usize, Upcoming) {
        let panel = self.0.wrapping_add(panels.first);
        let skipped = panels.count * panels.stride + tile * panels.upcoming.lines * LANES;
        (panel, panels.stride, Upcoming { from: panel.wrapping_add(skipped), ..panels.upcoming })
    }
}
