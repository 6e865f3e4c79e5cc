//! Models: words to tokens.

use serde_json::Value as Json;

use super::bpe::Bpe;
use super::settings::damaged;
use super::unigram::Unigram;
use super::vocabulary::Vocabulary;
use super::word_piece::WordPiece;
use crate::error::Result;

#[derive(Debug)]
pub(super) enum TokenModel {
    Bpe(Bpe),
    Unigram(Unigram),
    WordPiece(WordPiece),
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
            "WordPiece" => Self::WordPiece(WordPiece::of(json)?),
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
            Self::WordPiece(word_piece) => &word_piece.vocabulary,
            Self::WordLevel { vocabulary, .. } => vocabulary,
        }
    }

    /// Adds the tokens of words.
    pub(super) fn encode<'w>(&self, words: impl Iterator<Item = &'w str>, to: &mut Vec<u32>) -> Result<()> {
        match self {
            Self::Bpe(bpe) => bpe.encode(words, to),
            Self::Unigram(unigram) => words.into_iter().try_for_each(|word| unigram.encode(word, to))?,
            Self::WordPiece(word_piece) => words.into_iter().for_each(|word| word_piece.encode(word, to)),
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
