//! Tokens to a syntax tree, by Jinja's grammar.

use std::sync::Arc;

use super::ast::{Arguments, Call, Comparison, Expr, Filter, For, Macro, Operator, Statement, Target};
use super::failure::{Failure, Result};
use super::lexer::{Token, tokens};

/// Bytes of a template.
const MAX_SOURCE: usize = 1 << 18;

/// Maximum depth of nested expressions and statements, and maximum height of an expression's tree.
const MAX_DEPTH: u32 = if cfg!(target_family = "wasm") { 50 } else { 100 };
const MAX_HEIGHT: u32 = if cfg!(target_family = "wasm") { 150 } else { 400 };

/// Reads a template.
pub(super) fn parse(source: &str) -> Result<Vec<Statement>> {
    if source.len() > MAX_SOURCE {
        return Err(Failure::new(format!("it has {} bytes, more than {MAX_SOURCE}", source.len())));
    }
    let mut parser = Parser { tokens: tokens(source)?, at: 0, depth: 0, height: 0, loads: Vec::new(), loops: 0 };
    let body = parser.body(&[])?;
    Ok(body)
}

struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    depth: u32,
    /// Height of the expression that was read last.
    height: u32,
    /// Names that expressions read: a macro that reads `varargs`, `kwargs` or `caller` gets it.
    loads: Vec<Arc<str>>,
    /// Number of loops around the current position.
    loops: u32,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(token, _)| token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(_, line)| *line)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Failure::at(self.line(), message))
    }

    fn unexpected<T>(&self, expected: &str) -> Result<T> {
        self.error(format!("expected {expected}, got {}", describe(self.peek())))
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if found == name)
    }

    fn is_operator(&self, operator: &str) -> bool {
        matches!(self.peek(), Token::Operator(found) if *found == operator)
    }

    fn follows_operator(&self, operator: &str) -> bool {
        matches!(self.tokens.get(self.at + 1), Some((Token::Operator(found), _)) if *found == operator)
    }

    fn follows_name(&self, name: &str) -> bool {
        matches!(self.tokens.get(self.at + 1), Some((Token::Name(found), _)) if found == name)
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let is_next = self.is_name(name);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_operator(&mut self, operator: &str) -> bool {
        let is_next = self.is_operator(operator);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect_operator(&mut self, operator: &str) -> Result<()> {
        if self.skip_operator(operator) { Ok(()) } else { self.unexpected(&format!("token '{operator}'")) }
    }

    fn expect(&mut self, token: &Token) -> Result<()> {
        if self.peek() == token {
            self.at += 1;
            return Ok(());
        }
        self.unexpected(&describe(token))
    }

    fn name(&mut self) -> Result<Arc<str>> {
        match self.peek().clone() {
            Token::Name(name) => {
                self.at += 1;
                Ok(name.into())
            }
            _ => self.unexpected("a name"),
        }
    }

    /// Parses one level deeper. Fails beyond `MAX_DEPTH`.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.error(format!("it is nested deeper than {MAX_DEPTH} levels, which is the limit"));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Sets the height of an expression, one above that of its parts.
    fn above(&mut self, parts: u32) -> Result<()> {
        self.height = parts + 1;
        if self.height > MAX_HEIGHT {
            return self.error(format!("an expression has more than {MAX_HEIGHT} levels, which is the limit"));
        }
        Ok(())
    }

    // Statements.

    /// Parses text and statements up to one of the names in `ends`, which it does not read.
    fn body(&mut self, ends: &[&str]) -> Result<Vec<Statement>> {
        self.deeper(|parser| parser.statements(ends))
    }

    fn statements(&mut self, ends: &[&str]) -> Result<Vec<Statement>> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            match self.next() {
                Token::Data(text) => body.push(Statement::Data(text)),
                Token::VariableBegin => {
                    let value = self.tuple(true, &[], false)?;
                    self.expect(&Token::VariableEnd)?;
                    body.push(Statement::Output(vec![value], line));
                }
                Token::BlockBegin => {
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(body);
                    }
                    let statement = self.statement(ends)?;
                    self.expect(&Token::BlockEnd)?;
                    body.push(statement);
                }
                _ if ends.is_empty() => return Ok(body),
                _ => {
                    let expected = ends.join("', '");
                    return self.error(format!("unexpected end of template, expected '{expected}'"));
                }
            }
        }
    }

    /// Parses the end of a statement's head, its body, and the name that ends it.
    fn block(&mut self, end: &str) -> Result<Vec<Statement>> {
        self.end_of_head()?;
        let body = self.body(&[end])?;
        self.at += 1;
        Ok(body)
    }

    fn end_of_head(&mut self) -> Result<()> {
        self.skip_operator(":");
        self.expect(&Token::BlockEnd)
    }

    fn statement(&mut self, ends: &[&str]) -> Result<Statement> {
        let line = self.line();
        let Token::Name(name) = self.peek().clone() else { return self.error("tag name expected") };
        self.at += 1;
        Ok(match name.as_str() {
            "for" => self.for_loop(line)?,
            "if" => self.condition(line)?,
            "set" => {
                let target = self.target(&[], true)?;
                if self.skip_operator("=") {
                    return Ok(Statement::Set(target, self.tuple(true, &[], false)?, line));
                }
                let filters = self.filters(false)?;
                Statement::SetBlock { target, filters, body: self.block("endset")?, line }
            }
            "with" => {
                let mut targets = Vec::new();
                while *self.peek() != Token::BlockEnd {
                    if !targets.is_empty() {
                        self.expect_operator(",")?;
                    }
                    let target = self.target(&[], false)?;
                    self.expect_operator("=")?;
                    targets.push((target, self.expression()?));
                }
                Statement::With { targets, body: self.block("endwith")?, line }
            }
            "macro" => {
                let name = self.name()?;
                self.expect_operator("(")?;
                Statement::Macro(self.macro_after(name, "endmacro")?)
            }
            "call" => {
                let parameters = if self.skip_operator("(") { self.parameters()? } else { Vec::new() };
                let Expr::Call(call) = self.expression()? else { return self.error("expected call") };
                let caller = self.macro_body("caller".into(), parameters, "endcall")?;
                Statement::Call { caller, call, line }
            }
            "filter" => {
                let filters = self.filters(true)?;
                Statement::FilterBlock { filters, body: self.block("endfilter")?, line }
            }
            "block" => {
                let name = self.name()?;
                let is_scoped = self.skip_name("scoped");
                self.skip_name("required");
                let loops = std::mem::take(&mut self.loops);
                let body = self.block("endblock")?;
                self.loops = loops;
                self.skip_name(&name);
                Statement::Block { body, sees_all: is_scoped }
            }
            "generation" => Statement::Block { body: self.block("endgeneration")?, sees_all: true },
            "autoescape" => {
                let is_on = self.expression()?;
                Statement::Escape { is_on, body: self.block("endautoescape")?, line }
            }
            "print" => {
                let mut values = Vec::new();
                while *self.peek() != Token::BlockEnd {
                    if !values.is_empty() {
                        self.expect_operator(",")?;
                    }
                    values.push(self.expression()?);
                }
                Statement::Output(values, line)
            }
            "break" | "continue" => {
                if self.loops == 0 {
                    return self.error(format!("`{name}` stands outside of a loop"));
                }
                if name == "break" { Statement::Break } else { Statement::Continue }
            }
            "include" | "import" | "from" | "extends" => {
                while !matches!(self.peek(), Token::BlockEnd | Token::End) {
                    self.at += 1;
                }
                let name = match name.as_str() {
                    "include" => "include",
                    "import" => "import",
                    "from" => "from",
                    _ => "extends",
                };
                Statement::Refused(name, line)
            }
            other => {
                let ends = if ends.is_empty() {
                    String::new()
                } else {
                    format!(": the innermost block needs '{}'", ends.join("' or '"))
                };
                return Err(Failure::at(line, format!("unknown tag '{other}'{ends}")));
            }
        })
    }

    fn for_loop(&mut self, line: u32) -> Result<Statement> {
        let target = self.target(&["in"], false)?;
        if !self.skip_name("in") {
            return self.unexpected("'in'");
        }
        let iterable = self.tuple(false, &["recursive"], false)?;
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let is_recursive = self.skip_name("recursive");
        self.end_of_head()?;
        self.loops += 1;
        let body = self.body(&["endfor", "else"])?;
        self.loops -= 1;
        let otherwise = if self.skip_name("else") {
            self.block("endfor")?
        } else {
            self.at += 1;
            Vec::new()
        };
        Ok(Statement::For(Arc::new(For { target, iterable, test, is_recursive, body, otherwise, line })))
    }

    fn condition(&mut self, line: u32) -> Result<Statement> {
        let mut branches = Vec::new();
        loop {
            let test = self.tuple(false, &[], false)?;
            self.end_of_head()?;
            branches.push((test, self.body(&["elif", "else", "endif"])?));
            if self.skip_name("elif") {
                continue;
            }
            let otherwise = if self.skip_name("else") {
                self.block("endif")?
            } else {
                self.at += 1;
                Vec::new()
            };
            return Ok(Statement::If { branches, otherwise, line });
        }
    }

    fn macro_after(&mut self, name: Arc<str>, end: &str) -> Result<Arc<Macro>> {
        let parameters = self.parameters()?;
        self.macro_body(name, parameters, end)
    }

    fn macro_body(
        &mut self,
        name: Arc<str>,
        parameters: Vec<(Arc<str>, Option<Expr>)>,
        end: &str,
    ) -> Result<Arc<Macro>> {
        let (loads, loops) = (self.loads.len(), std::mem::take(&mut self.loops));
        let body = self.block(end)?;
        self.loops = loops;
        let loaded = self.loads.get(loads..).unwrap_or_default();
        let takes = |name: &str| {
            parameters.iter().all(|(known, _)| **known != *name) && loaded.iter().any(|loaded| **loaded == *name)
        };
        let (takes_varargs, takes_kwargs, takes_caller) = (takes("varargs"), takes("kwargs"), takes("caller"));
        Ok(Arc::new(Macro { name, parameters, body, takes_varargs, takes_kwargs, takes_caller }))
    }

    /// Parameters after their bracket.
    fn parameters(&mut self) -> Result<Vec<(Arc<str>, Option<Expr>)>> {
        let mut parameters: Vec<(Arc<str>, Option<Expr>)> = Vec::new();
        while !self.is_operator(")") {
            if !parameters.is_empty() {
                self.expect_operator(",")?;
            }
            let name = self.name()?;
            let default = if self.skip_operator("=") { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.last().is_some_and(|(_, default)| default.is_some()) {
                return self.error("non-default argument follows default argument");
            }
            parameters.push((name, default));
        }
        self.expect_operator(")")?;
        Ok(parameters)
    }

    /// Reads the target of an assignment.
    fn target(&mut self, ends: &[&str], with_namespace: bool) -> Result<Target> {
        let mut targets = Vec::new();
        let mut is_tuple = false;
        loop {
            if !targets.is_empty() {
                self.expect_operator(",")?;
            }
            if self.is_tuple_end(ends) {
                break;
            }
            targets.push(self.deeper(|parser| parser.one_target(with_namespace))?);
            if !self.is_operator(",") {
                break;
            }
            is_tuple = true;
        }
        match targets.pop() {
            Some(target) if !is_tuple => Ok(target),
            Some(target) => {
                targets.push(target);
                Ok(Target::Tuple(targets))
            }
            None => self.unexpected("a name to assign to"),
        }
    }

    fn one_target(&mut self, with_namespace: bool) -> Result<Target> {
        if self.skip_operator("(") {
            let target = self.target(&[], with_namespace)?;
            self.expect_operator(")")?;
            return Ok(target);
        }
        let name = self.name()?;
        if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
            return self.error("can't assign to 'const'");
        }
        if with_namespace && self.skip_operator(".") {
            return Ok(Target::Attribute(name, self.name()?));
        }
        Ok(Target::Name(name))
    }

    // Expressions.

    fn is_tuple_end(&self, ends: &[&str]) -> bool {
        matches!(self.peek(), Token::VariableEnd | Token::BlockEnd | Token::End)
            || self.is_operator(")")
            || ends.iter().any(|end| self.is_name(end))
    }

    fn tuple(&mut self, with_condition: bool, ends: &[&str], in_brackets: bool) -> Result<Expr> {
        let mut values = Vec::new();
        let (mut is_tuple, mut height) = (false, 0);
        loop {
            if !values.is_empty() {
                self.expect_operator(",")?;
            }
            if self.is_tuple_end(ends) {
                break;
            }
            values.push(if with_condition { self.expression()? } else { self.deeper(Self::or)? });
            height = height.max(self.height);
            if !self.is_operator(",") {
                break;
            }
            is_tuple = true;
        }
        if !is_tuple {
            if let Some(value) = values.pop() {
                return Ok(value);
            }
            if !in_brackets {
                return self.unexpected("an expression");
            }
        }
        self.above(height)?;
        Ok(Expr::Tuple(values))
    }

    fn expression(&mut self) -> Result<Expr> {
        self.deeper(Self::conditional)
    }

    fn conditional(&mut self) -> Result<Expr> {
        let mut value = self.or()?;
        let mut height = self.height;
        loop {
            let line = self.line();
            if !self.skip_name("if") {
                self.height = height;
                return Ok(value);
            }
            let condition = self.or()?;
            height = height.max(self.height);
            let otherwise = if self.skip_name("else") { Some(self.expression()?) } else { None };
            height = height.max(self.height);
            self.above(height)?;
            height = self.height;
            value = Expr::If(Box::new((condition, value, otherwise)), line);
        }
    }

    /// Operands of one operator or more, from the left.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Expr>,
        next: impl Fn(&mut Self) -> bool,
        join: impl Fn(Expr, Expr) -> Expr,
    ) -> Result<Expr> {
        let mut left = operand(self)?;
        while next(self) {
            let height = self.height;
            let right = operand(self)?;
            self.above(height.max(self.height))?;
            left = join(left, right);
        }
        Ok(left)
    }

    fn or(&mut self) -> Result<Expr> {
        self.chain(Self::and, |parser| parser.skip_name("or"), |left, right| Expr::Or(Box::new((left, right))))
    }

    fn and(&mut self) -> Result<Expr> {
        self.chain(Self::not, |parser| parser.skip_name("and"), |left, right| Expr::And(Box::new((left, right))))
    }

    fn not(&mut self) -> Result<Expr> {
        if self.skip_name("not") {
            let value = self.deeper(Self::not)?;
            self.above(self.height)?;
            return Ok(Expr::Not(Box::new(value)));
        }
        self.compare()
    }

    fn compare(&mut self) -> Result<Expr> {
        let first = self.sum()?;
        let mut height = self.height;
        let mut others = Vec::new();
        loop {
            let comparison = match self.peek() {
                Token::Operator("==") => Comparison::Equal,
                Token::Operator("!=") => Comparison::NotEqual,
                Token::Operator("<") => Comparison::Less,
                Token::Operator("<=") => Comparison::LessEqual,
                Token::Operator(">") => Comparison::Greater,
                Token::Operator(">=") => Comparison::GreaterEqual,
                Token::Name(name) if name == "in" => Comparison::In,
                Token::Name(name) if name == "not" && self.follows_name("in") => Comparison::NotIn,
                _ => break,
            };
            self.at += if comparison == Comparison::NotIn { 2 } else { 1 };
            others.push((comparison, self.sum()?));
            height = height.max(self.height);
        }
        if others.is_empty() {
            return Ok(first);
        }
        self.above(height)?;
        Ok(Expr::Compare(Box::new(first), others))
    }

    /// Operands of operators of one rank.
    fn binary(
        &mut self,
        operand: fn(&mut Self) -> Result<Expr>,
        operators: &[(&'static str, Operator)],
    ) -> Result<Expr> {
        let mut left = operand(self)?;
        loop {
            let line = self.line();
            let found = operators.iter().find(|(text, _)| self.is_operator(text));
            let Some((_, operator)) = found else { return Ok(left) };
            self.at += 1;
            let height = self.height;
            let right = operand(self)?;
            self.above(height.max(self.height))?;
            left = Expr::Binary(*operator, Box::new((left, right)), line);
        }
    }

    fn sum(&mut self) -> Result<Expr> {
        self.binary(Self::concat, &[("+", Operator::Add), ("-", Operator::Subtract)])
    }

    fn concat(&mut self) -> Result<Expr> {
        let first = self.product()?;
        if !self.is_operator("~") {
            return Ok(first);
        }
        let mut height = self.height;
        let mut parts = vec![first];
        while self.skip_operator("~") {
            parts.push(self.product()?);
            height = height.max(self.height);
        }
        self.above(height)?;
        Ok(Expr::Concat(parts))
    }

    fn product(&mut self) -> Result<Expr> {
        let operators = [
            ("*", Operator::Multiply),
            ("/", Operator::Divide),
            ("//", Operator::FloorDivide),
            ("%", Operator::Modulo),
        ];
        self.binary(Self::power, &operators)
    }

    fn power(&mut self) -> Result<Expr> {
        self.binary(|parser| parser.unary(true), &[("**", Operator::Power)])
    }

    fn unary(&mut self, with_filter: bool) -> Result<Expr> {
        let sign = if self.skip_operator("-") {
            Some(true)
        } else if self.skip_operator("+") {
            Some(false)
        } else {
            None
        };
        let mut value = match sign {
            None => self.primary()?,
            Some(is_negative) => {
                let value = Box::new(self.deeper(|parser| parser.unary(false))?);
                self.above(self.height)?;
                if is_negative { Expr::Negative(value) } else { Expr::Positive(value) }
            }
        };
        value = self.postfix(value)?;
        if !with_filter {
            return Ok(value);
        }
        loop {
            let height = self.height;
            let line = self.line();
            if self.skip_operator("|") {
                let filter = self.filter()?;
                self.above(height.max(self.height))?;
                value = Expr::Filter(Box::new(value), Box::new(filter));
            } else if self.skip_name("is") {
                value = self.test(value, height, line)?;
            } else if self.is_operator("(") {
                value = self.call(value)?;
            } else {
                break;
            }
        }
        Ok(value)
    }

    fn primary(&mut self) -> Result<Expr> {
        let line = self.line();
        self.height = 1;
        match self.peek().clone() {
            Token::Name(name) => {
                self.at += 1;
                Ok(match name.as_str() {
                    "true" | "True" => Expr::Bool(true),
                    "false" | "False" => Expr::Bool(false),
                    "none" | "None" => Expr::None,
                    _ => {
                        let name: Arc<str> = name.into();
                        if matches!(&*name, "varargs" | "kwargs" | "caller") {
                            self.loads.push(name.clone());
                        }
                        Expr::Name(name, line)
                    }
                })
            }
            Token::Text(mut text) => {
                self.at += 1;
                while let Token::Text(more) = self.peek() {
                    text.push_str(more);
                    self.at += 1;
                }
                Ok(Expr::Text(text.into()))
            }
            Token::Int(int) => {
                self.at += 1;
                Ok(Expr::Int(int))
            }
            Token::Float(float) => {
                self.at += 1;
                Ok(Expr::Float(float))
            }
            Token::Operator("(") => {
                self.at += 1;
                let value = self.tuple(true, &[], true)?;
                self.expect_operator(")")?;
                Ok(value)
            }
            Token::Operator("[") => {
                self.at += 1;
                let mut values = Vec::new();
                let mut height = 0;
                while !self.is_operator("]") {
                    if !values.is_empty() {
                        self.expect_operator(",")?;
                        if self.is_operator("]") {
                            break;
                        }
                    }
                    values.push(self.expression()?);
                    height = height.max(self.height);
                }
                self.expect_operator("]")?;
                self.above(height)?;
                Ok(Expr::List(values))
            }
            Token::Operator("{") => {
                self.at += 1;
                let mut entries = Vec::new();
                let mut height = 0;
                while !self.is_operator("}") {
                    if !entries.is_empty() {
                        self.expect_operator(",")?;
                        if self.is_operator("}") {
                            break;
                        }
                    }
                    let key = self.expression()?;
                    height = height.max(self.height);
                    self.expect_operator(":")?;
                    entries.push((key, self.expression()?));
                    height = height.max(self.height);
                }
                self.expect_operator("}")?;
                self.above(height)?;
                Ok(Expr::Dict(entries))
            }
            token => self.error(format!("unexpected {}", describe(&token))),
        }
    }

    fn postfix(&mut self, mut value: Expr) -> Result<Expr> {
        loop {
            let (line, height) = (self.line(), self.height);
            if self.skip_operator(".") {
                match self.next() {
                    Token::Name(name) => value = Expr::Attribute(Box::new(value), name.into(), line),
                    Token::Int(index) => value = Expr::Item(Box::new(value), Box::new(Expr::Int(index)), line),
                    _ => return self.error("expected name or number"),
                }
                self.above(height)?;
            } else if self.skip_operator("[") {
                let mut indices = Vec::new();
                let mut highest = height;
                while !self.is_operator("]") {
                    if !indices.is_empty() {
                        self.expect_operator(",")?;
                    }
                    indices.push(self.subscript()?);
                    highest = highest.max(self.height);
                }
                self.expect_operator("]")?;
                self.above(highest)?;
                let index = match indices.pop() {
                    Some(index) if indices.is_empty() => index,
                    Some(index) => {
                        indices.push(index);
                        Expr::Tuple(indices)
                    }
                    None => Expr::Tuple(indices),
                };
                value = Expr::Item(Box::new(value), Box::new(index), line);
            } else if self.is_operator("(") {
                value = self.call(value)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn subscript(&mut self) -> Result<Expr> {
        let mut bounds = [None, None, None];
        let mut height = 0;
        let mut is_slice = false;
        for bound in &mut bounds {
            if !(self.is_operator(":") || self.is_operator("]") || self.is_operator(",")) {
                *bound = Some(self.expression()?);
                height = height.max(self.height);
            }
            if !self.skip_operator(":") {
                break;
            }
            is_slice = true;
        }
        if !is_slice {
            let [Some(index), ..] = bounds else { return self.unexpected("an index") };
            return Ok(index);
        }
        self.above(height)?;
        Ok(Expr::Slice(Box::new(bounds)))
    }

    fn call(&mut self, function: Expr) -> Result<Expr> {
        let (line, height) = (self.line(), self.height);
        let arguments = self.arguments()?;
        self.above(height.max(self.height))?;
        Ok(Expr::Call(Box::new(Call { function, arguments, line })))
    }

    fn arguments(&mut self) -> Result<Arguments> {
        self.expect_operator("(")?;
        let mut arguments = Arguments::default();
        let mut height = 0;
        let mut is_first = true;
        while !self.is_operator(")") {
            if !std::mem::take(&mut is_first) {
                self.expect_operator(",")?;
                if self.is_operator(")") {
                    break;
                }
            }
            let is_last = arguments.dict.is_some();
            let is_right = if self.skip_operator("*") {
                let is_right = !is_last && arguments.list.is_none();
                arguments.list = Some(self.expression()?);
                is_right
            } else if self.skip_operator("**") {
                arguments.dict = Some(self.expression()?);
                !is_last
            } else if matches!(self.peek(), Token::Name(_)) && self.follows_operator("=") {
                let name = self.name()?;
                self.at += 1;
                arguments.named.push((name, self.expression()?));
                !is_last
            } else {
                let is_right = !is_last && arguments.list.is_none() && arguments.named.is_empty();
                arguments.positional.push(self.expression()?);
                is_right
            };
            height = height.max(self.height);
            if !is_right {
                return self.error("invalid syntax for function call expression");
            }
        }
        self.expect_operator(")")?;
        self.height = height;
        Ok(arguments)
    }

    /// A filter after its bar.
    fn filter(&mut self) -> Result<Filter> {
        let line = self.line();
        let name = self.dotted_name()?;
        self.height = 0;
        let arguments = if self.is_operator("(") { self.arguments()? } else { Arguments::default() };
        Ok(Filter { name, arguments, line })
    }

    /// Parses a chain of filters. The first has no bar if `is_inline`.
    fn filters(&mut self, is_inline: bool) -> Result<Vec<Filter>> {
        let mut filters = Vec::new();
        if is_inline {
            filters.push(self.filter()?);
        }
        while self.skip_operator("|") {
            filters.push(self.filter()?);
        }
        Ok(filters)
    }

    fn dotted_name(&mut self) -> Result<String> {
        let mut name = self.name()?.to_string();
        while self.skip_operator(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name)
    }

    /// A test after `is`.
    fn test(&mut self, value: Expr, height: u32, line: u32) -> Result<Expr> {
        let is_negated = self.skip_name("not");
        let name = self.dotted_name()?;
        self.height = 0;
        let begins_argument = match self.peek() {
            Token::Name(name) => !matches!(name.as_str(), "else" | "or" | "and"),
            Token::Text(_) | Token::Int(_) | Token::Float(_) => true,
            Token::Operator(operator) => matches!(*operator, "[" | "{"),
            _ => false,
        };
        let mut arguments = Arguments::default();
        if self.is_operator("(") {
            arguments = self.arguments()?;
        } else if begins_argument && self.is_name("is") {
            return self.error("You cannot chain multiple tests with is");
        } else if begins_argument && !self.is_name("if") {
            let argument = self.deeper(Self::primary)?;
            arguments.positional.push(self.postfix(argument)?);
        }
        self.above(height.max(self.height))?;
        let test = Expr::Test(Box::new(value), Box::new(Filter { name, arguments, line }));
        Ok(if is_negated { Expr::Not(Box::new(test)) } else { test })
    }
}

fn describe(token: &Token) -> String {
    match token {
        Token::Data(_) => "text".to_owned(),
        Token::BlockBegin => "'{%'".to_owned(),
        Token::BlockEnd => "'%}'".to_owned(),
        Token::VariableBegin => "'{{'".to_owned(),
        Token::VariableEnd => "'}}'".to_owned(),
        Token::Name(name) => format!("'{name}'"),
        Token::Text(text) => format!("the string {text:?}"),
        Token::Int(int) => format!("'{int}'"),
        Token::Float(float) => format!("'{float}'"),
        Token::Operator(operator) => format!("'{operator}'"),
        Token::End => "the end of the template".to_owned(),
    }
}
