//! A place in a text, and the small things that are read there.

use std::fmt::Display;

use crate::{Error, ErrorKind};

use super::names::is_name_char;

/// Reads a text from front to back.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// The rest of the text.
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Goes past white space and comments.
    pub fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// The next character that is no white space and in no comment.
    pub fn peek(&self) -> Option<char> {
        let mut ahead = self.clone();
        ahead.skip();
        ahead.rest().chars().next()
    }

    /// Goes past `token` if it is next.
    pub fn eat(&mut self, token: &str) -> bool {
        self.eat_if(token, |_| true)
    }

    /// Goes past a word if it is next and ends there.
    pub fn eat_word(&mut self, word: &str) -> bool {
        self.eat_if(word, |rest| !rest.starts_with(is_name_char))
    }

    /// Goes past `token` if it is next and before what `ends` accepts, and otherwise nowhere: a comment that is next may
    /// be an origin.
    fn eat_if(&mut self, token: &str, ends: impl FnOnce(&str) -> bool) -> bool {
        let mut ahead = self.clone();
        ahead.skip();
        let found = ahead.rest().strip_prefix(token).is_some_and(ends);
        if found {
            self.at = ahead.at + token.len();
        }
        found
    }

    /// Goes past `token`, which must be next.
    pub fn expect(&mut self, token: &str) -> Result<(), Error> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("`{token}`"))) }
    }

    /// A word of name characters.
    pub fn word(&mut self) -> Result<&'t str, Error> {
        self.skip();
        let word = self.take_while(is_name_char);
        if word.is_empty() { Err(self.error("a word")) } else { Ok(word) }
    }

    /// An operator's name: two words and what joins them, or a text in quotes.
    pub fn operator(&mut self) -> Result<String, Error> {
        if self.peek() == Some('"') {
            return self.quoted();
        }
        self.skip();
        let start = self.at;
        self.word()?;
        if self.rest().starts_with("::") {
            self.at += 2;
            self.take_while(is_name_char);
        }
        Ok(self.text.get(start..self.at).unwrap_or_default().into())
    }

    /// Parses a name after its mark. Returns its text in the file, which is its key, and the unquoted name.
    pub fn name(&mut self) -> Result<(&'t str, String), Error> {
        let start = self.at;
        let name = if self.rest().starts_with('"') { self.quoted()? } else { self.take_while(is_name_char).to_owned() };
        if self.at == start {
            return Err(self.error("a name"));
        }
        if self.rest().starts_with('~') {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        Ok((self.text.get(start..self.at).unwrap_or_default(), name))
    }

    /// A text in quotes.
    pub fn quoted(&mut self) -> Result<String, Error> {
        self.expect("\"")?;
        let mut text = String::new();
        loop {
            text.push_str(self.take_while(|c| c != '"' && c != '\\'));
            if self.rest().starts_with('"') {
                self.at += 1;
                return Ok(text);
            }
            let Some(escape) = self.rest().strip_prefix('\\') else { return Err(self.error("`\"`")) };
            let c = escape.chars().next();
            let plain = match c {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(c @ ('"' | '\\')) => c,
                Some('u') => {
                    let code = escape.strip_prefix("u{").and_then(|code| code.split_once('}'));
                    let unescaped = code.and_then(|(code, _)| char::from_u32(u32::from_str_radix(code, 16).ok()?));
                    let Some(unescaped) = unescaped else { return Err(self.error("an escape such as `\\u{1f}`")) };
                    self.at += code.map_or(0, |(code, _)| code.len() + 2);
                    unescaped
                }
                _ => return Err(self.error("an escape")),
            };
            self.at += 2;
            text.push(plain);
        }
    }

    /// The text of a number: digits with a sign, and perhaps a fraction or an exponent.
    pub fn number(&mut self) -> Result<&'t str, Error> {
        self.skip();
        let start = self.at;
        let digits = |cursor: &mut Self| !cursor.take_while(|c| c.is_ascii_digit()).is_empty();
        if self.rest().starts_with('-') {
            self.at += 1;
        }
        if !digits(self) {
            self.at = start;
            return Err(self.error("a number"));
        }
        let fraction = self.rest().strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if fraction {
            self.at += 1;
            digits(self);
        }
        if self.rest().starts_with('e') {
            self.at += 1;
            if self.rest().starts_with(['-', '+']) {
                self.at += 1;
            }
            if !digits(self) {
                return Err(self.error("an exponent"));
            }
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    /// A number that fits.
    pub fn int<T: std::str::FromStr>(&mut self) -> Result<T, Error> {
        self.skip();
        let before = self.clone();
        let text = self.number()?;
        text.parse().map_err(|_| before.error("an integer in range"))
    }

    /// The number of an origin, `# 3:`, if the rest of the line starts with one.
    pub fn origin(&mut self) -> Option<u32> {
        let rest = self.rest().trim_start_matches([' ', '\t']);
        let (number, _) = rest.strip_prefix("# ")?.split_once(':')?;
        if !number.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        number.parse().ok()
    }

    /// The error that something else was expected here.
    pub fn error(&self, expected: impl Display) -> Error {
        let mut here = self.clone();
        here.skip();
        let before = here.text.get(..here.at).unwrap_or_default();
        let (lines, column) = match before.rsplit_once('\n') {
            Some((lines, line)) => (lines.matches('\n').count() + 2, line.chars().count() + 1),
            None => (1, before.chars().count() + 1),
        };
        let next: String = here.rest().chars().take_while(|c| *c != '\n').take(24).collect();
        let got = if here.rest().is_empty() { "the end of the text".to_owned() } else { format!("`{next}`") };
        Error::new(ErrorKind::Input, "the text of a model is malformed")
            .at(format!("line {lines}, column {column}"))
            .expected(expected)
            .got(got)
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }
}
