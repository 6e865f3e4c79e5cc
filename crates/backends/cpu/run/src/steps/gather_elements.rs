//! Elements of rows.

use rushlight_cpu_payload::GatherElements;
use rushlight_engine::Engine;
use rushlight_runtime::Result;

use super::RunStep;
use crate::memory::{StepContext, done};

impl RunStep for GatherElements {
    fn run(&self, _: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split(self.y)?;
        let columns = reader.dims(self.x).last().copied().unwrap_or(1);
        let k = reader.dims(self.index).last().copied().unwrap_or(1);
        let rows = y.len().checked_div(k).unwrap_or(0);
        let (x, index) = (reader.floats(self.x)?, reader.floats(self.index)?);
        done(rushlight_engine::gather_elements([rows, columns, k], x, index, y))
    }
}
