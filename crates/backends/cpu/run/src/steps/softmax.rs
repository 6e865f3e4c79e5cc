//! Softmax.

use rushlight_cpu_payload::{CpuProgram, Softmax};
use rushlight_engine::{Engine, QuantOut, SoftmaxTable};
use rushlight_runtime::Result;

use super::RunStep;
use crate::memory::{NOT_QUANTIZED, StepContext, affine_of, done};
use crate::table::Table;

impl RunStep for Softmax {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split(self.y)?;
        let columns = reader.dims(self.x).last().copied().unwrap_or(1);
        let rows = y.len().checked_div(columns).unwrap_or(0);
        done(rushlight_engine::softmax(engine, rows, columns, self.log, reader.floats(self.x)?, y))
    }

    /// Computes the exponentials of bytes.
    fn table(&self, program: &CpuProgram) -> Option<Table> {
        let from = affine_of(program, self.x).filter(|_| !self.log)?;
        Some(Table::Softmax(Box::new(SoftmaxTable::new(from))))
    }

    fn run_with_table(&self, table: &Table, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let Table::Softmax(table) = table else { return self.run(engine, cx) };
        let (y, reader, _) = cx.split_quant_out(self.y)?;
        let QuantOut::Bytes(y, to) = y else { return Err(NOT_QUANTIZED.into()) };
        let columns = reader.dims(self.x).last().copied().unwrap_or(1);
        let rows = y.len().checked_div(columns).unwrap_or(0);
        done(rushlight_engine::softmax_u8(engine, rows, columns, table, reader.quantized(self.x)?, y, to))
    }
}
