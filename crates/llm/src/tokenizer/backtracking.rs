//! Regular expressions with look-around, backreferences and atomic groups, by backtracking. Steps are counted, so every search ends.

use std::ops::Range;
use std::sync::Arc;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, HirKind};

use super::settings::damaged;
use crate::error::Result;

/// Maximum number of steps of the searches in a text: for each byte, and in addition, of which the fuzzer has fewer. A step takes some
/// nanoseconds.
const STEPS_PER_BYTE: usize = 1 << 10;
const STEPS_BESIDES: usize = if cfg!(fuzzing) { 1 << 14 } else { 1 << 22 };

/// Maximum number of entries of the backtracking stack.
const MAX_STACK: usize = 1 << 20;

/// Maximum bytes of an expression, number of instructions, depth of groups, and number of repetitions in sequence.
const MAX_EXPRESSION: usize = 1 << 14;
const MAX_PROGRAM: usize = 1 << 14;
const MAX_DEPTH: usize = 100;
const MAX_REPETITIONS: usize = 10;

/// Maximum number of nodes that are compiled: repetitions of nothing become no instructions.
const MAX_COMPILED: usize = 1 << 16;

/// An expression.
#[derive(Debug)]
pub(super) struct Backtracking {
    program: Vec<Instruction>,
    /// Two places for each group, and one for each loop whose body may be empty.
    slots: usize,
}

#[derive(Debug)]
enum Instruction {
    Set(Set),
    /// Tries the first place, then the second.
    Split(usize, usize),
    Jump(usize),
    Save(usize),
    /// Fails if nothing was read since the slot was saved.
    Progress(usize),
    Back {
        group: usize,
        ignores_case: bool,
    },
    Assert(Assertion),
    /// Look-around: runs the instructions up to `End`, from `behind` characters back, and continues at `next` at the original position.
    Look {
        behind: usize,
        is_negative: bool,
        next: usize,
    },
    /// Atomic group: runs the instructions up to `End`, and continues at `next`. Later failures do not go back into it.
    Atomic {
        next: usize,
    },
    End,
}

#[derive(Clone, Copy, Debug)]
enum Assertion {
    TextStart,
    TextEnd,
    /// Before a last line break, too.
    LastLineEnd,
    LineStart,
    LineEnd,
    WordBoundary,
    NotWordBoundary,
}

/// A set of characters.
#[derive(Clone, Debug)]
struct Set {
    ascii: u128,
    ranges: Arc<[(char, char)]>,
}

impl Set {
    fn has(&self, char: char) -> bool {
        if char.is_ascii() {
            return self.ascii >> (char as u32) & 1 == 1;
        }
        let after = self.ranges.partition_point(|(first, _)| *first <= char);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, last)| char <= *last)
    }

    /// Reads a set as the crate `regex` writes it.
    fn of(source: &str, flags: Flags) -> Result<Self> {
        let mut parser = ParserBuilder::new();
        parser.case_insensitive(flags.ignores_case).dot_matches_new_line(flags.dot_is_all);
        let hir = parser.build().parse(source).map_err(|error| damaged(format!("the set `{source}`: {error}")))?;
        let ranges: Vec<(char, char)> = match hir.kind() {
            HirKind::Class(Class::Unicode(class)) => {
                class.ranges().iter().map(|range| (range.start(), range.end())).collect()
            }
            HirKind::Class(Class::Bytes(class)) => {
                class.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect()
            }
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).unwrap_or_default();
                let mut chars = text.chars();
                match (chars.next(), chars.next()) {
                    (Some(char), None) => vec![(char, char)],
                    _ => return Err(damaged(format!("`{source}` is no set of characters"))),
                }
            }
            _ => return Err(damaged(format!("`{source}` is no set of characters"))),
        };
        let mut set = Self { ascii: 0, ranges: ranges.into() };
        for code in 0..128_u32 {
            let is_inside = |(first, last): &(char, char)| (*first as u32..=*last as u32).contains(&code);
            set.ascii |= u128::from(set.ranges.iter().any(is_inside)) << code;
        }
        Ok(set)
    }
}

#[derive(Debug)]
enum Node {
    Set(Set),
    Concat(Vec<Node>),
    Either(Vec<Node>),
    Repeat { node: Box<Node>, min: usize, max: Option<usize>, is_lazy: bool },
    Group(Box<Node>, usize),
    Look { node: Box<Node>, is_ahead: bool, is_negative: bool },
    Atomic(Box<Node>),
    Back { group: usize, ignores_case: bool },
    Assert(Assertion),
}

impl Node {
    /// The number of characters that it matches, if it is always the same.
    fn width(&self) -> Option<usize> {
        match self {
            Self::Set(_) => Some(1),
            Self::Concat(nodes) => nodes.iter().try_fold(0_usize, |sum, node| sum.checked_add(node.width()?)),
            Self::Either(nodes) => {
                let mut widths = nodes.iter().map(Self::width);
                let first = widths.next()??;
                widths.all(|width| width == Some(first)).then_some(first)
            }
            Self::Repeat { node, min, max, .. } if *max == Some(*min) => node.width()?.checked_mul(*min),
            Self::Group(node, _) | Self::Atomic(node) => node.width(),
            Self::Look { .. } | Self::Assert(_) => Some(0),
            Self::Repeat { .. } | Self::Back { .. } => None,
        }
    }

    fn may_be_empty(&self) -> bool {
        match self {
            Self::Set(_) => false,
            Self::Concat(nodes) => nodes.iter().all(Self::may_be_empty),
            Self::Either(nodes) => nodes.iter().any(Self::may_be_empty),
            Self::Repeat { node, min, .. } => *min == 0 || node.may_be_empty(),
            Self::Group(node, _) | Self::Atomic(node) => node.may_be_empty(),
            Self::Look { .. } | Self::Assert(_) | Self::Back { .. } => true,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    ignores_case: bool,
    dot_is_all: bool,
    is_multi_line: bool,
}

impl Backtracking {
    pub(super) fn new(expression: &str) -> Result<Self> {
        let wrong = |problem: &str| damaged(format!("the regular expression `{expression}`: {problem}"));
        if expression.len() > MAX_EXPRESSION {
            let len = expression.len();
            return Err(damaged(format!("expected a regular expression of at most {MAX_EXPRESSION} bytes, got {len}")));
        }
        let mut parser = Parser { rest: expression, groups: 1, names: Vec::new(), depth: 0, flags: Flags::default() };
        let node = parser.either().map_err(|error| wrong(&error.to_string()))?;
        if !parser.rest.is_empty() {
            return Err(wrong("a bracket is closed that was not opened"));
        }
        let (slots, groups) = (2 * parser.groups, parser.groups);
        let mut compiler = Compiler { program: Vec::new(), slots, groups, left: MAX_COMPILED };
        compiler.node(&node).map_err(|error| wrong(&error.to_string()))?;
        compiler.push(Instruction::End).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { program: compiler.program, slots: compiler.slots })
    }

    /// Calls `found` with each match that is not empty, in order.
    pub(super) fn find(&self, text: &str, mut found: impl FnMut(Range<usize>) -> Result<()>) -> Result<()> {
        let mut search = Search {
            program: &self.program,
            text,
            slots: vec![usize::MAX; self.slots],
            stack: Vec::new(),
            left: text.len().saturating_mul(STEPS_PER_BYTE).saturating_add(STEPS_BESIDES),
        };
        let mut at = 0;
        while at < text.len() {
            search.slots.fill(usize::MAX);
            match search.run(0, at)? {
                Some(end) if end > at => {
                    found(at..end)?;
                    at = end;
                }
                _ => at += text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8),
            }
            search.stack.clear();
        }
        Ok(())
    }
}

/// An entry of the backtracking stack.
enum Entry {
    Branch { place: usize, at: usize },
    Restore { slot: usize, value: usize },
}

struct Search<'s> {
    program: &'s [Instruction],
    text: &'s str,
    slots: Vec<usize>,
    stack: Vec<Entry>,
    left: usize,
}

impl Search<'_> {
    fn gave_up<T>() -> Result<T> {
        Err(damaged("a regular expression gave up: it takes too many steps for this text"))
    }

    fn next(&self, at: usize) -> Option<char> {
        self.text.get(at..).and_then(|rest| rest.chars().next())
    }

    fn before(&self, at: usize) -> Option<char> {
        self.text.get(..at).and_then(|text| text.chars().next_back())
    }

    fn push(&mut self, entry: Entry) -> Result<()> {
        if self.stack.len() >= MAX_STACK {
            return Self::gave_up();
        }
        self.stack.push(entry);
        Ok(())
    }

    fn save(&mut self, slot: usize, value: usize) -> Result<()> {
        if let Some(place) = self.slots.get_mut(slot) {
            let before = std::mem::replace(place, value);
            self.push(Entry::Restore { slot, value: before })?;
        }
        Ok(())
    }

    /// Backtracks to the latest alternative above `bottom` on the stack. `None` if there is none.
    fn go_back(&mut self, bottom: usize) -> Option<(usize, usize)> {
        while self.stack.len() > bottom {
            match self.stack.pop()? {
                Entry::Branch { place, at } => return Some((place, at)),
                Entry::Restore { slot, value } => {
                    if let Some(place) = self.slots.get_mut(slot) {
                        *place = value;
                    }
                }
            }
        }
        None
    }

    /// Drops the alternatives above `bottom` on the stack, and keeps the slots that it must restore.
    fn commit(&mut self, bottom: usize) {
        let mut kept = bottom;
        for index in bottom..self.stack.len() {
            if matches!(self.stack.get(index), Some(Entry::Restore { .. })) {
                self.stack.swap(kept, index);
                kept += 1;
            }
        }
        self.stack.truncate(kept);
    }

    /// Runs from an instruction at a place of the text. Returns where the match ends.
    fn run(&mut self, first: usize, at: usize) -> Result<Option<usize>> {
        let bottom = self.stack.len();
        let (mut place, mut at) = (first, at);
        loop {
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => return Self::gave_up(),
            }
            let program = self.program;
            let Some(instruction) = program.get(place) else { return Ok(None) };
            let is_good = match instruction {
                Instruction::End => return Ok(Some(at)),
                Instruction::Set(set) => match self.next(at) {
                    Some(char) if set.has(char) => {
                        at += char.len_utf8();
                        true
                    }
                    _ => false,
                },
                Instruction::Split(one, other) => {
                    self.push(Entry::Branch { place: *other, at })?;
                    place = *one;
                    continue;
                }
                Instruction::Jump(to) => {
                    place = *to;
                    continue;
                }
                Instruction::Save(slot) => {
                    self.save(*slot, at)?;
                    true
                }
                Instruction::Progress(slot) => self.slots.get(*slot) != Some(&at),
                Instruction::Assert(assertion) => self.holds(*assertion, at),
                Instruction::Back { group, ignores_case } => match self.back(*group, *ignores_case, at)? {
                    Some(end) => {
                        at = end;
                        true
                    }
                    None => false,
                },
                Instruction::Atomic { next } => {
                    let inside = self.stack.len();
                    match self.run(place + 1, at)? {
                        Some(end) => {
                            self.commit(inside);
                            (place, at) = (*next, end);
                            continue;
                        }
                        None => false,
                    }
                }
                Instruction::Look { behind, is_negative, next } => {
                    match self.left.checked_sub(*behind) {
                        Some(left) => self.left = left,
                        None => return Self::gave_up(),
                    }
                    let begin = self.text.get(..at).map(|text| {
                        if *behind == 0 {
                            return Some(at);
                        }
                        text.char_indices().rev().nth(*behind - 1).map(|(begin, _)| begin)
                    });
                    let inside = self.stack.len();
                    let found = match begin.flatten() {
                        Some(begin) => self.run(place + 1, begin)?,
                        None => None,
                    };
                    if *is_negative {
                        // Nothing that was saved inside is kept.
                        while self.go_back(inside).is_some() {}
                    } else {
                        self.commit(inside);
                    }
                    if found.is_some() != *is_negative {
                        place = *next;
                        continue;
                    }
                    false
                }
            };
            if is_good {
                place += 1;
                continue;
            }
            match self.go_back(bottom) {
                Some(left) => (place, at) = left,
                None => return Ok(None),
            }
        }
    }

    fn holds(&self, assertion: Assertion, at: usize) -> bool {
        let is_word = |char: Option<char>| char.is_some_and(|char| char == '_' || char.is_alphanumeric());
        let is_boundary = || is_word(self.before(at)) != is_word(self.next(at));
        match assertion {
            Assertion::TextStart => at == 0,
            Assertion::TextEnd => at == self.text.len(),
            Assertion::LastLineEnd => self.text.get(at..).is_some_and(|rest| rest.is_empty() || rest == "\n"),
            Assertion::LineStart => at == 0 || self.before(at) == Some('\n'),
            Assertion::LineEnd => at == self.text.len() || self.next(at) == Some('\n'),
            Assertion::WordBoundary => is_boundary(),
            Assertion::NotWordBoundary => !is_boundary(),
        }
    }

    /// The end of the text that a group has matched, if it stands here again.
    fn back(&mut self, group: usize, ignores_case: bool, at: usize) -> Result<Option<usize>> {
        let slot = |slot: usize| self.slots.get(slot).copied();
        let (Some(begin), Some(end)) = (slot(2 * group), slot(2 * group + 1)) else { return Ok(None) };
        let Some(matched) = self.text.get(begin..end) else { return Ok(None) };
        match self.left.checked_sub(matched.len() / 8) {
            Some(left) => self.left = left,
            None => return Self::gave_up(),
        }
        let rest = self.text.get(at..).unwrap_or_default();
        if !ignores_case {
            return Ok(rest.starts_with(matched).then_some(at + matched.len()));
        }
        let mut len = 0;
        let mut chars = rest.chars();
        for expected in matched.chars() {
            match chars.next() {
                Some(char) if char == expected || char.to_lowercase().eq(expected.to_lowercase()) => {
                    len += char.len_utf8();
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(at + len))
    }
}

struct Compiler {
    program: Vec<Instruction>,
    slots: usize,
    groups: usize,
    /// Nodes that may still be compiled.
    left: usize,
}

impl Compiler {
    fn push(&mut self, instruction: Instruction) -> Result<usize> {
        if self.program.len() >= MAX_PROGRAM {
            return Err(damaged(format!("it has more than {MAX_PROGRAM} parts")));
        }
        self.program.push(instruction);
        Ok(self.program.len() - 1)
    }

    fn set(&mut self, place: usize, instruction: Instruction) {
        if let Some(known) = self.program.get_mut(place) {
            *known = instruction;
        }
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| damaged(format!("its repetitions have more than {MAX_COMPILED} parts")))?;
        match node {
            Node::Set(set) => self.push(Instruction::Set(set.clone())).map(|_| ()),
            Node::Concat(nodes) => nodes.iter().try_for_each(|node| self.node(node)),
            Node::Either(nodes) => {
                let mut jumps = Vec::new();
                let last = nodes.len().saturating_sub(1);
                for (index, node) in nodes.iter().enumerate() {
                    if index == last {
                        self.node(node)?;
                        break;
                    }
                    let split = self.push(Instruction::Jump(0))?;
                    self.node(node)?;
                    jumps.push(self.push(Instruction::Jump(0))?);
                    self.set(split, Instruction::Split(split + 1, self.program.len()));
                }
                let end = self.program.len();
                jumps.into_iter().for_each(|jump| self.set(jump, Instruction::Jump(end)));
                Ok(())
            }
            Node::Repeat { node, min, max, is_lazy } => self.repeat(node, *min, *max, *is_lazy),
            Node::Group(node, group) => {
                self.push(Instruction::Save(2 * group))?;
                self.node(node)?;
                self.push(Instruction::Save(2 * group + 1)).map(|_| ())
            }
            Node::Atomic(node) => {
                let place = self.push(Instruction::End)?;
                self.node(node)?;
                self.push(Instruction::End)?;
                self.set(place, Instruction::Atomic { next: self.program.len() });
                Ok(())
            }
            Node::Look { node, is_ahead, is_negative } => self.look(node, *is_ahead, *is_negative),
            Node::Back { group, .. } if *group >= self.groups => {
                Err(damaged(format!("there is no group {group} to refer to")))
            }
            Node::Back { group, ignores_case } => {
                self.push(Instruction::Back { group: *group, ignores_case: *ignores_case }).map(|_| ())
            }
            Node::Assert(assertion) => self.push(Instruction::Assert(*assertion)).map(|_| ()),
        }
    }

    fn repeat(&mut self, node: &Node, min: usize, max: Option<usize>, is_lazy: bool) -> Result<()> {
        let split = |one: usize, other: usize| {
            if is_lazy { Instruction::Split(other, one) } else { Instruction::Split(one, other) }
        };
        for _ in 0..min {
            self.node(node)?;
        }
        let Some(max) = max else {
            let begin = self.push(Instruction::End)?;
            let slot = node.may_be_empty().then(|| {
                self.slots += 1;
                self.slots - 1
            });
            if let Some(slot) = slot {
                self.push(Instruction::Save(slot))?;
            }
            self.node(node)?;
            if let Some(slot) = slot {
                self.push(Instruction::Progress(slot))?;
            }
            self.push(Instruction::Jump(begin))?;
            self.set(begin, split(begin + 1, self.program.len()));
            return Ok(());
        };
        let mut splits = Vec::new();
        for _ in min..max {
            splits.push(self.push(Instruction::End)?);
            self.node(node)?;
        }
        let end = self.program.len();
        splits.into_iter().for_each(|place| self.set(place, split(place + 1, end)));
        Ok(())
    }

    fn look(&mut self, node: &Node, is_ahead: bool, is_negative: bool) -> Result<()> {
        // Alternatives of several widths look behind one after the other.
        if let (false, Node::Either(nodes), None) = (is_ahead, node, node.width()) {
            let widths = nodes.iter().map(Node::width).collect::<Option<Vec<_>>>();
            if widths.is_none() {
                return Err(damaged("what looks behind has no fixed width"));
            }
            if is_negative {
                return nodes.iter().try_for_each(|node| self.look(node, false, true));
            }
            let mut jumps = Vec::new();
            for (index, node) in nodes.iter().enumerate() {
                let place = self.push(Instruction::End)?;
                self.look(node, false, false)?;
                jumps.push(self.push(Instruction::Jump(0))?);
                let next = self.program.len();
                let is_last = index + 1 == nodes.len();
                self.set(
                    place,
                    if is_last { Instruction::Jump(place + 1) } else { Instruction::Split(place + 1, next) },
                );
            }
            let end = self.program.len();
            jumps.into_iter().for_each(|jump| self.set(jump, Instruction::Jump(end)));
            return Ok(());
        }
        let behind = match (is_ahead, node.width()) {
            (true, _) => 0,
            (false, Some(width)) => width,
            (false, None) => return Err(damaged("what looks behind has no fixed width")),
        };
        let place = self.push(Instruction::End)?;
        self.node(node)?;
        self.push(Instruction::End)?;
        self.set(place, Instruction::Look { behind, is_negative, next: self.program.len() });
        Ok(())
    }
}

struct Parser<'e> {
    rest: &'e str,
    /// Groups so far, of which the whole match is the first.
    groups: usize,
    names: Vec<(&'e str, usize)>,
    depth: usize,
    flags: Flags,
}

impl<'e> Parser<'e> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn char(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let char = chars.next();
        self.rest = chars.as_str();
        char
    }

    /// Reads the text before a character, and the character itself.
    fn until(&mut self, end: char) -> Result<&'e str> {
        let (before, rest) =
            self.rest.split_once(end).ok_or_else(|| damaged(format!("expected `{end}` before its end")))?;
        self.rest = rest;
        Ok(before)
    }

    fn either(&mut self) -> Result<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(damaged(format!("its groups are nested deeper than {MAX_DEPTH}")));
        }
        // Flags hold to the end of their group.
        let flags = self.flags;
        let mut nodes = vec![self.concat()?];
        while self.skip("|") {
            nodes.push(self.concat()?);
        }
        self.flags = flags;
        self.depth -= 1;
        Ok(match nodes.pop() {
            Some(node) if nodes.is_empty() => node,
            node => {
                nodes.extend(node);
                Node::Either(nodes)
            }
        })
    }

    fn concat(&mut self) -> Result<Node> {
        let mut nodes = Vec::new();
        while let Some(char) = self.peek() {
            if matches!(char, '|' | ')') {
                break;
            }
            if let Some(node) = self.atom()? {
                nodes.push(self.repeated(node)?);
            }
        }
        Ok(Node::Concat(nodes))
    }

    fn repeated(&mut self, mut node: Node) -> Result<Node> {
        let mut repetitions = 0;
        loop {
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => match self.counts() {
                    Some(counts) => counts,
                    None => return Ok(node),
                },
                _ => return Ok(node),
            };
            if !self.skip("*") && !self.skip("+") && !self.skip("?") {
                self.until('}')?;
            }
            if max.is_some_and(|max| max < min) || min.max(max.unwrap_or(0)) > 1000 {
                return Err(damaged("a count of repetitions is larger than 1000, or than the other"));
            }
            repetitions += 1;
            if repetitions > MAX_REPETITIONS {
                return Err(damaged(format!("more than {MAX_REPETITIONS} repetitions stand behind one another")));
            }
            let is_lazy = self.skip("?");
            let is_possessive = !is_lazy && self.skip("+");
            node = Node::Repeat { node: Box::new(node), min, max, is_lazy };
            if is_possessive {
                node = Node::Atomic(Box::new(node));
            }
        }
    }

    /// `{n}`, `{n,}`, `{,m}` or `{n,m}`, which is not read. Another bracket is a character.
    fn counts(&self) -> Option<(usize, Option<usize>)> {
        let (counts, _) = self.rest.strip_prefix('{')?.split_once('}')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| text.parse().unwrap_or(usize::MAX);
        match counts.split_once(',') {
            None if is_number(counts) => Some((number(counts), Some(number(counts)))),
            Some((min, "")) if is_number(min) => Some((number(min), None)),
            Some(("", max)) if is_number(max) => Some((0, Some(number(max)))),
            Some((min, max)) if is_number(min) && is_number(max) => Some((number(min), Some(number(max)))),
            _ => None,
        }
    }

    fn set(&self, source: &str) -> Result<Node> {
        Set::of(source, self.flags).map(Node::Set)
    }

    /// `None` for a comment or flags.
    fn atom(&mut self) -> Result<Option<Node>> {
        let Some(char) = self.char() else { return Ok(None) };
        Ok(Some(match char {
            '(' => return self.group(),
            '[' => self.class()?,
            '.' => self.set(".")?,
            '^' => Node::Assert(if self.flags.is_multi_line { Assertion::LineStart } else { Assertion::TextStart }),
            '$' => Node::Assert(if self.flags.is_multi_line { Assertion::LineEnd } else { Assertion::TextEnd }),
            '*' | '+' | '?' => return Err(damaged(format!("`{char}` repeats nothing"))),
            '\\' => self.escape()?,
            char => self.set(&regex_syntax::escape(char.encode_utf8(&mut [0; 4])))?,
        }))
    }

    fn class(&mut self) -> Result<Node> {
        let mut len = 0;
        let (mut depth, mut may_close) = (1, false);
        let mut chars = self.rest.char_indices().peekable();
        while let Some((at, char)) = chars.next() {
            len = at + char.len_utf8();
            match char {
                '\\' => {
                    if let Some((at, escaped)) = chars.next() {
                        len = at + escaped.len_utf8();
                    }
                }
                '[' => {
                    depth += 1;
                    may_close = false;
                    chars.next_if(|(_, char)| *char == '^');
                    continue;
                }
                '^' if at == 0 => continue,
                ']' if may_close => depth -= 1,
                _ => {}
            }
            may_close = true;
            if depth == 0 {
                break;
            }
        }
        if depth > 0 {
            return Err(damaged("a set has no end"));
        }
        let (source, rest) = self.rest.split_at(len);
        self.rest = rest;
        self.set(&format!("[{source}"))
    }

    fn group(&mut self) -> Result<Option<Node>> {
        let look = [("?=", true, false), ("?!", true, true), ("?<=", false, false), ("?<!", false, true)];
        if let Some((_, is_ahead, is_negative)) = look.into_iter().find(|(mark, ..)| self.skip(mark)) {
            let node = Box::new(self.inside()?);
            return Ok(Some(Node::Look { node, is_ahead, is_negative }));
        }
        if self.skip("?#") {
            self.until(')')?;
            return Ok(None);
        }
        if self.skip("?:") {
            return self.inside().map(Some);
        }
        if self.skip("?>") {
            return Ok(Some(Node::Atomic(Box::new(self.inside()?))));
        }
        if self.skip("?<") || self.skip("?P<") {
            let name = self.until('>')?;
            self.names.push((name, self.groups));
        } else if self.skip("?") {
            let outer = self.flags;
            let mut is_on = true;
            loop {
                match self.char() {
                    Some('i') => self.flags.ignores_case = is_on,
                    Some('s') => self.flags.dot_is_all = is_on,
                    Some('m') => self.flags.is_multi_line = is_on,
                    Some('u') => {}
                    Some('-') if is_on => is_on = false,
                    Some(')') => return Ok(None),
                    Some(':') => {
                        let node = self.inside()?;
                        self.flags = outer;
                        return Ok(Some(node));
                    }
                    _ => return Err(damaged("a group of an unknown kind")),
                }
            }
        }
        let group = self.groups;
        self.groups += 1;
        Ok(Some(Node::Group(Box::new(self.inside()?), group)))
    }

    /// Reads a group up to its end.
    fn inside(&mut self) -> Result<Node> {
        let node = self.either()?;
        if self.skip(")") { Ok(node) } else { Err(damaged("a group has no end")) }
    }

    fn escape(&mut self) -> Result<Node> {
        let Some(char) = self.char() else { return Err(damaged("it ends with `\\`")) };
        let back = |group| Node::Back { group, ignores_case: self.flags.ignores_case };
        Ok(match char {
            'A' => Node::Assert(Assertion::TextStart),
            'z' => Node::Assert(Assertion::TextEnd),
            'Z' => Node::Assert(Assertion::LastLineEnd),
            'b' => Node::Assert(Assertion::WordBoundary),
            'B' => Node::Assert(Assertion::NotWordBoundary),
            '1'..='9' => {
                let node = |group: Option<u32>| back(group.unwrap_or(0) as usize);
                node(char.to_digit(10))
            }
            'k' => {
                let closing = if self.skip("<") {
                    '>'
                } else if self.skip("{") {
                    '}'
                } else {
                    '\''
                };
                let name = self.until(closing)?;
                match self.names.iter().find(|(known, _)| *known == name).map(|(_, group)| *group) {
                    Some(group) => Node::Back { group, ignores_case: self.flags.ignores_case },
                    None => return Err(damaged(format!("there is no group `{name}` to refer to"))),
                }
            }
            'p' | 'P' if self.peek() == Some('{') => {
                let name = self.until('}')?;
                self.set(&format!("\\{char}{name}}}"))?
            }
            'p' | 'P' => {
                let name = self.char().unwrap_or_default();
                self.set(&format!("\\{char}{name}"))?
            }
            'h' => self.set("[0-9a-fA-F]")?,
            'H' => self.set("[^0-9a-fA-F]")?,
            'e' => self.set(r"\x1b")?,
            'x' | 'u' | 'U' => {
                let digits = if self.peek() == Some('{') {
                    format!("{}}}", self.until('}')?)
                } else {
                    let count = match char {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    (0..count).filter_map(|_| self.char()).collect()
                };
                self.set(&format!("\\{char}{digits}"))?
            }
            'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'n' | 't' | 'r' | 'f' | 'v' | 'a' => self.set(&format!("\\{char}"))?,
            char if char.is_ascii_alphanumeric() => return Err(damaged(format!("the escape `\\{char}` is unknown"))),
            char => self.set(&regex_syntax::escape(char.encode_utf8(&mut [0; 4])))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(expression: &str, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        let expression = Backtracking::new(expression).unwrap();
        expression
            .find(text, |range| {
                all.push(text[range].to_owned());
                Ok(())
            })
            .unwrap();
        all
    }

    /// Expected values are those of Python's `regex` and Perl.
    #[test]
    fn matches_are_those_of_others() {
        for (expression, text, expected) in [
            (r"\d{1,3}(?=(?:\d{3})*\b)", "1234567 89", &["1", "234", "567", "89"][..]),
            (r"(a+)b\1", "aabaa abab", &["aabaa", "aba"]),
            (r"(?<=a)b|(?<!a)c", "ab ac cc", &["b", "c", "c"]),
            (r"(?<=ab|c)x", "abx cx x", &["x", "x"]),
            (r"(?<!ab|c)x", "abx cx x", &["x"]),
            (r"(?>a+)ab|a", "aaab", &["a", "a", "a"]),
            (r"a++b|a", "aab aa", &["aab", "a", "a"]),
            (r"a+?(?=b)", "aab", &["aa"]),
            (r"(?i)straße(?!n)", "STRASSE Straße straßen", &["Straße"]),
            (r"(?i:'s|'t)(?!x)|\w+(?=\W|$)", "it's", &["it", "'s"]),
            (r"(?<w>[a-c]+)-\k<w>", "ab-ab a-b", &["ab-ab"]),
            (r"[^\s]+(?=\s)|\p{L}+", "你好 ab", &["你好", "ab"]),
            (r"(?=(a))\1*", "aab", &["aa"]),
            (r"(?:a*)*b", "aab", &["aab"]),
            (r"(a|b)*?c(?!\1)", "abcb abca", &["c", "abc"]),
            (r"^a|b$|\Bc\b", "a abc b", &["a", "c", "b"]),
            (r"x{2}|x{,1}y|x{3,}(?=z)", "xxx xy", &["xx", "xy"]),
            (r"[[:alpha:]&&[^b]]+(?=.)", "aabac!", &["aa", "ac"]),
            (r"(?s).(?=\n)|(?m)^b", "a\nb", &["a", "b"]),
            (r"\x{61}\u0062(?=\x63)", "abc", &["ab"]),
        ] {
            assert_eq!(found(expression, text), expected, "{expression}");
        }
    }

    #[test]
    fn wrong_expressions_are_errors() {
        for expression in [
            "(",
            ")",
            "(?=a",
            "[a",
            "a{2,1}",
            "*",
            "(?<=a*)b",
            r"\1",
            r"\k<a>",
            "(?x:a)",
            r"\p{Nothing}",
            r"\",
            r"\y",
            "a{1001}",
            &"(".repeat(5000),
            &format!("{}a{}", "(".repeat(150), ")".repeat(150)),
            "(?:(?:a{1000}){1000}){1000}",
        ] {
            assert!(Backtracking::new(expression).is_err(), "{expression}");
        }
    }

    #[test]
    fn searches_without_a_match_end() {
        let text = format!("{}!", "a".repeat(1 << 12));
        for expression in [
            r"(a+)+$",
            r"(a*)*b",
            r"(a|a)*b",
            r"(?=(a+))\1b",
            r"(.*)\1\1b",
            r"(?:(?=.*x?)a)*b",
            r"(?:a(?=(a*)*b))",
            r"(a?){500}a{500}b",
            r"(?<=a)(a+)+b",
            r"(?!(a+)+b).{9}b",
        ] {
            let expression = Backtracking::new(expression).unwrap();
            let begin = std::time::Instant::now();
            let result = expression.find(&text, |_| Ok(()));
            assert!(begin.elapsed().as_secs() < 60, "{expression:?}");
            if let Err(error) = result {
                assert!(error.to_string().contains("gave up"), "{error}");
            }
        }
    }
    /// Expressions that are short, and would take time or stack to compile.
    #[test]
    fn what_compiles_is_bounded() {
        let many = "(?:)(?<=a)".repeat(1500);
        for expression in [
            // Repetitions of nothing, which take no instructions.
            "(?:){1000}{1000}{1000}{1000}{1000}",
            "(?:(?:(?:(?:(?:){1000}){1000}){1000}){1000}){1000}",
            // One in the other, each on the stack.
            &format!("a{}", "{1}".repeat(5000)),
            &format!("a{}", "*".repeat(16_000)),
            // A width beyond 64 bits.
            "(?<=(?:(?:(?:(?:(?:(?:a{1000}){1000}){1000}){1000}){1000}){1000}){10}(?:(?:(?:(?:(?:(?:a{1000}){1000}){1000}){1000}){1000}){1000}){10})",
            &format!("(?:{many}){{1000}}"),
            &"()".repeat(1 << 20),
        ] {
            let begin = std::time::Instant::now();
            assert!(Backtracking::new(expression).is_err(), "{expression}");
            assert!(begin.elapsed().as_secs() < 60, "{expression}");
        }
    }

    /// A step that looks far behind counts as many.
    #[test]
    fn looking_far_behind_counts() {
        let text = "a".repeat(1 << 16);
        let expression =
            Backtracking::new("(?:(?<=ba{900}a{900}a{900}a{900})b|(?<=ca{900}a{900}a{900}a{900})b|a)+$b").unwrap();
        let begin = std::time::Instant::now();
        assert!(expression.find(&text, |_| Ok(())).is_err());
        assert!(begin.elapsed().as_secs() < 60);
    }
}
