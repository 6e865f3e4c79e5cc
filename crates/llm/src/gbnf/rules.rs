//! Rules of GBNF.

use std::collections::HashMap;

/// Alternatives, each a sequence.
pub(super) type Alternatives = Vec<Vec<Repeated>>;

/// An element with its number of repetitions.
#[derive(Debug)]
pub(super) struct Repeated {
    pub(super) element: Element,
    pub(super) min: u32,
    /// Maximum; `None` for any number.
    pub(super) max: Option<u32>,
}

#[derive(Debug)]
pub(super) enum Element {
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
pub(super) struct Gbnf {
    pub(super) rules: Vec<Option<Alternatives>>,
    pub(super) names: HashMap<String, usize>,
}

impl Gbnf {
    /// Returns the alternatives of a rule; none if it is not defined.
    pub(super) fn alternatives(&self, rule: usize) -> &[Vec<Repeated>] {
        self.rules.get(rule).and_then(Option::as_deref).unwrap_or_default()
    }

    /// Returns the rules that a rule names.
    fn named_by(&self, rule: usize) -> impl Iterator<Item = usize> {
        let elements = self.alternatives(rule).iter().flatten();
        let elements = elements.filter(|repeated| repeated.max != Some(0));
        elements.filter_map(|repeated| match repeated.element {
            Element::Rule(rule) => Some(rule),
            _ => None,
        })
    }

    /// True if a rule below `root` contains itself.
    pub(super) fn is_recursive(&self, root: usize) -> bool {
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

    /// Adds a rule, and returns its index.
    pub(super) fn add(&mut self, rule: Option<Alternatives>) -> usize {
        self.rules.push(rule);
        self.rules.len() - 1
    }

    /// Returns the index of a rule, defined or not.
    pub(super) fn rule(&mut self, name: &str) -> usize {
        if let Some(rule) = self.names.get(name) {
            return *rule;
        }
        let rule = self.add(None);
        self.names.insert(name.to_owned(), rule);
        rule
    }
}
