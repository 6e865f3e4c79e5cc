//! The register-tile microkernel: up to MR ([`Simd::MR`]) rows of the left side times one or two panels of packed
//! weights.
//!
//! Each output element has a single accumulator that runs through K in order, for any height of the tile. The partition
//! of rows into tiles and tasks therefore never changes a result.

use crate::arch::{Bf16Pairs, Kernel, LANES, Simd};
use crate::element::{ElementPtr, ElementPtrMut};
use crate::epilogue::{Activation, ApplyEpilogue, EpilogueArgs};

/// One step of K in the left side: an f32 element, or a pair of bf16 elements.
pub(crate) trait KStep: Copy {
    /// Element of the packed weights.
    type Weight: Copy;
    /// The weights of 16 columns for one step.
    type Weights<S: Simd>: Copy;
    /// One step of a row in all lanes.
    type Splat<S: Simd>: Copy;
    /// Elements of a panel per step.
    const PANEL_ELEMENTS: usize;

    fn zeros<S: Simd>(s: S) -> Self::Weights<S>;

    /// Loads the weights of one step.
    ///
    /// # Safety
    /// [`PANEL_ELEMENTS`](Self::PANEL_ELEMENTS) elements are readable.
    unsafe fn load<S: Simd>(s: S, panel: *const Self::Weight) -> Self::Weights<S>;

    /// Sets all lanes to one step of a row.
    ///
    /// # Safety
    /// It is readable, at any address.
    unsafe fn splat<S: Simd>(s: S, row: *const Self) -> Self::Splat<S>;

    /// Sets all lanes to a pair of an unpaired last element with itself; the same as [`splat`](Self::splat) for f32.
    ///
    /// # Safety
    /// The element is readable.
    unsafe fn splat_last<S: Simd>(s: S, row: *const Self) -> Self::Splat<S>;

    /// Accumulates the products of the first steps where several are multiplied at a time; returns their number.
    ///
    /// # Safety
    /// As for [`Simd::multiply_f32`].
    #[inline(always)]
    unsafe fn multiply_several<S: Simd, const R: usize, const P: usize>(
        _: S,
        _left: &[*const Self; R],
        _steps: usize,
        _panel: *const Self::Weight,
        _panel_stride: usize,
        _sums: &mut [[S::V; P]; R],
    ) -> usize {
        0
    }

    /// `sum + x * weights`; for pairs, the sum of both products is added.
    fn multiply_add<S: Simd>(s: S, x: Self::Splat<S>, weights: Self::Weights<S>, sum: S::V) -> S::V;
}

impl KStep for f32 {
    type Weight = f32;
    type Weights<S: Simd> = S::V;
    type Splat<S: Simd> = S::V;
    const PANEL_ELEMENTS: usize = LANES;

    #[inline(always)]
    fn zeros<S: Simd>(s: S) -> S::V {
        s.splat(0.0)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, panel: *const f32) -> S::V {
        // SAFETY: the caller guarantees 16 floats.
        unsafe { s.load(panel) }
    }

    #[inline(always)]
    unsafe fn splat<S: Simd>(s: S, row: *const f32) -> S::V {
        // SAFETY: the caller guarantees the element.
        s.splat(unsafe { *row })
    }

    #[inline(always)]
    unsafe fn splat_last<S: Simd>(s: S, row: *const f32) -> S::V {
        // SAFETY: likewise.
        unsafe { Self::splat(s, row) }
    }

    #[inline(always)]
    unsafe fn multiply_several<S: Simd, const R: usize, const P: usize>(
        s: S,
        left: &[*const f32; R],
        steps: usize,
        panel: *const f32,
        panel_stride: usize,
        sums: &mut [[S::V; P]; R],
    ) -> usize {
        // SAFETY: the caller guarantees all of it.
        unsafe { s.multiply_f32(left, steps, panel, panel_stride, sums) }
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(s: S, x: S::V, weights: S::V, sum: S::V) -> S::V {
        s.fma(x, weights, sum)
    }
}

/// A pair of bf16 elements, the first in the low half.
impl KStep for u32 {
    type Weight = u16;
    type Weights<S: Simd> = Bf16Pairs<S>;
    type Splat<S: Simd> = Bf16Pairs<S>;
    const PANEL_ELEMENTS: usize = 2 * LANES;

    #[inline(always)]
    fn zeros<S: Simd>(s: S) -> Bf16Pairs<S> {
        s.splat_bf16_pairs(0)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, panel: *const u16) -> Bf16Pairs<S> {
        // SAFETY: the caller guarantees 16 pairs.
        unsafe { s.load_bf16_pairs(panel) }
    }

    #[inline(always)]
    unsafe fn splat<S: Simd>(s: S, row: *const u32) -> Bf16Pairs<S> {
        // SAFETY: the caller guarantees the pair.
        s.splat_bf16_pairs(unsafe { row.read_unaligned() })
    }

    #[inline(always)]
    unsafe fn splat_last<S: Simd>(s: S, row: *const u32) -> Bf16Pairs<S> {
        // SAFETY: the caller guarantees the element, and bf16 elements are aligned.
        let last = u32::from(unsafe { row.cast::<u16>().read() });
        s.splat_bf16_pairs(last << 16 | last)
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(s: S, x: Bf16Pairs<S>, weights: Bf16Pairs<S>, sum: S::V) -> S::V {
        s.dot_bf16(x, weights, sum)
    }
}

/// Cache lines of the next panels (up to two), prefetched piecewise by the tiles before them.
#[derive(Clone, Copy)]
pub(crate) struct Prefetch {
    pub(crate) from: *const f32,
    /// Floats between the panels; 0 if there is only one.
    pub(crate) stride: usize,
    /// Cache lines per panel and tile.
    pub(crate) lines: usize,
    /// Number of tiles that share the prefetching.
    pub(crate) tiles: usize,
}

impl Prefetch {
    pub(crate) const NONE: Prefetch = Prefetch { from: core::ptr::null(), stride: 0, lines: 0, tiles: 0 };

    /// Largest number of lines that a tile prefetches in one burst.
    const BURST: usize = 4;

    /// The part of the next tile.
    pub(crate) fn next(self) -> Self {
        Self { from: self.from.wrapping_add(self.lines * LANES), ..self }
    }

    /// Prefetches a few lines in one burst; larger amounts are left to [`spread`](Self::spread).
    #[inline(always)]
    fn issue<S: Simd>(&self, s: S) {
        if self.lines <= Self::BURST {
            for line in 0..self.lines {
                s.prefetch(self.from.wrapping_add(line * LANES));
                s.prefetch(self.from.wrapping_add(line * LANES + self.stride));
            }
        }
    }

    /// Returns an address and a step, for a tile that prefetches one line per iteration. If nothing is left, the
    /// address stays at `near`: outstanding requests are limited, so a useless one must hit the cache.
    #[inline(always)]
    pub(crate) fn spread(&self, near: *const f32) -> (*const f32, usize) {
        if self.lines <= Self::BURST { (near, 0) } else { (self.from, LANES / self.tiles.clamp(1, LANES)) }
    }
}

/// Both operands of a stack of tiles, for one block of K: rows behind pointers, and panels.
#[derive(Clone, Copy)]
pub(crate) struct TileOperands<T: KStep> {
    /// Pointers to the steps of each row, `[taps][pointer_stride]`, starting with the first tile's rows.
    pub(crate) pointers: *const *const T,
    pub(crate) pointer_stride: usize,
    pub(crate) taps: usize,
    /// Steps per row and tap.
    pub(crate) steps: usize,
    /// True if each tap ends with an unpaired bf16 element. It is multiplied as a pair with itself, with half of its
    /// weight in each position.
    pub(crate) has_unpaired: bool,
    /// First panel at the first k of the block, and the elements between panels.
    pub(crate) panel: *const T::Weight,
    pub(crate) panel_stride: usize,
    pub(crate) prefetch: Prefetch,
}

impl<T: KStep> TileOperands<T> {
    /// Accumulates the first tile's products, each element in the order of K.
    #[inline(always)]
    fn multiply<S: Simd, const R: usize, const P: usize>(&self, s: S, sums: &mut [[S::V; P]; R]) {
        let mut panel = self.panel;
        let (mut ahead, step) = self.prefetch.spread(panel.cast());
        for tap in 0..self.taps {
            let pointers = self.pointers.wrapping_add(tap * self.pointer_stride);
            // Index loops: closures passed to functions outside the `target_feature` context are not inlined.
            let mut left = [core::ptr::null::<T>(); R];
            for r in 0..R {
                // SAFETY: there is a pointer for each row and tap.
                left[r] = unsafe { *pointers.wrapping_add(r) };
            }
            // SAFETY: each pointer is to `steps` steps, and each panel has a row for each step of each tap.
            let done = unsafe { T::multiply_several(s, &left, self.steps, panel, self.panel_stride, sums) };
            panel = panel.wrapping_add(done * T::PANEL_ELEMENTS);
            for k in done..self.steps {
                let mut right = [T::zeros(s); P];
                for p in 0..P {
                    // SAFETY: each panel has a row for each step of each tap.
                    right[p] = unsafe { T::load(s, panel.wrapping_add(p * self.panel_stride)) };
                }
                s.prefetch(ahead);
                if const { P == 2 } {
                    s.prefetch(ahead.wrapping_add(self.prefetch.stride));
                }
                ahead = ahead.wrapping_add(step);
                for r in 0..R {
                    // SAFETY: each pointer is to `steps` steps.
                    let x = unsafe { T::splat(s, left[r].wrapping_add(k)) };
                    for p in 0..P {
                        sums[r][p] = T::multiply_add(s, x, right[p], sums[r][p]);
                    }
                }
                panel = panel.wrapping_add(T::PANEL_ELEMENTS);
            }
            if const { T::PANEL_ELEMENTS > LANES } && self.has_unpaired {
                let mut right = [T::zeros(s); P];
                for p in 0..P {
                    // SAFETY: likewise.
                    right[p] = unsafe { T::load(s, panel.wrapping_add(p * self.panel_stride)) };
                }
                for r in 0..R {
                    // SAFETY: each tap has one element after its pairs.
                    let x = unsafe { T::splat_last(s, left[r].wrapping_add(self.steps)) };
                    for p in 0..P {
                        sums[r][p] = T::multiply_add(s, x, right[p], sums[r][p]);
                    }
                }
                panel = panel.wrapping_add(T::PANEL_ELEMENTS);
            }
        }
    }

    /// Advances by `rows` rows.
    #[inline(always)]
    fn below(&self, rows: usize) -> Self {
        Self { pointers: self.pointers.wrapping_add(rows), prefetch: self.prefetch.next(), ..*self }
    }

    /// Advances by `panels` panels.
    #[inline(always)]
    pub(crate) fn beside(&self, panels: usize) -> Self {
        Self { panel: self.panel.wrapping_add(panels * self.panel_stride), ..*self }
    }
}

/// A stack of equally high tiles, for one block of K.
#[derive(Clone, Copy)]
pub(crate) struct TileStack<'a, T: KStep> {
    pub(crate) operands: TileOperands<T>,
    /// Rows per tile.
    pub(crate) rows: usize,
    /// Number of tiles.
    pub(crate) repeat: usize,
    /// 1 or 2.
    pub(crate) panels: usize,
    /// Columns of the output that the tile covers, from `16 * panels - 15` to `16 * panels`.
    pub(crate) columns: usize,
    pub(crate) out: ElementPtrMut,
    pub(crate) out_stride: usize,
    /// Bias of the first column, or null.
    pub(crate) bias: *const f32,
    /// Residual of the first row and column; read only if there is one.
    pub(crate) residual: ElementPtr,
    pub(crate) residual_stride: usize,
    /// First block of K: accumulators start from the bias instead of the output.
    pub(crate) is_first: bool,
    /// Last block of K: the rest of the epilogue follows.
    pub(crate) is_last: bool,
    pub(crate) epilogue: &'a EpilogueArgs,
}

impl<T: KStep> TileStack<'_, T> {
    /// Computes the tiles. `rows` is at most `S::MR`, `panels` at most `S::NR_PANELS`.
    ///
    /// # Safety
    /// All pointers are valid for the sizes in the fields, and nobody else accesses the output of these tiles.
    #[inline(always)]
    pub(crate) unsafe fn run_on<S: Simd>(self, s: S) {
        // A height or width that is not listed below does not compile.
        const { assert!(S::MR <= 14 && S::NR_PANELS <= 2, "a register tile without a microkernel") };
        macro_rules! by_rows {
            ($panels:literal: $($rows:literal)*) => {
                match self.rows {
                    // Tiles higher than this instruction set's MR are not instantiated.
                    $($rows => if const { $rows <= S::MR } {
                        s.vectorize(Microkernel::<T, $rows, $panels>(self));
                    } else {
                        exceeds_tile(self.rows, self.panels);
                    })*
                    _ => exceeds_tile(self.rows, self.panels),
                }
            };
        }
        if self.panels == 1 {
            by_rows!(1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
        } else if const { S::NR_PANELS == 2 } && self.panels == 2 {
            by_rows!(2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
        } else {
            exceeds_tile(self.rows, self.panels);
        }
        if self.is_last && !self.epilogue.is_fused && !self.out.is_bf16() {
            let finish = ApplyEpilogue {
                epilogue: self.epilogue,
                sums: self.out.as_f32(),
                stride: self.out_stride,
                rounded: None,
                residual: self.residual,
                residual_stride: self.residual_stride,
                rows: self.rows * self.repeat,
                columns: self.columns,
            };
            // SAFETY: the caller guarantees the output and the residual.
            unsafe { finish.run_on(s) };
        }
    }
}

/// Panics: a tile is larger than the instruction set's. No driver makes one: rows come from `chunks(S::MR)`, panels from
/// `chunks(S::NR_PANELS)`, and their counts are not types, so that only sizes of the instruction set are checked when it compiles.
#[cold]
#[inline(never)]
fn exceeds_tile(rows: usize, panels: usize) -> ! {
    panic!("a tile of {rows} rows and {panels} panels exceeds the register tile")
}

/// A microkernel of `R` rows and `P` panels.
struct Microkernel<'a, T: KStep, const R: usize, const P: usize>(TileStack<'a, T>);

impl<T: KStep, const R: usize, const P: usize> Kernel for Microkernel<'_, T, R, P> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut tile = self.0;
        for _ in 0..tile.repeat {
            tile.operands.prefetch.issue(s);
            if tile.is_last && !tile.epilogue.residual.is_null() {
                for r in 0..R {
                    for p in 0..P {
                        tile.residual.add(s, r * tile.residual_stride + p * LANES).prefetch(s);
                    }
                }
            }
            Self::one(s, &tile);
            tile.operands = tile.operands.below(R);
            tile.out = tile.out.add(s, R * tile.out_stride);
            tile.residual = tile.residual.add(s, R * tile.residual_stride);
        }
    }
}

impl<T: KStep, const R: usize, const P: usize> Microkernel<'_, T, R, P> {
    // LLVM keeps the accumulators in registers only if every access is in an unrolled loop over indices: no iterators,
    // no conditions inside, and partial columns through a copy.
    #[inline(always)]
    fn one<S: Simd>(s: S, tile: &TileStack<'_, T>) {
        let is_ragged = tile.columns < P * LANES;
        // Valid lanes of each panel.
        let lanes = |p: usize| (tile.columns - p * LANES).min(LANES);
        let out = |r: usize, p: usize| tile.out.add(s, r * tile.out_stride + p * LANES);

        let mut sums = [[s.splat(0.0); P]; R];
        if !tile.is_first {
            if is_ragged {
                let mut copy = sums;
                for (r, row) in copy.iter_mut().enumerate() {
                    for (p, sum) in row.iter_mut().enumerate() {
                        // SAFETY: `run_on` requires the tile's part of the output.
                        *sum = unsafe { s.load_partial(out(r, p).as_f32(), lanes(p)) };
                    }
                }
                sums = copy;
            } else {
                for r in 0..R {
                    for p in 0..P {
                        // SAFETY: likewise.
                        sums[r][p] = unsafe { s.load(tile.out.as_f32().wrapping_add(r * tile.out_stride + p * LANES)) };
                    }
                }
            }
        } else if !tile.bias.is_null() {
            for p in 0..P {
                // SAFETY: there is a bias for each column.
                let bias = unsafe { s.load_partial(tile.bias.wrapping_add(p * LANES), lanes(p)) };
                for r in 0..R {
                    sums[r][p] = bias;
                }
            }
        }

        tile.operands.multiply(s, &mut sums);

        if const { S::HAS_BF16 } && tile.out.is_bf16() && !tile.epilogue.is_fused {
            let copy = sums;
            let mut floats = [[[0.0f32; LANES]; P]; R];
            for (floats, sums) in floats.as_flattened_mut().iter_mut().zip(copy.as_flattened()) {
                s.store_slice(floats, *sums);
            }
            let finish = ApplyEpilogue {
                epilogue: tile.epilogue,
                sums: floats.as_mut_ptr().cast(),
                stride: P * LANES,
                rounded: Some((tile.out.as_bf16(), tile.out_stride)),
                residual: tile.residual,
                residual_stride: tile.residual_stride,
                rows: R,
                columns: tile.columns,
            };
            // SAFETY: the tile has enough sums; `run_on` requires the output and the residual of the tile.
            return unsafe { finish.run_on(s) };
        }
        let is_fused = tile.is_last && tile.epilogue.is_fused;
        let has_residual = is_fused && !tile.epilogue.residual.is_null();
        let residual = |r: usize, p: usize| tile.residual.add(s, r * tile.residual_stride + p * LANES);
        if is_ragged {
            let copy = sums;
            for (r, row) in copy.iter().enumerate() {
                for (p, &sum) in row.iter().enumerate() {
                    let mut sum = sum;
                    if has_residual {
                        // SAFETY: the residual has the output's shape.
                        sum = s.add(sum, unsafe { residual(r, p).load(s, lanes(p)) });
                    }
                    if is_fused {
                        sum = tile.epilogue.fused_activation(s, sum);
                    }
                    // SAFETY: `run_on` requires the tile's part of the output.
                    unsafe { out(r, p).store(s, lanes(p), sum) };
                }
            }
            return;
        }
        if const { S::HAS_BF16 } && has_residual && tile.residual.is_bf16() {
            let residual = tile.residual.as_bf16();
            for r in 0..R {
                for p in 0..P {
                    let from = residual.wrapping_add(r * tile.residual_stride + p * LANES);
                    // SAFETY: the residual has the output's shape.
                    sums[r][p] = s.add(sums[r][p], unsafe { s.load_bf16(from, LANES) });
                }
            }
        } else if has_residual {
            let residual = tile.residual.as_f32();
            for r in 0..R {
                for p in 0..P {
                    let from = residual.wrapping_add(r * tile.residual_stride + p * LANES);
                    // SAFETY: the residual has the output's shape.
                    sums[r][p] = s.add(sums[r][p], unsafe { s.load(from) });
                }
            }
        }
        if is_fused && tile.epilogue.is_hard_swish {
            for r in 0..R {
                for p in 0..P {
                    sums[r][p] = Activation::HardSwish.apply(s, sums[r][p]);
                }
            }
        } else if is_fused {
            let (min, max) = (s.splat(tile.epilogue.min), s.splat(tile.epilogue.max));
            for r in 0..R {
                for p in 0..P {
                    sums[r][p] = s.clamp(sums[r][p], min, max);
                }
            }
        }
        if const { S::HAS_BF16 } && tile.out.is_bf16() {
            let out = tile.out.as_bf16();
            for r in 0..R {
                for p in 0..P {
                    // SAFETY: `run_on` requires the tile's part of the output.
                    unsafe { s.store_bf16(out.wrapping_add(r * tile.out_stride + p * LANES), LANES, sums[r][p]) };
                }
            }
            return;
        }
        let out = tile.out.as_f32();
        for r in 0..R {
            for p in 0..P {
                // SAFETY: `run_on` requires the tile's part of the output.
                unsafe { s.store(out.wrapping_add(r * tile.out_stride + p * LANES), sums[r][p]) };
            }
        }
    }
}
