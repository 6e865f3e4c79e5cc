//! The sampler of ExecuTorch's runners.

use std::cmp::Ordering;

use super::{Choice, most_likely};
use crate::error::{Error, Result};

/// The sampler of ExecuTorch's runners, whose arithmetic is that of `float`: the same logits, temperature and seed give the tokens
/// that `executorch::extension::llm::Sampler` chooses. `exp` is that of the machine, as there. Of tokens that are equally likely the
/// lower comes first, where ExecuTorch has the order that its standard library's sort leaves.
#[derive(Clone, Debug)]
pub(super) struct ExecuTorchSampler {
    inverse_temperature: f32,
    random: u64,
    candidates: Vec<(u32, f32)>,
}

/// The nucleus of ExecuTorch's runners.
const TOP_P: f32 = 0.9;

impl ExecuTorchSampler {
    pub fn new(temperature: f32, seed: u64) -> Self {
        let inverse_temperature = if temperature == 0.0 { 0.0 } else { 1.0 / temperature };
        Self { inverse_temperature, random: seed, candidates: Vec::new() }
    }

    pub fn sample(&mut self, logits: &[f32]) -> Result<Choice> {
        let best = most_likely(logits).ok_or(Error::NoLogits)?;
        if self.inverse_temperature == 0.0 {
            return Ok(Choice { token: best, log_probability: 0.0 });
        }
        let probabilities = self.probabilities(logits);
        let coin = self.coin();
        let cutoff = (1.0 - TOP_P) / (probabilities.len() as f32 - 1.0);
        self.candidates.clear();
        let likely = (0..).zip(probabilities).filter(|(_, probability)| *probability >= cutoff);
        self.candidates.extend(likely);
        self.candidates.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal));
        let mut total = 0.0f32;
        let mut count = 0;
        for (_, probability) in &self.candidates {
            total += probability;
            count += 1;
            if total > TOP_P {
                break;
            }
        }
        self.candidates.truncate(count);
        let left = coin * total;
        let mut sum = 0.0f32;
        let chosen = self.candidates.iter().find(|(_, probability)| {
            sum += probability;
            left < sum
        });
        // There is no candidate in a vocabulary of one token, or if a logit is NaN.
        let Some((token, probability)) = chosen.or(self.candidates.last()).copied() else {
            return if logits.len() == 1 {
                Ok(Choice { token: best, log_probability: 0.0 })
            } else {
                Err(Error::NoLogits)
            };
        };
        Ok(Choice { token, log_probability: libm::log(f64::from(probability / total)) as f32 })
    }

    /// The softmax of the logits after the temperature.
    fn probabilities(&self, logits: &[f32]) -> Vec<f32> {
        let mut values: Vec<f32> = logits.iter().map(|logit| logit * self.inverse_temperature).collect();
        let mut max_logit = values.first().copied().unwrap_or_default();
        for value in &values {
            if *value > max_logit {
                max_logit = *value;
            }
        }
        let mut sum = 0.0f32;
        for value in &mut values {
            *value = (*value - max_logit).exp();
            sum += *value;
        }
        values.iter_mut().for_each(|value| *value /= sum);
        values
    }

    /// From 0 to below 1, of 24 bits of a xorshift* generator (Vigna 2016).
    fn coin(&mut self) -> f32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let bits = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        (bits >> 8) as f32 / 16_777_216.0
    }
}
