//! The largest elements of rows.

use rushlight_cpu_payload::TopK;
use rushlight_engine::Engine;
use rushlight_runtime::Result;

use super::RunStep;
use crate::memory::{StepContext, done};

impl RunStep for TopK {
    fn run(&self, _: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (found, reader) = cx.split(self.y)?;
        let columns = reader.dims(self.x).last().copied().unwrap_or(1);
        let k = reader.dims(self.y).last().copied().unwrap_or(1);
        let rows = reader.shapes.span(self.x).1.checked_div(columns).unwrap_or(0);
        let (values, indices) = found.split_at_mut(found.len() / 2);
        done(rushlight_engine::top_k([rows, columns, k], reader.floats(self.x)?, values, indices))
    }
}
