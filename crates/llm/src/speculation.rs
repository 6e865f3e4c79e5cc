//! Speculative decoding: tokens are drafted, and verified together (Leviathan et al. 2023).
//!
//! A call that reads several tokens takes little longer than a call that reads one, because it reads the weights once.
//! So a draft is read with the token before it. A drafted token is kept if the sampler chooses it from the logits of
//! that call. The sampler is called once for each token, in the same order as without drafts, so it draws the same
//! random numbers.

use std::time::Duration;

use rushlight::options::OptionError;

use crate::error::{Error, Result};
use crate::model::{Limits, Model};
use crate::sampling::most_likely;
use crate::session::Session;
use crate::tokenizer::Tokenizer;

/// A source of drafts that needs no draft model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speculation {
    /// Drafts the continuation of an earlier occurrence of the last tokens (Saxena 2023). Takes the longest matching
    /// n-gram, of at most `max_ngram` tokens, and its last occurrence. A draft has at most `max_draft` tokens. If it
    /// reaches the end of the text, it continues with its own tokens.
    PromptLookup { max_ngram: usize, max_draft: usize },
}

/// Drafts tokens of an answer.
pub trait Draft {
    /// Reads the tokens of the session before the answer. The time that this takes counts as prefill.
    ///
    /// # Errors
    /// Any error ends the answer.
    fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        let _ = tokens;
        Ok(())
    }

    /// Drafts the next tokens after `tokens`, which are all of the session: at most `max`. More are ignored.
    ///
    /// # Errors
    /// Any error ends the answer.
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>>;
}

impl Speculation {
    /// Default maximum number of drafted tokens, also with a draft model.
    pub const MAX_DRAFT: usize = 8;

    /// Prompt lookup with a maximum n-gram that suffices in practice.
    pub const fn lookup(max_draft: usize) -> Self {
        Self::PromptLookup { max_ngram: 4, max_draft }
    }

    pub(crate) fn check(self) -> Result<()> {
        let Self::PromptLookup { max_ngram, max_draft } = self;
        for (option, got) in [("max_ngram", max_ngram), ("max_draft", max_draft)] {
            if got == 0 {
                return Err(OptionError::range(option, "1 or more", got).into());
            }
        }
        Ok(())
    }
}

impl Draft for Speculation {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>> {
        let Self::PromptLookup { max_ngram, max_draft } = *self;
        let Some(start) = continuation(tokens, max_ngram) else { return Ok(Vec::new()) };
        let mut draft: Vec<u32> = Vec::new();
        for at in start..start.saturating_add(max_draft.min(max)) {
            let token = tokens.get(at).or_else(|| draft.get(at - tokens.len()));
            draft.extend(token.copied());
        }
        Ok(draft)
    }
}

/// Returns the position after the last earlier occurrence of the longest n-gram that ends the text.
fn continuation(tokens: &[u32], max_ngram: usize) -> Option<usize> {
    let mut longest = 0;
    let mut found = None;
    for end in (1..tokens.len()).rev() {
        let before = tokens.get(..end).unwrap_or_default().iter().rev();
        let ngram = before.zip(tokens.iter().rev()).take(max_ngram).take_while(|(a, b)| a == b).count();
        if ngram > longest {
            (longest, found) = (ngram, Some(end));
            if longest == max_ngram {
                break;
            }
        }
    }
    found
}

/// A smaller model with the same tokens, which drafts the most likely ones.
#[derive(Debug)]
pub struct DraftModel {
    model: Model,
    session: DraftSession,
}

impl DraftModel {
    /// Makes drafts of at most `max_draft` tokens for the model `target`, whose tokenizer is `tokenizer`. Compares it with the
    /// tokenizer that the program of `model` carries. A program without a tokenizer that can be read is not compared.
    ///
    /// # Errors
    /// The errors of [`DraftSession::new`] and [`Tokenizer::check_draft`].
    pub fn new(mut model: Model, target: &Model, tokenizer: &Tokenizer, max_draft: usize) -> Result<Self> {
        if let Ok(Some(draft)) = Tokenizer::of_program(model.program()) {
            tokenizer.check_draft(&draft, target.limits().vocab_size)?;
        }
        let session = DraftSession::new(&mut model, target.limits().vocab_size, max_draft)?;
        Ok(Self { model, session })
    }
}

impl Draft for DraftModel {
    fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        self.session.prefill(&mut self.model, tokens)
    }

    fn propose(&mut self, tokens: &[u32], max: usize) -> Result<Vec<u32>> {
        self.session.propose(&mut self.model, tokens, max)
    }
}

/// The session of a draft model, for one answer. Methods take the model that made it, so that a model can be shared.
#[derive(Debug)]
pub struct DraftSession {
    session: Session,
    max_draft: usize,
    /// Number of tokens that both models have.
    vocabulary: usize,
}

/// Two vocabularies may differ by at most the larger size divided by this number. Models of one family pad their
/// vocabularies to different multiples.
const PADDING: usize = 16;

impl DraftSession {
    /// Makes drafts of at most `max_draft` tokens by `model`, for a model with `target_vocabulary` logits. If one
    /// vocabulary is larger, because it is padded, only tokens that both have are drafted. Calls the model once.
    ///
    /// # Errors
    /// `DraftVocabulary` if the sizes of the vocabularies are those of different tokenizers. `DraftRewind` if the draft
    /// model cannot go back. Also the errors of [`Model::session`] and [`Session::prefill`].
    pub fn new(model: &mut Model, target_vocabulary: usize, max_draft: usize) -> Result<Self> {
        let (expected, got) = (target_vocabulary, model.limits().vocab_size);
        if expected.abs_diff(got) > expected.max(got) / PADDING {
            return Err(Error::DraftVocabulary { expected, got });
        }
        let mut session = model.session()?;
        // `cannot_rewind` gives the right answer only for a session with a token.
        session.prefill(model, &[0])?;
        if session.cannot_rewind(model) {
            return Err(Error::DraftRewind);
        }
        session.reset(model)?;
        Ok(Self { session, max_draft, vocabulary: expected.min(got) })
    }

    /// As [`Draft::prefill`]. Does nothing if the draft model's context is shorter, or if it lacks one of the tokens.
    ///
    /// # Errors
    /// The errors of [`Session::prefill`].
    pub fn prefill(&mut self, model: &mut Model, tokens: &[u32]) -> Result<()> {
        if !can_read(model, tokens) {
            return Ok(());
        }
        let known = self.session.keep_common_prefix(model, tokens)?;
        self.session.prefill(model, tokens.get(known..).unwrap_or_default())?;
        Ok(())
    }

    /// As [`Draft::propose`].
    ///
    /// # Errors
    /// The errors of [`Session::prefill`].
    pub fn propose(&mut self, model: &mut Model, tokens: &[u32], max: usize) -> Result<Vec<u32>> {
        let mut draft = Vec::new();
        if !can_read(model, tokens) {
            return Ok(draft);
        }
        let room = model.limits().max_context_len - tokens.len();
        let count = self.max_draft.min(max).min(room + 1);
        self.prefill(model, tokens)?;
        while draft.len() < count {
            if let Some(last) = draft.last() {
                self.session.prefill(model, &[*last])?;
            }
            let logits = self.session.logits();
            let Some(token) = most_likely(logits.get(..self.vocabulary).unwrap_or(logits)) else { break };
            draft.push(token);
        }
        Ok(draft)
    }
}

/// True if the tokens fit the model's context and vocabulary.
fn can_read(model: &Model, tokens: &[u32]) -> bool {
    let Limits { max_context_len, vocab_size, .. } = *model.limits();
    (1..=max_context_len).contains(&tokens.len()) && tokens.iter().all(|token| (*token as usize) < vocab_size)
}

/// Limits the length of drafts. An answer then takes little longer than without drafts, even if none is accepted.
///
/// An account holds the time that drafts saved minus the time that they cost. A draft may take the time in the account.
/// Each token adds a small share of its time, so that drafts are tried again now and then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    /// Number of calls of one token that were timed.
    plain_calls: usize,
    /// Seconds of a call of one token.
    plain: f64,
    /// Additional seconds of a call for each drafted token; `None` before the first draft.
    row: Option<f64>,
    /// Seconds that drafts may cost.
    account: f64,
}

/// Share of the time of all tokens that drafts may waste.
const WASTE: f64 = 0.01;

impl Budget {
    /// Number of calls of one token before the first draft, because the first call takes longer.
    const WARM_UP: usize = 2;
    /// Assumed cost of a drafted token before one was timed, in units of a call of one token.
    const ROW: f64 = 0.5;
    /// Weight of the latest call in a mean.
    const LATEST: f64 = 0.25;
    /// Bounds of the account, in units of a call of one token. The upper bound ends drafts soon after they are no longer
    /// accepted. The lower bound allows drafts again after a call that was interrupted by other processes.
    const BOUNDS: [f64; 2] = [-2.0, 8.0];

    /// Maximum length of the next draft.
    pub fn draft_len(&self) -> usize {
        if self.plain_calls < Self::WARM_UP {
            return 0;
        }
        let row = self.row.unwrap_or(Self::ROW * self.plain);
        (self.account / row.max(f64::MIN_POSITIVE)) as usize
    }

    /// Records a call of one token.
    pub fn record_plain_call(&mut self, time: Duration) {
        let time = time.as_secs_f64();
        self.plain = match self.plain_calls {
            0 => time,
            1 => self.plain.min(time),
            _ => mean(self.plain, time),
        };
        self.plain_calls += 1;
        if self.plain_calls == Self::WARM_UP {
            self.account = Self::ROW * self.plain;
        }
    }

    /// Records a call with a draft of `len` tokens, and the time for the call and the draft.
    pub fn record_draft_call(&mut self, len: usize, time: Duration) {
        let extra = time.as_secs_f64() - self.plain;
        let min_row = self.plain * 0.01;
        let row = (extra / len.max(1) as f64).max(min_row);
        self.row = Some(self.row.map_or(row, |before| mean(before, row)));
        self.add(-extra);
    }

    /// Records the time of a proposal that had no token.
    pub fn record_waste(&mut self, time: Duration) {
        self.add(-time.as_secs_f64());
    }

    /// Records a token of the answer. `is_accepted` is true if it is from a draft.
    pub fn record_token(&mut self, is_accepted: bool) {
        self.add(self.plain * if is_accepted { 1.0 } else { WASTE });
    }

    fn add(&mut self, time: f64) {
        let [min, max] = Self::BOUNDS.map(|bound| bound * self.plain);
        self.account = (self.account + time).clamp(min, max);
    }
}

fn mean(before: f64, latest: f64) -> f64 {
    before + (latest - before) * Budget::LATEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(tokens: &[u32], max_ngram: usize, max_draft: usize) -> Vec<u32> {
        Speculation::PromptLookup { max_ngram, max_draft }.propose(tokens, 100).unwrap()
    }

    #[test]
    fn drafts_follow_the_longest_ngram() {
        assert!(lookup(&[], 3, 4).is_empty());
        assert!(lookup(&[1, 2, 3], 3, 4).is_empty());
        // The longest n-gram, at its last occurrence.
        assert_eq!(lookup(&[1, 2, 3, 9, 2, 4, 1, 2], 3, 2), [3, 9]);
        assert_eq!(lookup(&[1, 2, 3, 9, 2, 4, 1, 2], 1, 2), [4, 1]);
        assert_eq!(lookup(&[1, 2, 3, 1, 2, 4, 1, 2], 2, 1), [4]);
        // A draft that reaches the end continues with its own tokens.
        assert_eq!(lookup(&[7, 5, 6, 5, 6], 3, 5), [5, 6, 5, 6, 5]);
        assert_eq!(lookup(&[5, 5], 8, 3), [5, 5, 5]);
        assert_eq!(lookup(&[5, 5], usize::MAX, usize::MAX).len(), 100);
    }

    /// Returns the time of an answer of `tokens` in units of calls. Each drafted token takes `row`; `is_accepted`
    /// decides if a draft is accepted.
    fn time(tokens: usize, row: f64, is_accepted: impl Fn(usize) -> bool) -> f64 {
        let mut budget = Budget::default();
        let (mut total, mut done) = (0.0, 0);
        while done < tokens {
            let len = budget.draft_len().min(16);
            let call = 1.0 + row * len as f64;
            total += call;
            let spent = Duration::from_secs_f64(call);
            if len == 0 {
                budget.record_plain_call(spent);
            } else {
                budget.record_draft_call(len, spent);
            }
            budget.record_token(false);
            done += 1;
            for _ in 0..if is_accepted(done) { len } else { 0 } {
                budget.record_token(true);
                done += 1;
            }
        }
        total * tokens as f64 / done as f64
    }

    #[test]
    fn drafts_cost_a_small_share_of_the_time() {
        for row in [0.05, 0.3, 0.5] {
            for tokens in [100, 1000] {
                let share = tokens as f64 / time(tokens, row, |_| false);
                assert!(share > 0.97, "{share} of the rate with {row} and {tokens} tokens");
            }
            let share = 1000.0 / time(1000, row, |_| true);
            assert!(share > 0.9 / (row + 0.1), "{share} of the rate with {row}");
            // After a long repetition, drafts end soon.
            let share = 2000.0 / time(2000, row, |done| done < 500);
            assert!(share > 1.0, "{share} of the rate with {row}");
        }
        // Drafts that are slower than plain calls are given up, too.
        assert!(1000.0 / time(1000, 1.5, |_| true) > 0.97);
    }
}
