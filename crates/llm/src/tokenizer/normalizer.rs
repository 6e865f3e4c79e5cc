//! Normalizers: what changes a text before it is split.

use serde_json::Value as Json;
use unicode_normalization::UnicodeNormalization;

use super::byte_level;
use super::pattern::Pattern;
use super::precompiled::CharsMap;
use super::settings::{check_len, damaged, flag, kind, list, text};
use crate::error::Result;

#[derive(Debug)]
pub(super) enum Normalizer {
    Sequence(Vec<Self>),
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    StripAccents(Pattern),
    Strip { left: bool, right: bool },
    Prepend(String),
    Replace(Pattern, String),
    Precompiled(CharsMap),
    ByteLevel,
    Bert(Bert),
}

/// Settings of `BertNormalizer`.
#[derive(Debug)]
pub(super) struct Bert {
    /// The characters that `clean_text` removes.
    clean_text: Option<Pattern>,
    handle_chinese_chars: bool,
    strip_accents: Option<Pattern>,
    lowercase: bool,
}

/// Marks that combine with the letter before.
/// Of Unicode 9.
const MARKS: &str = r"(?=\p{age:9.0})\p{M}";
/// Control characters and those of formats, but for those that are spaces.
/// As everywhere in BERT's components, of Unicode 8.
const CONTROLS: &str = r"(?![\t\n\r])[\x{0}\x{FFFD}]|(?=\p{age:8.0})(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}]";
const NONSPACING_MARKS: &str = r"(?=\p{age:8.0})[\p{Mn}\x{1734}\x{A9BD}\x{1171E}](?<![\x{1885}\x{1886}])";

impl Normalizer {
    pub(super) fn of(json: &Json) -> Result<Self> {
        Ok(match kind(json)? {
            "Sequence" => Self::Sequence(list(json, "normalizers")?.iter().map(Self::of).collect::<Result<_>>()?),
            "NFC" => Self::Nfc,
            "NFD" => Self::Nfd,
            "NFKC" => Self::Nfkc,
            "NFKD" => Self::Nfkd,
            "Lowercase" => Self::Lowercase,
            "StripAccents" => Self::StripAccents(Pattern::regex(MARKS)?),
            "Strip" => Self::Strip { left: flag(json, "strip_left", true), right: flag(json, "strip_right", true) },
            "Prepend" => Self::Prepend(text(json, "prepend")?.to_owned()),
            "Replace" => Self::Replace(Pattern::of(&json["pattern"])?, text(json, "content")?.to_owned()),
            "Precompiled" => Self::Precompiled(CharsMap::of(text(json, "precompiled_charsmap")?)?),
            "ByteLevel" => Self::ByteLevel,
            "BertNormalizer" => {
                let lowercase = flag(json, "lowercase", true);
                let strips = flag(json, "strip_accents", lowercase);
                Self::Bert(Bert {
                    clean_text: if flag(json, "clean_text", true) { Some(Pattern::regex(CONTROLS)?) } else { None },
                    handle_chinese_chars: flag(json, "handle_chinese_chars", true),
                    strip_accents: if strips { Some(Pattern::regex(NONSPACING_MARKS)?) } else { None },
                    lowercase,
                })
            }
            other => return Err(damaged(format!("the normalizer `{other}` is not known"))),
        })
    }

    /// Normalizes a text, to at most `max` bytes.
    pub(super) fn normalize(&self, text: &str, max: usize) -> Result<String> {
        let text = self.apply(text, max)?;
        check_len(text.len(), max).map(|()| text)
    }

    fn apply(&self, text: &str, max: usize) -> Result<String> {
        Ok(match self {
            Self::Sequence(all) => {
                all.iter().try_fold(text.to_owned(), |text, normalizer| normalizer.normalize(&text, max))?
            }
            Self::Nfc => text.nfc().collect(),
            Self::Nfd => text.nfd().collect(),
            Self::Nfkc => text.nfkc().collect(),
            Self::Nfkd => text.nfkd().collect(),
            Self::Lowercase => lowercase(text),
            Self::StripAccents(marks) => marks.replace(text, "", max)?,
            Self::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                (if *right { text.trim_end() } else { text }).to_owned()
            }
            Self::Prepend(prefix) if text.is_empty() => prefix[..0].to_owned(),
            Self::Prepend(prefix) => format!("{prefix}{text}"),
            Self::Replace(pattern, content) => pattern.replace(text, content, max)?,
            Self::Precompiled(map) => map.normalize(text),
            Self::ByteLevel => byte_level::encode(text),
            Self::Bert(bert) => bert.normalize(text, max)?,
        })
    }
}

/// Character by character, whatever is around it.
fn lowercase(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

impl Bert {
    fn normalize(&self, text: &str, max: usize) -> Result<String> {
        let mut text = text.to_owned();
        if let Some(controls) = &self.clean_text {
            let cleaned = controls.replace(&text, "", max)?;
            text = cleaned.chars().map(|char| if char.is_whitespace() { ' ' } else { char }).collect();
        }
        if self.handle_chinese_chars {
            let mut spaced = String::with_capacity(text.len());
            for char in text.chars() {
                if is_chinese(char) {
                    spaced.extend([' ', char, ' ']);
                } else {
                    spaced.push(char);
                }
            }
            text = spaced;
        }
        if let Some(marks) = &self.strip_accents {
            text = marks.replace(&text.nfd().collect::<String>(), "", max)?;
        }
        Ok(if self.lowercase { lowercase(&text) } else { text })
    }
}

/// Ideographs, by BERT's list of blocks.
fn is_chinese(char: char) -> bool {
    matches!(char,
        '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}' | '\u{2a700}'..='\u{2b73f}'
        | '\u{2b740}'..='\u{2b81f}' | '\u{2b920}'..='\u{2ceaf}' | '\u{f900}'..='\u{faff}' | '\u{2f800}'..='\u{2fa1f}')
}
