//! Mixtures of experts.

use rushlight_checkpoint::stack_rows;
use rushlight_graph::operators::{aten, rushlight};
use rushlight_graph::{Constant, Error, Expr, ValueId};

use super::Build;
use super::feed_forward::check_width;
use crate::decoder::Mixture;
use crate::family::{Experts, SharedExpert};

impl Build<'_> {
    /// Adds a mixture of experts on `[1, T, hidden]`. Each token goes to the experts with the largest probabilities,
    /// and these weight the results.
    pub(super) fn experts(
        &mut self,
        x: ValueId,
        prefix: &str,
        mixture: &Mixture,
        names: Experts,
    ) -> Result<ValueId, Error> {
        let (hidden, length) = (self.decoder.hidden, Expr::Symbol(self.length));
        let Mixture { count, chosen: experts_per_token, width, .. } = *mixture;
        let [columns, each] = [hidden, experts_per_token].map(|size| Expr::Int(size as i64));
        let scores = self.linear(x, &format!("{prefix}{}", names.router), hidden, Some(count))?;
        let scores = self.call("", aten::_SOFTMAX, vec![scores.into(), (-1).into(), false.into()])?;
        let args = vec![scores.into(), each.clone().into(), (-1).into(), true.into(), true.into()];
        let best = self.builder("").call(aten::TOPK, args)?;
        let [mut weights, indices] = best[..] else { return Err(Error::invalid("top-k without indices")) };
        if mixture.are_normalized {
            let sum = self.call("", aten::SUM_DIM_INTLIST, vec![weights.into(), [-1].into(), true.into()])?;
            weights = self.call("", aten::DIV_TENSOR, vec![weights.into(), sum.into()])?;
        }
        // One row for each pair of token and expert.
        let rows = length.mul(each.clone());
        let indices = self.view(indices, vec![rows.clone()])?;
        let token = self.view(x, vec![length.clone(), 1.into(), columns.clone()])?;
        let repeated = vec![length.clone(), each.clone(), columns.clone()];
        let repeated = self.call("", aten::EXPAND_COPY, vec![token.into(), repeated.into()])?;
        let row = self.view(repeated, vec![rows, columns.clone()])?;
        let layer = |build: &mut Self, x: ValueId, name: &str, [inputs, outputs]: [usize; 2]| {
            let (module, weight) = build.expert_weights(prefix, names.each, name, [count, outputs, inputs])?;
            let weight = build.constant(weight);
            let args = vec![x.into(), weight.into(), indices.into(), (count as i64).into()];
            build.call(&module, rushlight::EXPERTS_LINEAR, args)
        };
        let gate = layer(self, row, names.gate, [hidden, width])?;
        let up = layer(self, row, names.up, [hidden, width])?;
        let gated = self.gated(gate, up)?;
        let y = layer(self, gated, names.down, [width, hidden])?;
        let y = self.view(y, vec![length.clone(), each.clone(), columns.clone()])?;
        let weights = self.view(weights, vec![length.clone(), each, 1.into()])?;
        let y = self.call("", aten::MUL_TENSOR, vec![y.into(), weights.into()])?;
        let y = self.call("", aten::SUM_DIM_INTLIST, vec![y.into(), [1].into(), false.into()])?;
        let y = self.view(y, vec![1.into(), length, columns])?;
        match names.shared {
            Some(names) => {
                let shared = self.shared_expert(x, prefix, names)?;
                self.call("", aten::ADD_TENSOR, vec![y.into(), shared.into()])
            }
            None => Ok(y),
        }
    }

    /// Returns the module of a linear layer of all experts, and their weights as one matrix.
    fn expert_weights(
        &mut self,
        prefix: &str,
        each: Option<&str>,
        name: &str,
        sizes: [usize; 3],
    ) -> Result<(String, Constant), Error> {
        let [count, outputs, inputs] = sizes;
        let module = each.map_or_else(|| format!("{prefix}{name}_exps"), |each| format!("{prefix}{each}.{name}"));
        let part = |expert: usize| match each {
            Some(each) => format!("{prefix}{each}.{expert}.{name}.weight"),
            None => format!("{prefix}{name}.{expert}.weight"),
        };
        let whole = format!("{module}.weight");
        if each.is_none() && !self.tensors.contains(&part(0)) {
            return Ok((module, self.tensors.take(&whole, &sizes)?.stacked().constant()));
        }
        let parts = (0..count).map(|expert| Ok(self.tensors.take(&part(expert), &[outputs, inputs])?.constant()));
        let parts = parts.collect::<Result<_, Error>>()?;
        Ok((module, stack_rows(whole, parts, [outputs, inputs])?))
    }

    /// Adds the shared expert, multiplied by the sigmoid of its router.
    fn shared_expert(&mut self, x: ValueId, prefix: &str, names: SharedExpert) -> Result<ValueId, Error> {
        let hidden = self.decoder.hidden;
        let gate = self.linear(x, &format!("{prefix}{}", names.gate), hidden, None)?;
        let width = self.width(gate)?;
        check_width("shared_expert_intermediate_size", self.decoder.shared_expert, width)?;
        let up = self.linear(x, &format!("{prefix}{}", names.up), hidden, Some(width))?;
        let gated = self.gated(gate, up)?;
        let y = self.linear(gated, &format!("{prefix}{}", names.down), width, Some(hidden))?;
        let share = self.linear(x, &format!("{prefix}{}", names.router), hidden, Some(1))?;
        let share = self.call("", aten::SIGMOID, vec![share.into()])?;
        self.call("", aten::MUL_TENSOR, vec![y.into(), share.into()])
    }
}
