//! Python's operators: arithmetic, equality, order, containment.

use std::cmp::Ordering;
use std::rc::Rc;

use super::ast::{Comparison, Operator};
use super::failure::{Result, fail};
use super::meter::{Meter, Writer};
use super::percent;
use super::text::escape;
use super::value::{Function, Items, Value};

/// The message for an integer that does not fit.
pub(super) const TOO_LARGE: &str = "an integer has more than 127 bits, which is the limit";

pub(super) fn binary(operator: Operator, left: &Value, right: &Value, meter: &Rc<Meter>) -> Result<Value> {
    if let (Operator::Modulo, Value::Text(format)) = (operator, left) {
        return percent::format(format, right, meter);
    }
    for operand in [left, right] {
        if let Value::Undefined(message) = operand {
            fail!("{message}");
        }
    }
    match (operator, left, right) {
        (Operator::Add, Value::Text(a), Value::Text(b)) => {
            let mut text = Writer::new(meter);
            let is_markup = a.is_markup || b.is_markup;
            for part in [a, b] {
                if is_markup && !part.is_markup { escape(part, &mut text)? } else { text.push(part)? }
            }
            return Value::text_as(meter, text.into_text(), is_markup);
        }
        (Operator::Add, Value::List(a), Value::List(b)) => return Ok(Value::List(joined(a, b, meter)?)),
        (Operator::Add, Value::Tuple(a), Value::Tuple(b)) => return Ok(Value::Tuple(joined(a, b, meter)?)),
        (Operator::Multiply, Value::Text(_) | Value::List(_) | Value::Tuple(_), times) => {
            if let Some(times) = times.as_int() {
                return repeated(left, times, meter);
            }
        }
        (Operator::Multiply, times, Value::Text(_) | Value::List(_) | Value::Tuple(_)) => {
            if let Some(times) = times.as_int() {
                return repeated(right, times, meter);
            }
        }
        _ => {}
    }
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return integers(operator, a, b);
    }
    if let (Some(a), Some(b)) = (left.as_float(), right.as_float()) {
        return floats(operator, a, b).map(Value::Float);
    }
    let sign = match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Modulo => "%",
        Operator::Power => "** or pow()",
    };
    let (left_type, right_type) = (left.type_name(), right.type_name());
    match (operator, left, right) {
        (Operator::Add, Value::Text(_), _) => {
            fail!("can only concatenate str (not \"{right_type}\") to str")
        }
        (Operator::Add, Value::List(_) | Value::Tuple(_), _) => {
            fail!("can only concatenate {left_type} (not \"{right_type}\") to {left_type}")
        }
        _ => fail!("unsupported operand type(s) for {sign}: '{left_type}' and '{right_type}'"),
    }
}

fn joined(a: &Rc<Items>, b: &Rc<Items>, meter: &Rc<Meter>) -> Result<Rc<Items>> {
    meter.room((a.len() + b.len()) * size_of::<Value>())?;
    Items::new(meter, a.iter().chain(b.iter()).cloned().collect())
}

fn repeated(value: &Value, times: i128, meter: &Rc<Meter>) -> Result<Value> {
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    match value {
        Value::Text(text) => {
            meter.room(text.len().saturating_mul(times))?;
            Value::text_as(meter, text.repeat(if text.is_empty() { 0 } else { times }), text.is_markup)
        }
        Value::List(items) | Value::Tuple(items) => {
            meter.room(items.len().saturating_mul(size_of::<Value>()).saturating_mul(times))?;
            let times = if items.is_empty() { 0 } else { times };
            let values = std::iter::repeat_n(items, times).flat_map(|items| items.iter().cloned()).collect();
            let items = Items::new(meter, values)?;
            Ok(if matches!(value, Value::List(_)) { Value::List(items) } else { Value::Tuple(items) })
        }
        _ => Ok(Value::None),
    }
}

fn integers(operator: Operator, a: i128, b: i128) -> Result<Value> {
    let checked = |value: Option<i128>| match value {
        Some(value) => Ok(Value::Int(value)),
        None => fail!("{TOO_LARGE}"),
    };
    match operator {
        Operator::Add => checked(a.checked_add(b)),
        Operator::Subtract => checked(a.checked_sub(b)),
        Operator::Multiply => checked(a.checked_mul(b)),
        Operator::Divide if b == 0 => fail!("division by zero"),
        Operator::Divide => Ok(Value::Float(a as f64 / b as f64)),
        Operator::FloorDivide | Operator::Modulo if b == 0 => fail!("integer division or modulo by zero"),
        Operator::FloorDivide => checked(a.checked_div(b).and_then(|quotient| {
            let is_below = a % b != 0 && (a < 0) != (b < 0);
            quotient.checked_sub(is_below.into())
        })),
        Operator::Modulo => {
            let rest = a.checked_rem(b).unwrap_or(0);
            Ok(Value::Int(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }))
        }
        Operator::Power if b < 0 && a == 0 => fail!("0.0 cannot be raised to a negative power"),
        Operator::Power if b < 0 => Ok(Value::Float((a as f64).powf(b as f64))),
        Operator::Power => match a {
            0 | 1 => Ok(Value::Int(if b == 0 { 1 } else { a })),
            -1 => Ok(Value::Int(if b % 2 == 0 { 1 } else { -1 })),
            _ => checked(u32::try_from(b).ok().and_then(|b| a.checked_pow(b))),
        },
    }
}

fn floats(operator: Operator, a: f64, b: f64) -> Result<f64> {
    Ok(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide if b == 0.0 => fail!("float division by zero"),
        Operator::Divide => a / b,
        Operator::FloorDivide if b == 0.0 => fail!("float floor division by zero"),
        Operator::Modulo if b == 0.0 => fail!("float modulo"),
        Operator::FloorDivide => {
            let rest = floor_rest(a, b);
            let quotient = (a - rest) / b;
            let floor = libm::floor(quotient);
            let nearest = if quotient - floor > 0.5 { floor + 1.0 } else { floor };
            if quotient == 0.0 { libm::copysign(0.0, a / b) } else { nearest }
        }
        Operator::Modulo => floor_rest(a, b),
        Operator::Power if a == 0.0 && b < 0.0 => fail!("0.0 cannot be raised to a negative power"),
        Operator::Power if a < 0.0 && a.is_finite() && b.is_finite() && b.fract() != 0.0 => {
            fail!("a negative number to the power of a fraction is complex, which is not supported")
        }
        Operator::Power => {
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                fail!("(34, 'Numerical result out of range')");
            }
            power
        }
    })
}

/// The rest of a division whose quotient is rounded down.
fn floor_rest(a: f64, b: f64) -> f64 {
    let rest = libm::fmod(a, b);
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
        rest + b
    } else if rest == 0.0 {
        libm::copysign(0.0, b)
    } else {
        rest
    }
}

pub(super) fn negative(value: &Value) -> Result<Value> {
    match (value, value.as_int()) {
        (Value::Undefined(message), _) => fail!("{message}"),
        (Value::Float(float), _) => Ok(Value::Float(-float)),
        (_, Some(int)) => Ok(Value::Int(-int)),
        _ => fail!("bad operand type for unary -: '{}'", value.type_name()),
    }
}

pub(super) fn positive(value: &Value) -> Result<Value> {
    match (value, value.as_int()) {
        (Value::Undefined(message), _) => fail!("{message}"),
        (Value::Float(float), _) => Ok(Value::Float(*float)),
        (_, Some(int)) => Ok(Value::Int(int)),
        _ => fail!("bad operand type for unary +: '{}'", value.type_name()),
    }
}

/// Python's `==`.
pub(super) fn equal(a: &Value, b: &Value, meter: &Rc<Meter>) -> Result<bool> {
    meter.steps(1)?;
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Text(a), Value::Text(b)) => {
            meter.bytes(a.len().min(b.len()))?;
            ***a == ***b
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            let _level = meter.deeper()?;
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !is_same_object(a, b) && !equal(a, b, meter)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(a), Value::Dict(b)) => {
            let _level = meter.deeper()?;
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, value) in a.iter() {
                let other = b.get(key)?;
                let Some(other) = other else { return Ok(false) };
                if !is_same_object(value, other) && !equal(value, other, meter)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::View(x, a), Value::View(y, b)) if x == y => {
            let (a, b) = (Value::Dict(a.clone()), Value::Dict(b.clone()));
            is_same_object(&a, &b) || *x != super::value::View::Values && equal_sets(*x, &a, &b, meter)?
        }
        (Value::Range(a), Value::Range(b)) => {
            let ends = |range: &super::value::Range| (range.len(), range.get(0), range.get(1));
            ends(a) == ends(b)
        }
        _ => match (a.as_int(), b.as_int()) {
            (Some(a), Some(b)) => a == b,
            _ => match (a.as_float(), b.as_float()) {
                (Some(a), Some(b)) => a == b,
                _ => is_same_object(a, b),
            },
        },
    })
}

/// Views of keys or items are equal as sets.
fn equal_sets(view: super::value::View, a: &Value, b: &Value, meter: &Rc<Meter>) -> Result<bool> {
    let (Value::Dict(a), Value::Dict(b)) = (a, b) else { return Ok(false) };
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, value) in a.iter() {
        match b.get(key)? {
            Some(other) if view == super::value::View::Keys || equal(value, other, meter)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Python's `is`: equality for singletons and integers, identity for objects.
pub(super) fn is_same_object(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Text(a), Value::Text(b)) => Rc::ptr_eq(a, b),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::Generator(a), Value::Generator(b)) => Rc::ptr_eq(a, b),
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        (Value::Loop(a), Value::Loop(b)) => Rc::ptr_eq(a, b),
        (Value::Function(Function::Global(a)), Value::Function(Function::Global(b))) => a == b,
        (Value::Function(Function::Macro(a)), Value::Function(Function::Macro(b))) => Rc::ptr_eq(a, b),
        (Value::Function(Function::Cycler(a)), Value::Function(Function::Cycler(b))) => Rc::ptr_eq(a, b),
        (Value::Function(Function::Joiner(a)), Value::Function(Function::Joiner(b))) => Rc::ptr_eq(a, b),
        _ => false,
    }
}

/// Compares two values in Python's order; `None` if one is NaN. `sign` is the operator that an error names.
pub(super) fn order(a: &Value, b: &Value, sign: &str, meter: &Rc<Meter>) -> Result<Option<Ordering>> {
    meter.steps(1)?;
    for operand in [a, b] {
        if let Value::Undefined(message) = operand {
            fail!("{message}");
        }
    }
    Ok(match (a, b) {
        (Value::Text(a), Value::Text(b)) => {
            meter.bytes(a.len().min(b.len()))?;
            Some((***a).cmp(&***b))
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            let _level = meter.deeper()?;
            for (x, y) in x.iter().zip(y.iter()) {
                if !is_same_object(x, y) && !equal(x, y, meter)? {
                    return order(x, y, sign, meter);
                }
            }
            Some(x.len().cmp(&y.len()))
        }
        _ => match (a.as_int(), b.as_int()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => match (a.as_float(), b.as_float()) {
                (Some(a), Some(b)) => a.partial_cmp(&b),
                _ => {
                    let (a, b) = (a.type_name(), b.type_name());
                    fail!("'{sign}' not supported between instances of '{a}' and '{b}'")
                }
            },
        },
    })
}

pub(super) fn is_less(a: &Value, b: &Value, meter: &Rc<Meter>) -> Result<bool> {
    Ok(order(a, b, "<", meter)? == Some(Ordering::Less))
}

/// Python's `in`.
pub(super) fn contains(container: &Value, value: &Value, meter: &Rc<Meter>) -> Result<bool> {
    match (container, value) {
        (Value::Text(text), Value::Text(part)) => {
            meter.bytes(text.len())?;
            return Ok(text.contains(&***part));
        }
        (Value::Text(_), value) => {
            if let Value::Undefined(message) = value {
                fail!("{message}");
            }
            fail!("'in <string>' requires string as left operand, not {}", value.type_name())
        }
        (Value::Dict(dict) | Value::View(super::value::View::Keys, dict), key) => return Ok(dict.get(key)?.is_some()),
        (Value::Range(range), value) if value.as_int().is_some() => {
            let offset = value.as_int().unwrap_or(0) - range.start;
            let index = offset.checked_div(range.step).filter(|index| index * range.step == offset);
            return Ok(index.is_some_and(|index| usize::try_from(index).is_ok_and(|index| index < range.len())));
        }
        _ => {}
    }
    let Ok(mut iter) = container.iterate() else {
        fail!("argument of type '{}' is not iterable", container.type_name());
    };
    while let Some(element) = iter.next(meter)? {
        if is_same_object(&element, value) || equal(&element, value, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn compare(comparison: Comparison, a: &Value, b: &Value, meter: &Rc<Meter>) -> Result<bool> {
    let ordered = |sign: &str, holds: fn(Ordering) -> bool| Ok(order(a, b, sign, meter)?.is_some_and(holds));
    match comparison {
        Comparison::Equal => equal(a, b, meter),
        Comparison::NotEqual => Ok(!equal(a, b, meter)?),
        Comparison::Less => ordered("<", Ordering::is_lt),
        Comparison::LessEqual => ordered("<=", Ordering::is_le),
        Comparison::Greater => ordered(">", Ordering::is_gt),
        Comparison::GreaterEqual => ordered(">=", Ordering::is_ge),
        Comparison::In => contains(b, a, meter),
        Comparison::NotIn => Ok(!contains(b, a, meter)?),
    }
}

/// Sorts by keys, stably.
pub(super) fn sort(keyed: Vec<(Value, Value)>, is_reverse: bool, meter: &Rc<Meter>) -> Result<Vec<Value>> {
    let mut keyed: Vec<Option<(Value, Value)>> = keyed.into_iter().map(Some).collect();
    let mut width = 1;
    while width < keyed.len() {
        let mut merged = Vec::with_capacity(keyed.len());
        for chunk in keyed.chunks_mut(2 * width) {
            let (left, right) = chunk.split_at_mut(width.min(chunk.len()));
            let (mut left, mut right) = (left.iter_mut().peekable(), right.iter_mut().peekable());
            loop {
                let takes_right = match (left.peek(), right.peek()) {
                    (Some(Some((a, _))), Some(Some((b, _)))) => {
                        if is_reverse {
                            is_less(a, b, meter)?
                        } else {
                            is_less(b, a, meter)?
                        }
                    }
                    (None, Some(_)) => true,
                    (None, None) => break,
                    _ => false,
                };
                let next = if takes_right { right.next() } else { left.next() };
                merged.push(next.and_then(Option::take));
            }
        }
        keyed = merged;
        width *= 2;
    }
    Ok(keyed.into_iter().flatten().map(|(_, value)| value).collect())
}
