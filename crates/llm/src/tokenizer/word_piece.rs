//! WordPiece (Schuster and Nakajima 2012): splits each word into the longest tokens, from left to right.

use serde_json::Value as Json;

use super::settings::{count, damaged, text};
use super::trie::Trie;
use super::vocabulary::Vocabulary;
use crate::error::Result;

#[derive(Debug)]
pub(super) struct WordPiece {
    pub(super) vocabulary: Vocabulary,
    trie: Trie,
    /// The node of the prefix that marks tokens within words, if there are any.
    within: Option<u32>,
    unknown: u32,
    /// Maximum number of characters of a word. Longer words are unknown.
    max_chars: usize,
}

impl WordPiece {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let vocabulary = Vocabulary::of(&json["vocab"])?;
        let unknown = vocabulary.id(text(json, "unk_token")?);
        let trie = Trie::new(vocabulary.iter().map(|(token, text)| (text, token)))?;
        Ok(Self {
            within: trie.walk(Trie::ROOT, text(json, "continuing_subword_prefix")?),
            unknown: unknown.ok_or_else(|| damaged("the unknown token is not in the vocabulary"))?,
            vocabulary,
            trie,
            max_chars: count(json, "max_input_chars_per_word")?,
        })
    }

    /// Adds the tokens of a word.
    pub(super) fn encode(&self, word: &str, to: &mut Vec<u32>) {
        let start = to.len();
        let is_short = word.len() <= self.max_chars || word.chars().nth(self.max_chars).is_none();
        if !(is_short && self.push_pieces(word.as_bytes(), to)) {
            to.truncate(start);
            to.push(self.unknown);
        }
    }

    /// Adds tokens. Returns false if no token matches at some position.
    fn push_pieces(&self, mut rest: &[u8], to: &mut Vec<u32>) -> bool {
        let mut node = Some(Trie::ROOT);
        while !rest.is_empty() {
            let Some((len, token)) = node.and_then(|node| self.trie.longest(node, rest)) else { return false };
            to.push(token);
            rest = &rest[len..];
            node = self.within;
        }
        true
    }
}
