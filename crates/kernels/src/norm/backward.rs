//! Gradients of layer and group normalization.
//!
//! With `h = (x - mean) * rstd` and `g = grad_out * weight`, the gradient of the input is
//! `rstd * (g - mean(g) - h * mean(g * h))`, with means over the normalized elements. The gradient of the weight is the
//! sum of `grad_out * h`, and that of the bias is the sum of `grad_out`.

use rushlight_runtime::{Error, KernelContext, Op, Result, ScalarType, Tensor, TensorMut};

use crate::support::access::{Reader, TILE, Writer};
use crate::support::reduce::{COLUMNS, DimSet, Group, Nest, Row};
use crate::support::shape::Dims;

use super::group_norm::Grouped;
use super::layer_norm::normalized_dims;
use super::normalize::{Float, check_floating, check_sizes};

/// `native_layer_norm_backward.out(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd,
/// Tensor? weight, Tensor? bias, bool[3] output_mask, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2)`
///
/// Outputs whose entry in `output_mask` is false are not written.
pub const NATIVE_LAYER_NORM_BACKWARD_OUT: Op =
    Op::new("aten::native_layer_norm_backward.out", 11, native_layer_norm_backward_out).outs(3);

/// `native_group_norm_backward.out(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt N,
/// SymInt C, SymInt HxW, int group, bool[3] output_mask, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2)`
///
/// Outputs whose entry in `output_mask` is false are not written.
pub const NATIVE_GROUP_NORM_BACKWARD_OUT: Op =
    Op::new("aten::native_group_norm_backward.out", 13, native_group_norm_backward_out).outs(3);

pub const OPS: &[Op] = &[NATIVE_LAYER_NORM_BACKWARD_OUT, NATIVE_GROUP_NORM_BACKWARD_OUT];

fn native_layer_norm_backward_out(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(1)?;
    let dims = normalized_dims(&input, cx.ints(2)?).map_err(|e| e.arg(2))?;
    let rank = input.rank();
    let stats = dims.set.reduced_sizes(input.sizes(), true)?;
    let call = BackwardCall::new(cx, [3, 4, 5], 7, 8, &stats, dims.of(&input))?;
    let sizes = Dims::from_slice(input.sizes())?;
    let along = |role: Role, strides: &[usize]| match role {
        Role::Like => Dims::from_slice(strides),
        Role::Stat => dims.set.reduced_strides(rank, strides, true),
        Role::Parameter => dims.parameter_strides(rank, strides),
    };
    call.run(&sizes, along, dims.set)
}

fn native_group_norm_backward_out(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(1)?;
    let groups = Grouped::new(&input, [cx.int(5)?, cx.int(6)?, cx.int(7)?], 5, cx.int(8)?, 8)?;
    let call = BackwardCall::new(cx, [2, 3, 4], 9, 10, &groups.sizes[..2], &[input.size(1)])?;
    let along = |role: Role, strides: &[usize]| match role {
        Role::Like => groups.strides(strides),
        Role::Stat => Dims::from_slice(strides),
        Role::Parameter => Dims::from_slice(&groups.parameter_strides()),
    };
    call.run(&groups.sizes, along, groups.reduced())
}

/// The shape of a tensor.
#[derive(Clone, Copy)]
enum Role {
    /// The shape of the input.
    Like,
    /// The shape of the mean.
    Stat,
    /// The shape of the weight.
    Parameter,
}

/// The arguments that both operators share.
struct BackwardCall<'c, 'm> {
    cx: &'c KernelContext<'m>,
    grad: Tensor<'c>,
    input: Tensor<'c>,
    mean: Tensor<'c>,
    rstd: Tensor<'c>,
    weight: Option<Tensor<'c>>,
    mask: &'m [bool],
    first_out: usize,
    parameter_sizes: Dims,
}

impl<'c, 'm> BackwardCall<'c, 'm> {
    /// Reads and checks the arguments of a call. `mean`, `rstd`, `weight`, `mask` and `first_out` are their positions.
    fn new(
        cx: &'c KernelContext<'m>,
        [mean, rstd, weight]: [usize; 3],
        mask: usize,
        first_out: usize,
        stat_sizes: &[usize],
        parameter_sizes: &[usize],
    ) -> Result<Self> {
        let call = Self {
            cx,
            grad: cx.tensor(0)?,
            input: cx.tensor(1)?,
            mean: cx.tensor(mean)?,
            rstd: cx.tensor(rstd)?,
            weight: cx.optional_tensor(weight)?,
            mask: cx.bools(mask)?,
            first_out,
            parameter_sizes: Dims::from_slice(parameter_sizes)?,
        };
        check_floating(call.input.dtype(), 1)?;
        let input_sizes = call.input.sizes();
        let checks = [(&call.grad, input_sizes, 0), (&call.mean, stat_sizes, mean), (&call.rstd, stat_sizes, rstd)];
        for (tensor, sizes, index) in checks {
            check_floating(tensor.dtype(), index)?;
            check_sizes(tensor, sizes, index)?;
        }
        if let Some(tensor) = &call.weight {
            check_floating(tensor.dtype(), weight)?;
            check_sizes(tensor, parameter_sizes, weight)?;
        }
        if call.mask.len() != 3 {
            return Err(Error::invalid("output_mask needs three entries").arg(mask));
        }
        Ok(call)
    }

    /// Computes the gradients. `along` maps the strides of a tensor to strides along the dimensions `sizes`. The means are
    /// taken over the dimensions in `normalized`.
    fn run(&self, sizes: &[usize], along: impl Fn(Role, &[usize]) -> Result<Dims>, normalized: DimSet) -> Result<()> {
        if self.input.dtype() == ScalarType::Double {
            self.gradients::<f64>(sizes, along, normalized)
        } else {
            self.gradients::<f32>(sizes, along, normalized)
        }
    }

    /// Returns output `i` with these sizes, or `None` if its entry in the mask is false.
    fn out(&self, i: usize, sizes: &[usize]) -> Result<Option<TensorMut<'c>>> {
        if !self.mask[i] {
            return Ok(None);
        }
        let mut out = self.cx.out(self.first_out + i)?;
        check_floating(out.dtype(), self.first_out + i)?;
        out.resize(sizes).map_err(|e| e.arg(self.first_out + i))?;
        Ok(Some(out))
    }

    fn gradients<C: Float>(
        &self,
        sizes: &[usize],
        along: impl Fn(Role, &[usize]) -> Result<Dims>,
        normalized: DimSet,
    ) -> Result<()> {
        let inputs = Inputs::<C> {
            input: Reader::new(self.input)?,
            grad: Reader::new(self.grad)?,
            mean: Reader::new(self.mean)?,
            rstd: Reader::new(self.rstd)?,
            weight: self.weight.map(Reader::new).transpose()?,
        };
        let input = along(Role::Like, self.input.strides())?;
        let grad = along(Role::Like, self.grad.strides())?;
        let mean = along(Role::Stat, self.mean.strides())?;
        let rstd = along(Role::Stat, self.rstd.strides())?;
        if let Some(out) = self.out(0, self.input.sizes())? {
            let weight = match &self.weight {
                Some(weight) => along(Role::Parameter, weight.strides())?,
                None => Dims::filled(sizes.len(), 0)?,
            };
            let out_strides = along(Role::Like, out.strides())?;
            let nest = Nest::new(sizes, [&input, &grad, &mean, &rstd, &weight, &out_strides], normalized)?;
            let mut to = Writer::new(out)?;
            nest.groups(|group| inputs.input_gradient(group, nest.count(), &mut to))?;
        }
        let [weight, bias] = [self.out(1, &self.parameter_sizes)?, self.out(2, &self.parameter_sizes)?];
        let strides = |out: &Option<TensorMut<'_>>| match out {
            Some(out) => along(Role::Parameter, out.strides()),
            None => Dims::filled(sizes.len(), 0),
        };
        let (weight_strides, bias_strides) = (strides(&weight)?, strides(&bias)?);
        let all = [&*input, &grad, &mean, &rstd, &weight_strides, &bias_strides];
        let nest = Nest::new(sizes, all, self.summed(sizes, &along)?)?;
        let mut weight = weight.map(Writer::new).transpose()?;
        let mut bias = bias.map(Writer::new).transpose()?;
        if weight.is_none() && bias.is_none() {
            return Ok(());
        }
        nest.groups(|group| {
            let [scaled, plain] = inputs.parameter_gradients(group)?;
            let (columns, strides) = (group.columns, group.strides());
            if let Some(weight) = &mut weight {
                weight.scatter(group.offsets[4], strides[4], &scaled[..columns])?;
            }
            if let Some(bias) = &mut bias {
                bias.scatter(group.offsets[5], strides[5], &plain[..columns])?;
            }
            Ok(())
        })
    }

    /// The dimensions that a weight does not have. The gradient of a parameter is summed over them.
    fn summed(&self, sizes: &[usize], along: impl Fn(Role, &[usize]) -> Result<Dims>) -> Result<DimSet> {
        let parameter = along(Role::Parameter, &Dims::filled(self.parameter_sizes.len(), 1)?)?;
        let mut kept = parameter.iter().map(|&stride| stride != 0);
        Ok((0..sizes.len()).fold(DimSet::NONE, |set, dim| if kept.next() == Some(true) { set } else { set.with(dim) }))
    }
}

/// Inputs of the gradients.
///
/// The nests iterate over six tensors. The first four are the input, the gradient, the mean and the reciprocal deviation.
/// The last two are the weight and the input's gradient, or the gradients of weight and bias.
struct Inputs<'a, C> {
    input: Reader<'a, C>,
    grad: Reader<'a, C>,
    mean: Reader<'a, C>,
    rstd: Reader<'a, C>,
    weight: Option<Reader<'a, C>>,
}

/// `h`, the gradient of the output, and the reciprocal deviation of up to [`TILE`] neighbouring elements.
struct Tiles<C> {
    h: [C; TILE],
    grad: [C; TILE],
    rstd: [C; TILE],
}

impl<C: Float> Inputs<'_, C> {
    /// Calls `f` with each tile of the row, the position of its first element in the row, and its length.
    fn tiles(
        &self,
        row: &Row<6>,
        strides: [usize; 6],
        mut f: impl FnMut(&Tiles<C>, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut tiles = Tiles { h: [C::ZERO; TILE], grad: [C::ZERO; TILE], rstd: [C::ZERO; TILE] };
        let mut means = [C::ZERO; TILE];
        for start in (0..row.len).step_by(TILE) {
            let len = TILE.min(row.len - start);
            let read = |reader: &Reader<'_, C>, set: usize, to: &mut [C; TILE]| {
                read_along(reader, row.offsets[set] + start * strides[set], strides[set], &mut to[..len]);
            };
            read(&self.input, 0, &mut tiles.h);
            read(&self.grad, 1, &mut tiles.grad);
            read(&self.mean, 2, &mut means);
            read(&self.rstd, 3, &mut tiles.rstd);
            for ((h, &mean), &rstd) in tiles.h.iter_mut().zip(&means).zip(&tiles.rstd) {
                *h = h.sub(mean).mul(rstd);
            }
            f(&tiles, start, len)?;
        }
        Ok(())
    }

    /// Multiplies the gradients by the weights, which are the fifth tensor of the nest.
    fn weigh(&self, row: &Row<6>, stride: usize, start: usize, grads: &mut [C]) {
        if let Some(weight) = &self.weight {
            let mut weights = [C::ZERO; TILE];
            let weights = &mut weights[..grads.len()];
            read_along(weight, row.offsets[4] + start * stride, stride, weights);
            for (grad, &weight) in grads.iter_mut().zip(&*weights) {
                *grad = grad.mul(weight);
            }
        }
    }

    /// Computes the gradient of the input in two passes: the means of `g` and `g * h`, then the gradient.
    fn input_gradient(&self, group: &mut Group<'_, 6>, count: usize, to: &mut Writer<'_, C>) -> Result<()> {
        let (is_run, strides) = (group.is_run(), group.strides());
        let column = |i: usize| if is_run { 0 } else { i };
        let mut sums = [[0.0; COLUMNS]; 2];
        group.rows(|row| {
            self.tiles(&row, strides, |tiles, start, len| {
                let mut grad = tiles.grad;
                self.weigh(&row, strides[4], start, &mut grad[..len]);
                for (i, (&h, &g)) in tiles.h.iter().zip(&grad).take(len).enumerate() {
                    let i = column(start + i);
                    sums[0][i] += g.to_f64();
                    sums[1][i] += g.to_f64() * h.to_f64();
                }
                Ok(())
            })
        })?;
        let means = sums.map(|sums| sums.map(|sum| C::from_f64(sum / count as f64)));
        group.rows(|row| {
            self.tiles(&row, strides, |tiles, start, len| {
                let mut grad = tiles.grad;
                self.weigh(&row, strides[4], start, &mut grad[..len]);
                for (i, ((g, &h), &rstd)) in grad.iter_mut().zip(&tiles.h).zip(&tiles.rstd).take(len).enumerate() {
                    let i = column(start + i);
                    *g = g.sub(means[0][i]).sub(h.mul(means[1][i])).mul(rstd);
                }
                to.scatter(row.offsets[5] + start * strides[5], strides[5], &grad[..len])
            })
        })
    }

    /// Returns the gradients of the weight and of the bias for the columns of a group.
    fn parameter_gradients(&self, group: &mut Group<'_, 6>) -> Result<[[C; COLUMNS]; 2]> {
        let (is_run, strides) = (group.is_run(), group.strides());
        let mut sums = [[0.0; COLUMNS]; 2];
        group.rows(|row| {
            self.tiles(&row, strides, |tiles, start, len| {
                for (i, (&h, &g)) in tiles.h.iter().zip(&tiles.grad).take(len).enumerate() {
                    let i = if is_run { 0 } else { start + i };
                    sums[0][i] += g.to_f64() * h.to_f64();
                    sums[1][i] += g.to_f64();
                }
                Ok(())
            })
        })?;
        Ok(sums.map(|sums| sums.map(C::from_f64)))
    }
}

/// Reads elements `stride` apart; a stride of 0 repeats one.
fn read_along<C: Float>(reader: &Reader<'_, C>, offset: usize, stride: usize, to: &mut [C]) {
    if stride == 0 {
        let mut one = [C::ZERO];
        reader.gather(offset, 1, &mut one);
        to.fill(one[0]);
    } else {
        reader.gather(offset, stride, to);
    }
}
