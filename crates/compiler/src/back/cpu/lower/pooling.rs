//! Windows and folds.

use rushlight_format::cpu::{Fold, Pooling, PoolingKind, Reduction, Step};

use crate::error::Error;
use crate::graph::Expr;
use crate::ops::wrap_dim;

use super::super::call::Call;
use super::super::error;
use super::Lowering;
use super::products::channels_last;

impl Lowering<'_> {
    pub(super) fn pool(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (input, result) = (call.value("self")?, call.result()?);
        let order = channels_last(4);
        let x = self.in_order(input, &order)?;
        let y = self.plan.ordered(self.graph.tensor(result)?.shape.clone(), order)?;
        let pair = |name: &str| call.sizes(name, 2).map(|sizes| [sizes[0], sizes[1]]);
        let kernel = pair("kernel_size").ok_or_else(|| call.missing("kernel_size", "two sizes"))?;
        let step = Pooling {
            kind: if call.name() == "aten::avg_pool2d" { PoolingKind::Mean } else { PoolingKind::Max },
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            kernel,
            stride: pair("stride").unwrap_or(kernel),
            padding: pair("padding").unwrap_or([0; 2]).map(|size| [size; 2]),
            dilation: pair("dilation").unwrap_or([1; 2]),
            count_padding: call.flag("count_include_pad"),
            divisor: call.int("divisor_override").and_then(|divisor| u32::try_from(divisor).ok()),
        };
        self.plan.step(self.label(call), Step::Pooling(step));
        self.views.insert(result, y);
        Ok(())
    }

    pub(super) fn reduce(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (input, result) = (call.value("self")?, call.result()?);
        let shape = call.shape(input)?.to_vec();
        let rank = shape.len();
        let is_pool = call.name() == "aten::_adaptive_avg_pool2d";
        let dims = if is_pool { Some(vec![-2, -1]) } else { call.ints("dim").filter(|dims| !dims.is_empty()) };
        let dims: Vec<usize> = match dims {
            Some(dims) => dims.into_iter().map(|index| wrap_dim(index, rank)).collect::<Option<_>>(),
            None => Some((0..rank).collect()),
        }
        .ok_or_else(|| error("a dimension that the tensor does not have"))?;
        let mut x = self.solid(input)?;
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
                order.extend(&dims);
                x = self.in_order(input, &order)?;
                first
            }
        };
        let keep = is_pool || call.flag("keepdim");
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
        let y = self.plan.ordered(out_shape, kept.iter().map(renumber).collect())?;
        let function = match call.name() {
            "aten::mean.dim" | "aten::_adaptive_avg_pool2d" => Fold::Mean,
            "aten::sum.dim_IntList" => Fold::Sum,
            "aten::amax" => Fold::Max,
            _ => Fold::Min,
        };
        let step = Reduction {
            function,
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            first: first as u32,
            count: dims.len() as u32,
        };
        self.plan.step(self.label(call), Step::Reduction(step));
        self.views.insert(result, y);
        Ok(())
    }
}
