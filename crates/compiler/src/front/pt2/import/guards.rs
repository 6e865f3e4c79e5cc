//! Constraints on the sizes of a method's inputs: static dimensions, ranges, and the guards of `torch.export`.
//!
//! The checks of `ExportedProgram.module()` are lowered to [rules](rushlight_format::shapes) that runtimes evaluate. As there,
//! a minimum of at most 2 allows every size: exports assume that dynamic sizes are neither 0 nor 1 and hold for them all the
//! same.

use std::collections::HashMap;

use indexmap::IndexMap;
use rushlight_format::shapes::{Function, Place, Relation, RuleModel, Term};

use rushlight_graph::{Error, Expr, Graph, Input, SymbolId, Symbols, Type};

use super::super::ExportedProgram;
use super::super::schema::{InputSpec, RangeConstraint, Text};
use super::formula::Formula;
use super::python::{self, Argument};

/// Largest minimum that is not checked.
const LENIENT_MIN: i64 = 2;

/// Returns the rules of a method; none if all of its sizes are static. `asserted` are the conditions on sizes that nodes of the
/// program assert, with their text.
///
/// # Errors
/// A condition is not understood.
pub(super) fn rules(
    graph: &Graph,
    program: &ExportedProgram<'_>,
    asserted: Vec<(Formula, String)>,
) -> Result<Vec<RuleModel>, Error> {
    let specs = &program.graph_module.signature.input_specs;
    rules_of(graph, specs, &program.range_constraints, &program.guards_code, asserted)
}

fn rules_of(
    graph: &Graph,
    specs: &[InputSpec<'_>],
    ranges: &IndexMap<Text<'_>, RangeConstraint>,
    guards: &[Text<'_>],
    asserted: Vec<(Formula, String)>,
) -> Result<Vec<RuleModel>, Error> {
    let sizes = input_sizes(graph);
    let places = places(&sizes);
    let shown = readable_symbols(graph, &places);
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
                let text = plain(&expr.display(&shown).to_string());
                RuleModel::Computed { place: *place, value, min, max, text }
            }
            (_, None, None) => RuleModel::Range { place: *place, unit: 1, offset: 0, min, max },
        });
    }
    if rules.is_empty() {
        return Ok(rules);
    }
    let named = inputs_by_name(graph, specs);
    let guards = guards.iter().map(|guard| {
        let text = readable(guard.trim());
        python::parse(guard, &named).map(|formula| (formula, text.clone())).ok_or_else(|| not_understood(&text))
    });
    let conditions_of = guards.chain(asserted.into_iter().map(Ok)).collect::<Result<Vec<_>, _>>()?;
    for (condition, text) in conditions_of {
        for rule in conditions(condition, &text, &graph.symbols, &places)? {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    Ok(rules)
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
            let mut args = call.args.iter().map(|arg| term(arg, places)).collect::<Option<Vec<_>>>()?;
            // In pairs, to avoid deep nesting. Division and remainder have two operands.
            while args.len() > 1 {
                let mut rest = args.into_iter();
                args = Vec::new();
                while let Some(first) = rest.next() {
                    args.push(match rest.next() {
                        Some(second) => Term::Operation(call.function, Box::new([first, second])),
                        None => first,
                    });
                }
            }
            args.pop()?
        }
    };
    Some(found).filter(Term::is_readable)
}

/// Returns the inputs by the names of the exported function's arguments.
fn inputs_by_name<'g>(graph: &'g Graph, specs: &[InputSpec<'_>]) -> HashMap<String, Argument<'g>> {
    let mut named = HashMap::new();
    let given = specs.iter().filter(|spec| matches!(spec, InputSpec::UserInput(_) | InputSpec::ConstantInput(_)));
    let mut given = given.map(|spec| match spec {
        InputSpec::ConstantInput(spec) => Some(spec.name.to_string()),
        _ => None,
    });
    for (position, input) in graph.inputs.iter().enumerate() {
        let literal_name = given.next().flatten();
        let (name, argument) = match input {
            Input::Value(value) => {
                let Some(value) = graph.values.get(*value) else { continue };
                let Type::Tensor(ty) = &value.ty else { continue };
                (Some(value.name.clone()), Argument::Tensor(ty))
            }
            Input::Literal(literal) => (literal_name, Argument::Literal(literal)),
        };
        named.extend(name.map(|name| (name, argument)));
        // The name in tracing, before arguments are put into containers.
        named.entry(format!("flat_args_{position}")).or_insert(argument);
    }
    named
}

/// Returns the rules of a condition on sizes, except those that always hold. The error for a broken rule shows `text`.
///
/// # Errors
/// The condition depends on more than the sizes of inputs.
fn conditions(
    condition: Formula,
    text: &str,
    symbols: &Symbols,
    places: &HashMap<SymbolId, SymbolSource>,
) -> Result<Vec<RuleModel>, Error> {
    let mut parts = Vec::new();
    condition.conjuncts(&mut parts);
    let mut rules = Vec::new();
    for part in parts {
        if let Some((relation, left, right)) = comparison(&part, symbols) {
            let difference = left.sub(right.clone());
            if difference.as_int().is_some_and(|by| relation.holds(by, 0)) {
                continue;
            }
            if let (Some(left), Some(right)) = (term(&left, places), term(&right, places)) {
                rules.push(RuleModel::Guard { relation, left, right, text: text.to_owned() });
                continue;
            }
        }
        let value = part.term(&|expr| term(expr, places)).ok_or_else(|| not_understood(text))?;
        rules.push(RuleModel::Condition { value, text: text.to_owned() });
    }
    Ok(rules)
}

/// A comparison of two expressions of the graph.
fn comparison(formula: &Formula, symbols: &Symbols) -> Option<(Relation, Expr, Expr)> {
    let Formula::Call(function, args) = formula else { return None };
    let relation = match function {
        Function::Eq => Relation::Eq,
        Function::Ne => Relation::Ne,
        Function::Lt => Relation::Lt,
        Function::Le => Relation::Le,
        _ => return None,
    };
    let [left, right] = args.as_slice() else { return None };
    Some((relation, left.integer(symbols)?, right.integer(symbols)?))
}

/// The error for a condition that would be left out: the program would run with sizes for which it does not hold.
pub(super) fn not_understood(text: &str) -> Error {
    Error::unsupported("a condition on the sizes of the inputs is not understood")
        .expected("arithmetic, comparisons and functions of numbers, on sizes of inputs")
        .got(text)
        .help(
            "`torch.export` checked the model for such sizes only: give the sizes in it fixed values, or write the model without \
             the condition",
        )
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
        of_all(&guards).unwrap_or_else(|error| panic!("{guards:?}: {error}"))
    }

    fn of_all(guards: &[Text<'_>]) -> Result<Vec<RuleModel>, Error> {
        rules_of(&graph(), &[], &IndexMap::new(), guards, Vec::new())
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
        // Conditions that always hold.
        for guard in [
            "L['x'].size()[0] == 2*L['y'][0].size()[0]",
            "L['x'].size()[1] == 8",
            "L['z'].size()[0] <= 5",
            "L['x'].stride()[0] == 8",
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
    fn guards_that_are_not_understood_are_errors() {
        for guard in [
            "L['flag'] == 3",
            "L['x'].size()[0].bit_length() == 3",
            "L['x'].size()[0] == unheard_of(3)",
            "L['w'].size()[0] == 3",
            "L['x'].size()[7] == 3",
            "L['x'].size()[0] == ",
            "L['x'].size()[0] == 3 if L['y'][0].size()[0] == 4",
            "L['x].size()[0] == 3",
            "99999999999999999999 == L['x'].size()[0]",
            "((((",
            "",
        ] {
            let error = of_all(&[guard.into()]).expect_err(guard).to_string();
            assert!(error.contains("not understood") && error.contains("export"), "{guard}: {error}");
        }
    }

    /// Conditions on `@`, and whether Python finds them to hold for an `n` from 3 to 16.
    #[test]
    fn conditions_hold_where_python_says() {
        let n = "L['y'][0].size()[0]";
        let holds: &[(&str, &dyn Fn(f64) -> bool)] = &[
            ("@ / 2 > 3.0", &|n| n / 2.0 > 3.0),
            ("1 / @ == 0.125", &|n| 1.0 / n == 0.125),
            ("(@ / 3) + 1.5e0 <= 4.5", &|n| n / 3.0 + 1.5 <= 4.5),
            ("math.trunc(0.5*torch.sym_float(@)) == 4", &|n| (0.5 * n).trunc() == 4.0),
            ("int(0.3*float(@)) == 2", &|n| (0.3 * n).trunc() == 2.0),
            ("math.floor(@ / 3) == 2 or @ == 16", &|n| (n / 3.0).floor() == 2.0 || n == 16.0),
            ("math.ceil(@ / 3) == 3", &|n| (n / 3.0).ceil() == 3.0),
            ("round(@ / 3) == 3", &|n| (n / 3.0).round_ties_even() == 3.0),
            ("round(@ / 3, 1) == 2.7", &|n| n == 8.0),
            ("not @ == 8", &|n| n != 8.0),
            ("not (@ > 5 and @ < 9)", &|n| !(n > 5.0 && n < 9.0)),
            ("@ == 4 or @ == 6 and @ > 5", &|n| n == 4.0 || n == 6.0),
            ("@ == 4 if @ < 8 else @ > 12", &|n| if n < 8.0 { n == 4.0 } else { n > 12.0 }),
            ("(@ > 5) & (@ < 9) | (@ == 3)", &|n| n > 5.0 && n < 9.0 || n == 3.0),
            ("(@ > 5) ^ (@ > 9)", &|n| (n > 5.0) != (n > 9.0)),
            ("torch._sym_sqrt(@) > 2.1", &|n| n.sqrt() > 2.1),
            ("torch.sym_float(@) ** 0.5 > 2.1", &|n| n.sqrt() > 2.1),
            ("OpaqueUnaryFn_sqrt(@) > 2.1", &|n| n.sqrt() > 2.1),
            ("2 ** @ > 100", &|n| n.exp2() > 100.0),
            ("2.0 ** -@ > 0.01", &|n| (-n).exp2() > 0.01),
            ("@**2 > 30", &|n| n * n > 30.0),
            ("@*@ % 5 != 4", &|n| n * n % 5.0 != 4.0),
            ("abs(@ - 9) < 3", &|n| (n - 9.0).abs() < 3.0),
            ("abs((-9) + @) < 3", &|n| (n - 9.0).abs() < 3.0),
            ("torch.sym_min(8, @) > 3", &|n| n.min(8.0) > 3.0),
            ("torch.sym_max(5, @)*torch.sym_min(7, @) > 30", &|n| n.max(5.0) * n.min(7.0) > 30.0),
            ("max(5, @, 7) == @", &|n| n >= 7.0),
            ("torch.sym_ite(@ > 5, @, 3) == 3", &|n| n <= 5.0),
            ("torch.sym_not(@ > 5)", &|n| n <= 5.0),
            ("@ << 1 >= 16", &|n| 2.0 * n >= 16.0),
            ("@ >> 1 == 3", &|n| n == 6.0 || n == 7.0),
            ("math.log2(@) <= 3.0", &|n| n <= 8.0),
            ("math.tanh(1 / @) < 0.15", &|n| (1.0 / n).tanh() < 0.15),
            ("@ < math.inf", &|_| true),
            ("@ / 2 != math.nan", &|_| true),
            ("-@ < -8", &|n| n > 8.0),
            ("3 < @ / 2 <= 5.0 != @", &|n| n / 2.0 > 3.0 && n / 2.0 <= 5.0),
            ("(@ - 4) / (@ - 5) > 1.2", &|n| n != 5.0 && (n - 4.0) / (n - 5.0) > 1.2),
            ("@ == 5 or (@ - 4) / (@ - 5) > 1.2", &|n| n == 5.0 || (n - 4.0) / (n - 5.0) > 1.2),
            ("cast_symbool_to_symint_guardless(@ > 4) == 1", &|n| n > 4.0),
            // Names that SymPy and torch print by default.
            ("Eq(Mod(@, 3), 0)", &|n| n % 3.0 == 0.0),
            ("Ne(PythonMod(@, 3), 0)", &|n| n % 3.0 != 0.0),
            ("And(Ge(@, 5), Or(Lt(@, 7), Gt(@, 12)))", &|n| n >= 5.0 && !(7.0..=12.0).contains(&n)),
            ("Not(Le(FloorDiv(@, 2), 4))", &|n| n >= 10.0),
            ("Eq(CeilDiv(@, 4), 2)", &|n| (5.0..9.0).contains(&n)),
            ("Eq(CleanDiv(2*@, 2), 7)", &|n| n == 7.0),
            ("Eq(ModularIndexing(@, 2, 3), 1)", &|n| (n / 2.0).floor() % 3.0 == 1.0),
            ("Lt(IntTrueDiv(@, 3), 2.5)", &|n| n / 3.0 < 2.5),
            ("FloatTrueDiv(ToFloat(@), 3.0) < 2.5", &|n| n / 3.0 < 2.5),
            ("Eq(TruncToInt(@ / 3), 2)", &|n| (n / 3.0).trunc() == 2.0),
            ("Eq(FloorToInt(@ / 3), 2)", &|n| (n / 3.0).floor() == 2.0),
            ("Eq(CeilToInt(@ / 3), 3)", &|n| (n / 3.0).ceil() == 3.0),
            ("Eq(RoundToInt(@ / 3), 3)", &|n| (n / 3.0).round_ties_even() == 3.0),
            ("Eq(RoundDecimal(@ / 3, 1), 2.7)", &|n| n == 8.0),
            ("TruncToFloat(@ / 3) == 2.0", &|n| (n / 3.0).trunc() == 2.0),
            ("PowByNatural(@, 2) > 30", &|n| n * n > 30.0),
            ("FloatPow(ToFloat(@), 0.5) > 2.1", &|n| n.sqrt() > 2.1),
            ("Eq(Where(@ > 5, @, 3), 3)", &|n| n <= 5.0),
            ("Identity(@) == 7", &|n| n == 7.0),
            ("Eq(Max(5, Min(7, @)), 5)", &|n| n <= 5.0),
            ("Eq(LShift(@, 2), RShift(64, 1))", &|n| n == 8.0),
            ("L['x'].stride()[0]*L['x'].size()[0] > 80 and L['x'].storage_offset() == 0", &|n| n > 5.0),
            ("L['x'].dim() == 2 and @ > 7", &|n| n > 7.0),
            ("L['flat_args'][1].size()[0] != 7 and L['flat_args'][0].size()[1] == 8", &|n| n != 7.0),
        ];
        for (guard, expected) in holds {
            let guard = guard.replace('@', n);
            for size in 3..=16 {
                assert_eq!(allows(&[&guard], [2 * size, 8, size]), expected(size as f64), "{guard}, n = {size}");
            }
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
        assert!(of_all(&[deep.as_str().into()]).is_err());
        assert!(of_all(&[format!("{}1 == 2", "1 + ".repeat(100_000)).as_str().into()]).is_err());
        assert!(of_all(&[format!("{}1 == 2", "1 > 0 or ".repeat(100_000)).as_str().into()]).is_err());
        assert!(of_all(&[format!("{}1 == 2", "not ".repeat(100_000)).as_str().into()]).is_err());
        assert!(of_all(&[format!("{}1 == 2", "-".repeat(100_000)).as_str().into()]).is_err());
    }

    #[test]
    fn guards_are_shown_as_people_write_them() {
        assert_eq!(readable("2*L['x'].size()[0] == L['y'].size()[0]"), "2*x.size()[0] == y.size()[0]");
        assert_eq!(readable("L['x"), "L['x");
    }
}
