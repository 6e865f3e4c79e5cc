//! Softmax and its logarithm.

use rushlight_runtime::{Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, Writer, map_run};
use crate::support::math;
use crate::support::reduce::{COLUMNS, DimSet, Fold, Group, MaxNumber, Nest, Sum, fold_block};

use super::normalize::{Float, check_floating};

/// `_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out)`
pub const SOFTMAX_OUT: Op = Op::new("aten::_softmax.out", 4, |cx| over_dim(cx, false));

/// `_log_softmax.out(Tensor self, int dim, bool half_to_float, *, Tensor(a!) out)`
pub const LOG_SOFTMAX_OUT: Op = Op::new("aten::_log_softmax.out", 4, |cx| over_dim(cx, true));

pub const OPS: &[Op] = &[SOFTMAX_OUT, LOG_SOFTMAX_OUT];

fn over_dim(cx: &KernelContext<'_>, log: bool) -> Result<()> {
    let input = cx.tensor(0)?;
    let dims = DimSet::one(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let mut out = cx.out(3)?;
    check_floating(input.dtype(), 0)?;
    check_floating(out.dtype(), 3)?;
    if cx.bool(2)? && (input.dtype() != ScalarType::Half || out.dtype() != ScalarType::Float) {
        return Err(Error::invalid("half_to_float needs an input of f16 and an output of f32").arg(2));
    }
    out.resize(input.sizes()).map_err(|e| e.arg(3))?;
    // The walk over the groups would visit empty ones, of which a file can claim any number.
    if input.numel() == 0 {
        return Ok(());
    }
    if input.dtype() == ScalarType::Double || out.dtype() == ScalarType::Double {
        softmax::<f64>(&input, dims, out, log)
    } else {
        softmax::<f32>(&input, dims, out, log)
    }
}

fn softmax<C: Exponential>(input: &Tensor<'_>, dims: DimSet, out: TensorMut<'_>, log: bool) -> Result<()> {
    let nest = Nest::new(input.sizes(), [input.strides(), out.strides()], dims)?;
    let from = Reader::<C>::new(*input)?;
    let mut to = Writer::<C>::new(out)?;
    nest.groups(|group| {
        let mut maxima = [[C::ZERO; COLUMNS]];
        // A NaN needs no notice here: it makes the sum of its group NaN.
        group.fold::<C, MaxNumber, 1>(&from, &[C::ZERO; COLUMNS], &mut maxima)?;
        let [maxima] = maxima;
        if log {
            return write_logarithms(group, &from, &mut to, &maxima);
        }
        if group.strides()[1] == 1 && from.in_place().is_some() && to.in_place().is_some() {
            return write_in_two_steps(group, &from, &mut to, &maxima);
        }
        let mut scales = exponential_sums(group, &from, &maxima)?;
        for scale in &mut scales[..group.columns] {
            *scale = C::ONE / *scale;
        }
        map(group, &from, &mut to, |x, column| x.sub(maxima[column]).exp().mul(scales[column]))
    })
}

fn exponential_sums<C: Exponential>(
    group: &mut Group<'_, 2>,
    from: &Reader<'_, C>,
    maxima: &[C; COLUMNS],
) -> Result<[C; COLUMNS]> {
    let mut sums = [[C::ZERO; COLUMNS]];
    group.fold::<C, ExponentialSum, 1>(from, maxima, &mut sums)?;
    Ok(sums[0])
}

fn write_logarithms<C: Exponential>(
    group: &mut Group<'_, 2>,
    from: &Reader<'_, C>,
    to: &mut Writer<'_, C>,
    maxima: &[C; COLUMNS],
) -> Result<()> {
    let mut logs = exponential_sums(group, from, maxima)?;
    for log in &mut logs[..group.columns] {
        *log = log.ln();
    }
    map(group, from, to, |x, column| x.sub(maxima[column]).sub(logs[column]))
}

/// Stores the exponentials while they are added up, then scales them: they are computed once.
fn write_in_two_steps<C: Exponential>(
    group: &mut Group<'_, 2>,
    from: &Reader<'_, C>,
    to: &mut Writer<'_, C>,
    maxima: &[C; COLUMNS],
) -> Result<()> {
    const BLOCK: usize = 512;
    let is_run = group.is_run();
    let mut sums = [C::ZERO; COLUMNS];
    group.rows(|row| {
        map_run(from, to, row.offsets[0], (row.offsets[1], 1), row.len, |_, x, y| {
            if is_run {
                for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = x.sub(maxima[0]).exp();
                    }
                    sums[0] = sums[0].add(fold_block::<C, Sum, 1>(y, C::ZERO)[0]);
                }
            } else {
                for (((y, x), max), sum) in y.iter_mut().zip(x).zip(maxima).zip(&mut sums) {
                    *y = x.sub(*max).exp();
                    *sum = sum.add(*y);
                }
            }
        })
    })?;
    for scale in &mut sums[..group.columns] {
        *scale = C::ONE / *scale;
    }
    let Some(to) = to.in_place() else { return Ok(()) };
    group.rows(|row| {
        let y = &mut to[row.offsets[1]..row.offsets[1] + row.len];
        if is_run {
            for y in y {
                *y = y.mul(sums[0]);
            }
        } else {
            y.iter_mut().zip(&sums).for_each(|(y, scale)| *y = y.mul(*scale));
        }
        Ok(())
    })
}

/// Writes `f(x, column)` for every element of the group.
#[inline]
fn map<C: Exponential>(
    group: &mut Group<'_, 2>,
    from: &Reader<'_, C>,
    to: &mut Writer<'_, C>,
    f: impl Fn(C, usize) -> C,
) -> Result<()> {
    let (is_run, stride) = (group.is_run(), group.strides()[1]);
    group.rows(|row| {
        map_run(from, to, row.offsets[0], (row.offsets[1], stride), row.len, |_, x, y| {
            if is_run {
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(x, 0));
            } else {
                y.iter_mut().zip(x).enumerate().for_each(|(column, (y, &x))| *y = f(x, column));
            }
        })
    })
}

trait Exponential: Float {
    fn exp(self) -> Self;
    fn ln(self) -> Self;
}

impl Exponential for f32 {
    #[inline(always)]
    fn exp(self) -> Self {
        math::exp(self)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        libm::logf(self)
    }
}

impl Exponential for f64 {
    #[inline(always)]
    fn exp(self) -> Self {
        libm::exp(self)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        libm::log(self)
    }
}

/// The sum of the exponentials of the deviations from the center.
struct ExponentialSum;

impl<C: Exponential> Fold<C, 1> for ExponentialSum {
    const START: [C; 1] = [C::ZERO];
    #[inline(always)]
    fn step([sum]: [C; 1], x: C, center: C) -> [C; 1] {
        [sum.add(x.sub(center).exp())]
    }
    #[inline(always)]
    fn merge([a]: [C; 1], [b]: [C; 1]) -> [C; 1] {
        [a.add(b)]
    }
}
