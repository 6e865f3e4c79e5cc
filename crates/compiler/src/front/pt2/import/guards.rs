//! Constraints on the sizes of a method's inputs: static dimensions, ranges, and the guards of `torch.export`.
//!
//! The checks of `ExportedProgram.module()` are lowered to [rules](rushlight_format::shapes) that runtimes evaluate. As there,
//! a minimum of at most 2 allows every size: exports assume that dynamic sizes are neither 0 nor 1 and hold for them all the
//! same.

use std::collections::HashMap;

use indexmap::IndexMap;
use rushlight_format::shapes::{Place, Relation, RuleModel, Term};

use rushlight_graph::{Expr, Graph, Input, SymbolId, Symbols, Type};

use super::super::schema::{RangeConstraint, Text};

/// Largest minimum that is not checked.
const LENIENT_MIN: i64 = 2;

/// Returns the rules of a method; none if all of its sizes are static.
pub(super) fn rules(
    graph: &Graph,
    ranges: &IndexMap<Text<'_>, RangeConstraint>,
    guards: &[Text<'_>],
) -> Vec<RuleModel> {
    let sizes = input_sizes(graph);
    let places = places(&sizes);
    let readable = readable_symbols(graph, &places);
    let mut rules = Vec::new();
    for (place, expr) in &sizes {
        let text = expr.display(&graph.symbols).to_string();
        let (min, max) = range(expr, &text, &graph.symbols, ranges);
        rules.push(match (expr, places.values().find(|known| known.place == *place), term(expr, &places)) {
            (Expr::Int(size), ..) => RuleModel::Fixed { place: *place, size: u64::try_from(*size).unwrap_or(0) },
            (_, Some(SymbolSource { unit, offset, .. }), _) => {
                RuleModel::Range { place: *place, unit: *unit, offset: *offset, min, max }
            }
            (_, None, Some(value)) => {
                let text = plain(&expr.display(&readable).to_string());
                RuleModel::Computed { place: *place, value, min, max, text }
            }
            (_, None, None) => RuleModel::Range { place: *place, unit: 1, offset: 0, min, max },
        });
    }
    if !rules.is_empty() {
        let named = inputs_by_name(graph);
        rules.extend(guards.iter().flat_map(|guard| conditions(guard, &named, &places)));
    }
    rules
}

/// Returns the dimensions of the inputs that are dynamic tensors.
fn input_sizes(graph: &Graph) -> Vec<(Place, &Expr)> {
    let mut sizes = Vec::new();
    for (input, value) in graph.inputs.iter().enumerate() {
        let (Input::Value(value), Ok(input)) = (value, u16::try_from(input)) else { continue };
        let Some(ty) = graph.values.get(*value).and_then(|value| value.ty.as_tensor()) else { continue };
        if ty.shape.iter().all(Expr::is_static) {
            continue;
        }
        let dims = ty.shape.iter().zip(0..=u8::MAX);
        sizes.extend(dims.map(|(size, dim)| (Place { input, dim }, size)));
    }
    sizes
}

/// The size that a symbol is read from, which is `unit * symbol + offset`.
#[derive(Clone, Copy)]
struct SymbolSource {
    place: Place,
    unit: i64,
    offset: i64,
}

/// Finds a place for each symbol: a size that is the symbol, or else one that is linear in it.
fn places(sizes: &[(Place, &Expr)]) -> HashMap<SymbolId, SymbolSource> {
    let mut places = HashMap::new();
    for (place, expr) in sizes {
        if let Expr::Symbol(symbol) = expr {
            places.entry(*symbol).or_insert(SymbolSource { place: *place, unit: 1, offset: 0 });
        }
    }
    for (place, expr) in sizes {
        if let Some((symbol, unit, offset)) = linear(expr) {
            places.entry(symbol).or_insert(SymbolSource { place: *place, unit, offset });
        }
    }
    places
}

/// Renames the symbols after the sizes that they are read from: `x.size()[0]`.
fn readable_symbols(graph: &Graph, places: &HashMap<SymbolId, SymbolSource>) -> Symbols {
    let mut symbols = graph.symbols.clone();
    for (symbol, SymbolSource { place, unit, offset }) in places {
        let Some(Input::Value(value)) = graph.inputs.get(usize::from(place.input)) else { continue };
        let size = format!("{}.size()[{}]", graph.values[*value].name, place.dim);
        symbols[*symbol].name = match (unit, offset) {
            (1, 0) => size,
            (_, 0) => format!("({size}//{unit})"),
            _ => format!("(({size} - {offset})//{unit})"),
        };
    }
    symbols
}

/// Returns the symbol, `unit` and `offset` of an expression that is `unit * symbol + offset`.
fn linear(expr: &Expr) -> Option<(SymbolId, i64, i64)> {
    let mut symbols = Vec::new();
    expr.for_each_symbol(&mut |symbol| symbols.push(symbol));
    let [symbol] = symbols.as_slice() else { return None };
    let at = |value| expr.evaluate(&|_| Some(value));
    let offset = at(0)?;
    let unit = at(1)?.checked_sub(offset).filter(|unit| *unit > 0)?;
    (Expr::from(*symbol).mul(unit).add(offset) == *expr).then_some((*symbol, unit, offset))
}

/// Returns the bounds of a size that are checked.
fn range(
    expr: &Expr,
    text: &str,
    symbols: &Symbols,
    ranges: &IndexMap<Text<'_>, RangeConstraint>,
) -> (i64, Option<i64>) {
    let squeezed = |text: &str| plain(text).replace(' ', "");
    let stated = ranges.iter().find(|(name, _)| squeezed(name) == squeezed(text));
    let (min, max) = match stated {
        Some((_, range)) => (range.min_val, range.max_val),
        None => expr.range(symbols),
    };
    (min.filter(|min| *min > LENIENT_MIN).unwrap_or(0), max)
}

/// Removes the parentheses around a whole expression.
fn plain(text: &str) -> String {
    let is_balanced = |inner: &&str| {
        let mut open = 0i32;
        let mut never_below = inner.chars().map(|c| {
            open += i32::from(c == '(') - i32::from(c == ')');
            open >= 0
        });
        never_below.all(|is| is)
    };
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    inner.filter(is_balanced).unwrap_or(text).to_owned()
}

/// Converts an expression to one over sizes; `None` if one of its symbols cannot be read from any size.
fn term(expr: &Expr, places: &HashMap<SymbolId, SymbolSource>) -> Option<Term> {
    let found = match expr {
        Expr::Int(value) => Term::Int(*value),
        Expr::Symbol(symbol) => {
            let SymbolSource { place, unit, offset } = *places.get(symbol)?;
            Term::Size { place, unit, offset }
        }
        Expr::Call(call) => {
            let mut args = call.args.iter().map(|arg| term(arg, places));
            let first = args.next()??;
            args.try_fold(first, |so_far, arg| Some(Term::Operation(call.function, Box::new([so_far, arg?]))))?
        }
    };
    Some(found).filter(Term::is_readable)
}

/// Returns the shapes of the inputs by the names of the exported function's arguments.
fn inputs_by_name(graph: &Graph) -> HashMap<String, &[Expr]> {
    let mut named = HashMap::new();
    for input in &graph.inputs {
        let Input::Value(value) = input else { continue };
        let Some(value) = graph.values.get(*value) else { continue };
        if let Type::Tensor(ty) = &value.ty {
            named.insert(value.name.clone(), ty.shape.as_slice());
        }
    }
    named
}

/// Returns the rules of a guard, such as `L['x'].size()[0] % 2 == 0`, except those that always hold. Guards about other
/// things than sizes give none, nor do alternatives: their parts need not hold.
fn conditions(
    guard: &str,
    named: &HashMap<String, &[Expr]>,
    places: &HashMap<SymbolId, SymbolSource>,
) -> Vec<RuleModel> {
    let mut rules = Vec::new();
    // Both bind looser than `and`.
    if [" or ", " if "].iter().any(|word| guard.contains(word)) {
        return rules;
    }
    for part in guard.split(" and ") {
        let mut parser = GuardParser { rest: part.trim(), named, depth: 0 };
        let Some(comparisons) = parser.chain() else { continue };
        for (left, relation, right) in comparisons {
            let difference = left.sub(right.clone());
            if difference.as_int().is_some_and(|by| relation.holds(by, 0)) {
                continue;
            }
            let (Some(left), Some(right)) = (term(&left, places), term(&right, places)) else { continue };
            rules.push(RuleModel::Guard { relation, left, right, text: readable(part.trim()) });
        }
    }
    rules
}

/// Writes a guard for people: `x.size()[0]` for `L['x'].size()[0]`.
fn readable(guard: &str) -> String {
    let mut text = String::new();
    let mut rest = guard;
    while let Some((before, after)) = rest.split_once("L['") {
        let Some((name, after)) = after.split_once("']") else { break };
        text.push_str(before);
        text.push_str(name);
        rest = after;
    }
    text.push_str(rest);
    text
}

/// Parses a guard: comparisons of expressions in Python.
struct GuardParser<'g, 'n> {
    rest: &'g str,
    named: &'n HashMap<String, &'n [Expr]>,
    depth: u32,
}

/// Guards that nest deeper are left out.
const MAX_DEPTH: u32 = 64;

impl GuardParser<'_, '_> {
    /// Parses `a < b <= c` to the end of the text.
    fn chain(&mut self) -> Option<Vec<(Expr, Relation, Expr)>> {
        let mut comparisons = Vec::new();
        let mut left = self.sum()?;
        while !self.rest.trim_start().is_empty() {
            let operator = self.one_of(&["==", "!=", "<=", ">=", "<", ">"])?;
            let right = self.sum()?;
            let (a, b) = (left, right.clone());
            comparisons.push(match operator {
                "==" => (a, Relation::Eq, b),
                "!=" => (a, Relation::Ne, b),
                "<=" => (a, Relation::Le, b),
                "<" => (a, Relation::Lt, b),
                ">=" => (b, Relation::Le, a),
                _ => (b, Relation::Lt, a),
            });
            left = right;
        }
        Some(comparisons).filter(|comparisons| !comparisons.is_empty())
    }

    fn one_of(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        self.rest = self.rest.trim_start();
        let found = operators.iter().find(|operator| self.rest.starts_with(**operator))?;
        self.rest = self.rest.get(found.len()..)?;
        Some(found)
    }

    fn sum(&mut self) -> Option<Expr> {
        let mut sum = self.product()?;
        while let Some(operator) = self.one_of(&["+", "-"]) {
            let next = self.product()?;
            sum = if operator == "+" { sum.add(next) } else { sum.sub(next) };
        }
        Some(sum)
    }

    fn product(&mut self) -> Option<Expr> {
        let mut product = self.factor()?;
        while let Some(operator) = self.one_of(&["*", "//", "%"]) {
            let next = self.factor()?;
            product = match operator {
                "*" => product.mul(next),
                "//" => product.floor_div(next),
                _ => product.modulo(next),
            };
        }
        Some(product)
    }

    /// Parses a power, or a negated one: in Python `**` binds closer than the minus before it.
    fn factor(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let found = if self.one_of(&["-"]).is_some() { self.factor()?.mul(-1) } else { self.power()? };
        self.depth -= 1;
        Some(found)
    }

    fn power(&mut self) -> Option<Expr> {
        let base = self.atom()?;
        if self.one_of(&["**"]).is_none() {
            return Some(base);
        }
        let power = self.factor()?.as_int().filter(|power| (0..=8).contains(power))?;
        Some((0..power).fold(Expr::Int(1), |so_far, _| so_far.mul(base.clone())))
    }

    fn atom(&mut self) -> Option<Expr> {
        if self.one_of(&["("]).is_some() {
            let inner = self.sum()?;
            self.one_of(&[")"])?;
            return Some(inner);
        }
        if self.rest.starts_with("L[") {
            return self.size();
        }
        if let Some(name) = self.one_of(&["max(", "Max(", "min(", "Min(", "Mod(", "PythonMod(", "FloorDiv("]) {
            let a = self.sum()?;
            self.one_of(&[","])?;
            let b = self.sum()?;
            self.one_of(&[")"])?;
            return Some(match name {
                "max(" | "Max(" => a.at_least(b),
                "min(" | "Min(" => a.at_most(b),
                "FloorDiv(" => a.floor_div(b),
                _ => a.modulo(b),
            });
        }
        self.integer().map(Expr::Int)
    }

    fn integer(&mut self) -> Option<i64> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        digits.parse().ok()
    }

    /// Parses `L['x'].size()[0]`, or the size of a tensor in a container: `L['x'][0]['y'].size()[1]`.
    fn size(&mut self) -> Option<Expr> {
        let (path, rest) = self.rest.strip_prefix('L')?.split_once(".size()[")?;
        self.rest = rest;
        let dim = usize::try_from(self.integer()?).ok()?;
        self.one_of(&["]"])?;
        // Arguments in containers are called by the path to them.
        let keys: Vec<_> = path.split(['[', ']', '\'']).filter(|key| !key.is_empty()).collect();
        self.named.get(&keys.join("_"))?.get(dim).cloned()
    }
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;
    use rushlight_format::shapes::{Shapes, write};
    use rushlight_graph::{Symbol, TensorType};

    use super::*;

    /// A graph of `x: [2 * n, 8]` and `y_0: [n]` with `n` from 3 to 16.
    fn graph() -> Graph {
        let mut graph = Graph::new();
        let n: Expr = graph.symbols.push(Symbol { name: "n".into(), min: 3, max: Some(16) }).into();
        let tensor = |shape| Type::Tensor(TensorType::new(ScalarType::Float, shape));
        graph.input("x", tensor(vec![n.mul(2), Expr::Int(8)]));
        graph.input("y_0", tensor(vec![n]));
        graph.input("z", tensor(vec![Expr::Int(5)]));
        graph
    }

    fn of(guards: &[&str]) -> Vec<RuleModel> {
        let guards: Vec<Text<'_>> = guards.iter().map(|guard| (*guard).into()).collect();
        rules(&graph(), &IndexMap::new(), &guards)
    }

    fn allows(guards: &[&str], sizes: [u64; 3]) -> bool {
        let blob = write([("forward", of(guards).as_slice())]).expect("they are short");
        let shapes = Shapes::of(&blob, "forward").expect("whole").expect("it is there");
        let size = |input, dim| match (input, dim) {
            (0, 0..2) => sizes.get(usize::from(dim)).copied(),
            (1, 0) => Some(sizes[2]),
            _ => None,
        };
        shapes.broken(&size).is_none()
    }

    #[test]
    fn sizes_are_fixed_read_or_computed() {
        assert_eq!(of(&[]).len(), 3);
        assert!(allows(&[], [6, 8, 3]) && allows(&[], [32, 8, 16]));
        for sizes in [[6, 1, 3], [8, 8, 3], [7, 8, 3], [4, 8, 2], [34, 8, 17]] {
            assert!(!allows(&[], sizes), "{sizes:?}");
        }
    }

    #[test]
    fn guards_that_say_more_become_rules() {
        let more = |guards: &[&str]| of(guards).len() - 3;
        // What holds anyway, and what is not about sizes.
        for guard in [
            "L['x'].size()[0] == 2*L['y'][0].size()[0]",
            "L['x'].size()[1] == 8",
            "L['z'].size()[0] <= 5",
            "L['flag'] == 3",
            "not L['x'].size()[0] == 8",
            "L['x'].stride()[0] == 8",
            "L['z'].size()[0] == 4 or L['x'].size()[0] == 6 and L['y'][0].size()[0] == 3",
            "L['z'].size()[0] == 4 if L['flag'] else L['x'].size()[0] == 6 and L['y'][0].size()[0] == 3",
            "((((",
            "",
        ] {
            assert_eq!(more(&[guard]), 0, "{guard}");
        }
        assert_eq!(more(&["3 <= L['y'][0].size()[0] <= 7 and L['y'][0].size()[0] != 5"]), 3);
        let guard = &["(L['x'].size()[0] // 2) % 3 == 0 and Max(4, L['y'][0].size()[0]) != 4"][..];
        for n in 3..16 {
            assert_eq!(allows(guard, [2 * n, 8, n]), n % 3 == 0 && n > 4, "{n}");
        }
    }

    #[test]
    fn powers_bind_closer_than_products_and_signs() {
        let n = "L['y'][0].size()[0]";
        for (guard, wanted) in [
            (format!("2*{n} ** 2 <= 50"), 5),
            (format!("(2*{n}) ** 2 <= 50"), 3),
            (format!("-{n} ** 2 >= -16"), 4),
            (format!("{n} ** 2 * 2 <= 72"), 6),
        ] {
            let largest = (3..=16).filter(|n| allows(&[&guard], [2 * n, 8, *n])).max();
            assert_eq!(largest, Some(wanted), "{guard}");
        }
    }

    #[test]
    fn deep_guards_end() {
        let deep = format!("{}1{} == 2", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(of(&[&deep]).len(), 3);
    }

    #[test]
    fn guards_are_shown_as_people_write_them() {
        assert_eq!(readable("2*L['x'].size()[0] == L['y'].size()[0]"), "2*x.size()[0] == y.size()[0]");
        assert_eq!(readable("L['x"), "L['x");
    }
}
