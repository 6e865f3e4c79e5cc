//! Incremental detokenization.

use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Turns tokens into text one by one, never half a character.
///
/// A token may end one character and begin the next, and its text may depend on the tokens before, as the space between words does.
/// So new text is that of the last tokens with the new one, without the characters of it that were returned.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// The last tokens.
    tokens: Vec<u32>,
    /// Number of characters of their text that were returned.
    returned: usize,
    /// Number of tokens since a character was completed.
    pending: usize,
}

/// Number of tokens that are kept, and how many are left of more.
const MAX_TOKENS: usize = 16;
const KEPT_TOKENS: usize = 8;

/// Number of tokens that are kept at most, where all before are special, or bytes that are no characters.
const MAX_KEPT_TOKENS: usize = 64;

/// Bytes of a character, each of which may be a token.
const MAX_CHARACTER: usize = 4;

impl TextStream {
    /// A stream at the beginning of a text.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stream that goes on after other tokens, whose text it does not return.
    ///
    /// # Errors
    /// Those of [`Tokenizer::decode`].
    pub fn after(tokenizer: &Tokenizer, tokens: &[u32]) -> Result<Self> {
        let tokens = tokens.get(tokens.len().saturating_sub(KEPT_TOKENS)..).unwrap_or_default().to_vec();
        let returned = Characters::of(&tokenizer.decode(&tokens, true)?).complete;
        Ok(Self { tokens, returned, pending: 0 })
    }

    /// Returns the text that a token adds; empty where a character is incomplete.
    ///
    /// # Errors
    /// Those of [`Tokenizer::decode`].
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = tokenizer.decode(&self.tokens, true)?;
        let Characters { all, mut complete } = Characters::of(&text);
        self.pending = if complete > self.returned { 0 } else { self.pending + 1 };
        if self.pending >= MAX_CHARACTER {
            // Bytes that are no character, but for the last ones.
            complete = complete.max(all.saturating_sub(MAX_CHARACTER - 1));
        }
        let added = text.chars().skip(self.returned).take(complete.saturating_sub(self.returned)).collect();
        self.returned = self.returned.max(complete);
        if self.tokens.len() > MAX_TOKENS && self.pending == 0 || self.tokens.len() > MAX_KEPT_TOKENS {
            self.forget(tokenizer)?;
        }
        Ok(added)
    }

    /// Returns the text of an incomplete character at the end, and begins anew.
    ///
    /// # Errors
    /// Those of [`Tokenizer::decode`].
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let Self { tokens, returned, .. } = std::mem::take(self);
        Ok(tokenizer.decode(&tokens, true)?.chars().skip(returned).collect())
    }

    /// Forgets all but the last tokens: as few as begin with a character and have some text, as decoders treat the beginning of a
    /// text otherwise.
    fn forget(&mut self, tokenizer: &Tokenizer) -> Result<()> {
        let whole = Characters::of(&tokenizer.decode(&self.tokens, true)?).all;
        let is_full = self.tokens.len() > MAX_KEPT_TOKENS;
        for first in (0..=self.tokens.len() - KEPT_TOKENS).rev() {
            let text = tokenizer.decode(&self.tokens[first..], true)?;
            if is_full || !text.is_empty() && !text.starts_with(char::REPLACEMENT_CHARACTER) {
                // What was not returned is at the end.
                let waiting = whole.saturating_sub(self.returned);
                self.returned = Characters::of(&text).all.saturating_sub(waiting);
                self.tokens.drain(..first);
                break;
            }
        }
        Ok(())
    }
}

/// Numbers of a text's characters.
struct Characters {
    all: usize,
    /// Without U+FFFD at the end, which may be the beginning of one.
    complete: usize,
}

impl Characters {
    fn of(text: &str) -> Self {
        let complete = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        Self { all: text.chars().count(), complete: complete.chars().count() }
    }
}
