//! Compiles GBNF, the grammars of llama.cpp, to grammars of llguidance.
//!
//! A GBNF rule consists of characters. llguidance first splits a text into lexemes, each as long as possible, so
//! `[a-z]* "x"` as two lexemes would never match. Therefore a grammar without recursion becomes one lexeme. In other
//! grammars each character is a lexeme.

mod parser;
mod rules;

use std::collections::HashMap;
use std::fmt::Write;

use llguidance::api::GrammarInit;
use llguidance::derivre::{ExprRef, RegexAst};
use llguidance::earley::SymIdx;

use crate::error::{Error, Result};
use crate::grammar_builder::GrammarBuilder;
use parser::Parser;
use rules::{Element, Gbnf, Repeated};

pub(crate) use parser::is_gbnf;

/// The rule of the whole answer.
const ROOT: &str = "root";

/// Compiles a grammar.
///
/// # Errors
/// `Grammar`, with the line and the column if the text is wrong, or if the grammar is too large.
pub(crate) fn compile(text: &str, builder: GrammarBuilder<'_>) -> Result<GrammarInit> {
    let grammar = Parser::new(text).grammar()?;
    let root = grammar.names.get(ROOT).copied();
    let root = root.ok_or_else(|| Error::Grammar(format!("GBNF: there is no rule `{ROOT}` to begin with")))?;
    if grammar.is_recursive(root) {
        Symbols { builder, rules: HashMap::new(), undefined: Vec::new() }.compile(&grammar, root)
    } else {
        Expressions { builder, grammar: &grammar, rules: HashMap::new() }.compile(root)
    }
}

/// Compiles a grammar without recursion to one lexeme.
struct Expressions<'a> {
    builder: GrammarBuilder<'a>,
    grammar: &'a Gbnf,
    /// The expressions of rules.
    rules: HashMap<usize, ExprRef>,
}

impl Expressions<'_> {
    fn compile(mut self, root: usize) -> Result<GrammarInit> {
        let expression = self.rule(root)?;
        let symbol = self.builder.terminal(expression)?;
        self.builder.finish(symbol)
    }

    fn rule(&mut self, rule: usize) -> Result<ExprRef> {
        if let Some(expression) = self.rules.get(&rule) {
            return Ok(*expression);
        }
        let alternatives = self.grammar.alternatives(rule).iter();
        let alternatives: Vec<RegexAst> =
            alternatives.map(|sequence| self.sequence(sequence)).collect::<Result<_>>()?;
        let expression = self.builder.expression(&RegexAst::Or(alternatives))?;
        self.rules.insert(rule, expression);
        Ok(expression)
    }

    fn sequence(&mut self, sequence: &[Repeated]) -> Result<RegexAst> {
        let elements = sequence.iter().filter(|repeated| repeated.max != Some(0));
        let elements = elements.map(|Repeated { element, min, max }| {
            let once = match element {
                Element::Rule(rule) => RegexAst::ExprRef(self.rule(*rule)?),
                Element::Class { ranges, is_negated } => class(ranges, *is_negated),
                Element::Text(text) => RegexAst::Literal(text.clone()),
            };
            Ok(match (min, max) {
                (1, Some(1)) => once,
                (min, max) => RegexAst::Repeat(Box::new(once), *min, max.unwrap_or(u32::MAX)),
            })
        });
        Ok(RegexAst::Concat(elements.collect::<Result<_>>()?))
    }
}

/// Compiles a grammar to rules over characters.
struct Symbols<'a> {
    builder: GrammarBuilder<'a>,
    /// The symbols of rules.
    rules: HashMap<usize, SymIdx>,
    /// Rules that are named and have no definition yet.
    undefined: Vec<usize>,
}

impl Symbols<'_> {
    fn compile(mut self, grammar: &Gbnf, root: usize) -> Result<GrammarInit> {
        let start = self.rule(root);
        while let Some(rule) = self.undefined.pop() {
            let symbol = self.rule(rule);
            for sequence in grammar.alternatives(rule) {
                let sequence = self.sequence(sequence)?;
                self.builder.rule(symbol, sequence)?;
            }
        }
        self.builder.finish(start)
    }

    fn rule(&mut self, rule: usize) -> SymIdx {
        *self.rules.entry(rule).or_insert_with(|| {
            self.undefined.push(rule);
            self.builder.symbol()
        })
    }

    fn sequence(&mut self, sequence: &[Repeated]) -> Result<Vec<SymIdx>> {
        let mut symbols = Vec::new();
        for Repeated { element, min, max } in sequence.iter().filter(|repeated| repeated.max != Some(0)) {
            let mut once = match element {
                Element::Rule(rule) => vec![self.rule(*rule)],
                Element::Class { ranges, is_negated } => vec![self.character(&class(ranges, *is_negated))?],
                Element::Text(text) => {
                    let characters = text.chars().map(|character| RegexAst::Literal(character.into()));
                    characters.map(|character| self.character(&character)).collect::<Result<_>>()?
                }
            };
            if (*min, *max) != (1, Some(1)) && !once.is_empty() {
                let symbol = match once.as_slice() {
                    [symbol] => *symbol,
                    _ => self.builder.any_of([once])?,
                };
                once = vec![self.builder.repeated(symbol, *min, *max)?];
            }
            symbols.append(&mut once);
        }
        Ok(symbols)
    }

    fn character(&mut self, character: &RegexAst) -> Result<SymIdx> {
        let expression = self.builder.expression(character)?;
        self.builder.terminal(expression)
    }
}

/// Returns the expression of a class of characters.
fn class(ranges: &[(char, char)], is_negated: bool) -> RegexAst {
    if is_negated && ranges.is_empty() {
        return RegexAst::Regex("(?s:.)".to_owned());
    }
    let mut class = if is_negated { "[^".to_owned() } else { "[".to_owned() };
    for (first, last) in ranges {
        let _ = write!(class, "\\x{{{:X}}}-\\x{{{:X}}}", u32::from(*first), u32::from(*last));
    }
    RegexAst::Regex(class + "]")
}
