//! Python's `int`, `float` and `round`, and the methods of numbers.

use std::rc::Rc;

use super::arguments::{self, Args};
use super::failure::{Result, fail};
use super::meter::Meter;
use super::operators::TOO_LARGE;
use super::unicode;
use super::value::Value;

/// `int(value)` of a float.
pub(super) fn truncated(float: f64) -> Result<i128> {
    if float.is_nan() {
        fail!("cannot convert float NaN to integer");
    }
    if float.is_infinite() {
        fail!("cannot convert float infinity to integer");
    }
    if float.abs() >= 1.7e38 {
        fail!("{TOO_LARGE}");
    }
    Ok(float as i128)
}

/// The digits of a number as ASCII, without the white space around them. `None` for other characters.
fn plain(text: &str) -> Option<String> {
    let text = text.trim_matches(unicode::is_space);
    text.chars()
        .map(|char| match char {
            char if char.is_ascii() => Some(char),
            // Decimal digits of other scripts come ten by ten.
            char if unicode::is_decimal(char) => {
                let code = char as u32;
                let value = (0..10).find(|value| {
                    let zero = code - value;
                    char::from_u32(zero).is_some_and(unicode::is_decimal)
                        && !char::from_u32(zero.wrapping_sub(1)).is_some_and(unicode::is_decimal)
                });
                char::from_digit(value.unwrap_or((code + 2) % 10), 10)
            }
            _ => None,
        })
        .collect()
}

/// Removes single underscores between digits. `None` for other underscores.
fn without_underscores(text: &str) -> Option<String> {
    let is_wrong = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    (!is_wrong).then(|| text.replace('_', ""))
}

/// `int(text, base)`. `None` where Python raises `ValueError`.
pub(super) fn parse_int(text: &str, base: u32) -> Result<Option<i128>> {
    let Some(text) = plain(text) else { return Ok(None) };
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)];
    let found = prefixed.iter().find(|(prefix, radix)| lower.starts_with(prefix) && (base == *radix || base == 0));
    let (digits, radix) = match found {
        // An underscore may follow the prefix.
        Some((_, radix)) => (lower.get(2..).map(|digits| digits.strip_prefix('_').unwrap_or(digits)), *radix),
        None if base == 0
            && lower.len() > 1
            && lower.starts_with('0')
            && lower.bytes().any(|byte| byte != b'0' && byte != b'_') =>
        {
            return Ok(None);
        }
        None => (Some(&*lower), if base == 0 { 10 } else { base }),
    };
    let Some(digits) = digits.and_then(without_underscores) else { return Ok(None) };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Ok(None);
    }
    let digits = if is_negative { format!("-{digits}") } else { digits };
    match i128::from_str_radix(&digits, radix) {
        Ok(int) => Ok(Some(int)),
        Err(_) => fail!("{TOO_LARGE}"),
    }
}

/// `float(text)`. `None` where Python raises `ValueError`.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let text = plain(text)?.to_ascii_lowercase();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(&text);
    if matches!(unsigned, "inf" | "infinity" | "nan") {
        return text.parse().ok();
    }
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = unsigned.as_bytes();
    // Underscores stand between digits, and nothing else but digits, a point and an exponent is allowed.
    let is_right = bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'_' => is_digit(at.checked_sub(1).and_then(|before| bytes.get(before))) && is_digit(bytes.get(at + 1)),
        b'+' | b'-' => at > 0 && bytes.get(at - 1) == Some(&b'e'),
        b'0'..=b'9' | b'.' | b'e' => true,
        _ => false,
    });
    if is_right { text.replace('_', "").parse().ok() } else { None }
}

/// `round(value, digits)` of a float: to the nearest decimal, and to an even digit between two.
pub(super) fn round(value: f64, digits: i128) -> f64 {
    if !value.is_finite() {
        return value;
    }
    match usize::try_from(digits) {
        Ok(digits) if digits > 330 => value,
        Ok(digits) => format!("{value:.digits$}").parse().unwrap_or(value),
        Err(_) if digits < -310 => libm::copysign(0.0, value),
        Err(_) => {
            let power = 10_f64.powf(-digits as f64);
            let scaled = value / power;
            let rounded = libm::rint(scaled);
            rounded * power
        }
    }
}

/// `round(value, digits)` of an integer.
pub(super) fn round_int(value: i128, digits: i128) -> Result<i128> {
    if digits >= 0 {
        return Ok(value);
    }
    let Some(power) = u32::try_from(-digits).ok().and_then(|digits| 10_i128.checked_pow(digits)) else { return Ok(0) };
    let rest = value.rem_euclid(power);
    let down = value - rest;
    let is_up = rest > power / 2 || rest == power / 2 && (down / power) % 2 != 0;
    match down.checked_add(if is_up { power } else { 0 }) {
        Some(rounded) => Ok(rounded),
        None => fail!("{TOO_LARGE}"),
    }
}

/// Attributes of integers and floats, of which some are values and others methods.
pub(super) fn attribute(value: &Value, name: &str) -> Option<Value> {
    let is_float = matches!(value, Value::Float(_));
    match name {
        "real" => Some(value.as_int().map_or_else(|| value.clone(), Value::Int)),
        "imag" => Some(if is_float { Value::Float(0.0) } else { Value::Int(0) }),
        "numerator" if !is_float => value.as_int().map(Value::Int),
        "denominator" if !is_float => Some(Value::Int(1)),
        _ => None,
    }
}

pub(super) fn is_method(value: &Value, name: &str) -> bool {
    match value {
        Value::Float(_) => matches!(name, "as_integer_ratio" | "conjugate" | "fromhex" | "hex" | "is_integer"),
        _ => matches!(name, "as_integer_ratio" | "bit_count" | "bit_length" | "conjugate" | "from_bytes" | "to_bytes"),
    }
}

pub(super) fn call(value: &Value, name: &str, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    if matches!(name, "fromhex" | "hex" | "from_bytes" | "to_bytes") {
        fail!("{}.{name}() is not supported in chat templates", value.type_name());
    }
    args.none(name)?;
    Ok(match (value, name) {
        (Value::Float(float), "is_integer") => Value::Bool(float.is_finite() && float.fract() == 0.0),
        (Value::Float(float), "as_integer_ratio") => {
            let (mut numerator, mut denominator) = (*float, 1_i128);
            while numerator.is_finite() && numerator.fract() != 0.0 {
                numerator *= 2.0;
                denominator = match denominator.checked_mul(2) {
                    Some(denominator) => denominator,
                    None => fail!("{TOO_LARGE}"),
                };
            }
            Value::tuple(meter, vec![Value::Int(truncated(numerator)?), Value::Int(denominator)])?
        }
        (Value::Float(float), _) => Value::Float(*float),
        _ => {
            let int = value.as_int().unwrap_or(0);
            match name {
                "bit_length" => Value::Int((128 - int.unsigned_abs().leading_zeros()).into()),
                "bit_count" => Value::Int(int.unsigned_abs().count_ones().into()),
                "as_integer_ratio" => Value::tuple(meter, vec![Value::Int(int), Value::Int(1)])?,
                _ => Value::Int(int),
            }
        }
    })
}

/// The filter `round`.
pub(super) fn round_filter(value: &Value, args: Args) -> Result<Value> {
    let [precision, method] = args.bind("round", ["precision", "method"], 0)?;
    let precision = arguments::int(precision.as_ref(), 0)?;
    let method = arguments::text(method.as_ref())?;
    let Some(float) = value.as_float() else {
        if let Value::Undefined(message) = value {
            fail!("{message}");
        }
        fail!("type {} doesn't define __round__ method", value.type_name())
    };
    let method = method.as_deref().map_or("common", |method| &**method);
    match method {
        "common" => match value.as_int() {
            Some(int) => Ok(Value::Int(round_int(int, precision)?)),
            None => Ok(Value::Float(round(float, precision))),
        },
        "ceil" | "floor" => {
            let power = 10_f64.powf(precision as f64);
            let scaled = float * power;
            if !scaled.is_finite() {
                fail!("cannot convert float infinity to integer");
            }
            let whole = if method == "ceil" { libm::ceil(scaled) } else { libm::floor(scaled) };
            // Python divides an integer, which has no negative zero.
            Ok(Value::Float((whole + 0.0) / power))
        }
        _ => fail!("method must be common, ceil or floor"),
    }
}

/// The filter `filesizeformat`.
pub(super) fn file_size(value: &Value, args: Args) -> Result<String> {
    let [binary] = args.bind("filesizeformat", ["binary"], 0)?;
    let is_binary = arguments::is_true(binary.as_ref(), false);
    let bytes = to_float(value)?;
    let base = if is_binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return Ok("1 Byte".to_owned());
    }
    if bytes < base {
        return Ok(format!("{} Bytes", truncated(bytes)?));
    }
    let prefixes = if is_binary {
        ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"]
    } else {
        ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"]
    };
    let mut unit = base;
    let mut text = String::new();
    for prefix in prefixes {
        unit *= base;
        text = format!("{:.1} {prefix}", base * bytes / unit);
        if bytes < unit {
            break;
        }
    }
    Ok(text)
}

/// `float(value)`.
fn to_float(value: &Value) -> Result<f64> {
    match (value, value.as_float()) {
        (Value::Undefined(message), _) => fail!("{message}"),
        (Value::Text(text), _) => match parse_float(text) {
            Some(float) => Ok(float),
            None => fail!("could not convert string to float: '{}'", &***text),
        },
        (_, Some(float)) => Ok(float),
        _ => fail!("float() argument must be a string or a real number, not '{}'", value.type_name()),
    }
}

/// The filter `int`.
pub(super) fn int_filter(value: &Value, args: Args) -> Result<Value> {
    let [default, base] = args.bind("int", ["default", "base"], 0)?;
    let base = arguments::int(base.as_ref(), 10)?;
    let base = u32::try_from(base).ok().filter(|base| *base == 0 || (2..=36).contains(base));
    let default = default.unwrap_or(Value::Int(0));
    let of_float = |float: f64| if float.is_finite() { truncated(float).map(Value::Int) } else { Ok(default.clone()) };
    match value {
        Value::Undefined(message) => fail!("{message}"),
        Value::Text(text) => {
            if let Some(base) = base
                && let Some(int) = parse_int(text, base)?
            {
                return Ok(Value::Int(int));
            }
            parse_float(text).map_or_else(|| Ok(default.clone()), of_float)
        }
        Value::Float(float) if float.is_infinite() => fail!("cannot convert float infinity to integer"),
        Value::Float(float) => of_float(*float),
        _ => Ok(value.as_int().map_or(default, Value::Int)),
    }
}

/// The filter `float`.
pub(super) fn float_filter(value: &Value, args: Args) -> Result<Value> {
    let [default] = args.bind("float", ["default"], 0)?;
    match value {
        Value::Undefined(message) => fail!("{message}"),
        value => Ok(to_float(value).map_or_else(|_| default.unwrap_or(Value::Float(0.0)), Value::Float)),
    }
}
