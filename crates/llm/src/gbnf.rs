//! Translates GBNF, the grammars of llama.cpp, to Lark grammars of the same texts.
//!
//! A GBNF rule consists of characters. Lark first splits a text into lexemes, each as long as possible, so `[a-z]* "x"`
//! as two lexemes would never match. Therefore a grammar without recursion becomes one lexeme made of terminals. In
//! other grammars each character is a lexeme.

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::{Error, Result};

/// Maximum depth of parentheses.
const MAX_DEPTH: usize = 200;

/// Maximum number of repetitions, as in llama.cpp.
const MAX_REPETITIONS: u32 = 2000;

/// Maximum number of rules and groups. The rules of a chain are compiled recursively.
const MAX_RULES: usize = 1000;

/// Maximum size of a grammar in bytes.
const MAX_LEN: usize = 1 << 16;

/// The rule of the whole answer.
const ROOT: &str = "root";

/// True if a grammar is GBNF and not Lark: it begins with a name and `::=`.
pub(crate) fn is_gbnf(text: &str) -> bool {
    let mut parser = Parser::new(text);
    parser.skip_lines();
    !parser.name().is_empty() && {
        parser.skip_spaces();
        parser.rest.starts_with(DEFINES)
    }
}

/// Translates a grammar.
///
/// # Errors
/// `Grammar`, with the line and the column.
pub(crate) fn to_lark(text: &str) -> Result<String> {
    let grammar = Parser::new(text).grammar()?;
    let root = grammar.names.get(ROOT).copied();
    let root = root.ok_or_else(|| Error::Grammar(format!("GBNF: there is no rule `{ROOT}` to begin with")))?;
    Ok(Writer { is_recursive: grammar.is_recursive(root), grammar: &grammar }.lark(root))
}

const DEFINES: &str = "::=";

/// Alternatives, each a sequence.
type Alternatives = Vec<Vec<Repeated>>;

/// An element with its number of repetitions.
#[derive(Debug)]
struct Repeated {
    element: Element,
    min: u32,
    /// Maximum; `None` for any number.
    max: Option<u32>,
}

#[derive(Debug)]
enum Element {
    Text(String),
    /// One character in these ranges, or one outside of them.
    Class {
        ranges: Vec<(char, char)>,
        is_negated: bool,
    },
    /// The index of a rule or group.
    Rule(usize),
}

/// Rules by index. Groups in parentheses, and elements that are repeated more than once, are rules too.
#[derive(Debug, Default)]
struct Gbnf {
    rules: Vec<Option<Alternatives>>,
    names: HashMap<String, usize>,
}

impl Gbnf {
    /// Returns the rules that a rule names.
    fn named_by(&self, rule: usize) -> impl Iterator<Item = usize> {
        let elements = self.rules.get(rule).into_iter().flatten().flatten().flatten();
        let elements = elements.filter(|repeated| repeated.max != Some(0));
        elements.filter_map(|repeated| match repeated.element {
            Element::Rule(rule) => Some(rule),
            _ => None,
        })
    }

    /// True if a rule below `root` contains itself.
    fn is_recursive(&self, root: usize) -> bool {
        /// The progress of the visit to a rule.
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            No,
            Open,
            Done,
        }
        let mut seen = vec![Seen::No; self.rules.len()];
        let mut stack = vec![(root, false)];
        while let Some((rule, is_left)) = stack.pop() {
            let Some(state) = seen.get_mut(rule) else { continue };
            if is_left {
                *state = Seen::Done;
                continue;
            }
            match *state {
                Seen::Done => continue,
                Seen::Open => return true,
                Seen::No => *state = Seen::Open,
            }
            stack.push((rule, true));
            for next in self.named_by(rule) {
                match seen.get(next) {
                    Some(Seen::Open) => return true,
                    Some(Seen::No) => stack.push((next, false)),
                    _ => {}
                }
            }
        }
        false
    }

    fn add(&mut self, rule: Option<Alternatives>) -> usize {
        self.rules.push(rule);
        self.rules.len() - 1
    }

    /// Returns the index of a rule, defined or not.
    fn rule(&mut self, name: &str) -> usize {
        if let Some(rule) = self.names.get(name) {
            return *rule;
        }
        let rule = self.add(None);
        self.names.insert(name.to_owned(), rule);
        rule
    }
}

/// Reads a grammar.
struct Parser<'a> {
    text: &'a str,
    /// The unparsed rest.
    rest: &'a str,
    grammar: Gbnf,
    /// Positions at which rules are first named.
    named: Vec<(usize, &'a str)>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, rest: text, grammar: Gbnf::default(), named: Vec::new() }
    }

    fn grammar(mut self) -> Result<Gbnf> {
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

/// Writes Lark.
struct Writer<'a> {
    grammar: &'a Gbnf,
    is_recursive: bool,
}

impl Writer<'_> {
    fn lark(&self, root: usize) -> String {
        let mut lark = format!("start: {}\n", self.name(root));
        let mut seen = vec![false; self.grammar.rules.len()];
        let mut waiting = vec![root];
        while let Some(rule) = waiting.pop() {
            if std::mem::replace(&mut seen[rule], true) {
                continue;
            }
            let alternatives = self.grammar.rules[rule].as_deref().unwrap_or_default();
            let alternatives: Vec<String> = alternatives.iter().map(|sequence| self.sequence(sequence)).collect();
            let _ = writeln!(lark, "{}: {}", self.name(rule), alternatives.join(" | "));
            waiting.extend(self.grammar.named_by(rule));
        }
        lark
    }

    /// Terminals have names of capital letters.
    fn name(&self, rule: usize) -> String {
        let prefix = if self.is_recursive { "r" } else { "R" };
        format!("{prefix}{rule}")
    }

    fn sequence(&self, sequence: &[Repeated]) -> String {
        let mut lark = String::new();
        for Repeated { element, min, max } in sequence {
            let repetitions = match (min, max) {
                (_, Some(0)) => continue,
                (1, Some(1)) => String::new(),
                (0, None) => "*".to_owned(),
                (1, None) => "+".to_owned(),
                (0, Some(1)) => "?".to_owned(),
                (min, Some(max)) => format!("{{{min},{max}}}"),
                (min, None) => format!("{{{min},}}"),
            };
            let element = match element {
                Element::Rule(rule) => self.name(*rule),
                Element::Class { ranges, is_negated: true } if ranges.is_empty() => "/(?s:.)/".to_owned(),
                Element::Class { ranges, is_negated } => {
                    let mut class = if *is_negated { "/[^".to_owned() } else { "/[".to_owned() };
                    for (first, last) in ranges {
                        let _ = write!(class, "\\x{{{:X}}}-\\x{{{:X}}}", u32::from(*first), u32::from(*last));
                    }
                    class + "]/"
                }
                Element::Text(text) if text.is_empty() => continue,
                Element::Text(text) if self.is_recursive => {
                    let characters: Vec<String> =
                        text.chars().map(|character| literal([character].into_iter())).collect();
                    format!("({})", characters.join(" "))
                }
                Element::Text(text) => literal(text.chars()),
            };
            let _ = write!(lark, "{element}{repetitions} ");
        }
        if lark.is_empty() { "\"\"".to_owned() } else { lark.trim_end().to_owned() }
    }
}

/// Writes characters as a regular expression of Lark.
fn literal(characters: impl Iterator<Item = char>) -> String {
    let mut regex = "/".to_owned();
    for character in characters {
        let _ = write!(regex, "\\x{{{:X}}}", u32::from(character));
    }
    regex + "/"
}
