//! Quantization with scales that are chosen at run time.

use rushlight_cpu_payload::QuantizeRows;
use rushlight_engine::{DynamicQuantization, Engine, ZeroPointRule};
use rushlight_runtime::Result;

use super::RunStep;
use crate::memory::{StepContext, done};

impl RunStep for QuantizeRows {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split_quantized(self.y)?;
        let (x, qparams) = (reader.floats(self.x)?, reader.floats(self.qparams)?);
        let dims = reader.dims(self.qparams);
        // A single row has one scale as well.
        let per_tensor = matches!(dims, [2 | 3, 1]);
        // Rules differ only in their factors once scales and zero points are chosen.
        let has_factors = dims.first() == Some(&3);
        let rule = if has_factors { ZeroPointRule::Inverse { half: None } } else { ZeroPointRule::MinError };
        let [rows, columns] = reader.matrix(self.x)?;
        let shape = DynamicQuantization { rows, columns, rule, per_tensor, range: self.range };
        done(rushlight_engine::quantize_rows(engine, &shape, x, qparams, y))
    }
}
