//! Attention over the cache of a layer.

use rushlight_graph::operators::{aten, llama};
use rushlight_graph::{Error, Expr, ValueId};

use super::Build;
use super::cache::Cache;
use super::rotary::Rotation;
use crate::decoder::Decoder;
use crate::family::{Joined, QkNorm};

impl Build<'_> {
    /// Adds attention on `[1, T, hidden]` over the cache of a layer.
    pub(super) fn attention(
        &mut self,
        x: ValueId,
        index: usize,
        prefix: &str,
        window: Option<usize>,
        rotation: Option<Rotation>,
    ) -> Result<ValueId, Error> {
        let Decoder { names, hidden, heads, kv_heads, head_dim, qk_norm, .. } = *self.decoder;
        let (wide, narrow) = (heads * head_dim, kv_heads * head_dim);
        let queries = if self.decoder.has_gated_attention { 2 * wide } else { wide };
        let [mut q, mut k, mut v] = match names.qkv {
            Joined::Apart([q, k, v]) => {
                let mut each = |name: &str, width| self.linear(x, &format!("{prefix}{name}"), hidden, Some(width));
                [each(q, queries)?, each(k, narrow)?, each(v, narrow)?]
            }
            Joined::One(name) => {
                let all = self.linear(x, &format!("{prefix}{name}"), hidden, Some(queries + 2 * narrow))?;
                self.split(all, [queries, narrow, narrow])?
            }
        };
        let mut gate = None;
        if self.decoder.has_gated_attention {
            let both = self.in_heads(q, heads, 2 * head_dim)?;
            let [queries, gates] = self.split(both, [head_dim; 2])?;
            let shape = vec![1.into(), Expr::Symbol(self.length), (wide as i64).into()];
            q = self.view(queries, shape.clone())?;
            gate = Some(self.view(gates, shape)?);
        }
        let (q_norm, k_norm) = (format!("{prefix}{}", names.q_norm), format!("{prefix}{}", names.k_norm));
        if qk_norm == QkNorm::Whole {
            q = self.norm(q, &q_norm, wide)?;
            k = self.norm(k, &k_norm, narrow)?;
        }
        q = self.in_heads(q, heads, head_dim)?;
        k = self.in_heads(k, kv_heads, head_dim)?;
        v = self.in_heads(v, kv_heads, head_dim)?;
        if qk_norm == QkNorm::Head {
            q = self.norm(q, &q_norm, head_dim)?;
            k = self.norm(k, &k_norm, head_dim)?;
        }
        if let Some(rotation) = rotation {
            q = self.rotated(q, rotation)?;
            k = self.rotated(k, rotation)?;
        }
        let cache = self.cache_of(window);
        let keys = self.cached(k, cache, index, "k_cache")?;
        let values = self.cached(v, cache, index, "v_cache")?;
        let scale = self.decoder.attention_scale;
        let attended = match (self.decoder.attention_cap, window) {
            (None, None) => {
                let start = Expr::Symbol(self.start);
                let args = vec![q.into(), keys.into(), values.into(), start.into()];
                let named = [("is_causal", true.into()), ("scale", scale.into())];
                self.builder("").one_with(llama::CUSTOM_SDPA, args, &named)?
            }
            (cap, window) => {
                let mask = self.mask(cache, window)?;
                self.masked_attention([q, keys, values], cache, mask, cap)?
            }
        };
        let mut flat = self.view(attended, vec![1.into(), Expr::Symbol(self.length), (wide as i64).into()])?;
        if let Some(gate) = gate {
            let gate = self.call("", aten::SIGMOID, vec![gate.into()])?;
            flat = self.call("", aten::MUL_TENSOR, vec![flat.into(), gate.into()])?;
        }
        self.linear(flat, &format!("{prefix}{}", names.o), wide, Some(hidden))
    }

    /// Adds attention with a mask of the keys that each query sees. Operands are `[1, T or S, heads, columns]`.
    fn masked_attention(
        &mut self,
        operands: [ValueId; 3],
        cache: Cache,
        mask: ValueId,
        cap: Option<f64>,
    ) -> Result<ValueId, Error> {
        let Decoder { heads, kv_heads, head_dim, attention_scale, .. } = *self.decoder;
        let mut turned = operands;
        for operand in &mut turned {
            *operand = self.permute(*operand, [0, 2, 1, 3])?;
        }
        let [q, k, v] = turned;
        let output = if cap.is_none() {
            let args = vec![q.into(), k.into(), v.into(), mask.into()];
            let named = [("scale", attention_scale.into()), ("enable_gqa", (heads != kv_heads).into())];
            self.builder("").one_with(aten::SCALED_DOT_PRODUCT_ATTENTION, args, &named)?
        } else {
            // The queries of heads that share keys are rows of one matrix.
            let (length, keys) = (Expr::Symbol(self.length), Expr::Int(cache.capacity as i64));
            let [shared, each, columns] = [kv_heads, heads / kv_heads, head_dim].map(|size| Expr::Int(size as i64));
            let rows = length.mul(each.clone());
            let q = self.view(q, vec![shared.clone(), rows.clone(), columns.clone()])?;
            let k = self.view(k, vec![shared.clone(), keys.clone(), columns.clone()])?;
            let v = self.view(v, vec![shared.clone(), keys.clone(), columns.clone()])?;
            let q = self.scaled(q, attention_scale)?;
            let k = self.permute(k, [0, 2, 1])?;
            let mut scores = self.call("", aten::BMM, vec![q.into(), k.into()])?;
            scores = self.capped(scores, cap)?;
            scores = self.view(scores, vec![shared.clone(), each, length.clone(), keys.clone()])?;
            let hidden = self.call("", aten::LOGICAL_NOT, vec![mask.into()])?;
            let args = vec![scores.into(), hidden.into(), f64::NEG_INFINITY.into()];
            scores = self.call("", aten::MASKED_FILL_SCALAR, args)?;
            scores = self.call("", aten::_SOFTMAX, vec![scores.into(), (-1).into(), false.into()])?;
            scores = self.view(scores, vec![shared, rows, keys])?;
            let output = self.call("", aten::BMM, vec![scores.into(), v.into()])?;
            self.view(output, vec![1.into(), (heads as i64).into(), length, columns])?
        };
        self.permute(output, [0, 2, 1, 3])
    }
}
