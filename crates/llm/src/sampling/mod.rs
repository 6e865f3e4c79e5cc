//! Samples a token from logits.
//!
//! The order is that of transformers. Bias and penalties change logits, and the temperature scales them. Then top-k,
//! top-p, min-p and locally typical sampling each remove some of the remaining tokens. All arithmetic is portable, so a
//! seed gives the same tokens on every machine for the same logits. Only ExecuTorch's sampler uses the machine's own
//! exponential function.

mod dry;
mod executorch;
mod vocabulary;

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::error::{Error, Result};
pub use dry::Dry;
use executorch::ExecuTorchSampler;
use vocabulary::{NEGLIGIBLE, set_exponentials};
pub(crate) use vocabulary::{Weights, at_least, most_likely, top_k_threshold};

/// Options of sampling. The default chooses the most likely token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits; 0 chooses the most likely token.
    pub temperature: f32,
    /// Keeps the `top_k` most likely tokens, with ties of the last of them; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most likely tokens that together have this probability (nucleus sampling, Holtzman et al. 2019); 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens of at least this probability, relative to that of the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Keeps the tokens whose surprisal is closest to the entropy, until they have this cumulative probability (Meister
    /// et al. 2022); 1 keeps all.
    pub typical_p: f32,
    /// Divides positive logits, and multiplies negative ones, of tokens that occur in the prompt or the answer (Keskar et
    /// al. 2019); 1 changes nothing.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens that were generated.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token once for each time that it was generated.
    pub frequency_penalty: f32,
    /// Penalizes tokens that would continue a repetition.
    pub dry: Option<Dry>,
    /// Keeps the surprisal of the answer near a target, in place of top-k, top-p, min-p and locally typical sampling.
    pub mirostat: Option<Mirostat>,
    /// Samples like ExecuTorch's runners, bit for bit for logits of f32. It uses the temperature, the seed, which must
    /// not be 0, and a nucleus of 0.9. All other options are ignored.
    pub executorch: bool,
    /// Added to logits of tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random number generator.
    pub seed: u64,
}

impl Default for Sampling {
    /// [`RANDOM`](Self::RANDOM), the default of all languages and of the command line.
    fn default() -> Self {
        Self::RANDOM
    }
}

impl Sampling {
    /// Chooses the most likely token.
    pub const GREEDY: Self = Self::of(0.0, 0, 1.0, 0.0);

    /// The defaults of llama.cpp, which are those of [`GenerationOptions`](crate::GenerationOptions).
    pub const RANDOM: Self = Self::of(0.8, 40, 0.95, 0.05);

    const fn of(temperature: f32, top_k: usize, top_p: f32, min_p: f32) -> Self {
        Self {
            temperature,
            top_k,
            top_p,
            min_p,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry: None,
            mirostat: None,
            executorch: false,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// Mirostat 2 (Basu et al. 2021): removes tokens whose surprisal is above a bound. The bound begins at twice the target.
/// After each choice, it moves by the difference between the target and the surprisal of the chosen token among the kept
/// ones, times `eta`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// Target of the surprisal, in bits.
    pub tau: f32,
    /// Rate at which the bound moves.
    pub eta: f32,
}

impl Mirostat {
    /// The values of llama.cpp.
    pub const DEFAULT: Self = Self { tau: 5.0, eta: 0.1 };
}

impl Default for Mirostat {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A token that was sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    pub token: u32,
    /// The natural logarithm of its probability among the tokens that top-k, top-p and the others kept.
    pub log_probability: f32,
}

/// Chooses tokens, and remembers them.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: Sampling,
    random: Random,
    /// Counts of each token: in the prompt, and in the answer.
    seen: HashMap<u32, [u32; 2]>,
    /// All tokens so far, if penalties for repetitions need them.
    tokens: Vec<u32>,
    /// The bound of mirostat, in bits.
    surprisal: f64,
    executorch: Option<ExecuTorchSampler>,
    /// The candidates of a step, in the order of tokens.
    candidates: Vec<Candidate>,
    /// A buffer for the candidates in another order.
    ordered: Vec<Candidate>,
    /// A buffer for the logits after bias and penalties.
    penalized: Vec<f32>,
}

/// A token that may be chosen.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: u32,
    logit: f32,
    probability: f64,
}

impl Sampler {
    /// Creates a sampler that has seen no tokens.
    ///
    /// # Errors
    /// `Option` for a value outside of its range.
    pub fn new(options: Sampling) -> Result<Self> {
        options.check()?;
        let random = Random(options.seed);
        let surprisal = options.mirostat.map_or(0.0, |mirostat| 2.0 * f64::from(mirostat.tau));
        let executorch = options.executorch.then(|| ExecuTorchSampler::new(options.temperature, options.seed));
        Ok(Self {
            options,
            random,
            seen: HashMap::new(),
            tokens: Vec::new(),
            surprisal,
            executorch,
            candidates: Vec::new(),
            ordered: Vec::new(),
            penalized: Vec::new(),
        })
    }

    /// Records tokens of the prompt, for the repetition penalty and DRY.
    pub fn observe_prompt(&mut self, tokens: &[u32]) {
        if self.options.dry.is_some() {
            self.tokens.extend_from_slice(tokens);
        }
        tokens.iter().for_each(|token| self.seen.entry(*token).or_default()[0] += 1);
    }

    /// Chooses a token and records it.
    ///
    /// # Errors
    /// `NoLogits` if no logit is a number above negative infinity.
    pub fn sample(&mut self, logits: &[f32]) -> Result<Choice> {
        if let Some(sampler) = &mut self.executorch {
            return sampler.sample(logits);
        }
        let choice = self.with_penalties(logits, Self::choose)?;
        if let Some(Mirostat { tau, eta }) = self.options.mirostat {
            let bits = -f64::from(choice.log_probability) / std::f64::consts::LN_2;
            self.surprisal -= f64::from(eta) * (bits - f64::from(tau));
        }
        if self.options.dry.is_some() {
            self.tokens.push(choice.token);
        }
        self.seen.entry(choice.token).or_default()[1] += 1;
        Ok(choice)
    }

    /// Returns the tokens that may be chosen, with their probabilities: the most likely first, and the lower token
    /// first among equals. ExecuTorch's sampler is not covered.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn distribution(&mut self, logits: &[f32]) -> Result<Vec<(u32, f64)>> {
        self.with_penalties(logits, Self::fill)?;
        self.candidates.sort_unstable_by(by_likelihood);
        Ok(self.candidates.iter().map(|candidate| (candidate.token, candidate.probability)).collect())
    }

    /// Calls a function with the logits after bias and penalties.
    fn with_penalties<T>(&mut self, logits: &[f32], f: impl FnOnce(&mut Self, &[f32]) -> T) -> T {
        let mut penalized = std::mem::take(&mut self.penalized);
        let is_changed = self.penalize(logits, &mut penalized);
        let result = f(self, if is_changed { &penalized } else { logits });
        self.penalized = penalized;
        result
    }

    fn choose(&mut self, logits: &[f32]) -> Result<Choice> {
        let Sampling { temperature, top_k, top_p, min_p, typical_p, mirostat, .. } = self.options;
        let keeps_all = top_p >= 1.0 && min_p == 0.0 && typical_p >= 1.0 && mirostat.is_none();
        if keeps_all && temperature > 0.0 && !(1..logits.len()).contains(&top_k) {
            let max_logit = argmax(logits)?.1;
            if max_logit < f32::INFINITY {
                let cumulative = self.random.next_f64();
                let (token, probability) =
                    Weights::of(logits, max_logit, temperature).at_cumulative(cumulative).ok_or(Error::NoLogits)?;
                return Ok(Choice { token, log_probability: libm::log(probability) as f32 });
            }
        }
        self.fill(logits)?;
        Ok(self.choose_candidate())
    }

    /// Sets the candidates and their probabilities.
    fn fill(&mut self, logits: &[f32]) -> Result<()> {
        let Sampling { temperature, top_k, top_p, min_p, typical_p, mirostat, .. } = self.options;
        let (best, max_logit) = argmax(logits)?;
        self.candidates.clear();
        if temperature == 0.0 || max_logit == f32::INFINITY {
            self.candidates.push(Candidate { token: best, logit: max_logit, probability: 1.0 });
            return Ok(());
        }
        let total_weight = || Weights::of(logits, max_logit, temperature).total();
        if mirostat.is_some() {
            let total = total_weight();
            // Mirostat keeps at least the most likely token.
            self.collect(logits, max_logit, (libm::exp2(-self.surprisal) * total).min(1.0));
            self.divide_by(total);
            self.keep_below_surprisal();
            return Ok(());
        }
        if (1..logits.len()).contains(&top_k) {
            let threshold = top_k_threshold(logits, top_k);
            self.collect(logits, max_logit, libm::exp(f64::from((threshold - max_logit) / temperature)));
            if top_k < self.candidates.len() {
                self.ordered.clone_from(&self.candidates);
                let (_, last, _) = self.ordered.select_nth_unstable_by(top_k - 1, |a, b| b.logit.total_cmp(&a.logit));
                let min_logit = last.logit;
                self.candidates.retain(|candidate| candidate.logit >= min_logit);
            }
            self.normalize();
        } else if top_p < 1.0 {
            let total = total_weight();
            // All tokens below this probability together have less than `1 - top_p`, so the nucleus has none of them.
            self.collect(logits, max_logit, (1.0 - f64::from(top_p)) / logits.len() as f64 * total);
            self.divide_by(total);
        } else {
            self.collect(logits, max_logit, f64::from(min_p));
            self.normalize();
        }
        if top_p < 1.0 {
            self.keep_first(f64::from(top_p), by_likelihood);
        }
        if min_p > 0.0 {
            let max = self.candidates.iter().fold(0.0f64, |max, candidate| max.max(candidate.probability));
            self.candidates.retain(|candidate| candidate.probability >= f64::from(min_p) * max);
            self.normalize();
        }
        if typical_p < 1.0 {
            self.keep_typical(f64::from(typical_p));
        }
        Ok(())
    }

    /// Collects candidates: all tokens whose probability, relative to that of the most likely one, is at least
    /// `min_ratio`, and perhaps some with slightly less. `max_logit` is the logit of the most likely token.
    fn collect(&mut self, logits: &[f32], max_logit: f32, min_ratio: f64) {
        /// More than the error of logarithms, products and quotients in single precision.
        const SLACK: f32 = 1e-3;
        let temperature = self.options.temperature;
        let scaled = (libm::log(min_ratio) as f32 - SLACK).max(-NEGLIGIBLE);
        let likely = at_least(logits, max_logit + scaled * temperature - max_logit.abs() * f32::EPSILON);
        let candidate =
            |(token, logit)| Candidate { token, logit: (logit - max_logit) / temperature, probability: 0.0 };
        self.candidates.extend(likely.map(candidate));
        let candidates = &mut self.candidates;
        set_exponentials(candidates, |candidate| candidate.logit, |candidate, weight| candidate.probability = weight);
        // The slack may let in tokens without any probability.
        candidates.retain(|candidate| candidate.probability > 0.0);
    }

    /// Writes logits with bias and penalties. Returns false if there are none.
    fn penalize(&self, logits: &[f32], out: &mut Vec<f32>) -> bool {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, ref logit_bias, .. } = self.options;
        let penalizes = repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
        let dry = self.options.dry.as_ref();
        if !penalizes && logit_bias.is_empty() && dry.is_none() {
            return false;
        }
        out.clear();
        out.extend_from_slice(logits);
        for (token, bias) in logit_bias {
            if let Some(logit) = out.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        for (token, [_, generated]) in self.seen.iter().filter(|_| penalizes) {
            let Some(logit) = out.get_mut(*token as usize) else { continue };
            *logit = if *logit < 0.0 { *logit * repetition_penalty } else { *logit / repetition_penalty };
            if *generated > 0 {
                *logit -= presence_penalty + frequency_penalty * *generated as f32;
            }
        }
        if let Some(dry) = dry {
            dry.penalize(&self.tokens, out);
        }
        true
    }

    /// Normalizes the probabilities of the candidates.
    fn normalize(&mut self) {
        let sum = self.candidates.iter().map(|candidate| candidate.probability).sum();
        self.divide_by(sum);
    }

    fn divide_by(&mut self, sum: f64) {
        self.candidates.iter_mut().for_each(|candidate| candidate.probability /= sum);
    }

    /// Keeps the first candidates of an order until they have the cumulative probability `mass`; at least one.
    fn keep_first(&mut self, mass: f64, order: impl Fn(&Candidate, &Candidate) -> Ordering) {
        self.ordered.clone_from(&self.candidates);
        // Quickselect on cumulative probability: sorting a vocabulary takes much longer. `range` contains the last
        // candidate to keep. The candidates before it have the probability `before`, which is less than `mass`.
        let mut range = &mut self.ordered[..];
        let mut before = 0.0;
        while range.len() > 1 {
            let middle = range.len() / 2;
            range.select_nth_unstable_by(middle, &order);
            let (first, rest) = range.split_at_mut(middle);
            let sum: f64 = first.iter().map(|candidate| candidate.probability).sum();
            range = if before + sum < mass {
                before += sum;
                rest
            } else {
                first
            };
        }
        if let [last] = range {
            self.candidates.retain(|candidate| order(candidate, last).is_le());
        }
        self.normalize();
    }

    /// Mirostat: keeps the candidates whose surprisal is at most the bound; at least one.
    fn keep_below_surprisal(&mut self) {
        let most_likely = self.candidates.iter().copied().min_by(by_likelihood);
        let min_probability = libm::exp2(-self.surprisal);
        self.candidates.retain(|candidate| candidate.probability >= min_probability);
        if self.candidates.is_empty() {
            self.candidates.extend(most_likely);
        }
        self.normalize();
    }

    /// Locally typical sampling: keeps the candidates whose surprisal is closest to the entropy, until they have the
    /// cumulative probability `mass`.
    fn keep_typical(&mut self, mass: f64) {
        let Some(first) = self.candidates.first() else { return };
        // The difference between a logit and the logarithm of its probability is the same for all tokens.
        let normalizer = f64::from(first.logit) - libm::log(first.probability);
        let surprisal = |candidate: &Candidate| normalizer - f64::from(candidate.logit);
        let entropy: f64 = self.candidates.iter().map(|candidate| candidate.probability * surprisal(candidate)).sum();
        let distance = |candidate: &Candidate| (surprisal(candidate) - entropy).abs();
        self.keep_first(mass, |a, b| distance(a).total_cmp(&distance(b)).then(a.token.cmp(&b.token)));
    }

    fn choose_candidate(&mut self) -> Choice {
        let mut left = self.random.next_f64();
        let mut chosen = None;
        for candidate in &self.candidates {
            chosen = Some(candidate);
            left -= candidate.probability;
            if left < 0.0 {
                break;
            }
        }
        let (token, probability) = chosen.map_or((0, 1.0), |chosen| (chosen.token, chosen.probability));
        Choice { token, log_probability: libm::log(probability) as f32 }
    }
}

/// Orders by probability, the most likely first; the lower token first among equals.
fn by_likelihood(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

/// Returns the argmax of logits with its logit; the lowest token among equals.
fn argmax(logits: &[f32]) -> Result<(u32, f32)> {
    let token = most_likely(logits).ok_or(Error::NoLogits)?;
    Ok((token, logits.get(token as usize).copied().unwrap_or_default()))
}

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..1`.
    fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}
