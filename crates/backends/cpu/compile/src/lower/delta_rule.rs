//! The gated delta rule.

use rushlight_cpu_payload::{DeltaRule as DeltaRuleStep, Step};

use rushlight_graph::{Call, Error, Expr};

use crate::error::error;
use crate::select::DeltaRule;
use crate::view::View;

use super::Lowering;

impl Lowering<'_> {
    /// The results of all positions, and behind them the states. These are stored when the call ends, so that one that fails in a later
    /// step leaves a session as it was: there are no positions by which to tell what was added.
    pub(super) fn delta_rule(&mut self, call: &Call<'_>, rule: DeltaRule) -> Result<(), Error> {
        let [result, last] = call.node.results[..] else { return Err(error("a delta rule without a state")) };
        // Heads of a position are next to each other, as linear layers give them.
        let positions_first = [0, 2, 1, 3];
        let rank = self.graph.tensor(rule.decay)?.rank();
        let q = self.in_order(rule.query, &positions_first)?;
        let k = self.in_order(rule.key, &positions_first)?;
        let v = self.in_order(rule.value, &positions_first)?;
        let decay = self.in_order(rule.decay, positions_first.get(..rank).unwrap_or(&positions_first))?;
        let beta = self.in_order(rule.beta, &[0, 2, 1])?;
        let state = self.dense(rule.state)?;
        let shape = self.graph.tensor(result)?.shape.clone();
        let results = Expr::product(&shape);
        let y = self.plan.dense(vec![results.add(Expr::product(&state.shape))])?;
        let step = DeltaRuleStep {
            q: self.plan.tensor(&q)?,
            k: self.plan.tensor(&k)?,
            v: self.plan.tensor(&v)?,
            decay: self.plan.tensor(&decay)?,
            beta: self.plan.tensor(&beta)?,
            state: self.plan.tensor(&state)?,
            y: self.plan.tensor(&y)?,
        };
        self.plan.step(self.label(call), Step::DeltaRule(step));
        let after = View { offset: results, ..View::dense(y.buffer, state.shape) };
        self.views.extend([(result, View::ordered(y.buffer, shape, positions_first.to_vec())), (last, after)]);
        Ok(())
    }
}
