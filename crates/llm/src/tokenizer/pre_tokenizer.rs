//! Pre-tokenizers: they split a text into words, which the model encodes one by one.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use serde_json::Value as Json;

use super::byte_level;
use super::pattern::{Pattern, SplitBehavior};
use super::settings::{check_len, count, damaged, flag, kind, list, text};
use super::split_patterns::GPT2;
use crate::error::Result;

/// A text split into words, as pre-tokenizers change it.
#[derive(Debug)]
pub(super) struct Words {
    text: String,
    words: Vec<Word>,
}

#[derive(Clone, Debug)]
struct Word {
    range: Range<usize>,
    /// True for the beginning of the whole text.
    is_first: bool,
}

#[derive(Debug)]
pub(super) enum PreTokenizer {
    Sequence(Vec<Self>),
    ByteLevel {
        add_prefix_space: bool,
        words: Option<Arc<Pattern>>,
        /// False if the model reads raw bytes.
        maps_bytes: bool,
    },
    Metaspace(Metaspace),
    Split {
        pattern: Arc<Pattern>,
        behavior: SplitBehavior,
        invert: bool,
    },
    /// Chunks of this number of characters.
    FixedLength(usize),
}

/// Replaces spaces by a visible character, which begins words.
#[derive(Clone, Debug)]
pub(super) struct Metaspace {
    pub(super) replacement: String,
    pub(super) prepend: Prepend,
    split: bool,
}

/// The words that get a space before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prepend {
    Always,
    First,
    Never,
}

/// Punctuation as in Unicode 8.
const PUNCTUATION: &str = r"[!-/:-@\[-`{-~[\p{P}&&\p{age:8.0}]\x{166D}\x{111C9}]";

impl PreTokenizer {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let split = |regex: &str, behavior, invert| -> Result<Self> {
            Ok(Self::Split { pattern: Pattern::own(regex)?, behavior, invert })
        };
        let without_spaces = || Self::Split {
            pattern: Arc::new(Pattern::Char(char::is_whitespace)),
            behavior: SplitBehavior::Removed,
            invert: false,
        };
        Ok(match kind(json)? {
            "Sequence" => Self::Sequence(list(json, "pretokenizers")?.iter().map(Self::of).collect::<Result<_>>()?),
            "ByteLevel" => Self::ByteLevel {
                add_prefix_space: flag(json, "add_prefix_space", true),
                words: if flag(json, "use_regex", true) { Some(Pattern::own(GPT2)?) } else { None },
                maps_bytes: true,
            },
            "Metaspace" => Self::Metaspace(Metaspace::of(json)?),
            "Split" => Self::Split {
                pattern: Arc::new(Pattern::of(&json["pattern"])?),
                behavior: SplitBehavior::of(text(json, "behavior")?)?,
                invert: flag(json, "invert", false),
            },
            "Whitespace" => split(r"\w+|[^\w\s]+", SplitBehavior::Removed, true)?,
            "WhitespaceSplit" => without_spaces(),
            "BertPreTokenizer" => {
                Self::Sequence(vec![without_spaces(), split(PUNCTUATION, SplitBehavior::Isolated, false)?])
            }
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
                Self::Split { pattern: Arc::new(Pattern::Char(char::is_numeric)), behavior, invert: false }
            }
            "CharDelimiterSplit" => Self::Split {
                pattern: Arc::new(Pattern::Text(text(json, "delimiter")?.to_owned())),
                behavior: SplitBehavior::Removed,
                invert: false,
            },
            "UnicodeScripts" => {
                static RUNS: LazyLock<String> = LazyLock::new(script_runs);
                split(&RUNS, SplitBehavior::Removed, true)?
            }
            "FixedLength" => Self::FixedLength(count(json, "length")?.max(1)),
            other => return Err(damaged(format!("the pre-tokenizer `{other}` is not known"))),
        })
    }

    /// True if the last step maps bytes to characters. The model may do that instead: then this step is left out.
    pub(super) fn leaves_bytes(&mut self) -> bool {
        match self {
            Self::Sequence(all) => all.last_mut().is_some_and(Self::leaves_bytes),
            Self::ByteLevel { maps_bytes, .. } => std::mem::replace(maps_bytes, false),
            _ => false,
        }
    }

    /// Splits words; `max` limits their total bytes.
    pub(super) fn split(&self, words: Words, max: usize) -> Result<Words> {
        let words = self.apply(words, max)?;
        check_len(words.text.len(), max).map(|()| words)
    }

    fn apply(&self, words: Words, max: usize) -> Result<Words> {
        match self {
            Self::Sequence(all) => all.iter().try_fold(words, |words, each| each.split(words, max)),
            Self::ByteLevel { add_prefix_space, words: pattern, maps_bytes } => {
                let mut words = words;
                if *add_prefix_space {
                    words = words.rewritten(|word, _, to| {
                        if !word.starts_with(' ') {
                            to.push(' ');
                        }
                        to.push_str(word);
                    });
                }
                if let Some(pattern) = pattern {
                    words = words.split_by(pattern, SplitBehavior::Isolated, false)?;
                }
                if *maps_bytes {
                    words = words.rewritten(|word, _, to| byte_level::encode(word, to));
                }
                Ok(words)
            }
            Self::Metaspace(metaspace) => metaspace.split(words, max),
            Self::Split { pattern, behavior, invert } => words.split_by(pattern, *behavior, *invert),
            Self::FixedLength(length) => words.split_with(|word, to| {
                let mut ends = word.char_indices().map(|(at, _)| at).skip(1).chain([word.len()]).skip(length - 1);
                let mut start = 0;
                while start < word.len() {
                    let end = ends.next().unwrap_or(word.len());
                    to.push(start..end);
                    start = end;
                    ends.by_ref().take(length - 1).for_each(drop);
                }
                Ok(())
            }),
        }
    }
}

/// Returns the expression of runs of one script, with the spaces in them, as in Unicode 9. The scripts of Japanese and
/// Chinese count as one. Characters without a script join a run, but begin none.
fn script_runs() -> String {
    const SCRIPTS: &str = "Adlam Ahom AnatolianHieroglyphs Arabic Armenian Avestan Balinese Bamum BassaVah Batak Bengali Bhaiksuki \
        Bopomofo Brahmi Braille Buginese Buhid CanadianAboriginal Carian CaucasianAlbanian Chakma Cham Cherokee Common Coptic Cuneiform \
        Cypriot Cyrillic Deseret Devanagari Duployan EgyptianHieroglyphs Elbasan Ethiopic Georgian Glagolitic Gothic Grantha Greek \
        Gujarati Gurmukhi Hangul Hanunoo Hatran Hebrew ImperialAramaic Inherited InscriptionalPahlavi InscriptionalParthian Javanese \
        Kaithi Kannada KayahLi Kharoshthi Khmer Khojki Khudawadi Lao Latin Lepcha Limbu LinearA LinearB Lisu Lycian Lydian Mahajani \
        Malayalam Mandaic Manichaean Marchen MeeteiMayek MendeKikakui MeroiticCursive MeroiticHieroglyphs Miao Modi Mongolian Mro Multani \
        Myanmar Nabataean NewTaiLue Newa Nko Ogham OlChiki OldHungarian OldItalic OldNorthArabian OldPermic OldPersian OldSouthArabian \
        OldTurkic Oriya Osage Osmanya PahawhHmong Palmyrene PauCinHau PhagsPa Phoenician PsalterPahlavi Rejang Runic Samaritan Saurashtra \
        Sharada Shavian Siddham SignWriting Sinhala SoraSompeng Sundanese SylotiNagri Syriac Tagalog Tagbanwa TaiLe TaiTham TaiViet Takri \
        Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic Vai WarangCiti Yi";

    let run = |script: &str| format!(r"[{script}&&[^ ]&&\p{{age:9.0}}][{script} \P{{age:9.0}}\p{{Co}}\p{{Cn}}]*");
    let han = run(r"\p{Han}\p{Hiragana}\p{Katakana}\u{30FC}");
    let others = SCRIPTS.split(' ').map(|script| match script {
        "Common" => run(r"[\p{Common}&&[^\u{30FC}]]"),
        script => run(&format!(r"\p{{{script}}}")),
    });
    std::iter::once(han).chain(others).collect::<Vec<_>>().join("|")
}

impl Words {
    /// Returns a text as one word. `is_first` says that it begins the whole text.
    pub(super) fn of(text: String, is_first: bool) -> Self {
        let words = vec![Word { range: 0..text.len(), is_first }];
        Self { text, words }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|word| &self.text[word.range.clone()])
    }

    /// Rewrites all words. The function gets each word, and true for the first word of the whole text, and appends the
    /// new word.
    fn rewritten(self, mut rewrite: impl FnMut(&str, bool, &mut String)) -> Self {
        let mut text = String::with_capacity(self.text.len() + self.text.len() / 2);
        let mut words = self.words;
        for word in &mut words {
            let start = text.len();
            rewrite(&self.text[word.range.clone()], word.is_first, &mut text);
            word.range = start..text.len();
        }
        Self { text, words }
    }

    fn split_by(self, pattern: &Pattern, behavior: SplitBehavior, invert: bool) -> Result<Self> {
        self.split_with(|word, to| {
            if to.is_empty() {
                *to = pattern.split(word, behavior, invert)?;
            }
            Ok(())
        })
    }

    /// Splits each word into the ranges that a function returns.
    fn split_with(self, mut split: impl FnMut(&str, &mut Vec<Range<usize>>) -> Result<()>) -> Result<Self> {
        let Self { text, words } = self;
        let mut parts = Vec::new();
        let mut all = Vec::with_capacity(words.len());
        for Word { range, is_first } in words {
            parts.clear();
            split(&text[range.clone()], &mut parts)?;
            all.extend(parts.iter().map(|part| Word {
                range: range.start + part.start..range.start + part.end,
                is_first: is_first && part.start == 0,
            }));
        }
        Ok(Self { text, words: all })
    }
}

impl Metaspace {
    pub(super) fn of(json: &Json) -> Result<Self> {
        let prepend = match json["prepend_scheme"].as_str() {
            Some("always") => Prepend::Always,
            Some("first") => Prepend::First,
            Some("never") => Prepend::Never,
            Some(other) => return Err(damaged(format!("`prepend_scheme` is `{other}`"))),
            // Older files use this setting.
            None if flag(json, "add_prefix_space", true) => Prepend::Always,
            None => Prepend::Never,
        };
        Ok(Self { replacement: text(json, "replacement")?.to_owned(), prepend, split: flag(json, "split", true) })
    }

    fn split(&self, words: Words, max: usize) -> Result<Words> {
        let replacement = self.replacement.as_str();
        // Each space may be replaced, and each word may get one before it.
        let added = words.text.matches(' ').count().saturating_add(words.words.len());
        check_len(added.saturating_mul(replacement.len()).saturating_add(words.text.len()), max)?;
        let words = words.rewritten(|word, is_first, to| {
            let is_wanted = match self.prepend {
                Prepend::Always => true,
                Prepend::First => is_first,
                Prepend::Never => false,
            };
            if is_wanted && !word.starts_with(' ') && !word.starts_with(replacement) {
                to.push_str(replacement);
            }
            for (index, part) in word.split(' ').enumerate() {
                if index > 0 {
                    to.push_str(replacement);
                }
                to.push_str(part);
            }
        });
        if self.split {
            let pattern = Pattern::Text(replacement.to_owned());
            return words.split_by(&pattern, SplitBehavior::MergedWithNext, false);
        }
        Ok(words)
    }
}
