//! Resampling images to another size: nearest, bilinear, and bilinear with antialiasing.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use super::window::{CHUNK, Planes};
use crate::support::number::Number;
use crate::support::real::Real;

/// `upsample_nearest2d.vec_out(Tensor input, SymInt[]? output_size, float[]? scale_factors, *, Tensor(a!) out)`
pub const UPSAMPLE_NEAREST2D_VEC_OUT: Op = Op::new("aten::upsample_nearest2d.vec_out", 4, nearest);
/// `upsample_bilinear2d.vec_out(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors, *,
/// Tensor(a!) out)`
pub const UPSAMPLE_BILINEAR2D_VEC_OUT: Op = Op::new("aten::upsample_bilinear2d.vec_out", 5, bilinear);
/// `_upsample_bilinear2d_aa.out(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None,
/// float? scales_w=None, *, Tensor(a!) out)`
pub const UPSAMPLE_BILINEAR2D_AA_OUT: Op = Op::new("aten::_upsample_bilinear2d_aa.out", 6, antialiased);

pub const OPS: OpGroup = &[UPSAMPLE_NEAREST2D_VEC_OUT, UPSAMPLE_BILINEAR2D_VEC_OUT, UPSAMPLE_BILINEAR2D_AA_OUT];

/// Output height and width, and the scale factors where they are given.
struct UpsampleSizes {
    size: [usize; 2],
    scales: [Option<f64>; 2],
}

impl UpsampleSizes {
    /// From an optional list of sizes or an optional list of factors, exactly one of which is given.
    fn read(cx: &KernelContext<'_>, input: &Tensor<'_>, sizes: usize, factors: usize) -> Result<Self> {
        check_input(input)?;
        let (given, scales) = (cx.optional_ints(sizes)?, cx.optional_doubles(factors)?);
        let positive = |dim: usize, size: Option<i64>| {
            size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0).ok_or_else(|| {
                let got = size.unwrap_or(0);
                Error::from(Detail::Value { what: ["output height", "output width"][dim], expected: "at least 1", got })
            })
        };
        match (given, scales) {
            (Some(list), None) if list.len() == 2 => {
                let size = [positive(0, list.get(0))?, positive(1, list.get(1))?];
                Ok(Self { size, scales: [None; 2] })
            }
            (None, Some(&[height, width])) => {
                let scaled = |dim: usize, scale: f64| {
                    positive(dim, Some((input.size(2 + dim) as f64 * scale) as i64)).map_err(|e| e.arg(factors))
                };
                Ok(Self { size: [scaled(0, height)?, scaled(1, width)?], scales: [Some(height), Some(width)] })
            }
            _ => Err(Error::invalid("two output sizes or two scale factors must be given")),
        }
    }

    fn resize(&self, input: &Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()> {
        if out.dtype() != input.dtype() {
            return Err(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }.into());
        }
        out.resize(&[input.size(0), input.size(1), self.size[0], self.size[1]])
    }
}

fn check_input(input: &Tensor<'_>) -> Result<()> {
    if input.rank() != 4 {
        return Err(Error::from(Detail::Rank { expected: "4", got: input.rank() }).arg(0));
    }
    match (1..4).find(|&dim| input.size(dim) == 0) {
        Some(dim) => Err(Error::from(Detail::Size { dim, expected: 1, got: 0 }).arg(0)),
        None => Ok(()),
    }
}

/// Input pixels an output pixel.
fn ratio<F: Real>(input: usize, output: usize, align_corners: bool, scale: Option<f64>) -> F {
    match scale {
        _ if align_corners && output > 1 => F::of(input - 1) / F::of(output - 1),
        _ if align_corners => F::ZERO,
        Some(scale) if scale > 0.0 => F::from_f64(1.0 / scale),
        _ => F::of(input) / F::of(output),
    }
}

fn nearest(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(3)?);
    let target = UpsampleSizes::read(cx, &input, 1, 2)?;
    target.resize(&input, &mut out).map_err(|e| e.arg(3))?;
    let source = |dim: usize, index: usize| {
        let (from, to) = (input.size(2 + dim), target.size[dim]);
        // PyTorch checks these sizes first and ignores the factor.
        if from == to {
            return index;
        }
        if to == 2 * from {
            return index / 2;
        }
        let position = if input.dtype() == ScalarType::Double {
            (ratio::<f64>(from, to, false, target.scales[dim]) * index as f64) as f32
        } else {
            ratio::<f32>(from, to, false, target.scales[dim]) * index as f32
        };
        (position as usize).min(from - 1)
    };
    dispatch_size!(input.dtype(), N => nearest_pixels::<N>(&input, &mut out, source));
    Ok(())
}

fn nearest_pixels<const N: usize>(input: &Tensor<'_>, out: &mut TensorMut<'_>, source: impl Fn(usize, usize) -> usize) {
    let (from, to) = (Planes::of(input, 2), Planes::new(out.sizes(), out.strides(), 2));
    let (values, places) = (input.bytes().as_chunks::<N>().0, out.bytes_mut().as_chunks_mut::<N>().0);
    let [_, height, width] = to.space;
    for x in (0..width).step_by(CHUNK) {
        let mut columns = [0; CHUNK];
        let columns = &mut columns[..CHUNK.min(width - x)];
        columns.iter_mut().enumerate().for_each(|(i, column)| *column = source(1, x + i) * from.strides[2]);
        for y in 0..height {
            let row = source(0, y) * from.strides[1];
            for n in 0..to.batch {
                for channel in 0..to.channels {
                    let values = values.get(from.plane(n, channel) + row..).unwrap_or_default();
                    let start = to.plane(n, channel) + to.row(0, y) + x * to.strides[2];
                    let places = places.get_mut(start..).unwrap_or_default().iter_mut();
                    for (place, &column) in places.step_by(to.strides[2].max(1)).zip(&*columns) {
                        *place = values[column];
                    }
                }
            }
        }
    }
}

/// The two input pixels that an output pixel lies between, and the weight of the second.
#[derive(Clone, Copy, Default)]
struct Between<F> {
    first: usize,
    second: usize,
    weight: F,
}

impl<F: Real> Between<F> {
    fn new(index: usize, input: usize, output: usize, ratio: F, align_corners: bool) -> Self {
        let half = F::from_f64(0.5);
        if input == output {
            return Self { first: index, second: index, weight: half };
        }
        let position = if align_corners {
            ratio.mul(F::of(index))
        } else {
            ratio.mul(F::of(index).add(half)).sub(half).at_least(F::ZERO)
        };
        let first = usize::try_from(position.floor().to_i64()).unwrap_or(0).min(input - 1);
        let second = (first + 1).min(input - 1);
        // The weights are 0.5 and 0.5, not 1 and 0: an infinite pixel times 0 would be NaN.
        let weight = if first == second { half } else { position.sub(F::of(first)).at_least(F::ZERO).at_most(F::ONE) };
        Self { first, second, weight }
    }
}

fn bilinear(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(4)?);
    let target = UpsampleSizes::read(cx, &input, 1, 3)?;
    let align_corners = cx.bool(2)?;
    target.resize(&input, &mut out).map_err(|e| e.arg(4))?;
    match input.dtype() {
        ScalarType::Double => bilinear_pixels::<f64, f64>(&target, align_corners, &input, &mut out),
        dtype => dispatch!(REALHBF16, dtype, T => bilinear_pixels::<T, f32>(&target, align_corners, &input, &mut out)),
    }
}

fn bilinear_pixels<T: Number, F: Real>(
    target: &UpsampleSizes,
    align_corners: bool,
    input: &Tensor<'_>,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let (from, to) = (Planes::of(input, 2), Planes::new(out.sizes(), out.strides(), 2));
    let (values, places) = (input.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    let [height, width] = target.size;
    let ratios: [F; 2] =
        core::array::from_fn(|dim| ratio(from.space[1 + dim], target.size[dim], align_corners, target.scales[dim]));
    for x in (0..width).step_by(CHUNK) {
        let mut columns = [Between::<F>::default(); CHUNK];
        let columns = &mut columns[..CHUNK.min(width - x)];
        for (i, column) in columns.iter_mut().enumerate() {
            *column = Between::new(x + i, from.space[2], width, ratios[1], align_corners);
            (column.first, column.second) = (column.first * from.strides[2], column.second * from.strides[2]);
        }
        for y in 0..height {
            let row = Between::new(y, from.space[1], height, ratios[0], align_corners);
            let kept = F::ONE.sub(row.weight);
            for n in 0..to.batch {
                for channel in 0..to.channels {
                    let plane = from.plane(n, channel);
                    let line = |y: usize| values.get(plane + y * from.strides[1]..).unwrap_or_default();
                    let (above, below) = (line(row.first), line(row.second));
                    let start = to.plane(n, channel) + to.row(0, y) + x * to.strides[2];
                    let places = places.get_mut(start..).unwrap_or_default().iter_mut();
                    for (place, column) in places.step_by(to.strides[2].max(1)).zip(&*columns) {
                        let across = |line: &[T]| {
                            let (a, b) = (line[column.first].cast::<F>(), line[column.second].cast::<F>());
                            a.mul(F::ONE.sub(column.weight)).add(b.mul(column.weight))
                        };
                        *place = across(above).mul(kept).add(across(below).mul(row.weight)).cast();
                    }
                }
            }
        }
    }
    Ok(())
}

fn antialiased(cx: &KernelContext<'_>) -> Result<()> {
    let (input, size, align_corners) = (cx.tensor(0)?, cx.ints(1)?, cx.bool(2)?);
    let (scales, mut out) = ([cx.optional_double(3)?, cx.optional_double(4)?], cx.out(5)?);
    check_input(&input)?;
    let positive = |dim: usize| size.get(dim).and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    let (Some(height), Some(width), 2) = (positive(0), positive(1), size.len()) else {
        return Err(Error::invalid("two output sizes of at least 1 must be given").arg(1));
    };
    let target = UpsampleSizes { size: [height, width], scales };
    target.resize(&input, &mut out).map_err(|e| e.arg(5))?;
    match input.dtype() {
        ScalarType::Double => antialiased_pixels::<f64, f64>(&target, align_corners, &input, &mut out),
        dtype => dispatch!(REALHBF16, dtype, T => {
            antialiased_pixels::<T, f32>(&target, align_corners, &input, &mut out)
        }),
    }
}

/// The input pixels under the triangle filter of an output pixel, which is as wide as the larger of both pixels.
#[derive(Clone, Copy, Default)]
struct Triangle<F> {
    start: usize,
    end: usize,
    center: F,
    steepness: F,
    total: F,
}

impl<F: Real> Triangle<F> {
    fn new(index: usize, input: usize, output: usize, ratio: F) -> Self {
        if input == output {
            // An axis that keeps its size is not filtered, for any factor.
            return Self { start: index, end: index + 1, center: F::ZERO, steepness: F::ZERO, total: F::ONE };
        }
        let half = F::from_f64(0.5);
        let support = ratio.at_least(F::ONE);
        let center = ratio.mul(F::of(index).add(half));
        let bound = |position: F| usize::try_from(position.add(half).to_i64()).unwrap_or(0).min(input);
        let (start, end) = (bound(center.sub(support)), bound(center.add(support)));
        let mut triangle = Self { start, end, center, steepness: F::ONE / support, total: F::ZERO };
        triangle.total = (start..end).fold(F::ZERO, |sum, i| sum.add(triangle.weight(i)));
        if triangle.total <= F::ZERO || Number::is_nan(triangle.total) {
            let nearest = usize::try_from(center.to_i64()).unwrap_or(0).min(input - 1);
            (triangle.start, triangle.end) = (nearest, nearest + 1);
            (triangle.steepness, triangle.total) = (F::ZERO, F::ONE);
        }
        triangle
    }

    #[inline(always)]
    fn weight(&self, index: usize) -> F {
        let distance = F::of(index).sub(self.center).add(F::from_f64(0.5)).mul(self.steepness).abs();
        F::ONE.sub(distance).at_least(F::ZERO)
    }
}

/// Columns that are resampled at once, and taps whose weights are kept for each of them.
const COLUMNS: usize = 32;
const TAPS: usize = 8;

fn antialiased_pixels<T: Number, F: Real>(
    target: &UpsampleSizes,
    align_corners: bool,
    input: &Tensor<'_>,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let (from, to) = (Planes::of(input, 2), Planes::new(out.sizes(), out.strides(), 2));
    let (values, places) = (input.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    let [height, width] = target.size;
    let ratios: [F; 2] =
        core::array::from_fn(|dim| ratio(from.space[1 + dim], target.size[dim], align_corners, target.scales[dim]));
    for x in (0..width).step_by(COLUMNS) {
        let mut columns = [(Triangle::<F>::default(), [F::ZERO; TAPS]); COLUMNS];
        let columns = &mut columns[..COLUMNS.min(width - x)];
        for (i, (column, weights)) in columns.iter_mut().enumerate() {
            *column = Triangle::new(x + i, from.space[2], width, ratios[1]);
            for (tap, weight) in (column.start..column.end).zip(weights) {
                *weight = column.weight(tap) / column.total;
            }
        }
        for y in 0..height {
            let rows = Triangle::new(y, from.space[1], height, ratios[0]);
            for n in 0..to.batch {
                for channel in 0..to.channels {
                    let mut sums = [F::ZERO; COLUMNS];
                    for row in rows.start..rows.end {
                        let weight = rows.weight(row) / rows.total;
                        let line = from.plane(n, channel) + row * from.strides[1];
                        let line = values.get(line..).unwrap_or_default();
                        for (sum, (column, weights)) in sums.iter_mut().zip(&*columns) {
                            let value = |tap: usize| line[tap * from.strides[2]].cast::<F>();
                            let taps = column.start..column.end;
                            let across = if taps.len() <= TAPS {
                                taps.zip(weights).fold(F::ZERO, |sum, (tap, &weight)| sum.add(value(tap).mul(weight)))
                            } else {
                                taps.fold(F::ZERO, |sum, tap| sum.add(value(tap).mul(column.weight(tap))))
                                    / column.total
                            };
                            *sum = sum.add(across.mul(weight));
                        }
                    }
                    let start = to.plane(n, channel) + to.row(0, y) + x * to.strides[2];
                    let places = places.get_mut(start..).unwrap_or_default().iter_mut();
                    for (place, sum) in places.step_by(to.strides[2].max(1)).zip(&sums[..columns.len()]) {
                        *place = sum.cast();
                    }
                }
            }
        }
    }
    Ok(())
}
