//! Scores of tokens by their log probabilities.

use crate::sampling::{Weights, at_least, most_likely, top_k_threshold};

/// The log probability of a token. Probabilities are those of the model, before sampling changes them.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The natural logarithm of the token's probability.
    pub log_probability: f64,
    /// The most likely tokens with their log probabilities, the most likely first.
    pub alternatives: Vec<(u32, f64)>,
}

impl TokenScore {
    /// Returns the score of a token by its logits, with `count` alternatives.
    pub(crate) fn of(logits: &[f32], token: u32, count: usize) -> Self {
        let normalizer = log_sum_exp(logits);
        let mut alternatives: Vec<(u32, f32)> = match count {
            0 => Vec::new(),
            _ => at_least(logits, top_k_threshold(logits, count)).collect(),
        };
        alternatives.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        alternatives.truncate(count);
        let score = |(token, logit)| (token, log_softmax(logit, normalizer));
        Self {
            log_probability: log_softmax_of(logits, token, normalizer),
            alternatives: alternatives.into_iter().map(score).collect(),
        }
    }
}

/// Returns the natural logarithm of a token's probability, by the softmax of the logits. Negative infinity if its logit
/// is NaN.
pub(crate) fn log_probability(logits: &[f32], token: u32) -> f64 {
    log_softmax_of(logits, token, log_sum_exp(logits))
}

fn log_softmax_of(logits: &[f32], token: u32, normalizer: f64) -> f64 {
    logits.get(token as usize).map_or(f64::NEG_INFINITY, |logit| log_softmax(*logit, normalizer))
}

/// Returns the logarithm of a probability from its logit and the normalizer.
fn log_softmax(logit: f32, normalizer: f64) -> f64 {
    if logit.is_nan() || !normalizer.is_finite() { f64::NEG_INFINITY } else { f64::from(logit) - normalizer }
}

/// Returns the logarithm of the sum of exponentials of the logits, without NaN.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let max_logit = most_likely(logits).and_then(|token| logits.get(token as usize));
    max_logit.map_or(f64::NEG_INFINITY, |max_logit| {
        f64::from(*max_logit) + libm::log(Weights::of(logits, *max_logit, 1.0).total())
    })
}
