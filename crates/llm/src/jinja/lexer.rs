//! Tokens of a template: text, and the contents of tags. White space is trimmed here, with `trim_blocks` and `lstrip_blocks`.

use super::failure::{Failure, Result};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Data(String),
    BlockBegin,
    BlockEnd,
    VariableBegin,
    VariableEnd,
    Name(String),
    Text(String),
    Int(i128),
    Float(f64),
    Operator(&'static str),
    End,
}

/// Longer ones first.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".",
    ":", "|", ",", ";",
];

/// The tokens with their lines.
pub(super) fn tokens(source: &str) -> Result<Vec<(Token, u32)>> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { source, at: 0, line: 1, starts_line: true, tokens: Vec::new() };
    lexer.template()?;
    lexer.push(Token::End);
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: u32,
    /// True if the last text ended a line.
    starts_line: bool,
    tokens: Vec<(Token, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Comment,
    Variable,
    Block,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn push(&mut self, token: Token) {
        self.tokens.push((token, self.line));
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Failure::at(self.line, message))
    }

    /// Skips `len` bytes.
    fn skip(&mut self, len: usize) {
        let text = self.rest().get(..len).unwrap_or_default();
        self.line += text.matches('\n').count() as u32;
        if len > 0 {
            self.starts_line = text.ends_with('\n');
        }
        self.at += text.len();
    }

    fn template(&mut self) -> Result<()> {
        loop {
            let rest = self.rest();
            let Some((len, tag)) = next_tag(rest) else {
                if !rest.is_empty() {
                    self.push(Token::Data(rest.to_owned()));
                }
                self.skip(rest.len());
                return Ok(());
            };
            let (data, after) = rest.split_at(len);
            let sign = after.as_bytes().get(2).copied().filter(|sign| matches!(sign, b'-' | b'+'));
            self.data(data, sign, tag != Tag::Variable);
            self.skip(2 + usize::from(sign.is_some()));
            match tag {
                Tag::Comment => self.comment()?,
                Tag::Variable => self.tag(Token::VariableBegin, "}}", Token::VariableEnd)?,
                Tag::Block => match raw_begin(self.rest()) {
                    Some(len) => {
                        self.skip(len);
                        self.raw()?;
                    }
                    None => self.tag(Token::BlockBegin, "%}", Token::BlockEnd)?,
                },
            }
        }
    }

    /// Text before a tag.
    fn data(&mut self, data: &str, sign: Option<u8>, strips_line: bool) {
        let line_begin = data.rfind('\n').map_or(0, |at| at + 1);
        let kept = match sign {
            Some(b'-') => data.trim_end_matches(is_space),
            None if strips_line
                && (line_begin > 0 || self.starts_line)
                && data.get(line_begin..).unwrap_or_default().chars().all(is_space) =>
            {
                data.get(..line_begin).unwrap_or_default()
            }
            _ => data,
        };
        if !kept.is_empty() {
            self.push(Token::Data(kept.to_owned()));
        }
        self.skip(data.len());
    }

    fn comment(&mut self) -> Result<()> {
        let Some(len) = self.rest().find("#}") else { return self.error("Missing end of comment tag") };
        let is_trimmed = len > 0 && self.rest().as_bytes().get(len - 1) == Some(&b'-');
        let keeps_newline = len > 0 && self.rest().as_bytes().get(len - 1) == Some(&b'+');
        self.skip(len + 2);
        self.end_of_block(is_trimmed, keeps_newline);
        Ok(())
    }

    fn end_of_block(&mut self, is_trimmed: bool, keeps_newline: bool) {
        if is_trimmed {
            self.skip(self.rest().len() - self.rest().trim_start_matches(is_space).len());
        } else if !keeps_newline && self.rest().starts_with('\n') {
            self.skip(1);
        }
    }

    /// Reads the text between `raw` and `endraw`.
    fn raw(&mut self) -> Result<()> {
        let rest = self.rest();
        let mut from = 0;
        while let Some(at) = rest.get(from..).and_then(|rest| rest.find("{%")).map(|at| at + from) {
            let tag = rest.get(at + 2..).unwrap_or_default();
            let sign = tag.as_bytes().first().copied().filter(|sign| matches!(sign, b'-' | b'+'));
            let name = tag.get(usize::from(sign.is_some())..).unwrap_or_default().trim_start_matches(is_space);
            if let Some(end) = name.strip_prefix("endraw") {
                let end = end.trim_start_matches(is_space);
                let mark = end.as_bytes().first().copied().filter(|mark| matches!(mark, b'-' | b'+'));
                let end = end.get(usize::from(mark.is_some())..).unwrap_or_default();
                if end.starts_with("%}") {
                    self.data(rest.get(..at).unwrap_or_default(), sign, true);
                    let len = self.rest().len() - end.len() + 2;
                    self.skip(len);
                    self.end_of_block(mark == Some(b'-'), mark == Some(b'+'));
                    return Ok(());
                }
            }
            from = at + 2;
        }
        self.error("Missing end of raw directive")
    }

    /// Reads the tokens inside a tag.
    fn tag(&mut self, begin: Token, end: &str, end_token: Token) -> Result<()> {
        self.push(begin);
        let mut brackets = Vec::new();
        loop {
            let rest = self.rest();
            let white = rest.len() - rest.trim_start_matches(is_space).len();
            if white > 0 {
                self.skip(white);
                continue;
            }
            let Some(first) = rest.chars().next() else {
                self.push(Token::End);
                return self.error(format!("unexpected end of template, expected `{end}`"));
            };
            if brackets.is_empty() {
                let marked = rest.strip_prefix(['-', '+']).filter(|marked| marked.starts_with(end));
                // A variable has no `+}}`, since its end keeps the line break after it anyway.
                if let Some(mark) = marked.map(|_| first).filter(|mark| *mark == '-' || end == "%}") {
                    self.push(end_token);
                    self.skip(1 + end.len());
                    self.end_of_block(mark == '-', true);
                    return Ok(());
                }
                if rest.starts_with(end) {
                    self.push(end_token);
                    self.skip(end.len());
                    self.end_of_block(false, end == "}}");
                    return Ok(());
                }
            }
            if first.is_ascii_digit() {
                self.number()?;
            } else if first == '\'' || first == '"' {
                self.string(first)?;
            } else if first == '_' || first.is_alphanumeric() {
                let len = rest.find(|char: char| char != '_' && !char.is_alphanumeric()).unwrap_or(rest.len());
                self.push(Token::Name(rest.get(..len).unwrap_or_default().to_owned()));
                self.skip(len);
            } else if let Some(operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) {
                match *operator {
                    "{" => brackets.push("}"),
                    "(" => brackets.push(")"),
                    "[" => brackets.push("]"),
                    "}" | ")" | "]" => match brackets.pop() {
                        Some(expected) if expected == *operator => {}
                        Some(expected) => {
                            return self.error(format!("unexpected '{operator}', expected '{expected}'"));
                        }
                        None => return self.error(format!("unexpected '{operator}'")),
                    },
                    _ => {}
                }
                self.push(Token::Operator(operator));
                self.skip(operator.len());
            } else {
                return self.error(format!("unexpected char {first:?}"));
            }
        }
    }

    fn number(&mut self) -> Result<()> {
        let rest = self.rest();
        let digits = |text: &str, radix: u32| -> usize {
            // Underscores stand between digits.
            let is_digit = |byte: Option<&u8>| byte.is_some_and(|byte| (*byte as char).is_digit(radix));
            let bytes = text.as_bytes();
            let mut len = 0;
            while is_digit(bytes.get(len)) || len > 0 && bytes.get(len) == Some(&b'_') && is_digit(bytes.get(len + 1)) {
                len += 1;
            }
            len
        };
        let text_at = |at: usize| rest.get(at..).unwrap_or_default();
        let radix = match rest.as_bytes().get(..2) {
            Some(b"0x" | b"0X") => 16,
            Some(b"0o" | b"0O") => 8,
            Some(b"0b" | b"0B") => 2,
            _ => 10,
        };
        if radix != 10 {
            let after = text_at(2).strip_prefix('_').map_or(2, |_| 3);
            let len = digits(text_at(after), radix);
            if len > 0 {
                let int = text_at(after).get(..len).unwrap_or_default().replace('_', "");
                return self.int(&int, radix, after + len);
            }
        }
        let whole = digits(rest, 10);
        let mut len = whole;
        // A number after a dot is an index.
        let is_index = self.source.get(..self.at).is_some_and(|before| before.ends_with('.'));
        let mut is_float = false;
        if !is_index {
            if text_at(len).starts_with('.') {
                let fraction = digits(text_at(len + 1), 10);
                if fraction > 0 {
                    len += 1 + fraction;
                    is_float = true;
                }
            }
            if text_at(len).starts_with(['e', 'E']) {
                let sign = usize::from(text_at(len + 1).starts_with(['+', '-']));
                let exponent = digits(text_at(len + 1 + sign), 10);
                if exponent > 0 {
                    len += 1 + sign + exponent;
                    is_float = true;
                }
            }
        }
        let text = rest.get(..len).unwrap_or_default().replace('_', "");
        if is_float {
            self.push(Token::Float(text.parse().unwrap_or(f64::NAN)));
            self.skip(len);
            return Ok(());
        }
        // Leading zeros become a number of their own, and the parser refuses two numbers in a row.
        let zeros = text.len() - text.trim_start_matches('0').len();
        if zeros > 0 && zeros < text.len() {
            return self.error(format!("unexpected number `{text}`, which begins with a zero"));
        }
        self.int(&text, 10, len)
    }

    fn int(&mut self, digits: &str, radix: u32, len: usize) -> Result<()> {
        let Ok(int) = i128::from_str_radix(digits, radix) else {
            return self.error(format!("the integer {digits} has more than 127 bits, which is the limit"));
        };
        self.push(Token::Int(int));
        self.skip(len);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<()> {
        let rest = self.rest();
        let mut text = String::new();
        let mut chars = rest.char_indices().skip(1).peekable();
        while let Some((at, char)) = chars.next() {
            if char == quote {
                self.push(Token::Text(text));
                self.skip(at + 1);
                return Ok(());
            }
            if char != '\\' {
                text.push(char);
                continue;
            }
            let Some((_, escape)) = chars.next() else { break };
            let mut code = |max: usize, radix: u32, first: &str| {
                let mut digits = first.to_owned();
                while digits.len() < max
                    && let Some((_, digit)) = chars.next_if(|(_, char)| char.is_digit(radix))
                {
                    digits.push(digit);
                }
                let is_whole = radix == 8 || digits.len() == max;
                u32::from_str_radix(&digits, radix).ok().filter(|_| is_whole).and_then(char::from_u32)
            };
            let meant = match escape {
                '\n' => continue,
                'n' => Some('\n'),
                't' => Some('\t'),
                'r' => Some('\r'),
                'a' => Some('\u{7}'),
                'b' => Some('\u{8}'),
                'f' => Some('\u{c}'),
                'v' => Some('\u{b}'),
                '\\' | '\'' | '"' => Some(escape),
                'x' => code(2, 16, ""),
                'u' => code(4, 16, ""),
                'U' => code(8, 16, ""),
                '0'..='7' => code(3, 8, escape.encode_utf8(&mut [0; 4])),
                'N' => {
                    return self.error("`\\N{...}`: names of characters are not supported: write `\\u` and the code");
                }
                // Others are kept as they are.
                other => {
                    text.push('\\');
                    Some(other)
                }
            };
            match meant {
                Some(char) => text.push(char),
                None => return self.error(format!("`\\{escape}` in a string is followed by no character's code")),
            }
        }
        self.error(format!("unexpected char {:?}: the string has no end", quote.to_string()))
    }
}

/// The first tag of a text.
fn next_tag(text: &str) -> Option<(usize, Tag)> {
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| *byte == b'{')?;
        match bytes.get(at + 1) {
            Some(b'#') => return Some((at, Tag::Comment)),
            Some(b'{') => return Some((at, Tag::Variable)),
            Some(b'%') => return Some((at, Tag::Block)),
            _ => from = at + 1,
        }
    }
}

/// Returns the length of `raw` and the end of its tag, if `text` begins with them.
fn raw_begin(text: &str) -> Option<usize> {
    let inner = text.trim_start_matches(is_space).strip_prefix("raw")?.trim_start_matches(is_space);
    let end = match inner.strip_prefix("-%}") {
        Some(end) => end.trim_start_matches(is_space),
        None => inner.strip_prefix("%}")?,
    };
    Some(text.len() - end.len())
}

/// White space of Python's regular expressions.
fn is_space(char: char) -> bool {
    super::unicode::is_space(char)
}
