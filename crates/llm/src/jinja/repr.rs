//! Python's `str` and `repr` of values, and `pprint`.

use std::rc::Rc;

use super::failure::{Result, fail};
use super::meter::{Meter, Writer};
use super::unicode::is_printable;
use super::value::{Function, Value, View};

/// Writes `str(value)`.
pub(super) fn write_str(value: &Value, out: &mut Writer, meter: &Rc<Meter>) -> Result<()> {
    match value {
        Value::Text(text) => out.push(text),
        Value::Undefined(_) => Ok(()),
        other => write_repr(other, out, meter),
    }
}

/// `str(value)`.
pub(super) fn to_str(value: &Value, meter: &Rc<Meter>) -> Result<String> {
    let mut out = Writer::new(meter);
    write_str(value, &mut out, meter)?;
    Ok(out.into_text())
}

/// `repr(value)`.
pub(super) fn to_repr(value: &Value, meter: &Rc<Meter>) -> Result<String> {
    let mut out = Writer::new(meter);
    write_repr(value, &mut out, meter)?;
    Ok(out.into_text())
}

pub(super) fn write_repr(value: &Value, out: &mut Writer, meter: &Rc<Meter>) -> Result<()> {
    let _level = meter.deeper()?;
    meter.steps(1)?;
    let sequence = |out: &mut Writer, begin: &str, values: &[Value], end: &str| {
        out.push(begin)?;
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                out.push(", ")?;
            }
            write_repr(value, out, meter)?;
        }
        out.push(end)
    };
    match value {
        Value::Undefined(_) => out.push("Undefined"),
        Value::None => out.push("None"),
        Value::Bool(bool) => out.push(if *bool { "True" } else { "False" }),
        Value::Int(int) => out.push(&int.to_string()),
        Value::Float(float) => out.push(&float_repr(*float)),
        Value::Text(text) if text.is_markup => {
            out.push("Markup(")?;
            quote(text, out)?;
            out.push(")")
        }
        Value::Text(text) => quote(text, out),
        Value::List(items) => sequence(out, "[", items, "]"),
        Value::Tuple(items) => sequence(out, "(", items, if items.len() == 1 { ",)" } else { ")" }),
        Value::Dict(dict) => {
            out.push("{")?;
            for (index, (key, value)) in dict.iter().enumerate() {
                if index > 0 {
                    out.push(", ")?;
                }
                write_repr(key, out, meter)?;
                out.push(": ")?;
                write_repr(value, out, meter)?;
            }
            out.push("}")
        }
        Value::View(view, dict) => {
            out.push(value.type_name())?;
            out.push("([")?;
            for (index, (key, value)) in dict.iter().enumerate() {
                if index > 0 {
                    out.push(", ")?;
                }
                match view {
                    View::Keys => write_repr(key, out, meter)?,
                    View::Values => write_repr(value, out, meter)?,
                    View::Items => {
                        out.push("(")?;
                        write_repr(key, out, meter)?;
                        out.push(", ")?;
                        write_repr(value, out, meter)?;
                        out.push(")")?;
                    }
                }
            }
            out.push("])")
        }
        Value::Range(range) => {
            let step = if range.step == 1 { String::new() } else { format!(", {}", range.step) };
            out.push(&format!("range({}, {}{step})", range.start, range.stop))
        }
        Value::Namespace(namespace) => {
            out.push("<Namespace ")?;
            let attributes = namespace.attributes.borrow().clone();
            write_repr(&Value::Dict(attributes), out, meter)?;
            out.push(">")
        }
        Value::Loop(of) => {
            let Some(length) = of.length else { return out.push("<LoopContext>") };
            out.push(&format!("<LoopContext {}/{length}>", of.index0.get() + 1))
        }
        Value::Function(Function::Macro(function)) => {
            out.push("<Macro ")?;
            quote(&function.node.name, out)?;
            out.push(">")
        }
        // Python writes their addresses.
        Value::Generator(_) => out.push("<generator object>"),
        Value::Function(Function::Global(name)) => out.push(&format!("<function {name}>")),
        Value::Function(Function::Method(method)) => {
            out.push(&format!("<built-in method {} of {} object>", method.1, method.0.type_name()))
        }
        Value::Function(Function::Cycler(_)) => out.push("<Cycler object>"),
        Value::Function(Function::Joiner(_)) => out.push("<Joiner object>"),
    }
}

/// Writes a string between quotes: single ones unless Python uses double ones.
fn quote(text: &str, out: &mut Writer) -> Result<()> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push_char(quote)?;
    for char in text.chars() {
        match char {
            '\\' => out.push("\\\\")?,
            '\n' => out.push("\\n")?,
            '\r' => out.push("\\r")?,
            '\t' => out.push("\\t")?,
            char if char == quote => {
                out.push("\\")?;
                out.push_char(char)?;
            }
            char if is_printable(char) => out.push_char(char)?,
            char => out.push(&escaped(char))?,
        }
    }
    out.push_char(quote)
}

fn escaped(char: char) -> String {
    match char as u32 {
        code @ ..=0xff => format!("\\x{code:02x}"),
        code @ 0x100..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// `ascii(value)`: its `repr` with escapes for characters beyond ASCII.
pub(super) fn to_ascii(value: &Value, meter: &Rc<Meter>) -> Result<String> {
    let mut out = Writer::new(meter);
    for char in to_repr(value, meter)?.chars() {
        if char.is_ascii() { out.push_char(char)? } else { out.push(&escaped(char))? }
    }
    Ok(out.into_text())
}

/// Python's shortest text of a float: with an exponent below 1e-4 and from 1e16 on, which has a sign and two digits.
pub(super) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let shortest = format!("{value:e}");
    let parts = shortest.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
    match parts {
        Some((digits, exponent)) if value != 0.0 && !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{value:?}"),
    }
}

/// Width of a line of `pprint`.
const WIDTH: usize = 80;

/// `pprint.pformat(value)`.
pub(super) fn pretty(value: &Value, meter: &Rc<Meter>) -> Result<String> {
    let mut out = Writer::new(meter);
    write_pretty(value, 0, 0, 1, &mut out, meter)?;
    Ok(out.into_text())
}

/// Writes a value that begins at a column. `allowance` characters follow it in its line.
fn write_pretty(
    value: &Value,
    indent: usize,
    allowance: usize,
    level: usize,
    out: &mut Writer,
    meter: &Rc<Meter>,
) -> Result<()> {
    let _level = meter.deeper()?;
    let repr = sorted_repr(value, meter)?;
    let room = WIDTH.saturating_sub(indent + allowance);
    if repr.chars().count() <= room {
        return out.push(&repr);
    }
    match value {
        Value::Dict(dict) => {
            out.push("{")?;
            let entries = sorted_entries(dict.iter(), meter)?;
            let last = entries.len().saturating_sub(1);
            for (index, (key, value)) in entries.iter().enumerate() {
                let key = sorted_repr(key, meter)?;
                out.push(&key)?;
                out.push(": ")?;
                let column = indent + key.chars().count() + 3;
                write_pretty(value, column, if index == last { allowance + 1 } else { 1 }, level + 1, out, meter)?;
                if index != last {
                    out.push(",\n")?;
                    out.fill(' ', indent + 1)?;
                }
            }
            out.push("}")
        }
        Value::List(items) | Value::Tuple(items) => {
            let (begin, end) = match value {
                Value::List(_) => ("[", "]"),
                _ => ("(", if items.len() == 1 { ",)" } else { ")" }),
            };
            out.push(begin)?;
            let last = items.len().saturating_sub(1);
            for (index, item) in items.iter().enumerate() {
                let after = if index == last { allowance + end.len() } else { 1 };
                write_pretty(item, indent + 1, after, level + 1, out, meter)?;
                if index != last {
                    out.push(",\n")?;
                    out.fill(' ', indent + 1)?;
                }
            }
            out.push(end)
        }
        Value::Text(text) if !text.is_empty() && !text.is_markup => {
            pretty_text(text, indent, allowance, level, out, meter)
        }
        _ => out.push(&repr),
    }
}

/// Writes a string as parts on lines of their own.
fn pretty_text(
    text: &str,
    indent: usize,
    allowance: usize,
    level: usize,
    out: &mut Writer,
    meter: &Rc<Meter>,
) -> Result<()> {
    let (indent, allowance) = if level == 1 { (indent + 1, allowance + 1) } else { (indent, allowance) };
    let quoted = |text: &str| -> Result<String> {
        let mut out = Writer::new(meter);
        quote(text, &mut out)?;
        Ok(out.into_text())
    };
    let mut chunks: Vec<String> = Vec::new();
    let lines = super::text::split_lines(text, true);
    let max = WIDTH.saturating_sub(indent);
    let last_line = lines.len().saturating_sub(1);
    for (index, line) in lines.iter().enumerate() {
        let is_last = index == last_line;
        let max_width = if is_last { max.saturating_sub(allowance) } else { max };
        let whole = quoted(line)?;
        if whole.chars().count() <= max_width {
            chunks.push(whole);
            continue;
        }
        // Each word keeps the white space after it.
        let words = words_with_space(line);
        let mut current = String::new();
        for (at, word) in words.iter().enumerate() {
            let candidate = format!("{current}{word}");
            meter.bytes(candidate.len())?;
            let max_width = if is_last && at == words.len() - 1 { max.saturating_sub(allowance) } else { max };
            if quoted(&candidate)?.chars().count() > max_width {
                if !current.is_empty() {
                    chunks.push(quoted(&current)?);
                }
                (*word).clone_into(&mut current);
            } else {
                current = candidate;
            }
        }
        if !current.is_empty() {
            chunks.push(quoted(&current)?);
        }
    }
    if let [chunk] = &chunks[..] {
        return out.push(chunk);
    }
    if level == 1 {
        out.push("(")?;
    }
    for (index, chunk) in chunks.iter().enumerate() {
        if index > 0 {
            out.push("\n")?;
            out.fill(' ', indent)?;
        }
        out.push(chunk)?;
    }
    if level == 1 {
        out.push(")")?;
    }
    Ok(())
}

/// The parts of a text that `\S*\s*` matches.
fn words_with_space(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(super::unicode::is_space).unwrap_or(rest.len());
        let (head, tail) = rest.split_at(word);
        let space = tail.find(|char| !super::unicode::is_space(char)).unwrap_or(tail.len());
        let (found, after) = rest.split_at(head.len() + space);
        words.push(found);
        rest = after;
    }
    words
}

/// `repr` with the keys of dicts in order.
fn sorted_repr(value: &Value, meter: &Rc<Meter>) -> Result<String> {
    to_repr(&sorted(value, meter)?, meter)
}

fn sorted(value: &Value, meter: &Rc<Meter>) -> Result<Value> {
    let _level = meter.deeper()?;
    meter.steps(1)?;
    let all = |values: &[Value]| values.iter().map(|value| sorted(value, meter)).collect::<Result<Vec<_>>>();
    Ok(match value {
        Value::Dict(dict) => {
            let mut copy = super::dict::Dict::new(meter)?;
            for (key, value) in sorted_entries(dict.iter(), meter)? {
                copy.insert(key, sorted(&value, meter)?)?;
            }
            Value::Dict(Rc::new(copy))
        }
        Value::List(items) => Value::list(meter, all(items)?)?,
        Value::Tuple(items) => Value::tuple(meter, all(items)?)?,
        other => other.clone(),
    })
}

fn sorted_entries<'a>(
    entries: impl Iterator<Item = &'a (Value, Value)>,
    meter: &Rc<Meter>,
) -> Result<Vec<(Value, Value)>> {
    let mut keyed = Vec::new();
    for (key, value) in entries {
        keyed.push((key.clone(), Value::tuple(meter, vec![key.clone(), value.clone()])?));
    }
    let mut sorted = Vec::new();
    for entry in super::operators::sort(keyed, false, meter)? {
        let Value::Tuple(entry) = entry else { fail!("an entry is no pair") };
        if let [key, value] = &entry[..] {
            sorted.push((key.clone(), value.clone()));
        }
    }
    Ok(sorted)
}
