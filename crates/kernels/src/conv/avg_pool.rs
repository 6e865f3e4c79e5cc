//! Average pooling over windows in one to three dimensions, and its backward in two.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor, TensorMut};

use super::window::{CHUNK, Planes, Pool, WindowDim, expect_sizes, sweep};
use crate::support::number::{Arithmetic, Number};
use crate::support::runs::{Accumulator, runs};

/// `avg_pool2d.out(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False,
/// bool count_include_pad=True, int? divisor_override=None, *, Tensor(a!) out)`
pub const AVG_POOL2D_OUT: Op = Op::new("aten::avg_pool2d.out", 8, |cx| avg_pool(cx, 2));
/// `avg_pool1d.out(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False,
/// bool count_include_pad=True, *, Tensor(a!) out)`
pub const AVG_POOL1D_OUT: Op = Op::new("aten::avg_pool1d.out", 7, |cx| avg_pool(cx, 1));
/// `avg_pool3d.out(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False,
/// bool count_include_pad=True, int? divisor_override=None, *, Tensor(a!) out)`
pub const AVG_POOL3D_OUT: Op = Op::new("aten::avg_pool3d.out", 8, |cx| avg_pool(cx, 3));
/// `avg_pool2d_backward.grad_input(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride,
/// int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override, *, Tensor(a!) grad_input)`
pub const AVG_POOL2D_BACKWARD_GRAD_INPUT: Op = Op::new("aten::avg_pool2d_backward.grad_input", 9, avg_pool2d_backward);

pub const PORTABLE: OpGroup = &[AVG_POOL2D_OUT];
pub const CORE_ATEN: OpGroup = &[AVG_POOL1D_OUT, AVG_POOL3D_OUT, AVG_POOL2D_BACKWARD_GRAD_INPUT];

/// Divisor of the sum over a window.
#[derive(Clone, Copy)]
enum Divisor {
    Given(i64),
    /// Elements of the window inside of the padded input.
    WithPadding,
    /// Elements of the window inside of the input.
    WithoutPadding,
}

impl Divisor {
    fn read(include_padding: bool, given: Option<i64>, argument: usize) -> Result<Self> {
        match given {
            Some(0) => {
                let (what, expected) = ("divisor_override", "another value");
                Err(Error::from(Detail::Value { what, expected, got: 0 }).arg(argument))
            }
            Some(divisor) => Ok(Self::Given(divisor)),
            None if include_padding => Ok(Self::WithPadding),
            None => Ok(Self::WithoutPadding),
        }
    }

    /// The part of the divisor that comes from window `index` along one dimension.
    fn along(self, window: &WindowDim, index: usize) -> i64 {
        match self {
            Self::Given(_) => 1,
            Self::WithPadding => {
                let room = (window.size + 2 * window.padding).saturating_sub(index * window.stride);
                window.kernel.min(room) as i64
            }
            Self::WithoutPadding => window.taps(index).len() as i64,
        }
    }

    fn total(self, parts: [i64; 3]) -> i64 {
        match self {
            Self::Given(divisor) => divisor,
            _ => parts.iter().fold(1, |n: i64, &part| n.saturating_mul(part)),
        }
    }
}

fn avg_pool(cx: &KernelContext<'_>, dims: usize) -> Result<()> {
    let input = cx.tensor(0)?;
    let pool = Pool::read(cx, input.sizes(), dims, 1, false, cx.bool(4)?)?;
    let given = if dims == 1 { None } else { cx.optional_int(6)? };
    let divisor = Divisor::read(cx.bool(5)?, given, 6)?;
    let argument = if dims == 1 { 6 } else { 7 };
    let mut out = cx.out(argument)?;
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(argument));
    }
    out.resize(&pool.output_sizes(input.sizes())?).map_err(|e| e.arg(argument))?;
    if out.numel() == 0 {
        return Ok(());
    }
    accumulate!(input.dtype(), A => averages::<A>(&pool, divisor, input, &mut out))
}

fn averages<A: Accumulator>(pool: &Pool, divisor: Divisor, input: Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()> {
    let from = Planes::of(&input, pool.dims);
    let to = Planes::new(out.sizes(), out.strides(), pool.dims);
    let (load, store) = (runs::<A>(input.dtype())?.load, runs::<A>(out.dtype())?.store);
    let [depth, row, column] = &pool.windows;
    for x in (0..pool.output[2]).step_by(CHUNK) {
        let end = pool.output[2].min(x + CHUNK);
        let mut parts = [0; CHUNK];
        parts.iter_mut().zip(x..end).for_each(|(part, x)| *part = divisor.along(column, x));
        for n in 0..from.batch {
            for channel in 0..from.channels {
                for at in 0..pool.output[0] * pool.output[1] {
                    let (z, y) = (at / pool.output[1], at % pool.output[1]);
                    let mut sums = [A::ZERO; CHUNK];
                    let plane = from.plane(n, channel);
                    sweep(&pool.windows, (&input, load), &from, plane, (z, y), x..end, |columns, _, values| {
                        let sums = &mut sums[columns];
                        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.add(*value));
                    })?;
                    let rows = [divisor.along(depth, z), divisor.along(row, y)];
                    for (sum, &part) in sums.iter_mut().zip(&parts).take(end - x) {
                        // A window without an element inside of the input gives 0.
                        let total = divisor.total([rows[0], rows[1], part]);
                        *sum = if total == 0 { A::ZERO } else { sum.divide(total) };
                    }
                    let start = to.plane(n, channel) + to.row(z, y) + x * to.strides[2];
                    store(out, start, to.strides[2], &sums[..end - x])?;
                }
            }
        }
    }
    Ok(())
}

fn avg_pool2d_backward(cx: &KernelContext<'_>) -> Result<()> {
    let (grad, input) = (cx.tensor(0)?, cx.tensor(1)?);
    let pool = Pool::read(cx, input.sizes(), 2, 2, false, cx.bool(5)?)?;
    let divisor = Divisor::read(cx.bool(6)?, cx.optional_int(7)?, 7)?;
    expect_sizes(grad.sizes(), &pool.output_sizes(input.sizes())?).map_err(|e| e.arg(0))?;
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
    dispatch!(FLOATHBF16, input.dtype(), T => spread::<T>(&pool, divisor, grad, &mut out))
}

/// Adds to each input position its share of the gradients of the windows that it lies in.
fn spread<T: Number>(pool: &Pool, divisor: Divisor, grad: Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()>
where
    T::Acc: Accumulator,
{
    let from = Planes::of(&grad, 2);
    let to = Planes::new(out.sizes(), out.strides(), 2);
    let (values, target) = (grad.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    target.fill(T::ZERO);
    let [_, row, column] = &pool.windows;
    for n in 0..from.batch {
        for channel in 0..from.channels {
            for y in 0..from.space[1] {
                for x in 0..from.space[2] {
                    let value = values[from.plane(n, channel) + from.row(0, y) + x * from.strides[2]].to_acc();
                    let total = divisor.total([1, divisor.along(row, y), divisor.along(column, x)]);
                    let share = value.divide(total);
                    for y_tap in row.taps(y) {
                        for x_tap in column.taps(x) {
                            let place = to.plane(n, channel)
                                + to.row(0, row.position(y, y_tap))
                                + column.position(x, x_tap) * to.strides[2];
                            target[place] = T::from_acc(target[place].to_acc().add(share));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
