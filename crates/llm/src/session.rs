//! A conversation: the tokens so far, and the model's state for them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;

use rushlight::Fingerprint;

use crate::adapter::Adapter;
use crate::embedding::Pool;
use crate::error::{Error, Result};
use crate::model::{Model, Rows, SessionCall};
use crate::token_score::{TokenScore, log_probability};

/// The tokens that one user of a [`Model`] has added, with their KV cache. Methods take the model that made the
/// session.
///
/// An error in the middle of a call poisons the session, but not the model. [`reset`](Self::reset) makes the session
/// usable again.
#[derive(Debug)]
pub struct Session {
    state: State,
    adapter: Option<Adapter>,
    /// The fingerprint of the program.
    program: Fingerprint,
    tokens: Vec<u32>,
    logits: Vec<f32>,
    ahead: Option<Ahead>,
    is_poisoned: bool,
}

/// Tokens that the model read before they were added.
#[derive(Debug)]
struct Ahead {
    tokens: Vec<u32>,
    /// Number of these tokens that were added since.
    added: usize,
    /// The logits after each of these tokens.
    logits: Rows,
}

/// The place of the KV cache.
#[derive(Debug)]
pub(crate) enum State {
    /// A cache of the session's own.
    Own(rushlight::Session),
    /// In planned memory of the program; the model holds the other reference.
    InModule(#[expect(dead_code, reason = "the model counts the references")] Arc<()>),
}

/// Magic bytes of a saved session.
const MAGIC: &[u8; 8] = b"RLLMses3";

/// Bytes of a hash.
const HASH: usize = 32;

impl Session {
    pub(crate) fn new(state: State, adapter: Option<Adapter>, program: Fingerprint) -> Self {
        Self { state, adapter, program, tokens: Vec::new(), logits: Vec::new(), ahead: None, is_poisoned: false }
    }

    /// The adapter that changes the model's answers, if there is one.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.adapter.as_ref()
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The position of the next token.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// Adds tokens, in as many calls as needed. Returns the logits after the last one, `[vocabulary]`.
    ///
    /// # Errors
    /// `Poisoned`, `NoTokens`, `UnknownToken` and `ContextFull` change nothing. An error of the module poisons the session.
    pub fn prefill(&mut self, model: &mut Model, tokens: &[u32]) -> Result<&[f32]> {
        self.check_for_logits(model, tokens)?;
        let rest = tokens.get(self.add_ahead(tokens)..).unwrap_or_default();
        if !rest.is_empty() {
            self.forget_ahead()?;
        }
        for chunk in rest.chunks(model.max_call_len(rest.len()).max(1)) {
            self.call(model, chunk)?.read_from_end(0, &mut self.logits);
        }
        Ok(&self.logits)
    }

    /// Adds a token to each session, as [`prefill`](Self::prefill) does. If a backend keeps the caches, one call reads
    /// the weights once for several sessions. Sessions with adapters are moved behind those without.
    ///
    /// # Errors
    /// The errors of `prefill`, for the first session that has one. `Poisoned`, `UnknownToken` and `ContextFull` change
    /// no session. An error of the module poisons the sessions of its call.
    pub fn prefill_batch(model: &mut Model, batch: &mut [(&mut Self, u32)]) -> Result<()> {
        batch.iter().try_for_each(|(session, token)| session.check(model, &[*token]))?;
        batch.sort_by_key(|(session, _)| session.adapter.is_some());
        let mut rest = batch;
        while let Some((first, _)) = rest.first() {
            let is_adapted = first.adapter.is_some();
            let is_alike =
                |session: &Self| matches!(session.state, State::Own(_)) && session.adapter.is_some() == is_adapted;
            let alike = rest.iter().take_while(|(session, _)| is_alike(session)).count();
            let size = model.batch_size(alike, is_adapted).max(1);
            let (part, others) = rest.split_at_mut(size);
            match part {
                [(session, token)] => drop(session.prefill(model, &[*token])?),
                _ => Self::call_batch(model, part)?,
            }
            rest = others;
        }
        Ok(())
    }

    /// Adds a token to each of several sessions in one call.
    fn call_batch(model: &mut Model, batch: &mut [(&mut Self, u32)]) -> Result<()> {
        batch.iter_mut().try_for_each(|(session, _)| session.forget_ahead())?;
        let calls = batch.iter_mut().filter_map(|(session, token)| {
            let position = session.position();
            let adapter = session.adapter.as_ref();
            match &mut session.state {
                State::Own(state) => Some(SessionCall { state, adapter, token: *token, position }),
                State::InModule(_) => None,
            }
        });
        let logits = model.call_batch(calls.collect());
        for (index, (session, token)) in batch.iter_mut().enumerate() {
            match &logits {
                Ok(logits) => {
                    session.tokens.push(*token);
                    logits[index].read_from_end(0, &mut session.logits);
                }
                Err(_) => session.is_poisoned = true,
            }
        }
        logits.map(drop)
    }

    /// Tokens that [`prefill_while`](Self::prefill_while) reads in one call. Large enough that weights are read seldom,
    /// and small enough that a call does not take long.
    pub const PREFILL_PART: usize = 128;

    /// As [`prefill`](Self::prefill), but calls `goes_on` before each part of [`PREFILL_PART`](Self::PREFILL_PART)
    /// tokens. If it breaks, the session keeps the parts before. Returns the number of tokens that were added.
    ///
    /// # Errors
    /// The errors of `prefill`.
    pub fn prefill_while(
        &mut self,
        model: &mut Model,
        tokens: &[u32],
        mut goes_on: impl FnMut() -> ControlFlow<()>,
    ) -> Result<usize> {
        self.check(model, tokens)?;
        // Without a cache each call computes all earlier tokens.
        let part = if model.has_no_cache() { tokens.len() } else { Self::PREFILL_PART };
        let mut added = 0;
        for part in tokens.chunks(part) {
            if goes_on().is_break() {
                break;
            }
            self.prefill(model, part)?;
            added += part.len();
        }
        Ok(added)
    }

    /// Adds a token as [`prefill`](Self::prefill) does, in a call that also reads `drafts` after it. If the next tokens
    /// that are added are these drafts, `prefill` already has their logits.
    ///
    /// # Errors
    /// The errors of `prefill`, and `NotLanguageModel` if the call does not return the logits of all of its tokens.
    pub(crate) fn prefill_with_drafts(&mut self, model: &mut Model, token: u32, drafts: Vec<u32>) -> Result<()> {
        let tokens: Vec<u32> = std::iter::once(token).chain(drafts.iter().copied()).collect();
        self.check_for_logits(model, &tokens)?;
        self.forget_ahead()?;
        let logits = self.call(model, &tokens)?;
        if logits.rows() < tokens.len() {
            self.is_poisoned = true;
            let (expected, got) = (tokens.len(), logits.rows());
            return Err(Error::not_a_model(format!("a call of {expected} tokens returned the logits of {got}")));
        }
        logits.read_from_end(drafts.len(), &mut self.logits);
        self.tokens.truncate(self.tokens.len() - drafts.len());
        self.ahead = Some(Ahead { tokens: drafts, added: 0, logits });
        Ok(())
    }

    /// Returns the next token that the model has already read.
    pub(crate) fn next_ahead(&self) -> Option<u32> {
        self.ahead.as_ref().and_then(|ahead| ahead.tokens.get(ahead.added)).copied()
    }

    /// Returns the reason why drafts cannot be verified; `None` if they can.
    pub fn cannot_read_ahead(&mut self, model: &Model) -> Option<&'static str> {
        if !model.has_all_logits() {
            return Some("the program returns the logits of the last token alone: compile it with --full-logits");
        }
        self.cannot_rewind(model).then_some(
            "the session cannot go back: the program has a ring cache, a recurrent state, or no backend for it",
        )
    }

    /// True if the session cannot remove only its last tokens.
    pub(crate) fn cannot_rewind(&mut self, model: &Model) -> bool {
        match &mut self.state {
            // If this succeeds, it changes nothing.
            State::Own(session) => session.rewind(self.tokens.len()).is_err(),
            State::InModule(_) => !model.has_no_cache(),
        }
    }

    /// Adds tokens as long as the model has already read them. Returns their number.
    fn add_ahead(&mut self, tokens: &[u32]) -> usize {
        let Some(ahead) = &mut self.ahead else { return 0 };
        let left = ahead.tokens.get(ahead.added..).unwrap_or_default();
        let count = left.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if count > 0 {
            self.tokens.extend_from_slice(&tokens[..count]);
            ahead.logits.read_from_end(left.len() - count, &mut self.logits);
            ahead.added += count;
        }
        count
    }

    /// Removes tokens that the model read before they were added.
    fn forget_ahead(&mut self) -> Result<()> {
        if self.next_ahead().is_some()
            && let State::Own(session) = &mut self.state
            && let Err(error) = session.rewind(self.tokens.len())
        {
            self.is_poisoned = true;
            return Err(error.into());
        }
        self.ahead = None;
        Ok(())
    }

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
        self.check_for_logits(model, tokens)?;
        self.forget_ahead()?;
        let first = tokens.first().filter(|_| !self.logits.is_empty()).map(|token| score(&self.logits, *token));
        let mut scores = Vec::with_capacity(tokens.len());
        scores.push(first);
        let chunk = if model.has_all_logits() { model.max_call_len(tokens.len()) } else { 1 };
        let mut next = tokens.iter().skip(1);
        for chunk in tokens.chunks(chunk) {
            let logits = self.call(model, chunk)?;
            for index in (0..chunk.len()).rev() {
                logits.read_from_end(index, &mut self.logits);
                scores.extend(next.next().map(|token| Some(score(&self.logits, *token))));
            }
        }
        Ok(scores)
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
        self.check(model, tokens)?;
        let mut row = Vec::new();
        for chunk in tokens.chunks(model.max_call_len(tokens.len()).max(1)) {
            let states = self.call(model, chunk)?;
            if states.rows() < chunk.len() {
                self.is_poisoned = true;
                let (expected, got) = (chunk.len(), states.rows());
                return Err(Error::not_a_model(format!("a call of {expected} tokens returned {got} hidden states")));
            }
            for index in (0..chunk.len()).rev() {
                states.read_from_end(index, &mut row);
                pool.add(&row);
            }
        }
        Ok(())
    }

    /// Checks tokens before they are added, and that the program returns logits.
    fn check_for_logits(&self, model: &Model, tokens: &[u32]) -> Result<()> {
        if model.embedding_size().is_some() {
            return Err(Error::ReturnsHiddenStates);
        }
        self.check(model, tokens)
    }

    /// Checks tokens before they are added.
    fn check(&self, model: &Model, tokens: &[u32]) -> Result<()> {
        if self.is_poisoned {
            return Err(Error::Poisoned);
        }
        if tokens.is_empty() {
            return Err(Error::NoTokens);
        }
        let limits = model.limits();
        let (vocabulary, capacity) = (limits.vocab_size, limits.max_context_len);
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(Error::UnknownToken { token: *token, vocabulary });
        }
        if tokens.len() > capacity.saturating_sub(self.position()) {
            return Err(Error::ContextFull { position: self.position(), tokens: tokens.len(), capacity });
        }
        Ok(())
    }

    /// Adds tokens in one call.
    fn call(&mut self, model: &mut Model, tokens: &[u32]) -> Result<Rows> {
        let position = self.position();
        self.tokens.extend_from_slice(tokens);
        let (given, position) = if model.has_no_cache() { (&self.tokens[..], 0) } else { (tokens, position) };
        let logits = model.call(&mut self.state, self.adapter.as_ref(), given, position);
        self.is_poisoned = logits.is_err();
        logits
    }

    /// Returns the logits after the last token; empty before the first.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// True if an answer can go on from here.
    pub(crate) fn has_logits(&self) -> bool {
        !self.is_poisoned && !self.logits.is_empty()
    }

    /// Removes all tokens.
    ///
    /// # Errors
    /// The error of a module that cannot clear its states.
    pub fn reset(&mut self, model: &mut Model) -> Result<()> {
        match &mut self.state {
            State::Own(session) => session.clear()?,
            State::InModule(_) => model.clear_states(),
        }
        self.tokens.clear();
        self.logits.clear();
        self.ahead = None;
        self.is_poisoned = false;
        Ok(())
    }

    /// Removes the tokens from `position` on, so that the next token goes there.
    ///
    /// # Errors
    /// `NotReached` for a position behind the end. `NotSupported` if the cache is in the memory of the program. An
    /// error of the module if the state of the earlier position is lost, as with a ring cache or a recurrent state.
    /// After an error the session is unchanged.
    pub fn rewind(&mut self, model: &mut Model, position: usize) -> Result<()> {
        if position > self.position() {
            return Err(Error::NotReached { position, reached: self.position() });
        }
        if position == 0 {
            return self.reset(model);
        }
        if self.is_poisoned {
            return Err(Error::Poisoned);
        }
        if position < self.position() {
            match &mut self.state {
                State::Own(session) => session.rewind(position)?,
                State::InModule(_) if model.has_no_cache() => {}
                State::InModule(_) => return Err(Error::NotSupported("the session cannot go back")),
            }
            self.tokens.truncate(position);
            self.ahead = None;
            // The logits are those of a removed token.
            self.logits.clear();
        }
        Ok(())
    }

    /// Keeps the common prefix of the session and `tokens`, and removes the session's other tokens. Returns the length
    /// of the prefix: at most all but the last of `tokens`, because the caller needs the logits of the last one.
    /// Continue with `prefill(&tokens[kept..])`. If the model cannot go back, the length is 0.
    ///
    /// # Errors
    /// The errors of [`reset`](Self::reset).
    pub fn keep_common_prefix(&mut self, model: &mut Model, tokens: &[u32]) -> Result<usize> {
        let alike = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let kept = alike.min(tokens.len().saturating_sub(1));
        // A session that cannot go back starts anew.
        if self.is_poisoned || self.rewind(model, kept).is_err() {
            self.reset(model)?;
        }
        Ok(self.position())
    }

    /// Makes an independent session that continues from here.
    ///
    /// # Errors
    /// `NotSupported` if the cache is in the memory of the program.
    pub fn fork(&self) -> Result<Self> {
        let state = match &self.state {
            State::Own(session) => {
                let mut fork = session.fork()?;
                if self.next_ahead().is_some() {
                    fork.rewind(self.tokens.len())?;
                }
                State::Own(fork)
            }
            State::InModule(_) => return Err(Error::NotSupported("the session cannot be copied")),
        };
        let (adapter, program) = (self.adapter.clone(), self.program.clone());
        let (tokens, logits) = (self.tokens.clone(), self.logits.clone());
        Ok(Self { state, adapter, program, tokens, logits, ahead: None, is_poisoned: self.is_poisoned })
    }

    /// The fingerprint of the adapter; 0 without one.
    fn adapter_fingerprint(&self) -> u64 {
        self.adapter.as_ref().map_or(0, Adapter::fingerprint)
    }

    /// Returns the session as bytes, for [`restore`](Self::restore) with the same program and adapter. They contain a
    /// hash of the program, which is computed once.
    ///
    /// # Errors
    /// The errors of [`fork`](Self::fork), and `Poisoned`.
    pub fn save(&mut self) -> Result<Vec<u8>> {
        if self.is_poisoned {
            return Err(Error::Poisoned);
        }
        self.forget_ahead()?;
        let State::Own(session) = &mut self.state else {
            return Err(Error::NotSupported("the session cannot be saved"));
        };
        let state = loop {
            match session.save()? {
                Poll::Ready(state) => break state,
                Poll::Pending => std::thread::yield_now(),
            }
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.program.bytes());
        bytes.extend_from_slice(&[0; HASH]);
        bytes.extend_from_slice(&self.adapter_fingerprint().to_le_bytes());
        for numbers in [&self.tokens, &self.logits.iter().map(|logit| logit.to_bits()).collect()] {
            bytes.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
            numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        bytes.extend_from_slice(&state);
        let hash = seal(&bytes).ok_or(Error::NoSession)?;
        if let Some(place) = bytes.get_mut(MAGIC.len() + HASH..).and_then(|rest| rest.first_chunk_mut()) {
            *place = hash;
        }
        Ok(bytes)
    }

    /// Replaces the session by a saved one.
    ///
    /// # Errors
    /// `NoSession` for damaged bytes, `OtherProgram` for bytes of another program, and `OtherAdapter` for another
    /// adapter or none. `NotSupported` as in [`fork`](Self::fork). An error of the module for bytes of another backend:
    /// this one poisons the session, and all others leave it unchanged.
    pub fn restore(&mut self, model: &Model, bytes: &[u8]) -> Result<()> {
        let damaged = || Error::NoSession;
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let (program, rest) = rest.split_first_chunk::<HASH>().ok_or_else(damaged)?;
        if *program != self.program.bytes() {
            return Err(Error::OtherProgram);
        }
        let (hash, rest) = rest.split_first_chunk::<HASH>().ok_or_else(damaged)?;
        if seal(bytes) != Some(*hash) {
            return Err(damaged());
        }
        let (fingerprint, mut rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        if u64::from_le_bytes(*fingerprint) != self.adapter_fingerprint() {
            return Err(Error::OtherAdapter);
        }
        let mut numbers = || -> Result<Vec<u32>> {
            let (count, after) = rest.split_first_chunk().ok_or_else(damaged)?;
            let len = usize::try_from(u64::from_le_bytes(*count)).ok().and_then(|count| count.checked_mul(4));
            let (numbers, after) = len.and_then(|len| after.split_at_checked(len)).ok_or_else(damaged)?;
            rest = after;
            Ok(numbers.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
        };
        let (tokens, logits) = (numbers()?, numbers()?);
        let State::Own(session) = &mut self.state else {
            return Err(Error::NotSupported("the session cannot be restored"));
        };
        let limits = model.limits();
        let is_known = |token: &u32| (*token as usize) < limits.vocab_size;
        if tokens.len() > limits.max_context_len
            || !tokens.iter().all(is_known)
            || ![0, limits.vocab_size].contains(&logits.len())
        {
            return Err(Error::NoSession);
        }
        self.ahead = None;
        if let Err(error) = session.restore(rest) {
            self.is_poisoned = true;
            return Err(error.into());
        }
        self.tokens = tokens;
        self.logits = logits.into_iter().map(f32::from_bits).collect();
        self.is_poisoned = false;
        Ok(())
    }
}

/// Returns the hash of a saved session, without the field of the hash itself. So tokens, logits and caches of different
/// sessions cannot be mixed.
fn seal(bytes: &[u8]) -> Option<[u8; HASH]> {
    let (head, rest) = bytes.split_at_checked(MAGIC.len() + HASH)?;
    let (_, rest) = rest.split_at_checked(HASH)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(head).update(rest);
    Some(*hasher.finalize().as_bytes())
}
