//! Winograd's minimal filtering: 3x3 convolutions with stride 1 by fewer multiplications.
//!
//! The input is cut into overlapping tiles, each of which is transformed; a matrix product for each position of the
//! transformed tile replaces the convolution; and its results are transformed back into a tile of the output. Lavin and
//! Gray, "Fast Algorithms for Convolutional Neural Networks", 2015. The transforms come from Toom and Cook's
//! construction at the points 0, ±1, ∞ for tiles of 2, and 0, ±sqrt(1/2), ±sqrt(2), ∞ for tiles of 4, whose error is a
//! quarter of that of the usual 0, ±1, ±2, ∞.
#![allow(unsafe_code)]

use core::f32::consts::{FRAC_1_SQRT_2, SQRT_2};
use core::f64;
use core::mem::MaybeUninit;
use core::ops::Range;

use super::Conv2d;
use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least};
use crate::numbers::Writable;
use crate::product::{Place, Pointers, Product, Rows};
use crate::split::piece;
use crate::tail::{Finish, Steps};
use crate::{Engine, Tail};

/// The size of the output's tiles.
///
/// The error of a result, relative to the greatest result of the layer, is about that of [`conv2d`](crate::conv2d) for
/// `F2`, and three times that for `F4`: below 2e-6 with normally distributed inputs and 512 channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Winograd {
    /// 2x2: 2.25 times fewer multiplications, 1.8 times more weights.
    F2,
    /// 4x4: 4 times fewer multiplications, 4 times more weights.
    F4,
}

/// Floats of scratch memory that a thread's tiles may take, as long as there are enough tiles for a product.
const BLOCK: usize = 256 << 10;

/// The multiplications that take as long as one weight that comes from memory or the last cache.
const WEIGHT: f64 = 20.0;

/// The fewest tiles in a block, however many channels there are.
const LEAST_TILES: usize = 24;

impl Winograd {
    /// Whether a convolution has this form: 3x3, stride and dilation 1, one group, and at least 16 channels each way.
    pub fn supports(conv: &Conv2d) -> bool {
        conv.kernel == [3, 3]
            && conv.stride == [1, 1]
            && conv.dilation == [1, 1]
            && conv.groups == 1
            && conv.in_c >= LANES
            && conv.out_c >= LANES
    }

    /// The form that is likely the fastest, if one is likely faster than [`conv2d`](crate::conv2d) with weights of `f32`.
    pub fn choose(conv: &Conv2d) -> Option<Winograd> {
        if !Self::supports(conv) {
            return None;
        }
        let cost = |form: Winograd| {
            let (tiles_h, tiles_w) = form.tiles(conv);
            let points = (form.size() + 2).pow(2);
            let tiles = (conv.batch * tiles_h * tiles_w) as f64;
            let products = tiles * (points * conv.in_c) as f64 * conv.out_c as f64;
            // Transforms, in multiplications' worth, and the weights, which have to be read.
            let transforms = tiles * (points * (conv.in_c + conv.out_c)) as f64 * 16.0;
            let weights = (points * conv.in_c * conv.out_c) as f64 * WEIGHT;
            products + transforms + weights
        };
        let filter = (9 * conv.in_c) as f64 * conv.out_c as f64;
        let direct = (conv.batch * conv.out_h() * conv.out_w()) as f64 * filter + filter * WEIGHT;
        let best = if cost(Winograd::F4) <= cost(Winograd::F2) { Winograd::F4 } else { Winograd::F2 };
        (cost(best) < 0.9 * direct).then_some(best)
    }

    /// Floats of scratch for each thread that suffice for [`conv2d_winograd`] with these channels and any size.
    pub fn scratch_each(self, conv: &Conv2d) -> usize {
        let tile = self.points().saturating_mul(conv.in_c.saturating_add(conv.out_c));
        BLOCK.max(LEAST_TILES.saturating_mul(tile))
    }

    /// Height and width of an output tile.
    const fn size(self) -> usize {
        match self {
            Winograd::F2 => 2,
            Winograd::F4 => 4,
        }
    }

    /// Positions of a transformed tile.
    pub(crate) const fn points(self) -> usize {
        (self.size() + 2) * (self.size() + 2)
    }

    /// Rows and columns of tiles.
    fn tiles(self, conv: &Conv2d) -> (usize, usize) {
        (conv.out_h().div_ceil(self.size()), conv.out_w().div_ceil(self.size()))
    }

    /// The filter's taps in one dimension, transformed: as many as [`size`](Self::size) plus 2.
    pub(crate) fn transform_filter(self, taps: [f64; 3]) -> [f64; 6] {
        let [g0, g1, g2] = taps;
        match self {
            Winograd::F2 => {
                let (even, odd) = (0.5 * (g0 + g2), 0.5 * g1);
                [-g0, even + odd, even - odd, g2, 0.0, 0.0]
            }
            Winograd::F4 => {
                // Row p of the matrix is (1, p, p^2) over the product of p's differences from the other points.
                let at = |p: f64, scale: f64| (g0 + p * g1 + p * p * g2) / scale;
                let (a, b) = (f64::consts::FRAC_1_SQRT_2, f64::consts::SQRT_2);
                [g0, at(a, -1.5), at(-a, -1.5), at(b, 6.0), at(-b, 6.0), g2]
            }
        }
    }
}

/// A form's transforms in one dimension, on vectors of channels. Shorter ones leave the rest of the arrays alone.
trait Form: Copy + Send + Sync {
    const SIZE: usize;

    fn input<S: Simd>(s: S, d: [S::V; 6]) -> [S::V; 6];
    fn output<S: Simd>(s: S, m: [S::V; 6]) -> [S::V; 4];
}

#[derive(Clone, Copy)]
struct F2;

impl Form for F2 {
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

impl Form for F4 {
    const SIZE: usize = 4;

    #[inline(always)]
    fn input<S: Simd>(s: S, d: [S::V; 6]) -> [S::V; 6] {
        let times = |factor: f32, a, b| s.fma(s.splat(factor), a, b);
        // For the points ±p, even + odd and even - odd.
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

/// Floats of scratch memory for [`conv2d_winograd`]; `None` if that does not fit in `usize`.
pub fn conv2d_winograd_scratch(engine: &Engine, form: Winograd, conv: &Conv2d) -> Option<usize> {
    let channels = conv.in_c.checked_add(conv.out_c)?;
    block_tiles(engine, form, conv)?.checked_mul(form.points())?.checked_mul(channels)
}

/// Tiles of a block: as many as stay in the caches of all threads, all if they do.
fn block_tiles(engine: &Engine, form: Winograd, conv: &Conv2d) -> Option<usize> {
    let (tiles_h, tiles_w) = form.tiles(conv);
    let tiles = conv.batch.checked_mul(tiles_h)?.checked_mul(tiles_w)?;
    let tile = form.points().checked_mul(conv.in_c.checked_add(conv.out_c)?)?.max(1);
    let most = (BLOCK / tile).max(LEAST_TILES).checked_mul(engine.threads())?;
    Some(tiles.div_ceil(tiles.div_ceil(most).max(1)))
}

/// Like [`conv2d`](crate::conv2d) for what [`Winograd::supports`], with weights packed by
/// [`pack::winograd_f32`](crate::pack::winograd_f32).
///
/// # Errors
/// When a slice is too short, a size is zero or too large, or the convolution is none that [`Winograd::supports`].
pub fn conv2d_winograd(
    engine: &Engine,
    form: Winograd,
    conv: &Conv2d,
    input: &[f32],
    packed: &[f32],
    out: &mut [f32],
    tail: &Tail,
    scratch: &mut [f32],
) -> Result<(), Error> {
    let pixels = conv.in_3d().check(input.len(), out.len())?;
    if !Winograd::supports(conv) {
        return Err(Error::Size { what: "a convolution by Winograd's algorithm" });
    }
    let weights = crate::pack::winograd_f32_len(form, conv).ok_or(Error::Size { what: "packed weights" })?;
    at_least("packed weights", packed.len(), weights)?;
    tail.check(pixels, conv.out_c)?;
    let scratch_len = conv2d_winograd_scratch(engine, form, conv).ok_or(Error::Size { what: "scratch" })?;
    at_least("scratch", scratch.len(), scratch_len)?;
    if pixels == 0 {
        return Ok(());
    }
    let block = block_tiles(engine, form, conv).unwrap_or(0);
    let (transformed, products) = scratch.split_at_mut(block * form.points() * conv.in_c);
    let (tiles_h, tiles_w) = form.tiles(conv);
    let task = Task {
        conv,
        tiles_h,
        tiles_w,
        out_h: conv.out_h(),
        out_w: conv.out_w(),
        input: input.as_ptr(),
        transformed: transformed.as_mut_ptr(),
        products: products.as_mut_ptr(),
        out: out.as_mut_ptr(),
        steps: tail.steps(),
    };
    match form {
        Winograd::F2 => run(engine, F2, &task, block, packed),
        Winograd::F4 => run(engine, F4, &task, block, packed),
    }
    Ok(())
}

/// All blocks of tiles, one after the other, each in three steps that all threads share.
fn run<F: Form>(engine: &Engine, form: F, task: &Task<'_>, block: usize, packed: &[f32]) {
    let conv = task.conv;
    let points = (F::SIZE + 2) * (F::SIZE + 2);
    let tiles = conv.batch * task.tiles_h * task.tiles_w;
    for first in (0..tiles).step_by(block) {
        let count = (tiles - first).min(block);
        let pieces = engine.pieces(count);
        let part = |index: usize| piece(index, pieces, count);
        engine.pool.run(pieces, |index| {
            engine.level.run(Inward { task, form, first, tiles: part(index) });
        });
        let rows = Points { data: task.transformed, tile: points * conv.in_c, channels: conv.in_c };
        let product = Product {
            rows: &rows,
            lines: 1,
            rows_per_line: count,
            groups: points,
            columns: conv.out_c,
            packed: packed.into(),
            out: Writable::floats(task.products),
            out_stride: points * conv.out_c,
            place: Place::DENSE,
            steps: Tail::default().steps(),
        };
        // SAFETY: the scratch memory, whose size was checked, has `block` tiles of both kinds.
        unsafe { product.run(engine) };
        engine.pool.run(pieces, |index| {
            engine.level.run(Outward { task, form, first, tiles: part(index) });
        });
    }
}

/// What the steps share.
struct Task<'a> {
    conv: &'a Conv2d,
    tiles_h: usize,
    tiles_w: usize,
    out_h: usize,
    out_w: usize,
    input: *const f32,
    /// `[tile][point][in_c]`
    transformed: *mut f32,
    /// `[tile][point][out_c]`
    products: *mut f32,
    out: *mut f32,
    steps: Steps,
}

// SAFETY: tasks write disjoint tiles of memory that `conv2d_winograd` borrows exclusively.
unsafe impl Sync for Task<'_> {}

impl Task<'_> {
    /// Image, and position of a tile in output tiles.
    #[inline(always)]
    fn place(&self, tile: usize) -> (usize, usize, usize) {
        (tile / self.tiles_w / self.tiles_h, tile / self.tiles_w % self.tiles_h, tile % self.tiles_w)
    }
}

/// The rows of the products: for each point a matrix of tiles by channels.
struct Points {
    data: *const f32,
    tile: usize,
    channels: usize,
}

// SAFETY: only read while products are computed.
unsafe impl Sync for Points {}

impl Rows for Points {
    fn taps(&self) -> usize {
        1
    }

    fn depth(&self) -> usize {
        self.channels
    }

    #[inline]
    fn point(&self, group: usize, first: usize, count: usize, _: (usize, usize), offset: usize, to: &mut Pointers) {
        let start = self.data.wrapping_add(first * self.tile + group * self.channels + offset);
        for (row, pointer) in to.pointers.iter_mut().take(count).enumerate() {
            *pointer = MaybeUninit::new(start.wrapping_add(row * self.tile));
        }
    }
}

/// The first channel of each vector, the last overlapping the one before if need be. There are at least 16 channels.
#[inline(always)]
fn vectors(channels: usize) -> impl Iterator<Item = usize> {
    (0..channels.div_ceil(LANES)).map(move |i| (i * LANES).min(channels - LANES))
}

/// Transforms tiles of the input; `tiles` counts from `first`.
struct Inward<'a, F> {
    task: &'a Task<'a>,
    form: F,
    first: usize,
    tiles: Range<usize>,
}

impl<F: Form> Job for Inward<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (task, conv) = (self.task, self.task.conv);
        let width = F::SIZE + 2;
        for tile in self.tiles {
            let (image, tile_y, tile_x) = task.place(self.first + tile);
            let inside = |tile: usize, size: usize, padding: usize| {
                let start = tile * F::SIZE;
                padding.saturating_sub(start).min(width)..(size + padding).saturating_sub(start).min(width)
            };
            let rows = inside(tile_y, conv.in_h, conv.padding[0][0]);
            let columns = inside(tile_x, conv.in_w, conv.padding[1][0]);
            // The first pixel of the tile, which may lie outside.
            let pixel = ((image * conv.in_h + tile_y * F::SIZE) * conv.in_w + tile_x * F::SIZE)
                .wrapping_sub(conv.padding[0][0].wrapping_mul(conv.in_w).wrapping_add(conv.padding[1][0]));
            let from = task.input.wrapping_add(pixel.wrapping_mul(conv.in_stride));
            let to = task.transformed.wrapping_add(tile * width * width * conv.in_c);
            let one = InwardTile { form: self.form, conv, rows, columns, from, to };
            if one.rows.len() == width && one.columns.len() == width {
                s.vectorize(Whole(one));
            } else {
                s.vectorize(Cut(one));
            }
        }
    }
}

struct InwardTile<'a, F> {
    form: F,
    conv: &'a Conv2d,
    /// The rows and columns that are inside the input.
    rows: Range<usize>,
    columns: Range<usize>,
    from: *const f32,
    to: *mut f32,
}

/// A tile inside the input.
struct Whole<'a, F>(InwardTile<'a, F>);

/// A tile that is partly outside.
struct Cut<'a, F>(InwardTile<'a, F>);

impl<F: Form> Job for Whole<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.transform::<S, true>(s);
    }
}

impl<F: Form> Job for Cut<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.transform::<S, false>(s);
    }
}

impl<F: Form> InwardTile<'_, F> {
    #[inline(always)]
    fn transform<S: Simd, const IS_WHOLE: bool>(self, s: S) {
        let _ = self.form;
        // Copies, as what is behind references would be read again after every store.
        let (conv, from, to) = (*self.conv, self.from, self.to);
        let [rows, columns] = [self.rows, self.columns].map(|range| (range.start, range.end));
        let width = F::SIZE + 2;
        for channel in vectors(conv.in_c) {
            let mut half = [[s.splat(0.0); 6]; 6];
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
                    half[y][x] = column[y];
                }
            }
            for y in 0..width {
                let row = F::input(s, half[y]);
                for x in 0..width {
                    let to = to.wrapping_add((y * width + x) * conv.in_c + channel);
                    // SAFETY: the scratch memory has a place for each tile, point and channel.
                    unsafe { s.store(to, row[x]) };
                }
            }
        }
    }
}

/// Transforms products back into tiles of the output, and applies the tail; `tiles` counts from `first`.
struct Outward<'a, F> {
    task: &'a Task<'a>,
    form: F,
    first: usize,
    tiles: Range<usize>,
}

impl<F: Form> Job for Outward<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let _ = self.form;
        // Copies, as what is behind references would be read again after every store.
        let (task, conv, steps) = (self.task, *self.task.conv, self.task.steps);
        let (is_plain, has_residual) = (steps.is_plain, !steps.residual.is_null());
        let width = F::SIZE + 2;
        for tile in self.tiles {
            let (image, tile_y, tile_x) = task.place(self.first + tile);
            let (y, x) = (tile_y * F::SIZE, tile_x * F::SIZE);
            let pixel = (image * task.out_h + y) * task.out_w + x;
            let (rows, columns) = (F::SIZE.min(task.out_h - y), F::SIZE.min(task.out_w - x));
            let from = task.products.wrapping_add(tile * width * width * conv.out_c);
            let out = task.out.wrapping_add(pixel * conv.out_stride);
            let residual = steps.residual.plus(s, pixel * steps.residual_stride);
            let (out_line, residual_line) = (task.out_w * conv.out_stride, task.out_w * steps.residual_stride);
            for channel in vectors(conv.out_c) {
                let mut bias = s.splat(0.0);
                if !steps.bias.is_null() {
                    // SAFETY: there is a bias for each channel.
                    bias = unsafe { s.load(steps.bias.wrapping_add(channel)) };
                }
                let mut half = [[bias; 6]; 4];
                for x in 0..width {
                    let mut column = [bias; 6];
                    for y in 0..width {
                        let from = from.wrapping_add((y * width + x) * conv.out_c + channel);
                        // SAFETY: the scratch memory has a place for each tile, point and channel.
                        column[y] = unsafe { s.load(from) };
                    }
                    let column = F::output(s, column);
                    for y in 0..F::SIZE {
                        half[y][x] = column[y];
                    }
                }
                let mut tile = [[bias; 4]; 4];
                for y in 0..F::SIZE {
                    tile[y] = F::output(s, half[y]);
                }
                for (y, row) in tile.iter().enumerate().take(rows) {
                    for (x, &sum) in row.iter().enumerate().take(columns) {
                        let mut v = s.add(sum, bias);
                        let residual = residual.plus(s, y * residual_line + x * steps.residual_stride + channel);
                        if is_plain {
                            if has_residual {
                                // SAFETY: the residual's size was checked.
                                v = s.add(v, unsafe { residual.load(s, LANES) });
                            }
                            v = steps.short(s, v);
                        }
                        let out = out.wrapping_add(y * out_line + x * conv.out_stride + channel);
                        // SAFETY: the output's size was checked, and this task alone has this tile.
                        unsafe { s.store(out, v) };
                    }
                }
            }
            if is_plain {
                continue;
            }
            for y in 0..rows {
                let finish = Finish {
                    steps: &steps,
                    sums: out.wrapping_add(y * out_line),
                    stride: conv.out_stride,
                    rounded: None,
                    residual: residual.plus(s, y * residual_line),
                    residual_stride: steps.residual_stride,
                    rows: columns,
                    columns: conv.out_c,
                };
                // SAFETY: likewise.
                unsafe { finish.run_on(s) };
            }
        }
    }
}
