//! Incremental detokenization.

use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Turns tokens into text one by one. Never returns a part of a character.
///
/// A token may end one character and begin the next. Its text may depend on the tokens before it, as the space between
/// words does. So the last tokens are decoded together with the new one, and the characters that were already returned
/// are left out.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// The last tokens.
    tokens: Vec<u32>,
    /// Number of characters of these tokens that were returned.
    returned: usize,
    /// Number of tokens since a character was completed.
    pending: usize,
}

/// Number of tokens above which some are dropped, and the minimum that is kept.
const MAX_TOKENS: usize = 16;
const KEPT_TOKENS: usize = 8;

/// Maximum number of kept tokens: more are dropped even if all before are special tokens or invalid bytes.
const MAX_KEPT_TOKENS: usize = 64;

/// Maximum bytes of a character; each may be a token.
const MAX_CHARACTER: usize = 4;

impl TextStream {
    /// Creates a stream at the beginning of a text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a stream after other tokens, whose text it does not return.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::decode`].
    pub fn after(tokenizer: &Tokenizer, tokens: &[u32]) -> Result<Self> {
        let tokens = tokens.get(tokens.len().saturating_sub(KEPT_TOKENS)..).unwrap_or_default().to_vec();
        let returned = Characters::of(&tokenizer.decode(&tokens, true)?).complete;
        Ok(Self { tokens, returned, pending: 0 })
    }

    /// Returns the text that a token adds; empty where a character is incomplete.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::decode`].
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = tokenizer.decode(&self.tokens, true)?;
        let Characters { all, mut complete } = Characters::of(&text);
        self.pending = if complete > self.returned { 0 } else { self.pending + 1 };
        if self.pending >= MAX_CHARACTER {
            // A character has fewer bytes, so they are invalid; only the last ones may begin a character.
            complete = complete.max(all.saturating_sub(MAX_CHARACTER - 1));
        }
        let added = text.chars().skip(self.returned).take(complete.saturating_sub(self.returned)).collect();
        self.returned = self.returned.max(complete);
        if self.tokens.len() > MAX_TOKENS && self.pending == 0 || self.tokens.len() > MAX_KEPT_TOKENS {
            self.forget(tokenizer)?;
        }
        Ok(added)
    }

    /// Returns the text of an incomplete character at the end, and resets the stream.
    ///
    /// # Errors
    /// The errors of [`Tokenizer::decode`].
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let Self { tokens, returned, .. } = std::mem::take(self);
        Ok(tokenizer.decode(&tokens, true)?.chars().skip(returned).collect())
    }

    /// Drops all but the last tokens. The kept tokens begin with a character and have some text, because decoders treat
    /// the beginning of a text differently.
    fn forget(&mut self, tokenizer: &Tokenizer) -> Result<()> {
        let whole = Characters::of(&tokenizer.decode(&self.tokens, true)?).all;
        let is_full = self.tokens.len() > MAX_KEPT_TOKENS;
        for first in (0..=self.tokens.len() - KEPT_TOKENS).rev() {
            let text = tokenizer.decode(&self.tokens[first..], true)?;
            if is_full || !text.is_empty() && !text.starts_with(char::REPLACEMENT_CHARACTER) {
                // Text that was not returned yet is at the end.
                let waiting = whole.saturating_sub(self.returned);
                self.returned = Characters::of(&text).all.saturating_sub(waiting);
                self.tokens.drain(..first);
                break;
            }
        }
        Ok(())
    }
}

/// Counts of a text's characters.
struct Characters {
    all: usize,
    /// Without U+FFFD at the end, which may be the beginning of a character.
    complete: usize,
}

impl Characters {
    fn of(text: &str) -> Self {
        let complete = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        Self { all: text.chars().count(), complete: complete.chars().count() }
    }
}
