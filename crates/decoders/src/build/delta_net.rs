//! Gated delta nets: linear attention with a state that decays (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024).

use rushlight_format::ScalarType;

use rushlight_graph::operators::{aten, llama};
use rushlight_graph::{Constant, Error, Expr, Target, TensorType, Update, ValueId};

use super::Build;
use super::layers::dense;
use crate::decoder::DeltaNet;

impl Build<'_> {
    /// A gated delta net of `[1, T, hidden]`. The states are the last inputs of the convolution, and a matrix for each head.
    pub(crate) fn delta_net(&mut self, x: ValueId, index: usize, prefix: &str) -> Result<ValueId, Error> {
        let hidden = self.decoder.hidden;
        let (Some(net), Some(names)) = (self.decoder.delta_net, self.decoder.names.delta_net) else {
            return Err(Error::invalid("a gated delta net without sizes"));
        };
        let DeltaNet { key_heads, value_heads, key_dim, value_dim, taps } = net;
        let module = |name: &str| format!("{prefix}{name}");
        let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
        let channels = 2 * keys + values;
        let qkv = self.linear(x, &module(names.qkv), hidden, Some(channels))?;
        let gate = self.linear(x, &module(names.gate), hidden, Some(values))?;
        let beta = self.linear(x, &module(names.beta), hidden, Some(value_heads))?;
        let decay = self.linear(x, &module(names.decay), hidden, Some(value_heads))?;

        let mixed = self.causal_convolution(qkv, index, &module(names.conv), [channels, taps])?;
        let mixed = self.call("", aten::SILU, vec![mixed.into()])?;
        let mixed = self.permute(mixed, [0, 2, 1])?;
        let [q, k, v] = self.split(mixed, [keys, keys, values])?;
        // Queries are scaled as those of attention are.
        let root = (key_dim as f64).sqrt();
        let q = self.unit_heads(q, &module("query_norm"), net, 1.0 / root)?;
        let k = self.unit_heads(k, &module("key_norm"), net, 1.0)?;
        let v = self.in_heads(v, value_heads, value_dim)?;
        let v = self.permute(v, [0, 2, 1, 3])?;

        let beta = self.call("", aten::SIGMOID, vec![beta.into()])?;
        let beta = self.permute(beta, [0, 2, 1])?;
        let decay = self.decay(decay, &module(names.decay_log), &module(names.decay_bias), value_heads)?;
        let decay = self.permute(decay, [0, 2, 1])?;

        let sizes = [1, value_heads, key_dim, value_dim].map(|size| size as i64);
        let name = format!("layers.{index}.recurrent_state");
        let (state, before) = self.state(&name, TensorType::of(ScalarType::Float, &sizes));
        let args = [q, k, v, decay, beta, before].map(Into::into).to_vec();
        let results = self.builder("").call(llama::GATED_DELTA_RULE, args)?;
        let [y, after] = results[..] else { return Err(Error::invalid("a delta rule without a state")) };
        self.graph.updates.push(Update { target: Target::State(state), value: after });

        let y = self.permute(y, [0, 2, 1, 3])?;
        let y = self.norm_with(y, &module(names.norm), value_dim, 0.0)?;
        let y = self.view(y, vec![1.into(), Expr::Symbol(self.length), (values as i64).into()])?;
        let gate = self.call("", aten::SILU, vec![gate.into()])?;
        let y = self.call("", aten::MUL_TENSOR, vec![y.into(), gate.into()])?;
        self.linear(y, &module(names.output), values, Some(hidden))
    }

    /// Heads `[1, value_heads, T, key_dim]` of `[1, T, key_heads * key_dim]`, each of length `scale`: `x * scale / sqrt(sum(x^2) + 1e-6)`,
    /// which is an RMS norm with other numbers.
    fn unit_heads(&mut self, x: ValueId, name: &str, net: DeltaNet, scale: f64) -> Result<ValueId, Error> {
        const EPS: f64 = 1e-6;
        let DeltaNet { key_heads, value_heads, key_dim, .. } = net;
        let [width, length] = [Expr::Int(key_dim as i64), Expr::Symbol(self.length)];
        let weight = ((scale / (key_dim as f64).sqrt()) as f32).to_le_bytes().repeat(key_dim);
        let weight = Constant::dense(name, TensorType::of(ScalarType::Float, &[key_dim as i64]), weight)?;
        let mut heads = self.in_heads(x, key_heads, key_dim)?;
        let (weight, eps) = (self.constant(weight), EPS / key_dim as f64);
        let args = vec![heads.into(), vec![width.clone()].into(), weight.into(), eps.into()];
        heads = self.call("", aten::RMS_NORM, args)?;
        if value_heads > key_heads {
            let [shared, each] = [key_heads, value_heads / key_heads].map(|size| Expr::Int(size as i64));
            let one = self.view(heads, vec![length.clone(), shared.clone(), 1.into(), width.clone()])?;
            let args = vec![one.into(), vec![length, shared, each, width].into()];
            let all = self.call("", aten::EXPAND_COPY, args)?;
            heads = self.in_heads(all, value_heads, key_dim)?;
        }
        self.permute(heads, [0, 2, 1, 3])
    }

    /// The factors of the state, `exp(-exp(log) * softplus(x + bias))`, of `[1, T, heads]`.
    fn decay(&mut self, x: ValueId, log: &str, bias: &str, heads: usize) -> Result<ValueId, Error> {
        let bias = dense(self.tensors.take(bias, &[heads])?, |x| x)?;
        let rate = dense(self.tensors.take(log, &[heads])?, |log| -log.exp())?;
        let (bias, rate) = (self.constant(bias), self.constant(rate));
        let mut builder = self.builder("");
        let x = builder.one_with(aten::ADD_TENSOR, vec![x.into(), bias.into()], &[("alpha", 1.into())])?;
        let x = builder.one(aten::SOFTPLUS, vec![x.into()])?;
        let x = builder.one(aten::MUL_TENSOR, vec![x.into(), rate.into()])?;
        builder.one(aten::EXP, vec![x.into()])
    }
}
