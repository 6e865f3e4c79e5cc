//! Decoders: token strings to text.

use std::borrow::Cow;

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

    /// The text of tokens.
    pub(super) fn text<'t>(&self, tokens: impl Iterator<Item = &'t str>) -> Result<String> {
        if let Self::ByteLevel = self {
            let mut bytes = Vec::new();
            tokens.for_each(|token| byte_level::decode(token, &mut bytes));
            return Ok(
                String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
            );
        }
        let tokens: Vec<Cow<'_, str>> = tokens.map(Cow::Borrowed).collect();
        let max = max_len(tokens.iter().map(|token| token.len()).sum());
        Ok(self.decode(tokens, max)?.concat())
    }

    /// Decodes tokens to at most `max` bytes.
    fn decode<'t>(&self, tokens: Vec<Cow<'t, str>>, max: usize) -> Result<Vec<Cow<'t, str>>> {
        let tokens = self.apply(tokens, max)?;
        check_len(tokens.iter().map(|token| token.len()).sum(), max).map(|()| tokens)
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
        let text = self.text([BEFORE, token].into_iter())?;
        Ok(text.strip_prefix(BEFORE).unwrap_or(&text).as_bytes().to_vec())
    }

    fn apply<'t>(&self, mut tokens: Vec<Cow<'t, str>>, max: usize) -> Result<Vec<Cow<'t, str>>> {
        match self {
            Self::Sequence(all) => return all.iter().try_fold(tokens, |tokens, decoder| decoder.decode(tokens, max)),
            Self::ByteLevel => {
                let mut bytes = Vec::new();
                tokens.iter().for_each(|token| byte_level::decode(token, &mut bytes));
                return Ok(vec![Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())]);
            }
            Self::ByteFallback => return Ok(bytes_to_text(tokens)),
            Self::Fuse => return Ok(vec![Cow::Owned(tokens.concat())]),
            Self::Metaspace(Metaspace { replacement, prepend, .. }) => {
                for (at, token) in tokens.iter_mut().enumerate() {
                    // The space that the first word was given is none of the text's.
                    let space = if at == 0 && *prepend != Prepend::Never { "" } else { " " };
                    replace(token, replacement, space);
                }
            }
            Self::WordPiece { prefix, cleanup } => {
                for (at, token) in tokens.iter_mut().enumerate() {
                    if at > 0 {
                        match token.strip_prefix(prefix.as_str()) {
                            Some(rest) => *token = Cow::Owned(rest.to_owned()),
                            None => token.to_mut().insert(0, ' '),
                        }
                    }
                    if *cleanup {
                        clean_up(token);
                    }
                }
            }
            Self::Bpe { suffix } => {
                let last = tokens.len().saturating_sub(1);
                for (at, token) in tokens.iter_mut().enumerate().filter(|_| !suffix.is_empty()) {
                    replace(token, suffix, if at == last { "" } else { " " });
                }
            }
            Self::Strip { content, start, stop } => {
                for token in &mut tokens {
                    let (mut text, mut left) = (token.as_ref(), *start);
                    while let (1.., Some(rest)) = (left, text.strip_prefix(*content)) {
                        (text, left) = (rest, left - 1);
                    }
                    let mut left = *stop;
                    while let (1.., Some(rest)) = (left, text.strip_suffix(*content)) {
                        (text, left) = (rest, left - 1);
                    }
                    if text.len() < token.len() {
                        *token = Cow::Owned(text.to_owned());
                    }
                }
            }
            Self::Replace(Pattern::Text(from), to) if !from.is_empty() => {
                let mut len = 0;
                for token in &mut tokens {
                    replace(token, from, to);
                    len += token.len();
                    check_len(len, max)?;
                }
            }
            Self::Replace(pattern, content) => {
                for token in &mut tokens {
                    *token = Cow::Owned(pattern.replace(token, content, max)?);
                }
            }
            Self::Ctc { pad, delimiter, cleanup } => {
                tokens.dedup();
                for token in &mut tokens {
                    replace(token, pad, "");
                    if *cleanup {
                        clean_up(token);
                        replace(token, delimiter, " ");
                    }
                }
                tokens.retain(|token| !token.is_empty());
            }
        }
        Ok(tokens)
    }
}

/// Replaces a text in a token.
fn replace(token: &mut Cow<'_, str>, from: &str, to: &str) {
    if token.contains(from) {
        *token = Cow::Owned(token.replace(from, to));
    }
}

/// The byte of a token such as `<0x0A>`.
fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// Decodes neighbouring byte tokens, such as `<0x0A>`, as UTF-8. If a run is not UTF-8, each of its bytes becomes U+FFFD.
fn bytes_to_text(tokens: Vec<Cow<'_, str>>) -> Vec<Cow<'_, str>> {
    let mut texts = Vec::with_capacity(tokens.len());
    let mut bytes = Vec::new();
    let flush = |bytes: &mut Vec<u8>, texts: &mut Vec<Cow<'_, str>>| {
        if bytes.is_empty() {
            return;
        }
        let count = bytes.len();
        match String::from_utf8(std::mem::take(bytes)) {
            Ok(text) => texts.push(Cow::Owned(text)),
            Err(_) => texts.extend(std::iter::repeat_n(Cow::Borrowed("\u{fffd}"), count)),
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
fn clean_up(token: &mut Cow<'_, str>) {
    const RULES: [(&str, &str); 11] = [
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

    let pairs = token.as_bytes().windows(2);
    if pairs.into_iter().any(|pair| pair[0] == b' ' && b".?!,'nd".contains(&pair[1])) {
        RULES.into_iter().for_each(|(from, to)| replace(token, from, to));
    }
}
