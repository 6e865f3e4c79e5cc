//! Values of templates, which are Python's. Lists and dicts never change, as in Jinja's immutable sandbox; namespaces do.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::ast::{For, Macro};
use super::dict::Dict;
use super::failure::{Result, fail};
use super::meter::{MAX_VALUE_DEPTH, Meter};
use super::scope::Scope;

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A missing name or attribute, with the message for its use.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Rc<Text>),
    List(Rc<Items>),
    Tuple(Rc<Items>),
    Dict(Rc<Dict>),
    View(View, Rc<Dict>),
    Range(Range),
    /// A generator, with its remaining elements.
    Generator(Rc<Generator>),
    Namespace(Rc<Namespace>),
    Loop(Rc<Loop>),
    Function(Function),
}

/// A string.
#[derive(Debug)]
pub(super) struct Text {
    text: String,
    /// True if it is safe for HTML (`Markup`).
    pub(super) is_markup: bool,
    meter: Rc<Meter>,
}

/// Elements of a list or tuple.
#[derive(Debug)]
pub(super) struct Items {
    values: Vec<Value>,
    depth: u32,
    /// True for a pair of `groupby`, which has names for its two elements.
    pub(super) is_group: bool,
    meter: Rc<Meter>,
}

/// A view of a dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Keys,
    Values,
    Items,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: i128,
    pub(super) stop: i128,
    pub(super) step: i128,
}

#[derive(Debug)]
pub(super) struct Generator {
    pub(super) items: Rc<Items>,
    pub(super) at: Cell<usize>,
}

#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) attributes: RefCell<Rc<Dict>>,
}

/// `loop` in a loop.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) index0: Cell<usize>,
    pub(super) length: Option<usize>,
    pub(super) depth0: usize,
    pub(super) before: RefCell<Value>,
    pub(super) current: RefCell<Value>,
    pub(super) after: RefCell<Option<Value>>,
    pub(super) changed: RefCell<Option<Value>>,
    /// Of a recursive loop: its node and the scope around it.
    pub(super) recursion: Option<(Arc<For>, Rc<Scope>)>,
}

#[derive(Clone, Debug)]
pub(super) enum Function {
    /// A function of all templates, by its name.
    Global(&'static str),
    Method(Rc<(Value, Rc<str>)>),
    Macro(Rc<MacroFunction>),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
}

#[derive(Debug)]
pub(super) struct MacroFunction {
    pub(super) node: Arc<Macro>,
    pub(super) scope: Rc<Scope>,
}

#[derive(Debug)]
pub(super) struct Cycler {
    pub(super) items: Rc<Items>,
    pub(super) at: Cell<usize>,
}

#[derive(Debug)]
pub(super) struct Joiner {
    pub(super) separator: Rc<Text>,
    pub(super) is_used: Cell<bool>,
}

/// Bytes of a value besides those of its text or elements.
pub(super) const OVERHEAD: usize = 64;

impl Drop for Text {
    fn drop(&mut self) {
        self.meter.give(self.text.len() + OVERHEAD);
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        self.meter.give(self.values.len() * size_of::<Value>() + OVERHEAD);
    }
}

impl std::ops::Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl std::ops::Deref for Items {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.values
    }
}

impl Items {
    pub(super) fn new(meter: &Rc<Meter>, values: Vec<Value>) -> Result<Rc<Self>> {
        Self::with(meter, values, false)
    }

    pub(super) fn group(meter: &Rc<Meter>, grouper: Value, list: Value) -> Result<Rc<Self>> {
        Self::with(meter, vec![grouper, list], true)
    }

    fn with(meter: &Rc<Meter>, values: Vec<Value>, is_group: bool) -> Result<Rc<Self>> {
        let mut depth = 0;
        for value in &values {
            depth = depth.max(value.depth());
        }
        meter.steps(1 + values.len())?;
        meter.take(values.len() * size_of::<Value>() + OVERHEAD)?;
        let items = Rc::new(Self { values, depth: depth + 1, is_group, meter: meter.clone() });
        if depth >= MAX_VALUE_DEPTH {
            fail!("a value is nested deeper than {MAX_VALUE_DEPTH} levels, which is the limit");
        }
        Ok(items)
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }
}

impl Value {
    pub(super) fn undefined(message: impl AsRef<str>) -> Self {
        Self::Undefined(message.as_ref().into())
    }

    pub(super) fn text(meter: &Rc<Meter>, text: impl Into<String>) -> Result<Self> {
        Self::text_as(meter, text.into(), false)
    }

    /// A string, or HTML.
    pub(super) fn text_as(meter: &Rc<Meter>, text: String, is_markup: bool) -> Result<Self> {
        meter.bytes(text.len())?;
        meter.take(text.len() + OVERHEAD)?;
        Ok(Self::Text(Rc::new(Text { text, is_markup, meter: meter.clone() })))
    }

    pub(super) fn list(meter: &Rc<Meter>, values: Vec<Self>) -> Result<Self> {
        Ok(Self::List(Items::new(meter, values)?))
    }

    pub(super) fn tuple(meter: &Rc<Meter>, values: Vec<Self>) -> Result<Self> {
        Ok(Self::Tuple(Items::new(meter, values)?))
    }

    pub(super) fn generator(meter: &Rc<Meter>, values: Vec<Self>) -> Result<Self> {
        Ok(Self::Generator(Rc::new(Generator { items: Items::new(meter, values)?, at: Cell::new(0) })))
    }

    pub(super) fn of_json(meter: &Rc<Meter>, json: &Json) -> Result<Self> {
        let _level = meter.deeper()?;
        Ok(match json {
            Json::Null => Self::None,
            Json::Bool(bool) => Self::Bool(*bool),
            Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(int), ..) => Self::Int(int.into()),
                (_, Some(int), _) => Self::Int(int.into()),
                (_, _, float) => Self::Float(float.unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::text(meter, text.as_str())?,
            Json::Array(values) => {
                let values: Result<Vec<Self>> = values.iter().map(|value| Self::of_json(meter, value)).collect();
                Self::list(meter, values?)?
            }
            Json::Object(fields) => {
                let mut dict = Dict::new(meter)?;
                for (key, value) in fields {
                    dict.insert(Self::text(meter, key.as_str())?, Self::of_json(meter, value)?)?;
                }
                Self::Dict(Rc::new(dict))
            }
        })
    }

    /// Levels of containers in a value.
    pub(super) fn depth(&self) -> u32 {
        match self {
            Self::List(items) | Self::Tuple(items) => items.depth(),
            Self::Generator(generator) => generator.items.depth(),
            Self::Dict(dict) | Self::View(_, dict) => dict.depth(),
            Self::Function(Function::Method(method)) => method.0.depth() + 1,
            Self::Function(Function::Cycler(cycler)) => cycler.items.depth(),
            _ => 0,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// An integer, or a bool as one.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(int) => Some(*int),
            Self::Bool(bool) => Some((*bool).into()),
            _ => None,
        }
    }

    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(float) => Some(*float),
            _ => self.as_int().map(|int| int as f64),
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    /// The name of its type in Python.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(text) if text.is_markup => "Markup",
            Self::Text(_) => "str",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::View(View::Keys, _) => "dict_keys",
            Self::View(View::Values, _) => "dict_values",
            Self::View(View::Items, _) => "dict_items",
            Self::Range(_) => "range",
            Self::Generator(_) => "generator",
            Self::Namespace(_) => "Namespace",
            Self::Loop(_) => "LoopContext",
            Self::Function(Function::Global(_)) => "function",
            Self::Function(Function::Method(_)) => "builtin_function_or_method",
            Self::Function(Function::Macro(_)) => "Macro",
            Self::Function(Function::Cycler(_)) => "Cycler",
            Self::Function(Function::Joiner(_)) => "Joiner",
        }
    }

    /// The number of elements, where Python has `len`.
    pub(super) fn len(&self) -> Option<usize> {
        Some(match self {
            Self::Undefined(_) => 0,
            Self::Text(text) => text.chars().count(),
            Self::List(items) | Self::Tuple(items) => items.len(),
            Self::Dict(dict) | Self::View(_, dict) => dict.len(),
            Self::Range(range) => range.len(),
            Self::Loop(of) => of.length?,
            _ => return None,
        })
    }

    /// Python's truth.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(bool) => *bool,
            Self::Int(int) => *int != 0,
            Self::Float(float) => *float != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(items) | Self::Tuple(items) => !items.is_empty(),
            Self::Dict(dict) | Self::View(_, dict) => dict.len() > 0,
            Self::Range(range) => range.len() > 0,
            _ => true,
        }
    }

    /// Returns an iterator over the elements.
    pub(super) fn iterate(&self) -> Result<Iter> {
        Ok(match self {
            Self::Undefined(_) => Iter::Empty,
            Self::Text(text) => Iter::Chars(text.clone(), 0),
            Self::List(items) | Self::Tuple(items) => Iter::Items(items.clone(), 0),
            Self::Dict(dict) => Iter::View(View::Keys, dict.clone(), 0),
            Self::View(view, dict) => Iter::View(*view, dict.clone(), 0),
            Self::Range(range) => Iter::Range(*range, 0),
            Self::Generator(generator) => Iter::Generator(generator.clone()),
            other => fail!("'{}' object is not iterable", other.type_name()),
        })
    }

    /// All elements.
    pub(super) fn elements(&self, meter: &Rc<Meter>) -> Result<Vec<Self>> {
        let mut iter = self.iterate()?;
        let mut values = Vec::new();
        while let Some(value) = iter.next(meter)? {
            // The caller's list counts the memory; this only checks for room.
            if values.len() % 1024 == 1023 {
                meter.room(values.len() * size_of::<Self>())?;
            }
            values.push(value);
        }
        Ok(values)
    }
}

impl Range {
    pub(super) fn len(self) -> usize {
        let span = if self.step > 0 { self.stop - self.start } else { self.start - self.stop };
        let step = self.step.abs().max(1);
        usize::try_from((span.max(0) + step - 1) / step).unwrap_or(usize::MAX)
    }

    pub(super) fn get(self, index: usize) -> Option<i128> {
        (index < self.len()).then(|| self.start + self.step * index as i128)
    }
}

/// The elements of a value, one after the other.
#[derive(Clone, Debug)]
pub(super) enum Iter {
    Empty,
    Chars(Rc<Text>, usize),
    Items(Rc<Items>, usize),
    View(View, Rc<Dict>, usize),
    Range(Range, usize),
    Generator(Rc<Generator>),
}

impl Iter {
    pub(super) fn next(&mut self, meter: &Rc<Meter>) -> Result<Option<Value>> {
        meter.steps(1)?;
        Ok(match self {
            Self::Empty => None,
            Self::Chars(text, at) => match text.get(*at..).and_then(|rest| rest.chars().next()) {
                Some(char) => {
                    *at += char.len_utf8();
                    Some(Value::text(meter, char)?)
                }
                None => None,
            },
            Self::Items(items, at) => {
                *at += 1;
                items.get(*at - 1).cloned()
            }
            Self::View(view, dict, at) => {
                *at += 1;
                let Some((key, value)) = dict.entry(*at - 1) else { return Ok(None) };
                Some(match view {
                    View::Keys => key.clone(),
                    View::Values => value.clone(),
                    View::Items => Value::tuple(meter, vec![key.clone(), value.clone()])?,
                })
            }
            Self::Range(range, at) => {
                *at += 1;
                range.get(*at - 1).map(Value::Int)
            }
            Self::Generator(generator) => {
                let at = generator.at.get();
                generator.at.set(at + 1);
                generator.items.get(at).cloned()
            }
        })
    }
}
