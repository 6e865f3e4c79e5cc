//! The gated delta rule.

use rushlight_cpu_payload::DeltaRule;
use rushlight_engine::{DeltaRuleInputs, Engine};
use rushlight_runtime::Result;

use super::RunStep;
use crate::error::Unfit;
use crate::memory::{StepContext, done};
use crate::shapes::product;

impl RunStep for DeltaRule {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split(self.y)?;
        let [batch, tokens, heads, key_dim] = reader.image(self.q)?;
        let ([_, _, groups, _], [_, _, _, value_dim]) = (reader.image(self.k)?, reader.image(self.v)?);
        let decays = reader.dims(self.decay).get(3).copied().unwrap_or(1);
        let rule = rushlight_engine::DeltaRule { batch, tokens, heads, groups, key_dim, value_dim, decays };
        let inputs = DeltaRuleInputs {
            q: reader.floats(self.q)?,
            k: reader.floats(self.k)?,
            v: reader.floats(self.v)?,
            decay: reader.floats(self.decay)?,
            beta: reader.floats(self.beta)?,
            state: reader.floats(self.state)?,
        };
        let (end, len) = (product(Some(&[batch, tokens, heads, value_dim]))?, y.len());
        let (y, state) = y.split_at_mut_checked(end).ok_or(Unfit::Beyond { end, len })?;
        done(rushlight_engine::delta_rule(engine, &rule, inputs, y, state))
    }
}
