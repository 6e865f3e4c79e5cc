//! How likely tokens are.

/// How likely a token was. Probabilities are those of the model, before sampling changed them.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// The natural logarithm of the token's probability.
    pub log_probability: f64,
    /// The most likely tokens with theirs, the most likely first.
    pub alternatives: Vec<(u32, f64)>,
}

impl TokenScore {
    /// The score of a token by logits, with `count` alternatives.
    pub(crate) fn of(logits: &[f32], token: u32, count: usize) -> Self {
        let scores = log_probabilities(logits);
        let of = |token: u32| scores.get(token as usize).copied().unwrap_or(f64::NEG_INFINITY);
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        let by_score = |a: &u32, b: &u32| of(*b).total_cmp(&of(*a)).then(a.cmp(b));
        let count = count.min(order.len());
        if (1..order.len()).contains(&count) {
            order.select_nth_unstable_by(count - 1, by_score);
        }
        order.truncate(count);
        order.sort_unstable_by(by_score);
        Self { log_probability: of(token), alternatives: order.into_iter().map(|token| (token, of(token))).collect() }
    }
}

/// The natural logarithm of each token's probability, by the softmax of the logits; negative infinity for a logit that is no number.
fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let normalizer = log_sum_exp(logits);
    logits.iter().map(|logit| log_softmax(*logit, normalizer)).collect()
}

/// As [`log_probabilities`], of one token.
pub(crate) fn log_probability(logits: &[f32], token: u32) -> f64 {
    logits.get(token as usize).map_or(f64::NEG_INFINITY, |logit| log_softmax(*logit, log_sum_exp(logits)))
}

/// The logarithm of a probability whose logit and normalizer are known.
fn log_softmax(logit: f32, normalizer: f64) -> f64 {
    if logit.is_nan() || !normalizer.is_finite() { f64::NEG_INFINITY } else { f64::from(logit) - normalizer }
}

/// The logarithm of the sum of exponentials, of the logits that are numbers.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let numbers = || logits.iter().copied().filter(|logit| !logit.is_nan());
    let max = f64::from(numbers().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = numbers().map(|logit| libm::exp(f64::from(logit) - max)).sum();
    max + libm::log(sum)
}
