//! Reductions.

use rushlight_cpu_payload::Reduce;
use rushlight_engine::{Data, Engine, QuantOut, Reduction};
use rushlight_runtime::Result;

use super::{FLOATS_ONLY, RunStep};
use crate::bf16_choice::Choice;
use crate::memory::{StepContext, done};
use crate::shapes::product;

impl RunStep for Reduce {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader, _) = cx.split_quant_out(self.y)?;
        let dims = reader.dims(self.x);
        let (first, count) = (self.first as usize, self.count as usize);
        let end = first.saturating_add(count);
        let outer = product(dims.get(..first))?;
        let reduced = product(dims.get(first..end))?;
        let inner = product(dims.get(end..))?;
        match (reader.data(self.x)?, y) {
            (Data::Bytes(x, affine), y) if self.op == Reduction::Mean => {
                done(rushlight_engine::mean_u8(engine, [outer, reduced, inner], x, affine, y))
            }
            (_, QuantOut::Floats(y)) => {
                let x = reader.float_slice(self.x)?;
                done(rushlight_engine::reduce(engine, self.op, outer, reduced, inner, x, y))
            }
            _ => Err(FLOATS_ONLY.into()),
        }
    }

    /// Reductions along another dimension than the innermost read bf16.
    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        let is_before_last = self.first.saturating_add(self.count) as usize + 1 == choice.dims(self.x).len();
        if is_before_last && choice.last(self.x).is_some_and(|size| size > 1) {
            choice.read(self.x) | choice.refuse(self.y)
        } else {
            choice.refuse_all(self)
        }
    }
}
