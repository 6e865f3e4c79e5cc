//! Rows of a table.

use rushlight_cpu_payload::{Gather, TableFormat};
use rushlight_engine::{Engine, Table};
use rushlight_format::ScalarType;
use rushlight_runtime::Result;

use super::RunStep;
use crate::memory::{StepContext, done};

impl RunStep for Gather {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split(self.y)?;
        let columns = reader.dims(self.y).last().copied().unwrap_or(1);
        let table = match self.format {
            TableFormat::F32 => Table::Floats(reader.floats(self.table)?),
            TableFormat::Quantized { format, rows } => {
                Table::Quantized(reader.quantized_weights(self.table, &format.matrix(columns, rows as usize))?)
            }
        };
        match reader.dtype(self.indices) {
            Some(ScalarType::Int) => {
                done(rushlight_engine::gather(engine, columns, table, reader.input::<i32>(self.indices)?, y))
            }
            Some(ScalarType::Float) => {
                done(rushlight_engine::gather(engine, columns, table, reader.floats(self.indices)?, y))
            }
            _ => done(rushlight_engine::gather(engine, columns, table, reader.input::<i64>(self.indices)?, y)),
        }
    }
}
