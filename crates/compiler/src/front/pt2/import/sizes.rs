//! Symbolic sizes: SymPy's expressions as expressions of the graph.

use std::collections::HashMap;

use indexmap::IndexMap;

use rushlight_graph::{Expr, MAX_NODES, Symbol, SymbolId, Symbols};

use super::super::expr::SymExpr;
use super::super::schema::{RangeConstraint, Text};

/// The symbols of a program, and the expressions that were read already.
pub(super) struct Sizes {
    symbols: Symbols,
    by_name: HashMap<String, SymbolId>,
    ranges: HashMap<String, RangeConstraint>,
    parsed: HashMap<String, Option<Expr>>,
}

/// Bounds of what has none: far enough from the ends of `i64` that sums of them are still in range.
const FAR: i64 = 1 << 48;

/// Begins the names of symbols for numbers whose expressions are not understood.
const OPAQUE: &str = "value:";

impl Sizes {
    pub fn new(ranges: &IndexMap<Text<'_>, RangeConstraint>) -> Self {
        let ranges = ranges.iter().map(|(name, range)| (name.to_string(), *range)).collect();
        Self { symbols: Symbols::new(), by_name: HashMap::new(), ranges, parsed: HashMap::new() }
    }

    pub fn into_symbols(self) -> Symbols {
        self.symbols
    }

    /// The expression of a text; `None` if it is of a kind that sizes do not need.
    pub fn parse(&mut self, text: &str) -> Option<Expr> {
        if let Some(known) = self.parsed.get(text) {
            return known.clone();
        }
        let expr = SymExpr::parse(text).ok().and_then(|expr| self.convert(&expr));
        self.parsed.insert(text.to_owned(), expr.clone());
        expr
    }

    /// A symbol for a number of this name that a node of the program computes.
    pub fn opaque(&mut self, name: &str) -> Expr {
        self.symbol(&format!("{OPAQUE}{name}"), false).into()
    }

    /// True if a symbol is the result of a node.
    pub fn is_opaque(&self, symbol: SymbolId) -> bool {
        self.symbols.get(symbol).is_some_and(|symbol| symbol.name.starts_with(OPAQUE))
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

    /// Upper bound of an expression; `None` if there is none.
    pub fn upper_bound(&self, expr: &Expr) -> Option<i64> {
        expr.upper_bound(&self.symbols)
    }

    fn symbol(&mut self, name: &str, is_positive: bool) -> SymbolId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let range = self.ranges.get(name).copied();
        let least = if is_positive || name.starts_with('s') { 0 } else { -FAR };
        let symbol = Symbol {
            name: name.to_owned(),
            min: range.and_then(|range| range.min_val).map_or(least, |min| min.max(-FAR)),
            // A bound that is as good as none.
            max: range.and_then(|range| range.max_val).filter(|max| *max < FAR),
        };
        let id = self.symbols.push(symbol);
        self.by_name.insert(name.to_owned(), id);
        id
    }

    fn convert(&mut self, expr: &SymExpr) -> Option<Expr> {
        match expr {
            SymExpr::Integer(value) => Some(Expr::Int(*value)),
            SymExpr::Symbol { name, is_positive } => Some(self.symbol(name, *is_positive).into()),
            SymExpr::Float(_) | SymExpr::Rational(..) | SymExpr::Constant(_) => None,
            SymExpr::Call { function, args } => {
                let args = args.iter().map(|arg| self.convert(arg)).collect::<Option<Vec<_>>>()?;
                // Powers and products of sums grow faster than the text.
                let small = |expr: Expr| (expr.nodes() <= MAX_NODES).then_some(expr);
                let fold = |f: fn(&Expr, Expr) -> Expr| {
                    let (first, rest) = args.split_first()?;
                    rest.iter().try_fold(first.clone(), |so_far, arg| small(f(&so_far, arg.clone())))
                };
                match function.as_str() {
                    "Add" => fold(Expr::add),
                    "Mul" => fold(Expr::mul),
                    "Max" => fold(Expr::at_least),
                    "Min" => fold(Expr::at_most),
                    "FloorDiv" | "CleanDiv" => fold(Expr::floor_div),
                    "CeilDiv" => fold(Expr::ceil_div),
                    "Mod" | "PythonMod" => fold(Expr::modulo),
                    "Pow" | "PowByNatural" => match args.as_slice() {
                        [base, Expr::Int(power @ 0..=8)] => {
                            (0..*power).try_fold(Expr::Int(1), |product, _| small(product.mul(base.clone())))
                        }
                        _ => None,
                    },
                    _ => None,
                }
            }
        }
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
