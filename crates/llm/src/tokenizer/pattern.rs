//! Strings and regular expressions that settings search for.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value as Json;

use super::backtracking::Backtracking;
use super::linear::Linear;
use super::settings::{check_len, damaged};
use super::split_patterns::{CL100K, POSSESSIVE_CL100K};
use crate::error::Result;

/// A string or a regular expression to search for.
#[derive(Debug)]
pub(super) enum Pattern {
    Text(String),
    /// Each character that satisfies a predicate.
    Char(fn(char) -> bool),
    Linear(Box<Linear>),
    /// A backtracking matcher, for expressions with other look-around than the usual one.
    Backtracking(Box<Backtracking>),
}

/// The treatment of delimiters by a split (`SplitDelimiterBehavior`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitBehavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

impl Pattern {
    /// Reads a setting: `{"String": …}` or `{"Regex": …}`.
    pub(super) fn of(json: &Json) -> Result<Self> {
        match (json["String"].as_str(), json["Regex"].as_str()) {
            (Some(text), _) => Ok(Self::Text(text.to_owned())),
            (None, Some(regex)) => Self::regex(&with_words(regex)),
            (None, None) => Err(damaged("a pattern is neither `String` nor `Regex`")),
        }
    }

    pub(super) fn regex(regex: &str) -> Result<Self> {
        let regex = with_unicode_classes(regex);
        let linear = Linear::of(if regex == POSSESSIVE_CL100K { CL100K } else { &regex });
        if let Some(linear) = linear {
            return Ok(Self::Linear(Box::new(linear)));
        }
        Backtracking::new(&regex).map(|built| Self::Backtracking(Box::new(built)))
    }

    /// An expression of a component's own, which is compiled once: some take long, and a file may have many such components.
    pub(super) fn own(regex: &str) -> Result<Arc<Self>> {
        static COMPILED: Mutex<Vec<(String, Arc<Pattern>)>> = Mutex::new(Vec::new());
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pattern)) = compiled.iter().find(|(known, _)| known == regex) {
            return Ok(pattern.clone());
        }
        let pattern = Arc::new(Self::regex(regex)?);
        compiled.push((regex.to_owned(), pattern.clone()));
        Ok(pattern)
    }

    /// Calls `found` with each match that is not empty, in order.
    pub(super) fn find(&self, text: &str, mut found: impl FnMut(Range<usize>) -> Result<()>) -> Result<()> {
        match self {
            Self::Text(pattern) if pattern.is_empty() => Ok(()),
            Self::Text(pattern) => {
                text.match_indices(pattern.as_str()).try_for_each(|(at, part)| found(at..at + part.len()))
            }
            Self::Char(is_found) => {
                let chars = text.char_indices().filter(|(_, char)| is_found(*char));
                chars.into_iter().try_for_each(|(at, char)| found(at..at + char.len_utf8()))
            }
            Self::Linear(linear) => linear.find(text, found),
            Self::Backtracking(expression) => expression.find(text, found),
        }
    }

    /// Replaces all matches. The result has at most `max` bytes.
    pub(super) fn replace(&self, text: &str, by: &str, max: usize) -> Result<String> {
        let mut replaced = String::with_capacity(text.len());
        let mut end = 0;
        self.find(text, |found| {
            replaced.push_str(&text[end..found.start]);
            replaced.push_str(by);
            end = found.end;
            check_len(replaced.len(), max)
        })?;
        replaced.push_str(&text[end..]);
        Ok(replaced)
    }

    /// Splits a text. Empty parts are left out.
    pub(super) fn split(&self, text: &str, behavior: SplitBehavior, invert: bool) -> Result<Vec<Range<usize>>> {
        let mut split: Vec<Range<usize>> = Vec::new();
        let mut was_found = false;
        let mut push = |part: Range<usize>, is_found: bool| {
            let joins = match behavior {
                SplitBehavior::Removed if is_found => return,
                SplitBehavior::Removed | SplitBehavior::Isolated => false,
                SplitBehavior::Contiguous => is_found == was_found,
                SplitBehavior::MergedWithPrevious => is_found && !was_found,
                SplitBehavior::MergedWithNext => !is_found && was_found,
            };
            match split.last_mut() {
                Some(last) if joins => last.end = part.end,
                _ => split.push(part),
            }
            was_found = is_found;
        };
        let mut end = 0;
        self.find(text, |found| {
            if found.start > end {
                push(end..found.start, invert);
            }
            end = found.end;
            push(found, !invert);
            Ok(())
        })?;
        if end < text.len() {
            push(end..text.len(), invert);
        }
        Ok(split)
    }
}

/// Replaces `\w`, `\b` and their negations by Oniguruma's classes: without joiners, but with the fractions and
/// superscripts of Latin-1.
fn with_words(regex: &str) -> String {
    const WORD: &str = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}";

    let mut written = String::with_capacity(regex.len());
    let mut depth = 0_usize;
    let mut chars = regex.chars();
    while let Some(char) = chars.next() {
        match char {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '\\' => {
                match (chars.next(), depth) {
                    (Some('w'), _) => written.push_str(&format!("[{WORD}]")),
                    (Some('W'), _) => written.push_str(&format!("[^{WORD}]")),
                    (Some('b'), 0) => {
                        written.push_str(&format!("(?:(?<=[{WORD}])(?![{WORD}])|(?<![{WORD}])(?=[{WORD}]))"));
                    }
                    (Some('B'), 0) => {
                        written.push_str(&format!("(?:(?<=[{WORD}])(?=[{WORD}])|(?<![{WORD}])(?![{WORD}]))"));
                    }
                    (escaped, _) => written.extend(['\\'].into_iter().chain(escaped)),
                }
                continue;
            }
            _ => {}
        }
        written.push(char);
    }
    written
}

/// Replaces POSIX classes by the Unicode classes that Oniguruma uses for them.
fn with_unicode_classes(regex: &str) -> String {
    let classes = [
        ("[:alpha:]", r"\p{Alphabetic}"),
        ("[:alnum:]", r"\p{Alphabetic}\p{Nd}"),
        ("[:space:]", r"\s"),
        ("[:punct:]", r"\p{P}\p{S}"),
    ];
    classes.into_iter().fold(regex.to_owned(), |regex, (class, unicode)| regex.replace(class, unicode))
}

impl SplitBehavior {
    pub(super) fn of(name: &str) -> Result<Self> {
        Ok(match name {
            "Removed" => Self::Removed,
            "Isolated" => Self::Isolated,
            "MergedWithPrevious" => Self::MergedWithPrevious,
            "MergedWithNext" => Self::MergedWithNext,
            "Contiguous" => Self::Contiguous,
            other => return Err(damaged(format!("a split of the unknown behaviour `{other}`"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of Hugging Face's documentation.
    #[test]
    fn texts_are_split_as_documented() {
        let split = |behavior, invert| -> Vec<&str> {
            let text = "the-final--countdown";
            let parts = Pattern::Text("-".to_owned()).split(text, behavior, invert).unwrap();
            parts.into_iter().map(|part| &text[part]).collect()
        };
        assert_eq!(split(SplitBehavior::Removed, false), ["the", "final", "countdown"]);
        assert_eq!(split(SplitBehavior::Isolated, false), ["the", "-", "final", "-", "-", "countdown"]);
        assert_eq!(split(SplitBehavior::MergedWithPrevious, false), ["the-", "final-", "-", "countdown"]);
        assert_eq!(split(SplitBehavior::MergedWithNext, false), ["the", "-final", "-", "-countdown"]);
        assert_eq!(split(SplitBehavior::Contiguous, false), ["the", "-", "final", "--", "countdown"]);
        assert_eq!(split(SplitBehavior::Removed, true), ["-", "-", "-"]);
    }
}
