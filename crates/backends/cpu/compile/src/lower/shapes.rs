//! Operators that change how elements are arranged: where the arrangement in memory allows it they cost nothing.

use rushlight_cpu_payload::Affine;

use rushlight_graph::Error;
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Expr, ValueId};

use super::super::call::Call;
use super::super::error;
use super::super::view::View;
use super::Lowering;

/// Whether an operator is computed here.
pub(in super::super) fn takes(call: &Call<'_>) -> bool {
    match call.name() {
        // The reference operator compares what cannot be known here.
        "aten::view_copy" => keeps_elements(call) == Some(true),
        "aten::permute_copy"
        | "aten::unsqueeze_copy"
        | "aten::squeeze_copy.dims"
        | "aten::squeeze_copy.dim"
        | "aten::squeeze_copy"
        | "aten::expand_copy"
        | "aten::clone"
        | "aten::cat"
        | "aten::stack"
        | "aten::select_copy.int"
        | "aten::split_with_sizes_copy"
        | "aten::split_copy.Tensor" => true,
        "aten::slice_copy.Tensor" => call.int("step").is_some_and(|step| step > 0) && slice_start(call).is_some(),
        "aten::roll" => rolls(call).is_some(),
        "aten::slice_scatter" => call.int("step").is_some_and(|step| step > 0) && scatter_start(call).is_some(),
        "aten::as_strided_copy" => strided(call).is_some(),
        "aten::constant_pad_nd" => {
            call.ints("pad").is_some_and(|pad| pad.iter().all(|size| *size >= 0)) && call.number("value").is_some()
        }
        _ => filled_with(call).is_some(),
    }
}

/// Whether a result has as many elements as the tensor that it is a view of, whatever the sizes of inputs are.
fn keeps_elements(call: &Call<'_>) -> Option<bool> {
    let from = call.shape(call.value("self").ok()?).ok()?;
    let to = call.shape(call.result().ok()?).ok()?;
    Some(Expr::product(from) == Expr::product(to))
}

/// The number that an operator fills a tensor with.
pub(in super::super) fn filled_with(call: &Call<'_>) -> Option<f32> {
    match call.name() {
        "aten::full" | "aten::full_like" => call.number("fill_value").map(|number| number as f32),
        "aten::zeros" | "aten::zeros_like" => Some(0.0),
        "aten::ones" | "aten::ones_like" => Some(1.0),
        "aten::scalar_tensor" => call.number("s").map(|number| number as f32),
        _ => None,
    }
}

/// The dimension, the first index and the number of indices that are written by `slice_scatter`.
fn scatter_start(call: &Call<'_>) -> Option<(usize, Expr, Expr)> {
    let start = slice_start(call)?;
    let source = call.shape(call.value("src").ok()?).ok()?;
    let dim = wrap_dim(call.int("dim")?, source.len())?;
    Some((dim, start, source.get(dim)?.clone()))
}

/// Strides and offset of `as_strided_copy`, all known; the elements that it sees are those of the tensor.
fn strided(call: &Call<'_>) -> Option<(Vec<i64>, i64)> {
    let (sizes, strides) = (call.ints("size")?, call.ints("stride")?);
    let offset = if call.arg("storage_offset").is_some() { call.int("storage_offset")? } else { 0 };
    let count = Expr::product(call.shape(call.value("self").ok()?).ok()?).as_int()?;
    if sizes.len() != strides.len() || offset < 0 || strides.iter().chain(&sizes).any(|number| *number < 0) {
        return None;
    }
    let reach = sizes
        .iter()
        .zip(&strides)
        .try_fold(offset, |reach, (size, stride)| reach.checked_add((size - 1).max(0).checked_mul(*stride)?))?;
    (reach < count).then_some((strides, offset))
}

/// The first index of a slice, if it can be said.
fn slice_start(call: &Call<'_>) -> Option<Expr> {
    let rank = call.shape(call.value("self").ok()?).ok()?.len();
    let dim = wrap_dim(call.int("dim")?, rank)?;
    let size = call.shape(call.value("self").ok()?).ok()?.get(dim)?.clone();
    let start = match call.arg("start") {
        None => Expr::Int(0),
        Some(_) => call.expr("start")?,
    };
    Some(match (start.as_int(), size.as_int()) {
        (Some(start), Some(size)) if start < 0 => Expr::Int((start + size).max(0)),
        (Some(start), Some(size)) => Expr::Int(start.min(size)),
        (Some(start), None) if start < 0 => size.add(start),
        _ => start,
    })
}

/// The dimensions that are rolled, and by how much; sizes are known.
fn rolls(call: &Call<'_>) -> Option<Vec<(usize, i64)>> {
    let shape = call.shape(call.value("self").ok()?).ok()?;
    let (shifts, dims) = (call.ints("shifts")?, call.ints("dims")?);
    if shifts.len() != dims.len() || dims.is_empty() {
        return None;
    }
    let mut rolls: Vec<(usize, i64)> = Vec::new();
    for (shift, index) in shifts.iter().zip(&dims) {
        let at = wrap_dim(*index, shape.len())?;
        let size = shape.get(at)?.as_int().filter(|size| *size > 0)?;
        let shift = shift.rem_euclid(size);
        // A dimension may be rolled several times.
        match rolls.iter_mut().find(|(dim, _)| *dim == at) {
            Some((_, sum)) => *sum = (*sum + shift).rem_euclid(size),
            None => rolls.push((at, shift)),
        }
    }
    Some(rolls)
}

/// The byte that stands for a number, if one does.
fn byte_of(affine: Affine, number: f32) -> Option<u8> {
    let level = (number / affine.scale()).round() + f32::from(affine.zero);
    let byte = (level >= f32::from(affine.min) && level <= f32::from(affine.max)).then_some(level as u8)?;
    ((level - f32::from(affine.zero)) * affine.scale() == number).then_some(byte)
}

impl Lowering<'_> {
    pub(super) fn shape(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let result = call.result()?;
        let shape = self.graph.tensor(result)?.shape.clone();
        if call.name() == "aten::cat" {
            return self.cat(call, result, &shape);
        }
        if call.name() == "aten::stack" {
            return self.stack(call, result, &shape);
        }
        if let Some(number) = filled_with(call) {
            // One number, seen again and again.
            let number = View::dense(self.plan.constant("number", &[number]), Vec::new());
            let strides = vec![Expr::Int(0); shape.len()];
            let view = View { strides, order: (0..shape.len()).collect(), shape, ..number };
            self.views.insert(result, view);
            return Ok(());
        }
        let input = call.value("self")?;
        let view = match call.name() {
            "aten::view_copy"
            | "aten::unsqueeze_copy"
            | "aten::squeeze_copy.dims"
            | "aten::squeeze_copy.dim"
            | "aten::squeeze_copy" => {
                let view = self.view(input)?;
                match view.reshaped(&shape) {
                    Some(view) => view,
                    None => {
                        let dense = self.held_dense(input)?;
                        dense.reshaped(&shape).ok_or_else(|| error("a dense tensor that cannot be reshaped"))?
                    }
                }
            }
            "aten::clone" | "aten::alias_copy" => self.view(input)?,
            "aten::permute_copy" => {
                let rank = shape.len();
                let dims = call.ints("dims").unwrap_or_default();
                let dims: Option<Vec<usize>> = dims.into_iter().map(|index| wrap_dim(index, rank)).collect();
                self.view(input)?.permuted(&dims.ok_or_else(|| call.missing("dims", "dimensions"))?)
            }
            "aten::expand_copy" => return self.expand(input, result, shape),
            "aten::constant_pad_nd" => return self.pad(call, input, result, shape),
            "aten::select_copy.int" => {
                let from = self.view(input)?;
                let rank = from.shape.len();
                let at = call.int("dim").and_then(|index| wrap_dim(index, rank));
                let at = at.ok_or_else(|| call.missing("dim", "a dimension"))?;
                let index = call.expr("index").ok_or_else(|| call.missing("index", "a number"))?;
                let index =
                    if index.as_int().is_some_and(|index| index < 0) { from.shape[at].add(index) } else { index };
                from.selected(at, &index, &shape).ok_or_else(|| error("a selection that cannot be reshaped"))?
            }
            "aten::slice_copy.Tensor" => {
                let from = self.view(input)?;
                let at = call.int("dim").and_then(|index| wrap_dim(index, shape.len()));
                let at = at.ok_or_else(|| call.missing("dim", "a dimension"))?;
                let start = slice_start(call).ok_or_else(|| call.missing("start", "a number"))?;
                let mut view = from.sliced(at, &start, &shape[at]);
                view.strides[at] = view.strides[at].mul(call.int("step").unwrap_or(1));
                view
            }
            "aten::split_with_sizes_copy" | "aten::split_copy.Tensor" => return self.split(call, input),
            "aten::roll" => return self.roll(call, input, result),
            "aten::slice_scatter" => return self.slice_scatter(call, input, result),
            "aten::as_strided_copy" => {
                let (strides, offset) = strided(call).ok_or_else(|| call.missing("stride", "known strides"))?;
                let mut order: Vec<usize> = (0..strides.len()).collect();
                order.sort_by_key(|dim| std::cmp::Reverse(strides[*dim]));
                let dense = self.dense(input)?;
                let strides = strides.into_iter().map(Expr::Int).collect();
                View { offset: dense.offset.add(offset), shape, strides, order, ..dense }
            }
            "aten::index_select" => return self.index_select(call, input, result, shape),
            name => return Err(error(format!("`{name}` was taken, and cannot be lowered"))),
        };
        self.views.insert(result, view);
        Ok(())
    }

    fn split(&mut self, call: &Call<'_>, input: ValueId) -> Result<(), Error> {
        let from = self.view(input)?;
        let at = call.int("dim").and_then(|index| wrap_dim(index, from.shape.len()));
        let at = at.ok_or_else(|| call.missing("dim", "a dimension"))?;
        let mut start = Expr::Int(0);
        for result in &call.node.results {
            let size = self.graph.tensor(*result)?.shape[at].clone();
            let view = from.sliced(at, &start, &size);
            start = start.add(size);
            self.views.insert(*result, view);
        }
        Ok(())
    }

    fn expand(&mut self, input: ValueId, result: ValueId, shape: Vec<Expr>) -> Result<(), Error> {
        let from = self.view(input)?;
        let mut padded = vec![Expr::Int(1); shape.len().saturating_sub(from.shape.len())];
        padded.extend(from.shape.iter().cloned());
        // A size that depends on an input may turn out to be 1 or that of the result, and nothing else.
        if padded.iter().zip(&shape).any(|(from, size)| from != size && !from.is(1)) {
            let from = self.dense(input)?;
            let to = self.plan.dense(shape)?;
            let x = self.plan.window(&from, &padded)?;
            self.broadcast("expand", x, &to)?;
            self.views.insert(result, to);
            return Ok(());
        }
        // The same elements again and again: nothing is copied until something needs them side by side.
        let mut view =
            from.reshaped(&padded).ok_or_else(|| error("an expansion of a tensor that cannot be reshaped"))?;
        for (dim, size) in padded.iter().enumerate() {
            if *size != shape[dim] {
                view.strides[dim] = Expr::Int(0);
            }
        }
        view.shape = shape;
        self.views.insert(result, view);
        Ok(())
    }

    fn pad(&mut self, call: &Call<'_>, input: ValueId, result: ValueId, shape: Vec<Expr>) -> Result<(), Error> {
        let from = self.view(input)?;
        let pad = call.ints("pad").ok_or_else(|| call.missing("pad", "sizes"))?;
        if pad.iter().all(|size| *size == 0) {
            self.views.insert(result, from);
            return Ok(());
        }
        let value = call.number("value").unwrap_or(0.0) as f32;
        let (from, value) = match from.affine.map(|affine| byte_of(affine, value)) {
            // What is no byte of this scale is padding of floats.
            Some(None) => (self.floats(input)?, value),
            Some(Some(byte)) => (from, f32::from(byte)),
            None => (from, value),
        };
        let to = self.plan.ordered_as(shape, from.order.clone(), from.affine)?;
        let mut middle = to.clone();
        for (index, before) in pad.iter().step_by(2).enumerate() {
            let dim = from.shape.len().checked_sub(index + 1).ok_or_else(|| call.missing("pad", "fewer sizes"))?;
            middle = middle.sliced(dim, &Expr::Int(*before), &from.shape[dim]);
        }
        self.copy(&self.label(call), &from, &middle, Some(value))?;
        self.views.insert(result, to);
        Ok(())
    }

    /// A copy, part of which is then overwritten.
    fn slice_scatter(&mut self, call: &Call<'_>, input: ValueId, result: ValueId) -> Result<(), Error> {
        let (mut from, mut source) = (self.view(input)?, self.view(call.value("src")?)?);
        if from.affine != source.affine {
            (from, source) = (self.floats(input)?, self.floats(call.value("src")?)?);
        }
        let (at, start, size) = scatter_start(call).ok_or_else(|| call.missing("start", "a number"))?;
        let to = self.plan.ordered_as(from.shape.clone(), from.order.clone(), from.affine)?;
        self.copy(&self.label(call), &from, &to, None)?;
        let mut part = to.sliced(at, &start, &size);
        part.strides[at] = part.strides[at].mul(call.int("step").unwrap_or(1));
        self.copy(&self.label(call), &source, &part, None)?;
        self.views.insert(result, to);
        Ok(())
    }

    /// Pieces change places: two for each dimension that is rolled.
    fn roll(&mut self, call: &Call<'_>, input: ValueId, result: ValueId) -> Result<(), Error> {
        let from = self.view(input)?;
        let rolls = rolls(call).ok_or_else(|| call.missing("shifts", "numbers for known sizes"))?;
        let to = self.plan.ordered_as(from.shape.clone(), from.order.clone(), from.affine)?;
        let mut pieces = vec![(from, to.clone())];
        for (at, shift) in rolls.into_iter().filter(|(_, shift)| *shift != 0) {
            let halves = |(from, to): (View, View)| {
                let size = from.shape[at].clone();
                let (shift, rest) = (Expr::Int(shift), size.sub(shift));
                let first = (from.sliced(at, &Expr::Int(0), &rest), to.sliced(at, &shift, &rest));
                let last = (from.sliced(at, &rest, &shift), to.sliced(at, &Expr::Int(0), &shift));
                [first, last]
            };
            pieces = pieces.into_iter().flat_map(halves).collect();
        }
        for (from, to) in pieces {
            self.copy(&self.label(call), &from, &to, None)?;
        }
        self.views.insert(result, to);
        Ok(())
    }

    fn cat(&mut self, call: &Call<'_>, result: ValueId, shape: &[Expr]) -> Result<(), Error> {
        let inputs = call.values("tensors").ok_or_else(|| call.missing("tensors", "tensors"))?;
        let at = call.int("dim").and_then(|index| wrap_dim(index, shape.len()));
        let at = at.ok_or_else(|| call.missing("dim", "a dimension"))?;
        // In the order of the first input that is computed.
        let order = inputs.iter().find_map(|value| self.views.get(value)).map(|view| view.order.clone());
        let order = order.filter(|order| order.len() == shape.len()).unwrap_or_else(|| (0..shape.len()).collect());
        let (affine, result) = self.bytes_of_joined(&inputs, result);
        let to = self.plan.ordered_as(shape.to_vec(), order, affine)?;
        let mut start = Expr::Int(0);
        for value in inputs {
            let from = self.held_as(value, affine)?;
            if from.shape.len() != shape.len() {
                // An empty tensor of one dimension goes with everything.
                continue;
            }
            self.copy(&self.label(call), &from, &to.sliced(at, &start, &from.shape[at]), None)?;
            start = start.add(from.shape[at].clone());
        }
        self.views.insert(result, to);
        Ok(())
    }

    /// What the elements of joined tensors are held as, and which value they then are: the bytes of the node that quantizes
    /// the result, those that all have in common, or floats.
    fn bytes_of_joined(&self, inputs: &[ValueId], result: ValueId) -> (Option<Affine>, ValueId) {
        if let Some((affine, quantized)) = self.quantized_result(result) {
            return (Some(affine), quantized);
        }
        let held = |value: &ValueId| self.views.get(value).and_then(|view| view.affine);
        let first = inputs.first().and_then(held);
        (first.filter(|first| inputs.iter().all(|value| held(value) == Some(*first))), result)
    }

    /// A value as floats, or as bytes that stand for something.
    fn held_as(&mut self, value: ValueId, affine: Option<Affine>) -> Result<View, Error> {
        if affine.is_none() {
            return self.floats(value);
        }
        let view = self.view(value)?;
        if view.affine == affine {
            return Ok(view);
        }
        let from = self.held_in_order(value, &view.order)?;
        self.converted("requantize", &from, affine)
    }

    fn stack(&mut self, call: &Call<'_>, result: ValueId, shape: &[Expr]) -> Result<(), Error> {
        let inputs = call.values("tensors").ok_or_else(|| call.missing("tensors", "tensors"))?;
        let at = call.int("dim").and_then(|index| wrap_dim(index, shape.len()));
        let at = at.ok_or_else(|| call.missing("dim", "a dimension"))?;
        let (affine, result) = self.bytes_of_joined(&inputs, result);
        let to = self.plan.ordered_as(shape.to_vec(), (0..shape.len()).collect(), affine)?;
        for (index, value) in inputs.into_iter().enumerate() {
            let from = self.held_as(value, affine)?;
            let place = to.selected(at, &Expr::Int(index as i64), &from.shape);
            let place = place.ok_or_else(|| error("a place in a stack that cannot be reshaped"))?;
            self.copy(&self.label(call), &from, &place, None)?;
        }
        self.views.insert(result, to);
        Ok(())
    }

    /// Indices that are known: one copy for each run of neighbours.
    fn index_select(
        &mut self,
        call: &Call<'_>,
        input: ValueId,
        result: ValueId,
        shape: Vec<Expr>,
    ) -> Result<(), Error> {
        let from = self.view(input)?;
        let at = call.int("dim").and_then(|index| wrap_dim(index, shape.len()));
        let at = at.ok_or_else(|| call.missing("dim", "a dimension"))?;
        let constant = self.constant_of(call.value("index")?).ok_or_else(|| call.missing("index", "a constant"))?;
        let bytes = constant.read()?;
        let size = constant.ty.dtype.size();
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for index in bytes.chunks_exact(size) {
            let index = match *index {
                [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
                [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
                _ => return Err(call.missing("index", "integers")),
            };
            match runs.last_mut() {
                Some((start, len)) if *start + *len == index => *len += 1,
                _ => runs.push((index, 1)),
            }
        }
        let to = self.plan.ordered_as(shape, from.order.clone(), from.affine)?;
        let mut written = 0;
        for (start, len) in runs {
            let size = Expr::Int(len);
            let (from, to) = (from.sliced(at, &Expr::Int(start), &size), to.sliced(at, &Expr::Int(written), &size));
            self.copy(&self.label(call), &from, &to, None)?;
            written += len;
        }
        self.views.insert(result, to);
        Ok(())
    }
}
