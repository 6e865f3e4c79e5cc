//! Winograd convolution: 3x3 kernels with stride 1 by fewer multiplications.
//!
//! The input is divided into overlapping tiles, which are transformed. One GEMM per point of the transformed tile
//! replaces the convolution, and its results are transformed back into output tiles. Lavin and Gray, "Fast Algorithms
//! for Convolutional Neural Networks", 2015, arXiv:1509.09308. The transforms are Toom-Cook at the points 0, ±1, ∞ for
//! 2x2 tiles, and 0, ±sqrt(1/2), ±sqrt(2), ∞ for 4x4 tiles. The error of the latter is a quarter of that of the usual
//! 0, ±1, ±2, ∞.
#![allow(unsafe_code)]

use core::f32::consts::{FRAC_1_SQRT_2, SQRT_2};
use core::f64;
use core::mem::MaybeUninit;
use core::ops::Range;

use super::Conv2d;
use crate::arch::{Kernel, LANES, Simd};
use crate::element::ElementPtrMut;
use crate::epilogue::{ApplyEpilogue, EpilogueArgs};
use crate::error::{Error, at_least};
use crate::igemm::{Igemm, IndirectionBuffer, LhsRows, OutputLayout};
use crate::parallel::chunk_range;
use crate::{Engine, Epilogue};

/// Size of the output tiles.
///
/// The error is relative to the largest output of the layer. `F2` has about that of [`conv2d`](crate::conv2d), and `F4`
/// three times that: below 2e-6 with normally distributed inputs and 512 channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Winograd {
    /// F(2x2, 3x3): 2.25 times fewer multiplications, 1.8 times more weights.
    F2,
    /// F(4x4, 3x3): 4 times fewer multiplications, 4 times more weights.
    F4,
}

/// Scratch memory of a thread's tiles, in floats, unless that leaves too few tiles for a GEMM.
const MAX_BLOCK_FLOATS: usize = 256 << 10;

/// Cost of reading one weight from memory or the last-level cache, in multiplications.
const WEIGHT_COST: f64 = 20.0;

/// Minimum tiles per block, for any number of channels.
const MIN_BLOCK_TILES: usize = 24;

impl Winograd {
    /// Returns true for 3x3 convolutions with stride and dilation 1, one group, and at least 16 input and output
    /// channels.
    pub fn supports(conv: &Conv2d) -> bool {
        conv.kernel == [3, 3]
            && conv.stride == [1, 1]
            && conv.dilation == [1, 1]
            && conv.groups == 1
            && conv.in_c >= LANES
            && conv.out_c >= LANES
    }

    /// Returns the variant that is estimated to be fastest, if one is estimated to be faster than
    /// [`conv2d`](crate::conv2d) with f32 weights.
    pub fn choose(conv: &Conv2d) -> Option<Winograd> {
        if !Self::supports(conv) {
            return None;
        }
        let cost = |form: Winograd| {
            let (tiles_h, tiles_w) = form.tiles(conv);
            let points = (form.size() + 2).pow(2);
            let tiles = (conv.batch * tiles_h * tiles_w) as f64;
            let gemm_out = tiles * (points * conv.in_c) as f64 * conv.out_c as f64;
            // The cost of the transforms in units of multiplications, and the cost of reading the weights.
            let transforms = tiles * (points * (conv.in_c + conv.out_c)) as f64 * 16.0;
            let weights = (points * conv.in_c * conv.out_c) as f64 * WEIGHT_COST;
            gemm_out + transforms + weights
        };
        let filter = (9 * conv.in_c) as f64 * conv.out_c as f64;
        let direct = (conv.batch * conv.out_h() * conv.out_w()) as f64 * filter + filter * WEIGHT_COST;
        let best = if cost(Winograd::F4) <= cost(Winograd::F2) { Winograd::F4 } else { Winograd::F2 };
        (cost(best) < 0.9 * direct).then_some(best)
    }

    /// Scratch memory per thread, in floats, that suffices for [`conv2d_winograd`] with these channels and any image
    /// size.
    pub fn scratch_per_thread(self, conv: &Conv2d) -> usize {
        let tile = self.points().saturating_mul(conv.in_c.saturating_add(conv.out_c));
        MAX_BLOCK_FLOATS.max(MIN_BLOCK_TILES.saturating_mul(tile))
    }

    /// Height and width of an output tile.
    const fn size(self) -> usize {
        match self {
            Winograd::F2 => 2,
            Winograd::F4 => 4,
        }
    }

    /// Points of a transformed tile.
    pub(crate) const fn points(self) -> usize {
        (self.size() + 2) * (self.size() + 2)
    }

    /// Rows and columns of tiles.
    fn tiles(self, conv: &Conv2d) -> (usize, usize) {
        (conv.out_h().div_ceil(self.size()), conv.out_w().div_ceil(self.size()))
    }

    /// Transforms a filter in one dimension; the first [`size`](Self::size) + 2 elements are valid.
    pub(crate) fn transform_filter(self, taps: [f64; 3]) -> [f64; 6] {
        let [g0, g1, g2] = taps;
        match self {
            Winograd::F2 => {
                let (even, odd) = (0.5 * (g0 + g2), 0.5 * g1);
                [-g0, even + odd, even - odd, g2, 0.0, 0.0]
            }
            Winograd::F4 => {
                // Row p of the matrix is (1, p, p^2), divided by the product of the differences of p from the other
                // points.
                let at = |p: f64, scale: f64| (g0 + p * g1 + p * p * g2) / scale;
                let (a, b) = (f64::consts::FRAC_1_SQRT_2, f64::consts::SQRT_2);
                [g0, at(a, -1.5), at(-a, -1.5), at(b, 6.0), at(-b, 6.0), g2]
            }
        }
    }
}

/// The input and output transforms in one dimension, on vectors of channels. The smaller variant leaves the rest of the
/// arrays unchanged.
trait Transform: Copy + Send + Sync {
    const SIZE: usize;

    fn input<S: Simd>(s: S, d: [S::V; 6]) -> [S::V; 6];
    fn output<S: Simd>(s: S, m: [S::V; 6]) -> [S::V; 4];
}

#[derive(Clone, Copy)]
struct F2;

impl Transform for F2 {
    const SIZE: usize = 2;

    #[inline(always)]
    fn input<S: Simd>(s: S, d: [S::V; 6]) -> [S::V; 6] {
        [s.sub(d[2], d[0]), s.add(d[2], d[1]), s.sub(d[2], d[1]), s.sub(d[3], d[1]), d[4], d[5]]
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, m: [S::V; 6]) -> [S::V; 4] {
        let (sum, difference) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        [s.add(m[0], sum), s.add(difference, m[3]), m[2], m[3]]
    }
}

#[derive(Clone, Copy)]
struct F4;

impl Transform for F4 {
    const SIZE: usize = 4;

    #[inline(always)]
    fn input<S: Simd>(s: S, d: [S::V; 6]) -> [S::V; 6] {
        let times = |factor: f32, a, b| s.fma(s.splat(factor), a, b);
        // For the points ±p: even + odd and even - odd.
        let even_a = times(-2.0, d[2], d[4]);
        let odd_a = s.mul(s.splat(FRAC_1_SQRT_2), times(-2.0, d[1], d[3]));
        let even_b = times(-0.5, d[2], d[4]);
        let odd_b = s.mul(s.splat(SQRT_2), times(-0.5, d[1], d[3]));
        [
            s.add(d[0], times(-2.5, d[2], d[4])),
            s.add(even_a, odd_a),
            s.sub(even_a, odd_a),
            s.add(even_b, odd_b),
            s.sub(even_b, odd_b),
            s.add(d[1], times(-2.5, d[3], d[5])),
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, m: [S::V; 6]) -> [S::V; 4] {
        let times = |factor: f32, a, b| s.fma(s.splat(factor), a, b);
        let (even_a, odd_a) = (s.add(m[1], m[2]), s.mul(s.splat(FRAC_1_SQRT_2), s.sub(m[1], m[2])));
        let (even_b, odd_b) = (s.add(m[3], m[4]), s.mul(s.splat(SQRT_2), s.sub(m[3], m[4])));
        [
            s.add(m[0], s.add(even_a, even_b)),
            s.add(odd_a, odd_b),
            times(2.0, even_b, s.mul(s.splat(0.5), even_a)),
            s.add(m[5], times(2.0, odd_b, s.mul(s.splat(0.5), odd_a))),
        ]
    }
}

/// Returns the scratch memory that [`conv2d_winograd`] needs, in floats; `None` if that overflows `usize`.
pub fn conv2d_winograd_scratch(engine: &Engine, form: Winograd, conv: &Conv2d) -> Option<usize> {
    let channels = conv.in_c.checked_add(conv.out_c)?;
    block_tiles(engine, form, conv)?.checked_mul(form.points())?.checked_mul(channels)
}

/// Returns the tiles per block, whose scratch memory fits in the caches of all threads.
fn block_tiles(engine: &Engine, form: Winograd, conv: &Conv2d) -> Option<usize> {
    let (tiles_h, tiles_w) = form.tiles(conv);
    let tiles = conv.batch.checked_mul(tiles_h)?.checked_mul(tiles_w)?;
    let tile = form.points().checked_mul(conv.in_c.checked_add(conv.out_c)?)?.max(1);
    let limit = (MAX_BLOCK_FLOATS / tile).max(MIN_BLOCK_TILES).checked_mul(engine.threads())?;
    Some(tiles.div_ceil(tiles.div_ceil(limit).max(1)))
}

/// Weights transformed and packed by [`pack::winograd_f32`](crate::pack::winograd_f32).
#[derive(Debug, Clone, Copy)]
pub struct WinogradWeights<'a> {
    pub form: Winograd,
    pub packed: &'a [f32],
}

/// Like [`conv2d`](crate::conv2d) for shapes that [`Winograd::supports`].
///
/// # Errors
/// If a slice is too short, a size is zero or too large, or [`Winograd::supports`] returns false.
pub fn conv2d_winograd(
    engine: &Engine,
    conv: &Conv2d,
    input: &[f32],
    weights: WinogradWeights<'_>,
    out: &mut [f32],
    epilogue: &Epilogue,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let pixels = conv.in_3d().check(input.len(), out.len())?;
    if !Winograd::supports(conv) {
        return Err(Error::Size { what: "shape of a Winograd convolution" });
    }
    let WinogradWeights { form, packed } = weights;
    let weights_len = super::pack::winograd_f32_len(form, conv).ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), weights_len)?;
    epilogue.check(pixels, conv.out_c)?;
    let scratch_len = conv2d_winograd_scratch(engine, form, conv).ok_or(Error::Size { what: "scratch" })?;
    at_least("scratch", scratch.len(), scratch_len)?;
    if pixels == 0 {
        return Ok(());
    }
    let block = block_tiles(engine, form, conv).unwrap_or(0);
    let (transformed, gemm_out) = scratch.split_at_mut(block * form.points() * conv.in_c);
    let (tiles_h, tiles_w) = form.tiles(conv);
    let task = WinogradCall {
        conv,
        tiles_h,
        tiles_w,
        out_h: conv.out_h(),
        out_w: conv.out_w(),
        input: input.as_ptr(),
        transformed: transformed.as_mut_ptr(),
        gemm_out: gemm_out.as_mut_ptr(),
        out: out.as_mut_ptr(),
        epilogue: epilogue.args(),
    };
    match form {
        Winograd::F2 => run(engine, F2, &task, block, packed),
        Winograd::F4 => run(engine, F4, &task, block, packed),
    }
    Ok(())
}

/// Processes all blocks of tiles, each in three parallel steps.
fn run<F: Transform>(engine: &Engine, form: F, task: &WinogradCall<'_>, block: usize, packed: &[f32]) {
    let conv = task.conv;
    let points = (F::SIZE + 2) * (F::SIZE + 2);
    let tiles = conv.batch * task.tiles_h * task.tiles_w;
    for first in (0..tiles).step_by(block) {
        let count = (tiles - first).min(block);
        let tasks = engine.task_count(count);
        let part = |index: usize| chunk_range(index, tasks, count);
        engine.pool.run(tasks, |index| {
            engine.dispatch.run(InputTransform { task, form, first, tiles: part(index) });
        });
        let rows = TransformedTiles { data: task.transformed, tile: points * conv.in_c, channels: conv.in_c };
        let igemm = Igemm {
            lhs: &rows,
            m_outer: 1,
            m_inner: count,
            groups: points,
            columns: conv.out_c,
            packed: packed.into(),
            out: ElementPtrMut::f32(task.gemm_out),
            out_stride: points * conv.out_c,
            layout: OutputLayout::DENSE,
            epilogue: Epilogue::default().args(),
        };
        // SAFETY: the scratch memory, whose size was checked, has `block` tiles of both kinds.
        unsafe { igemm.run(engine) };
        engine.pool.run(tasks, |index| {
            engine.dispatch.run(OutputTransform { task, form, first, tiles: part(index) });
        });
    }
}

/// Operands of all steps.
struct WinogradCall<'a> {
    conv: &'a Conv2d,
    tiles_h: usize,
    tiles_w: usize,
    out_h: usize,
    out_w: usize,
    input: *const f32,
    /// `[tile][point][in_c]`
    transformed: *mut f32,
    /// `[tile][point][out_c]`
    gemm_out: *mut f32,
    out: *mut f32,
    epilogue: EpilogueArgs,
}

// SAFETY: tasks write disjoint tiles of memory that `conv2d_winograd` borrows exclusively.
unsafe impl Sync for WinogradCall<'_> {}

impl WinogradCall<'_> {
    /// Returns image, row and column of a tile.
    #[inline(always)]
    fn position(&self, tile: usize) -> (usize, usize, usize) {
        (tile / self.tiles_w / self.tiles_h, tile / self.tiles_w % self.tiles_h, tile % self.tiles_w)
    }
}

/// Left sides of the GEMMs: for each point a `[tiles, channels]` matrix.
struct TransformedTiles {
    data: *const f32,
    tile: usize,
    channels: usize,
}

// SAFETY: only read while the GEMM runs.
unsafe impl Sync for TransformedTiles {}

impl LhsRows for TransformedTiles {
    fn taps(&self) -> usize {
        1
    }

    fn depth(&self) -> usize {
        self.channels
    }

    #[inline]
    fn fill_pointers(
        &self,
        group: usize,
        first: usize,
        count: usize,
        _: (usize, usize),
        offset: usize,
        to: &mut IndirectionBuffer,
    ) {
        let start = self.data.wrapping_add(first * self.tile + group * self.channels + offset);
        for (row, pointer) in to.pointers.iter_mut().take(count).enumerate() {
            *pointer = MaybeUninit::new(start.wrapping_add(row * self.tile));
        }
    }
}

/// First channel of each vector; the last vector may overlap the one before. There are at least 16 channels.
#[inline(always)]
fn vectors(channels: usize) -> impl Iterator<Item = usize> {
    (0..channels.div_ceil(LANES)).map(move |i| (i * LANES).min(channels - LANES))
}

/// Transforms input tiles; `tiles` counts from `first`.
struct InputTransform<'a, F> {
    task: &'a WinogradCall<'a>,
    form: F,
    first: usize,
    tiles: Range<usize>,
}

impl<F: Transform> Kernel for InputTransform<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (task, conv) = (self.task, self.task.conv);
        let width = F::SIZE + 2;
        for tile in self.tiles {
            let (image, tile_y, tile_x) = task.position(self.first + tile);
            let inside = |tile: usize, size: usize, padding: usize| {
                let start = tile * F::SIZE;
                padding.saturating_sub(start).min(width)..(size + padding).saturating_sub(start).min(width)
            };
            let rows = inside(tile_y, conv.in_h, conv.padding[0][0]);
            let columns = inside(tile_x, conv.in_w, conv.padding[1][0]);
            // The first pixel of the tile, which may be outside of the image.
            let pixel = ((image * conv.in_h + tile_y * F::SIZE) * conv.in_w + tile_x * F::SIZE)
                .wrapping_sub(conv.padding[0][0].wrapping_mul(conv.in_w).wrapping_add(conv.padding[1][0]));
            let from = task.input.wrapping_add(pixel.wrapping_mul(conv.in_stride));
            let to = task.transformed.wrapping_add(tile * width * width * conv.in_c);
            let input_tile = InputTile { form: self.form, conv, rows, columns, from, to };
            if input_tile.rows.len() == width && input_tile.columns.len() == width {
                s.vectorize(WholeTile(input_tile));
            } else {
                s.vectorize(BorderTile(input_tile));
            }
        }
    }
}

/// One input tile.
struct InputTile<'a, F> {
    form: F,
    conv: &'a Conv2d,
    /// Rows and columns inside the input.
    rows: Range<usize>,
    columns: Range<usize>,
    from: *const f32,
    to: *mut f32,
}

/// A tile entirely inside the input.
struct WholeTile<'a, F>(InputTile<'a, F>);

/// A tile that overlaps the border.
struct BorderTile<'a, F>(InputTile<'a, F>);

impl<F: Transform> Kernel for WholeTile<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.transform::<S, true>(s);
    }
}

impl<F: Transform> Kernel for BorderTile<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.transform::<S, false>(s);
    }
}

impl<F: Transform> InputTile<'_, F> {
    #[inline(always)]
    fn transform<S: Simd, const IS_WHOLE: bool>(self, s: S) {
        let _ = self.form;
        // Local copies: fields behind references would be reloaded after every store.
        let (conv, from, to) = (*self.conv, self.from, self.to);
        let [rows, columns] = [self.rows, self.columns].map(|range| (range.start, range.end));
        let width = F::SIZE + 2;
        for channel in vectors(conv.in_c) {
            let mut transformed = [[s.splat(0.0); 6]; 6];
            for x in 0..width {
                let mut column = [s.splat(0.0); 6];
                for y in 0..width {
                    if IS_WHOLE || (y >= rows.0 && y < rows.1 && x >= columns.0 && x < columns.1) {
                        let from = from.wrapping_add((y * conv.in_w + x) * conv.in_stride + channel);
                        // SAFETY: this pixel is inside the input, whose size was checked.
                        column[y] = unsafe { s.load(from) };
                    }
                }
                let column = F::input(s, column);
                for y in 0..width {
                    transformed[y][x] = column[y];
                }
            }
            for y in 0..width {
                let row = F::input(s, transformed[y]);
                for x in 0..width {
                    let to = to.wrapping_add((y * width + x) * conv.in_c + channel);
                    // SAFETY: the scratch memory has room for each tile, point and channel.
                    unsafe { s.store(to, row[x]) };
                }
            }
        }
    }
}

/// Transforms GEMM results into output tiles and applies the epilogue; `tiles` counts from `first`.
struct OutputTransform<'a, F> {
    task: &'a WinogradCall<'a>,
    form: F,
    first: usize,
    tiles: Range<usize>,
}

impl<F: Transform> Kernel for OutputTransform<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let _ = self.form;
        // Local copies: fields behind references would be reloaded after every store.
        let (task, conv, epilogue) = (self.task, *self.task.conv, self.task.epilogue);
        let (is_fused, has_residual) = (epilogue.is_fused, !epilogue.residual.is_null());
        let width = F::SIZE + 2;
        for tile in self.tiles {
            let (image, tile_y, tile_x) = task.position(self.first + tile);
            let (y, x) = (tile_y * F::SIZE, tile_x * F::SIZE);
            let pixel = (image * task.out_h + y) * task.out_w + x;
            let (rows, columns) = (F::SIZE.min(task.out_h - y), F::SIZE.min(task.out_w - x));
            let from = task.gemm_out.wrapping_add(tile * width * width * conv.out_c);
            let out = task.out.wrapping_add(pixel * conv.out_stride);
            let residual = epilogue.residual.add(s, pixel * epilogue.residual_stride);
            let (out_row_stride, residual_row_stride) =
                (task.out_w * conv.out_stride, task.out_w * epilogue.residual_stride);
            for channel in vectors(conv.out_c) {
                let mut bias = s.splat(0.0);
                if !epilogue.bias.is_null() {
                    // SAFETY: there is a bias for each channel.
                    bias = unsafe { s.load(epilogue.bias.wrapping_add(channel)) };
                }
                let mut transformed = [[bias; 6]; 4];
                for x in 0..width {
                    let mut column = [bias; 6];
                    for y in 0..width {
                        let from = from.wrapping_add((y * width + x) * conv.out_c + channel);
                        // SAFETY: the scratch memory has room for each tile, point and channel.
                        column[y] = unsafe { s.load(from) };
                    }
                    let column = F::output(s, column);
                    for y in 0..F::SIZE {
                        transformed[y][x] = column[y];
                    }
                }
                let mut tile = [[bias; 4]; 4];
                for y in 0..F::SIZE {
                    tile[y] = F::output(s, transformed[y]);
                }
                for (y, row) in tile.iter().enumerate().take(rows) {
                    for (x, &sum) in row.iter().enumerate().take(columns) {
                        let mut v = s.add(sum, bias);
                        let residual =
                            residual.add(s, y * residual_row_stride + x * epilogue.residual_stride + channel);
                        if is_fused {
                            if has_residual {
                                // SAFETY: the residual's size was checked.
                                v = s.add(v, unsafe { residual.load(s, LANES) });
                            }
                            v = epilogue.fused_activation(s, v);
                        }
                        let out = out.wrapping_add(y * out_row_stride + x * conv.out_stride + channel);
                        // SAFETY: the output's size was checked, and only this task accesses this tile.
                        unsafe { s.store(out, v) };
                    }
                }
            }
            if is_fused {
                continue;
            }
            for y in 0..rows {
                let finish = ApplyEpilogue {
                    epilogue: &epilogue,
                    sums: out.wrapping_add(y * out_row_stride),
                    stride: conv.out_stride,
                    rounded: None,
                    residual: residual.add(s, y * residual_row_stride),
                    residual_stride: epilogue.residual_stride,
                    rows: columns,
                    columns: conv.out_c,
                };
                // SAFETY: likewise.
                unsafe { finish.run_on(s) };
            }
        }
    }
}
