//! Pooling, reductions and resizing.

use rushlight_cpu_payload::{
    Affine, AveragePool, PoolKind, Pooling as PoolingStep, Reduce as ReduceStep, Reduction as ReductionOp,
    Resize as ResizeStep, Step,
};

use rushlight_graph::Error;
use rushlight_graph::{Call, Expr, ValueId};

use crate::select::{Pooling, Reduction, Resize};
use crate::view::View;

use super::Lowering;
use super::gemm::channels_last;

impl Lowering<'_> {
    /// Images in another size. Nearest neighbours of bytes are bytes, and bilinear results if they are quantized.
    pub(super) fn resize(&mut self, call: &Call<'_>, resize: Resize) -> Result<(), Error> {
        let order = channels_last(4);
        let (x, affine, result) = if resize.is_nearest() {
            let x = self.stored_in_order(resize.input, &order)?;
            let affine = x.affine;
            (x, affine, call.result()?)
        } else {
            self.quantized_with(resize.input, &order, call.result()?)?
        };
        let y = self.plan.ordered_as(self.graph.tensor(result)?.shape.clone(), order, affine)?;
        let step = ResizeStep {
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            mode: resize.mode,
            align_corners: resize.align_corners,
            scales: resize.scales,
        };
        self.plan.step(self.label(call), Step::Resize(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// The affine and the value of a mean of `x`: one of bytes is quantized at once.
    fn mean_of(&self, x: &View, result: ValueId) -> (Option<Affine>, ValueId) {
        match self.quantized_result(result).filter(|_| x.affine.is_some()) {
            Some((affine, quantized)) => (Some(affine), quantized),
            None => (None, result),
        }
    }

    /// Pools volumes over height and width first, then over depth, which gives the same.
    pub(super) fn pool_volume(&mut self, call: &Call<'_>, pooling: Pooling<3>) -> Result<(), Error> {
        let Pooling { input, kind, kernel, stride, padding, dilation } = pooling;
        let result = call.result()?;
        let order = channels_last(5);
        let x = self.in_order(input, &order)?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let ([n, c, d, h, w], [_, _, _, out_h, out_w]) = (x.shape.as_slice(), shape.as_slice()) else {
            return Err(call.missing("self", "a volume"));
        };
        let planes = [n.mul(d.clone()), c.clone(), h.clone(), w.clone()];
        let middle = [n.clone(), c.clone(), d.clone(), out_h.clone(), out_w.clone()];
        let between = self.plan.ordered(middle.to_vec(), order.clone())?;
        let y = self.plan.ordered(shape.clone(), order)?;
        let image = |view: &View, shape: [Expr; 4]| View {
            offset: view.offset.clone(),
            ..View::ordered(view.buffer, shape.to_vec(), channels_last(4))
        };
        let pixels = out_h.mul(out_w.clone());
        // A given divisor divides once.
        let within_kind = match kind {
            PoolKind::Average(average) => {
                PoolKind::Average(AveragePool { divisor_override: average.divisor_override.map(|_| 1), ..average })
            }
            PoolKind::Max => PoolKind::Max,
        };
        let [within, across] = [
            PoolingStep {
                kind: within_kind,
                x: self.plan.tensor(&image(&x, planes))?,
                y: self.plan.tensor(&image(&between, [n.mul(d.clone()), c.clone(), out_h.clone(), out_w.clone()]))?,
                kernel: [kernel[1], kernel[2]],
                stride: [stride[1], stride[2]],
                padding: [[padding[1]; 2], [padding[2]; 2]],
                dilation: [dilation[1], dilation[2]],
            },
            PoolingStep {
                kind,
                x: self.plan.tensor(&image(&between, [n.clone(), c.clone(), d.clone(), pixels.clone()]))?,
                y: self.plan.tensor(&image(&y, [n.clone(), c.clone(), shape[2].clone(), pixels]))?,
                kernel: [kernel[0], 1],
                stride: [stride[0], 1],
                padding: [[padding[0]; 2], [0; 2]],
                dilation: [dilation[0], 1],
            },
        ];
        self.plan.step(self.label(call), Step::Pooling(within));
        self.plan.step(self.label(call), Step::Pooling(across));
        self.views.insert(result, y);
        Ok(())
    }

    pub(super) fn pool(&mut self, call: &Call<'_>, pooling: Pooling<2>) -> Result<(), Error> {
        let result = call.result()?;
        let order = channels_last(4);
        let x = self.stored_in_order(pooling.input, &order)?;
        // The maximum of bytes is that of the numbers.
        let (affine, result) = match pooling.kind {
            PoolKind::Max => (x.affine, result),
            PoolKind::Average(_) => self.mean_of(&x, result),
        };
        let y = self.plan.ordered_as(self.graph.tensor(result)?.shape.clone(), order, affine)?;
        let step = PoolingStep {
            kind: pooling.kind,
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            kernel: pooling.kernel,
            stride: pooling.stride,
            padding: pooling.padding.map(|size| [size; 2]),
            dilation: pooling.dilation,
        };
        self.plan.step(self.label(call), Step::Pooling(step));
        self.views.insert(result, y);
        Ok(())
    }

    pub(super) fn reduce(&mut self, call: &Call<'_>, reduction: &Reduction) -> Result<(), Error> {
        let Reduction { input, function, ref dims, keep } = *reduction;
        let result = call.result()?;
        let shape = call.shape(input)?.to_vec();
        let rank = shape.len();
        let is_mean = function == ReductionOp::Mean;
        let order = self.view(input)?.order;
        let mut x = if is_mean { self.stored_in_order(input, &order)? } else { self.non_overlapping_dense(input)? };
        // The reduced dimensions must be neighbours in memory.
        let neighbours = |order: &[usize]| {
            let first = order.iter().position(|dim| dims.contains(dim)).unwrap_or(0);
            order.iter().skip(first).take(dims.len()).all(|dim| dims.contains(dim)).then_some(first)
        };
        let first = match neighbours(&x.order) {
            Some(first) => first,
            None => {
                let mut order: Vec<usize> = (0..rank).filter(|dim| !dims.contains(dim)).collect();
                let first = order.len();
                order.extend(dims);
                x = if is_mean { self.stored_in_order(input, &order)? } else { self.in_order(input, &order)? };
                first
            }
        };
        let kept: Vec<usize> = x.order.iter().copied().filter(|dim| keep || !dims.contains(dim)).collect();
        let reduced: Vec<Expr> = shape
            .iter()
            .enumerate()
            .map(|(dim, size)| if dims.contains(&dim) { Expr::Int(1) } else { size.clone() })
            .collect();
        // Numbers of the dimensions among those that stay.
        let renumber = |dim: &usize| if keep { *dim } else { (0..*dim).filter(|other| !dims.contains(other)).count() };
        let out_shape: Vec<Expr> =
            (0..rank).filter(|dim| keep || !dims.contains(dim)).map(|dim| reduced[dim].clone()).collect();
        let (affine, result) = self.mean_of(&x, result);
        let y = self.plan.ordered_as(out_shape, kept.iter().map(renumber).collect(), affine)?;
        let step = ReduceStep {
            op: function,
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            first: first as u32,
            count: dims.len() as u32,
        };
        self.plan.step(self.label(call), Step::Reduce(step));
        self.views.insert(result, y);
        Ok(())
    }
}
