//! Tokens beside the model's: a text is split at them before anything else.

use std::ops::Range;

use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::normalizer::Normalizer;
use super::settings::{flag, id, max_len, text};
use super::trie::Trie;
use crate::error::Result;

/// The tokens that a file adds.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    tokens: Vec<AddedToken>,
    by_id: FxHashMap<u32, usize>,
    /// Those that are found in the text as it is, and those that are found in the normalized one.
    plain: Index,
    normalized: Index,
}

/// Tokens by the text that is searched for.
#[derive(Debug, Default)]
struct Index {
    trie: Trie,
    /// By a byte, whether one begins with it; empty if there are none.
    is_first: Vec<bool>,
}

#[derive(Debug)]
struct AddedToken {
    id: u32,
    content: String,
    /// The normalized content, which texts are searched for, if it differs.
    normalized: Option<Box<str>>,
    is_special: bool,
    /// True if it matches at word boundaries only.
    single_word: bool,
    /// True if it takes the spaces beside it.
    lstrip: bool,
    rstrip: bool,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(Range<usize>),
    Token(u32),
}

impl AddedTokens {
    pub(super) fn of(json: &[Json], normalizer: Option<&Normalizer>) -> Result<Self> {
        let mut this = Self::default();
        let (mut plain, mut normalized_patterns) = (Vec::new(), Vec::new());
        for json in json {
            let content = text(json, "content")?.to_owned();
            let is_special = flag(json, "special", false);
            let is_normalized = flag(json, "normalized", !is_special);
            let pattern = match normalizer {
                Some(normalizer) if is_normalized => normalizer.normalize(&content, max_len(content.len()))?,
                _ => content.clone(),
            };
            let id = id(&json["id"])?;
            let flag = |name| flag(json, name, false);
            let (single_word, lstrip, rstrip) = (flag("single_word"), flag("lstrip"), flag("rstrip"));
            let normalized = (*pattern != *content).then(|| pattern.as_str().into());
            let at = this.push(AddedToken { id, content, normalized, is_special, single_word, lstrip, rstrip });
            if is_normalized { &mut normalized_patterns } else { &mut plain }.push((pattern, at));
        }
        (this.plain, this.normalized) = (Index::of(&plain)?, Index::of(&normalized_patterns)?);
        Ok(this)
    }

    /// Special tokens of these numbers and texts, which are found in the text as it is.
    pub(super) fn of_pieces<'p>(pieces: impl Iterator<Item = (u32, &'p str)>) -> Result<Self> {
        let mut this = Self::default();
        let mut plain = Vec::new();
        for (id, text) in pieces {
            let (single_word, lstrip, rstrip) = (false, false, false);
            let (content, normalized, is_special) = (text.to_owned(), None, true);
            let at = this.push(AddedToken { id, content, normalized, is_special, single_word, lstrip, rstrip });
            plain.push((text.to_owned(), at));
        }
        this.plain = Index::of(&plain)?;
        Ok(this)
    }

    /// Adds a token, and returns its index.
    fn push(&mut self, token: AddedToken) -> usize {
        let at = self.tokens.len();
        self.by_id.insert(token.id, at);
        self.tokens.push(token);
        at
    }

    pub(super) fn content(&self, id: u32) -> Option<&str> {
        self.by_id.get(&id).map(|at| self.tokens[*at].content.as_str())
    }

    /// The text of a token that decoders turn back.
    pub(super) fn encoded(&self, id: u32) -> Option<&str> {
        let token = self.by_id.get(&id).map(|at| &self.tokens[*at])?;
        Some(token.normalized.as_deref().unwrap_or(&token.content))
    }

    pub(super) fn id(&self, content: &str) -> Option<u32> {
        self.tokens.iter().find(|token| token.content == content).map(|token| token.id)
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|at| self.tokens[*at].is_special)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().map(|token| token.id)
    }

    /// Bytes of the longest token that a text begins with.
    pub(super) fn prefix(&self, text: &str) -> Option<usize> {
        self.plain.find(text, 0).map(|(_, end)| end)
    }

    /// Splits a text before it is normalized.
    pub(super) fn split(&self, text: &str) -> Vec<Part> {
        self.split_at(&self.plain, text)
    }

    /// Splits a normalized text.
    pub(super) fn split_normalized(&self, text: &str) -> Vec<Part> {
        self.split_at(&self.normalized, text)
    }

    fn split_at(&self, index: &Index, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut start = 0;
        if !index.is_first.is_empty() {
            let mut next = 0;
            for (at, byte) in text.bytes().enumerate() {
                if !index.is_first[usize::from(byte)] || at < next {
                    continue;
                }
                let Some((token, end)) = index.find(text, at) else { continue };
                let token = &self.tokens[token];
                next = end;
                let is_letter = |char: char| char.is_alphanumeric() || char == '_';
                if token.single_word && (text[..at].ends_with(is_letter) || text[end..].starts_with(is_letter)) {
                    continue;
                }
                let before = &text[start..at];
                let before = if token.lstrip { before.trim_end() } else { before };
                if !before.is_empty() {
                    parts.push(Part::Text(start..start + before.len()));
                }
                parts.push(Part::Token(token.id));
                let after = &text[end..];
                start = if token.rstrip { text.len() - after.trim_start().len() } else { end };
                next = next.max(start);
            }
        }
        if start < text.len() {
            parts.push(Part::Text(start..text.len()));
        }
        parts
    }
}

impl Index {
    /// Of equal texts the first token counts.
    fn of(patterns: &[(String, usize)]) -> Result<Self> {
        let patterns = patterns.iter().filter(|(pattern, _)| !pattern.is_empty());
        let trie = Trie::new(patterns.clone().map(|(pattern, at)| (pattern.as_str(), *at as u32)))?;
        let mut is_first = Vec::new();
        for byte in patterns.filter_map(|(pattern, _)| pattern.bytes().next()) {
            is_first.resize(256, false);
            is_first[usize::from(byte)] = true;
        }
        Ok(Self { trie, is_first })
    }

    /// The longest token at a place of a text, and its end.
    fn find(&self, text: &str, at: usize) -> Option<(usize, usize)> {
        let (len, token) = self.trie.longest(Trie::ROOT, &text.as_bytes()[at..])?;
        Some((token as usize, at + len))
    }
}
