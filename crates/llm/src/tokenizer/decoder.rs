//! Decoders: token strings to text.

use serde_json::Value as Json;

use super::byte_level;
use super::pattern::Pattern;
use super::pre_tokenizer::{Metaspace, Prepend};
use super::settings::{check_len, count, damaged, flag, kind, list, max_len, text};
use crate::error::Result;

#[derive(Debug)]
pub(super) enum Decoder {
    Sequence(Vec<Self>),
    ByteLevel,
    ByteFallback,
    Fuse,
    Metaspace(Metaspace),
    WordPiece { prefix: String, cleanup: bool },
    Bpe { suffix: String },
    Strip { content: char, start: usize, stop: usize },
    Replace(Pattern, String),
    Ctc { pad: String, delimiter: String, cleanup: bool },
}

impl Decoder {
    pub(super) fn of(json: &Json) -> Result<Self> {
        Ok(match kind(json)? {
            "Sequence" => Self::Sequence(list(json, "decoders")?.iter().map(Self::of).collect::<Result<_>>()?),
            "ByteLevel" => Self::ByteLevel,
            "ByteFallback" => Self::ByteFallback,
            "Fuse" => Self::Fuse,
            "Metaspace" => Self::Metaspace(Metaspace::of(json)?),
            "WordPiece" => {
                Self::WordPiece { prefix: text(json, "prefix")?.to_owned(), cleanup: flag(json, "cleanup", true) }
            }
            "BPEDecoder" => Self::Bpe { suffix: text(json, "suffix")?.to_owned() },
            "Strip" => {
                let content = text(json, "content")?.chars().next();
                Self::Strip {
                    content: content.ok_or_else(|| damaged("a `Strip` decoder strips nothing"))?,
                    start: count(json, "start")?,
                    stop: count(json, "stop")?,
                }
            }
            "Replace" => Self::Replace(Pattern::of(&json["pattern"])?, text(json, "content")?.to_owned()),
            "CTC" => Self::Ctc {
                pad: text(json, "pad_token")?.to_owned(),
                delimiter: text(json, "word_delimiter_token")?.to_owned(),
                cleanup: flag(json, "cleanup", true),
            },
            other => return Err(damaged(format!("the decoder `{other}` is not known"))),
        })
    }

    /// Decodes tokens to at most `max` bytes.
    pub(super) fn decode(&self, tokens: Vec<String>, max: usize) -> Result<Vec<String>> {
        let tokens = self.apply(tokens, max)?;
        check_len(tokens.iter().map(String::len).sum(), max).map(|()| tokens)
    }

    /// The bytes of a token within a text.
    pub(super) fn token_bytes(&self, token: &str) -> Result<Vec<u8>> {
        /// Text before the token, from which no decoder takes anything.
        const BEFORE: &str = "x";
        let is = |kind: fn(&Self) -> bool| match self {
            Self::Sequence(all) => all.iter().any(kind),
            one => kind(one),
        };
        if is(|decoder| matches!(decoder, Self::ByteLevel)) {
            let mut bytes = Vec::new();
            byte_level::decode(token, &mut bytes);
            return Ok(bytes);
        }
        if let (true, Some(byte)) = (is(|decoder| matches!(decoder, Self::ByteFallback)), byte_of(token)) {
            return Ok(vec![byte]);
        }
        let text = self.decode(vec![BEFORE.to_owned(), token.to_owned()], max_len(token.len()))?.concat();
        Ok(text.strip_prefix(BEFORE).unwrap_or(&text).as_bytes().to_vec())
    }

    fn apply(&self, mut tokens: Vec<String>, max: usize) -> Result<Vec<String>> {
        match self {
            Self::Sequence(all) => all.iter().try_fold(tokens, |tokens, decoder| decoder.decode(tokens, max)),
            Self::ByteLevel => {
                let mut bytes = Vec::new();
                tokens.iter().for_each(|token| byte_level::decode(token, &mut bytes));
                Ok(vec![String::from_utf8_lossy(&bytes).into_owned()])
            }
            Self::ByteFallback => Ok(bytes_to_text(tokens)),
            Self::Fuse => Ok(vec![tokens.concat()]),
            Self::Metaspace(Metaspace { replacement, prepend, .. }) => {
                for (at, token) in tokens.iter_mut().enumerate() {
                    // The space that the first word was given is none of the text's.
                    let space = if at == 0 && *prepend != Prepend::Never { "" } else { " " };
                    *token = token.replace(replacement, space);
                }
                Ok(tokens)
            }
            Self::WordPiece { prefix, cleanup } => {
                for (at, token) in tokens.iter_mut().enumerate() {
                    if at > 0 {
                        *token = match token.strip_prefix(prefix.as_str()) {
                            Some(rest) => rest.to_owned(),
                            None => format!(" {token}"),
                        };
                    }
                    if *cleanup {
                        *token = cleaned_up(token);
                    }
                }
                Ok(tokens)
            }
            Self::Bpe { suffix } => {
                let last = tokens.len().saturating_sub(1);
                for (at, token) in tokens.iter_mut().enumerate().filter(|_| !suffix.is_empty()) {
                    *token = token.replace(suffix, if at == last { "" } else { " " });
                }
                Ok(tokens)
            }
            Self::Strip { content, start, stop } => {
                for token in &mut tokens {
                    let mut text = token.as_str();
                    let mut left = *start;
                    while let (1.., Some(rest)) = (left, text.strip_prefix(*content)) {
                        (text, left) = (rest, left - 1);
                    }
                    let mut left = *stop;
                    while let (1.., Some(rest)) = (left, text.strip_suffix(*content)) {
                        (text, left) = (rest, left - 1);
                    }
                    *token = text.to_owned();
                }
                Ok(tokens)
            }
            Self::Replace(pattern, content) => {
                tokens.iter().map(|token| pattern.replace(token, content, max)).collect()
            }
            Self::Ctc { pad, delimiter, cleanup } => {
                tokens.dedup();
                let text = |token: &String| {
                    let token = token.replace(pad, "");
                    if *cleanup { cleaned_up(&token).replace(delimiter, " ") } else { token }
                };
                Ok(tokens.iter().map(text).filter(|token| !token.is_empty()).collect())
            }
        }
    }
}

/// The byte of a token such as `<0x0A>`.
fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// Neighbouring tokens of bytes, as `<0x0A>`, become the characters that they are; what is none becomes U+FFFD for each byte.
fn bytes_to_text(tokens: Vec<String>) -> Vec<String> {
    let mut texts = Vec::with_capacity(tokens.len());
    let mut bytes = Vec::new();
    let flush = |bytes: &mut Vec<u8>, texts: &mut Vec<String>| {
        if bytes.is_empty() {
            return;
        }
        let count = bytes.len();
        match String::from_utf8(std::mem::take(bytes)) {
            Ok(text) => texts.push(text),
            Err(_) => texts.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER.to_string(), count)),
        }
    };
    for token in tokens {
        match byte_of(&token) {
            Some(byte) => bytes.push(byte),
            None => {
                flush(&mut bytes, &mut texts);
                texts.push(token);
            }
        }
    }
    flush(&mut bytes, &mut texts);
    texts
}

/// English as it is written: no space before punctuation and contractions (`clean_up_tokenization_spaces` of transformers).
fn cleaned_up(text: &str) -> String {
    let rules = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    rules.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
