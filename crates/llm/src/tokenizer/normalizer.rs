//! Normalizers: what changes a text before it is split.

use std::sync::{Arc, LazyLock};

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
    Form(NormalForm),
    /// By the tables of today, not those of Hugging Face's tokenizers.
    CurrentForm(NormalForm),
    Nmt,
    Lowercase,
    StripAccents(Arc<Pattern>),
    Strip {
        left: bool,
        right: bool,
    },
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
    clean_text: Option<Arc<Pattern>>,
    handle_chinese_chars: bool,
    strip_accents: Option<Arc<Pattern>>,
    lowercase: bool,
}

/// Unicode's normal forms.
#[derive(Clone, Copy, Debug)]
pub(super) enum NormalForm {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

/// A normalizer of no `tokenizer.json`: NFC of the latest Unicode, as Python has it.
pub(super) const CURRENT_NFC: &str = "NFC of today";

/// Marks that combine with the letter before, of Unicode 9.
const MARKS: &str = r"[[\p{M}\x{1CF2}\x{1CF3}]&&\p{age:9.0}--\x{111C9}]";
/// Characters of later versions than the tables of Hugging Face's tokenizers.
const LATER: &str = r"[^\p{age:9.0}]+";
/// Control characters and those of formats, but for those that are spaces.
/// As everywhere in BERT's components, of Unicode 8.
const CONTROLS: &str = r"[\x{0}\x{FFFD}[[\p{Cc}\p{Cf}\p{Co}]&&\p{age:8.0}--\t\n\r]]";
const NONSPACING_MARKS: &str = r"[[\p{Mn}\x{1734}\x{1171E}]&&\p{age:8.0}--\x{1885}\x{1886}\x{A9BD}\x{111C9}]";

impl Normalizer {
    pub(super) fn of(json: &Json) -> Result<Self> {
        Ok(match kind(json)? {
            "Sequence" => Self::Sequence(list(json, "normalizers")?.iter().map(Self::of).collect::<Result<_>>()?),
            "NFC" => Self::Form(NormalForm::Nfc),
            "NFD" => Self::Form(NormalForm::Nfd),
            "NFKC" => Self::Form(NormalForm::Nfkc),
            "NFKD" => Self::Form(NormalForm::Nfkd),
            CURRENT_NFC => Self::CurrentForm(NormalForm::Nfc),
            "Nmt" => Self::Nmt,
            "Lowercase" => Self::Lowercase,
            "StripAccents" => Self::StripAccents(Pattern::own(MARKS)?),
            "Strip" => Self::Strip { left: flag(json, "strip_left", true), right: flag(json, "strip_right", true) },
            "Prepend" => Self::Prepend(text(json, "prepend")?.to_owned()),
            "Replace" => Self::Replace(Pattern::of(&json["pattern"])?, text(json, "content")?.to_owned()),
            "Precompiled" => Self::Precompiled(CharsMap::of(text(json, "precompiled_charsmap")?)?),
            "ByteLevel" => Self::ByteLevel,
            "BertNormalizer" => {
                let lowercase = flag(json, "lowercase", true);
                let strips = flag(json, "strip_accents", lowercase);
                Self::Bert(Bert {
                    clean_text: if flag(json, "clean_text", true) { Some(Pattern::own(CONTROLS)?) } else { None },
                    handle_chinese_chars: flag(json, "handle_chinese_chars", true),
                    strip_accents: if strips { Some(Pattern::own(NONSPACING_MARKS)?) } else { None },
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
            Self::Form(form) => form.of(text)?,
            Self::CurrentForm(form) => form.of_current(text),
            Self::Nmt => text.chars().filter_map(nmt).collect(),
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
            Self::ByteLevel => byte_level::encode_bytes(text.as_bytes()),
            Self::Bert(bert) => bert.normalize(text, max)?,
        })
    }
}

impl NormalForm {
    /// The normal form of a text by Unicode 9: later characters stay as they are.
    fn of(self, text: &str) -> Result<String> {
        static LATER_PATTERN: LazyLock<Result<Pattern>> = LazyLock::new(|| Pattern::regex(LATER));

        if text.is_ascii() {
            return Ok(text.to_owned());
        }
        let later = LATER_PATTERN.as_ref().map_err(|error| damaged(error.to_string()))?;
        let mut normalized = String::with_capacity(text.len());
        let mut end = 0;
        later.find(text, |found| {
            self.push(&text[end..found.start], &mut normalized);
            normalized.push_str(&text[found.clone()]);
            end = found.end;
            Ok(())
        })?;
        self.push(&text[end..], &mut normalized);
        Ok(normalized)
    }

    /// The normal form of a text by the latest Unicode.
    fn of_current(self, text: &str) -> String {
        let mut normalized = String::with_capacity(text.len());
        self.push(text, &mut normalized);
        normalized
    }

    fn push(self, text: &str, to: &mut String) {
        match self {
            Self::Nfc => to.extend(text.nfc()),
            Self::Nfd => to.extend(text.nfd()),
            Self::Nfkc => to.extend(text.nfkc()),
            Self::Nfkd => to.extend(text.nfkd()),
        }
    }
}

/// SentencePiece's rules for machine translation, before NFKC: kinds of spaces become spaces, and control characters are removed.
fn nmt(char: char) -> Option<char> {
    match char {
        '\u{1}'..='\u{8}' | '\u{b}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{8f}' | '\u{9f}' => None,
        '\t'
        | '\n'
        | '\u{c}'
        | '\r'
        | '\u{1680}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{2581}'
        | '\u{feff}'
        | '\u{fffd}' => Some(' '),
        other => Some(other),
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
            text = marks.replace(&NormalForm::Nfd.of(&text)?, "", max)?;
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
