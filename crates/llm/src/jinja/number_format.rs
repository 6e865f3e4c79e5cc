//! Numbers as Python formats them, for `%`, `str.format` and the filters.

use super::failure::{Result, fail};

/// Maximum number of digits after the point.
const MAX_PRECISION: usize = 4096;

/// Formats the magnitude of a float in the form `e`, `f` or `g`; a capital form writes capital letters. `keeps_point` keeps the point and
/// the zeros that `g` drops. With `adds_zero`, an integer has a digit after its point.
pub(super) fn float(value: f64, kind: char, precision: usize, keeps_point: bool, adds_zero: bool) -> Result<String> {
    if precision > MAX_PRECISION {
        fail!("a number has more than {MAX_PRECISION} digits, which is the limit");
    }
    let is_capital = kind.is_ascii_uppercase();
    let cased = |text: String| if is_capital { text.to_uppercase() } else { text };
    let value = value.abs();
    if value.is_nan() {
        return Ok(cased("nan".to_owned()));
    }
    if value.is_infinite() {
        return Ok(cased("inf".to_owned()));
    }
    let text = match kind.to_ascii_lowercase() {
        'e' => with_exponent(value, precision, keeps_point),
        'f' => {
            let text = format!("{value:.precision$}");
            if precision == 0 && keeps_point { text + "." } else { text }
        }
        _ => {
            let precision = precision.max(1);
            let scientific = format!("{value:.*e}", precision - 1);
            let exponent: i64 = scientific.split_once('e').and_then(|(_, text)| text.parse().ok()).unwrap_or(0);
            let max = precision as i64 - i64::from(adds_zero);
            let text = if exponent < -4 || exponent >= max {
                with_exponent(value, precision - 1, keeps_point)
            } else {
                let digits = usize::try_from(precision as i64 - 1 - exponent).unwrap_or(0);
                let text = format!("{value:.digits$}");
                if digits == 0 && keeps_point { text + "." } else { text }
            };
            let (mantissa, exponent) = match text.split_once('e') {
                Some((mantissa, exponent)) => (mantissa.to_owned(), Some(exponent.to_owned())),
                None => (text, None),
            };
            let mut mantissa = mantissa;
            if !keeps_point && mantissa.contains('.') {
                mantissa.truncate(mantissa.trim_end_matches('0').trim_end_matches('.').len());
            }
            match exponent {
                Some(exponent) => format!("{mantissa}e{exponent}"),
                None if adds_zero && !mantissa.contains('.') => mantissa + ".0",
                None => mantissa,
            }
        }
    };
    Ok(cased(text))
}

/// One digit, the others after a point, and an exponent of two digits or more with its sign.
fn with_exponent(value: f64, precision: usize, keeps_point: bool) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let point = if precision == 0 && keeps_point { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{point}e{sign}{:02}", exponent.abs())
}

/// The digits of an integer without its sign.
pub(super) fn digits(value: i128, kind: char) -> String {
    let value = value.unsigned_abs();
    match kind {
        'b' => format!("{value:b}"),
        'o' => format!("{value:o}"),
        'x' => format!("{value:x}"),
        'X' => format!("{value:X}"),
        _ => value.to_string(),
    }
}

/// Separates groups of digits, with zeros before them up to a width.
pub(super) fn grouped(digits: &str, separator: char, group: usize, width: usize) -> String {
    let groups = |count: usize| count + count.saturating_sub(1) / group;
    let mut count = digits.len();
    while groups(count) < width {
        count += 1;
    }
    let zeros = count - digits.len();
    let mut text = String::with_capacity(groups(count));
    for (index, digit) in std::iter::repeat_n('0', zeros).chain(digits.chars()).enumerate() {
        if index > 0 && (count - index).is_multiple_of(group) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}
