//! Guards of `torch.export`: conditions in Python on the arguments of the exported function.

use std::collections::HashMap;

use rushlight_format::shapes::Function;
use rushlight_graph::{Arg, Expr, TensorType};

use super::formula::Formula;

/// An argument of the exported function, as guards see it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument<'g> {
    Tensor(&'g TensorType),
    Literal(&'g Arg),
}

/// Reads a guard, such as `L['x'].size()[0] % 2 == 0`. `None` if it is not understood.
pub(super) fn parse(guard: &str, named: &HashMap<String, Argument<'_>>) -> Option<Formula> {
    let mut parser = Parser { rest: guard, named, depth: 0, operators: 0 };
    let formula = parser.ternary()?;
    parser.rest.trim_start().is_empty().then_some(formula)
}

struct Parser<'g, 'n> {
    rest: &'g str,
    named: &'n HashMap<String, Argument<'n>>,
    depth: u32,
    operators: u32,
}

/// Guards that nest deeper are not understood.
const MAX_DEPTH: u32 = 64;

/// Maximum number of operators of a guard, and so the maximum depth of its formula.
const MAX_OPERATORS: u32 = 400;

/// A property of a tensor.
enum Property {
    Size,
    Stride,
    Offset,
    Rank,
}

impl<'g, 'n> Parser<'g, 'n> {
    /// `a if condition else b`.
    fn ternary(&mut self) -> Option<Formula> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut value = self.or()?;
        if self.word("if") {
            let condition = self.or()?;
            let otherwise = if self.word("else") { self.ternary()? } else { return None };
            value = Formula::Call(Function::Select, vec![condition, value, otherwise]);
        }
        self.depth -= 1;
        Some(value)
    }

    fn or(&mut self) -> Option<Formula> {
        let mut value = self.and()?;
        while self.word("or") {
            value = Formula::Call(Function::Or, vec![value, self.and()?]);
        }
        Some(value)
    }

    fn and(&mut self) -> Option<Formula> {
        let mut value = self.not()?;
        while self.word("and") {
            value = Formula::Call(Function::And, vec![value, self.not()?]);
        }
        Some(value)
    }

    fn not(&mut self) -> Option<Formula> {
        let mut times = 0;
        while self.word("not") {
            times += 1;
        }
        let value = self.comparison()?;
        Some(match times {
            0 => value,
            _ if times % 2 == 1 => Formula::Call(Function::Not, vec![value]),
            _ => Formula::Call(Function::Truth, vec![value]),
        })
    }

    /// `a < b <= c`.
    fn comparison(&mut self) -> Option<Formula> {
        let mut left = self.binary(0)?;
        let mut all: Option<Formula> = None;
        while let Some(operator) = self.one_of(&["==", "!=", "<=", ">=", "<", ">"]) {
            let right = self.binary(0)?;
            let (a, b) = (left, right.clone());
            let (function, operands) = match operator {
                "==" => (Function::Eq, vec![a, b]),
                "!=" => (Function::Ne, vec![a, b]),
                "<=" => (Function::Le, vec![a, b]),
                "<" => (Function::Lt, vec![a, b]),
                ">=" => (Function::Le, vec![b, a]),
                _ => (Function::Lt, vec![b, a]),
            };
            let this = Formula::Call(function, operands);
            all = Some(match all {
                Some(before) => Formula::Call(Function::And, vec![before, this]),
                None => this,
            });
            left = right;
        }
        Some(all.unwrap_or(left))
    }

    /// Operators of two operands, from the loosest.
    fn binary(&mut self, level: usize) -> Option<Formula> {
        const LEVELS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "//", "/", "%"]];
        let Some(operators) = LEVELS.get(level) else { return self.factor() };
        let mut value = self.binary(level + 1)?;
        while let Some(operator) = self.one_of(operators) {
            let operands = vec![value, self.binary(level + 1)?];
            value = match operator {
                "<<" => Formula::call("LShift", operands)?,
                ">>" => Formula::call("RShift", operands)?,
                _ => {
                    let function = match operator {
                        "|" => Function::BitOr,
                        "^" => Function::BitXor,
                        "&" => Function::BitAnd,
                        "+" => Function::Add,
                        "-" => Function::Sub,
                        "*" => Function::Mul,
                        "//" => Function::FloorDiv,
                        "/" => Function::TrueDiv,
                        _ => Function::Mod,
                    };
                    Formula::Call(function, operands)
                }
            };
        }
        Some(value)
    }

    /// A power, or a number with a sign: in Python `**` binds closer than the minus before it.
    fn factor(&mut self) -> Option<Formula> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let value = if self.one_of(&["-"]).is_some() {
            Formula::Call(Function::Neg, vec![self.factor()?])
        } else if self.one_of(&["+"]).is_some() {
            self.factor()?
        } else {
            let base = self.atom()?;
            if self.one_of(&["**"]).is_some() { Formula::Call(Function::Pow, vec![base, self.factor()?]) } else { base }
        };
        self.depth -= 1;
        Some(value)
    }

    fn atom(&mut self) -> Option<Formula> {
        if self.one_of(&["("]).is_some() {
            let inner = self.ternary()?;
            self.one_of(&[")"])?;
            return Some(inner);
        }
        self.rest = self.rest.trim_start();
        if self.rest.starts_with("L[") {
            return self.argument();
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number();
        }
        let name = self.name();
        if name.is_empty() {
            return None;
        }
        if self.one_of(&["("]).is_none() {
            return Formula::constant(name);
        }
        let mut args = Vec::new();
        while self.one_of(&[")"]).is_none() {
            args.push(self.ternary()?);
            if self.one_of(&[","]).is_none() && !self.rest.trim_start().starts_with(')') {
                return None;
            }
        }
        Formula::call(name, args)
    }

    /// A number of Python: `3`, `0.5`, `1e-05`.
    fn number(&mut self) -> Option<Formula> {
        let mut end = 0;
        let mut is_float = false;
        let bytes = self.rest.as_bytes();
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'0'..=b'9' => {}
                b'.' => is_float = true,
                b'e' | b'E' => {
                    is_float = true;
                    if matches!(bytes.get(end + 1), Some(b'+' | b'-')) {
                        end += 1;
                    }
                }
                _ => break,
            }
            end += 1;
        }
        let (digits, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        if is_float {
            return digits.parse().ok().map(Formula::Float);
        }
        digits.parse().ok().map(|value: i64| Formula::Int(Expr::Int(value)))
    }

    /// An argument of the function, or a property of one: `L['x'].size()[0]`, `L['x'][0]['y'].stride()[1]`, `L['scale']`.
    fn argument(&mut self) -> Option<Formula> {
        self.rest = self.rest.strip_prefix('L')?;
        let mut keys: Vec<&str> = Vec::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix('[') {
                let (key, rest) = match rest.chars().next()? {
                    quote @ ('\'' | '"') => {
                        let (key, rest) = rest.get(1..)?.split_once(quote)?;
                        (key, rest.strip_prefix(']')?)
                    }
                    _ => rest.split_once(']')?,
                };
                keys.push(key);
                self.rest = rest;
            } else if let Some(property) = self.property() {
                let Some(Argument::Tensor(ty)) = self.named(&keys) else { return None };
                return self.of_tensor(ty, &property);
            } else if let Some(rest) = self.rest.strip_prefix('.') {
                self.rest = rest;
                let name = self.name();
                if name.is_empty() || name.contains('.') {
                    return None;
                }
                keys.push(name);
            } else {
                break;
            }
        }
        let Some(Argument::Literal(literal)) = self.named(&keys) else { return None };
        match literal {
            Arg::Int(expr) => Some(Formula::Int(expr.clone())),
            Arg::Float(value) => Some(Formula::Float(*value)),
            Arg::Bool(value) => Some(Formula::Bool(*value)),
            _ => None,
        }
    }

    /// Finds an argument by name; an argument in a container is named by its path.
    fn named(&self, keys: &[&str]) -> Option<Argument<'n>> {
        let name = keys.join("_");
        let plain = || -> String {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
            name.chars().map(plain).collect()
        };
        self.named.get(&name).or_else(|| self.named.get(&plain())).copied()
    }

    fn property(&mut self) -> Option<Property> {
        for (text, property) in [
            (".size()", Property::Size),
            (".stride()", Property::Stride),
            (".storage_offset()", Property::Offset),
            (".dim()", Property::Rank),
            (".ndim", Property::Rank),
        ] {
            if let Some(rest) = self.rest.strip_prefix(text) {
                self.rest = rest;
                return Some(property);
            }
        }
        None
    }

    /// Returns a property of an input tensor: inputs are dense, in the dim order of their type, with storage offset 0.
    fn of_tensor(&mut self, ty: &TensorType, property: &Property) -> Option<Formula> {
        let expr = match property {
            Property::Offset => Expr::Int(0),
            Property::Rank => Expr::Int(ty.rank() as i64),
            Property::Size | Property::Stride => {
                self.rest = self.rest.strip_prefix('[')?;
                let Formula::Int(Expr::Int(dim)) = self.number()? else { return None };
                self.rest = self.rest.strip_prefix(']')?;
                let dim = usize::try_from(dim).ok()?;
                if matches!(property, Property::Size) {
                    ty.shape.get(dim)?.clone()
                } else {
                    let inner = ty.dim_order.iter().skip_while(|at| usize::from(**at) != dim).skip(1);
                    let sizes = inner.map(|at| ty.shape.get(usize::from(*at))).collect::<Option<Vec<_>>>()?;
                    (dim < ty.rank()).then(|| Expr::product(sizes))?
                }
            }
        };
        Some(Formula::Int(expr))
    }

    fn name(&mut self) -> &'g str {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        name
    }

    fn one_of(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        self.rest = self.rest.trim_start();
        let found = operators.iter().find(|operator| self.rest.starts_with(**operator))?;
        let rest = self.rest.get(found.len()..)?;
        // `*` does not match the start of `**`, nor `<` and `>` that of shifts.
        let is_longer = matches!((*found, rest.bytes().next()), ("*", Some(b'*')) | ("<" | ">", Some(b'<' | b'>')));
        self.operators += 1;
        if is_longer || self.operators > MAX_OPERATORS {
            return None;
        }
        self.rest = rest;
        Some(found)
    }

    /// A keyword.
    fn word(&mut self, word: &str) -> bool {
        self.rest = self.rest.trim_start();
        let Some(rest) = self.rest.strip_prefix(word) else { return false };
        if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return false;
        }
        self.rest = rest;
        self.operators += 1;
        self.operators <= MAX_OPERATORS
    }
}
