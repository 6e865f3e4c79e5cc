//! Symbolic expressions, in the notation of SymPy's `srepr`: `Add(Symbol('s0', integer=True), Integer(1))`.

use std::fmt;

/// Expressions nested deeper than this are refused.
const MAX_DEPTH: usize = 100;

/// An expression as it is written; what functions mean is for the reader to know.
#[derive(Clone, Debug, PartialEq)]
pub enum SymExpr {
    Integer(i64),
    Float(f64),
    /// Numerator and denominator.
    Rational(i64, i64),
    /// `s0` comes from the size of an input, `u0` from data.
    Symbol {
        name: String,
        is_positive: bool,
    },
    /// A name without arguments: `true`, `false`, `oo`, `int_oo`, `pi`.
    Constant(String),
    Call {
        function: String,
        args: Vec<Self>,
    },
}

/// Why a text is not an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// Byte offset in the text.
    pub offset: usize,
    pub expected: &'static str,
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at byte {} of the expression", self.expected, self.offset)
    }
}

impl std::error::Error for ExprError {}

impl SymExpr {
    /// Reads the whole of `text`.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        let mut parser = ExprParser { text, at: 0 };
        let expr = parser.expr(0)?;
        parser.spaces();
        if parser.at == text.len() { Ok(expr) } else { Err(parser.fault("the end")) }
    }
}

/// An argument in parentheses.
enum Arg<'a> {
    Expr(SymExpr),
    Number(&'a str),
    Text(&'a str),
    /// `name=True` and the like: assumptions and precisions.
    Named(&'a str, &'a str),
}

struct ExprParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> ExprParser<'a> {
    fn expr(&mut self, depth: usize) -> Result<SymExpr, ExprError> {
        if depth > MAX_DEPTH {
            return Err(self.fault("an expression that is nested less deeply"));
        }
        let start = self.at;
        let name = self.word();
        if name.is_empty() {
            return Err(self.fault("a name"));
        }
        if !self.eat('(') {
            return Ok(SymExpr::Constant(name.to_owned()));
        }
        let args = self.args(depth)?;
        let wrong = |expected| Err(ExprError { offset: start, expected });
        match (name, &*args) {
            ("Integer", [Arg::Number(digits)]) => match digits.parse() {
                Ok(value) => Ok(SymExpr::Integer(value)),
                Err(_) => wrong("an integer of 64 bits"),
            },
            ("Integer", _) => wrong("Integer(number)"),
            ("Float", [Arg::Text(digits), ..]) => match digits.parse() {
                Ok(value) => Ok(SymExpr::Float(value)),
                Err(_) => wrong("a number in Float"),
            },
            ("Float", _) => wrong("Float('number')"),
            ("Rational", [Arg::Number(numerator), Arg::Number(denominator)]) => {
                match (numerator.parse(), denominator.parse()) {
                    (Ok(numerator), Ok(denominator)) if denominator != 0 => {
                        Ok(SymExpr::Rational(numerator, denominator))
                    }
                    _ => wrong("integers of 64 bits, the second of them not 0"),
                }
            }
            ("Rational", _) => wrong("Rational(number, number)"),
            ("Symbol", [Arg::Text(symbol), assumptions @ ..]) => {
                let is_positive = assumptions.iter().any(|arg| matches!(arg, Arg::Named("positive", "True")));
                Ok(SymExpr::Symbol { name: (*symbol).to_owned(), is_positive })
            }
            ("Symbol", _) => wrong("Symbol('name')"),
            (function, _) => {
                let args = args.into_iter().filter_map(|arg| match arg {
                    Arg::Expr(expr) => Some(Ok(expr)),
                    // Options such as `evaluate=False` do not change the value.
                    Arg::Named(..) => None,
                    Arg::Number(_) | Arg::Text(_) => Some(wrong("expressions as arguments")),
                });
                Ok(SymExpr::Call { function: function.to_owned(), args: args.collect::<Result<_, _>>()? })
            }
        }
    }

    /// Arguments after the opening parenthesis, and the closing one.
    fn args(&mut self, depth: usize) -> Result<Vec<Arg<'a>>, ExprError> {
        let mut args = Vec::new();
        if self.eat(')') {
            return Ok(args);
        }
        loop {
            args.push(self.arg(depth)?);
            if self.eat(')') {
                return Ok(args);
            }
            if !self.eat(',') {
                return Err(self.fault("`,` or `)`"));
            }
        }
    }

    fn arg(&mut self, depth: usize) -> Result<Arg<'a>, ExprError> {
        self.spaces();
        match self.rest().bytes().next() {
            Some(b'\'' | b'"') => self.quoted().map(Arg::Text),
            Some(b'-' | b'0'..=b'9') => Ok(Arg::Number(self.number())),
            _ => {
                let start = self.at;
                let name = self.word();
                if !name.is_empty() && self.eat('=') {
                    self.spaces();
                    let value =
                        if self.rest().starts_with(['\'', '"']) { self.quoted()? } else { self.number_or_word() };
                    return Ok(Arg::Named(name, value));
                }
                self.at = start;
                self.expr(depth + 1).map(Arg::Expr)
            }
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, token: char) -> bool {
        self.spaces();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len_utf8() } else { 0 };
        found
    }

    fn while_matching(&mut self, matches: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !matches(c)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    fn word(&mut self) -> &'a str {
        self.spaces();
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return "";
        }
        self.while_matching(|c| c.is_alphanumeric() || c == '_' || c == '.')
    }

    fn number(&mut self) -> &'a str {
        self.while_matching(|c| c.is_ascii_digit() || c == '-')
    }

    fn number_or_word(&mut self) -> &'a str {
        self.while_matching(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
    }

    /// A Python string without escapes.
    fn quoted(&mut self) -> Result<&'a str, ExprError> {
        let rest = self.rest();
        let mut chars = rest.chars();
        let quote = chars.next();
        let inner = chars.as_str();
        let len = quote.and_then(|quote| inner.find(quote)).ok_or_else(|| self.fault("the end of a string"))?;
        self.at += len + 2;
        Ok(inner.get(..len).unwrap_or_default())
    }

    fn fault(&self, expected: &'static str) -> ExprError {
        ExprError { offset: self.at, expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str) -> SymExpr {
        SymExpr::Symbol { name: name.to_owned(), is_positive: true }
    }

    fn call(function: &str, args: Vec<SymExpr>) -> SymExpr {
        SymExpr::Call { function: function.to_owned(), args }
    }

    #[test]
    fn expressions_of_programs() {
        let cases = [
            ("Symbol('s77', positive=True, integer=True)", symbol("s77")),
            (
                "Mul(Integer(3), Symbol('s77', positive=True, integer=True))",
                call("Mul", vec![SymExpr::Integer(3), symbol("s77")]),
            ),
            (
                "FloorDiv(Add(Integer(-1), Symbol('s0', positive=True)), Integer(2))",
                call("FloorDiv", vec![call("Add", vec![SymExpr::Integer(-1), symbol("s0")]), SymExpr::Integer(2)]),
            ),
            (
                "Mul(Float('0.5', precision=53), ToFloat(Symbol('s0', positive=True)))",
                call("Mul", vec![SymExpr::Float(0.5), call("ToFloat", vec![symbol("s0")])]),
            ),
            (
                "GreaterThan(Symbol('u0', integer=True), Integer(1))",
                call(
                    "GreaterThan",
                    vec![SymExpr::Symbol { name: "u0".to_owned(), is_positive: false }, SymExpr::Integer(1)],
                ),
            ),
            ("Rational(1, 2)", SymExpr::Rational(1, 2)),
            (
                "Max(Integer(1), Integer(2), evaluate=False)",
                call("Max", vec![SymExpr::Integer(1), SymExpr::Integer(2)]),
            ),
            ("true", SymExpr::Constant("true".to_owned())),
            ("int_oo", SymExpr::Constant("int_oo".to_owned())),
        ];
        for (text, expected) in cases {
            assert_eq!(SymExpr::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused_with_its_place() {
        let cases = [
            ("", 0, "a name"),
            ("Add(Integer(1)", 14, "`,` or `)`"),
            ("Add(Integer(1)) x", 16, "the end"),
            ("2*s0 + 1", 0, "a name"),
            ("s0 + 1", 3, "the end"),
            ("Integer(9223372036854775808)", 0, "an integer of 64 bits"),
            ("Symbol('s0", 7, "the end of a string"),
            ("Rational(1, 0)", 0, "integers of 64 bits, the second of them not 0"),
            ("Add(1, 2)", 0, "expressions as arguments"),
        ];
        for (text, offset, expected) in cases {
            assert_eq!(SymExpr::parse(text), Err(ExprError { offset, expected }), "{text}");
        }
        let deep = format!("{}Integer(1){}", "Neg(".repeat(100_000), ")".repeat(100_000));
        assert!(SymExpr::parse(&deep).is_err_and(|error| error.expected.contains("less deeply")));
    }
}
