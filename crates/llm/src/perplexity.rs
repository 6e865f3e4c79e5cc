//! Perplexity: measures how well a model predicts a text.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::token_score::log_probability;

/// The probability that a model gives to a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Number of predicted tokens.
    pub tokens: usize,
    /// Sum of the natural logarithms of their probabilities.
    pub log_likelihood: f64,
}

impl Score {
    /// Returns `exp` of the mean negative log-likelihood of a token; NaN if none was predicted.
    pub fn perplexity(&self) -> f64 {
        libm::exp(-self.log_likelihood / self.tokens as f64)
    }

    /// Returns the negative log-likelihood in bits for each of `bytes`. It does not depend on the tokenizer.
    pub fn bits_per_byte(&self, bytes: usize) -> f64 {
        -self.log_likelihood / bytes as f64 / std::f64::consts::LN_2
    }
}

/// Scores a text in windows of `window` tokens, each after the token before it. The last window is filled up with as
/// much of the text before it as fits. So each token is predicted once, as in the rolling log-likelihood of lm-eval.
/// The first token is predicted after `bos`, if there is one. `after_window` gets the number of tokens that are scored
/// so far.
///
/// # Errors
/// `NoTokens` if there is nothing to predict, `ContextFull` for a window of 0 or longer than the context, and the
/// errors of [`Session::score`](crate::Session::score).
pub fn score_text(
    model: &mut Model,
    tokens: &[u32],
    bos: Option<u32>,
    window: usize,
    mut after_window: impl FnMut(usize),
) -> Result<Score> {
    let text: Vec<u32> = bos.into_iter().chain(tokens.iter().copied()).collect();
    let capacity = model.limits().max_context_len;
    if text.len() < 2 {
        return Err(Error::NoTokens);
    }
    if window == 0 || window > capacity {
        return Err(Error::ContextFull { position: 0, tokens: window, capacity });
    }
    let mut session = model.session()?;
    let mut score = Score::default();
    let mut next = 1;
    while next < text.len() {
        let end = (next + window).min(text.len());
        let start = (end - 1).saturating_sub(window);
        session.reset(model)?;
        let given = session.score(model, &text[start..end - 1])?;
        // The last token is predicted, but not read.
        let last = log_probability(session.logits(), text[end - 1]);
        score.log_likelihood += given.iter().skip(next - start).flatten().sum::<f64>() + last;
        score.tokens += end - next;
        next = end;
        after_window(score.tokens);
    }
    Ok(score)
}
