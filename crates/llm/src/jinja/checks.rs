//! The tests of templates: `is defined` and the others.

use std::rc::Rc;

use super::arguments::Args;
use super::ast::{Comparison, Operator};
use super::failure::{Result, fail};
use super::filters;
use super::meter::Meter;
use super::operators::{binary, compare, equal, is_same_object};
use super::repr::to_str;
use super::text::{is_lower, is_upper};
use super::value::{Function, Value};

/// The names of all tests.
const NAMES: &[&str] = &[
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// Evaluates the test `name` on a value.
pub(super) fn check(name: &str, value: &Value, args: Args, meter: &Rc<Meter>) -> Result<bool> {
    let has_remainder = |divisor: &Value, expected: i128| -> Result<bool> {
        let remainder = binary(Operator::Modulo, value, divisor, meter)?;
        equal(&remainder, &Value::Int(expected), meter)
    };
    let comparison = match name {
        "!=" | "ne" => Some(Comparison::NotEqual),
        "<" | "lt" | "lessthan" => Some(Comparison::Less),
        "<=" | "le" => Some(Comparison::LessEqual),
        "==" | "eq" | "equalto" => Some(Comparison::Equal),
        ">" | "gt" | "greaterthan" => Some(Comparison::Greater),
        ">=" | "ge" => Some(Comparison::GreaterEqual),
        "in" => Some(Comparison::In),
        _ => None,
    };
    if let Some(comparison) = comparison {
        let [Some(other)] = args.bind(name, ["other"], 1)? else { return Ok(false) };
        return compare(comparison, value, &other, meter);
    }
    match name {
        "divisibleby" => {
            let [Some(divisor)] = args.bind(name, ["num"], 1)? else { return Ok(false) };
            return has_remainder(&divisor, 0);
        }
        "sameas" => {
            let [Some(other)] = args.bind(name, ["other"], 1)? else { return Ok(false) };
            return Ok(is_same_object(value, &other));
        }
        _ => {}
    }
    if !NAMES.contains(&name) {
        fail!("No test named '{name}'.");
    }
    args.none(name)?;
    Ok(match name {
        "odd" => has_remainder(&Value::Int(2), 1)?,
        "even" => has_remainder(&Value::Int(2), 0)?,
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some(),
        "string" => matches!(value, Value::Text(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "sequence" => matches!(
            value,
            Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Range(_) | Value::Undefined(_)
        ),
        "iterable" => value.iterate().is_ok() || matches!(value, Value::Loop(_)),
        "callable" => match value {
            Value::Function(Function::Cycler(_)) => false,
            value => matches!(value, Value::Function(_) | Value::Undefined(_) | Value::Loop(_)),
        },
        "escaped" => matches!(value, Value::Text(text) if text.is_markup),
        "lower" => is_lower(&to_str(value, meter)?),
        "upper" => is_upper(&to_str(value, meter)?),
        "filter" | "test" if super::dict::hash(value, meter).is_err() => {
            fail!("unhashable type: '{}'", value.type_name())
        }
        "filter" => value.as_str().is_some_and(|name| filters::NAMES.contains(&name)),
        _ => value.as_str().is_some_and(|name| NAMES.contains(&name)),
    })
}
