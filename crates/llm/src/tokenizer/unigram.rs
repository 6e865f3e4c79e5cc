//! The unigram model (Kudo 2018): the most likely segmentation, by Viterbi's algorithm.

use std::sync::{Mutex, PoisonError};

use serde_json::Value as Json;

use super::piece::{Piece, PieceKind};
use super::settings::{damaged, flag, list};
use super::trie::Trie;
use super::vocabulary::Vocabulary;
use crate::error::Result;

#[derive(Debug)]
pub(super) struct Unigram {
    pub(super) vocabulary: Vocabulary,
    /// The logarithm of each token's probability.
    scores: Vec<f64>,
    /// Those that segmentation finds.
    trie: Trie,
    unknown: Option<u32>,
    unknown_score: f64,
    byte_fallback: bool,
    /// True if sums of scores are rounded to single precision, as SentencePiece's are.
    rounds_to_f32: bool,
    /// Working memory of an encoding that is not running.
    memory: Mutex<Vec<Best>>,
}

/// Penalty of an unknown character, in log-probability, below the lowest score.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A score as Hugging Face's `tokenizers` reads it: its JSON parser rounds the digits, and divides by a power of ten, which may be one unit in
/// the last place off. Segmentations whose scores are equal are told apart by that.
fn as_tokenizers_reads(score: f64) -> f64 {
    let shortest = format!("{score:e}");
    let parts = || {
        let (digits, exponent) = shortest.split_once('e')?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let significand: i64 = format!("{whole}{fraction}").parse().ok()?;
        Some((significand, exponent.parse::<i32>().ok()? - fraction.len() as i32))
    };
    let read = parts().filter(|(_, exponent)| (-MAX_EXACT_POWER..0).contains(exponent));
    read.map_or(score, |(significand, exponent)| significand as f64 / 10_f64.powi(-exponent))
}

/// The largest power of ten that a double has exactly.
const MAX_EXACT_POWER: i32 = 22;

/// Sum of scores in single precision below which SentencePiece counts from zero again.
const MIN_F32_SUM: f64 = -100_000.0;

/// The best path that ends at a byte offset: its last token, and where this begins.
#[derive(Clone, Copy, Debug)]
struct Best {
    score: f64,
    token: u32,
    start: u32,
}

/// Places of a text that the memory is kept for: more are released.
const MAX_KEPT: usize = 1 << 16;

/// No token, and no place.
const NONE: u32 = u32::MAX;

impl Best {
    const NONE: Self = Self { score: f64::NEG_INFINITY, token: NONE, start: NONE };
}

/// A part of the text that is a token, or of unknown characters.
struct Part {
    start: usize,
    end: usize,
    token: u32,
    is_unknown: bool,
}

impl Unigram {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let mut this = Self {
            vocabulary: Vocabulary::default(),
            scores: Vec::new(),
            trie: Trie::default(),
            unknown: json["unk_id"].as_u64().and_then(|id| u32::try_from(id).ok()),
            unknown_score: 0.0,
            byte_fallback: flag(json, "byte_fallback", false),
            rounds_to_f32: false,
            memory: Mutex::default(),
        };
        for (token, entry) in list(json, "vocab")?.iter().enumerate() {
            let (Some(text), Some(score)) = (entry[0].as_str(), entry[1].as_f64()) else {
                return Err(damaged(format!("the token {token} has no text and score")));
            };
            this.vocabulary.insert(text, token as u32);
            this.scores.push(as_tokenizers_reads(score));
        }
        // Of equal texts the last token counts.
        let found = this.vocabulary.iter().filter(|(token, text)| this.vocabulary.id(text) == Some(*token));
        this.trie = Trie::new(found.map(|(token, text)| (text, token)))?;
        if this.unknown.is_some_and(|token| token as usize >= this.scores.len()) {
            return Err(damaged("the unknown token is not in the vocabulary"));
        }
        this.unknown_score =
            this.scores.iter().fold(f64::INFINITY, |min_score, score| min_score.min(*score)) - UNKNOWN_PENALTY;
        Ok(this)
    }

    /// The pieces of a SentencePiece model, of which normal and user-defined ones are found in texts.
    pub(super) fn of_pieces(pieces: &[Piece], unknown: u32, byte_fallback: bool) -> Result<Self> {
        let normal = pieces.iter().filter(|piece| piece.kind == PieceKind::Normal).map(|piece| piece.score);
        let (min_score, max_score) = normal.fold((f32::MAX, f32::MIN_POSITIVE), |(min_score, max_score), score| {
            (min_score.min(score), max_score.max(score))
        });
        let mut this = Self {
            vocabulary: Vocabulary::default(),
            scores: Vec::new(),
            trie: Trie::default(),
            unknown: Some(unknown),
            unknown_score: f64::from(min_score - UNKNOWN_PENALTY as f32),
            byte_fallback,
            rounds_to_f32: true,
            memory: Mutex::default(),
        };
        for (token, piece) in pieces.iter().enumerate() {
            this.vocabulary.insert(&piece.text, token as u32);
            this.scores.push(match piece.kind {
                // More than any other segmentation of its text.
                PieceKind::UserDefined => f64::from(piece.text.len() as f32 * max_score),
                _ => f64::from(piece.score),
            });
        }
        let is_found = |piece: &Piece| matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined);
        let found = pieces.iter().zip(0..).filter(|(piece, _)| is_found(piece));
        this.trie = Trie::new(found.map(|(piece, token)| (piece.text.as_str(), token)))?;
        Ok(this)
    }

    /// Adds the tokens of a word.
    ///
    /// # Errors
    /// For a character that is not a token, if there is none for unknown ones.
    pub(super) fn encode(&self, word: &str, to: &mut Vec<u32>) -> Result<()> {
        let mut ends_at = if self.rounds_to_f32 {
            self.best_ends(word, |score| f64::from(score as f32))
        } else {
            self.best_ends(word, |score| score)
        };
        // From the end: parts of the text, neighbours that are unknown as one.
        let mut parts: Vec<Part> = Vec::new();
        let mut end = word.len();
        while end > 0 {
            let Best { token, start, .. } = ends_at[end];
            let is_unknown = token == self.unknown.unwrap_or(NONE);
            match parts.last_mut() {
                Some(last) if last.is_unknown && is_unknown && self.unknown.is_some() => last.start = start as usize,
                _ => parts.push(Part { start: start as usize, end, token, is_unknown }),
            }
            end = start as usize;
        }
        if ends_at.capacity() <= MAX_KEPT {
            ends_at.clear();
            *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = ends_at;
        }
        for Part { start, end, token, is_unknown } in parts.into_iter().rev() {
            if !is_unknown {
                to.push(token);
                continue;
            }
            let text = &word[start..end];
            // In SentencePiece the text of an unknown run may be a piece that segmentation does not know.
            let known = if self.rounds_to_f32 { None } else { self.vocabulary.id(text) };
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

    /// The best path to each byte of a word, by sums of scores that a function rounds.
    fn best_ends(&self, word: &str, round: impl Fn(f64) -> f64) -> Vec<Best> {
        let bytes = word.as_bytes();
        let mut best = std::mem::take(&mut *self.memory.lock().unwrap_or_else(PoisonError::into_inner));
        best.resize(bytes.len() + 1, Best::NONE);
        best[0].score = 0.0;
        let improve = |slot: &mut Best, score: f64, token: u32, start: usize| {
            if score > slot.score || slot.start == NONE {
                *slot = Best { score, token, start: start as u32 };
            }
        };
        for (start, char) in word.char_indices() {
            let mut score = best[start].score;
            if self.rounds_to_f32 && score < MIN_F32_SUM {
                let reached = &mut best[start..=bytes.len().min(start + self.vocabulary.longest())];
                reached.iter_mut().for_each(|end| end.score = round(end.score - score));
                score = 0.0;
            }
            let width = char.len_utf8();
            let (mut node, mut is_token) = (Trie::ROOT, false);
            for (at, byte) in bytes.iter().enumerate().skip(start) {
                let Some(next) = self.trie.child(node, *byte) else { break };
                node = next;
                let Some(token) = self.trie.value(node) else { continue };
                is_token |= at + 1 - start == width;
                improve(&mut best[at + 1], round(score + self.scores[token as usize]), token, start);
            }
            if !is_token {
                let score = round(score + self.unknown_score);
                improve(&mut best[start + width], score, self.unknown.unwrap_or(NONE), start);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of `tokenizers` 0.23.3.
    #[test]
    fn equal_scores_are_told_apart_as_tokenizers_does() {
        let (one, sixteen) = ("x", "x".repeat(16));
        let json = serde_json::json!({
            "unk_id": 0, "vocab": [["<unk>", 0.0], [one, -8.5438852889224], [sixteen, -10.724019044108879]],
        });
        let mut tokens = Vec::new();
        Unigram::of(&json).unwrap().encode(&"x".repeat(19), &mut tokens).unwrap();
        assert_eq!(tokens, [1, 1, 2, 1]);
    }
}
