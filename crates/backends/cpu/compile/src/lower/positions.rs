//! Lowers positions, and scatters to them.

use rushlight_cpu_payload::{Convert, ConvertedType, Direction, Scatter as ScatterStep, Step};

use rushlight_graph::{Call, Error, Expr, NodeId, ValueId};

use crate::error::error;
use crate::select::{Range, Scatter};
use crate::view::View;

use super::Lowering;

impl Lowering<'_> {
    /// Converts the caller's integers to floats. Each input is converted once, as a whole.
    pub(super) fn as_positions(&mut self, value: ValueId, view: View) -> Result<View, Error> {
        if let Some(buffer) = self.positions.get(&view.buffer) {
            return Ok(View { buffer: *buffer, ..view });
        }
        let whole = self.plan.input_of(&view).ok_or_else(|| error("positions that are no input"))?;
        let to = self.plan.dense(whole.shape.clone())?;
        let element = ConvertedType::Int64;
        let x = self.plan.window_of(&whole, &whole.dims(), element.dtype())?;
        let step = Convert { x, y: self.plan.tensor(&to)?, element, direction: Direction::Enter };
        self.plan.step(self.graph.values[value].name.clone(), Step::Convert(step));
        self.positions.insert(view.buffer, to.buffer);
        Ok(View { buffer: to.buffer, ..view })
    }

    /// Lowers consecutive integers to a window of a constant that counts from 0.
    pub(super) fn range(&mut self, call: &Call<'_>, range: &Range) -> Result<(), Error> {
        let result = call.result()?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let len = Expr::product(&shape);
        let last = range.start.add(len);
        let max = self.plan.max_size(&last)?;
        let numbers: Vec<f32> = (0..max).map(|number| number as f32).collect();
        let window = View::dense(self.plan.constant("positions", &numbers), shape);
        self.views.insert(result, View { offset: range.start.clone(), ..window });
        Ok(())
    }

    /// Writes slices at positions: in place, or in a copy of the input.
    pub(super) fn scatter(&mut self, id: NodeId, scatter: Scatter) -> Result<(), Error> {
        let Scatter { input, source, indices, dim, .. } = scatter;
        let call = Call::new(self.graph, id);
        let label = self.label(&call);
        let to = if self.in_place.contains(&id) {
            self.place(input)?
        } else {
            let from = self.view(input)?;
            let to = self.plan.ordered_as(from.shape.clone(), from.order.clone(), from.affine)?;
            self.copy(&label, &from, &to, None)?;
            to
        };
        let (from, indices) = (self.written_to(source, &to)?, self.dense(indices)?);
        let rest: Vec<usize> = to.order.iter().copied().filter(|other| *other != dim).collect();
        let whole = self.plan.whole(&to)?;
        let plan = &mut self.plan;
        let mut list = |exprs: &[Expr]| rest.iter().map(|dim| plan.size(&exprs[*dim])).collect::<Result<Vec<_>, _>>();
        let (sizes, x_strides, y_strides) = (list(&to.shape)?, list(&from.strides)?, list(&to.strides)?);
        let step = ScatterStep {
            x: self.plan.window(&from, &[from.span()])?,
            y: self.plan.window(&whole, &whole.shape)?,
            indices: self.plan.tensor(&indices)?,
            dim_size: self.plan.size(&to.shape[dim])?,
            sizes,
            x_offset: rushlight_cpu_payload::Size::Fixed(0),
            x_step: self.plan.size(&from.strides[dim])?,
            x_strides,
            y_offset: self.plan.size(&to.offset)?,
            y_step: self.plan.size(&to.strides[dim])?,
            y_strides,
        };
        self.plan.step(label, Step::Scatter(step));
        let result = call.result().map_err(|_| error("a scatter without a result"))?;
        self.store_at(result, to);
        Ok(())
    }
}
