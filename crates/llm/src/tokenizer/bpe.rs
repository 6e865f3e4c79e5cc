//! Byte-pair encoding (Sennrich et al. 2016): merges adjacent pairs by rank.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value as Json;

use super::byte_level;
use super::piece::SPACE;
use super::settings::{damaged, flag, list};
use super::vocabulary::Vocabulary;
use crate::error::Result;

#[derive(Debug)]
pub(super) struct Bpe {
    pub(super) vocabulary: Vocabulary,
    merges: Merges,
    unknown: Unknown,
    /// True if a word that is a token is not split.
    ignore_merges: bool,
    /// `continuing_subword_prefix` and `end_of_word_suffix`.
    prefix: String,
    suffix: String,
    /// Tokens that are never used: each becomes the two tokens that it was merged from.
    unused: FxHashSet<u32>,
    /// The handling of words whose characters stand for bytes; `None` for other words.
    bytes: Option<Bytes>,
    /// True if a word can be split before each space: no token has a space after another character.
    splits_at_spaces: bool,
    /// Cache of encoded words.
    cache: Mutex<FxHashMap<Box<str>, Box<[u32]>>>,
}

/// The handling of words whose characters stand for bytes.
#[derive(Debug)]
enum Bytes {
    /// The token of each byte.
    Tokens(Box<[u32; 256]>),
    /// Bytes are mapped to characters. Some have no token, or another one at the ends of a word.
    Characters,
}

/// By pair of tokens: the rank of the merge, and the merged token.
#[derive(Debug, Default)]
struct Merges(FxHashMap<u64, (u32, u32)>);

impl Merges {
    fn insert(&mut self, (a, b): (u32, u32), merge: (u32, u32)) {
        self.0.insert(u64::from(a) << 32 | u64::from(b), merge);
    }

    fn get(&self, a: u32, b: u32) -> Option<(u32, u32)> {
        self.0.get(&(u64::from(a) << 32 | u64::from(b))).copied()
    }
}

/// Values of `merges` that replace a list. Two tokens are merged if their joined text is a token. The lowest token is
/// merged first, or the token with the highest of the `scores`.
pub(super) const BY_RANK: &str = "by rank";
pub(super) const BY_SCORE: &str = "by score";

/// Handling of characters that are not in the vocabulary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unknown {
    /// The token of unknown characters; `None` drops them.
    pub(super) token: Option<u32>,
    /// True if adjacent unknown characters become one token.
    pub(super) is_fused: bool,
    /// True if an unknown character becomes the tokens of its bytes, if all of them exist.
    pub(super) byte_fallback: bool,
}

/// Maximum number of cached words, and of the bytes of each.
const MAX_CACHED: usize = 1 << 15;
const MAX_CACHED_BYTES: usize = 64;

/// Maximum number of symbols of a word whose best merge is found by linear search.
const MAX_SEARCHED: usize = MAX_CACHED_BYTES;

/// A part of a word, in a linked list. It is small, because a word may have as many parts as a text has bytes.
#[derive(Clone, Copy)]
struct Symbol {
    /// [`NONE`] once it was merged into another part.
    token: u32,
    previous: u32,
    next: u32,
}

/// No symbol, or no token.
const NONE: u32 = u32::MAX;

impl Bpe {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let vocabulary = Vocabulary::of(&json["vocab"])?;
        let unknown = Unknown {
            token: json["unk_token"].as_str().and_then(|text| vocabulary.id(text)),
            is_fused: flag(json, "fuse_unk", false),
            byte_fallback: flag(json, "byte_fallback", false),
        };
        let ignore_merges = flag(json, "ignore_merges", false);
        let prefix = json["continuing_subword_prefix"].as_str().unwrap_or_default().to_owned();
        let merges = match json["merges"].as_str() {
            Some(BY_RANK) => merges_by_score(&vocabulary, |token| Some(-f64::from(token)))?,
            Some(BY_SCORE) => {
                let scores = list(json, "scores")?;
                merges_by_score(&vocabulary, |token| scores.get(token as usize)?.as_f64())?
            }
            _ => listed_merges(&vocabulary, &prefix, list(json, "merges")?)?,
        };
        let suffix = json["end_of_word_suffix"].as_str().unwrap_or_default().to_owned();
        let this = Self::new(vocabulary, merges, unknown);
        let splits_at_spaces = this.splits_at_spaces && prefix.is_empty() && suffix.is_empty() && !ignore_merges;
        Ok(Self { ignore_merges, prefix, suffix, splits_at_spaces, ..this })
    }

    /// Creates the model from tokens with scores, by which they are merged. Some tokens may be unused.
    ///
    /// # Errors
    /// For tokens that are too long, or have too many pairs.
    pub(super) fn by_scores(
        vocabulary: Vocabulary,
        score: impl Fn(u32) -> Option<f64>,
        unknown: Unknown,
        unused: FxHashSet<u32>,
    ) -> Result<Self> {
        let merges = merges_by_score(&vocabulary, score)?;
        let this = Self::new(vocabulary, merges, unknown);
        Ok(Self { splits_at_spaces: this.splits_at_spaces && unused.is_empty(), unused, ..this })
    }

    fn new(vocabulary: Vocabulary, merges: Merges, unknown: Unknown) -> Self {
        let begins_words = |text: &str| text.trim_start_matches(SPACE).find(SPACE).is_none();
        let mut merged = merges.0.values().map(|(_, token)| vocabulary.text(*token).unwrap_or_default());
        let splits_at_spaces = vocabulary.id(SPACE.encode_utf8(&mut [0; 4])).is_some() && merged.all(begins_words);
        Self {
            vocabulary,
            merges,
            unknown,
            ignore_merges: false,
            prefix: String::new(),
            suffix: String::new(),
            unused: FxHashSet::default(),
            bytes: None,
            splits_at_spaces,
            cache: Mutex::default(),
        }
    }

    /// Makes the model read words as raw bytes. Its vocabulary has them mapped to characters.
    pub(super) fn take_bytes(&mut self) {
        let token = |byte: usize| self.vocabulary.id(byte_level::char_of(byte as u8).encode_utf8(&mut [0; 4]));
        let tokens: Option<Vec<u32>> = (0..256).map(token).collect();
        let tokens = tokens.filter(|_| self.prefix.is_empty() && self.suffix.is_empty());
        let tokens = tokens.and_then(|tokens| tokens.into_boxed_slice().try_into().ok());
        self.bytes = Some(tokens.map_or(Bytes::Characters, Bytes::Tokens));
        self.splits_at_spaces = false;
    }

    /// Adds the tokens of words.
    pub(super) fn encode<'w>(&self, words: impl Iterator<Item = &'w str>, to: &mut Vec<u32>) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        for word in words {
            if self.splits_at_spaces {
                let mut start = 0;
                for (at, _) in word.match_indices(SPACE) {
                    if at > start && !word[..at].ends_with(SPACE) {
                        self.encode_word(&word[start..at], &mut cache, to);
                        start = at;
                    }
                }
                self.encode_word(&word[start..], &mut cache, to);
            } else {
                self.encode_word(word, &mut cache, to);
            }
        }
    }

    fn encode_word(&self, word: &str, cache: &mut FxHashMap<Box<str>, Box<[u32]>>, to: &mut Vec<u32>) {
        if word.len() > MAX_CACHED_BYTES {
            self.merge_word(word, to);
            return;
        }
        if let Some(known) = cache.get(word) {
            to.extend_from_slice(known);
            return;
        }
        let start = to.len();
        self.merge_word(word, to);
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(word.into(), to[start..].into());
    }

    /// Adds the tokens of a word that is not in the cache.
    fn merge_word(&self, word: &str, to: &mut Vec<u32>) {
        let is_mapped = self.ignore_merges || matches!(self.bytes, Some(Bytes::Characters));
        let mapped = if self.bytes.is_some() && is_mapped {
            Cow::Owned(byte_level::encode_bytes(word.as_bytes()))
        } else {
            Cow::Borrowed(word)
        };
        if self.ignore_merges
            && let Some(token) = self.vocabulary.id(&mapped)
        {
            to.push(token);
            return;
        }
        let tokens = match &self.bytes {
            Some(Bytes::Tokens(tokens)) => word.bytes().map(|byte| tokens[usize::from(byte)]).collect(),
            _ => self.characters(&mapped),
        };
        if tokens.len() <= MAX_SEARCHED && self.unused.is_empty() {
            to.extend(self.merged_by_search(tokens));
        } else {
            to.extend(self.merged(tokens));
        }
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
            if self.unknown.byte_fallback
                && let Some(bytes) = self.vocabulary.bytes(&text)
            {
                tokens.extend(bytes);
                was_unknown = false;
                continue;
            }
            if let Some(unknown) = self.unknown.token {
                if !(was_unknown && self.unknown.is_fused) {
                    tokens.push(unknown);
                }
                was_unknown = true;
            }
        }
        tokens
    }

    /// Merges adjacent pairs, the lowest rank first, and the first pair among equals. Searches the best pair of a short
    /// word again and again.
    fn merged_by_search(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        const NO_MERGE: (u32, u32) = (u32::MAX, 0);
        let merge = |tokens: &[u32], at: usize| match (tokens.get(at), tokens.get(at + 1)) {
            (Some(a), Some(b)) => self.merges.get(*a, *b).unwrap_or(NO_MERGE),
            _ => NO_MERGE,
        };
        let mut merges = [NO_MERGE; MAX_SEARCHED];
        for (at, slot) in merges.iter_mut().enumerate().take(tokens.len()) {
            *slot = merge(&tokens, at);
        }
        loop {
            let known = merges.iter().take(tokens.len()).enumerate();
            let Some((at, (rank, whole))) = known.min_by_key(|(_, (rank, _))| *rank) else { break };
            if *rank == u32::MAX {
                break;
            }
            tokens[at] = *whole;
            tokens.remove(at + 1);
            merges.copy_within(at + 2.., at + 1);
            merges[at] = merge(&tokens, at);
            if let Some(before) = at.checked_sub(1) {
                merges[before] = merge(&tokens, before);
            }
        }
        tokens
    }

    /// Merges like [`merged_by_search`](Self::merged_by_search), for words of any length. Merges wait in a queue.
    fn merged(&self, tokens: Vec<u32>) -> Vec<u32> {
        let Ok(count) = u32::try_from(tokens.len()) else {
            // Such a word would not fit in memory.
            let (first, second) = tokens.split_at(tokens.len() / 2);
            return [self.merged(first.to_vec()), self.merged(second.to_vec())].concat();
        };
        let symbol = |(at, token): (u32, u32)| Symbol {
            token,
            previous: at.checked_sub(1).unwrap_or(NONE),
            next: if at + 1 == count { NONE } else { at + 1 },
        };
        let mut symbols: Vec<Symbol> = (0..count).zip(tokens).map(symbol).collect();
        let mut queue = BinaryHeap::with_capacity(symbols.len());
        let mut parts: FxHashMap<u32, (u32, u32)> = FxHashMap::default();
        let mut candidate = |symbols: &[Symbol], at: u32| {
            let a = symbols.get(at as usize)?;
            let b = symbols.get(a.next as usize)?;
            let (rank, whole) = self.merges.get(a.token, b.token)?;
            if self.unused.contains(&whole) {
                parts.insert(whole, (a.token, b.token));
            }
            Some(Reverse((rank, at, whole)))
        };
        queue.extend((0..count).filter_map(|at| candidate(&symbols, at)));
        while let Some(Reverse((_, at, whole))) = queue.pop() {
            // One of the two may have been merged in another pair.
            let Symbol { token, previous, next } = symbols[at as usize];
            let is_current = token != NONE
                && symbols
                    .get(next as usize)
                    .is_some_and(|b| self.merges.get(token, b.token).is_some_and(|(_, token)| token == whole));
            if !is_current {
                continue;
            }
            let after = symbols[next as usize].next;
            symbols[next as usize].token = NONE;
            symbols[at as usize] = Symbol { token: whole, previous, next: after };
            if let Some(after) = symbols.get_mut(after as usize) {
                after.previous = at;
            }
            queue.extend([previous, at].into_iter().filter_map(|at| candidate(&symbols, at)));
        }
        drop(queue);
        let merged = symbols.into_iter().map(|symbol| symbol.token).filter(|token| *token != NONE);
        if parts.is_empty() { merged.collect() } else { merged.flat_map(|token| used(token, &parts)).collect() }
    }
}

/// Returns the used tokens that an unused token was merged from.
fn used(token: u32, parts: &FxHashMap<u32, (u32, u32)>) -> Vec<u32> {
    let (mut used, mut left) = (Vec::new(), vec![token]);
    while let Some(token) = left.pop() {
        match parts.get(&token) {
            // The second token comes after all parts of the first.
            Some((a, b)) => left.extend([*b, *a]),
            None => used.push(token),
        }
    }
    used
}

/// Reads the merges that a file lists. The first has the lowest rank.
fn listed_merges(vocabulary: &Vocabulary, prefix: &str, list: &[Json]) -> Result<Merges> {
    let mut merges = Merges::default();
    for (rank, merge) in list.iter().enumerate() {
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
        let whole = format!("{a}{}", b.strip_prefix(prefix).unwrap_or(b));
        let ids = || Some(((vocabulary.id(a)?, vocabulary.id(b)?), vocabulary.id(&whole)?));
        let (pair, token) = ids().ok_or_else(|| damaged(format!("the merge of {a:?} and {b:?} has no tokens")))?;
        merges.insert(pair, (rank as u32, token));
    }
    Ok(merges)
}

/// Finds the merges of all pairs whose joined text is a token with a score. Equal scores have the same rank.
///
/// # Errors
/// For a token that is too long or has too many pairs, so that a file cannot take time or memory out of proportion.
fn merges_by_score(vocabulary: &Vocabulary, score: impl Fn(u32) -> Option<f64>) -> Result<Merges> {
    const MAX_TOKEN: usize = 1 << 9;
    const MAX_PAIRS: usize = 1 << 23;

    let mut pairs: Vec<(f64, (u32, u32), u32)> = Vec::new();
    for (token, text) in vocabulary.iter() {
        let Some(score) = score(token) else { continue };
        if text.len() > MAX_TOKEN || pairs.len() > MAX_PAIRS {
            return Err(damaged(format!(
                "the token {token} has {} bytes, more than {MAX_TOKEN}, or there are more than {MAX_PAIRS} pairs",
                text.len()
            )));
        }
        let splits = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
        let known = splits.filter_map(|(a, b)| Some((vocabulary.id(a)?, vocabulary.id(b)?)));
        pairs.extend(known.map(|pair| (score, pair, token)));
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut merges = Merges::default();
    let (mut rank, mut previous) = (0, f64::INFINITY);
    for (score, pair, token) in pairs {
        if score < previous {
            (rank, previous) = (rank + 1, score);
        }
        merges.insert(pair, (rank, token));
    }
    Ok(merges)
}
