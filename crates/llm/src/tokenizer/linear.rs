//! Regular expressions without look-around: a lazy automaton finds each match in one pass over its bytes.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input};

use super::settings::damaged;
use crate::error::Result;

/// A regular expression. Its last alternatives may be those of [`End`].
#[derive(Debug)]
pub(super) struct Linear {
    dfa: DFA,
    /// Alternatives at the end that look ahead.
    end: End,
    /// Scratch memory of searches that are not running.
    caches: Mutex<Vec<Cache>>,
}

/// The alternatives for white space at the end of tokenizers' expressions. They match a run of white space without its
/// last character, which belongs to the next word. They differ for a single white space character before a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    None,
    /// `|\s+(?!\S)|\s+` or `|\s+(?!\S)|\s`: a single space before a word is a match.
    Single,
    /// `|\s+(?!\S)`: a single space before a word is no match.
    Skipped,
}

const ENDS: &[(&str, End)] =
    &[(r"|\s+(?!\S)|\s+", End::Single), (r"|\s+(?!\S)|\s", End::Single), (r"|\s+(?!\S)", End::Skipped)];

/// Index of the white space alternative among the patterns of the automaton.
const SPACES: usize = 1;

/// Maximum bytes of the initial automaton, and of its states, which are built on demand.
const MAX_NFA: usize = 1 << 21;
const MAX_STATES: usize = 1 << 23;
/// A search ends if its states were dropped this often, and were each used for fewer bytes than this.
const MAX_DROPS: usize = 3;
const MIN_BYTES_PER_STATE: usize = 10;

/// Maximum bytes that searches may read: for each byte of the text, plus a constant. Consecutive matches that look far
/// ahead take quadratic time.
const MAX_READ: usize = 256;
const MAX_READ_BESIDES: usize = 1 << 26;

impl Linear {
    /// Compiles an expression; `None` if it has look-around, or is too large.
    pub(super) fn of(regex: &str) -> Option<Self> {
        let ends = ENDS.iter().find_map(|(text, end)| Some((regex.strip_suffix(text)?, *end)));
        let (head, end) = ends.unwrap_or((regex, End::None));
        let patterns = [head, r"\s+"];
        let patterns = if end == End::None { &patterns[..1] } else { &patterns[..] };
        let config = DFA::config()
            .cache_capacity(MAX_STATES)
            .skip_cache_capacity_check(false)
            .minimum_cache_clear_count(Some(MAX_DROPS))
            .minimum_bytes_per_state(Some(MIN_BYTES_PER_STATE));
        let nfa = thompson::Config::new().nfa_size_limit(Some(MAX_NFA));
        let dfa = DFA::builder().configure(config).thompson(nfa).build_many(patterns).ok()?;
        Some(Self { dfa, end, caches: Mutex::default() })
    }

    /// Calls `found` with each match that is not empty, in order.
    pub(super) fn find(&self, text: &str, mut found: impl FnMut(Range<usize>) -> Result<()>) -> Result<()> {
        let caches = || self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cache = caches().pop().unwrap_or_else(|| self.dfa.create_cache());
        let mut left = text.len().saturating_mul(MAX_READ).saturating_add(MAX_READ_BESIDES);
        let mut at = 0;
        let mut result = Ok(());
        while at < text.len() && result.is_ok() {
            match self.match_at(&mut cache, text, at, &mut left) {
                Ok(Some(end)) => {
                    result = found(at..end);
                    at = end;
                }
                Ok(None) => at += text[at..].chars().next().map_or(1, char::len_utf8),
                Err(error) => result = Err(error),
            }
        }
        caches().push(cache);
        result
    }

    /// Returns the end of the match that begins at a position.
    fn match_at(&self, cache: &mut Cache, text: &str, at: usize, left: &mut usize) -> Result<Option<usize>> {
        let gave_up = || damaged("a regular expression gave up: it takes too long for this text");
        let bytes = text.as_bytes();
        let input = Input::new(text).range(at..).anchored(Anchored::Yes);
        let mut state = self.dfa.start_state_forward(cache, &input).map_err(|_| gave_up())?;
        // The pattern and the end of the last match. A state reports a match one byte late.
        let mut last = None;
        let mut place = at;
        cache.search_start(at);
        loop {
            let byte = bytes.get(place).copied();
            state = match byte {
                Some(byte) => self.dfa.next_state(cache, state, byte),
                None => self.dfa.next_eoi_state(cache, state),
            }
            .map_err(|_| gave_up())?;
            if state.is_tagged() {
                if state.is_match() {
                    last = Some((self.dfa.match_pattern(cache, state, 0).as_usize(), place));
                } else if state.is_dead() {
                    break;
                } else if state.is_quit() {
                    return Err(gave_up());
                }
            }
            if byte.is_none() {
                break;
            }
            place += 1;
        }
        cache.search_finish(place);
        *left = left.checked_sub(place - at + 1).ok_or_else(gave_up)?;
        let Some((pattern, end)) = last.filter(|(_, end)| *end > at) else { return Ok(None) };
        if self.end == End::None || pattern != SPACES || end == text.len() {
            return Ok(Some(end));
        }
        let before_last = text[at..end].char_indices().next_back().map_or(0, |(last, _)| last);
        Ok(match (before_last, self.end) {
            (0, End::Skipped) => None,
            (0, _) => Some(end),
            (len, _) => Some(at + len),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::Pattern;
    use super::super::split_patterns;
    use super::*;

    fn found(regex: &str, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        let linear = Linear::of(regex).unwrap();
        linear
            .find(text, |range| {
                all.push(text[range].to_owned());
                Ok(())
            })
            .unwrap();
        all
    }

    #[test]
    fn spaces_before_a_word_are_split() {
        for regex in [r"\w+|\s+(?!\S)|\s+", r"\w+|\s+(?!\S)|\s"] {
            assert_eq!(
                found(regex, "  a b   c\u{3000}\u{3000}d  "),
                [" ", " ", "a", " ", "b", "  ", " ", "c", "\u{3000}", "\u{3000}", "d", "  "]
            );
        }
        assert_eq!(found(r"\w+|\s+(?!\S)", " a  b "), ["a", " ", "b", " "]);
        assert_eq!(found("a*|b", "bab"), ["a"]);
    }

    #[test]
    fn usual_expressions_need_no_backtracking() {
        use split_patterns::{CL100K, GPT2, LLAMA3, O200K, QWEN, TEKKEN};
        for regex in [GPT2, CL100K, LLAMA3, QWEN, O200K, TEKKEN] {
            assert!(matches!(Pattern::regex(regex).unwrap(), Pattern::Linear(_)), "{regex}");
        }
        assert!(Linear::of(r"a(?=b)").is_none());
        assert!(Linear::of(r"(?:a{1000}){1000}").is_none());
    }

    #[test]
    fn an_expression_that_reads_ahead_again_and_again_gives_up() {
        let linear = Linear::of("a*b|a").unwrap();
        assert!(linear.find(&"a".repeat(1 << 10), |_| Ok(())).is_ok());
        let error = linear.find(&"a".repeat(1 << 20), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("gave up"), "{error}");
    }
}
