//! Pre-tokenizers: what splits a text into words, each of which the model encodes on its own.

use serde_json::Value as Json;

use super::byte_level;
use super::pattern::{Pattern, SplitBehavior};
use super::settings::{check_len, count, damaged, flag, kind, list, text};
use super::split_patterns::GPT2;
use crate::error::Result;

/// A part of the text.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: String,
    /// True if the text begins with it.
    pub(super) is_first: bool,
}

#[derive(Debug)]
pub(super) enum PreTokenizer {
    Sequence(Vec<Self>),
    ByteLevel {
        add_prefix_space: bool,
        words: Option<Pattern>,
    },
    Metaspace(Metaspace),
    Split {
        pattern: Pattern,
        behavior: SplitBehavior,
        invert: bool,
    },
    /// Chunks of this number of characters.
    FixedLength(usize),
}

/// Spaces as visible characters, which begin words.
#[derive(Clone, Debug)]
pub(super) struct Metaspace {
    pub(super) replacement: String,
    pub(super) prepend: Prepend,
    split: bool,
}

/// Which words a space is put before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepend {
    Always,
    First,
    Never,
}

/// Of Unicode 8.
const PUNCTUATION: &str = r"[!-/:-@\[-`{-~]|(?=\p{age:8.0})\p{P}|[\x{166D}\x{111C9}]";

impl PreTokenizer {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let split = |regex: &str, behavior, invert| -> Result<Self> {
            Ok(Self::Split { pattern: Pattern::regex(regex)?, behavior, invert })
        };
        Ok(match kind(json)? {
            "Sequence" => Self::Sequence(list(json, "pretokenizers")?.iter().map(Self::of).collect::<Result<_>>()?),
            "ByteLevel" => Self::ByteLevel {
                add_prefix_space: flag(json, "add_prefix_space", true),
                words: if flag(json, "use_regex", true) { Some(Pattern::regex(GPT2)?) } else { None },
            },
            "Metaspace" => Self::Metaspace(Metaspace::of(json)?),
            "Split" => Self::Split {
                pattern: Pattern::of(&json["pattern"])?,
                behavior: SplitBehavior::of(text(json, "behavior")?)?,
                invert: flag(json, "invert", false),
            },
            "Whitespace" => split(r"\w+|[^\w\s]+", SplitBehavior::Removed, true)?,
            "WhitespaceSplit" => split(r"\s", SplitBehavior::Removed, false)?,
            "BertPreTokenizer" => Self::Sequence(vec![
                split(r"\s", SplitBehavior::Removed, false)?,
                split(PUNCTUATION, SplitBehavior::Isolated, false)?,
            ]),
            "Punctuation" => {
                let behavior = json["behavior"].as_str().map_or(Ok(SplitBehavior::Isolated), SplitBehavior::of)?;
                split(PUNCTUATION, behavior, false)?
            }
            "Digits" => {
                let behavior = if flag(json, "individual_digits", false) {
                    SplitBehavior::Isolated
                } else {
                    SplitBehavior::Contiguous
                };
                split(r"\p{N}", behavior, false)?
            }
            "CharDelimiterSplit" => Self::Split {
                pattern: Pattern::Text(text(json, "delimiter")?.to_owned()),
                behavior: SplitBehavior::Removed,
                invert: false,
            },
            "FixedLength" => Self::FixedLength(count(json, "length")?.max(1)),
            other => return Err(damaged(format!("the pre-tokenizer `{other}` is not known"))),
        })
    }

    /// Splits words, of at most `max` bytes together.
    pub(super) fn split(&self, words: Vec<Word>, max: usize) -> Result<Vec<Word>> {
        let words = self.apply(words, max)?;
        check_len(words.iter().map(|word| word.text.len()).sum(), max).map(|()| words)
    }

    fn apply(&self, words: Vec<Word>, max: usize) -> Result<Vec<Word>> {
        match self {
            Self::Sequence(all) => all.iter().try_fold(words, |words, each| each.split(words, max)),
            Self::ByteLevel { add_prefix_space, words: pattern } => {
                let mut split = Vec::with_capacity(words.len());
                for mut word in words {
                    if *add_prefix_space && !word.text.starts_with(' ') {
                        word.text.insert(0, ' ');
                    }
                    match pattern {
                        Some(pattern) => word.split_into(pattern, SplitBehavior::Isolated, false, &mut split)?,
                        None => split.push(word),
                    }
                }
                split.iter_mut().for_each(|word| word.text = byte_level::encode(&word.text));
                Ok(split)
            }
            Self::Metaspace(metaspace) => metaspace.split(words, max),
            Self::Split { pattern, behavior, invert } => {
                let mut split = Vec::with_capacity(words.len());
                for word in words {
                    word.split_into(pattern, *behavior, *invert, &mut split)?;
                }
                Ok(split)
            }
            Self::FixedLength(length) => {
                let mut split = Vec::new();
                for word in words {
                    let chars: Vec<char> = word.text.chars().collect();
                    for (index, chunk) in chars.chunks(*length).enumerate() {
                        split.push(Word { text: chunk.iter().collect(), is_first: word.is_first && index == 0 });
                    }
                }
                Ok(split)
            }
        }
    }
}

impl Word {
    fn split_into(&self, pattern: &Pattern, behavior: SplitBehavior, invert: bool, to: &mut Vec<Self>) -> Result<()> {
        for part in pattern.split(&self.text, behavior, invert)? {
            to.push(Self { is_first: self.is_first && part.start == 0, text: self.text[part].to_owned() });
        }
        Ok(())
    }
}

impl Metaspace {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let prepend = match json["prepend_scheme"].as_str() {
            Some("always") => Prepend::Always,
            Some("first") => Prepend::First,
            Some("never") => Prepend::Never,
            Some(other) => return Err(damaged(format!("`prepend_scheme` is `{other}`"))),
            // As older files say it.
            None if flag(json, "add_prefix_space", true) => Prepend::Always,
            None => Prepend::Never,
        };
        Ok(Self { replacement: text(json, "replacement")?.to_owned(), prepend, split: flag(json, "split", true) })
    }

    fn split(&self, words: Vec<Word>, max: usize) -> Result<Vec<Word>> {
        let mut split = Vec::with_capacity(words.len());
        let [space, replacement] = [" ", &self.replacement].map(|text| Pattern::Text(text.to_owned()));
        for mut word in words {
            word.text = space.replace(&word.text, &self.replacement, max)?;
            let is_wanted = match self.prepend {
                Prepend::Always => true,
                Prepend::First => word.is_first,
                Prepend::Never => false,
            };
            if is_wanted && !word.text.starts_with(&self.replacement) {
                word.text.insert_str(0, &self.replacement);
            }
            if self.split {
                word.split_into(&replacement, SplitBehavior::MergedWithNext, false, &mut split)?;
            } else {
                split.push(word);
            }
        }
        Ok(split)
    }
}
