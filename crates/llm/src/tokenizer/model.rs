//! Models: words to tokens.

use serde_json::Value as Json;

use super::bpe::Bpe;
use super::settings::{count, damaged, text};
use super::unigram::Unigram;
use super::vocabulary::Vocabulary;
use crate::error::Result;

#[derive(Debug)]
pub(super) enum TokenModel {
    Bpe(Bpe),
    Unigram(Unigram),
    WordPiece { vocabulary: Vocabulary, unknown: u32, prefix: String, max_chars: usize },
    WordLevel { vocabulary: Vocabulary, unknown: Option<u32> },
}

impl TokenModel {
    /// A setting. Files of older versions do not name the kind.
    pub(super) fn of(json: &Json) -> Result<Self> {
        let kind = json["type"].as_str().unwrap_or(match &json["vocab"] {
            Json::Array(_) => "Unigram",
            _ if !json["merges"].is_null() => "BPE",
            _ if !json["max_input_chars_per_word"].is_null() => "WordPiece",
            _ => "WordLevel",
        });
        Ok(match kind {
            "BPE" => Self::Bpe(Bpe::of(json)?),
            "Unigram" => Self::Unigram(Unigram::of(json)?),
            "WordPiece" => {
                let vocabulary = Vocabulary::of(&json["vocab"])?;
                let unknown = vocabulary.id(text(json, "unk_token")?);
                Self::WordPiece {
                    unknown: unknown.ok_or_else(|| damaged("the unknown token is not in the vocabulary"))?,
                    vocabulary,
                    prefix: text(json, "continuing_subword_prefix")?.to_owned(),
                    max_chars: count(json, "max_input_chars_per_word")?,
                }
            }
            "WordLevel" => {
                let vocabulary = Vocabulary::of(&json["vocab"])?;
                let unknown = json["unk_token"].as_str().and_then(|text| vocabulary.id(text));
                Self::WordLevel { vocabulary, unknown }
            }
            other => {
                return Err(damaged(format!("the model `{other}` is not known: BPE, Unigram, WordPiece or WordLevel")));
            }
        })
    }

    pub(super) fn vocabulary(&self) -> &Vocabulary {
        match self {
            Self::Bpe(bpe) => &bpe.vocabulary,
            Self::Unigram(unigram) => &unigram.vocabulary,
            Self::WordPiece { vocabulary, .. } | Self::WordLevel { vocabulary, .. } => vocabulary,
        }
    }

    /// Adds the tokens of words.
    pub(super) fn encode<'w>(&self, words: impl Iterator<Item = &'w str>, to: &mut Vec<u32>) -> Result<()> {
        match self {
            Self::Bpe(bpe) => bpe.encode(words, to),
            Self::Unigram(unigram) => words.into_iter().try_for_each(|word| unigram.encode(word, to))?,
            Self::WordPiece { vocabulary, unknown, prefix, max_chars } => {
                for word in words {
                    let start = to.len();
                    let is_short = word.chars().nth(*max_chars).is_none();
                    if !(is_short && word_pieces(vocabulary, prefix, word, to)) {
                        to.truncate(start);
                        to.push(*unknown);
                    }
                }
            }
            Self::WordLevel { vocabulary, unknown } => {
                for word in words {
                    let token = vocabulary.id(word).or(*unknown);
                    to.push(token.ok_or_else(|| damaged(format!("{word:?} has no token, nor has what is unknown")))?);
                }
            }
        }
        Ok(())
    }
}

/// Adds the longest tokens that a word begins with, one after the other; false if there is none at some place.
fn word_pieces(vocabulary: &Vocabulary, prefix: &str, word: &str, to: &mut Vec<u32>) -> bool {
    let mut start = 0;
    let mut piece = String::new();
    while start < word.len() {
        let mut longest = (start + vocabulary.longest()).min(word.len());
        while !word.is_char_boundary(longest) {
            longest -= 1;
        }
        let ends = word[start..longest].char_indices().rev().map(|(at, char)| start + at + char.len_utf8());
        let found = ends.into_iter().find_map(|end| {
            piece.clear();
            if start > 0 {
                piece.push_str(prefix);
            }
            piece.push_str(&word[start..end]);
            Some((vocabulary.id(&piece)?, end))
        });
        let Some((token, end)) = found else { return false };
        to.push(token);
        start = end;
    }
    true
}
