//! Scales and zero points that are chosen at run time.

use rushlight_cpu_payload::ChooseQparams;
use rushlight_engine::{DynamicQuantization, Engine};
use rushlight_runtime::Result;

use super::RunStep;
use crate::memory::{StepContext, done};

impl RunStep for ChooseQparams {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split(self.y)?;
        let [rows, columns] = reader.matrix(self.x)?;
        let Self { rule, per_tensor, range, .. } = *self;
        let shape = DynamicQuantization { rows, columns, rule, per_tensor, range };
        done(rushlight_engine::choose_qparams(engine, &shape, reader.floats(self.x)?, y))
    }
}
