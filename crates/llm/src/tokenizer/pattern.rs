//! Texts and regular expressions that settings look for.

use std::ops::Range;

use fancy_regex::{Regex, RegexBuilder};
use serde_json::Value as Json;

use super::settings::damaged;
use crate::error::Result;

/// What is looked for.
#[derive(Debug)]
pub(super) enum Pattern {
    Text(String),
    /// With look-ahead, as the usual ones have.
    Regex(Box<Regex>),
}

/// What becomes of what was found when a text is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

/// Steps back in one search. Usual expressions take one for each character, in texts of any length; others end in seconds.
const MAX_BACKTRACKING: usize = 1 << 28;

/// Bytes of a text in which something was replaced: settings can have it grow in each step.
const MAX_LEN: usize = 1 << 27;

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
        let built = RegexBuilder::new(regex).backtrack_limit(MAX_BACKTRACKING).build();
        let built = built.map_err(|error| damaged(format!("the regular expression `{regex}`: {error}")))?;
        Ok(Self::Regex(Box::new(built)))
    }

    /// Where it is found, without overlaps. Empty matches are none.
    pub(super) fn find(&self, text: &str) -> Result<Vec<Range<usize>>> {
        match self {
            Self::Text(pattern) if pattern.is_empty() => Ok(Vec::new()),
            Self::Text(pattern) => {
                Ok(text.match_indices(pattern.as_str()).map(|(at, found)| at..at + found.len()).collect())
            }
            Self::Regex(regex) => {
                let mut found = Vec::new();
                for part in regex.find_iter(text) {
                    let range =
                        part.map_err(|error| damaged(format!("a regular expression gave up: {error}")))?.range();
                    if !range.is_empty() {
                        found.push(range);
                    }
                }
                Ok(found)
            }
        }
    }

    pub(super) fn replace(&self, text: &str, by: &str) -> Result<String> {
        let mut replaced = String::with_capacity(text.len());
        let mut end = 0;
        for found in self.find(text)? {
            replaced.push_str(&text[end..found.start]);
            replaced.push_str(by);
            if replaced.len() > MAX_LEN {
                return Err(damaged(format!("a normalized text is longer than {MAX_LEN} bytes")));
            }
            end = found.end;
        }
        replaced.push_str(&text[end..]);
        Ok(replaced)
    }

    /// Splits a text. Empty parts are left out.
    pub(super) fn split(&self, text: &str, behavior: Behavior, invert: bool) -> Result<Vec<Range<usize>>> {
        // All parts in order, and whether they were found.
        let mut parts: Vec<(Range<usize>, bool)> = Vec::new();
        let mut end = 0;
        for found in self.find(text)? {
            if found.start > end {
                parts.push((end..found.start, invert));
            }
            end = found.end;
            parts.push((found, !invert));
        }
        if end < text.len() {
            parts.push((end..text.len(), invert));
        }
        let mut split: Vec<Range<usize>> = Vec::with_capacity(parts.len());
        let mut was_found = false;
        for (part, is_found) in parts {
            let joins = match behavior {
                Behavior::Removed if is_found => continue,
                Behavior::Removed | Behavior::Isolated => false,
                Behavior::Contiguous => is_found == was_found,
                Behavior::MergedWithPrevious => is_found && !was_found,
                Behavior::MergedWithNext => !is_found && was_found,
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

impl Behavior {
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
        assert_eq!(split(Behavior::Removed, false), ["the", "final", "countdown"]);
        assert_eq!(split(Behavior::Isolated, false), ["the", "-", "final", "-", "-", "countdown"]);
        assert_eq!(split(Behavior::MergedWithPrevious, false), ["the-", "final-", "-", "countdown"]);
        assert_eq!(split(Behavior::MergedWithNext, false), ["the", "-final", "-", "-countdown"]);
        assert_eq!(split(Behavior::Contiguous, false), ["the", "-", "final", "--", "countdown"]);
        assert_eq!(split(Behavior::Removed, true), ["-", "-", "-"]);
    }
}
