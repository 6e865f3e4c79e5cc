//! Lowering of data movement: views where strides allow it, which cost nothing, and copies elsewhere.

use rushlight_cpu_payload::Affine;

use rushlight_graph::Error;
use rushlight_graph::{Call, Def, Expr, ValueId};

use crate::error::error;
use crate::select::DataMovement;
use crate::view::View;

use super::Lowering;

/// The byte that represents a number exactly, if one does.
fn byte_of(affine: Affine, number: f32) -> Option<u8> {
    let level = (number / affine.scale()).round() + f32::from(affine.zero);
    let byte = (level >= f32::from(affine.min) && level <= f32::from(affine.max)).then_some(level as u8)?;
    ((level - f32::from(affine.zero)) * affine.scale() == number).then_some(byte)
}

/// The result of a view operator as a view of its input; `None` if that needs a copy.
fn viewed(view: &View, operator: &DataMovement, shape: &[Expr]) -> Option<View> {
    match operator {
        DataMovement::View { .. } | DataMovement::Squeeze { .. } => view.reshaped(shape),
        DataMovement::Alias { .. } => Some(view.clone()),
        DataMovement::Permute { dims, .. } => Some(view.permuted(dims)),
        DataMovement::Select { dim, index, .. } => Some(view.selected(*dim, index)),
        DataMovement::Slice { dim, start, step, .. } => {
            let mut view = view.sliced(*dim, start, &shape[*dim]);
            view.strides[*dim] = view.strides[*dim].mul(*step);
            Some(view)
        }
        _ => None,
    }
}

impl Lowering<'_> {
    pub(super) fn data_movement(&mut self, call: &Call<'_>, operator: &DataMovement) -> Result<(), Error> {
        let result = call.result()?;
        let shape = self.graph.tensor(result)?.shape.clone();
        if let Some(view) = operator.moved_value().and_then(|input| self.integer_inputs.get(&input)) {
            // Integers of the caller: what reads them says as what.
            let view = viewed(view, operator, &shape);
            let view = view.ok_or_else(|| Error::unsupported("a view of integers that would have to move"))?;
            self.integer_inputs.insert(result, view);
            return Ok(());
        }
        if let DataMovement::Permute { input, dims } = operator
            && let Some(rows) = self.cached_rows(*input)
            && dims.last() == Some(&(shape.len().saturating_sub(1)))
        {
            self.cached.insert(result, rows.permuted(dims));
            return Ok(());
        }
        let view = match operator {
            DataMovement::Fill(number) => self.filled(*number, shape),
            DataMovement::View { input }
            | DataMovement::Squeeze { input }
            | DataMovement::Alias { input }
            | DataMovement::Permute { input, .. }
            | DataMovement::Select { input, .. }
            | DataMovement::Slice { input, .. } => match viewed(&self.view(*input)?, operator, &shape) {
                Some(view) => view,
                None => {
                    let view = viewed(&self.stored_dense(*input)?, operator, &shape);
                    view.ok_or_else(|| error("a view of a dense tensor that would have to move"))?
                }
            },
            DataMovement::Strided { input, strides, offset } => {
                let mut order: Vec<usize> = (0..strides.len()).collect();
                order.sort_by_key(|dim| std::cmp::Reverse(strides[*dim]));
                let dense = self.dense(*input)?;
                let strides = strides.iter().copied().map(Expr::Int).collect();
                View { offset: dense.offset.add(*offset), shape, strides, order, ..dense }
            }
            DataMovement::Split { input, dim } => return self.split(call, *input, *dim),
            DataMovement::Expand { input } => return self.expand(*input, result, shape),
            DataMovement::Pad { input, pad, value } => self.pad(call, *input, pad, *value, shape)?,
            DataMovement::Roll { input, rolls } => self.roll(call, *input, rolls)?,
            DataMovement::SliceScatter { input, source, dim, start, size, step } => {
                let part = |to: &View| {
                    let mut part = to.sliced(*dim, start, size);
                    part.strides[*dim] = part.strides[*dim].mul(*step);
                    part
                };
                if self.is_in_place(result) {
                    let to = self.place(*input)?;
                    let from = self.written_to(*source, &to)?;
                    self.copy(&self.label(call), &from, &part(&to), None)?;
                    self.store_at(result, to);
                    return Ok(());
                }
                self.copy_and_overwrite(call, *input, *source, part)?
            }
            DataMovement::IndexSelect { input, dim, runs } => self.index_select(call, *input, *dim, runs, shape)?,
            DataMovement::Cat { inputs, dim } => return self.cat(call, inputs, *dim, result, &shape),
            DataMovement::Stack { inputs, dim } => return self.stack(call, inputs, *dim, result, &shape),
        };
        self.views.insert(result, view);
        Ok(())
    }

    /// One number, seen again and again.
    fn filled(&mut self, number: f32, shape: Vec<Expr>) -> View {
        let number = View::dense(self.plan.constant("number", &[number]), Vec::new());
        let strides = vec![Expr::Int(0); shape.len()];
        View { strides, order: (0..shape.len()).collect(), shape, ..number }
    }

    fn split(&mut self, call: &Call<'_>, input: ValueId, at: usize) -> Result<(), Error> {
        let from = self.view(input)?;
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

    fn pad(
        &mut self,
        call: &Call<'_>,
        input: ValueId,
        pad: &[i64],
        value: f32,
        shape: Vec<Expr>,
    ) -> Result<View, Error> {
        let from = self.view(input)?;
        if pad.iter().all(|size| *size == 0) {
            return Ok(from);
        }
        let (from, value) = match from.affine.map(|affine| byte_of(affine, value)) {
            // A number that no byte stands for is padding of floats.
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
        Ok(to)
    }

    /// True for the result of a scatter that writes a state where it is.
    fn is_in_place(&self, result: ValueId) -> bool {
        matches!(self.graph.values[result].def, Def::Result(node, _) if self.in_place.contains(&node))
    }

    /// A copy, a part of which is then overwritten.
    fn copy_and_overwrite(
        &mut self,
        call: &Call<'_>,
        input: ValueId,
        source: ValueId,
        part: impl Fn(&View) -> View,
    ) -> Result<View, Error> {
        let (mut from, mut written) = (self.view(input)?, self.view(source)?);
        if from.affine != written.affine {
            (from, written) = (self.floats(input)?, self.floats(source)?);
        }
        let to = self.plan.ordered_as(from.shape.clone(), from.order.clone(), from.affine)?;
        self.copy(&self.label(call), &from, &to, None)?;
        self.copy(&self.label(call), &written, &part(&to), None)?;
        Ok(to)
    }

    /// Copies two parts for each dimension that is rolled.
    fn roll(&mut self, call: &Call<'_>, input: ValueId, rolls: &[(usize, i64)]) -> Result<View, Error> {
        let from = self.view(input)?;
        let to = self.plan.ordered_as(from.shape.clone(), from.order.clone(), from.affine)?;
        let mut parts = vec![(from, to.clone())];
        for (at, shift) in rolls.iter().copied().filter(|(_, shift)| *shift != 0) {
            let halves = |(from, to): (View, View)| {
                let size = from.shape[at].clone();
                let (shift, rest) = (Expr::Int(shift), size.sub(shift));
                let first = (from.sliced(at, &Expr::Int(0), &rest), to.sliced(at, &shift, &rest));
                let last = (from.sliced(at, &rest, &shift), to.sliced(at, &Expr::Int(0), &shift));
                [first, last]
            };
            parts = parts.into_iter().flat_map(halves).collect();
        }
        for (from, to) in parts {
            self.copy(&self.label(call), &from, &to, None)?;
        }
        Ok(to)
    }

    fn cat(
        &mut self,
        call: &Call<'_>,
        inputs: &[ValueId],
        at: usize,
        result: ValueId,
        shape: &[Expr],
    ) -> Result<(), Error> {
        // In the order of the first input that is computed.
        let order = inputs.iter().find_map(|value| self.views.get(value)).map(|view| view.order.clone());
        let order = order.filter(|order| order.len() == shape.len()).unwrap_or_else(|| (0..shape.len()).collect());
        let (affine, result) = self.bytes_of_joined(inputs, result);
        let to = self.plan.ordered_as(shape.to_vec(), order, affine)?;
        let mut start = Expr::Int(0);
        for value in inputs {
            let from = self.held_as(*value, affine)?;
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

    /// The affine and the value of joined tensors: those of the node that quantizes the result, the affine that all have in
    /// common, or floats.
    fn bytes_of_joined(&self, inputs: &[ValueId], result: ValueId) -> (Option<Affine>, ValueId) {
        if let Some((affine, quantized)) = self.quantized_result(result) {
            return (Some(affine), quantized);
        }
        let held = |value: &ValueId| self.views.get(value).and_then(|view| view.affine);
        let first = inputs.first().and_then(held);
        (first.filter(|first| inputs.iter().all(|value| held(value) == Some(*first))), result)
    }

    /// A value as floats, or as bytes with an affine.
    pub(super) fn held_as(&mut self, value: ValueId, affine: Option<Affine>) -> Result<View, Error> {
        if affine.is_none() {
            return self.floats(value);
        }
        let view = self.view(value)?;
        if view.affine == affine {
            return Ok(view);
        }
        let from = self.stored_in_order(value, &view.order)?;
        self.converted("requantize", &from, affine)
    }

    fn stack(
        &mut self,
        call: &Call<'_>,
        inputs: &[ValueId],
        at: usize,
        result: ValueId,
        shape: &[Expr],
    ) -> Result<(), Error> {
        let (affine, result) = self.bytes_of_joined(inputs, result);
        let to = self.plan.ordered_as(shape.to_vec(), (0..shape.len()).collect(), affine)?;
        for (index, value) in inputs.iter().enumerate() {
            let from = self.held_as(*value, affine)?;
            let place = to.selected(at, &Expr::Int(index as i64));
            self.copy(&self.label(call), &from, &place, None)?;
        }
        self.views.insert(result, to);
        Ok(())
    }

    /// Constant indices: one copy for each run of neighbours.
    fn index_select(
        &mut self,
        call: &Call<'_>,
        input: ValueId,
        at: usize,
        runs: &[(i64, i64)],
        shape: Vec<Expr>,
    ) -> Result<View, Error> {
        if runs.is_empty() {
            // No step writes an element, and those that read the result need a place to read from.
            return Ok(self.filled(0.0, shape));
        }
        let from = self.view(input)?;
        let to = self.plan.ordered_as(shape, from.order.clone(), from.affine)?;
        let mut written = 0;
        for (start, len) in runs {
            let size = Expr::Int(*len);
            let (from, to) = (from.sliced(at, &Expr::Int(*start), &size), to.sliced(at, &Expr::Int(written), &size));
            self.copy(&self.label(call), &from, &to, None)?;
            written += len;
        }
        Ok(to)
    }
}
