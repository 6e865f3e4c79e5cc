//! Windows, folds, and other sizes.

use rushlight_cpu_payload::{Affine, AveragePool, PoolKind, Pooling, Reduce, Reduction, Resize, ResizeMode, Step};

use rushlight_graph::Error;
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Arg, Expr, ValueId};

use super::super::call::Call;
use super::super::error;
use super::super::view::View;
use super::Lowering;
use super::products::channels_last;

/// What an operator that reduces dimensions computes.
pub(in super::super) fn fold(name: &str) -> Option<Reduction> {
    Some(match name {
        "aten::mean.dim" | "aten::mean" => Reduction::Mean,
        "aten::sum.dim_IntList" | "aten::sum" => Reduction::Sum,
        "aten::amax" => Reduction::Max,
        "aten::amin" => Reduction::Min,
        name => return any_or_all(name),
    })
}

/// The same for operators of truth values.
pub(in super::super) fn any_or_all(name: &str) -> Option<Reduction> {
    Some(match name {
        "aten::any" | "aten::any.dim" | "aten::any.dims" => Reduction::Max,
        "aten::all" | "aten::all.dim" | "aten::all.dims" => Reduction::Min,
        _ => return None,
    })
}

/// The window of an adaptive pooling to any size, where the windows of all results are alike.
pub(in super::super) fn adaptive_window(call: &Call<'_>) -> Option<[u32; 2]> {
    let shape = call.shape(call.value("self").ok()?).ok()?;
    let ([.., height, width], Some([out_h, out_w])) = (shape, call.ints("output_size")?.first_chunk::<2>().copied())
    else {
        return None;
    };
    if (out_h, out_w) != (1, 1) && shape.len() != 4 {
        return None;
    }
    let window = |size: &Expr, out: i64| {
        let size = size.as_int().filter(|size| *size > 0)?;
        (out > 0 && size % out == 0).then(|| u32::try_from(size / out).ok()).flatten()
    };
    (shape.len() > 2).then_some([window(height, out_h)?, window(width, out_w)?])
}

/// The factors of a resizing, each if it is given; `None` if they are not known now.
pub(in super::super) fn scale_factors(call: &Call<'_>) -> Option<[Option<f32>; 2]> {
    let Some(arg) = call.arg("scale_factors") else { return Some([None; 2]) };
    let Arg::List(factors) = arg else { return None };
    let number = |arg: &Arg| match arg {
        Arg::Float(float) => Some(*float as f32),
        Arg::Int(int) => int.as_int().map(|int| int as f32),
        _ => None,
    };
    let factors: Vec<f32> = factors.iter().map(number).collect::<Option<_>>()?;
    factors.first_chunk::<2>().map(|factors| factors.map(Some))
}

/// The divisor of an average pooling, if it is given.
fn divisor_override(call: &Call<'_>) -> Option<u32> {
    call.int("divisor_override").and_then(|divisor| u32::try_from(divisor).ok())
}

impl Lowering<'_> {
    /// A picture in another size. Of bytes the nearest are bytes themselves, and others if they are rounded to bytes.
    pub(super) fn resize(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (input, order) = (call.value("input")?, channels_last(4));
        let is_bilinear = call.name() == "aten::upsample_bilinear2d.vec";
        let (x, affine, result) = if is_bilinear {
            self.rounded_with(input, &order, call.result()?)?
        } else {
            let x = self.held_in_order(input, &order)?;
            let affine = x.affine;
            (x, affine, call.result()?)
        };
        let y = self.plan.ordered_as(self.graph.tensor(result)?.shape.clone(), order, affine)?;
        let step = Resize {
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            mode: if is_bilinear { ResizeMode::Bilinear } else { ResizeMode::Nearest },
            align_corners: call.flag("align_corners"),
            scales: scale_factors(call).ok_or_else(|| call.missing("scale_factors", "known numbers"))?,
        };
        self.plan.step(self.label(call), Step::Resize(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// Means of windows that are alike; those of the whole picture are a fold.
    pub(super) fn adaptive_pool(&mut self, call: &Call<'_>) -> Result<(), Error> {
        if call.ints("output_size").is_some_and(|sizes| sizes == [1, 1]) {
            return self.reduce(call);
        }
        let result = call.result()?;
        let kernel = adaptive_window(call).ok_or_else(|| call.missing("output_size", "a divisor of the sizes"))?;
        let order = channels_last(4);
        let x = self.held_in_order(call.value("self")?, &order)?;
        let (affine, result) = self.mean_of(&x, result);
        let y = self.plan.ordered_as(self.graph.tensor(result)?.shape.clone(), order, affine)?;
        let step = Pooling {
            kind: PoolKind::Average(AveragePool { count_include_pad: false, divisor_override: None }),
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            kernel,
            stride: kernel,
            padding: [[0; 2]; 2],
            dilation: [1; 2],
        };
        self.plan.step(self.label(call), Step::Pooling(step));
        self.views.insert(result, y);
        Ok(())
    }

    /// What the bytes of a mean of `x` are, and which value they are: those of bytes become bytes at once.
    fn mean_of(&self, x: &View, result: ValueId) -> (Option<Affine>, ValueId) {
        match self.quantized_result(result).filter(|_| x.affine.is_some()) {
            Some((affine, quantized)) => (Some(affine), quantized),
            None => (None, result),
        }
    }

    /// Windows of volumes: of height and width first, then of depth. Both folds are over boxes, so that it is the same.
    pub(super) fn pool_volume(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (input, result) = (call.value("self")?, call.result()?);
        let order = channels_last(5);
        let x = self.in_order(input, &order)?;
        let triple = |name: &str| call.sizes(name, 3).map(|sizes| [sizes[0], sizes[1], sizes[2]]);
        let kernel = triple("kernel_size").ok_or_else(|| call.missing("kernel_size", "three sizes"))?;
        let (stride, padding) = (triple("stride").unwrap_or(kernel), triple("padding").unwrap_or([0; 3]));
        let dilation = triple("dilation").unwrap_or([1; 3]);
        let shape = self.graph.tensor(result)?.shape.clone();
        let ([n, c, d, h, w], [_, _, _, out_h, out_w]) = (x.shape.as_slice(), shape.as_slice()) else {
            return Err(call.missing("self", "a volume"));
        };
        let planes = [n.mul(d.clone()), c.clone(), h.clone(), w.clone()];
        let middle = [n.clone(), c.clone(), d.clone(), out_h.clone(), out_w.clone()];
        let between = self.plan.ordered(middle.to_vec(), order.clone())?;
        let y = self.plan.ordered(shape.clone(), order)?;
        let picture = |view: &View, shape: [Expr; 4]| View {
            offset: view.offset.clone(),
            ..View::ordered(view.buffer, shape.to_vec(), channels_last(4))
        };
        let divisor = divisor_override(call);
        let kind = |divisor_override| match call.name() {
            "aten::avg_pool3d" => {
                PoolKind::Average(AveragePool { count_include_pad: call.flag("count_include_pad"), divisor_override })
            }
            _ => PoolKind::Max,
        };
        let line = out_h.mul(out_w.clone());
        let [within, across] = [
            Pooling {
                kind: kind(divisor.map(|_| 1)),
                x: self.plan.tensor(&picture(&x, planes))?,
                y: self.plan.tensor(&picture(&between, [n.mul(d.clone()), c.clone(), out_h.clone(), out_w.clone()]))?,
                kernel: [kernel[1], kernel[2]],
                stride: [stride[1], stride[2]],
                padding: [[padding[1]; 2], [padding[2]; 2]],
                dilation: [dilation[1], dilation[2]],
            },
            Pooling {
                kind: kind(divisor),
                x: self.plan.tensor(&picture(&between, [n.clone(), c.clone(), d.clone(), line.clone()]))?,
                y: self.plan.tensor(&picture(&y, [n.clone(), c.clone(), shape[2].clone(), line]))?,
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

    pub(super) fn pool(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (input, result) = (call.value("self")?, call.result()?);
        let order = channels_last(4);
        let is_mean = call.name() == "aten::avg_pool2d";
        let x = self.held_in_order(input, &order)?;
        // The greatest number is the greatest byte.
        let (affine, result) = if is_mean { self.mean_of(&x, result) } else { (x.affine, result) };
        let y = self.plan.ordered_as(self.graph.tensor(result)?.shape.clone(), order, affine)?;
        let pair = |name: &str| call.sizes(name, 2).map(|sizes| [sizes[0], sizes[1]]);
        let kernel = pair("kernel_size").ok_or_else(|| call.missing("kernel_size", "two sizes"))?;
        let count_include_pad = call.flag("count_include_pad");
        let average = AveragePool { count_include_pad, divisor_override: divisor_override(call) };
        let step = Pooling {
            kind: if is_mean { PoolKind::Average(average) } else { PoolKind::Max },
            x: self.plan.tensor(&x)?,
            y: self.plan.tensor(&y)?,
            kernel,
            stride: pair("stride").unwrap_or(kernel),
            padding: pair("padding").unwrap_or([0; 2]).map(|size| [size; 2]),
            dilation: pair("dilation").unwrap_or([1; 2]),
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
        let dims = match call.int("dim") {
            _ if is_pool => Some(vec![-2, -1]),
            Some(dim) => Some(vec![dim]),
            None => call.ints("dim").filter(|dims| !dims.is_empty()),
        };
        let dims: Vec<usize> = match dims {
            Some(dims) => dims.into_iter().map(|index| wrap_dim(index, rank)).collect::<Option<_>>(),
            None => Some((0..rank).collect()),
        }
        .ok_or_else(|| error("a dimension that the tensor does not have"))?;
        let function = fold(call.name()).unwrap_or(Reduction::Mean);
        let is_mean = function == Reduction::Mean;
        let order = self.view(input)?.order;
        let mut x = if is_mean { self.held_in_order(input, &order)? } else { self.solid(input)? };
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
                x = if is_mean { self.held_in_order(input, &order)? } else { self.in_order(input, &order)? };
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
        let (affine, result) = self.mean_of(&x, result);
        let y = self.plan.ordered_as(out_shape, kept.iter().map(renumber).collect(), affine)?;
        let step = Reduce {
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
