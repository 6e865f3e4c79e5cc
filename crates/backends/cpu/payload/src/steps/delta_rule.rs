//! The gated delta rule.

use rushlight_format::ScalarType;

use crate::codec::structure;
use crate::tensors::Tensors;
use crate::{PayloadError, Sizes, StepKind, TensorId, Work};

/// The gated delta rule for each token and head: `S = decay S; S = S + k (beta (v - k' S)); y = q' S`. `S` is the
/// head's state. All tensors are dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaRule {
    /// `[batch, tokens, heads, K]`.
    pub q: TensorId,
    /// `[batch, tokens, groups, K]`.
    pub k: TensorId,
    /// `[batch, tokens, groups, V]`.
    pub v: TensorId,
    /// `[batch, tokens, groups]`, or `[batch, tokens, groups, K]`.
    pub decay: TensorId,
    /// `[batch, tokens, groups]`.
    pub beta: TensorId,
    /// The states before the step, `[batch, groups, K, V]`.
    pub state: TensorId,
    /// Results `[batch, tokens, heads, V]`, then the states after the step.
    pub y: TensorId,
}

structure! { DeltaRule { q, k, v, decay, beta, state, y } }

impl StepKind for DeltaRule {
    fn name(&self) -> &'static str {
        "delta rule"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.q, self.k, self.v, self.decay, self.beta, self.state].into_iter().for_each(visit);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let mut result = tensors.dtype(self.y, ScalarType::Float);
        self.for_each_input(&mut |tensor| result = result.and_then(|()| tensors.dtype(tensor, ScalarType::Float)));
        result
    }

    /// `(q + k) V` operations. The limit is `(q + k) y`: a result has V elements.
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        let rows = sizes.elements(self.q).saturating_add(sizes.elements(self.k));
        let (operations, y) = (rows.saturating_mul(sizes.last(self.v)), sizes.elements(self.y));
        Some(Work { operations, limit: rows.saturating_mul(y) })
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        // Prediction and change of the state for each key, and the result for each query.
        let [q, k] = [self.q, self.k].map(|tensor| sizes.elements(tensor) as f64);
        2.0 * (2.0 * k + q) * sizes.last(self.v) as f64
    }
}

#[cfg(test)]
impl crate::examples::Examples for DeltaRule {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        [(DeltaRule { q: 1, k: 2, v: 3, decay: 4, beta: 5, state: 6, y: 7 }, "1401020304050607")]
    }
}
