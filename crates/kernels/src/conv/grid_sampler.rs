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
enum Interpolation {
    Bilinear,
    Nearest,
    Bicubic,
}

/// What lies outside of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

#[derive(Clone, Copy)]
struct Sampling {
    interpolation: Interpolation,
    padding: Padding,
    align_corners: bool,
}

fn grid_sampler_2d(cx: &KernelContext<'_>) -> Result<()> {
    let (input, grid) = (cx.tensor(0)?, cx.tensor(1)?);
    let sampling = Sampling {
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
    };
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
    for n in 0..to.batch {
        for y in 0..to.space[1] {
            for x in 0..to.space[2] {
                // The grid is [N, H, W, 2], so its "channels" are rows and its rows are columns.
                let point = n * steps.channel_stride + y * steps.strides[0] + x * steps.strides[1];
                let axis = |coordinate: T, size: usize| Axis::new(sampling, coordinate.cast::<F>(), size);
                let rows = axis(points[point + steps.strides[2]], height);
                let columns = axis(points[point], width);
                for channel in 0..to.channels {
                    let plane = from.plane(n, channel);
                    let mut sum = F::ZERO;
                    for (row, weight) in rows.taps() {
                        let across = columns.taps().fold(F::ZERO, |across, (column, weight)| {
                            let place = plane + row * from.strides[1] + column * from.strides[2];
                            across.add(values[place].cast::<F>().mul(weight))
                        });
                        sum = sum.add(across.mul(weight));
                    }
                    places[to.plane(n, channel) + to.row(0, y) + x * to.strides[2]] = sum.cast();
                }
            }
        }
    }
    Ok(())
}

/// The pixels along one dimension that a sample reads, and their weights.
struct Axis<F> {
    pixels: [Option<usize>; 4],
    weights: [F; 4],
    count: usize,
}

impl<F: Real> Axis<F> {
    fn new(sampling: Sampling, coordinate: F, size: usize) -> Self {
        let position = pixel_position(coordinate, size, sampling.align_corners);
        let inside = |position: F| within(position, size);
        match sampling.interpolation {
            Interpolation::Nearest => {
                let position = pad(sampling, position, size).round();
                Self { pixels: [inside(position), None, None, None], weights: [F::ONE; 4], count: 1 }
            }
            Interpolation::Bilinear => {
                let position = pad(sampling, position, size);
                let first = position.floor();
                let weight = position.sub(first);
                let pixels = [inside(first), inside(first.add(F::ONE)), None, None];
                Self { pixels, weights: [F::ONE.sub(weight), weight, F::ZERO, F::ZERO], count: 2 }
            }
            Interpolation::Bicubic => {
                let first = position.floor();
                let pixel = |offset: f64| inside(pad(sampling, first.add(F::from_f64(offset)), size));
                let pixels = [pixel(-1.0), pixel(0.0), pixel(1.0), pixel(2.0)];
                Self { pixels, weights: cubic(position.sub(first)), count: 4 }
            }
        }
    }

    fn taps(&self) -> impl Iterator<Item = (usize, F)> {
        self.pixels.iter().zip(self.weights).take(self.count).filter_map(|(pixel, weight)| Some(((*pixel)?, weight)))
    }
}

/// From -1..1 to pixels: the corner pixels' centers lie at the ends, or half a pixel inside of them.
fn pixel_position<F: Real>(coordinate: F, size: usize, align_corners: bool) -> F {
    let (one, half) = (F::ONE, F::from_f64(0.5));
    if align_corners {
        coordinate.add(one).mul(half).mul(F::of(size - 1))
    } else {
        coordinate.add(one).mul(F::of(size)).sub(one).mul(half)
    }
}

fn within<F: Real>(position: F, size: usize) -> Option<usize> {
    (position >= F::ZERO && position < F::of(size)).then(|| position.to_i64() as usize)
}

fn pad<F: Real>(sampling: Sampling, position: F, size: usize) -> F {
    let clip = |position: F| position.at_least(F::ZERO).at_most(F::of(size - 1));
    match sampling.padding {
        Padding::Zeros => position,
        Padding::Border => clip(position),
        Padding::Reflection if sampling.align_corners => clip(reflect(position, F::ZERO, F::of(size - 1))),
        Padding::Reflection => clip(reflect(position, F::from_f64(-0.5), F::of(size))),
    }
}

/// Mirrors a position at `low` and `low + span` until it lies between.
fn reflect<F: Real>(position: F, low: F, span: F) -> F {
    if span == F::ZERO {
        return F::ZERO;
    }
    let distance = position.sub(low).abs();
    let extra = distance.remainder(span);
    let flips = (distance / span).floor();
    if flips.remainder(F::from_f64(2.0)) == F::ZERO { low.add(extra) } else { low.add(span.sub(extra)) }
}

/// The weights of four neighbouring pixels, `t` behind the second of them: cubic convolution with a = -0.75
/// (Keys, 1981).
fn cubic<F: Real>(t: F) -> [F; 4] {
    let a = -0.75;
    let number = |x: f64| F::from_f64(x);
    let near = |x: F| x.mul(number(a + 2.0)).sub(number(a + 3.0)).mul(x).mul(x).add(F::ONE);
    let far = |x: F| {
        let square = x.mul(number(a)).sub(number(5.0 * a)).mul(x).add(number(8.0 * a));
        square.mul(x).sub(number(4.0 * a))
    };
    let rest = F::ONE.sub(t);
    [far(t.add(F::ONE)), near(t), near(rest), far(rest.add(F::ONE))]
}
