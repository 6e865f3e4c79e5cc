//! SentencePiece's normalization: characters by a table, then spaces.

use super::super::added_tokens::AddedTokens;
use super::super::precompiled::CharsMap;
use super::super::settings::check_len;
use super::{SPACE, Whitespace};
use crate::error::Result;

#[derive(Debug)]
pub(super) struct Normalizer {
    pub(super) chars_map: Option<CharsMap>,
    pub(super) whitespace: Whitespace,
    /// Pieces that stay as they are.
    pub(super) protected: AddedTokens,
}

impl Normalizer {
    /// Normalizes a part of a text, which the whole begins and ends with if it is the first and last.
    ///
    /// # Errors
    /// For a result of more than `max` bytes.
    pub(super) fn normalize(&self, text: &str, is_first: bool, is_last: bool, max: usize) -> Result<String> {
        let Whitespace { adds_dummy, removes_extra, escapes, is_suffix } = self.whitespace;
        let space = if escapes { SPACE } else { ' ' };
        let mut normalized = String::with_capacity(text.len() + text.len() / 4);
        let mut dummy = adds_dummy && !is_suffix && is_first;
        // Where spaces are removed, it goes with the first character that stays.
        if !removes_extra && !text.is_empty() && std::mem::take(&mut dummy) {
            normalized.push(space);
        }
        let mut after_space = removes_extra;
        let mut rest = text;
        while let Some((len, replacement)) = self.prefix(rest) {
            rest = &rest[len..];
            let replacement = if after_space { replacement.trim_start_matches(' ') } else { replacement };
            if replacement.is_empty() {
                continue;
            }
            if std::mem::take(&mut dummy) {
                normalized.push(space);
            }
            normalized.extend(replacement.chars().map(|char| if char == ' ' { space } else { char }));
            after_space = removes_extra && replacement.ends_with(' ');
            check_len(normalized.len(), max)?;
        }
        if removes_extra {
            normalized.truncate(normalized.trim_end_matches(space).len());
        }
        if adds_dummy && is_suffix && is_last && !normalized.is_empty() {
            normalized.push(space);
        }
        Ok(normalized)
    }

    /// The bytes of the prefix of a text that is normalized at once, and what it becomes.
    fn prefix<'t>(&'t self, text: &'t str) -> Option<(usize, &'t str)> {
        let first = text.chars().next()?;
        if let Some(len) = self.protected.prefix(text) {
            return Some((len, &text[..len]));
        }
        let replaced = self.chars_map.as_ref().and_then(|map| map.longest_prefix(text));
        Some(replaced.unwrap_or((first.len_utf8(), &text[..first.len_utf8()])))
    }
}
