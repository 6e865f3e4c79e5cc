//! Renders a syntax tree.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::arguments::Args;
use super::ast::{Arguments, Call, Expr, Filter, For, Macro, Statement, Target};
use super::attributes;
use super::checks;
use super::dict::Dict;
use super::failure::{Failure, Result, fail};
use super::filters;
use super::globals;
use super::html;
use super::meter::{Meter, Writer};
use super::operators;
use super::repr::{to_str, write_str};
use super::scope::Scope;
use super::value::{Function, Iter, Loop, MacroFunction, Namespace, Value};

/// Control flow after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

pub(super) struct Renderer {
    pub(super) meter: Rc<Meter>,
    /// The output of the template, then those of the captures inside it.
    outputs: Vec<Writer>,
    root: Rc<Scope>,
    /// Scopes that macros captured, and namespaces. They may contain themselves, so they are cleared at the end.
    seen: Vec<Rc<Scope>>,
    namespaces: Vec<Rc<Namespace>>,
    is_escaping: bool,
    /// Line of the template that is rendered.
    line: u32,
}

impl Renderer {
    pub(super) fn new(meter: &Rc<Meter>, variables: Vec<(Arc<str>, Value)>) -> Self {
        let root = Rc::new(Scope::default());
        for (name, value) in variables {
            root.set(&name, value);
        }
        let outputs = vec![Writer::new(meter)];
        let meter = meter.clone();
        Self { meter, outputs, root, seen: Vec::new(), namespaces: Vec::new(), is_escaping: false, line: 1 }
    }

    pub(super) fn render(mut self, body: &[Statement]) -> Result<String> {
        let root = self.root.clone();
        let rendered = self.statements(body, &root);
        let line = self.line;
        rendered.map_err(|failure| Failure { line: failure.line.or(Some(line)), ..failure })?;
        Ok(self.outputs.pop().map(Writer::into_text).unwrap_or_default())
    }

    fn output(&mut self, text: &str) -> Result<()> {
        self.outputs.last_mut().map_or(Ok(()), |output| output.push(text))
    }

    /// Returns the text that `render` writes, instead of writing it to the output.
    fn captured(&mut self, render: impl FnOnce(&mut Self) -> Result<Flow>) -> Result<String> {
        self.outputs.push(Writer::new(&self.meter));
        let rendered = render(self);
        let output = self.outputs.pop();
        rendered?;
        Ok(output.map(Writer::into_text).unwrap_or_default())
    }

    fn statements(&mut self, body: &[Statement], scope: &Rc<Scope>) -> Result<Flow> {
        for statement in body {
            match self.statement(statement, scope)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &Statement, scope: &Rc<Scope>) -> Result<Flow> {
        let meter = self.meter.clone();
        let _level = meter.deeper()?;
        meter.steps(1)?;
        match statement {
            Statement::Data(text) => self.output(text)?,
            Statement::Output(values, line) => {
                for value in values {
                    self.line = *line;
                    let value = self.eval(value, scope)?;
                    self.write(&value)?;
                }
            }
            Statement::Set(target, value, line) => {
                self.line = *line;
                let value = self.eval(value, scope)?;
                self.assign(target, value, scope)?;
            }
            Statement::SetBlock { target, filters, body, line } => {
                self.line = *line;
                let inner = Scope::inside(scope);
                let text = self.captured(|renderer| renderer.statements(body, &inner))?;
                let value = Value::text_as(&meter, text, self.is_escaping)?;
                let value = self.filtered(value, filters, scope)?;
                self.assign(target, value, scope)?;
            }
            Statement::For(node) => return self.for_loop(node, scope),
            Statement::If { branches, otherwise, line } => {
                for (test, body) in branches {
                    self.line = *line;
                    if self.eval(test, scope)?.is_true() {
                        return self.statements(body, scope);
                    }
                }
                return self.statements(otherwise, scope);
            }
            Statement::With { targets, body, line } => {
                self.line = *line;
                let inner = Scope::inside(scope);
                let mut values = Vec::new();
                for (target, value) in targets {
                    values.push((target, self.eval(value, scope)?));
                }
                for (target, value) in values {
                    self.assign(target, value, &inner)?;
                }
                return self.statements(body, &inner);
            }
            Statement::Macro(node) => {
                let function = self.macro_function(node, scope);
                scope.set(&node.name, function);
            }
            Statement::Call { caller, call, line } => {
                self.line = *line;
                let caller = self.macro_function(caller, scope);
                let value = self.call(call, Some(caller), scope)?;
                self.write(&value)?;
            }
            Statement::FilterBlock { filters, body, line } => {
                self.line = *line;
                let inner = Scope::inside(scope);
                let text = self.captured(|renderer| renderer.statements(body, &inner))?;
                let value = Value::text_as(&meter, text, self.is_escaping)?;
                let value = self.filtered(value, filters, scope)?;
                self.write(&value)?;
            }
            Statement::Block { body, sees_all } => {
                let inner = Scope::inside(if *sees_all { scope } else { &self.root });
                return self.statements(body, &inner);
            }
            Statement::Escape { is_on, body, line } => {
                self.line = *line;
                let is_on = self.eval(is_on, scope)?.is_true();
                let before = std::mem::replace(&mut self.is_escaping, is_on);
                let inner = Scope::inside(scope);
                let flow = self.statements(body, &inner);
                self.is_escaping = before;
                return flow;
            }
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
            Statement::Refused(name, line) => {
                return Err(Failure::at(*line, format!("`{name}`: a chat template has no other templates")));
            }
        }
        Ok(Flow::Next)
    }

    fn write(&mut self, value: &Value) -> Result<()> {
        let meter = self.meter.clone();
        let value = if self.is_escaping { &html::escaped(value, &meter)? } else { value };
        self.outputs.last_mut().map_or(Ok(()), |output| write_str(value, output, &meter))
    }

    fn macro_function(&mut self, node: &Arc<Macro>, scope: &Rc<Scope>) -> Value {
        if !self.seen.last().is_some_and(|seen| Rc::ptr_eq(seen, scope)) {
            self.seen.push(scope.clone());
        }
        Value::Function(Function::Macro(Rc::new(MacroFunction { node: node.clone(), scope: scope.clone() })))
    }

    fn filtered(&mut self, mut value: Value, filters: &[Filter], scope: &Rc<Scope>) -> Result<Value> {
        for filter in filters {
            let args = self.arguments(&filter.arguments, scope)?;
            value = filters::apply(&filter.name, &value, args, &self.meter)?;
        }
        Ok(value)
    }

    fn assign(&mut self, target: &Target, value: Value, scope: &Rc<Scope>) -> Result<()> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Attribute(name, attribute) => {
                let Some(Value::Namespace(namespace)) = scope.get(name) else {
                    fail!("cannot assign attribute on non-namespace object")
                };
                globals::check_namespace_name(attribute)?;
                let key = Value::text(&self.meter, &**attribute)?;
                let mut attributes = namespace.attributes.borrow_mut();
                if let Some(attributes) = Rc::get_mut(&mut attributes) {
                    attributes.insert(key, value)?;
                } else {
                    let mut copy = attributes.copy()?;
                    copy.insert(key, value)?;
                    *attributes = Rc::new(copy);
                }
            }
            Target::Tuple(targets) => {
                let Ok(iter) = value.iterate() else {
                    fail!("cannot unpack non-iterable {} object", value.type_name())
                };
                drop(iter);
                let values = value.elements(&self.meter)?;
                let (expected, got) = (targets.len(), values.len());
                if got < expected {
                    fail!("not enough values to unpack (expected {expected}, got {got})");
                }
                if got > expected {
                    fail!("too many values to unpack (expected {expected})");
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value, scope)?;
                }
            }
        }
        Ok(())
    }

    fn for_loop(&mut self, node: &Arc<For>, scope: &Rc<Scope>) -> Result<Flow> {
        self.line = node.line;
        let iterable = self.eval(&node.iterable, scope)?;
        self.loop_over(node, &iterable, scope, 0)?;
        Ok(Flow::Next)
    }

    fn loop_over(&mut self, node: &Arc<For>, iterable: &Value, scope: &Rc<Scope>, depth0: usize) -> Result<Flow> {
        let meter = self.meter.clone();
        if let Value::Loop(_) = iterable {
            fail!("'LoopContext' object cannot be looped over");
        }
        let (mut iter, length) = match &node.test {
            None => {
                let left = match iterable {
                    Value::Generator(generator) => Some(generator.items.len().saturating_sub(generator.at.get())),
                    other => other.len(),
                };
                (iterable.iterate()?, left)
            }
            Some(test) => {
                let mut kept = Vec::new();
                let mut iter = iterable.iterate()?;
                while let Some(value) = iter.next(&meter)? {
                    let inner = Scope::inside(scope);
                    self.assign(&node.target, value.clone(), &inner)?;
                    if self.eval(test, &inner)?.is_true() {
                        kept.push(value);
                    }
                }
                let length = kept.len();
                (Value::list(&meter, kept)?.iterate()?, Some(length))
            }
        };
        let state = Rc::new(Loop {
            index0: Cell::new(0),
            length,
            depth0,
            before: RefCell::new(Value::None),
            current: RefCell::new(Value::None),
            after: RefCell::new(None),
            changed: RefCell::new(None),
            recursion: node.is_recursive.then(|| (node.clone(), scope.clone())),
        });
        let done = self.iterations(node, &mut iter, &state, scope);
        // Its values may refer to the loop itself: dropping them breaks the cycle.
        let held = (state.before.replace(Value::None), state.current.replace(Value::None), state.changed.replace(None));
        drop(held);
        if done? == 0 {
            let inner = Scope::inside(scope);
            return self.statements(&node.otherwise, &inner);
        }
        Ok(Flow::Next)
    }

    /// Returns the number of iterations.
    fn iterations(&mut self, node: &For, iter: &mut Iter, state: &Rc<Loop>, scope: &Rc<Scope>) -> Result<usize> {
        let meter = self.meter.clone();
        let loop_name: Arc<str> = "loop".into();
        let mut count = 0;
        let mut next = iter.next(&meter)?;
        while let Some(value) = next {
            next = iter.next(&meter)?;
            state.index0.set(count);
            count += 1;
            let before = state.current.replace(value.clone());
            state.before.replace(before);
            state.after.replace(next.clone());
            let inner = Scope::inside(scope);
            inner.set(&loop_name, Value::Loop(state.clone()));
            self.assign(&node.target, value, &inner)?;
            if self.statements(&node.body, &inner)? == Flow::Break {
                break;
            }
        }
        state.after.replace(None);
        Ok(count)
    }

    fn eval(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Result<Value> {
        let meter = self.meter.clone();
        let _level = meter.deeper()?;
        meter.steps(1)?;
        Ok(match expr {
            Expr::None => Value::None,
            Expr::Bool(bool) => Value::Bool(*bool),
            Expr::Int(int) => Value::Int(*int),
            Expr::Float(float) => Value::Float(*float),
            Expr::Text(text) => Value::text(&meter, &**text)?,
            Expr::Name(name, line) => {
                self.line = *line;
                match scope.get(name).or_else(|| globals::global(name)) {
                    Some(value) => value,
                    None => Value::undefined(format!("'{name}' is undefined")),
                }
            }
            Expr::List(values) => Value::list(&meter, self.all(values, scope)?)?,
            Expr::Tuple(values) => Value::tuple(&meter, self.all(values, scope)?)?,
            Expr::Dict(entries) => {
                let mut dict = Dict::new(&meter)?;
                for (key, value) in entries {
                    dict.insert(self.eval(key, scope)?, self.eval(value, scope)?)?;
                }
                Value::Dict(Rc::new(dict))
            }
            Expr::Attribute(value, name, line) => {
                let value = self.eval(value, scope)?;
                self.line = *line;
                attributes::get_attribute(&value, name, &meter)?
            }
            Expr::Item(value, key, line) => {
                let value = self.eval(value, scope)?;
                if let Expr::Slice(bounds) = &**key {
                    let mut evaluated = [None, None, None];
                    for (place, bound) in evaluated.iter_mut().zip(bounds.iter()) {
                        *place = bound.as_ref().map(|bound| self.eval(bound, scope)).transpose()?;
                    }
                    self.line = *line;
                    attributes::slice(&value, &evaluated, &meter)?
                } else {
                    let key = self.eval(key, scope)?;
                    self.line = *line;
                    attributes::get_item(&value, &key, &meter)?
                }
            }
            Expr::Slice(_) => fail!("a slice stands among other indices, which no value of a template has"),
            Expr::Call(call) => self.call(call, None, scope)?,
            Expr::Filter(value, filter) => {
                let value = self.eval(value, scope)?;
                let args = self.arguments(&filter.arguments, scope)?;
                self.line = filter.line;
                filters::apply(&filter.name, &value, args, &meter)?
            }
            Expr::Test(value, test) => {
                let value = self.eval(value, scope)?;
                let args = self.arguments(&test.arguments, scope)?;
                self.line = test.line;
                Value::Bool(checks::check(&test.name, &value, args, &meter)?)
            }
            Expr::Not(value) => Value::Bool(!self.eval(value, scope)?.is_true()),
            Expr::Negative(value) => operators::negative(&self.eval(value, scope)?)?,
            Expr::Positive(value) => operators::positive(&self.eval(value, scope)?)?,
            Expr::Binary(operator, operands, line) => {
                let left = self.eval(&operands.0, scope)?;
                let right = self.eval(&operands.1, scope)?;
                self.line = *line;
                operators::binary(*operator, &left, &right, &meter)?
            }
            Expr::Concat(parts) => {
                let mut text = Writer::new(&meter);
                for part in self.all(parts, scope)? {
                    let part = if self.is_escaping { html::escaped(&part, &meter)? } else { part };
                    write_str(&part, &mut text, &meter)?;
                }
                Value::text_as(&meter, text.into_text(), self.is_escaping)?
            }
            Expr::Compare(first, others) => {
                let mut left = self.eval(first, scope)?;
                for (comparison, right) in others {
                    let right = self.eval(right, scope)?;
                    if !operators::compare(*comparison, &left, &right, &meter)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            Expr::And(operands) => {
                let left = self.eval(&operands.0, scope)?;
                if left.is_true() { self.eval(&operands.1, scope)? } else { left }
            }
            Expr::Or(operands) => {
                let left = self.eval(&operands.0, scope)?;
                if left.is_true() { left } else { self.eval(&operands.1, scope)? }
            }
            Expr::If(parts, line) => {
                let (condition, value, otherwise) = &**parts;
                if self.eval(condition, scope)?.is_true() {
                    self.eval(value, scope)?
                } else if let Some(otherwise) = otherwise {
                    self.eval(otherwise, scope)?
                } else {
                    let what = "evaluated to false and no else section was defined.";
                    Value::undefined(format!("the inline if-expression on line {line} {what}"))
                }
            }
        })
    }

    fn all(&mut self, exprs: &[Expr], scope: &Rc<Scope>) -> Result<Vec<Value>> {
        exprs.iter().map(|expr| self.eval(expr, scope)).collect()
    }

    fn arguments(&mut self, arguments: &Arguments, scope: &Rc<Scope>) -> Result<Args> {
        let mut args = Args { positional: self.all(&arguments.positional, scope)?, named: Vec::new() };
        if let Some(list) = &arguments.list {
            args.positional.extend(self.eval(list, scope)?.elements(&self.meter)?);
        }
        for (name, value) in &arguments.named {
            args.named.push(((&**name).into(), self.eval(value, scope)?));
        }
        if let Some(dict) = &arguments.dict {
            let value = self.eval(dict, scope)?;
            let Value::Dict(dict) = &value else {
                fail!("argument after ** must be a mapping, not {}", value.type_name())
            };
            for (key, value) in dict.iter() {
                let Some(key) = key.as_str() else { fail!("keywords must be strings") };
                args.named.push((key.into(), value.clone()));
            }
        }
        Ok(args)
    }

    fn call(&mut self, call: &Call, caller: Option<Value>, scope: &Rc<Scope>) -> Result<Value> {
        let function = self.eval(&call.function, scope)?;
        let mut args = self.arguments(&call.arguments, scope)?;
        args.named.extend(caller.map(|caller| ("caller".into(), caller)));
        self.line = call.line;
        match &function {
            Value::Undefined(message) => fail!("{message}"),
            Value::Function(Function::Macro(function)) => self.call_macro(function, args),
            Value::Function(Function::Method(method)) => {
                attributes::call_method(&method.0, &method.1, args, &self.meter)
            }
            Value::Function(Function::Global("namespace")) => {
                let namespace = globals::namespace(args, &self.meter)?;
                self.namespaces.push(namespace.clone());
                Ok(Value::Namespace(namespace))
            }
            Value::Function(Function::Global(name)) => globals::call(name, args, &self.meter),
            Value::Function(Function::Joiner(joiner)) => {
                args.none("joiner")?;
                let is_used = joiner.is_used.replace(true);
                if is_used { Ok(Value::Text(joiner.separator.clone())) } else { Value::text(&self.meter, "") }
            }
            Value::Loop(of) => {
                let [iterable] = args.bind("loop", ["iterable"], 1)?;
                let (Some((node, around)), Some(iterable)) = (&of.recursion, iterable) else {
                    fail!("The loop must have the 'recursive' marker to be called recursively.")
                };
                let depth = of.depth0 + 1;
                let text = self.captured(|renderer| renderer.loop_over(node, &iterable, around, depth))?;
                Value::text_as(&self.meter, text, self.is_escaping)
            }
            other => fail!("'{}' object is not callable", other.type_name()),
        }
    }

    fn call_macro(&mut self, function: &MacroFunction, args: Args) -> Result<Value> {
        let node = &*function.node;
        let name = &node.name;
        let scope = Scope::inside(&function.scope);
        let given = args.positional.len();
        let mut positional = args.positional.into_iter();
        let mut named = args.named;
        let mut take = |name: &str| {
            let index = named.iter().position(|(known, _)| **known == *name);
            index.map(|index| named.remove(index).1)
        };
        let mut missing = Vec::new();
        for (parameter, default) in &node.parameters {
            match positional.next().or_else(|| take(parameter)) {
                Some(value) => scope.set(parameter, value),
                None => missing.push((parameter, default)),
            }
        }
        if node.takes_caller {
            let caller = take("caller").unwrap_or_else(|| Value::undefined("No caller defined"));
            scope.set(&"caller".into(), caller);
        }
        if node.takes_kwargs {
            let mut dict = Dict::new(&self.meter)?;
            for (name, value) in named {
                dict.insert(Value::text(&self.meter, &*name)?, value)?;
            }
            scope.set(&"kwargs".into(), Value::Dict(Rc::new(dict)));
        } else if let Some((unknown, _)) = named.first() {
            fail!("macro '{name}' takes no keyword argument '{unknown}'");
        }
        if node.takes_varargs {
            scope.set(&"varargs".into(), Value::tuple(&self.meter, positional.collect())?);
        } else if given > node.parameters.len() {
            fail!("macro '{name}' takes not more than {} argument(s)", node.parameters.len());
        }
        for (parameter, default) in missing {
            let value = match default {
                Some(default) => self.eval(default, &scope)?,
                None => Value::undefined(format!("parameter '{parameter}' was not provided")),
            };
            scope.set(parameter, value);
        }
        let text = self.captured(|renderer| renderer.statements(&node.body, &scope))?;
        Value::text_as(&self.meter, text, self.is_escaping)
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        self.root.clear();
        for scope in &self.seen {
            scope.clear();
        }
        for namespace in &self.namespaces {
            if let Ok(empty) = Dict::new(&self.meter) {
                let attributes = namespace.attributes.replace(Rc::new(empty));
                drop(attributes);
            }
        }
    }
}

/// `str(value)`, for messages of the template's own.
pub(super) fn message(value: &Value, meter: &Rc<Meter>) -> Result<String> {
    to_str(value, meter)
}
