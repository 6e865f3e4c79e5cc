//! The register tile: up to [`Simd::ROWS`] rows of the left matrix times one or two panels of packed weights.
//!
//! Floats of the left side are read in place through pointers, one for each row and tap. A matrix product has one tap, a
//! convolution one for each position of its window; a tap's channels are contiguous. Each sum is taken in the order of K with one
//! accumulator, whatever the tile's height, so that the way in which rows are cut into tiles never shows in a result.

use crate::arch::{Job, LANES, Simd};
use crate::numbers::{Readable, Writable};
use crate::tail::{Activation, Finish, Steps};

/// Both sides of tiles below each other, of one block of K.
pub(crate) trait Factors: Copy {
    /// Adds the first tile's products to its sums, each in the order of K.
    fn multiply<S: Simd, const R: usize, const P: usize>(&self, s: S, sums: &mut [[S::V; P]; R]);

    /// What is needed after these tiles, of which each asks for a part.
    fn upcoming(&self) -> Upcoming;

    /// Those of the tiles that are so many rows below.
    fn below(&self, rows: usize) -> Self;

    /// Those of the tiles that are so many panels further on.
    fn beside(&self, panels: usize) -> Self;
}

/// Memory that is read soon: cache lines of up to two panels, of which each tile asks for some.
#[derive(Clone, Copy)]
pub(crate) struct Upcoming {
    pub(crate) from: *const f32,
    /// Floats to the next panel; 0 if there is one.
    pub(crate) stride: usize,
    /// Lines of each panel for a tile.
    pub(crate) lines: usize,
    /// Tiles that ask.
    pub(crate) tiles: usize,
}

impl Upcoming {
    pub(crate) const NOTHING: Upcoming = Upcoming { from: core::ptr::null(), stride: 0, lines: 0, tiles: 0 };

    /// The most lines that a tile asks for at once.
    const BURST: usize = 4;

    /// What follows in each panel.
    pub(crate) fn next(self) -> Self {
        Self { from: self.from.wrapping_add(self.lines * LANES), ..self }
    }

    /// Asks for a few lines at once. More are left to what [`spread`](Self::spread) gives.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S) {
        if self.lines <= Self::BURST {
            for line in 0..self.lines {
                s.prefetch(self.from.wrapping_add(line * LANES));
                s.prefetch(self.from.wrapping_add(line * LANES + self.stride));
            }
        }
    }

    /// An address to ask for and the floats to the next, for each step of a tile; the address `near` again and again where
    /// nothing is left: the processor has a limited number of requests on their way, and what is beyond waits.
    #[inline(always)]
    pub(crate) fn spread(&self, near: *const f32) -> (*const f32, usize) {
        if self.lines <= Self::BURST { (near, 0) } else { (self.from, LANES / self.tiles.clamp(1, LANES)) }
    }
}

/// Floats: rows that are found through pointers, and panels.
#[derive(Clone, Copy)]
pub(crate) struct Floats {
    /// Where the rows' elements are: `[taps][pointer_stride]`, beginning with the first tile's.
    pub(crate) pointers: *const *const f32,
    pub(crate) pointer_stride: usize,
    pub(crate) taps: usize,
    /// Contiguous elements of K a tap.
    pub(crate) depth: usize,
    /// The first panel at the block's first K, and the floats to the next panel.
    pub(crate) panel: *const f32,
    pub(crate) panel_stride: usize,
    pub(crate) upcoming: Upcoming,
}

impl Factors for Floats {
    #[inline(always)]
    fn multiply<S: Simd, const R: usize, const P: usize>(&self, s: S, sums: &mut [[S::V; P]; R]) {
        let mut panel = self.panel;
        let (mut ahead, step) = self.upcoming.spread(panel);
        for tap in 0..self.taps {
            let pointers = self.pointers.wrapping_add(tap * self.pointer_stride);
            // Loops, since closures given to functions without the instruction set are not inlined.
            let mut left = [core::ptr::null::<f32>(); R];
            for r in 0..R {
                // SAFETY: there is a pointer for each row and tap.
                left[r] = unsafe { *pointers.wrapping_add(r) };
            }
            for k in 0..self.depth {
                let mut right = [s.splat(0.0); P];
                for p in 0..P {
                    // SAFETY: each panel has 16 floats for each k of each tap.
                    right[p] = unsafe { s.load(panel.wrapping_add(p * self.panel_stride)) };
                }
                s.prefetch(ahead);
                if const { P == 2 } {
                    s.prefetch(ahead.wrapping_add(self.upcoming.stride));
                }
                ahead = ahead.wrapping_add(step);
                for r in 0..R {
                    // SAFETY: each pointer is to `depth` floats.
                    let x = s.splat(unsafe { *left[r].wrapping_add(k) });
                    for p in 0..P {
                        sums[r][p] = s.fma(x, right[p], sums[r][p]);
                    }
                }
                panel = panel.wrapping_add(LANES);
            }
        }
    }

    #[inline(always)]
    fn upcoming(&self) -> Upcoming {
        self.upcoming
    }

    #[inline(always)]
    fn below(&self, rows: usize) -> Self {
        Self { pointers: self.pointers.wrapping_add(rows), upcoming: self.upcoming.next(), ..*self }
    }

    #[inline(always)]
    fn beside(&self, panels: usize) -> Self {
        Self { panel: self.panel.wrapping_add(panels * self.panel_stride), ..*self }
    }
}

/// Pairs of bf16 on both sides.
#[derive(Clone, Copy)]
pub(crate) struct Bf16 {
    /// Where the rows' pairs are: `[taps][pointer_stride]`, beginning with the first tile's.
    pub(crate) pointers: *const *const u32,
    pub(crate) pointer_stride: usize,
    pub(crate) taps: usize,
    /// Pairs of a row and tap.
    pub(crate) pairs: usize,
    /// Whether another element follows them, which makes a pair with itself.
    pub(crate) has_single: bool,
    pub(crate) panel: *const u16,
    pub(crate) panel_stride: usize,
    pub(crate) upcoming: Upcoming,
}

impl Factors for Bf16 {
    #[inline(always)]
    fn multiply<S: Simd, const R: usize, const P: usize>(&self, s: S, sums: &mut [[S::V; P]; R]) {
        let mut panel = self.panel;
        let (mut ahead, step) = self.upcoming.spread(panel.cast());
        for tap in 0..self.taps {
            let pointers = self.pointers.wrapping_add(tap * self.pointer_stride);
            let mut left = [core::ptr::null::<u32>(); R];
            for r in 0..R {
                // SAFETY: there is a pointer for each row and tap.
                left[r] = unsafe { *pointers.wrapping_add(r) };
            }
            for pair in 0..self.pairs {
                let mut right = [s.splat(0.0); P];
                for p in 0..P {
                    // SAFETY: each panel has 16 pairs for each two of K.
                    right[p] = unsafe { s.load(panel.wrapping_add(p * self.panel_stride).cast()) };
                }
                s.prefetch(ahead);
                if const { P == 2 } {
                    s.prefetch(ahead.wrapping_add(self.upcoming.stride));
                }
                ahead = ahead.wrapping_add(step);
                for r in 0..R {
                    // SAFETY: each row and tap has so many pairs, at any address.
                    let x = s.splat(f32::from_bits(unsafe { left[r].wrapping_add(pair).read_unaligned() }));
                    for p in 0..P {
                        sums[r][p] = s.dot(x, right[p], sums[r][p]);
                    }
                }
                panel = panel.wrapping_add(2 * LANES);
            }
            if self.has_single {
                let mut right = [s.splat(0.0); P];
                for p in 0..P {
                    // SAFETY: each panel has 16 pairs for it.
                    right[p] = unsafe { s.load(panel.wrapping_add(p * self.panel_stride).cast()) };
                }
                for r in 0..R {
                    // SAFETY: each row and tap has one element more than pairs.
                    let single = unsafe { left[r].wrapping_add(self.pairs).cast::<u16>().read() };
                    let x = s.splat(f32::from_bits(u32::from(single) << 16 | u32::from(single)));
                    for p in 0..P {
                        sums[r][p] = s.dot(x, right[p], sums[r][p]);
                    }
                }
                panel = panel.wrapping_add(2 * LANES);
            }
        }
    }

    #[inline(always)]
    fn upcoming(&self) -> Upcoming {
        self.upcoming
    }

    #[inline(always)]
    fn below(&self, rows: usize) -> Self {
        Self { pointers: self.pointers.wrapping_add(rows), upcoming: self.upcoming.next(), ..*self }
    }

    #[inline(always)]
    fn beside(&self, panels: usize) -> Self {
        Self { panel: self.panel.wrapping_add(panels * self.panel_stride), ..*self }
    }
}

/// Tiles below each other, of one block of K.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a, F> {
    pub(crate) factors: F,
    /// Rows of a tile.
    pub(crate) rows: usize,
    /// How many tiles there are.
    pub(crate) repeat: usize,
    /// 1 or 2.
    pub(crate) panels: usize,
    /// The tile's columns in the output, from `16 * panels - 15` to `16 * panels`.
    pub(crate) columns: usize,
    pub(crate) out: Writable,
    pub(crate) out_stride: usize,
    /// Bias of the tile's first column, or null.
    pub(crate) bias: *const f32,
    /// Residual of the tile's first row and column; read only if there is one.
    pub(crate) residual: Readable,
    pub(crate) residual_stride: usize,
    /// Whether this is the first block of K: sums start from the bias, not from what `out` has.
    pub(crate) is_first: bool,
    /// Whether this is the last block of K: the other steps follow.
    pub(crate) is_last: bool,
    pub(crate) steps: &'a Steps,
}

impl<F: Factors> Tile<'_, F> {
    /// Computes the tiles. `rows` is at most `S::ROWS`, `panels` at most `S::PANELS`.
    ///
    /// # Safety
    /// All pointers are valid for what the fields say, and nobody else reads or writes the tile's part of the output.
    #[inline(always)]
    pub(crate) unsafe fn run_on<S: Simd>(self, s: S) {
        macro_rules! by_rows {
            ($panels:literal: $($rows:literal)*) => {
                match self.rows {
                    // Tiles taller than this instruction set's are never compiled.
                    $($rows => if const { $rows <= S::ROWS } { s.vectorize(Fixed::<F, $rows, $panels>(self)) },)*
                    _ => debug_assert!(false, "no tile has {} rows", self.rows),
                }
            };
        }
        if self.panels == 1 {
            by_rows!(1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
        } else if const { S::PANELS == 2 } {
            by_rows!(2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
        }
        if self.is_last && !self.steps.is_plain && !self.out.is_bf16() {
            let finish = Finish {
                steps: self.steps,
                sums: self.out.as_floats(),
                stride: self.out_stride,
                rounded: None,
                residual: self.residual,
                residual_stride: self.residual_stride,
                rows: self.rows * self.repeat,
                columns: self.columns,
            };
            // SAFETY: the caller vouches for the output and the residual.
            unsafe { finish.run_on(s) };
        }
    }
}

/// A tile of `R` rows and `P` panels.
struct Fixed<'a, F, const R: usize, const P: usize>(Tile<'a, F>);

impl<F: Factors, const R: usize, const P: usize> Job for Fixed<'_, F, R, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut tile = self.0;
        for _ in 0..tile.repeat {
            tile.factors.upcoming().prefetch(s);
            if tile.is_last && !tile.steps.residual.is_null() {
                for r in 0..R {
                    for p in 0..P {
                        tile.residual.plus(s, r * tile.residual_stride + p * LANES).prefetch(s);
                    }
                }
            }
            Self::one(s, &tile);
            tile.factors = tile.factors.below(R);
            tile.out = tile.out.plus(s, R * tile.out_stride);
            tile.residual = tile.residual.plus(s, R * tile.residual_stride);
        }
    }
}

impl<F: Factors, const R: usize, const P: usize> Fixed<'_, F, R, P> {
    // Sums stay in registers only if each access to them is in a loop of known length over indices, which is unrolled
    // before the array is taken apart: no iterators and no conditions in them, and ragged columns through a copy.
    #[inline(always)]
    fn one<S: Simd>(s: S, tile: &Tile<'_, F>) {
        let is_ragged = tile.columns < P * LANES;
        // Lanes of each panel that are columns of the output.
        let lanes = |p: usize| (tile.columns - p * LANES).min(LANES);
        let out = |r: usize, p: usize| tile.out.plus(s, r * tile.out_stride + p * LANES);

        let mut sums = [[s.splat(0.0); P]; R];
        if !tile.is_first {
            if is_ragged {
                let mut copy = sums;
                for (r, row) in copy.iter_mut().enumerate() {
                    for (p, sum) in row.iter_mut().enumerate() {
                        // SAFETY: `run_on` asks for the tile's part of the output.
                        *sum = unsafe { s.load_part(out(r, p).as_floats(), lanes(p)) };
                    }
                }
                sums = copy;
            } else {
                for r in 0..R {
                    for p in 0..P {
                        // SAFETY: likewise.
                        sums[r][p] =
                            unsafe { s.load(tile.out.as_floats().wrapping_add(r * tile.out_stride + p * LANES)) };
                    }
                }
            }
        } else if !tile.bias.is_null() {
            for p in 0..P {
                // SAFETY: there is a bias for each column.
                let bias = unsafe { s.load_part(tile.bias.wrapping_add(p * LANES), lanes(p)) };
                for r in 0..R {
                    sums[r][p] = bias;
                }
            }
        }

        tile.factors.multiply(s, &mut sums);

        if const { S::TAKES_BF16 } && tile.out.is_bf16() && !tile.steps.is_plain {
            let copy = sums;
            let mut floats = [[[0.0f32; LANES]; P]; R];
            for (floats, sums) in floats.as_flattened_mut().iter_mut().zip(copy.as_flattened()) {
                s.write(floats, *sums);
            }
            let finish = Finish {
                steps: tile.steps,
                sums: floats.as_mut_ptr().cast(),
                stride: P * LANES,
                rounded: Some((tile.out.as_bf16(), tile.out_stride)),
                residual: tile.residual,
                residual_stride: tile.residual_stride,
                rows: R,
                columns: tile.columns,
            };
            // SAFETY: the tile has so many sums; `run_on` asks for the tile's part of the output and for the residual.
            return unsafe { finish.run_on(s) };
        }
        let is_plain = tile.is_last && tile.steps.is_plain;
        let has_residual = is_plain && !tile.steps.residual.is_null();
        let residual = |r: usize, p: usize| tile.residual.plus(s, r * tile.residual_stride + p * LANES);
        if is_ragged {
            let copy = sums;
            for (r, row) in copy.iter().enumerate() {
                for (p, &sum) in row.iter().enumerate() {
                    let mut sum = sum;
                    if has_residual {
                        // SAFETY: the residual has the output's shape.
                        sum = s.add(sum, unsafe { residual(r, p).load(s, lanes(p)) });
                    }
                    if is_plain {
                        sum = tile.steps.short(s, sum);
                    }
                    // SAFETY: `run_on` asks for the tile's part of the output.
                    unsafe { out(r, p).store(s, lanes(p), sum) };
                }
            }
            return;
        }
        if const { S::TAKES_BF16 } && has_residual && tile.residual.is_bf16() {
            let residual = tile.residual.as_bf16();
            for r in 0..R {
                for p in 0..P {
                    let from = residual.wrapping_add(r * tile.residual_stride + p * LANES);
                    // SAFETY: the residual has the output's shape.
                    sums[r][p] = s.add(sums[r][p], unsafe { s.widen_bf16(from, LANES) });
                }
            }
        } else if has_residual {
            let residual = tile.residual.as_floats();
            for r in 0..R {
                for p in 0..P {
                    let from = residual.wrapping_add(r * tile.residual_stride + p * LANES);
                    // SAFETY: the residual has the output's shape.
                    sums[r][p] = s.add(sums[r][p], unsafe { s.load(from) });
                }
            }
        }
        if is_plain && tile.steps.is_hard_swish {
            for r in 0..R {
                for p in 0..P {
                    sums[r][p] = Activation::HardSwish.apply(s, sums[r][p]);
                }
            }
        } else if is_plain {
            let (min, max) = (s.splat(tile.steps.min), s.splat(tile.steps.max));
            for r in 0..R {
                for p in 0..P {
                    sums[r][p] = s.min(max, s.max(min, sums[r][p]));
                }
            }
        }
        if const { S::TAKES_BF16 } && tile.out.is_bf16() {
            let out = tile.out.as_bf16();
            for r in 0..R {
                for p in 0..P {
                    // SAFETY: `run_on` asks for the tile's part of the output.
                    unsafe { s.store_bf16(out.wrapping_add(r * tile.out_stride + p * LANES), LANES, sums[r][p]) };
                }
            }
            return;
        }
        let out = tile.out.as_floats();
        for r in 0..R {
            for p in 0..P {
                // SAFETY: `run_on` asks for the tile's part of the output.
                unsafe { s.store(out.wrapping_add(r * tile.out_stride + p * LANES), sums[r][p]) };
            }
        }
    }
}
