//! Batch normalization: over all dimensions but the channels.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, Writer};
use crate::support::reduce::{COLUMNS, DimSet, Moments, Nest};
use crate::support::shape::Dims;

use super::normalize::{Float, Parameter, check_floating, check_sizes, normalize};

/// `_native_batch_norm_legit.out(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean,
/// Tensor(b!) running_var, bool training, float momentum, float eps, *, Tensor(d!) out, Tensor(e!) save_mean,
/// Tensor(f!) save_invstd)`
///
/// Updates the running statistics if `training`.
pub const NATIVE_BATCH_NORM_LEGIT_OUT: Op =
    Op::new("aten::_native_batch_norm_legit.out", 11, legit_out).writing(&[3, 4, 8, 9, 10]);

/// `_native_batch_norm_legit.no_stats_out(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum,
/// float eps, *, Tensor(a!) out, Tensor(b!) save_mean, Tensor(c!) save_invstd)`
///
/// Normalizes by the statistics of the input, with `training` or without.
pub const NATIVE_BATCH_NORM_LEGIT_NO_STATS_OUT: Op =
    Op::new("aten::_native_batch_norm_legit.no_stats_out", 9, no_stats_out).outs(3);

/// `_native_batch_norm_legit_no_training.out(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean,
/// Tensor running_var, float momentum, float eps, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2)`
///
/// The saved statistics are empty.
pub const NATIVE_BATCH_NORM_LEGIT_NO_TRAINING_OUT: Op =
    Op::new("aten::_native_batch_norm_legit_no_training.out", 10, no_training_out).outs(3);

pub const OPS: &[Op] =
    &[NATIVE_BATCH_NORM_LEGIT_OUT, NATIVE_BATCH_NORM_LEGIT_NO_STATS_OUT, NATIVE_BATCH_NORM_LEGIT_NO_TRAINING_OUT];

fn legit_out(cx: &KernelContext<'_>) -> Result<()> {
    let call = BatchNormCall::new(cx, 8)?;
    let (mut mean, mut var) = (cx.out(3)?, cx.out(4)?);
    call.check_parameter(&mean.as_tensor(), 3)?;
    call.check_parameter(&var.as_tensor(), 4)?;
    let eps = cx.double(7)?;
    if cx.bool(5)? {
        call.by_input(eps, Some((&mut mean, &mut var, cx.double(6)?)))
    } else {
        call.by_running(mean.as_tensor(), var.as_tensor(), eps)
    }
}

fn no_stats_out(cx: &KernelContext<'_>) -> Result<()> {
    BatchNormCall::new(cx, 6)?.by_input(cx.double(5)?, None)
}

fn no_training_out(cx: &KernelContext<'_>) -> Result<()> {
    let call = BatchNormCall::new(cx, 7)?;
    let (mean, var) = (cx.tensor(3)?, cx.tensor(4)?);
    call.check_parameter(&mean, 3)?;
    call.check_parameter(&var, 4)?;
    call.by_running(mean, var, cx.double(6)?)
}

/// The arguments that the variants share.
struct BatchNormCall<'c, 'm> {
    cx: &'c KernelContext<'m>,
    input: Tensor<'c>,
    weight: Option<Tensor<'c>>,
    bias: Option<Tensor<'c>>,
    /// Position of the first of the three outputs.
    first_out: usize,
}

impl<'c, 'm> BatchNormCall<'c, 'm> {
    fn new(cx: &'c KernelContext<'m>, first_out: usize) -> Result<Self> {
        let (input, weight, bias) = (cx.tensor(0)?, cx.optional_tensor(1)?, cx.optional_tensor(2)?);
        check_floating(input.dtype(), 0)?;
        if input.rank() < 2 {
            return Err(Error::from(Detail::Rank { expected: "at least 2", got: input.rank() }).arg(0));
        }
        let call = Self { cx, input, weight, bias, first_out };
        for (parameter, index) in [(&weight, 1), (&bias, 2)] {
            if let Some(parameter) = parameter {
                call.check_parameter(parameter, index)?;
            }
        }
        Ok(call)
    }

    fn check_parameter(&self, parameter: &Tensor<'_>, index: usize) -> Result<()> {
        check_floating(parameter.dtype(), index)?;
        check_sizes(parameter, &[self.input.size(1)], index)
    }

    /// The outputs, the saved statistics with `saved` elements.
    fn outs(&self, saved: usize) -> Result<[TensorMut<'c>; 3]> {
        let at = |i: usize, sizes: &[usize]| -> Result<TensorMut<'c>> {
            let mut out = self.cx.out(self.first_out + i)?;
            out.resize(sizes).map_err(|e| e.arg(self.first_out + i))?;
            Ok(out)
        };
        Ok([at(0, self.input.sizes())?, at(1, &[saved])?, at(2, &[saved])?])
    }

    /// The groups are the channels. The sets are the input, the output, the weight, the bias, and the statistics.
    fn nest(&self, out: &TensorMut<'_>) -> Result<Nest<5>> {
        let rank = self.input.rank();
        let mut channel = Dims::filled(rank, 0)?;
        channel[1] = 1;
        let strides = [self.input.strides(), out.strides(), &channel, &channel, &channel];
        Nest::new(self.input.sizes(), strides, DimSet::all_but(1, rank))
    }

    fn by_running(&self, mean: Tensor<'_>, var: Tensor<'_>, eps: f64) -> Result<()> {
        if self.input.dtype() == ScalarType::Double {
            self.normalize_by_running::<f64>(mean, var, eps)
        } else {
            self.normalize_by_running::<f32>(mean, var, eps)
        }
    }

    fn normalize_by_running<C: Float>(&self, mean: Tensor<'_>, var: Tensor<'_>, eps: f64) -> Result<()> {
        let [out, _, _] = self.outs(0)?;
        let nest = self.nest(&out)?;
        let (from, mean, var) = (Reader::<C>::new(self.input)?, Reader::<C>::new(mean)?, Reader::<C>::new(var)?);
        let (weight, bias) = (Parameter::weight(self.weight)?, Parameter::bias(self.bias)?);
        let mut to = Writer::new(out)?;
        nest.groups(|group| {
            let (mut means, mut rstds) = ([C::ZERO; COLUMNS], [C::ZERO; COLUMNS]);
            mean.gather(group.offsets[4], 1, &mut means[..group.columns]);
            var.gather(group.offsets[4], 1, &mut rstds[..group.columns]);
            for rstd in &mut rstds[..group.columns] {
                *rstd = C::rstd(*rstd, eps);
            }
            normalize(group, &from, &mut to, &means, &rstds, &weight, &bias)
        })
    }

    /// Normalizes by the statistics of the input. `running` holds the mean and the variance to update, and the
    /// momentum.
    fn by_input(&self, eps: f64, running: Option<(&mut TensorMut<'_>, &mut TensorMut<'_>, f64)>) -> Result<()> {
        if self.input.dtype() == ScalarType::Double {
            self.normalize_by_input::<f64>(eps, running)
        } else {
            self.normalize_by_input::<f32>(eps, running)
        }
    }

    fn normalize_by_input<C: Float>(
        &self,
        eps: f64,
        mut running: Option<(&mut TensorMut<'_>, &mut TensorMut<'_>, f64)>,
    ) -> Result<()> {
        let [out, mean, rstd] = self.outs(self.input.size(1))?;
        let nest = self.nest(&out)?;
        let from = Reader::<C>::new(self.input)?;
        let (weight, bias) = (Parameter::weight(self.weight)?, Parameter::bias(self.bias)?);
        let round = [C::narrow(mean.dtype()), C::narrow(rstd.dtype())];
        let [mut to, mut mean, mut rstd] = [Writer::new(out)?, Writer::new(mean)?, Writer::new(rstd)?];
        let count = nest.count() as f64;
        let (mut moments, mut rstds) = (Moments::<C>::new(), [C::ZERO; COLUMNS]);
        nest.groups(|group| {
            let (means, squares) = moments.measure(group, &from)?;
            let (columns, at) = (group.columns, group.offsets[4]);
            for (rstd, squares) in rstds[..columns].iter_mut().zip(&*squares) {
                *rstd = C::rstd(C::from_f64(squares.to_f64() / count), eps);
            }
            // PyTorch normalizes by the statistics in their saved precision.
            for (round, stats) in round.iter().zip([&mut *means, &mut rstds]) {
                if let Some(round) = round {
                    round(stats);
                }
            }
            normalize(group, &from, &mut to, means, &rstds, &weight, &bias)?;
            mean.scatter(at, 1, &means[..columns])?;
            rstd.scatter(at, 1, &rstds[..columns])?;
            if let Some((mean, var, momentum)) = &mut running {
                for squares in &mut squares[..columns] {
                    *squares = C::from_f64(squares.to_f64() / (count - 1.0));
                }
                move_average(mean, at, &means[..columns], *momentum)?;
                move_average(var, at, &squares[..columns], *momentum)?;
            }
            Ok(())
        })
    }
}

/// `running = momentum * new + (1 - momentum) * running` for the elements from `at` on.
fn move_average<C: Float>(running: &mut TensorMut<'_>, at: usize, new: &[C], momentum: f64) -> Result<()> {
    let mut averages = [C::ZERO; COLUMNS];
    let averages = &mut averages[..new.len()];
    Reader::<C>::new(running.as_tensor())?.gather(at, 1, averages);
    for (average, new) in averages.iter_mut().zip(new) {
        *average = C::from_f64(momentum * new.to_f64() + (1.0 - momentum) * average.to_f64());
    }
    C::store(running.dtype())?(averages, running, at)
}
