//! `grid_sampler_2d`: samples an image at the positions of a grid.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use super::window::Planes;
use crate::support::number::Number;
use crate::support::real::Real;

/// `grid_sampler_2d.out(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners, *,
/// Tensor(a!) out)`
pub const GRID_SAMPLER_2D_OUT: Op = Op::new("aten::grid_sampler_2d.out", 6, grid_sampler_2d);

pub const OPS: OpGroup = &[GRID_SAMPLER_2D_OUT];

#[derive(Clone, Copy)]
pub(super) enum Interpolation {
    Bilinear,
    Nearest,
    Bicubic,
}

/// Padding outside of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    Zeros,
    Border,
    Reflection,
}

#[derive(Clone, Copy)]
pub(super) struct Sampling {
    pub(super) interpolation: Interpolation,
    padding: Padding,
    align_corners: bool,
}

impl Sampling {
    /// Arguments 2 to 4.
    pub(super) fn of(cx: &KernelContext<'_>) -> Result<Self> {
        Ok(Self {
            interpolation: match cx.int(2)? {
                0 => Interpolation::Bilinear,
                1 => Interpolation::Nearest,
                2 => Interpolation::Bicubic,
                got => {
                    let (what, expected) = ("interpolation_mode", "0, 1 or 2");
                    return Err(Error::from(Detail::Value { what, expected, got }).arg(2));
                }
            },
            padding: match cx.int(3)? {
                0 => Padding::Zeros,
                1 => Padding::Border,
                2 => Padding::Reflection,
                got => {
                    let (what, expected) = ("padding_mode", "0, 1 or 2");
                    return Err(Error::from(Detail::Value { what, expected, got }).arg(3));
                }
            },
            align_corners: cx.bool(4)?,
        })
    }
}

fn grid_sampler_2d(cx: &KernelContext<'_>) -> Result<()> {
    let (input, grid, sampling) = (cx.tensor(0)?, cx.tensor(1)?, Sampling::of(cx)?);
    let mut out = cx.out(5)?;
    for (argument, got) in [(0, input.rank()), (1, grid.rank())] {
        if got != 4 {
            return Err(Error::from(Detail::Rank { expected: "4", got }).arg(argument));
        }
    }
    for (argument, got) in [(1, grid.dtype()), (5, out.dtype())] {
        if got != input.dtype() {
            return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got }).arg(argument));
        }
    }
    for (dim, expected) in [(0, input.size(0)), (3, 2)] {
        if grid.size(dim) != expected {
            return Err(Error::from(Detail::Size { dim, expected, got: grid.size(dim) }).arg(1));
        }
    }
    if let Some(dim) = (2..4).find(|&dim| input.size(dim) == 0) {
        return Err(Error::from(Detail::Size { dim, expected: 1, got: 0 }).arg(0));
    }
    out.resize(&[input.size(0), input.size(1), grid.size(1), grid.size(2)]).map_err(|e| e.arg(5))?;
    match input.dtype() {
        ScalarType::Double => sample::<f64, f64>(sampling, &input, &grid, &mut out),
        dtype => dispatch!(REALHBF16, dtype, T => sample::<T, f32>(sampling, &input, &grid, &mut out)),
    }
}

fn sample<T: Number, F: Real>(
    sampling: Sampling,
    input: &Tensor<'_>,
    grid: &Tensor<'_>,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let (from, to) = (Planes::of(input, 2), Planes::new(out.sizes(), out.strides(), 2));
    let (values, points, places) = (input.as_slice::<T>()?, grid.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    let [_, height, width] = from.space;
    let steps = Planes::new(grid.sizes(), grid.strides(), 3);
    let bicubic = matches!(sampling.interpolation, Interpolation::Bicubic);
    for n in 0..to.batch {
        for y in 0..to.space[1] {
            for x in 0..to.space[2] {
                // The grid is [N, H, W, 2], so its "channels" are rows and its rows are columns.
                let point = n * steps.channel_stride + y * steps.strides[0] + x * steps.strides[1];
                let axis = |point: usize, size: usize| Axis::<F>::new::<T>(sampling, points[point].cast(), size);
                let (rows, columns) = (axis(point + steps.strides[2], height), axis(point, width));
                for channel in 0..to.channels {
                    let plane = from.plane(n, channel);
                    let mut sum = F::ZERO;
                    for (row, down) in rows.taps() {
                        let line = plane + row * from.strides[1];
                        let value = |column: usize| values[line + column * from.strides[2]].cast::<F>();
                        if bicubic {
                            let across = columns.taps().fold(F::ZERO, |across, (column, weight)| {
                                add::<T, F>(across, narrow::<T, F>(value(column).mul(weight)))
                            });
                            sum = add::<T, F>(sum, narrow::<T, F>(across.mul(down)));
                        } else {
                            for (column, across) in columns.taps() {
                                let weight = narrow::<T, F>(down.mul(across));
                                sum = add::<T, F>(sum, narrow::<T, F>(value(column).mul(weight)));
                            }
                        }
                    }
                    places[to.plane(n, channel) + to.row(0, y) + x * to.strides[2]] = sum.cast();
                }
            }
        }
    }
    Ok(())
}

/// Rounds to the element type. Every step of the sampling is rounded, positions included, as PyTorch does: with 16-bit
/// elements the result depends on it.
#[inline(always)]
pub(super) fn narrow<T: Number, F: Real>(value: F) -> F {
    value.cast::<T>().cast()
}

#[inline(always)]
pub(super) fn add<T: Number, F: Real>(a: F, b: F) -> F {
    narrow::<T, F>(a.add(b))
}

/// The pixels along one dimension that a sample reads, and their weights.
pub(super) struct Axis<F> {
    pixels: [usize; 4],
    weights: [F; 4],
    count: usize,
}

impl<F: Real> Axis<F> {
    pub(super) fn new<T: Number>(sampling: Sampling, coordinate: F, size: usize) -> Self {
        let position = pixel_position::<T, F>(coordinate, size, sampling.align_corners);
        let mut axis = Self { pixels: [0; 4], weights: [F::ZERO; 4], count: 0 };
        match sampling.interpolation {
            Interpolation::Nearest => {
                axis.push(pad::<T, F>(sampling, position, size).round(), size, F::ONE);
            }
            Interpolation::Bilinear => {
                let position = pad::<T, F>(sampling, position, size);
                let first = position.floor();
                let weight = narrow::<T, F>(position.sub(first));
                axis.push(first, size, narrow::<T, F>(F::ONE.sub(weight)));
                axis.push(first.add(F::ONE), size, weight);
            }
            Interpolation::Bicubic => {
                let first = position.floor();
                let weights = cubic::<T, F>(narrow::<T, F>(position.sub(first)));
                for (offset, weight) in [-1.0, 0.0, 1.0, 2.0].into_iter().zip(weights) {
                    let position = pad::<T, F>(sampling, first.add(F::from_f64(offset)), size);
                    axis.push(position, size, weight);
                }
            }
        }
        axis
    }

    /// Adds the pixel at `position` if it is inside of the image.
    fn push(&mut self, position: F, size: usize, weight: F) {
        if position >= F::ZERO
            && position < F::of(size)
            && let (Some(pixel), Some(slot)) = (self.pixels.get_mut(self.count), self.weights.get_mut(self.count))
        {
            (*pixel, *slot) = (position.to_i64() as usize, weight);
            self.count += 1;
        }
    }

    pub(super) fn taps(&self) -> impl Iterator<Item = (usize, F)> {
        self.pixels.iter().copied().zip(self.weights).take(self.count)
    }
}

/// From -1..1 to pixels: the corner pixels' centers lie at the ends, or half a pixel inside of them.
fn pixel_position<T: Number, F: Real>(coordinate: F, size: usize, align_corners: bool) -> F {
    let half = F::from_f64(0.5);
    let shifted = add::<T, F>(coordinate, F::ONE);
    if align_corners {
        narrow::<T, F>(shifted.mul(narrow::<T, F>(F::of(size - 1).mul(half))))
    } else {
        let scaled = narrow::<T, F>(shifted.mul(narrow::<T, F>(F::of(size).mul(half))));
        narrow::<T, F>(scaled.sub(half))
    }
}

fn pad<T: Number, F: Real>(sampling: Sampling, position: F, size: usize) -> F {
    let clip = |position: F| position.at_least(F::ZERO).at_most(F::of(size - 1));
    match sampling.padding {
        Padding::Zeros => position,
        Padding::Border => clip(position),
        Padding::Reflection if sampling.align_corners => clip(reflect::<T, F>(position, F::ZERO, F::of(size - 1))),
        Padding::Reflection => clip(reflect::<T, F>(position, F::from_f64(-0.5), F::of(size))),
    }
}

/// Mirrors a position at `low` and `low + span` until it lies between.
fn reflect<T: Number, F: Real>(position: F, low: F, span: F) -> F {
    if span == F::ZERO {
        return F::ZERO;
    }
    let twice = span.add(span);
    let distance = narrow::<T, F>(position.sub(low)).abs();
    let turns = narrow::<T, F>(distance / twice).floor();
    let extra = narrow::<T, F>(distance.sub(narrow::<T, F>(turns.mul(twice))));
    add::<T, F>(extra.at_most(narrow::<T, F>(twice.sub(extra))), low)
}

/// The weights of four neighbouring pixels, `t` after the second of them: cubic convolution with a = -0.75
/// (Keys, 1981).
fn cubic<T: Number, F: Real>(t: F) -> [F; 4] {
    let a = -0.75;
    let number = |x: f64| F::from_f64(x);
    let times = |x: F, y: F| narrow::<T, F>(x.mul(y));
    let plus = |x: F, y: F| add::<T, F>(x, y);
    let near = |x: F| plus(times(times(plus(times(x, number(a + 2.0)), number(-a - 3.0)), x), x), F::ONE);
    let far = |x: F| {
        let line = plus(times(x, number(a)), number(-5.0 * a));
        plus(times(plus(times(line, x), number(8.0 * a)), x), number(-4.0 * a))
    };
    let rest = narrow::<T, F>(F::ONE.sub(t));
    [far(plus(t, F::ONE)), near(t), near(rest), far(plus(rest, F::ONE))]
}
