//! Python's `format % values`.

use std::rc::Rc;

use super::failure::{Result, fail};
use super::meter::{Meter, Writer};
use super::number_format;
use super::repr::{to_ascii, to_repr, to_str};
use super::value::{Text, Value};

#[derive(Default)]
struct Flags {
    is_left: bool,
    has_plus: bool,
    has_space: bool,
    has_zeros: bool,
    is_alternate: bool,
    /// True if the format is HTML, so that values are escaped.
    is_markup: bool,
}

/// The values of a format, taken one after the other or by name.
struct Values<'a> {
    all: &'a Value,
    at: usize,
}

impl Values<'_> {
    fn next(&mut self) -> Result<Value> {
        self.at += 1;
        let value = match self.all {
            Value::Tuple(items) => items.get(self.at - 1).cloned(),
            value if self.at == 1 => Some(value.clone()),
            _ => None,
        };
        match value {
            Some(value) => Ok(value),
            None => fail!("not enough arguments for format string"),
        }
    }

    /// True if a value was not used. Lists, dicts, ranges and undefined values may stay unused.
    fn has_left(&self) -> bool {
        match self.all {
            Value::Tuple(items) => self.at < items.len(),
            Value::List(_) | Value::Dict(_) | Value::Range(_) | Value::Undefined(_) => false,
            _ => self.at == 0,
        }
    }
}

pub(super) fn format(format: &Rc<Text>, values: &Value, meter: &Rc<Meter>) -> Result<Value> {
    let mut out = Writer::new(meter);
    let mut values = Values { all: values, at: 0 };
    let mut chars = format.chars().peekable();
    while let Some(char) = chars.next() {
        meter.steps(1)?;
        if char != '%' {
            out.push_char(char)?;
            continue;
        }
        let mut named = None;
        if chars.next_if_eq(&'(').is_some() {
            let Value::Dict(dict) = values.all else { fail!("format requires a mapping") };
            let (mut key, mut depth) = (String::new(), 1);
            loop {
                let Some(char) = chars.next() else { fail!("incomplete format key") };
                match char {
                    '(' => depth += 1,
                    ')' if depth == 1 => break,
                    ')' => depth -= 1,
                    _ => {}
                }
                key.push(char);
            }
            match dict.get_str(&key)? {
                Some(value) => named = Some(value.clone()),
                None => fail!("KeyError: '{key}'"),
            }
        }
        let mut flags = Flags::default();
        while let Some(flag) = chars.next_if(|char| matches!(char, '-' | '+' | ' ' | '0' | '#')) {
            match flag {
                '-' => flags.is_left = true,
                '+' => flags.has_plus = true,
                ' ' => flags.has_space = true,
                '0' => flags.has_zeros = true,
                _ => flags.is_alternate = true,
            }
        }
        let mut width = number(&mut chars, &mut values)?.unwrap_or(0);
        if width < 0 {
            flags.is_left = true;
            width = -width;
        }
        let mut precision = None;
        if chars.next_if_eq(&'.').is_some() {
            precision = Some(number(&mut chars, &mut values)?.unwrap_or(0).max(0) as usize);
        }
        while chars.next_if(|char| matches!(char, 'h' | 'l' | 'L')).is_some() {}
        let Some(kind) = chars.next() else { fail!("incomplete format") };
        if kind == '%' {
            out.push("%")?;
            continue;
        }
        let value = match named {
            Some(value) => value,
            None => values.next()?,
        };
        flags.is_markup = format.is_markup;
        conversion(&value, kind, &flags, width as usize, precision, &mut out, meter)?;
    }
    if values.has_left() {
        fail!("not all arguments converted during string formatting");
    }
    Value::text_as(meter, out.into_text(), format.is_markup)
}

/// Reads a width or precision; `*` takes it from the values.
fn number(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, values: &mut Values<'_>) -> Result<Option<i64>> {
    if chars.next_if_eq(&'*').is_some() {
        let Value::Int(int) = values.next()? else { fail!("* wants int") };
        return match i32::try_from(int) {
            Ok(int) => Ok(Some(int.into())),
            Err(_) => fail!("Python int too large to convert to C int"),
        };
    }
    let mut digits = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if digits.is_empty() {
        return Ok(None);
    }
    match digits.parse::<i32>() {
        Ok(int) => Ok(Some(int.into())),
        Err(_) => fail!("width too big"),
    }
}

fn conversion(
    value: &Value,
    kind: char,
    flags: &Flags,
    width: usize,
    precision: Option<usize>,
    out: &mut Writer,
    meter: &Rc<Meter>,
) -> Result<()> {
    let (mut sign, mut prefix, mut text, mut is_number) = ("", "", String::new(), false);
    match kind {
        's' | 'r' | 'a' => {
            text = match kind {
                's' => to_str(value, meter)?,
                'r' => to_repr(value, meter)?,
                _ => to_ascii(value, meter)?,
            };
            if flags.is_markup && !(kind == 's' && matches!(value, Value::Text(text) if text.is_markup)) {
                let mut escaped = Writer::new(meter);
                super::text::escape(&text, &mut escaped)?;
                text = escaped.into_text();
            }
            if let Some((at, _)) = precision.and_then(|precision| text.char_indices().nth(precision)) {
                text.truncate(at);
            }
        }
        'c' => match (value, value.as_int()) {
            (Value::Text(one), _) if one.chars().count() == 1 => text.push_str(one),
            (_, Some(code)) => match u32::try_from(code).ok().and_then(char::from_u32) {
                Some(char) => text.push(char),
                None => fail!("%c arg not in range(0x110000)"),
            },
            _ => fail!("%c requires int or char"),
        },
        'd' | 'i' | 'u' | 'o' | 'x' | 'X' => {
            let is_decimal = matches!(kind, 'd' | 'i' | 'u');
            let int = match (value, value.as_int()) {
                (_, Some(int)) => int,
                (Value::Float(float), _) if is_decimal => super::numbers::truncated(*float)?,
                _ if is_decimal => fail!("%{kind} format: a real number is required, not {}", value.type_name()),
                _ => fail!("%{kind} format: an integer is required, not {}", value.type_name()),
            };
            is_number = true;
            sign = sign_of(int < 0, flags);
            text = number_format::digits(int, kind);
            let missing = precision.unwrap_or(0).saturating_sub(text.len());
            meter.room(missing)?;
            text.insert_str(0, &"0".repeat(missing));
            if flags.is_alternate {
                prefix = match kind {
                    'o' => "0o",
                    'x' => "0x",
                    'X' => "0X",
                    _ => "",
                };
            }
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let Some(float) = value.as_float() else { fail!("must be real number, not {}", value.type_name()) };
            is_number = true;
            sign = sign_of(float.is_sign_negative() && !float.is_nan(), flags);
            text = number_format::float(float, kind, precision.unwrap_or(6), flags.is_alternate, false)?;
        }
        other => fail!("unsupported format character '{other}' (0x{:x})", other as u32),
    }
    let missing = width.saturating_sub(sign.len() + prefix.len() + text.chars().count());
    let fills_zeros = flags.has_zeros && is_number && !flags.is_left;
    if !flags.is_left && !fills_zeros {
        out.fill(' ', missing)?;
    }
    out.push(sign)?;
    out.push(prefix)?;
    if fills_zeros {
        out.fill('0', missing)?;
    }
    out.push(&text)?;
    if flags.is_left {
        out.fill(' ', missing)?;
    }
    Ok(())
}

fn sign_of(is_negative: bool, flags: &Flags) -> &'static str {
    match (is_negative, flags.has_plus, flags.has_space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
}
