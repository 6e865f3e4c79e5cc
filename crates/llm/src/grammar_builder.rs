//! Builds a grammar of llguidance from lexemes and rules.
//!
//! The text form of llguidance's grammars is Lark. To read it, llguidance compiles a lexer for Lark's tokens each time,
//! and that takes longer than compiling most grammars. Therefore only grammars that are given in Lark are read as Lark.

use std::collections::HashMap;
use std::fmt::Display;

use llguidance::api::{GrammarInit, ParserLimits};
use llguidance::derivre::{ExprRef, RegexAst};
use llguidance::earley::lexerspec::{LexemeClass, LexerSpec};
use llguidance::earley::{Grammar, SymIdx, SymbolProps};

use crate::error::{Error, Result};

/// A grammar under construction.
pub(crate) struct GrammarBuilder<'a> {
    limits: &'a ParserLimits,
    lexer: LexerSpec,
    class: LexemeClass,
    grammar: Grammar,
    start: SymIdx,
    /// Symbols of lexemes.
    terminals: HashMap<ExprRef, SymIdx>,
}

/// Repetitions are divided into blocks of this size, and these again, so that their number of symbols is logarithmic.
const BLOCK: u32 = 4;

impl<'a> GrammarBuilder<'a> {
    /// Starts a grammar whose lexemes follow each other without white space.
    ///
    /// # Errors
    /// `Grammar` if llguidance refuses it.
    pub(crate) fn new(limits: &'a ParserLimits) -> Result<Self> {
        let mut lexer = LexerSpec::new().map_err(refused)?;
        let class = lexer.setup_lexeme_class(RegexAst::NoMatch).map_err(refused)?;
        lexer.regex_builder.unicode(true);
        lexer.regex_builder.utf8(true);
        let mut grammar = Grammar::new(None);
        let properties = SymbolProps { grammar_id: class, is_start: true, ..SymbolProps::default() };
        let start = grammar.fresh_symbol_ext("start", properties);
        Ok(Self { limits, lexer, class, grammar, start, terminals: HashMap::new() })
    }

    /// Compiles a regular expression.
    ///
    /// # Errors
    /// `Grammar` for an expression that is wrong or not supported, and if all of them are too large together.
    pub(crate) fn expression(&mut self, expression: &RegexAst) -> Result<ExprRef> {
        let compiled = self.lexer.regex_builder.mk(expression).map_err(refused)?;
        if self.lexer.cost() > self.limits.initial_lexer_fuel {
            return Err(Error::Grammar("the regular expressions are too large".to_owned()));
        }
        Ok(compiled)
    }

    /// Returns the symbol of a lexeme, which matches as much as it can.
    ///
    /// # Errors
    /// `Grammar` if llguidance refuses the lexeme.
    pub(crate) fn terminal(&mut self, expression: ExprRef) -> Result<SymIdx> {
        if let Some(symbol) = self.terminals.get(&expression) {
            return Ok(*symbol);
        }
        let lexeme =
            self.lexer.add_greedy_lexeme(String::new(), RegexAst::ExprRef(expression), false, None, usize::MAX);
        let symbol = self.symbol();
        self.grammar.make_terminal(symbol, lexeme.map_err(refused)?, &self.lexer).map_err(refused)?;
        self.terminals.insert(expression, symbol);
        Ok(symbol)
    }

    /// Returns a new symbol without rules.
    pub(crate) fn symbol(&mut self) -> SymIdx {
        self.grammar.fresh_symbol_ext("", SymbolProps { grammar_id: self.class, ..SymbolProps::default() })
    }

    /// Adds a rule: a symbol may be this sequence of symbols.
    ///
    /// # Errors
    /// `Grammar` if the symbol is a lexeme, or if there are too many symbols.
    pub(crate) fn rule(&mut self, symbol: SymIdx, sequence: Vec<SymIdx>) -> Result<()> {
        let (count, limit) = (self.grammar.num_symbols(), self.limits.max_grammar_size);
        if count > limit {
            return Err(Error::Grammar(format!("expected at most {limit} symbols, got {count}")));
        }
        self.grammar.add_rule(symbol, sequence).map_err(refused)
    }

    /// Returns a new symbol that may be any of these sequences.
    ///
    /// # Errors
    /// `Grammar` if there are too many symbols.
    pub(crate) fn any_of(&mut self, sequences: impl IntoIterator<Item = Vec<SymIdx>>) -> Result<SymIdx> {
        let symbol = self.symbol();
        sequences.into_iter().try_for_each(|sequence| self.rule(symbol, sequence))?;
        Ok(symbol)
    }

    /// Returns a symbol for `min` to `max` repetitions of another, or any number from `min` without a maximum.
    ///
    /// # Errors
    /// `Grammar` if there are too many symbols.
    pub(crate) fn repeated(&mut self, symbol: SymIdx, min: u32, max: Option<u32>) -> Result<SymIdx> {
        let rest = match max {
            Some(max) => self.at_most(symbol, max.saturating_sub(min))?,
            None => {
                let any = self.any_of([Vec::new()])?;
                self.rule(any, vec![any, symbol])?;
                any
            }
        };
        if min == 0 {
            return Ok(rest);
        }
        let first = self.times(symbol, min)?;
        self.any_of([vec![first, rest]])
    }

    fn times(&mut self, symbol: SymIdx, count: u32) -> Result<SymIdx> {
        if count <= 2 * BLOCK {
            return self.any_of([sequence(symbol, count)]);
        }
        let block = self.times(symbol, BLOCK)?;
        let mut all = sequence(symbol, count % BLOCK);
        all.push(self.times(block, count / BLOCK)?);
        self.any_of([all])
    }

    /// Each number of repetitions is derived in one way only, since an ambiguous grammar takes more work for each token.
    fn at_most(&mut self, symbol: SymIdx, count: u32) -> Result<SymIdx> {
        if count < 3 * BLOCK {
            return self.any_of((0..=count).map(|count| sequence(symbol, count)));
        }
        let block = self.times(symbol, BLOCK)?;
        let fewer_blocks = vec![self.at_most(block, count / BLOCK - 1)?, self.at_most(symbol, BLOCK - 1)?];
        let all_blocks = vec![self.times(block, count / BLOCK)?, self.at_most(symbol, count % BLOCK)?];
        self.any_of([fewer_blocks, all_blocks])
    }

    /// Returns the grammar whose answers are a symbol's.
    ///
    /// # Errors
    /// `Grammar` if there are too many symbols.
    pub(crate) fn finish(mut self, symbol: SymIdx) -> Result<GrammarInit> {
        self.rule(self.start, vec![symbol])?;
        Ok(GrammarInit::Internal(self.grammar, self.lexer))
    }
}

fn sequence(symbol: SymIdx, count: u32) -> Vec<SymIdx> {
    (0..count).map(|_| symbol).collect()
}

fn refused(error: impl Display) -> Error {
    Error::Grammar(error.to_string())
}
