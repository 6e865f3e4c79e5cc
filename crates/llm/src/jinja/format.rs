//! Python's `str.format`.

use std::rc::Rc;

use super::arguments::Args;
use super::attributes;
use super::failure::{Result, fail};
use super::meter::{Meter, Writer};
use super::number_format;
use super::repr::{float_repr, to_ascii, to_repr, to_str};
use super::value::Value;

/// Formats a text with arguments.
pub(super) fn format(text: &str, args: &Args, meter: &Rc<Meter>) -> Result<String> {
    let mut formatter = Formatter { args, next: Numbering::Unknown, meter };
    formatter.text(text, 2)
}

/// The numbering of fields, which the first numbered one decides.
#[derive(Clone, Copy)]
enum Numbering {
    Unknown,
    Automatic(usize),
    Manual,
}

struct Formatter<'a> {
    args: &'a Args,
    next: Numbering,
    meter: &'a Rc<Meter>,
}

impl Formatter<'_> {
    fn text(&mut self, text: &str, depth: u32) -> Result<String> {
        let Some(depth) = depth.checked_sub(1).or((!text.contains('{')).then_some(0)) else {
            fail!("Max string recursion exceeded")
        };
        let mut out = Writer::new(self.meter);
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(at);
            out.push(before)?;
            let is_open = after.starts_with('{');
            let after = after.get(1..).unwrap_or_default();
            if after.starts_with(if is_open { '{' } else { '}' }) {
                out.push(if is_open { "{" } else { "}" })?;
                rest = after.get(1..).unwrap_or_default();
                continue;
            }
            if !is_open {
                fail!("Single '}}' encountered in format string");
            }
            let (field, after) = field(after)?;
            out.push(&self.field(field, depth)?)?;
            rest = after;
        }
        out.push(rest)?;
        Ok(out.into_text())
    }

    /// A field: its name, conversion and specification.
    fn field(&mut self, field: &str, depth: u32) -> Result<String> {
        self.meter.bytes(field.len())?;
        let (end, mut brackets) = (field.len(), 0);
        let mut name_end = end;
        for (at, char) in field.char_indices() {
            match char {
                '[' => brackets += 1,
                ']' => brackets = 0,
                '!' | ':' if brackets == 0 => {
                    name_end = at;
                    break;
                }
                _ => {}
            }
        }
        let (name, rest) = field.split_at(name_end);
        let mut spec = rest;
        let mut conversion = None;
        if let Some(after) = rest.strip_prefix('!') {
            let mut chars = after.chars();
            conversion = chars.next();
            spec = chars.as_str();
            if !spec.is_empty() && !spec.starts_with(':') {
                fail!("expected ':' after conversion specifier");
            }
            if conversion.is_none() {
                fail!("end of string while looking for conversion specifier");
            }
        }
        let value = self.value(name)?;
        let spec = self.text(spec.strip_prefix(':').unwrap_or(spec), depth)?;
        match conversion {
            None => format_value(&value, &spec, self.meter),
            Some('s') => text_value(&to_str(&value, self.meter)?, &spec, self.meter),
            Some('r') => text_value(&to_repr(&value, self.meter)?, &spec, self.meter),
            Some('a') => text_value(&to_ascii(&value, self.meter)?, &spec, self.meter),
            Some(other) => fail!("Unknown conversion specifier {other}"),
        }
    }

    /// The value of a name with attributes and indices.
    fn value(&mut self, name: &str) -> Result<Value> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(end);
        let index = if first.is_empty() {
            match self.next {
                Numbering::Manual => {
                    fail!("cannot switch from manual field specification to automatic field numbering")
                }
                Numbering::Unknown => {
                    self.next = Numbering::Automatic(1);
                    Some(0)
                }
                Numbering::Automatic(index) => {
                    self.next = Numbering::Automatic(index + 1);
                    Some(index)
                }
            }
        } else if first.bytes().all(|byte| byte.is_ascii_digit()) {
            if matches!(self.next, Numbering::Automatic(_)) {
                fail!("cannot switch from automatic field numbering to manual field specification");
            }
            self.next = Numbering::Manual;
            Some(first.parse().unwrap_or(usize::MAX))
        } else {
            None
        };
        let value = match index {
            Some(index) => self.args.positional.get(index),
            None => self.args.named.iter().find(|(name, _)| **name == *first).map(|(_, value)| value),
        };
        let mut value = match (value, index) {
            (Some(value), _) => value.clone(),
            (None, Some(index)) => fail!("Replacement index {index} out of range for positional args tuple"),
            (None, None) => fail!("KeyError: '{first}'"),
        };
        while !rest.is_empty() {
            self.meter.steps(1)?;
            if let Some(after) = rest.strip_prefix('.') {
                let (name, after) = after.split_at(after.find(['.', '[']).unwrap_or(after.len()));
                if name.is_empty() {
                    fail!("Empty attribute in format string");
                }
                value = attributes::get_attribute(&value, name, self.meter)?;
                rest = after;
            } else {
                let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
                    fail!("Missing ']' in format string")
                };
                let key = match index.parse::<i64>() {
                    Ok(int) if index.bytes().all(|byte| byte.is_ascii_digit()) => Value::Int(int.into()),
                    _ => Value::text(self.meter, index)?,
                };
                value = attributes::get_item(&value, &key, self.meter)?;
                rest = after;
            }
        }
        Ok(value)
    }
}

/// A field up to its bracket, and what follows.
fn field(text: &str) -> Result<(&str, &str)> {
    let mut depth = 1;
    for (at, char) in text.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let (field, after) = text.split_at(at);
            return Ok((field, after.get(1..).unwrap_or_default()));
        }
    }
    if text.is_empty() {
        fail!("Single '{{' encountered in format string");
    }
    fail!("expected '}}' before end of string")
}

/// `[[fill]align][sign][z][#][0][width][grouping][.precision][type]`.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    has_no_negative_zero: bool,
    is_alternate: bool,
    has_zeros: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Spec {
    fn of(text: &str) -> Result<Self> {
        let mut spec = Self::default();
        let mut chars = text.chars().peekable();
        let is_align = |char: &char| matches!(char, '<' | '>' | '=' | '^');
        let mut ahead = text.chars();
        let (first, second) = (ahead.next(), ahead.next());
        if second.as_ref().is_some_and(is_align) {
            (spec.fill, spec.align) = (first, second);
            chars.next();
            chars.next();
        } else if first.as_ref().is_some_and(is_align) {
            spec.align = first;
            chars.next();
        }
        spec.sign = chars.next_if(|char| matches!(char, '+' | '-' | ' '));
        spec.has_no_negative_zero = chars.next_if_eq(&'z').is_some();
        spec.is_alternate = chars.next_if_eq(&'#').is_some();
        spec.has_zeros = spec.fill.is_none() && chars.next_if_eq(&'0').is_some();
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Result<Option<usize>> {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            match digits.parse::<i32>() {
                _ if digits.is_empty() => Ok(None),
                Ok(int) => Ok(Some(int as usize)),
                Err(_) => fail!("Too many decimal digits in format string"),
            }
        };
        spec.width = number(&mut chars)?.unwrap_or(0);
        spec.grouping = chars.next_if(|char| matches!(char, ',' | '_'));
        if spec.grouping.is_some() && chars.next_if(|char| matches!(char, ',' | '_')).is_some() {
            fail!("Cannot specify both ',' and '_'.");
        }
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = number(&mut chars)?;
            if spec.precision.is_none() {
                fail!("Format specifier missing precision");
            }
        }
        spec.kind = chars.next();
        if chars.next().is_some() {
            fail!("Invalid format specifier");
        }
        Ok(spec)
    }
}

/// `format(value, spec)`.
fn format_value(value: &Value, spec: &str, meter: &Rc<Meter>) -> Result<String> {
    if spec.is_empty() {
        return to_str(value, meter);
    }
    match value {
        Value::Text(text) => text_value(text, spec, meter),
        Value::Undefined(_) => text_value("", spec, meter),
        Value::Bool(_) | Value::Int(_) => {
            let spec = Spec::of(spec)?;
            let int = value.as_int().unwrap_or(0);
            match spec.kind {
                None | Some('b' | 'c' | 'd' | 'o' | 'x' | 'X' | 'n') => int_value(int, &spec, meter),
                _ => float_value(int as f64, &spec, "int", meter),
            }
        }
        Value::Float(float) => float_value(*float, &Spec::of(spec)?, "float", meter),
        other => fail!("unsupported format string passed to {}.__format__", other.type_name()),
    }
}

fn text_value(text: &str, spec: &str, meter: &Rc<Meter>) -> Result<String> {
    let spec = Spec::of(spec)?;
    match spec.kind {
        None | Some('s') => {}
        Some(kind) => fail!("Unknown format code '{kind}' for object of type 'str'"),
    }
    if spec.sign.is_some() {
        fail!("Sign not allowed in string format specifier");
    }
    if spec.is_alternate {
        fail!("Alternate form (#) not allowed in string format specifier");
    }
    if spec.align == Some('=') {
        fail!("'=' alignment not allowed in string format specifier");
    }
    if let Some(grouping) = spec.grouping {
        fail!("Cannot specify '{grouping}' with 's'.");
    }
    let end = spec.precision.and_then(|precision| text.char_indices().nth(precision)).map(|(at, _)| at);
    aligned("", text.get(..end.unwrap_or(text.len())).unwrap_or_default(), &spec, '<', meter)
}

fn sign_of(is_negative: bool, spec: &Spec) -> &'static str {
    match spec.sign {
        _ if is_negative => "-",
        Some('+') => "+",
        Some(' ') => " ",
        _ => "",
    }
}

fn int_value(int: i128, spec: &Spec, meter: &Rc<Meter>) -> Result<String> {
    if spec.precision.is_some() {
        fail!("Precision not allowed in integer format specifier");
    }
    if spec.has_no_negative_zero {
        fail!("Negative zero coercion (z) not allowed in format specifier with integer format code");
    }
    let kind = spec.kind.unwrap_or('d');
    if kind == 'c' {
        if spec.sign.is_some() {
            fail!("Sign not allowed with integer format specifier 'c'");
        }
        let Some(char) = u32::try_from(int).ok().and_then(char::from_u32) else {
            fail!("%c arg not in range(0x110000)")
        };
        return aligned("", char.encode_utf8(&mut [0; 4]), spec, '>', meter);
    }
    let prefix = match kind {
        'b' if spec.is_alternate => "0b",
        'o' if spec.is_alternate => "0o",
        'x' if spec.is_alternate => "0x",
        'X' if spec.is_alternate => "0X",
        _ => "",
    };
    let group = match (spec.grouping, kind) {
        (Some(','), 'b' | 'o' | 'x' | 'X') => fail!("Cannot specify ',' with '{kind}'."),
        (Some(grouping), 'n') => fail!("Cannot specify '{grouping}' with 'n'."),
        (_, 'b' | 'o' | 'x' | 'X') => 4,
        _ => 3,
    };
    let head = format!("{}{prefix}", sign_of(int < 0, spec));
    number(&head, &number_format::digits(int, kind), "", group, spec, meter)
}

fn float_value(float: f64, spec: &Spec, type_name: &str, meter: &Rc<Meter>) -> Result<String> {
    let kind = spec.kind;
    let text = match kind {
        None if spec.precision.is_none() => float_repr(float.abs()),
        None => number_format::float(float, 'g', spec.precision.unwrap_or(6), spec.is_alternate, true)?,
        Some('%') => {
            number_format::float(float * 100.0, 'f', spec.precision.unwrap_or(6), spec.is_alternate, false)? + "%"
        }
        Some('n') => number_format::float(float, 'g', spec.precision.unwrap_or(6), spec.is_alternate, false)?,
        Some(kind @ ('e' | 'E' | 'f' | 'F' | 'g' | 'G')) => {
            number_format::float(float, kind, spec.precision.unwrap_or(6), spec.is_alternate, false)?
        }
        Some(kind) => fail!("Unknown format code '{kind}' for object of type '{type_name}'"),
    };
    let is_zero = text.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'%'));
    let is_negative = float.is_sign_negative() && !float.is_nan() && !(spec.has_no_negative_zero && is_zero);
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(end);
    number(sign_of(is_negative, spec), whole, rest, 3, spec, meter)
}

/// A number: its sign, its whole digits, and what follows them.
fn number(head: &str, whole: &str, rest: &str, group: usize, spec: &Spec, meter: &Rc<Meter>) -> Result<String> {
    meter.room(spec.width)?;
    // Zeros that fill the width are digits, which are grouped too.
    let fills_zeros = spec.has_zeros && spec.align.is_none() || spec.align == Some('=') && spec.fill == Some('0');
    let width = if fills_zeros { spec.width.saturating_sub(head.len() + rest.len()) } else { 0 };
    let whole = match spec.grouping {
        Some(separator) if !whole.is_empty() => number_format::grouped(whole, separator, group, width),
        _ => whole.to_owned(),
    };
    aligned(head, &format!("{whole}{rest}"), spec, '>', meter)
}

/// Fills a field up to its width.
fn aligned(head: &str, text: &str, spec: &Spec, default: char, meter: &Rc<Meter>) -> Result<String> {
    let missing = spec.width.saturating_sub(head.len() + text.chars().count());
    let fill = spec.fill.unwrap_or(if spec.has_zeros { '0' } else { ' ' });
    let align = spec.align.unwrap_or(if spec.has_zeros && default == '>' { '=' } else { default });
    let (before, between, after) = match align {
        '<' => (0, 0, missing),
        '^' => (missing / 2, 0, missing - missing / 2),
        '=' => (0, missing, 0),
        _ => (missing, 0, 0),
    };
    let mut out = Writer::new(meter);
    out.fill(fill, before)?;
    out.push(head)?;
    out.fill(fill, between)?;
    out.push(text)?;
    out.fill(fill, after)?;
    Ok(out.into_text())
}
