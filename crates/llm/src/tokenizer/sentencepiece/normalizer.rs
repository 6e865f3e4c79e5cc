//! SentencePiece's normalization: characters by the precompiled charsmap, then spaces.

use super::super::added_tokens::AddedTokens;
use super::super::piece::SPACE;
use super::super::precompiled::CharsMap;
use super::super::settings::check_len;
use super::Whitespace;
use crate::error::Result;

#[derive(Debug)]
pub(super) struct Normalizer {
    pub(super) chars_map: Option<CharsMap>,
    pub(super) whitespace: Whitespace,
    /// Pieces that stay as they are.
    pub(super) user_defined: AddedTokens,
}

impl Normalizer {
    /// Normalizes a text.
    ///
    /// # Errors
    /// For a result of more than `max` bytes.
    pub(super) fn normalize(&self, text: &str, max: usize) -> Result<String> {
        let Whitespace { adds_dummy_prefix, removes_extra, escapes, is_suffix } = self.whitespace;
        let space = if escapes { SPACE } else { ' ' };
        let mut rest = text;
        while let Some((len, " ")) = self.longest_rule(rest).filter(|_| removes_extra) {
            rest = &rest[len..];
        }
        if rest.is_empty() {
            return Ok(String::new());
        }
        let mut normalized = String::with_capacity(text.len() + text.len() / 4);
        if adds_dummy_prefix && !is_suffix {
            normalized.push(space);
        }
        let mut after_space = removes_extra;
        while let Some((len, replacement)) = self.longest_rule(rest) {
            rest = &rest[len..];
            let replacement = if after_space { replacement.trim_start_matches(' ') } else { replacement };
            normalized.extend(replacement.chars().map(|char| if char == ' ' { space } else { char }));
            if !replacement.is_empty() {
                after_space = removes_extra && replacement.ends_with(' ');
            }
            check_len(normalized.len(), max)?;
        }
        if removes_extra {
            normalized.truncate(normalized.trim_end_matches(space).len());
        }
        if adds_dummy_prefix && is_suffix {
            normalized.push(space);
        }
        Ok(normalized)
    }

    /// Returns the length and the replacement of the longest rule at the beginning of a text; a character without one stays.
    fn longest_rule<'t>(&'t self, text: &'t str) -> Option<(usize, &'t str)> {
        let first = text.chars().next()?;
        if let Some(len) = self.user_defined.prefix(text) {
            return Some((len, &text[..len]));
        }
        let replaced = self.chars_map.as_ref().and_then(|map| map.longest_prefix(text));
        Some(replaced.unwrap_or((first.len_utf8(), &text[..first.len_utf8()])))
    }
}
