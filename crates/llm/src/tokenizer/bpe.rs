//! Byte-pair encoding (Sennrich et al. 2016): merges adjacent pairs by rank.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::settings::{damaged, flag, list};
use super::vocabulary::Vocabulary;
use crate::error::Result;

#[derive(Debug)]
pub(super) struct Bpe {
    pub(super) vocabulary: Vocabulary,
    /// By a pair of tokens, the rank of its merge and the token that it becomes.
    merges: FxHashMap<(u32, u32), (u32, u32)>,
    unknown: Option<u32>,
    fuse_unknown: bool,
    byte_fallback: bool,
    /// True if a word that is a token is not split.
    ignore_merges: bool,
    /// `continuing_subword_prefix` and `end_of_word_suffix`.
    prefix: String,
    suffix: String,
    /// Tokens of words that were encoded.
    cache: Mutex<FxHashMap<Box<str>, Box<[u32]>>>,
}

/// Words that are kept, and the bytes of each.
const MAX_CACHED: usize = 10_000;
const MAX_CACHED_BYTES: usize = 64;

/// A part of a word, in a list of its neighbours.
#[derive(Clone, Copy)]
struct Symbol {
    token: u32,
    previous: usize,
    next: usize,
    is_alive: bool,
}

const NONE: usize = usize::MAX;

impl Bpe {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let vocabulary = Vocabulary::of(&json["vocab"])?;
        let prefix = json["continuing_subword_prefix"].as_str().unwrap_or_default().to_owned();
        let mut merges = FxHashMap::default();
        for (rank, merge) in list(json, "merges")?.iter().enumerate() {
            // A text with a space, or two texts.
            let pair = match merge {
                Json::String(both) => both.split_once(' '),
                Json::Array(pair) => match &pair[..] {
                    [Json::String(a), Json::String(b)] => Some((a.as_str(), b.as_str())),
                    _ => None,
                },
                _ => None,
            };
            let (a, b) = pair.ok_or_else(|| damaged(format!("the merge {rank} is no pair")))?;
            let whole = format!("{a}{}", b.strip_prefix(prefix.as_str()).unwrap_or(b));
            let ids = || Some(((vocabulary.id(a)?, vocabulary.id(b)?), vocabulary.id(&whole)?));
            let (pair, token) = ids().ok_or_else(|| damaged(format!("the merge of {a:?} and {b:?} has no tokens")))?;
            merges.insert(pair, (rank as u32, token));
        }
        Ok(Self {
            unknown: json["unk_token"].as_str().and_then(|text| vocabulary.id(text)),
            vocabulary,
            merges,
            fuse_unknown: flag(json, "fuse_unk", false),
            byte_fallback: flag(json, "byte_fallback", false),
            ignore_merges: flag(json, "ignore_merges", false),
            prefix,
            suffix: json["end_of_word_suffix"].as_str().unwrap_or_default().to_owned(),
            cache: Mutex::default(),
        })
    }

    /// Adds the tokens of a word.
    pub(super) fn encode(&self, word: &str, to: &mut Vec<u32>) {
        if self.ignore_merges
            && let Some(token) = self.vocabulary.id(word)
        {
            to.push(token);
            return;
        }
        if word.len() > MAX_CACHED_BYTES {
            to.extend(self.merged(self.characters(word)));
            return;
        }
        if let Some(known) = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(word) {
            to.extend_from_slice(known);
            return;
        }
        let tokens = self.merged(self.characters(word));
        to.extend_from_slice(&tokens);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(word.into(), tokens.into());
    }

    /// The tokens of a word's characters.
    fn characters(&self, word: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(word.len());
        let mut text = String::new();
        let mut was_unknown = false;
        for (at, char) in word.char_indices() {
            text.clear();
            if at > 0 {
                text.push_str(&self.prefix);
            }
            text.push(char);
            if at + char.len_utf8() == word.len() {
                text.push_str(&self.suffix);
            }
            if let Some(token) = self.vocabulary.id(&text) {
                tokens.push(token);
                was_unknown = false;
                continue;
            }
            if self.byte_fallback
                && let Some(bytes) = self.vocabulary.bytes(&text)
            {
                tokens.extend(bytes);
                was_unknown = false;
                continue;
            }
            if let Some(unknown) = self.unknown {
                if !(was_unknown && self.fuse_unknown) {
                    tokens.push(unknown);
                }
                was_unknown = true;
            }
        }
        tokens
    }

    /// Merges neighbours, those of the lowest rank first, of equals the first.
    fn merged(&self, tokens: Vec<u32>) -> Vec<u32> {
        let last = tokens.len().wrapping_sub(1);
        let mut symbols: Vec<Symbol> = tokens
            .into_iter()
            .enumerate()
            .map(|(at, token)| Symbol {
                token,
                previous: at.checked_sub(1).unwrap_or(NONE),
                next: if at == last { NONE } else { at + 1 },
                is_alive: true,
            })
            .collect();
        let mut queue = BinaryHeap::new();
        let candidate = |symbols: &[Symbol], at: usize| {
            let (a, b) = (symbols.get(at)?, symbols.get(symbols.get(at)?.next)?);
            let (rank, whole) = self.merges.get(&(a.token, b.token))?;
            Some(Reverse((*rank, at, *whole)))
        };
        queue.extend((0..symbols.len()).filter_map(|at| candidate(&symbols, at)));
        while let Some(Reverse((_, at, whole))) = queue.pop() {
            // One of the two may have been merged otherwise.
            let next = symbols[at].next;
            let is_current = symbols[at].is_alive
                && symbols.get(next).is_some_and(|b| {
                    self.merges.get(&(symbols[at].token, b.token)).is_some_and(|(_, token)| *token == whole)
                });
            if !is_current {
                continue;
            }
            let after = symbols[next].next;
            symbols[next].is_alive = false;
            symbols[at].token = whole;
            symbols[at].next = after;
            if let Some(after) = symbols.get_mut(after) {
                after.previous = at;
            }
            let previous = symbols[at].previous;
            queue.extend([previous, at].into_iter().filter_map(|at| candidate(&symbols, at)));
        }
        symbols.into_iter().filter(|symbol| symbol.is_alive).map(|symbol| symbol.token).collect()
    }
}
