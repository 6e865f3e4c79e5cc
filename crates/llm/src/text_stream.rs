//! Text of tokens as they come.

use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Turns tokens into text one by one, never half a character.
///
/// A token may be a part of a character, and its text may depend on the one before, as the space between words does. So text is
/// that of the last tokens with the new one, without that of the last tokens alone.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// Tokens whose text was returned, for what comes next, and those that are no whole characters yet.
    tokens: Vec<u32>,
    /// Number of tokens whose text was returned.
    returned: usize,
}

/// What stands for bytes that are no character, or not yet.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Number of tokens after which bytes will not become a character: one takes four bytes at most.
const MAX_PENDING: usize = 4;

/// Number of tokens without text that are kept.
const MAX_SILENT: usize = 32;

impl TextStream {
    pub fn new() -> Self {
        Self::default()
    }

    /// The text that a token adds; empty where a character is incomplete.
    ///
    /// # Errors
    /// Those of [`Tokenizer::decode`].
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = self.pending(tokenizer)?;
        if text.ends_with(REPLACEMENT) && self.tokens.len() - self.returned < MAX_PENDING {
            return Ok(String::new());
        }
        // Decoders treat the beginning of a text otherwise: what is before the new token has to have some.
        if !text.is_empty() || self.tokens.len() > MAX_SILENT {
            self.tokens.drain(..self.returned);
        }
        self.returned = self.tokens.len();
        Ok(text)
    }

    /// The text of an incomplete character at the end.
    ///
    /// # Errors
    /// Those of [`Tokenizer::decode`].
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let text = if self.tokens.len() > self.returned { self.pending(tokenizer)? } else { String::new() };
        *self = Self::default();
        Ok(text)
    }

    /// The text of the tokens that was not returned yet.
    fn pending(&self, tokenizer: &Tokenizer) -> Result<String> {
        let before = tokenizer.decode(&self.tokens[..self.returned], true)?;
        let mut text = tokenizer.decode(&self.tokens, true)?;
        // The end of what was returned differs only if it was no whole character.
        let common = before.char_indices().zip(text.chars()).take_while(|((_, a), b)| a == b);
        let start = common.last().map_or(0, |((at, char), _)| at + char.len_utf8());
        Ok(text.split_off(start))
    }
}
