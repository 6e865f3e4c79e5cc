//! The filter `wordwrap`, as Python's `textwrap` wraps.

use std::rc::Rc;

use super::arguments::{self, Args};
use super::failure::{Result, fail};
use super::meter::{Meter, Writer};
use super::text::split_lines;
use super::unicode;
use super::value::Value;

pub(super) fn word_wrap(value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let Value::Text(text) = value else {
        if let Value::Undefined(message) = value {
            fail!("{message}");
        }
        fail!("'{}' object has no attribute 'splitlines'", value.type_name())
    };
    let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
    let [width, breaks_words, between, breaks_hyphens] = args.bind("wordwrap", names, 0)?;
    let width = arguments::int(width.as_ref(), 79)?;
    if text.is_empty() {
        return Value::text(meter, "");
    }
    let Some(width) = usize::try_from(width).ok().filter(|width| *width > 0) else {
        fail!("invalid width {width} (must be > 0)")
    };
    let wrap = Wrap {
        width,
        breaks_words: arguments::is_true(breaks_words.as_ref(), true),
        breaks_hyphens: arguments::is_true(breaks_hyphens.as_ref(), true),
    };
    let between = arguments::text(between.as_ref())?;
    let between = between.as_deref().map_or("\n", |between| &**between);
    let mut out = Writer::new(meter);
    for (index, line) in split_lines(text, false).into_iter().enumerate() {
        if index > 0 {
            out.push(between)?;
        }
        meter.room(line.len().saturating_mul(size_of::<char>()))?;
        let chars: Vec<char> = line.chars().collect();
        for (index, line) in wrap.lines(&chars, meter)?.into_iter().enumerate() {
            if index > 0 {
                out.push(between)?;
            }
            out.push(&line)?;
        }
    }
    Value::text(meter, out.into_text())
}

struct Wrap {
    width: usize,
    breaks_words: bool,
    breaks_hyphens: bool,
}

/// White space between words, which is that of ASCII.
fn is_white(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | ' ')
}

/// True if Python strips all of it.
fn is_blank(chunk: &[char]) -> bool {
    chunk.iter().all(|char| unicode::is_space(*char))
}

impl Wrap {
    fn lines(&self, text: &[char], meter: &Meter) -> Result<Vec<String>> {
        let mut chunks: Vec<&[char]> = self.chunks(text, meter)?;
        chunks.reverse();
        let mut lines = Vec::new();
        while !chunks.is_empty() {
            meter.steps(1)?;
            let mut line: Vec<&[char]> = Vec::new();
            let mut len = 0;
            if !lines.is_empty() && chunks.last().is_some_and(|chunk| is_blank(chunk)) {
                chunks.pop();
            }
            while let Some(chunk) = chunks.last().copied() {
                if len + chunk.len() > self.width {
                    break;
                }
                len += chunk.len();
                line.push(chunk);
                chunks.pop();
            }
            if let Some(chunk) = chunks.last().copied().filter(|chunk| chunk.len() > self.width) {
                if self.breaks_words {
                    let room = self.width - len.min(self.width);
                    let mut end = room;
                    if self.breaks_hyphens && chunk.len() > room {
                        let before = chunk.get(..room).unwrap_or_default();
                        let hyphen = before.iter().rposition(|char| *char == '-').filter(|at| *at > 0);
                        let has_word = |at: &usize| before.iter().take(*at).any(|char| *char != '-');
                        if let Some(at) = hyphen.filter(has_word) {
                            end = at + 1;
                        }
                    }
                    let (head, rest) = chunk.split_at(end.min(chunk.len()));
                    line.push(head);
                    if let Some(last) = chunks.last_mut() {
                        *last = rest;
                    }
                } else if line.is_empty() {
                    line.push(chunk);
                    chunks.pop();
                }
            }
            if line.last().is_some_and(|chunk| is_blank(chunk)) {
                line.pop();
            }
            if !line.is_empty() {
                lines.push(line.concat().into_iter().collect());
            }
        }
        Ok(lines)
    }

    /// White space, words, and parts of words that have hyphens.
    fn chunks<'t>(&self, text: &'t [char], meter: &Meter) -> Result<Vec<&'t [char]>> {
        let at = |index: usize| text.get(index).copied();
        let mut chunks = Vec::new();
        let mut begin = 0;
        while let Some(first) = at(begin) {
            let mut end = begin + 1;
            let is_inside: &dyn Fn(char) -> bool = if is_white(first) { &is_white } else { &|char| !is_white(char) };
            if self.breaks_hyphens && !is_white(first) {
                end = word_end(text, begin, meter)?;
            } else {
                while at(end).is_some_and(is_inside) {
                    end += 1;
                }
            }
            meter.steps(end - begin)?;
            chunks.push(text.get(begin..end).unwrap_or_default());
            begin = end;
        }
        Ok(chunks)
    }
}

fn is_letter(char: Option<char>) -> bool {
    char.is_some_and(|char| unicode::is_word(char) && !unicode::is_decimal(char))
}

/// Characters after which a dash may be.
fn is_punctuated(char: Option<char>) -> bool {
    char.is_some_and(|char| unicode::is_word(char) || matches!(char, '!' | '"' | '\'' | '&' | '.' | ',' | '?'))
}

/// The end of the dashes that begin at a place, if they are two or more and a word follows.
fn dashes(text: &[char], begin: usize) -> Option<usize> {
    let count = text.iter().skip(begin).take_while(|char| **char == '-').count();
    let follows = text.get(begin + count).is_some_and(|char| unicode::is_word(*char));
    (count >= 2 && follows).then_some(begin + count)
}

/// The end of a word, or of a part of it before a hyphen or dash.
fn word_end(text: &[char], begin: usize, meter: &Meter) -> Result<usize> {
    let at = |index: Option<usize>| index.and_then(|index| text.get(index)).copied();
    if is_punctuated(at(begin.checked_sub(1)))
        && let Some(end) = dashes(text, begin)
    {
        return Ok(end);
    }
    let mut end = begin + 1;
    loop {
        meter.steps(1)?;
        let Some(char) = text.get(end).copied() else { return Ok(end) };
        if char == '-' {
            let two_letters = is_letter(at(end.checked_sub(1))) && is_letter(at(end.checked_sub(2)));
            let after_hyphen = is_punctuated(at(end.checked_sub(1)))
                && at(end.checked_sub(2)) == Some('-')
                && is_letter(at(end.checked_sub(3)));
            let next = at(Some(end + 1));
            let then = at(Some(end + if at(Some(end + 2)) == Some('-') { 3 } else { 2 }));
            if (two_letters || after_hyphen) && is_letter(next) && is_letter(then) {
                return Ok(end + 1);
            }
            if is_punctuated(at(end.checked_sub(1))) && dashes(text, end).is_some() {
                return Ok(end);
            }
        }
        if is_white(char) {
            return Ok(end);
        }
        end += 1;
    }
}
