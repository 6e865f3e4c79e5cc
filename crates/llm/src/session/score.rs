//! Probabilities of tokens, and embeddings of texts.

use super::Session;
use crate::embedding::{Pool, Pooling};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::prompt::Part;
use crate::token_score::{TokenScore, log_probability};

impl Session {
    /// Adds tokens as [`prefill`](Self::prefill) does. Returns the log probability (natural logarithm) of each after
    /// the tokens before it; `None` for the very first token.
    ///
    /// If a program returns only the logits of the last token, it is called for each token.
    ///
    /// # Errors
    /// The errors of `prefill`.
    pub fn score(&mut self, model: &mut Model, tokens: &[u32]) -> Result<Vec<Option<f64>>> {
        self.score_by(model, tokens, log_probability)
    }

    /// As [`score`](Self::score), with the `alternatives` most likely tokens at each position.
    ///
    /// # Errors
    /// The errors of [`prefill`](Self::prefill).
    pub fn score_tokens(
        &mut self,
        model: &mut Model,
        tokens: &[u32],
        alternatives: usize,
    ) -> Result<Vec<Option<TokenScore>>> {
        self.score_by(model, tokens, |logits, token| TokenScore::of(logits, token, alternatives))
    }

    fn score_by<S>(
        &mut self,
        model: &mut Model,
        tokens: &[u32],
        score: impl Fn(&[f32], u32) -> S,
    ) -> Result<Vec<Option<S>>> {
        self.check_for_logits(model, &[Part::Tokens(tokens)])?;
        self.forget_ahead()?;
        let first = tokens.first().filter(|_| !self.logits.is_empty()).map(|token| score(&self.logits, *token));
        let mut scores = Vec::with_capacity(tokens.len());
        scores.push(first);
        let chunk = if model.has_all_logits() { model.max_call_len(tokens.len()) } else { 1 };
        let mut next = tokens.iter().skip(1);
        for chunk in tokens.chunks(chunk) {
            self.call(model, Part::Tokens(chunk), |rows, logits| {
                for index in (0..chunk.len()).rev() {
                    rows.read_from_end(index, logits);
                    scores.extend(next.next().map(|token| Some(score(logits, *token))));
                }
                Ok(())
            })?;
        }
        Ok(scores)
    }

    /// Computes the embedding of a text by itself: forgets the session's tokens first. The result has the first `dimensions` elements,
    /// at most those of the model, and the Euclidean norm 1.
    ///
    /// # Errors
    /// The errors of [`reset`](Self::reset) and [`embed`](Self::embed).
    pub fn embedding(
        &mut self,
        model: &mut Model,
        tokens: &[u32],
        pooling: Pooling,
        dimensions: usize,
    ) -> Result<Vec<f32>> {
        let mut pool = Pool::new(pooling);
        self.reset(model)?;
        self.embed(model, tokens, &mut pool)?;
        Ok(pool.normalized(dimensions))
    }

    /// Adds tokens in as many calls as needed, and adds their hidden states to `pool`.
    ///
    /// # Errors
    /// `ReturnsLogits` for a program that returns logits. `NotLanguageModel` if a call does not return the hidden
    /// states of all of its tokens. Also the errors of [`prefill`](Self::prefill).
    pub fn embed(&mut self, model: &mut Model, tokens: &[u32], pool: &mut Pool) -> Result<()> {
        if model.embedding_size().is_none() {
            return Err(Error::ReturnsLogits);
        }
        self.check(model, &[Part::Tokens(tokens)])?;
        let mut row = Vec::new();
        for chunk in tokens.chunks(model.max_call_len(tokens.len()).max(1)) {
            self.call(model, Part::Tokens(chunk), |states, _| {
                let (expected, got) = (chunk.len(), states.rows());
                if got < expected {
                    return Err(Error::not_a_model(format!(
                        "a call of {expected} tokens returned {got} hidden states"
                    )));
                }
                for index in (0..chunk.len()).rev() {
                    states.read_from_end(index, &mut row);
                    pool.add(&row);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
