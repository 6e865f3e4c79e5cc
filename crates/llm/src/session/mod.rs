//! A conversation: the tokens so far, and the model's state for them.

mod saved;
mod score;

use std::ops::ControlFlow;

use rushlight::Fingerprint;

use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::history::History;
use crate::model::{Model, Rows, SessionCall, State};
use crate::prompt::Part;
use crate::submission::Submission;

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
    history: History,
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
    /// The logits after each of these tokens, `[tokens, vocabulary]`.
    logits: Vec<f32>,
}

impl Model {
    /// Makes a session with the adapter of [`set_adapter`](Self::set_adapter). If a backend keeps the KV cache, any
    /// number of sessions can share the weights.
    ///
    /// # Errors
    /// `NotSupported` if the reference operators keep the cache in planned memory of the program: for a second session
    /// while the first lives, and for programs with `prefill` and `decode`.
    pub fn session(&mut self) -> Result<Session> {
        // The adapter was checked when it was set.
        self.new_session(self.adapter().cloned())
    }

    /// As [`session`](Self::session), with this adapter, or none.
    ///
    /// # Errors
    /// The errors of `session`, `AdapterOfAnotherModel` and `NoAdapters`.
    pub fn session_with(&mut self, adapter: Option<Adapter>) -> Result<Session> {
        adapter.iter().try_for_each(|adapter| self.check_adapter(adapter))?;
        self.new_session(adapter)
    }

    fn new_session(&mut self, adapter: Option<Adapter>) -> Result<Session> {
        let (state, program) = (self.new_state()?, self.fingerprint().clone());
        let (history, logits) = (History::default(), Vec::new());
        Ok(Session { state, adapter, program, history, logits, ahead: None, is_poisoned: false })
    }
}

impl Session {
    /// The adapter that changes the model's answers, if there is one.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.adapter.as_ref()
    }

    /// The tokens so far, without the positions of embeddings.
    pub fn tokens(&self) -> &[u32] {
        self.history.tokens()
    }

    /// The position of the next token.
    pub fn position(&self) -> usize {
        self.history.len()
    }

    /// Adds tokens, in as many calls as needed. Returns the logits after the last one, `[vocabulary]`.
    ///
    /// # Errors
    /// `Poisoned`, `NoTokens`, `UnknownToken` and `ContextFull` change nothing. An error of the module poisons the session.
    pub fn prefill(&mut self, model: &mut Model, tokens: &[u32]) -> Result<&[f32]> {
        self.prefill_parts(model, &[Part::Tokens(tokens)])
    }

    /// Adds a prompt of tokens and embeddings, as [`prefill`](Self::prefill) does.
    ///
    /// # Errors
    /// The errors of `prefill`. `TakesNoEmbeddings` and `EmbeddingSize` change nothing, either.
    pub fn prefill_parts(&mut self, model: &mut Model, parts: &[Part<'_>]) -> Result<&[f32]> {
        self.check_for_logits(model, parts)?;
        for part in self.unread(model, parts)? {
            self.call(model, part, last_row)?;
        }
        Ok(&self.logits)
    }

    /// Submits a prompt, or the next token. The model reads it while the [`Submission`] is polled, and the host can do other
    /// work. Use it with devices, and in browsers, where a thread must not block. When it is ready, [`logits`](Self::logits) has
    /// the logits.
    ///
    /// ```no_run
    /// # fn main() -> rushlight_llm::Result<()> {
    /// # let mut model = rushlight_llm::Model::load("llama.pte")?;
    /// # let (mut session, tokens) = (model.session()?, [1, 2, 3]);
    /// let parts = [rushlight_llm::Part::Tokens(&tokens)];
    /// let mut submission = session.submit(&mut model, &parts)?;
    /// while submission.poll()?.is_pending() {
    ///     // Draw a frame, or return to the browser's event loop.
    /// }
    /// drop(submission);
    /// let logits = session.logits();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`prefill_parts`](Self::prefill_parts) that change nothing. Polling has the others.
    pub fn submit<'s>(&'s mut self, model: &'s mut Model, parts: &'s [Part<'s>]) -> Result<Submission<'s>> {
        self.check_for_logits(model, parts)?;
        Ok(Submission::new(async move {
            for part in self.unread(model, parts)? {
                self.submit_call(model, part).await?;
            }
            Ok(())
        }))
    }

    /// Adds the leading tokens of a prompt that the model has read ahead. Returns the calls for the rest.
    fn unread<'p>(&mut self, model: &Model, parts: &[Part<'p>]) -> Result<Vec<Part<'p>>> {
        let mut calls = Vec::new();
        for part in parts {
            let known = match *part {
                Part::Tokens(tokens) if calls.is_empty() => self.add_ahead(tokens),
                _ => 0,
            };
            let rest = part.skip(known);
            if calls.is_empty() && !rest.is_empty() {
                self.forget_ahead()?;
            }
            calls.extend(rest.chunks(model.max_call_len(rest.len()).max(1)));
        }
        Ok(calls)
    }

    /// Adds a token to each session, as [`prefill`](Self::prefill) does. If a backend keeps the caches, one call reads
    /// the weights once for several sessions. `batch` is reordered: sessions with adapters come last.
    ///
    /// # Errors
    /// The errors of `prefill`, for the first session that has one. `Poisoned`, `UnknownToken` and `ContextFull` change
    /// no session. An error of the module poisons the sessions of its call.
    pub fn prefill_batch(model: &mut Model, batch: &mut [(&mut Self, u32)]) -> Result<()> {
        batch.iter().try_for_each(|(session, token)| session.check(model, &[Part::Tokens(&[*token])]))?;
        batch.sort_by_key(|(session, _)| session.adapter.is_some());
        let mut rest = batch;
        while let Some((first, _)) = rest.first() {
            let is_adapted = first.adapter.is_some();
            let fits =
                |session: &Self| matches!(session.state, State::Own(_)) && session.adapter.is_some() == is_adapted;
            let count = rest.iter().take_while(|(session, _)| fits(session)).count();
            let size = model.batch_size(count, is_adapted).max(1);
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
            let Self { state, adapter, logits, .. } = &mut **session;
            match state {
                State::Own(state) => {
                    Some(SessionCall { state, adapter: adapter.as_ref(), token: *token, position, logits })
                }
                State::InModule(_) => None,
            }
        });
        let result = model.call_batch(calls.collect());
        for (session, token) in batch {
            match &result {
                Ok(()) => session.history.push(Part::Tokens(&[*token])),
                Err(_) => session.is_poisoned = true,
            }
        }
        result
    }

    /// Maximum tokens that [`prefill_while`](Self::prefill_while) reads in one call. More would delay a cancellation; fewer
    /// would read the weights more often.
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
        goes_on: impl FnMut() -> ControlFlow<()>,
    ) -> Result<usize> {
        self.prefill_parts_while(model, &[Part::Tokens(tokens)], goes_on)
    }

    /// As [`prefill_while`](Self::prefill_while), for a prompt of tokens and embeddings.
    ///
    /// # Errors
    /// The errors of [`prefill_parts`](Self::prefill_parts).
    pub fn prefill_parts_while(
        &mut self,
        model: &mut Model,
        parts: &[Part<'_>],
        mut goes_on: impl FnMut() -> ControlFlow<()>,
    ) -> Result<usize> {
        self.check(model, parts)?;
        let mut added = 0;
        for part in parts {
            // Without a cache each call computes all earlier tokens.
            let len = if model.has_no_cache() { part.len() } else { Self::PREFILL_PART };
            for part in part.chunks(len) {
                if goes_on().is_break() {
                    return Ok(added);
                }
                self.prefill_parts(model, &[part])?;
                added += part.len();
            }
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
        self.check_for_logits(model, &[Part::Tokens(&tokens)])?;
        self.forget_ahead()?;
        let ahead = self.call(model, Part::Tokens(&tokens), |rows, logits| {
            let (expected, got) = (tokens.len(), rows.rows());
            if got < expected {
                return Err(Error::not_a_model(format!("a call of {expected} tokens returned the logits of {got}")));
            }
            rows.read_from_end(drafts.len(), logits);
            Ok(rows.last(drafts.len()))
        })?;
        self.history.truncate(self.position() - drafts.len());
        self.ahead = Some(Ahead { tokens: drafts, added: 0, logits: ahead });
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
            State::Own(session) => session.rewind(self.history.len()).is_err(),
            State::InModule(_) => !model.has_no_cache(),
        }
    }

    /// Adds the leading `tokens` that the model has already read. Returns their number.
    fn add_ahead(&mut self, tokens: &[u32]) -> usize {
        let Some(ahead) = &mut self.ahead else { return 0 };
        let left = ahead.tokens.get(ahead.added..).unwrap_or_default();
        let count = left.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if count > 0 {
            self.history.push(Part::Tokens(&tokens[..count]));
            ahead.added += count;
            let width = ahead.logits.len() / ahead.tokens.len();
            let row = ahead.logits.chunks_exact(width).nth(ahead.added - 1).unwrap_or_default();
            self.logits.clear();
            self.logits.extend_from_slice(row);
        }
        count
    }

    /// Removes tokens that the model read before they were added.
    fn forget_ahead(&mut self) -> Result<()> {
        if self.next_ahead().is_some()
            && let State::Own(session) = &mut self.state
            && let Err(error) = session.rewind(self.history.len())
        {
            self.is_poisoned = true;
            return Err(error.into());
        }
        self.ahead = None;
        Ok(())
    }

    /// Checks a prompt before it is added, and that the program returns logits.
    fn check_for_logits(&self, model: &Model, parts: &[Part<'_>]) -> Result<()> {
        if model.embedding_size().is_some() {
            return Err(Error::ReturnsHiddenStates);
        }
        self.check(model, parts)
    }

    /// Checks a prompt before it is added.
    fn check(&self, model: &Model, parts: &[Part<'_>]) -> Result<()> {
        if self.is_poisoned {
            return Err(Error::Poisoned);
        }
        parts.iter().try_for_each(|part| model.check(part))?;
        let (count, capacity) = (parts.iter().map(Part::len).sum(), model.limits().max_context_len);
        if count == 0 {
            return Err(Error::NoTokens);
        }
        if count > capacity.saturating_sub(self.position()) {
            return Err(Error::ContextFull { position: self.position(), tokens: count, capacity });
        }
        Ok(())
    }

    /// Adds a part in one call. `read` gets the rows of the output, and the session's buffer of logits.
    fn call<R>(
        &mut self,
        model: &mut Model,
        part: Part<'_>,
        read: impl FnOnce(&Rows<'_>, &mut Vec<f32>) -> Result<R>,
    ) -> Result<R> {
        let position = self.position();
        self.history.push(part);
        let Self { state, adapter, history, logits, .. } = self;
        let (given, position) =
            if model.has_no_cache() { (Part::Tokens(history.tokens()), 0) } else { (part, position) };
        let result = model.call(state, adapter.as_ref(), given, position, |rows| read(rows, logits));
        self.is_poisoned = result.is_err();
        result
    }

    /// As [`call`](Self::call), but submits the call, and reads the last row. The session is poisoned until it is complete.
    async fn submit_call(&mut self, model: &mut Model, part: Part<'_>) -> Result<()> {
        let position = self.position();
        self.history.push(part);
        self.is_poisoned = true;
        let Self { state, adapter, history, logits, .. } = self;
        let (given, position) =
            if model.has_no_cache() { (Part::Tokens(history.tokens()), 0) } else { (part, position) };
        model.submit(state, adapter.as_ref(), given, position, |rows| last_row(rows, logits)).await?;
        self.is_poisoned = false;
        Ok(())
    }

    /// Returns the logits after the last token; empty before the first.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// True if the session has the logits of a next token.
    pub(crate) fn has_logits(&self) -> bool {
        !self.is_poisoned && !self.logits.is_empty()
    }

    /// Removes all tokens, and clears the caches.
    ///
    /// # Errors
    /// The error of a module that cannot clear its states.
    pub fn reset(&mut self, model: &mut Model) -> Result<()> {
        match &mut self.state {
            State::Own(session) => session.clear()?,
            State::InModule(_) => model.clear_states(),
        }
        self.forget();
        self.is_poisoned = false;
        Ok(())
    }

    /// Removes all tokens. A cache that can rewind keeps its contents, which are overwritten before they are read: to clear a large cache
    /// takes longer than many tokens.
    fn restart(&mut self, model: &mut Model) -> Result<()> {
        let goes_back = match &mut self.state {
            State::Own(session) => !self.is_poisoned && session.rewind(0).is_ok(),
            State::InModule(_) => false,
        };
        if !goes_back {
            return self.reset(model);
        }
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.history.clear();
        self.logits.clear();
        self.ahead = None;
    }

    /// Removes the tokens from `position` on, so that the next token goes there. Caches may keep what they have of these tokens until others
    /// take their place, and so do saved sessions: [`reset`](Self::reset) clears them.
    ///
    /// # Errors
    /// `NotReached` for a position after the end. `NotSupported` if the cache is in the memory of the program. An
    /// error of the module if the state of the earlier position is lost, as with a ring cache or a recurrent state.
    /// After an error the session is unchanged.
    pub fn rewind(&mut self, model: &mut Model, position: usize) -> Result<()> {
        if position > self.position() {
            return Err(Error::NotReached { position, reached: self.position() });
        }
        if position == 0 {
            return self.restart(model);
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
            self.history.truncate(position);
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
        self.keep_common(model, &[Part::Tokens(tokens)])
    }

    /// As [`keep_common_prefix`](Self::keep_common_prefix), for a prompt of tokens and embeddings. The length is the number of
    /// positions that both have.
    ///
    /// # Errors
    /// `UnknownToken`, `TakesNoEmbeddings` and `EmbeddingSize` for a part that the model cannot read, before the session
    /// changes; the errors of [`reset`](Self::reset).
    pub fn keep_common_parts(&mut self, model: &mut Model, parts: &[Part<'_>]) -> Result<usize> {
        parts.iter().try_for_each(|part| model.check(part))?;
        self.keep_common(model, parts)
    }

    /// As [`keep_common_parts`](Self::keep_common_parts), without its checks. Rows of embeddings must have elements.
    fn keep_common(&mut self, model: &mut Model, parts: &[Part<'_>]) -> Result<usize> {
        let len: usize = parts.iter().map(Part::len).sum();
        let kept = self.history.common_prefix(parts).min(len.saturating_sub(1));
        // A session that cannot go back is reset.
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
                    fork.rewind(self.history.len())?;
                }
                State::Own(fork)
            }
            State::InModule(_) => return Err(Error::NotSupported("the session cannot be copied")),
        };
        let (adapter, program) = (self.adapter.clone(), self.program.clone());
        let (history, logits) = (self.history.clone(), self.logits.clone());
        Ok(Self { state, adapter, program, history, logits, ahead: None, is_poisoned: self.is_poisoned })
    }
}

/// Reads the logits of the last position.
fn last_row(rows: &Rows<'_>, logits: &mut Vec<f32>) -> Result<()> {
    rows.read_from_end(0, logits);
    Ok(())
}
