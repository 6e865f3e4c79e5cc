//! DRY: a penalty for tokens that would continue a repetition.

use std::collections::{BTreeSet, HashMap};

use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// A penalty for tokens that would continue a repetition, as text-generation-webui and llama.cpp define it. Suppose the
/// text ends with `n` tokens that occurred before, and a token followed them there. If `n` is at least
/// `allowed_length`, the logit of that token is reduced by `multiplier * base^(n - allowed_length)`. The longest
/// repetition counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// The factor of the penalty; 0 disables it.
    pub multiplier: f32,
    pub base: f32,
    /// Minimum length of a repetition whose next token is penalized.
    pub allowed_length: usize,
    /// Number of last tokens in which repetitions are searched; by default, the whole prompt and answer.
    pub last: Option<usize>,
    /// Tokens that end repetitions, and are not penalized.
    pub breakers: BTreeSet<u32>,
}

impl Default for Dry {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Dry {
    /// The values of text-generation-webui, without breakers.
    pub const DEFAULT: Self =
        Self { multiplier: 0.8, base: 1.75, allowed_length: 2, last: None, breakers: BTreeSet::new() };

    /// The texts at which llama.cpp and text-generation-webui end repetitions.
    pub const BREAKERS: [&'static str; 4] = ["\n", ":", "\"", "*"];

    /// Adds the tokens whose text contains one of `texts`.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::decode`].
    pub fn break_at(mut self, tokenizer: &Tokenizer, texts: &[impl AsRef<str>]) -> Result<Self> {
        let vocabulary = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        for token in 0..vocabulary {
            let text = tokenizer.decode(&[token], false)?;
            if texts.iter().any(|part| !part.as_ref().is_empty() && text.contains(part.as_ref())) {
                self.breakers.insert(token);
            }
        }
        Ok(self)
    }

    /// As [`break_at`](Self::break_at), for a user's texts: an empty list stands for [`BREAKERS`](Self::BREAKERS), and
    /// a single `none` for no texts.
    ///
    /// # Errors
    /// The errors of `break_at`.
    pub fn break_at_given(self, tokenizer: &Tokenizer, texts: &[String]) -> Result<Self> {
        match texts {
            [] => self.break_at(tokenizer, &Self::BREAKERS),
            [none] if none == "none" => Ok(self),
            texts => self.break_at(tokenizer, texts),
        }
    }

    /// Subtracts penalties from the logits of the token after `tokens`.
    pub(super) fn penalize(&self, tokens: &[u32], logits: &mut [f32]) {
        if self.multiplier == 0.0 {
            return;
        }
        let last = self.last.unwrap_or(tokens.len()).min(tokens.len());
        let tokens = tokens.get(tokens.len() - last..).unwrap_or_default();
        for (token, length) in self.repetitions(tokens) {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            let exponent = (length - self.allowed_length) as f64;
            let penalty = f64::from(self.multiplier) * libm::pow(f64::from(self.base), exponent);
            *logit -= penalty.min(f64::from(f32::MAX)) as f32;
        }
    }

    /// Finds the tokens that would continue a repetition of the allowed length or more, each with the length of the
    /// longest one.
    fn repetitions(&self, tokens: &[u32]) -> HashMap<u32, usize> {
        let mut found: HashMap<u32, usize> = HashMap::new();
        let limit = tokens.iter().rev().take_while(|token| !self.breakers.contains(token)).count();
        if limit < self.allowed_length {
            return found;
        }
        let reversed: Vec<u32> = tokens.iter().rev().copied().collect();
        let lengths = common_prefixes(&reversed);
        for (at, pair) in reversed.windows(2).enumerate() {
            // The `length` tokens before `next` are also the last tokens of the text.
            let (next, length) = (pair[0], lengths.get(at + 1).copied().unwrap_or_default().min(limit));
            if length >= self.allowed_length && !self.breakers.contains(&next) {
                let longest = found.entry(next).or_default();
                *longest = length.max(*longest);
            }
        }
        found
    }
}

/// Returns for each suffix the length of its common prefix with the whole (the Z-algorithm, Gusfield 1997).
fn common_prefixes(tokens: &[u32]) -> Vec<usize> {
    let len = tokens.len();
    let mut lengths = vec![len; len];
    // The match that reaches furthest.
    let (mut start, mut end) = (0, 0);
    for at in 1..len {
        let known = if at < end { lengths[at - start].min(end - at) } else { 0 };
        let more = tokens[known..].iter().zip(&tokens[at + known..]).take_while(|(a, b)| a == b).count();
        lengths[at] = known + more;
        if at + lengths[at] > end {
            (start, end) = (at, at + lengths[at]);
        }
    }
    lengths
}
