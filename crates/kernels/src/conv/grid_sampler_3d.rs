//! `grid_sampler_3d`: samples a volume at the positions of a grid.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use super::grid_sampler::{Axis, Interpolation, Sampling, add, narrow};
use super::window::Planes;
use crate::support::number::Number;
use crate::support::real::Real;

/// `grid_sampler_3d.out(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners, *,
/// Tensor(a!) out)`. There is no cubic interpolation.
pub const GRID_SAMPLER_3D_OUT: Op = Op::new("aten::grid_sampler_3d.out", 6, grid_sampler_3d);

pub const OPS: OpGroup = &[GRID_SAMPLER_3D_OUT];

fn grid_sampler_3d(cx: &KernelContext<'_>) -> Result<()> {
    let (input, grid, sampling) = (cx.tensor(0)?, cx.tensor(1)?, Sampling::of(cx)?);
    let mut out = cx.out(5)?;
    if matches!(sampling.interpolation, Interpolation::Bicubic) {
        let (what, expected) = ("interpolation_mode", "0 or 1");
        return Err(Error::from(Detail::Value { what, expected, got: 2 }).arg(2));
    }
    for (argument, got) in [(0, input.rank()), (1, grid.rank())] {
        if got != 5 {
            return Err(Error::from(Detail::Rank { expected: "5", got }).arg(argument));
        }
    }
    for (argument, got) in [(1, grid.dtype()), (5, out.dtype())] {
        if got != input.dtype() {
            return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got }).arg(argument));
        }
    }
    for (dim, expected) in [(0, input.size(0)), (4, 3)] {
        if grid.size(dim) != expected {
            return Err(Error::from(Detail::Size { dim, expected, got: grid.size(dim) }).arg(1));
        }
    }
    if let Some(dim) = (2..5).find(|&dim| input.size(dim) == 0) {
        return Err(Error::from(Detail::Size { dim, expected: 1, got: 0 }).arg(0));
    }
    let sizes = [input.size(0), input.size(1), grid.size(1), grid.size(2), grid.size(3)];
    out.resize(&sizes).map_err(|e| e.arg(5))?;
    match input.dtype() {
        ScalarType::Double => sample::<f64, f64>(sampling, &input, &grid, &mut out),
        dtype => dispatch!(FLOATHBF16, dtype, T => sample::<T, f32>(sampling, &input, &grid, &mut out)),
    }
}

fn sample<T: Number, F: Real>(
    sampling: Sampling,
    input: &Tensor<'_>,
    grid: &Tensor<'_>,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let (from, to) = (Planes::of(input, 3), Planes::new(out.sizes(), out.strides(), 3));
    let (values, points, places) = (input.as_slice::<T>()?, grid.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    let [depth, height, width] = from.space;
    let &[batch, deep, down, across, step] = grid.strides() else { return Ok(()) };
    for n in 0..to.batch {
        for z in 0..to.space[0] {
            for y in 0..to.space[1] {
                for x in 0..to.space[2] {
                    // A point is x, y and z.
                    let point = n * batch + z * deep + y * down + x * across;
                    let axis = |place: usize, size: usize| {
                        Axis::<F>::new::<T>(sampling, points[point + place * step].cast(), size)
                    };
                    let (columns, rows, planes) = (axis(0, width), axis(1, height), axis(2, depth));
                    for channel in 0..to.channels {
                        let base = from.plane(n, channel);
                        let mut sum = F::ZERO;
                        for (plane, inward) in planes.taps() {
                            for (row, down) in rows.taps() {
                                let line = base + from.row(plane, row);
                                let outer = narrow::<T, F>(inward.mul(down));
                                for (column, across) in columns.taps() {
                                    let weight = narrow::<T, F>(outer.mul(across));
                                    let value = values[line + column * from.strides[2]].cast::<F>();
                                    sum = add::<T, F>(sum, narrow::<T, F>(value.mul(weight)));
                                }
                            }
                        }
                        places[to.plane(n, channel) + to.row(z, y) + x * to.strides[2]] = sum.cast();
                    }
                }
            }
        }
    }
    Ok(())
}
