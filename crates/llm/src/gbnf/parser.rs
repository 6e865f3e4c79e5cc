//! Reads GBNF.

use super::rules::{Alternatives, Element, Gbnf, Repeated};
use crate::error::{Error, Result};

/// Maximum depth of parentheses.
const MAX_DEPTH: usize = 200;

/// Maximum number of repetitions, as in llama.cpp.
const MAX_REPETITIONS: u32 = 2000;

/// Maximum number of rules and groups. The rules of a chain are compiled recursively.
const MAX_RULES: usize = 1000;

/// Maximum size of a grammar in bytes.
const MAX_LEN: usize = 1 << 16;

const DEFINES: &str = "::=";

/// True if a grammar is GBNF and not Lark: it begins with a name and `::=`.
pub(crate) fn is_gbnf(text: &str) -> bool {
    let mut parser = Parser::new(text);
    parser.skip_lines();
    !parser.name().is_empty() && {
        parser.skip_spaces();
        parser.rest.starts_with(DEFINES)
    }
}

/// Reads a grammar.
pub(super) struct Parser<'a> {
    text: &'a str,
    /// The unparsed rest.
    rest: &'a str,
    grammar: Gbnf,
    /// Positions at which rules are first named.
    named: Vec<(usize, &'a str)>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, rest: text, grammar: Gbnf::default(), named: Vec::new() }
    }

    pub(super) fn grammar(mut self) -> Result<Gbnf> {
        if self.text.len() > MAX_LEN {
            return Err(self.error(&format!("expected at most {MAX_LEN} bytes, got {}", self.text.len())));
        }
        self.skip_lines();
        while !self.rest.is_empty() {
            self.rule()?;
            self.skip_lines();
        }
        let is_missing =
            |name: &str| self.grammar.names.get(name).is_some_and(|rule| self.grammar.rules[*rule].is_none());
        if let Some((at, name)) = self.named.iter().find(|(_, name)| is_missing(name)) {
            return Err(self.error_at(*at, &format!("there is no rule `{name}`")));
        }
        Ok(self.grammar)
    }

    /// `name ::= alternatives` and the end of the line.
    fn rule(&mut self) -> Result<()> {
        let at = self.position();
        let name = self.name();
        if name.is_empty() {
            return Err(self.error("expected the name of a rule"));
        }
        self.skip_spaces();
        if !self.take(DEFINES) {
            return Err(self.error(&format!("expected `{DEFINES}` behind the rule's name")));
        }
        self.skip_lines();
        let alternatives = self.alternatives(0)?;
        self.skip_spaces();
        if !self.rest.is_empty() && !self.rest.starts_with(['\n', '\r']) {
            return Err(self.error("expected the end of the line"));
        }
        let rule = self.grammar.rule(name);
        self.check_count()?;
        match self.grammar.rules.get_mut(rule) {
            Some(defined @ None) => *defined = Some(alternatives),
            _ => return Err(self.error_at(at, &format!("the rule `{name}` is there twice"))),
        }
        Ok(())
    }

    fn alternatives(&mut self, depth: usize) -> Result<Alternatives> {
        let mut alternatives = vec![self.sequence(depth)?];
        while self.take("|") {
            self.skip_lines();
            alternatives.push(self.sequence(depth)?);
        }
        Ok(alternatives)
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Repeated>> {
        let mut sequence = Vec::new();
        loop {
            // Inside of parentheses a line may end anywhere.
            if depth > 0 {
                self.skip_lines();
            } else {
                self.skip_spaces();
            }
            let Some(element) = self.element(depth)? else { return Ok(sequence) };
            let mut repeated = Repeated { element, min: 1, max: Some(1) };
            loop {
                if depth > 0 {
                    self.skip_lines();
                } else {
                    self.skip_spaces();
                }
                let Some((min, max)) = self.repetitions()? else { break };
                if (repeated.min, repeated.max) != (1, Some(1)) {
                    // An element that is already repeated becomes a group.
                    repeated = Repeated { element: self.group(vec![vec![repeated]])?, min: 1, max: Some(1) };
                }
                (repeated.min, repeated.max) = (min, max);
            }
            sequence.push(repeated);
        }
    }

    fn group(&mut self, alternatives: Alternatives) -> Result<Element> {
        self.check_count()?;
        Ok(Element::Rule(self.grammar.add(Some(alternatives))))
    }

    fn check_count(&self) -> Result<()> {
        if self.grammar.rules.len() > MAX_RULES {
            return Err(self.error(&format!("the grammar has more than {MAX_RULES} rules and groups")));
        }
        Ok(())
    }

    /// Parses an element of a sequence; `None` at its end.
    fn element(&mut self, depth: usize) -> Result<Option<Element>> {
        let at = self.position();
        if self.take("\"") {
            let mut text = String::new();
            while !self.take("\"") {
                text.push(self.character("the end `\"` of the text")?);
            }
            return Ok(Some(Element::Text(text)));
        }
        if self.take("[") {
            return self.class(at).map(Some);
        }
        if self.take(".") {
            return Ok(Some(Element::Class { ranges: Vec::new(), is_negated: true }));
        }
        if self.take("(") {
            if depth >= MAX_DEPTH {
                return Err(self.error_at(at, &format!("more than {MAX_DEPTH} parentheses are open")));
            }
            let alternatives = self.alternatives(depth + 1)?;
            if !self.take(")") {
                return Err(self.error(&format!("expected `)`, for the `(` of {}", self.place(at))));
            }
            return self.group(alternatives).map(Some);
        }
        if self.rest.starts_with(['<', '!']) {
            return Err(self.error("tokens in grammars are not supported: write their text"));
        }
        let name = self.name();
        if name.is_empty() {
            return Ok(None);
        }
        if !self.grammar.names.contains_key(name) {
            self.named.push((at, name));
        }
        let rule = self.grammar.rule(name);
        self.check_count()?;
        Ok(Some(Element::Rule(rule)))
    }

    /// Parses the class of characters whose `[` is at a position.
    fn class(&mut self, at: usize) -> Result<Element> {
        let is_negated = self.take("^");
        let mut ranges = Vec::new();
        while !self.take("]") {
            let start = self.position();
            let first = self.character("the end `]` of the characters")?;
            let mut last = first;
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.take("-");
                last = self.character("the end of the range")?;
            }
            if last < first {
                return Err(self.error_at(start, &format!("the range from {first:?} to {last:?} is empty")));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() {
            return Err(self.error_at(at, "there are no characters between `[` and `]`"));
        }
        Ok(Element::Class { ranges, is_negated })
    }

    /// Parses a character of a text or class.
    fn character(&mut self, end: &str) -> Result<char> {
        let at = self.position();
        let mut characters = self.rest.chars();
        let missing = || self.error_at(at, &format!("expected {end}, got the end of the line"));
        let first = characters.next().filter(|first| *first != '\n').ok_or_else(missing)?;
        if first != '\\' {
            self.rest = characters.as_str();
            return Ok(first);
        }
        let escape = characters.next().ok_or_else(missing)?;
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' | 'r' | 'n' | '\\' | '"' | '[' | ']' => {
                self.rest = characters.as_str();
                return Ok(match escape {
                    't' => '\t',
                    'r' => '\r',
                    'n' => '\n',
                    same => same,
                });
            }
            _ => return Err(self.error_at(at, &format!("there is no escape {:?}", format!("\\{escape}")))),
        };
        let hex = characters.as_str().get(..digits).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let hex =
            hex.ok_or_else(|| self.error_at(at, &format!("expected {digits} hexadecimal digits behind `\\{escape}`")))?;
        let code = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
        self.rest = characters.as_str().get(digits..).unwrap_or_default();
        code.ok_or_else(|| self.error_at(at, &format!("there is no character U+{hex}")))
    }

    /// Parses the number of repetitions of the element before, if there is one.
    fn repetitions(&mut self) -> Result<Option<(u32, Option<u32>)>> {
        for (mark, min, max) in [("*", 0, None), ("+", 1, None), ("?", 0, Some(1))] {
            if self.take(mark) {
                return Ok(Some((min, max)));
            }
        }
        let at = self.position();
        if !self.take("{") {
            return Ok(None);
        }
        self.skip_spaces();
        let min = self.number()?;
        self.skip_spaces();
        let mut max = Some(min);
        if self.take(",") {
            self.skip_spaces();
            max = if self.rest.starts_with('}') { None } else { Some(self.number()?) };
            self.skip_spaces();
        }
        if !self.take("}") {
            return Err(self.error("expected `}` behind the number of repetitions"));
        }
        if max.is_some_and(|max| max < min) {
            return Err(self.error_at(at, "the maximum of repetitions is less than the minimum"));
        }
        Ok(Some((min, max)))
    }

    fn number(&mut self) -> Result<u32> {
        let end = self.rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let number = digits.parse().ok().filter(|number| *number <= MAX_REPETITIONS);
        let number = number
            .ok_or_else(|| self.error(&format!("expected a number of repetitions, from 0 to {MAX_REPETITIONS}")))?;
        self.rest = rest;
        Ok(number)
    }

    /// Parses the name of a rule; empty if there is none.
    fn name(&mut self) -> &'a str {
        let is_of_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
        let end = self.rest.find(|character| !is_of_name(character)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        name
    }

    fn take(&mut self, mark: &str) -> bool {
        let rest = self.rest.strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Skips spaces and a comment.
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        if self.rest.starts_with('#') {
            self.rest = self.rest.find(['\n', '\r']).and_then(|end| self.rest.get(end..)).unwrap_or_default();
        }
    }

    /// Skips spaces, comments and ends of lines.
    fn skip_lines(&mut self) {
        loop {
            self.skip_spaces();
            let rest = self.rest.trim_start_matches(['\n', '\r']);
            if rest.len() == self.rest.len() {
                break;
            }
            self.rest = rest;
        }
    }

    /// The number of bytes that were read.
    fn position(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    /// Returns a line and a column, both from 1; the column counts characters.
    fn place(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or_default();
        let (line, start) = (before.matches('\n').count() + 1, before.rfind('\n').map_or(0, |end| end + 1));
        format!("line {line}, column {}", before.get(start..).unwrap_or_default().chars().count() + 1)
    }

    fn error(&self, problem: &str) -> Error {
        self.error_at(self.position(), problem)
    }

    fn error_at(&self, at: usize, problem: &str) -> Error {
        Error::Grammar(format!("GBNF, {}: {problem}", self.place(at)))
    }
}
