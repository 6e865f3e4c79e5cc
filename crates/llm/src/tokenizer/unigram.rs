//! The unigram model (Kudo 2018): the most likely segmentation, by Viterbi's algorithm.

use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::piece::{Piece, PieceKind};
use super::settings::{damaged, flag, list};
use super::vocabulary::Vocabulary;
use crate::error::Result;

#[derive(Debug)]
pub(super) struct Unigram {
    pub(super) vocabulary: Vocabulary,
    /// The logarithm of each token's probability.
    scores: Vec<f64>,
    /// Edges of the trie of all tokens: a node and a byte to the next node.
    children: FxHashMap<(u32, u8), u32>,
    /// The token that a node ends.
    ends: Vec<Option<u32>>,
    unknown: Option<u32>,
    unknown_score: f64,
    byte_fallback: bool,
    /// True if sums of scores are rounded to single precision, as SentencePiece's are.
    rounds_to_f32: bool,
}

/// Penalty of an unknown character, in log-probability, below the lowest score.
const UNKNOWN_PENALTY: f64 = 10.0;

/// The best path that ends at a byte offset.
#[derive(Clone, Copy)]
struct Best {
    token: Option<u32>,
    score: f64,
    start: usize,
}

impl Unigram {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let mut this = Self {
            vocabulary: Vocabulary::default(),
            scores: Vec::new(),
            children: FxHashMap::default(),
            ends: vec![None],
            unknown: json["unk_id"].as_u64().and_then(|id| u32::try_from(id).ok()),
            unknown_score: 0.0,
            byte_fallback: flag(json, "byte_fallback", false),
            rounds_to_f32: false,
        };
        for (token, entry) in list(json, "vocab")?.iter().enumerate() {
            let (Some(text), Some(score)) = (entry[0].as_str(), entry[1].as_f64()) else {
                return Err(damaged(format!("the token {token} has no text and score")));
            };
            this.vocabulary.insert(text, token as u32);
            this.scores.push(score);
            this.add_path(text, token as u32);
        }
        if this.unknown.is_some_and(|token| token as usize >= this.scores.len()) {
            return Err(damaged("the unknown token is not in the vocabulary"));
        }
        this.unknown_score = this.scores.iter().fold(f64::INFINITY, |least, score| least.min(*score)) - UNKNOWN_PENALTY;
        Ok(this)
    }

    /// The pieces of a SentencePiece model, of which normal and user-defined ones are found in texts.
    pub(super) fn of_pieces(pieces: &[Piece], unknown: u32, byte_fallback: bool) -> Result<Self> {
        let normal = pieces.iter().filter(|piece| piece.kind == PieceKind::Normal).map(|piece| piece.score);
        let (least, most) =
            normal.fold((f32::MAX, f32::MIN_POSITIVE), |(least, most), score| (least.min(score), most.max(score)));
        let mut this = Self {
            vocabulary: Vocabulary::default(),
            scores: Vec::new(),
            children: FxHashMap::default(),
            ends: vec![None],
            unknown: Some(unknown),
            unknown_score: f64::from(least - UNKNOWN_PENALTY as f32),
            byte_fallback,
            rounds_to_f32: true,
        };
        for (token, piece) in pieces.iter().enumerate() {
            this.vocabulary.insert(&piece.text, token as u32);
            this.scores.push(match piece.kind {
                // More than any other segmentation of its text.
                PieceKind::UserDefined => f64::from(piece.text.len() as f32 * most) - 0.1,
                _ => f64::from(piece.score),
            });
            if matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined) {
                this.add_path(&piece.text, token as u32);
            }
        }
        Ok(this)
    }

    fn add_path(&mut self, text: &str, token: u32) {
        let mut node = 0;
        for byte in text.bytes() {
            let next = self.ends.len() as u32;
            node = *self.children.entry((node, byte)).or_insert(next);
            if node == next {
                self.ends.push(None);
            }
        }
        self.ends[node as usize] = Some(token);
    }

    /// Adds the tokens of a word.
    ///
    /// # Errors
    /// For a character that is no token, if there is none for unknown ones.
    pub(super) fn encode(&self, word: &str, to: &mut Vec<u32>) -> Result<()> {
        let mut best: Vec<Option<Best>> = vec![None; word.len() + 1];
        best[0] = Some(Best { token: None, score: 0.0, start: 0 });
        let improve = |slot: &mut Option<Best>, new: Best| {
            let score = if self.rounds_to_f32 { f64::from(new.score as f32) } else { new.score };
            if slot.is_none_or(|old| score > old.score) {
                *slot = Some(Best { score, ..new });
            }
        };
        for (start, char) in word.char_indices() {
            let Some(Best { score, .. }) = best[start] else { continue };
            let width = char.len_utf8();
            let (mut node, mut is_token) = (0, false);
            for (at, byte) in word.bytes().enumerate().skip(start) {
                let Some(next) = self.children.get(&(node, byte)) else { break };
                node = *next;
                let Some(token) = self.ends[node as usize] else { continue };
                let end = at + 1;
                is_token |= end - start == width;
                let score = score + self.scores[token as usize];
                improve(&mut best[end], Best { token: Some(token), score, start });
            }
            if !is_token {
                let score = score + self.unknown_score;
                let score = if self.rounds_to_f32 { f64::from(score as f32) } else { score };
                improve(&mut best[start + width], Best { token: self.unknown, score, start });
            }
        }
        // From the end: parts of the text, neighbours that are unknown as one.
        let mut parts: Vec<(usize, usize, bool)> = Vec::new();
        let mut end = word.len();
        while end > 0 {
            let Some(Best { token, start, .. }) = best[end] else { break };
            let is_unknown = token == self.unknown;
            match parts.last_mut() {
                Some((first, _, true)) if is_unknown && self.unknown.is_some() => *first = start,
                _ => parts.push((start, end, is_unknown)),
            }
            end = start;
        }
        for (start, end, is_unknown) in parts.into_iter().rev() {
            let text = &word[start..end];
            // In SentencePiece the text of an unknown run may be a piece that segmentation does not know.
            let known = if is_unknown && self.rounds_to_f32 { None } else { self.vocabulary.id(text) };
            if let Some(token) = known {
                to.push(token);
            } else if self.byte_fallback
                && let Some(bytes) = self.vocabulary.bytes(text)
            {
                to.extend(bytes);
            } else {
                to.push(
                    self.unknown.ok_or_else(|| damaged(format!("{text:?} has no token, nor has what is unknown")))?,
                );
            }
        }
        Ok(())
    }
}
