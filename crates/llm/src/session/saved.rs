//! Sessions as bytes.

use std::task::Poll;

use super::Session;
use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::history::History;
use crate::model::{Model, State};

/// Magic bytes of a saved session of tokens, and of one that also has embeddings.
const MAGIC: &[u8; 8] = b"RLLMses3";
const MAGIC_WITH_ROWS: &[u8; 8] = b"RLLMses4";

/// Bytes of a hash.
const HASH: usize = 32;

impl Session {
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
        let rows = self.history.rows_to_bytes();
        let mut bytes = if rows.is_empty() { MAGIC } else { MAGIC_WITH_ROWS }.to_vec();
        bytes.extend_from_slice(&self.program.bytes());
        bytes.extend_from_slice(&[0; HASH]);
        bytes.extend_from_slice(&self.adapter_fingerprint().to_le_bytes());
        for numbers in [self.history.tokens(), &self.logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()] {
            bytes.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
            numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        if !rows.is_empty() {
            bytes.extend_from_slice(&(rows.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&rows);
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
    /// adapter or none. `ContextFull` for a session that is longer than the context. `NotSupported` as in [`fork`](Self::fork). An error of the module for bytes of another backend:
    /// this one poisons the session, and all others leave it unchanged.
    pub fn restore(&mut self, model: &Model, bytes: &[u8]) -> Result<()> {
        let damaged = || Error::NoSession;
        let (magic, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let has_rows = magic == MAGIC_WITH_ROWS;
        if magic != MAGIC && !has_rows {
            return Err(damaged());
        }
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
        let numbers = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let tokens: Vec<u32> = numbers(counted(&mut rest, size_of::<u32>())?);
        let logits: Vec<u32> = numbers(counted(&mut rest, size_of::<u32>())?);
        let rows = if has_rows { counted(&mut rest, 1)? } else { &[] };
        let State::Own(session) = &mut self.state else {
            return Err(Error::NotSupported("the session cannot be restored"));
        };
        let limits = model.limits();
        let is_known = |token: &u32| (*token as usize) < limits.vocab_size;
        if !tokens.iter().all(is_known) || ![0, limits.vocab_size].contains(&logits.len()) {
            return Err(damaged());
        }
        let history = History::of(tokens, rows).ok_or_else(damaged)?;
        if history.len() > limits.max_context_len {
            return Err(Error::ContextFull { position: 0, tokens: history.len(), capacity: limits.max_context_len });
        }
        self.ahead = None;
        if let Err(error) = session.restore(rest) {
            self.is_poisoned = true;
            return Err(error.into());
        }
        self.history = history;
        self.logits = logits.into_iter().map(f32::from_bits).collect();
        self.is_poisoned = false;
        Ok(())
    }
}

/// Reads a count, and the bytes of that many elements of `size` bytes.
fn counted<'b>(rest: &mut &'b [u8], size: usize) -> Result<&'b [u8]> {
    let (count, after) = rest.split_first_chunk().ok_or(Error::NoSession)?;
    let len = usize::try_from(u64::from_le_bytes(*count)).ok().and_then(|count| count.checked_mul(size));
    let (elements, after) = len.and_then(|len| after.split_at_checked(len)).ok_or(Error::NoSession)?;
    *rest = after;
    Ok(elements)
}

/// Returns the hash of a saved session, without the field of the hash itself. It detects a mix of the tokens, logits and
/// caches of different sessions.
fn seal(bytes: &[u8]) -> Option<[u8; HASH]> {
    let (head, rest) = bytes.split_at_checked(MAGIC.len() + HASH)?;
    let (_, rest) = rest.split_at_checked(HASH)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(head).update(rest);
    Some(*hasher.finalize().as_bytes())
}
