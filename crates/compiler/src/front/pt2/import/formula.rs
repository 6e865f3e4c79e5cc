//! Formulas over sizes: conditions and numbers of `torch.export` that are more than integer expressions.
//!
//! Guards are Python ([`python`](super::python)); numbers and conditions in a graph are SymPy's `srepr`. Both become a [`Formula`]. A
//! formula becomes an expression of the graph if possible, and otherwise a [`Term`] that runtimes compute.

use rushlight_format::shapes::{Function, Number, Term};
use rushlight_graph::{Expr, MAX_NODES, Symbols};

use super::super::expr::SymExpr;

/// A number or truth value that is computed from sizes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Formula {
    Int(Expr),
    Float(f64),
    Bool(bool),
    Call(Function, Vec<Self>),
}

impl Formula {
    /// Converts an expression of SymPy. `symbol` returns the size of a symbol. `None` if the expression has an unsupported function.
    pub fn of_sympy(expr: &SymExpr, symbol: &mut impl FnMut(&str, bool) -> Option<Expr>) -> Option<Self> {
        Some(match expr {
            SymExpr::Integer(value) => Self::Int(Expr::Int(*value)),
            SymExpr::Float(value) => Self::Float(*value),
            SymExpr::Rational(a, b) => {
                Self::Call(Function::TrueDiv, vec![Self::Int(Expr::Int(*a)), Self::Int(Expr::Int(*b))])
            }
            SymExpr::Symbol { name, is_positive } => Self::Int(symbol(name, *is_positive)?),
            SymExpr::Constant(name) => Self::constant(name)?,
            SymExpr::Call { function, args } => {
                let args = args.iter().map(|arg| Self::of_sympy(arg, symbol)).collect::<Option<Vec<_>>>()?;
                Self::call(function, args)?
            }
        })
    }

    /// A name without arguments.
    pub fn constant(name: &str) -> Option<Self> {
        Some(match name {
            "true" | "True" => Self::Bool(true),
            "false" | "False" => Self::Bool(false),
            "oo" | "int_oo" | "inf" | "math.inf" | "torch.inf" => Self::Float(f64::INFINITY),
            "nan" | "math.nan" | "torch.nan" => Self::Float(f64::NAN),
            "pi" | "math.pi" | "torch.pi" => Self::Float(std::f64::consts::PI),
            "E" | "math.e" | "torch.e" => Self::Float(std::f64::consts::E),
            _ => return None,
        })
    }

    /// A function by its name in SymPy, in torch's extension of it or in Python.
    pub fn call(name: &str, args: Vec<Self>) -> Option<Self> {
        let base = name.rsplit('.').next().unwrap_or(name);
        let base = base.strip_prefix("OpaqueUnaryFn_").unwrap_or(base);
        let base = base.strip_prefix("_sym_").or_else(|| base.strip_prefix("sym_")).unwrap_or(base);
        let function = match base {
            // Any number of operands, taken two at a time.
            "Add" => return Self::fold(Function::Add, args),
            "Mul" => return Self::fold(Function::Mul, args),
            "Max" | "max" => return Self::fold(Function::Max, args),
            "Min" | "min" => return Self::fold(Function::Min, args),
            "And" => return Self::fold(Function::And, args),
            "Or" => return Self::fold(Function::Or, args),
            "Xor" | "BitwiseFn_bitwise_xor" => return Self::fold(Function::BitXor, args),
            "BitwiseFn_bitwise_and" => return Self::fold(Function::BitAnd, args),
            "BitwiseFn_bitwise_or" => return Self::fold(Function::BitOr, args),
            // Functions that return their operand unchanged.
            "Identity" | "cast_symbool_to_symint_guardless" => return one(args),
            "GreaterThan" | "Ge" => return Self::swapped(Function::Le, args),
            "StrictGreaterThan" | "Gt" => return Self::swapped(Function::Lt, args),
            "CeilDiv" => {
                let [a, b]: [Self; 2] = args.try_into().ok()?;
                let above = Self::Call(Function::Sub, vec![b.clone(), Self::Int(Expr::Int(1))]);
                let sum = Self::Call(Function::Add, vec![a, above]);
                return Some(Self::Call(Function::FloorDiv, vec![sum, b]));
            }
            "ModularIndexing" => {
                let [a, b, modulus]: [Self; 3] = args.try_into().ok()?;
                return Some(Self::Call(Function::Mod, vec![Self::Call(Function::FloorDiv, vec![a, b]), modulus]));
            }
            "LShift" => {
                let [a, b]: [Self; 2] = args.try_into().ok()?;
                let power = Self::Call(Function::Pow, vec![Self::Int(Expr::Int(2)), b]);
                return Some(Self::Call(Function::Mul, vec![a, power]));
            }
            "RShift" => {
                let [a, b]: [Self; 2] = args.try_into().ok()?;
                let power = Self::Call(Function::Pow, vec![Self::Int(Expr::Int(2)), b]);
                return Some(Self::Call(Function::FloorDiv, vec![a, power]));
            }
            "TruncToFloat" => return Some(Self::Call(Function::Float, vec![Self::Call(Function::Trunc, args)])),
            "Piecewise" => return Self::piecewise(args),
            // A condition and its value in `Piecewise`, in the order of `Select`.
            "ExprCondPair" => {
                let [value, condition]: [Self; 2] = args.try_into().ok()?;
                return Some(Self::Call(Function::Select, vec![condition, value, Self::Float(f64::NAN)]));
            }
            "FloorDiv" | "CleanDiv" => Function::FloorDiv,
            "Mod" | "PythonMod" => Function::Mod,
            "IntTrueDiv" | "FloatTrueDiv" => Function::TrueDiv,
            "Pow" | "PowByNatural" | "FloatPow" | "pow" => Function::Pow,
            "Equality" | "Eq" => Function::Eq,
            "Unequality" | "Ne" => Function::Ne,
            "StrictLessThan" | "Lt" => Function::Lt,
            "LessThan" | "Le" => Function::Le,
            "Not" | "not" => Function::Not,
            "Where" | "ite" => Function::Select,
            "ToFloat" | "float" => Function::Float,
            "TruncToInt" | "trunc" | "int" => Function::Trunc,
            "FloorToInt" | "floor" => Function::Floor,
            "CeilToInt" | "ceiling" | "ceil" => Function::Ceil,
            "RoundToInt" => Function::Round,
            "RoundDecimal" => Function::RoundDigits,
            "round" => {
                if args.len() == 2 {
                    Function::RoundDigits
                } else {
                    Function::Round
                }
            }
            "Abs" | "abs" | "fabs" => Function::Abs,
            "bool" => Function::Truth,
            "sqrt" => Function::Sqrt,
            "exp" => Function::Exp,
            "log" => Function::Log,
            "log2" => Function::Log2,
            "log10" => Function::Log10,
            "sin" => Function::Sin,
            "cos" => Function::Cos,
            "tan" => Function::Tan,
            "asin" => Function::Asin,
            "acos" => Function::Acos,
            "atan" => Function::Atan,
            "sinh" => Function::Sinh,
            "cosh" => Function::Cosh,
            "tanh" => Function::Tanh,
            "asinh" => Function::Asinh,
            "acosh" => Function::Acosh,
            "atanh" => Function::Atanh,
            _ => return None,
        };
        (args.len() == function.arity()).then_some(Self::Call(function, args))
    }

    /// Folds operands in pairs: from the left, as Python does, or as a balanced tree for many operands, to avoid deep nesting.
    fn fold(function: Function, mut args: Vec<Self>) -> Option<Self> {
        const MAX_LINEAR: usize = 8;
        while args.len() > MAX_LINEAR {
            let mut rest = args.into_iter();
            args = Vec::new();
            while let Some(first) = rest.next() {
                args.push(match rest.next() {
                    Some(second) => Self::Call(function, vec![first, second]),
                    None => first,
                });
            }
        }
        args.into_iter().reduce(|so_far, arg| Self::Call(function, vec![so_far, arg]))
    }

    fn swapped(function: Function, args: Vec<Self>) -> Option<Self> {
        let [a, b]: [Self; 2] = args.try_into().ok()?;
        Some(Self::Call(function, vec![b, a]))
    }

    /// The first value whose condition holds.
    fn piecewise(pairs: Vec<Self>) -> Option<Self> {
        pairs.into_iter().rev().try_fold(Self::Float(f64::NAN), |otherwise, pair| match pair {
            Self::Call(Function::Select, mut parts) if parts.len() == 3 => {
                parts.truncate(2);
                parts.push(otherwise);
                Some(Self::Call(Function::Select, parts))
            }
            _ => None,
        })
    }

    /// Converts the formula to an expression of the graph. `None` if that is not possible.
    pub fn integer(&self, symbols: &Symbols) -> Option<Expr> {
        let small = |expr: Expr| (expr.nodes() <= MAX_NODES).then_some(expr);
        match self {
            Self::Int(expr) => Some(expr.clone()),
            Self::Float(_) | Self::Bool(_) => None,
            Self::Call(function, args) => {
                let int = |index: usize| args.get(index)?.integer(symbols);
                small(match function {
                    Function::Add => int(0)?.add(int(1)?),
                    Function::Sub => int(0)?.sub(int(1)?),
                    Function::Mul => int(0)?.mul(int(1)?),
                    Function::Neg => int(0)?.mul(-1),
                    Function::FloorDiv => int(0)?.floor_div(int(1)?),
                    Function::Mod => int(0)?.modulo(int(1)?),
                    Function::Max => int(0)?.at_least(int(1)?),
                    Function::Min => int(0)?.at_most(int(1)?),
                    Function::Pow => {
                        let (base, power) = (int(0)?, int(1)?.as_int().filter(|power| (0..=8).contains(power))?);
                        (0..power).try_fold(Expr::Int(1), |product, _| small(product.mul(base.clone())))?
                    }
                    Function::Trunc | Function::Floor | Function::Ceil | Function::Round => {
                        return args.first()?.rounded(*function, symbols);
                    }
                    _ => return None,
                })
            }
        }
    }

    /// Rounds this number to an integer. Rounding is exact for quotients of integers below 2^53, and for products by fractions whose
    /// divisor is a power of two.
    fn rounded(&self, function: Function, symbols: &Symbols) -> Option<Expr> {
        if let Some(expr) = self.integer(symbols) {
            return Some(expr);
        }
        let Some((numerator, divisor)) = self.fraction(symbols) else {
            return self.rounded_product(function, symbols);
        };
        match function {
            Function::Floor => Some(numerator.floor_div(divisor)),
            Function::Ceil => Some(numerator.add(divisor - 1).floor_div(divisor)),
            // Towards zero is down where nothing is negative.
            Function::Trunc if numerator.range(symbols).0.is_some_and(|min| min >= 0) => {
                Some(numerator.floor_div(divisor))
            }
            _ => None,
        }
    }

    /// Fits a rounded function of one size by a quotient of integers that is equal for all sizes in range. `None` if there is none.
    fn rounded_product(&self, function: Function, symbols: &Symbols) -> Option<Expr> {
        let mut size: Option<Expr> = None;
        let mut is_one = true;
        self.for_each_expr(&mut |expr| match &size {
            _ if expr.is_static() => {}
            None => size = Some(expr.clone()),
            Some(other) => is_one &= other == expr,
        });
        let size = size.filter(|_| is_one)?;
        let of = |at: i64| function.apply(&[self.value_at(&size, at)])?.to_int();
        size.fitted(symbols, function == Function::Ceil, of)
    }

    /// Evaluates the formula with `size` equal to `at`. `None` if another expression is not static.
    fn value_at(&self, size: &Expr, at: i64) -> Option<Number> {
        match self {
            Self::Int(expr) => Some(Number::Int(if expr == size { at } else { expr.as_int()? })),
            Self::Float(value) => Some(Number::Float(*value)),
            Self::Bool(value) => Some(Number::Bool(*value)),
            Self::Call(function, args) => {
                function.apply(&args.iter().map(|arg| arg.value_at(size, at)).collect::<Vec<_>>())
            }
        }
    }

    /// Visits the expressions of the graph in it.
    fn for_each_expr(&self, visit: &mut impl FnMut(&Expr)) {
        match self {
            Self::Int(expr) => visit(expr),
            Self::Float(_) | Self::Bool(_) => {}
            Self::Call(_, args) => args.iter().for_each(|arg| arg.for_each_expr(visit)),
        }
    }

    /// The numerator and divisor, which is positive, of an exact fraction.
    fn fraction(&self, symbols: &Symbols) -> Option<(Expr, i64)> {
        const MAX_FRACTION: i64 = 1 << 20;
        match self {
            Self::Int(expr) => Some((expr.clone(), 1)),
            Self::Float(value) => {
                let divisor = (0..=20).map(|power| 1_i64 << power).find(|by| (value * *by as f64).fract() == 0.0)?;
                let numerator = value * divisor as f64;
                (numerator.abs() <= MAX_FRACTION as f64).then_some((Expr::Int(numerator as i64), divisor))
            }
            Self::Bool(_) => None,
            Self::Call(Function::Float, args) => args.first()?.integer(symbols).map(|expr| (expr, 1)),
            Self::Call(Function::TrueDiv, args) => {
                let [a, b] = args.as_slice() else { return None };
                let divisor = b.fraction(symbols).and_then(|(divisor, one)| divisor.as_int().filter(|_| one == 1))?;
                let whole = a.fraction(symbols).filter(|(_, one)| *one == 1)?.0;
                (1..=MAX_FRACTION).contains(&divisor).then_some((whole, divisor))
            }
            Self::Call(Function::Mul, args) => {
                let [a, b] = args.as_slice() else { return None };
                let ((a, by_a), (b, by_b)) = (a.fraction(symbols)?, b.fraction(symbols)?);
                let divisor = by_a.checked_mul(by_b).filter(|by| (*by & (*by - 1)) == 0 && *by <= MAX_FRACTION)?;
                Some((a.mul(b), divisor))
            }
            Self::Call(..) => None,
        }
    }

    /// The formula for runtimes. `place` converts a size; `None` if it cannot.
    pub fn term(&self, place: &impl Fn(&Expr) -> Option<Term>) -> Option<Term> {
        let found = match self {
            Self::Int(expr) => place(expr)?,
            Self::Float(value) => Term::Float(*value),
            Self::Bool(value) => Term::Function(Function::Truth, vec![Term::Int(i64::from(*value))]),
            Self::Call(function, args) => {
                Term::Function(*function, args.iter().map(|arg| arg.term(place)).collect::<Option<_>>()?)
            }
        };
        Some(found).filter(Term::is_readable)
    }

    /// The parts of a conjunction.
    pub fn conjuncts(self, parts: &mut Vec<Self>) {
        match self {
            Self::Call(Function::And, args) => args.into_iter().for_each(|arg| arg.conjuncts(parts)),
            other => parts.push(other),
        }
    }
}

fn one(args: Vec<Formula>) -> Option<Formula> {
    let [only]: [Formula; 1] = args.try_into().ok()?;
    Some(only)
}
