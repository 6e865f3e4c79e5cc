//! Integers that may depend on the sizes of inputs: expressions over symbols, kept in a normal form so that equal ones
//! compare equal.
//!
//! The normal form is a sum of products: like terms are collected, integer factors come first, and the rest is sorted.
//! Quotients and remainders keep what their divisor does not divide. All arithmetic is on mathematical integers;
//! results beyond `i64` saturate, which no valid shape reaches.

use std::fmt;
use std::sync::Arc;

/// The functions that expressions are made of; sums and products have two or more operands, and an integer factor comes first.
pub use rushlight_format::shapes::Operation as Function;

use super::arena::{Arena, Id};

/// A size that is known only when the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// As `torch.export` calls it: `s77` comes from an input, `u0` from data.
    pub name: String,
    /// The least value.
    pub min: i64,
    /// Maximum value, if there is one.
    pub max: Option<i64>,
}

/// A symbol of a graph.
pub type SymbolId = Id<Symbol>;

/// The symbols of a graph.
pub type Symbols = Arena<Symbol>;

/// An integer expression in normal form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expr {
    Int(i64),
    Symbol(SymbolId),
    Call(Arc<Call>),
}

/// A function of expressions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    pub function: Function,
    pub args: Vec<Expr>,
    /// Number of nodes of the expression as a tree, this one included; saturates.
    nodes: u32,
}

/// A product in a sum: an integer and sorted factors that are not integers.
type Term = (i64, Vec<Expr>);

/// Products of sums are multiplied out up to this many terms.
const MAX_TERMS: usize = 64;

/// Maximum number of nodes of an expression in a graph. Subexpressions are shared in memory, but every use of an expression
/// walks its tree: sizes that are made of each other would double with each operator.
pub const MAX_NODES: u32 = 1 << 10;

impl Expr {
    /// Returns the number of nodes of the expression as a tree; saturates.
    pub fn nodes(&self) -> u32 {
        match self {
            Self::Int(_) | Self::Symbol(_) => 1,
            Self::Call(call) => call.nodes,
        }
    }

    /// The value, if it does not depend on symbols.
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// True if this is the integer `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_int() == Some(value)
    }

    /// True for a product, such as a symbol times an integer.
    pub(crate) fn is_product(&self) -> bool {
        matches!(self, Self::Call(call) if call.function == Function::Mul)
    }

    /// True if it depends on no symbol.
    pub const fn is_static(&self) -> bool {
        matches!(self, Self::Int(_))
    }

    #[must_use]
    pub fn add(&self, other: impl Into<Self>) -> Self {
        let mut terms = self.terms();
        terms.extend(other.into().terms());
        from_terms(terms)
    }

    #[must_use]
    pub fn sub(&self, other: impl Into<Self>) -> Self {
        self.add(other.into().mul(-1))
    }

    #[must_use]
    pub fn mul(&self, other: impl Into<Self>) -> Self {
        let (left, right) = (self.terms(), other.into().terms());
        if left.len().saturating_mul(right.len()) > MAX_TERMS {
            let mut factors = vec![from_terms(left), from_terms(right)];
            factors.sort();
            return from_terms(vec![(1, factors)]);
        }
        let product = |a: &Term, b: &Term| {
            let mut factors = [a.1.as_slice(), b.1.as_slice()].concat();
            factors.sort();
            (a.0.saturating_mul(b.0), factors)
        };
        from_terms(left.iter().flat_map(|a| right.iter().map(move |b| product(a, b))).collect())
    }

    /// Quotient rounded down. A division by zero is zero: programs that divide by zero fail when they run.
    #[must_use]
    pub fn floor_div(&self, divisor: impl Into<Self>) -> Self {
        let divisor = divisor.into();
        let Some(by) = divisor.as_int() else {
            return if *self == divisor { Self::Int(1) } else { self.divided_by_expression(divisor) };
        };
        let (whole, rest) = self.split(by);
        match rest.as_int() {
            Some(rest) => whole.add(rest.checked_div_euclid(by).map_or(0, |q| floor_quotient(rest, by, q))),
            None => whole.add(call(Function::FloorDiv, vec![rest, divisor])),
        }
    }

    /// Quotient rounded up.
    #[must_use]
    pub fn ceil_div(&self, divisor: impl Into<Self>) -> Self {
        let divisor = divisor.into();
        self.add(divisor.sub(1)).floor_div(divisor)
    }

    /// Remainder with the divisor's sign.
    #[must_use]
    pub fn modulo(&self, divisor: impl Into<Self>) -> Self {
        let divisor = divisor.into();
        let Some(by) = divisor.as_int() else {
            return if *self == divisor { Self::Int(0) } else { call(Function::Mod, vec![self.clone(), divisor]) };
        };
        let (_, rest) = self.split(by);
        match rest.as_int() {
            Some(rest) => Self::Int(floor_remainder(rest, by)),
            None => call(Function::Mod, vec![rest, divisor]),
        }
    }

    /// The greater of two.
    #[must_use]
    pub fn at_least(&self, other: impl Into<Self>) -> Self {
        extremum(Function::Max, self.clone(), other.into(), i64::max)
    }

    /// The lesser of two.
    #[must_use]
    pub fn at_most(&self, other: impl Into<Self>) -> Self {
        extremum(Function::Min, self.clone(), other.into(), i64::min)
    }

    /// The product of all.
    pub fn product<'a>(exprs: impl IntoIterator<Item = &'a Self>) -> Self {
        exprs.into_iter().fold(Self::Int(1), |product, expr| product.mul(expr.clone()))
    }

    /// The exact quotient, if `divisor` divides every term.
    pub fn exact_div(&self, divisor: &Self) -> Option<Self> {
        let quotient = self.floor_div(divisor.clone());
        (quotient.mul(divisor.clone()) == *self).then_some(quotient)
    }

    /// A function of this size as a quotient of integers rounded down, `size * p // q`, or up. `of` gives the value for each size
    /// in the expression's range, as of `trunc(0.3 * size)` in floating point. `None` if no `p` and `q` give it.
    pub fn fitted(&self, symbols: &Symbols, rounds_up: bool, of: impl Fn(i64) -> Option<i64>) -> Option<Self> {
        /// Maximum size that is tried if the expression has no upper bound, and if it has one.
        const DEFAULT_MAX: i64 = 1 << 12;
        const MAX_SIZE: i64 = 1 << 20;
        let (low, high) = self.range(symbols);
        let low = low.filter(|low| *low >= 0)?;
        let high = high.unwrap_or(DEFAULT_MAX).clamp(low, MAX_SIZE);
        // Bounds of `p / q`, as fractions: `value <= size * p / q < value + 1`, or `value - 1 < size * p / q <= value`.
        let (mut least, mut most) = ((0, 1), (1, 0));
        for size in low.max(1)..=high {
            let value = of(size)?;
            let (from, to) = if rounds_up { (value - 1, value) } else { (value, value + 1) };
            if is_less(least, (from, size)) {
                least = (from, size);
            }
            if is_less((to, size), most) {
                most = (to, size);
            }
        }
        let (p, q) = simplest(least, most, !rounds_up)?;
        let product = self.mul(p);
        let fitted = if rounds_up { product.add(q - 1).floor_div(q) } else { product.floor_div(q) };
        let value = |size: i64| {
            let product = size.checked_mul(p)?;
            Some(if rounds_up { product.checked_add(q - 1)? } else { product }.div_euclid(q))
        };
        (low..=high).all(|size| value(size) == of(size)).then_some(fitted)
    }

    /// Minimum and maximum value for the symbols' ranges, `None` without a bound. The range may be wider than the
    /// reached values.
    pub fn range(&self, symbols: &Symbols) -> (Option<i64>, Option<i64>) {
        match self {
            Self::Int(value) => (Some(*value), Some(*value)),
            Self::Symbol(id) => symbols.get(*id).map_or((None, None), |symbol| (Some(symbol.min), symbol.max)),
            Self::Call(call) => {
                let mut ranges = call.args.iter().map(|arg| arg.range(symbols));
                let first = ranges.next().unwrap_or((Some(0), Some(0)));
                ranges.fold(first, |a, b| combine(call.function, a, b))
            }
        }
    }

    /// Upper bound, if there is one.
    pub fn upper_bound(&self, symbols: &Symbols) -> Option<i64> {
        self.range(symbols).1
    }

    /// The symbol, factor and offset of `factor * symbol + offset`, if the expression is that with a positive factor.
    pub fn linear(&self) -> Option<(SymbolId, i64, i64)> {
        match self {
            Self::Int(_) => None,
            Self::Symbol(symbol) => Some((*symbol, 1, 0)),
            Self::Call(call) => match (call.function, call.args.as_slice()) {
                (Function::Mul, [Self::Int(factor), Self::Symbol(symbol)]) if *factor > 0 => {
                    Some((*symbol, *factor, 0))
                }
                (Function::Add, [a, b]) => {
                    let (expr, offset) = if let Self::Int(offset) = a { (b, *offset) } else { (a, b.as_int()?) };
                    expr.linear().filter(|(.., inner)| *inner == 0).map(|(symbol, factor, _)| (symbol, factor, offset))
                }
                _ => None,
            },
        }
    }

    /// The value for given values of the symbols; `None` if one is not given or a divisor is zero.
    pub fn evaluate(&self, value_of: &impl Fn(SymbolId) -> Option<i64>) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Symbol(id) => value_of(*id),
            Self::Call(call) => {
                let mut values = call.args.iter().map(|arg| arg.evaluate(value_of));
                let first = values.next()??;
                values.try_fold(first, |a, b| apply(call.function, a, b?))
            }
        }
    }

    /// The expression with each symbol replaced.
    #[must_use]
    pub fn substitute(&self, of: &impl Fn(SymbolId) -> Self) -> Self {
        match self {
            Self::Int(_) => self.clone(),
            Self::Symbol(id) => of(*id),
            Self::Call(call) => {
                let mut args = call.args.iter().map(|arg| arg.substitute(of));
                let first = args.next().unwrap_or(Self::Int(0));
                args.fold(first, |a, b| match call.function {
                    Function::Add => a.add(b),
                    Function::Mul => a.mul(b),
                    Function::FloorDiv => a.floor_div(b),
                    Function::Mod => a.modulo(b),
                    Function::Max => a.at_least(b),
                    Function::Min => a.at_most(b),
                })
            }
        }
    }

    /// Visits every symbol.
    pub fn for_each_symbol(&self, visit: &mut impl FnMut(SymbolId)) {
        match self {
            Self::Int(_) => {}
            Self::Symbol(id) => visit(*id),
            Self::Call(call) => call.args.iter().for_each(|arg| arg.for_each_symbol(visit)),
        }
    }

    /// The text, with the symbols' names.
    pub fn display<'a>(&'a self, symbols: &'a Symbols) -> impl fmt::Display + 'a {
        ExprText { expr: self, symbols }
    }

    /// Quotient by an expression: exact for a single product that contains the divisor's factors.
    fn divided_by_expression(&self, divisor: Self) -> Self {
        if let ([(n, factors)], [(d, divisors)]) = (self.terms().as_slice(), divisor.terms().as_slice()) {
            let mut left = factors.clone();
            let all = divisors.iter().all(|factor| {
                left.iter().position(|candidate| candidate == factor).map(|at| left.remove(at)).is_some()
            });
            if all && n.checked_rem(*d) == Some(0) {
                return from_terms(vec![(n / d, left)]);
            }
        }
        call(Function::FloorDiv, vec![self.clone(), divisor])
    }

    /// This as `whole * by + rest`.
    fn split(&self, by: i64) -> (Self, Self) {
        let divides = |(coefficient, factors): &Term| !factors.is_empty() && coefficient.checked_rem(by) == Some(0);
        let (whole, rest): (Vec<Term>, Vec<Term>) = self.terms().into_iter().partition(divides);
        (from_terms(whole.into_iter().map(|(n, factors)| (n / by, factors)).collect()), from_terms(rest))
    }

    /// This as a sum of products.
    fn terms(&self) -> Vec<Term> {
        match self {
            Self::Int(value) => vec![(*value, Vec::new())],
            Self::Call(call) if call.function == Function::Add => call.args.iter().flat_map(Self::terms).collect(),
            Self::Call(call) if call.function == Function::Mul => match call.args.as_slice() {
                [Self::Int(coefficient), factors @ ..] => vec![(*coefficient, factors.to_vec())],
                factors => vec![(1, factors.to_vec())],
            },
            _ => vec![(1, vec![self.clone()])],
        }
    }
}

fn call(function: Function, args: Vec<Expr>) -> Expr {
    let nodes = args.iter().fold(1, |nodes: u32, arg| nodes.saturating_add(arg.nodes()));
    Expr::Call(Arc::new(Call { function, args, nodes }))
}

/// The normal form of a sum.
fn from_terms(mut terms: Vec<Term>) -> Expr {
    terms.sort_by(|a, b| a.1.cmp(&b.1));
    let mut sum: Vec<Term> = Vec::with_capacity(terms.len());
    for (coefficient, factors) in terms {
        match sum.last_mut() {
            Some(last) if last.1 == factors => last.0 = last.0.saturating_add(coefficient),
            _ => sum.push((coefficient, factors)),
        }
    }
    sum.retain(|(coefficient, _)| *coefficient != 0);
    let mut args: Vec<Expr> = sum.into_iter().map(product).collect();
    match args.len() {
        0 => Expr::Int(0),
        1 => args.swap_remove(0),
        _ => call(Function::Add, args),
    }
}

/// The normal form of a product.
fn product((coefficient, mut factors): Term) -> Expr {
    match (coefficient, factors.len()) {
        (value, 0) => Expr::Int(value),
        (1, 1) => factors.swap_remove(0),
        (1, _) => call(Function::Mul, factors),
        _ => {
            factors.insert(0, Expr::Int(coefficient));
            call(Function::Mul, factors)
        }
    }
}

fn extremum(function: Function, a: Expr, b: Expr, choose: fn(i64, i64) -> i64) -> Expr {
    match (&a, &b) {
        (Expr::Int(x), Expr::Int(y)) => Expr::Int(choose(*x, *y)),
        _ if a == b => a,
        _ => {
            let mut args = vec![a, b];
            args.sort();
            call(function, args)
        }
    }
}

/// A fraction, whose divisor may be 0 for one without end.
type Fraction = (i64, i64);

fn is_less(a: Fraction, b: Fraction) -> bool {
    i128::from(a.0) * i128::from(b.1) < i128::from(b.0) * i128::from(a.1)
}

/// The fraction with the least divisor between two: the first included, or else the last. Walks down the tree of Stern and Brocot.
fn simplest(least: Fraction, most: Fraction, includes_least: bool) -> Option<Fraction> {
    const MAX_STEPS: usize = 100_000;
    let fits_below = |at: Fraction| if includes_least { is_less(at, most) } else { !is_less(most, at) };
    let fits_above = |at: Fraction| if includes_least { !is_less(at, least) } else { is_less(least, at) };
    if fits_above((0, 1)) && fits_below((0, 1)) {
        return Some((0, 1));
    }
    let (mut low, mut high): (Fraction, Fraction) = ((0, 1), (1, 0));
    for _ in 0..MAX_STEPS {
        let middle = (low.0.checked_add(high.0)?, low.1.checked_add(high.1)?);
        if !fits_above(middle) {
            low = middle;
        } else if !fits_below(middle) {
            high = middle;
        } else {
            return Some(middle);
        }
    }
    None
}

fn floor_quotient(a: i64, b: i64, euclidean: i64) -> i64 {
    // Euclidean and floored division differ when the divisor is negative and there is a remainder.
    if b < 0 && a.checked_rem_euclid(b).is_some_and(|rest| rest != 0) { euclidean.saturating_sub(1) } else { euclidean }
}

fn floor_remainder(a: i64, b: i64) -> i64 {
    let rest = a.checked_rem_euclid(b).unwrap_or(0);
    if b < 0 && rest != 0 { rest.saturating_add(b) } else { rest }
}

/// The function of two values; `None` for a division by zero.
fn apply(function: Function, a: i64, b: i64) -> Option<i64> {
    Some(match function {
        Function::Add => a.saturating_add(b),
        Function::Mul => a.saturating_mul(b),
        Function::FloorDiv => a.checked_div_euclid(b).map(|q| floor_quotient(a, b, q))?,
        Function::Mod => (b != 0).then(|| floor_remainder(a, b))?,
        Function::Max => a.max(b),
        Function::Min => a.min(b),
    })
}

type Range = (Option<i64>, Option<i64>);

fn combine(function: Function, a: Range, b: Range) -> Range {
    let both = |x: Option<i64>, y: Option<i64>| x.zip(y).and_then(|(x, y)| apply(function, x, y));
    match function {
        Function::Add => (both(a.0, b.0), both(a.1, b.1)),
        Function::Max => (a.0.max(b.0), both(a.1, b.1)),
        Function::Min => (both(a.0, b.0), [a.1, b.1].into_iter().flatten().min()),
        Function::Mul | Function::FloorDiv => match (a, b) {
            ((Some(a0), Some(a1)), (Some(b0), Some(b1))) if function == Function::Mul || b0 > 0 => {
                let corners = [(a0, b0), (a0, b1), (a1, b0), (a1, b1)].map(|(x, y)| apply(function, x, y));
                let corners = || corners.into_iter().flatten();
                (corners().min(), corners().max())
            }
            // Without upper bounds, as sizes often are, the least value is still known.
            ((Some(a0), _), (Some(b0), _)) if a0 >= 0 && b0 >= 0 && function == Function::Mul => {
                (apply(function, a0, b0), None)
            }
            ((Some(a0), a1), (Some(b0), Some(b1))) if a0 >= 0 && b0 > 0 => {
                (apply(function, a0, b1), a1.and_then(|a1| apply(function, a1, b0)))
            }
            ((Some(a0), a1), (Some(b0), None)) if a0 >= 0 && b0 > 0 => {
                (Some(0), a1.and_then(|a1| apply(function, a1, b0)))
            }
            _ => (None, None),
        },
        Function::Mod => match b {
            (Some(low), high) if low > 0 => (Some(0), high.map(|high| high - 1)),
            _ => (None, None),
        },
    }
}

struct ExprText<'a> {
    expr: &'a Expr,
    symbols: &'a Symbols,
}

impl fmt::Display for ExprText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expr {
            Expr::Int(value) => write!(f, "{value}"),
            Expr::Symbol(id) => f.write_str(self.symbols.get(*id).map_or("?", |symbol| &symbol.name)),
            Expr::Call(call) => {
                let operator = match call.function {
                    Function::Add => " + ",
                    Function::Mul => "*",
                    Function::FloorDiv => "//",
                    Function::Mod => "%",
                    Function::Max | Function::Min => ", ",
                };
                f.write_str(match call.function {
                    Function::Max => "max(",
                    Function::Min => "min(",
                    _ => "(",
                })?;
                for (index, arg) in call.args.iter().enumerate() {
                    if index > 0 {
                        f.write_str(operator)?;
                    }
                    write!(f, "{}", arg.display(self.symbols))?;
                }
                f.write_str(")")
            }
        }
    }
}

impl From<i64> for Expr {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<SymbolId> for Expr {
    fn from(id: SymbolId) -> Self {
        Self::Symbol(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols() -> (Symbols, Expr, Expr) {
        let mut symbols = Symbols::new();
        let s = symbols.push(Symbol { name: "s0".into(), min: 1, max: Some(8) });
        let t = symbols.push(Symbol { name: "s1".into(), min: 2, max: None });
        (symbols, s.into(), t.into())
    }

    #[test]
    fn equal_expressions_have_one_form() {
        let (_, s, t) = symbols();
        assert_eq!(s.add(1).mul(2), s.mul(2).add(2));
        assert_eq!(s.add(t.clone()), t.add(s.clone()));
        assert_eq!(s.mul(t.clone()).mul(3), t.mul(3).mul(s.clone()));
        assert_eq!(s.sub(s.clone()), Expr::Int(0));
        assert_eq!(s.mul(6).add(4).floor_div(2), s.mul(3).add(2));
        assert_eq!(s.mul(t.clone()).floor_div(t.clone()), s);
        assert_eq!(s.mul(4).modulo(2), Expr::Int(0));
        assert_eq!(s.mul(4).add(7).modulo(4), Expr::Int(3));
        assert_eq!(s.mul(4).exact_div(&Expr::Int(2)), Some(s.mul(2)));
        assert_eq!(s.add(1).exact_div(&Expr::Int(2)), None);
    }

    #[test]
    fn division_rounds_down_for_every_sign() {
        for a in -9i64..=9 {
            for b in (-4i64..=4).filter(|b| *b != 0) {
                let floor = (a as f64 / b as f64).floor() as i64;
                assert_eq!(Expr::Int(a).floor_div(b), Expr::Int(floor), "{a} // {b}");
                assert_eq!(Expr::Int(a).modulo(b), Expr::Int(a - b * floor), "{a} % {b}");
                assert_eq!(Expr::Int(a).ceil_div(b.abs()), Expr::Int((a as f64 / b.abs() as f64).ceil() as i64));
            }
        }
        assert_eq!(Expr::Int(i64::MIN).floor_div(-1), Expr::Int(0));
        assert_eq!(Expr::Int(1).floor_div(0), Expr::Int(0));
    }

    #[test]
    fn products_by_fractions_are_fitted_exactly() {
        let mut symbols = Symbols::new();
        let s: Expr = symbols.push(Symbol { name: "s0".into(), min: 0, max: Some(3000) }).into();
        for factor in [0.1, 0.3, 0.5, 0.7, 1.0, 1.05, 1.7, 2.0, 2.5, 1.0 / 3.0, 3.3, std::f64::consts::PI] {
            let down = |size: i64| Some((size as f64 * factor).trunc() as i64);
            let up = |size: i64| Some((size as f64 / factor).ceil() as i64);
            for (rounds_up, of) in [(false, &down as &dyn Fn(i64) -> Option<i64>), (true, &up)] {
                let Some(fitted) = s.fitted(&symbols, rounds_up, of) else {
                    // No quotient rounds as this product does.
                    assert!(factor != 0.5 && factor != 1.7 && factor != 2.5, "{factor} {rounds_up}");
                    continue;
                };
                for size in 0..=3000 {
                    assert_eq!(fitted.evaluate(&|_| Some(size)), of(size), "{size} {factor} {rounds_up}");
                }
            }
        }
        assert_eq!(s.fitted(&symbols, false, |size| Some(size * size)), None);
        assert_eq!(s.sub(5).fitted(&symbols, false, Some), None);
    }

    #[test]
    fn ranges_bound_the_values() {
        let (symbols, s, t) = symbols();
        assert_eq!(s.mul(64).add(2).range(&symbols), (Some(66), Some(514)));
        assert_eq!(s.add(5).floor_div(2).range(&symbols), (Some(3), Some(6)));
        assert_eq!(s.mul(t.clone()).range(&symbols), (Some(2), None));
        assert_eq!(t.modulo(3).range(&symbols), (Some(0), Some(2)));
        assert_eq!(t.at_most(10).range(&symbols), (Some(2), Some(10)));
        assert_eq!(s.at_least(3).range(&symbols), (Some(3), Some(8)));
        assert_eq!(s.mul(-1).range(&symbols), (Some(-8), Some(-1)));
    }

    #[test]
    fn values_and_substitutions_agree() {
        let (_, s, t) = symbols();
        let expr = s.mul(3).add(t.clone()).floor_div(2).add(s.modulo(t.clone())).at_least(t.clone());
        for (a, b) in [(1, 2), (5, 3), (8, 100)] {
            let value = |id: SymbolId| Some(if id.index() == 0 { a } else { b });
            let evaluated = expr.evaluate(&value);
            assert_eq!(evaluated, Some(((3 * a + b).div_euclid(2) + a.rem_euclid(b)).max(b)));
            assert_eq!(expr.substitute(&|id| Expr::Int(value(id).unwrap_or(0))).as_int(), evaluated);
        }
    }
}
