//! JSON as Python's `json.dumps` writes it: the filter `tojson` of transformers.

use std::rc::Rc;

use super::arguments::{self, Args};
use super::failure::{Result, fail};
use super::meter::{Meter, Writer};
use super::operators::sort;
use super::repr::float_repr;
use super::value::Value;

/// The filter, with the options that it has in transformers.
pub(super) fn to_json(value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [is_ascii, indent, separators, is_sorted] =
        args.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"], 0)?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Text(indent)) => Some(indent.to_string()),
        indent => {
            let count = arguments::count(indent.as_ref(), 0)?;
            meter.room(count)?;
            Some(" ".repeat(count))
        }
    };
    let between = if indent.is_some() { "," } else { ", " };
    let (item, key) = match separators {
        None | Some(Value::None) => (between.to_owned(), ": ".to_owned()),
        Some(separators) => match &separators.elements(meter)?[..] {
            [Value::Text(item), Value::Text(key)] => (item.to_string(), key.to_string()),
            [_, _] => fail!("tojson: separators are two strings"),
            others => fail!("tojson: expected 2 separators, got {}", others.len()),
        },
    };
    let json = Json {
        is_ascii: arguments::is_true(is_ascii.as_ref(), false),
        is_sorted: arguments::is_true(is_sorted.as_ref(), false),
        indent,
        item,
        key,
        meter,
    };
    let mut out = Writer::new(meter);
    json.write(value, 0, &mut out)?;
    Value::text(meter, out.into_text())
}

struct Json<'a> {
    is_ascii: bool,
    is_sorted: bool,
    /// White space of a level; without, all is on one line.
    indent: Option<String>,
    item: String,
    key: String,
    meter: &'a Rc<Meter>,
}

impl Json<'_> {
    fn write(&self, value: &Value, depth: usize, out: &mut Writer) -> Result<()> {
        let _level = self.meter.deeper()?;
        self.meter.steps(1)?;
        match value {
            Value::None => out.push("null"),
            Value::Bool(bool) => out.push(if *bool { "true" } else { "false" }),
            Value::Int(int) => out.push(&int.to_string()),
            Value::Float(float) => out.push(&number(*float)),
            Value::Text(text) => self.text(text, out),
            Value::List(items) | Value::Tuple(items) => {
                out.push("[")?;
                for (index, item) in items.iter().enumerate() {
                    self.begin(index, depth, out)?;
                    self.write(item, depth + 1, out)?;
                }
                self.end(items.is_empty(), depth, out)?;
                out.push("]")
            }
            Value::Dict(dict) => {
                out.push("{")?;
                let mut entries: Vec<(Value, Value)> = dict.iter().cloned().collect();
                if self.is_sorted {
                    let mut keyed = Vec::new();
                    for (key, value) in entries {
                        keyed.push((key.clone(), Value::tuple(self.meter, vec![key, value])?));
                    }
                    entries = Vec::new();
                    for entry in sort(keyed, false, self.meter)? {
                        if let Value::Tuple(entry) = entry
                            && let [key, value] = &entry[..]
                        {
                            entries.push((key.clone(), value.clone()));
                        }
                    }
                }
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.begin(index, depth, out)?;
                    match key {
                        Value::Text(key) => self.text(key, out)?,
                        Value::None => out.push("\"null\"")?,
                        Value::Bool(bool) => out.push(if *bool { "\"true\"" } else { "\"false\"" })?,
                        Value::Int(int) => out.push(&format!("\"{int}\""))?,
                        Value::Float(float) => out.push(&format!("\"{}\"", number(*float)))?,
                        other => {
                            let name = other.type_name();
                            fail!("keys must be str, int, float, bool or None, not {name}")
                        }
                    }
                    out.push(&self.key)?;
                    self.write(value, depth + 1, out)?;
                }
                self.end(entries.is_empty(), depth, out)?;
                out.push("}")
            }
            other => fail!("Object of type {} is not JSON serializable", other.type_name()),
        }
    }

    fn begin(&self, index: usize, depth: usize, out: &mut Writer) -> Result<()> {
        if index > 0 {
            out.push(&self.item)?;
        }
        self.line(depth + 1, out)
    }

    fn end(&self, is_empty: bool, depth: usize, out: &mut Writer) -> Result<()> {
        if is_empty { Ok(()) } else { self.line(depth, out) }
    }

    fn line(&self, depth: usize, out: &mut Writer) -> Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        out.push("\n")?;
        (0..depth).try_for_each(|_| out.push(indent))
    }

    fn text(&self, text: &str, out: &mut Writer) -> Result<()> {
        out.push("\"")?;
        for char in text.chars() {
            match char {
                '"' => out.push("\\\"")?,
                '\\' => out.push("\\\\")?,
                '\n' => out.push("\\n")?,
                '\r' => out.push("\\r")?,
                '\t' => out.push("\\t")?,
                '\u{c}' => out.push("\\f")?,
                '\u{8}' => out.push("\\b")?,
                char if char < ' ' => out.push(&format!("\\u{:04x}", char as u32))?,
                char if self.is_ascii && !matches!(char, ' '..='~') => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        out.push(&format!("\\u{unit:04x}"))?;
                    }
                }
                char => out.push_char(char)?,
            }
        }
        out.push("\"")
    }
}

fn number(float: f64) -> String {
    if float.is_nan() {
        "NaN".to_owned()
    } else if float.is_infinite() {
        if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        float_repr(float)
    }
}
