//! Texts and regular expressions that settings look for.

use std::ops::Range;

use fancy_regex::{Regex, RegexBuilder};
use serde_json::Value as Json;

use super::settings::{check_len, damaged};
use crate::error::Result;

/// A string or a regular expression to search for.
#[derive(Debug)]
pub(super) enum Pattern {
    Text(String),
    /// With look-ahead, as the usual ones have.
    Regex(Box<Regex>),
}

/// How a split treats its delimiters (`SplitDelimiterBehavior`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitBehavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// Steps back in one search. Usual expressions take one for each character, in texts of any length; others end in seconds.
const MAX_BACKTRACKING: usize = 1 << 26;

impl Pattern {
    /// A setting: `{"String": …}` or `{"Regex": …}`.
    pub(super) fn of(json: &Json) -> Result<Self> {
        match (json["String"].as_str(), json["Regex"].as_str()) {
            (Some(text), _) => Ok(Self::Text(text.to_owned())),
            (None, Some(regex)) => Self::regex(regex),
            (None, None) => Err(damaged("a pattern is neither `String` nor `Regex`")),
        }
    }

    pub(super) fn regex(regex: &str) -> Result<Self> {
        let built = RegexBuilder::new(&with_unicode_classes(regex)).backtrack_limit(MAX_BACKTRACKING).build();
        let built = built.map_err(|error| damaged(format!("the regular expression `{regex}`: {error}")))?;
        Ok(Self::Regex(Box::new(built)))
    }

    /// Calls `found` with each match that is not empty, in order.
    fn find(&self, text: &str, mut found: impl FnMut(Range<usize>) -> Result<()>) -> Result<()> {
        match self {
            Self::Text(pattern) if pattern.is_empty() => Ok(()),
            Self::Text(pattern) => {
                text.match_indices(pattern.as_str()).try_for_each(|(at, part)| found(at..at + part.len()))
            }
            Self::Regex(regex) => regex.find_iter(text).try_for_each(|part| {
                let range = part.map_err(|error| damaged(format!("a regular expression gave up: {error}")))?.range();
                if range.is_empty() { Ok(()) } else { found(range) }
            }),
        }
    }

    /// Replaces what is found, in at most `max` bytes.
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
        // All parts in order, and whether they were found.
        let mut parts: Vec<(Range<usize>, bool)> = Vec::new();
        let mut end = 0;
        self.find(text, |found| {
            if found.start > end {
                parts.push((end..found.start, invert));
            }
            end = found.end;
            parts.push((found, !invert));
            Ok(())
        })?;
        if end < text.len() {
            parts.push((end..text.len(), invert));
        }
        let mut split: Vec<Range<usize>> = Vec::with_capacity(parts.len());
        let mut was_found = false;
        for (part, is_found) in parts {
            let joins = match behavior {
                SplitBehavior::Removed if is_found => continue,
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
        }
        Ok(split)
    }
}

/// Oniguruma's POSIX classes, which are those of Unicode.
fn with_unicode_classes(regex: &str) -> String {
    let classes = [
        ("[:alpha:]", r"\p{Alphabetic}"),
        ("[:alnum:]", r"\p{Alphabetic}\p{Nd}"),
        ("[:space:]", r"\s"),
        ("[:punct:]", r"\p{P}$+<=>\^`|~"),
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
