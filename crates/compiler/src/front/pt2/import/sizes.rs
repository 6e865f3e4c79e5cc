//! Symbolic sizes: converts SymPy's expressions to expressions of the graph.

use std::collections::HashMap;

use indexmap::IndexMap;

use rushlight_graph::{Expr, Symbol, SymbolId, Symbols};

use super::super::expr::SymExpr;
use super::super::schema::{RangeConstraint, Text};
use super::formula::Formula;

/// The symbols of a program, and the expressions that were already read.
pub(super) struct Sizes {
    symbols: Symbols,
    by_name: HashMap<String, SymbolId>,
    ranges: HashMap<String, RangeConstraint>,
    parsed: HashMap<String, Option<Expr>>,
}

/// Bounds of unbounded symbols: far enough from the ends of `i64` that sums of them are still in range.
const FAR: i64 = 1 << 48;

/// Prefix of the names of symbols for numbers whose expressions are not supported.
const OPAQUE: &str = "value:";

impl Sizes {
    pub fn new(ranges: &IndexMap<Text<'_>, RangeConstraint>) -> Self {
        let ranges = ranges.iter().map(|(name, range)| (name.to_string(), *range)).collect();
        Self { symbols: Symbols::new(), by_name: HashMap::new(), ranges, parsed: HashMap::new() }
    }

    pub fn into_symbols(self) -> Symbols {
        self.symbols
    }

    /// The expression of a text; `None` if sizes do not support its kind.
    pub fn parse(&mut self, text: &str) -> Option<Expr> {
        if let Some(known) = self.parsed.get(text) {
            return known.clone();
        }
        let expr = self.formula(text).and_then(|formula| formula.integer(&self.symbols));
        self.parsed.insert(text.to_owned(), expr.clone());
        expr
    }

    /// Parses a formula of any type; `None` if it has an unsupported function.
    pub fn formula(&mut self, text: &str) -> Option<Formula> {
        let expr = SymExpr::parse(text).ok()?;
        Formula::of_sympy(&expr, &mut |name, is_positive| Some(self.symbol(name, is_positive).into()))
    }

    /// True if all symbols of a text come from sizes of inputs, and none from data.
    pub fn is_of_inputs(text: &str) -> bool {
        fn is_of_inputs(expr: &SymExpr) -> bool {
            match expr {
                SymExpr::Symbol { name, .. } => name.starts_with('s'),
                SymExpr::Call { args, .. } => args.iter().all(is_of_inputs),
                _ => true,
            }
        }
        SymExpr::parse(text).is_ok_and(|expr| is_of_inputs(&expr))
    }

    /// A symbol with this name for a number that a node of the program computes.
    pub fn opaque(&mut self, name: &str) -> Expr {
        self.symbol(&format!("{OPAQUE}{name}"), false).into()
    }

    /// True if a symbol is the result of a node.
    pub fn is_opaque(&self, symbol: SymbolId) -> bool {
        self.symbols.get(symbol).is_some_and(|symbol| symbol.name.starts_with(OPAQUE))
    }

    /// True if an expression has a symbol that comes from data rather than from a size of an input.
    pub fn is_of_data(&self, expr: &Expr) -> bool {
        let mut is_of_data = false;
        expr.for_each_symbol(&mut |symbol| {
            is_of_data |= self.symbols.get(symbol).is_some_and(|symbol| !symbol.name.starts_with('s'));
        });
        is_of_data
    }

    /// True if an expression is negative for some values of its symbols, but not for all.
    pub fn may_be_negative(&self, expr: &Expr) -> bool {
        let (min, max) = expr.range(&self.symbols);
        min.is_none_or(|min| min < 0) && max.is_none_or(|max| max >= 0)
    }

    /// Gives a symbol an upper bound, if it has none.
    pub fn bound(&mut self, expr: &Expr, max: i64) {
        if let Expr::Symbol(id) = expr
            && self.symbols[*id].max.is_none()
        {
            self.symbols[*id].max = Some(max);
            self.symbols[*id].min = self.symbols[*id].min.max(0);
        }
    }

    /// The upper bound of an expression; `None` if there is none.
    pub fn upper_bound(&self, expr: &Expr) -> Option<i64> {
        expr.upper_bound(&self.symbols)
    }

    fn symbol(&mut self, name: &str, is_positive: bool) -> SymbolId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let range = self.ranges.get(name).copied();
        let default_min = if is_positive || name.starts_with('s') { 0 } else { -FAR };
        let symbol = Symbol {
            name: name.to_owned(),
            min: range.and_then(|range| range.min_val).map_or(default_min, |min| min.max(-FAR)),
            // A bound this large counts as none.
            max: range.and_then(|range| range.max_val).filter(|max| *max < FAR),
        };
        let id = self.symbols.push(symbol);
        self.by_name.insert(name.to_owned(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str) -> String {
        format!("Symbol('{name}', positive=True, integer=True)")
    }

    #[test]
    fn expressions_that_outgrow_their_text_are_not_understood() {
        let mut sizes = Sizes::new(&IndexMap::new());
        let power = |times: usize| (0..times).fold(symbol("s0"), |base, _| format!("Pow({base}, Integer(8))"));
        assert!(sizes.parse(&power(2)).is_some());
        assert!(sizes.parse(&power(12)).is_none());
        for function in ["Add", "Mul", "Max"] {
            let of = |count: usize| {
                let symbols: Vec<String> = (0..count).map(|at| symbol(&format!("s{at}"))).collect();
                format!("{function}({})", symbols.join(", "))
            };
            assert!(sizes.parse(&of(20)).is_some(), "{function}");
            assert!(sizes.parse(&of(20_000)).is_none(), "{function}");
        }
    }
}
