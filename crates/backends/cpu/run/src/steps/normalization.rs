//! Layer and RMS normalization.

use rushlight_cpu_payload::Normalization;
use rushlight_engine::Engine;
use rushlight_runtime::Result;

use super::RunStep;
use crate::bf16_choice::Choice;
use crate::error::Unfit;
use crate::memory::{StepContext, done};
use crate::shapes::product;

impl RunStep for Normalization {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader, _) = cx.split_float_slice(self.y)?;
        let dims = reader.dims(self.x);
        let normalized = Unfit::Count { what: "normalized dimensions", expected: dims.len(), got: self.dims as usize };
        let first = dims.len().checked_sub(self.dims as usize).ok_or(normalized)?;
        let columns = product(dims.get(first..))?;
        let rows = product(dims.get(..first))?;
        let shape = rushlight_engine::Normalization { rows, columns, eps: self.eps, centered: self.centered };
        let (weight, bias) = (reader.optional(self.weight)?, reader.optional(self.bias)?);
        done(rushlight_engine::normalize(engine, &shape, reader.floats(self.x)?, weight, bias, y))
    }

    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        choice.refuse(self.x) | choice.only_for_gemms(self.y)
    }
}
