//! Average pooling to a given output size, in one to three dimensions, and its backward in two.

use core::ops::Range;

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor, TensorMut};

use super::window::{Planes, Space, required_space};
use crate::support::number::{Arithmetic, Number};
use crate::support::runs::{Accumulator, Load, native, runs};
use crate::support::shape::Dims;

/// `_adaptive_avg_pool2d.out(Tensor self, SymInt[2] output_size, *, Tensor(a!) out)`
pub const ADAPTIVE_AVG_POOL2D_OUT: Op = Op::new("aten::_adaptive_avg_pool2d.out", 3, |cx| adaptive_avg_pool(cx, 2));
/// `adaptive_avg_pool1d.out(Tensor self, int[1] output_size, *, Tensor(a!) out)`
pub const ADAPTIVE_AVG_POOL1D_OUT: Op = Op::new("aten::adaptive_avg_pool1d.out", 3, |cx| adaptive_avg_pool(cx, 1));
/// `_adaptive_avg_pool3d.out(Tensor self, SymInt[3] output_size, *, Tensor(a!) out)`
pub const ADAPTIVE_AVG_POOL3D_OUT: Op = Op::new("aten::_adaptive_avg_pool3d.out", 3, |cx| adaptive_avg_pool(cx, 3));
/// `_adaptive_avg_pool2d_backward.out(Tensor grad_output, Tensor self, *, Tensor(a!) out)`
pub const ADAPTIVE_AVG_POOL2D_BACKWARD_OUT: Op =
    Op::new("aten::_adaptive_avg_pool2d_backward.out", 3, adaptive_avg_pool2d_backward);

pub const PORTABLE: OpGroup = &[ADAPTIVE_AVG_POOL2D_OUT];
pub const CORE_ATEN: OpGroup = &[ADAPTIVE_AVG_POOL1D_OUT, ADAPTIVE_AVG_POOL3D_OUT, ADAPTIVE_AVG_POOL2D_BACKWARD_OUT];

/// The input positions that output `index` of `output` averages: from the floor of its left edge to the ceiling of
/// its right edge.
fn window(index: usize, output: usize, input: usize) -> Range<usize> {
    let scaled = |i: usize| (i as u64).wrapping_mul(input as u64);
    (scaled(index) / output as u64) as usize..scaled(index + 1).div_ceil(output as u64) as usize
}

fn check(sizes: &[usize], dims: usize) -> Result<()> {
    if sizes.len() != dims + 1 && sizes.len() != dims + 2 {
        let expected = ["2 or 3", "3 or 4", "4 or 5"].get(dims.wrapping_sub(1)).copied().unwrap_or("another");
        return Err(Detail::Rank { expected, got: sizes.len() }.into());
    }
    // No images, or none of its channels, have averages, of which there are none.
    match (sizes.len() - dims..sizes.len()).find(|&dim| sizes[dim] == 0) {
        Some(dim) => Err(Detail::Size { dim, expected: 1, got: 0 }.into()),
        None => Ok(()),
    }
}

fn adaptive_avg_pool(cx: &KernelContext<'_>, dims: usize) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(2)?);
    check(input.sizes(), dims).map_err(|e| e.arg(0))?;
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(2));
    }
    let output = required_space(cx, 1, "output_size", dims, 0, 1)?;
    let mut sizes = Dims::from_slice(input.sizes())?;
    let leading = sizes.len() - dims;
    sizes[leading..].copy_from_slice(&output[3 - dims..]);
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    if out.numel() == 0 {
        return Ok(());
    }
    accumulate!(input.dtype(), A => averages::<A>(output, dims, input, &mut out))
}

fn averages<A: Accumulator>(output: Space, dims: usize, input: Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()> {
    let from = Planes::of(&input, dims);
    let to = Planes::new(out.sizes(), out.strides(), dims);
    let source = PoolSource { input, native: native::<A>(&input), load: runs::<A>(input.dtype())?.load, planes: from };
    let store = runs::<A>(out.dtype())?.store;
    let mut buffers = [[A::ZERO; STRIP]; 2];
    for (n, channel) in (0..from.batch).flat_map(|n| (0..from.channels).map(move |channel| (n, channel))) {
        for (z, y) in (0..output[0]).flat_map(|z| (0..output[1]).map(move |y| (z, y))) {
            let depths = window(z, output[0], from.space[0]);
            let mut rows = window(y, output[1], from.space[1]);
            let mut width = from.space[2];
            // Whole rows that follow each other are one long row.
            if output[2] == 1 && from.strides[1] == width {
                width *= rows.len();
                rows.end = rows.start + 1;
            }
            let lines = WindowRows { plane: from.plane(n, channel), depths, rows };
            let mut put = |x: usize, sum: A, columns: usize| {
                let place = to.plane(n, channel) + to.row(z, y) + x * to.strides[2];
                store(out, place, 1, &[sum.divide((lines.count() * columns) as i64)])
            };
            let columns = |x: usize| window(x, output[2], width);
            let mut x = 0;
            while x < output[2] {
                let first = columns(x).start;
                // As many windows as a strip has room for, and at least one.
                let end = (x + 1..output[2]).find(|&x| columns(x).end - first > STRIP).unwrap_or(output[2]);
                let last = columns(end - 1).end;
                if last - first > STRIP {
                    let mut sum = A::ZERO;
                    for left in (first..last).step_by(STRIP) {
                        sum = sum.add(total(source.sum(&lines, left..last.min(left + STRIP), &mut buffers)?));
                    }
                    put(x, sum, last - first)?;
                } else {
                    let sums = source.sum(&lines, first..last, &mut buffers)?;
                    for x in x..end {
                        let columns = columns(x);
                        put(x, total(&sums[columns.start - first..columns.end - first]), columns.len())?;
                    }
                }
                x = end;
            }
        }
    }
    Ok(())
}

/// Columns that are summed at once.
const STRIP: usize = 128;

/// The rows of a plane that windows of one row of the output cover.
struct WindowRows {
    plane: usize,
    depths: Range<usize>,
    rows: Range<usize>,
}

impl WindowRows {
    fn count(&self) -> usize {
        self.depths.len() * self.rows.len()
    }
}

struct PoolSource<'a, A> {
    input: Tensor<'a>,
    native: Option<&'a [A]>,
    load: Load<A>,
    planes: Planes,
}

impl<A: Accumulator> PoolSource<'_, A> {
    /// The sums of at most [`STRIP`] columns over all lines.
    fn sum<'b>(
        &'b self,
        lines: &WindowRows,
        columns: Range<usize>,
        buffers: &'b mut [[A; STRIP]; 2],
    ) -> Result<&'b [A]> {
        let [sums, line] = buffers;
        let (sums, line) = (&mut sums[..columns.len()], &mut line[..columns.len()]);
        if lines.count() == 1 {
            return self.line(lines, lines.depths.start, lines.rows.start, columns, sums);
        }
        sums.fill(A::ZERO);
        for z in lines.depths.clone() {
            for y in lines.rows.clone() {
                let line = self.line(lines, z, y, columns.clone(), line)?;
                sums.iter_mut().zip(line).for_each(|(sum, value)| *sum = sum.add(*value));
            }
        }
        Ok(sums)
    }

    /// A part of a line, in place if its elements lie next to each other.
    fn line<'b>(
        &'b self,
        lines: &WindowRows,
        z: usize,
        y: usize,
        columns: Range<usize>,
        buffer: &'b mut [A],
    ) -> Result<&'b [A]> {
        let step = self.planes.strides[2];
        let start = lines.plane + self.planes.row(z, y) + columns.start * step;
        if step == 1
            && let Some(line) = self.native.and_then(|values| values.get(start..start + buffer.len()))
        {
            return Ok(line);
        }
        (self.load)(&self.input, start, step, buffer)?;
        Ok(buffer)
    }
}

/// In eight sums that do not wait for each other.
fn total<A: Accumulator>(values: &[A]) -> A {
    let mut lanes = [A::ZERO; 8];
    let (chunks, rest) = values.as_chunks();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk as &[A; 8]) {
            *lane = lane.add(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = lane.add(*value);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    a.add(e).add(b.add(f)).add(c.add(g).add(d.add(h)))
}

fn adaptive_avg_pool2d_backward(cx: &KernelContext<'_>) -> Result<()> {
    let (grad, input, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(2)?);
    check(input.sizes(), 2).map_err(|e| e.arg(1))?;
    for (argument, got) in [(0, grad.dtype()), (2, out.dtype())] {
        if got != input.dtype() {
            return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got }).arg(argument));
        }
    }
    let leading = input.rank() - 2;
    if grad.rank() != input.rank() || grad.sizes()[..leading] != input.sizes()[..leading] {
        return Err(Error::invalid("the leading sizes of the gradient are not those of the input").arg(0));
    }
    out.resize(input.sizes()).map_err(|e| e.arg(2))?;
    dispatch!(FLOATHBF16, input.dtype(), T => spread::<T>(grad, &mut out))
}

fn spread<T: Number>(grad: Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()>
where
    T::Acc: Accumulator,
{
    let from = Planes::of(&grad, 2);
    let to = Planes::new(out.sizes(), out.strides(), 2);
    let (values, target) = (grad.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    target.fill(T::ZERO);
    for n in 0..from.batch {
        for channel in 0..from.channels {
            for y in 0..from.space[1] {
                let rows = window(y, from.space[1], to.space[1]);
                for x in 0..from.space[2] {
                    let columns = window(x, from.space[2], to.space[2]);
                    let value = values[from.plane(n, channel) + from.row(0, y) + x * from.strides[2]].to_acc();
                    let share = value.divide((rows.len() * columns.len()) as i64);
                    for (y, x) in rows.clone().flat_map(|y| columns.clone().map(move |x| (y, x))) {
                        let place = to.plane(n, channel) + to.row(0, y) + x * to.strides[2];
                        target[place] = T::from_acc(target[place].to_acc().add(share));
                    }
                }
            }
        }
    }
    Ok(())
}
