//! Maximum pooling with the positions of the maxima, and its backward.

use core::array::{from_mut, from_ref};

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use super::window::{CHUNK, Planes, Pool, WindowDim, expect_sizes, sweep};
use crate::support::number::Number;
use crate::support::runs::{Accumulator, runs};

/// `max_pool2d_with_indices.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0,
/// int[2] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices)`
pub const MAX_POOL2D_WITH_INDICES_OUT: Op =
    Op::new("aten::max_pool2d_with_indices.out", 8, |cx| max_pool(cx, 2)).outs(2);
/// `max_pool3d_with_indices.out(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0,
/// int[3] dilation=1, bool ceil_mode=False, *, Tensor(a!) out, Tensor(b!) indices)`
pub const MAX_POOL3D_WITH_INDICES_OUT: Op =
    Op::new("aten::max_pool3d_with_indices.out", 8, |cx| max_pool(cx, 3)).outs(2);
/// `max_pool2d_with_indices_backward.grad_input(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride,
/// int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices, *, Tensor(a!) grad_input)`
pub const MAX_POOL2D_WITH_INDICES_BACKWARD_GRAD_INPUT: Op =
    Op::new("aten::max_pool2d_with_indices_backward.grad_input", 9, max_pool2d_backward);

pub const PORTABLE: OpGroup = &[MAX_POOL2D_WITH_INDICES_OUT, MAX_POOL2D_WITH_INDICES_BACKWARD_GRAD_INPUT];
pub const CORE_ATEN: OpGroup = &[MAX_POOL3D_WITH_INDICES_OUT];

/// Elements that are compared at once.
const LANES: usize = 8;

fn max_pool(cx: &KernelContext<'_>, dims: usize) -> Result<()> {
    let input = cx.tensor(0)?;
    let pool = Pool::read(cx, input.sizes(), dims, 1, true, cx.bool(5)?)?;
    let (mut out, mut indices) = (cx.out(6)?, cx.out(7)?);
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(6));
    }
    if indices.dtype() != ScalarType::Long {
        return Err(Error::from(Detail::Dtype { expected: "i64", got: indices.dtype() }).arg(7));
    }
    let sizes = pool.output_sizes(input.sizes())?;
    out.resize(&sizes).map_err(|e| e.arg(6))?;
    indices.resize(&sizes).map_err(|e| e.arg(7))?;
    if out.numel() == 0 {
        return Ok(());
    }
    accumulate!(input.dtype(), A => maxima::<A>(&pool, input, &mut out, &mut indices))
}

fn maxima<A: Accumulator>(
    pool: &Pool,
    input: Tensor<'_>,
    out: &mut TensorMut<'_>,
    indices: &mut TensorMut<'_>,
) -> Result<()> {
    let from = Planes::of(&input, pool.dims);
    let to = Planes::new(out.sizes(), out.strides(), pool.dims);
    let index_to = Planes::new(indices.sizes(), indices.strides(), pool.dims);
    let (load, store) = (runs::<A>(input.dtype())?.load, runs::<A>(out.dtype())?.store);
    let store_index = runs::<i64>(ScalarType::Long)?.store;
    if u32::try_from(from.space.iter().product::<usize>()).is_err() {
        return Err(Error::invalid("a plane of the input has more elements than 32 bits can count").arg(0));
    }
    let step = pool.windows[2].stride as u32;
    let lowest = A::from_f64(f64::NEG_INFINITY);
    for n in 0..from.batch {
        for channel in 0..from.channels {
            for row in 0..pool.output[0] * pool.output[1] {
                let (z, y) = (row / pool.output[1], row % pool.output[1]);
                for x in (0..pool.output[2]).step_by(CHUNK) {
                    let end = pool.output[2].min(x + CHUNK);
                    let (mut best, mut places) = ([lowest; CHUNK], [u32::MAX; CHUNK]);
                    let plane = from.plane(n, channel);
                    sweep(&pool.windows, (&input, load), &from, plane, (z, y), x..end, |columns, index, values| {
                        let (best, places) = (&mut best[columns.clone()], &mut places[columns]);
                        update(best, places, values, index as u32, step);
                    })?;
                    let count = end - x;
                    let start = to.plane(n, channel) + to.row(z, y) + x * to.strides[2];
                    store(out, start, to.strides[2], &best[..count])?;
                    let mut indices_now = [0i64; CHUNK];
                    for (i, (index, &place)) in indices_now.iter_mut().zip(&places).enumerate().take(count) {
                        // If no element is above the lowest value, the first element is the maximum.
                        *index = if place == u32::MAX { first(pool, (z, y, x + i)) } else { i64::from(place) };
                    }
                    let start = index_to.plane(n, channel) + index_to.row(z, y) + x * index_to.strides[2];
                    store_index(indices, start, index_to.strides[2], &indices_now[..count])?;
                }
            }
        }
    }
    Ok(())
}

/// Replaces each maximum whose new value is larger or NaN, and its place. The places of `values` are `index`,
/// `index + step`, ….
fn update<A: Accumulator>(best: &mut [A], places: &mut [u32], values: &[A], mut index: u32, step: u32) {
    let (best, best_rest) = best.as_chunks_mut::<LANES>();
    let (places, places_rest) = places.as_chunks_mut::<LANES>();
    let (values, values_rest) = values.as_chunks::<LANES>();
    for ((best, places), values) in best.iter_mut().zip(places).zip(values) {
        update_lanes(best, places, values, index, step);
        index = index.wrapping_add(step.wrapping_mul(LANES as u32));
    }
    for ((best, place), value) in best_rest.iter_mut().zip(places_rest).zip(values_rest) {
        update_lanes(from_mut(best), from_mut(place), from_ref(value), index, step);
        index = index.wrapping_add(step);
    }
}

/// Selects through arrays, because the compiler turns less regular code into branches, which the data mispredicts.
#[inline(always)]
fn update_lanes<A: Accumulator, const N: usize>(
    best: &mut [A; N],
    places: &mut [u32; N],
    values: &[A; N],
    index: u32,
    step: u32,
) {
    let (old, old_places, value) = (*best, *places, *values);
    let better: [bool; N] = core::array::from_fn(|l| (value[l] > old[l]) | Number::is_nan(value[l]));
    *best = core::array::from_fn(|l| if better[l] { value[l] } else { old[l] });
    *places =
        core::array::from_fn(
            |l| {
                if better[l] { index.wrapping_add(step.wrapping_mul(l as u32)) } else { old_places[l] }
            },
        );
}

/// The index of the first element of a window.
fn first(pool: &Pool, (z, y, x): (usize, usize, usize)) -> i64 {
    let [depth, row, column] = &pool.windows;
    let position =
        |window: &WindowDim, index: usize| window.position(index, window.taps(index).start).min(window.size - 1);
    ((position(depth, z) * row.size + position(row, y)) * column.size + position(column, x)) as i64
}

fn max_pool2d_backward(cx: &KernelContext<'_>) -> Result<()> {
    let (grad, input, indices) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(7)?);
    let pool = Pool::read(cx, input.sizes(), 2, 2, true, cx.bool(6)?)?;
    let expected = pool.output_sizes(input.sizes())?;
    for (argument, tensor) in [(0, grad), (7, indices)] {
        expect_sizes(tensor.sizes(), &expected).map_err(|e| e.arg(argument))?;
    }
    let mut out = cx.out(8)?;
    for (argument, got) in [(0, grad.dtype()), (8, out.dtype())] {
        if got != input.dtype() {
            return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got }).arg(argument));
        }
    }
    out.resize(input.sizes()).map_err(|e| e.arg(8))?;
    if out.numel() == 0 {
        return Ok(());
    }
    dispatch!(FLOATHBF16, input.dtype(), T => scatter::<T>(grad, indices, &mut out))
}

/// Adds each gradient at the position that its maximum came from.
fn scatter<T: Number>(grad: Tensor<'_>, indices: Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()>
where
    T::Acc: Accumulator,
{
    let (from, index_from) = (Planes::of(&grad, 2), Planes::of(&indices, 2));
    let to = Planes::new(out.sizes(), out.strides(), 2);
    let (values, indices, target) = (grad.as_slice::<T>()?, indices.as_slice::<i64>()?, out.as_mut_slice::<T>()?);
    let [_, height, width] = to.space;
    let is_flat = to.strides[2] == 1 && to.row(0, 1) == width;
    if !is_flat {
        target.fill(T::ZERO);
    }
    for n in 0..from.batch {
        for channel in 0..from.channels {
            let target = target.get_mut(to.plane(n, channel)..).unwrap_or_default();
            if is_flat && let Some(plane) = target.get_mut(..height * width) {
                // Cleared just before its use, so that it is still in the cache.
                plane.fill(T::ZERO);
            }
            for y in 0..from.space[1] {
                let start = |planes: &Planes| planes.plane(n, channel) + planes.row(0, y);
                let values = values.get(start(&from)..).unwrap_or_default();
                let indices = indices.get(start(&index_from)..).unwrap_or_default();
                if is_flat && from.strides[2] == 1 && index_from.strides[2] == 1 {
                    let plane = target.get_mut(..height * width).unwrap_or_default();
                    scatter_row(&indices[..from.space[2]], values, plane)?;
                    continue;
                }
                for x in 0..from.space[2] {
                    let index = indices[x * index_from.strides[2]];
                    if index == -1 {
                        continue;
                    }
                    let place = usize::try_from(index).ok().filter(|&place| place < height * width);
                    let Some(place) = place else {
                        return Err(Error::from(Detail::Index { index, size: height * width }).arg(7));
                    };
                    // Consecutive rows need no division.
                    let place = if is_flat { place } else { to.row(0, place / width) + place % width * to.strides[2] };
                    target[place] = add(target[place], values[x * from.strides[2]]);
                }
            }
        }
    }
    Ok(())
}

/// Adds the gradients of a row to the elements of a plane that the indices name; -1 names none.
fn scatter_row<T: Number>(indices: &[i64], values: &[T], plane: &mut [T]) -> Result<()>
where
    T::Acc: Accumulator,
{
    for (&index, &value) in indices.iter().zip(values) {
        // A negative index becomes a position past the end of every plane.
        match usize::try_from(index as u64).ok().and_then(|place| plane.get_mut(place)) {
            Some(to) => *to = add(*to, value),
            None if index == -1 => {}
            None => return Err(Error::from(Detail::Index { index, size: plane.len() }).arg(7)),
        }
    }
    Ok(())
}

/// A sum of two elements, rounded to their type.
fn add<T: Number>(a: T, b: T) -> T {
    use crate::support::number::Arithmetic;
    T::from_acc(a.to_acc().add(b.to_acc()))
}
