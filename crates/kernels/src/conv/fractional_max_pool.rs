//! Maxima of windows at pseudo-random places (Graham, "Fractional Max-Pooling", 2014), over images and volumes.

use rushlight_runtime::{Detail, Element, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use super::window::{Planes, Space, required_space};
use crate::support::number::Number;
use crate::support::shape::Dims;

/// `fractional_max_pool2d.output(Tensor self, int[2] kernel_size, int[2] output_size, Tensor random_samples, *, Tensor(a!) output,
/// Tensor(b!) indices)`
pub const FRACTIONAL_MAX_POOL2D_OUTPUT: Op =
    Op::new("aten::fractional_max_pool2d.output", 6, |cx| fractional_max_pool(cx, 2)).outs(2);
/// `fractional_max_pool3d.output(Tensor self, int[3] kernel_size, int[3] output_size, Tensor random_samples, *, Tensor(a!) output,
/// Tensor(b!) indices)`
pub const FRACTIONAL_MAX_POOL3D_OUTPUT: Op =
    Op::new("aten::fractional_max_pool3d.output", 6, |cx| fractional_max_pool(cx, 3)).outs(2);

pub const OPS: OpGroup = &[FRACTIONAL_MAX_POOL2D_OUTPUT, FRACTIONAL_MAX_POOL3D_OUTPUT];

fn fractional_max_pool(cx: &KernelContext<'_>, dims: usize) -> Result<()> {
    let (input, samples) = (cx.tensor(0)?, cx.tensor(3)?);
    let kernel = required_space(cx, 1, "kernel_size", dims, 1, 1)?;
    let size = required_space(cx, 2, "output_size", dims, 1, 1)?;
    let (mut out, mut indices) = (cx.out(4)?, cx.out(5)?);
    let rank = input.rank();
    if rank != dims + 1 && rank != dims + 2 {
        let expected = if dims == 2 { "3 or 4" } else { "4 or 5" };
        return Err(Error::from(Detail::Rank { expected, got: rank }).arg(0));
    }
    for (argument, expected, got) in
        [(3, input.dtype(), samples.dtype()), (4, input.dtype(), out.dtype()), (5, ScalarType::Long, indices.dtype())]
    {
        if got != expected {
            return Err(Error::from(Detail::ElementType { expected, got }).arg(argument));
        }
    }
    let from = Planes::of(&input, dims);
    if *samples.sizes() != [from.batch, from.channels, dims] {
        return Err(Error::invalid("the samples are not one for each batch, channel and dimension").arg(3));
    }
    for dim in 3 - dims..3 {
        if size[dim] + kernel[dim] - 1 > from.space[dim] {
            let (dim, expected) = (rank + dim - 3, size[dim] + kernel[dim] - 1);
            return Err(Error::from(Detail::Size { dim, expected, got: input.size(dim) }).arg(0));
        }
    }
    let mut sizes = Dims::from_slice(input.sizes())?;
    for dim in 3 - dims..3 {
        sizes[rank + dim - 3] = size[dim];
    }
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    indices.resize(&sizes).map_err(|e| e.arg(5))?;
    let pooling = Pooling { dims, kernel, size };
    dispatch!(FLOATHBF16, input.dtype(), T => pooling.run::<T>(&input, &samples, &mut out, &mut indices))
}

struct Pooling {
    dims: usize,
    kernel: Space,
    size: Space,
}

impl Pooling {
    fn run<T: Number + Element + PartialOrd>(
        &self,
        input: &Tensor<'_>,
        samples: &Tensor<'_>,
        out: &mut TensorMut<'_>,
        indices: &mut TensorMut<'_>,
    ) -> Result<()> {
        let from = Planes::of(input, self.dims);
        let to = Planes::new(out.sizes(), out.strides(), self.dims);
        let to_index = Planes::new(indices.sizes(), indices.strides(), self.dims);
        let (elements, points) = (input.as_slice::<T>()?, samples.as_slice::<T>()?);
        let (values, places) = (out.as_mut_slice::<T>()?, indices.as_mut_slice::<i64>()?);
        for plane in 0..from.batch * from.channels {
            let (n, channel) = (plane / from.channels, plane % from.channels);
            let sample = |dim: usize| {
                // The samples of an image are those of columns, then of rows.
                let at = if self.dims == 2 { 2 - dim } else { dim };
                let strides = samples.strides();
                points.get(n * strides[0] + channel * strides[1] + at * strides[2]).map_or(0.0, |x| x.to_f64())
            };
            let start = |dim: usize, place: usize| {
                let (length, kernel, count) = (from.space[dim], self.kernel[dim], self.size[dim]);
                if 3 - dim > self.dims {
                    return 0;
                }
                interval(input.dtype(), sample(dim), place, [length, count, kernel])
            };
            for z in 0..self.size[0] {
                for y in 0..self.size[1] {
                    for x in 0..self.size[2] {
                        let corner = [start(0, z), start(1, y), start(2, x)];
                        let (value, place) = self.maximum(&from, elements, from.plane(n, channel), corner);
                        values[to.plane(n, channel) + to.row(z, y) + x * to.strides[2]] = value;
                        places[to_index.plane(n, channel) + to_index.row(z, y) + x * to_index.strides[2]] = place;
                    }
                }
            }
        }
        Ok(())
    }

    /// The maximum of a window, the first NaN being beyond everything, and its place in the plane.
    fn maximum<T: Number + PartialOrd>(&self, from: &Planes, elements: &[T], plane: usize, corner: Space) -> (T, i64) {
        let mut best: Option<(T, i64)> = None;
        for z in corner[0]..corner[0] + self.kernel[0] {
            for y in corner[1]..corner[1] + self.kernel[1] {
                for x in corner[2]..corner[2] + self.kernel[2] {
                    let Some(&value) = elements.get(plane + from.row(z, y) + x * from.strides[2]) else { continue };
                    let place = ((z * from.space[1] + y) * from.space[2] + x) as i64;
                    best = match best {
                        Some((max, _)) if !(value > max || value.is_nan()) => best,
                        _ => Some((value, place)),
                    };
                }
            }
        }
        best.unwrap_or((T::from_f64(f64::NEG_INFINITY), 0))
    }
}

/// Where a window begins, in the arithmetic of the tensor's type.
fn interval(dtype: ScalarType, sample: f64, place: usize, [length, count, kernel]: [usize; 3]) -> usize {
    let reach = length - kernel;
    if place + 1 == count {
        return reach;
    }
    let (steps, place) = ((count - 1) as f64, place as f64);
    let round = |x: f64| match dtype {
        ScalarType::Double => x,
        ScalarType::Half => half::f16::from_f32(x as f32).to_f64(),
        ScalarType::BFloat16 => half::bf16::from_f32(x as f32).to_f64(),
        _ => f64::from(x as f32),
    };
    let alpha = round(round(reach as f64) / round(steps));
    let ahead = round(round(place + sample) * alpha) as usize;
    ahead.saturating_sub(round(sample * alpha) as usize).min(reach)
}
