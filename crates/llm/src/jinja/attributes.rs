//! Attributes, items and slices of values, and calls of their methods.

use std::rc::Rc;

use super::arguments::{self, Args};
use super::dict::Dict;
use super::failure::{Result, fail};
use super::meter::Meter;
use super::numbers;
use super::operators::equal;
use super::repr::to_repr;
use super::text;
use super::value::{Function, Items, Text, Value, View};

/// Returns an attribute that Python has: a method or another value. Methods that change a value are refused when they are called.
fn python_attribute(value: &Value, name: &str, meter: &Rc<Meter>) -> Result<Option<Value>> {
    let method = || Value::Function(Function::Method(Rc::new((value.clone(), name.into()))));
    let unsafe_use = || {
        let name_of_type = value.type_name();
        Value::undefined(format!("access to attribute '{name}' of '{name_of_type}' object is unsafe."))
    };
    let found = match value {
        Value::Namespace(_) => None,
        _ if name.starts_with("__") && name.ends_with("__") => Some(unsafe_use()),
        Value::Text(text) => {
            let is_method = text::METHODS.contains(&name) || text.is_markup && matches!(name, "striptags" | "unescape");
            is_method.then(method)
        }
        Value::List(_) => match name {
            "copy" | "count" | "index" => Some(method()),
            "append" | "clear" | "extend" | "insert" | "pop" | "remove" | "reverse" | "sort" => Some(unsafe_use()),
            _ => None,
        },
        Value::Tuple(items) => match name {
            "count" | "index" => Some(method()),
            "grouper" if items.is_group => items.first().cloned(),
            "list" if items.is_group => items.get(1).cloned(),
            _ => None,
        },
        Value::Dict(_) => match name {
            "copy" | "fromkeys" | "get" | "items" | "keys" | "values" => Some(method()),
            "clear" | "pop" | "popitem" | "setdefault" | "update" => Some(unsafe_use()),
            _ => None,
        },
        Value::View(view, dict) => match name {
            "mapping" => Some(Value::Dict(dict.clone())),
            "isdisjoint" if *view != View::Values => Some(method()),
            _ => None,
        },
        Value::Range(range) => match name {
            "start" => Some(Value::Int(range.start)),
            "stop" => Some(Value::Int(range.stop)),
            "step" => Some(Value::Int(range.step)),
            "count" | "index" => Some(method()),
            _ => None,
        },
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            numbers::attribute(value, name).or_else(|| numbers::is_method(value, name).then(method))
        }
        Value::Loop(of) => {
            let int = |int: usize| Some(Value::Int(int as i128));
            let index0 = of.index0.get();
            match name {
                "index" => int(index0 + 1),
                "index0" => int(index0),
                "length" => of.length.and_then(int),
                "revindex" => of.length.and_then(|length| int(length - index0)),
                "revindex0" => of.length.and_then(|length| int(length - index0 - 1)),
                "first" => Some(Value::Bool(index0 == 0)),
                "last" => Some(Value::Bool(of.after.borrow().is_none())),
                "depth" => int(of.depth0 + 1),
                "depth0" => int(of.depth0),
                "previtem" if index0 == 0 => Some(Value::undefined("there is no previous item")),
                "previtem" => Some(of.before.borrow().clone()),
                "nextitem" => {
                    let after = of.after.borrow().clone();
                    Some(after.unwrap_or_else(|| Value::undefined("there is no next item")))
                }
                "cycle" | "changed" => Some(method()),
                _ => None,
            }
        }
        Value::Function(Function::Global("dict")) if name == "fromkeys" => Some(method()),
        Value::Function(Function::Macro(function)) => {
            let node = &function.node;
            match name {
                "name" => Some(Value::text(meter, &*node.name)?),
                "arguments" => {
                    let names = node.parameters.iter().map(|(name, _)| Value::text(meter, &**name));
                    Some(Value::tuple(meter, names.collect::<Result<Vec<_>>>()?)?)
                }
                "catch_kwargs" => Some(Value::Bool(node.takes_kwargs)),
                "catch_varargs" => Some(Value::Bool(node.takes_varargs)),
                "caller" => Some(Value::Bool(node.takes_caller)),
                _ => None,
            }
        }
        Value::Function(Function::Cycler(cycler)) => match name {
            "current" => cycler.items.get(cycler.at.get()).cloned(),
            "items" => Some(Value::Tuple(cycler.items.clone())),
            "pos" => Some(Value::Int(cycler.at.get() as i128)),
            "next" | "reset" => Some(method()),
            _ => None,
        },
        _ => None,
    };
    Ok(found)
}

/// `value[key]` of Python, or `None` where that raises.
fn python_item(value: &Value, key: &Value, meter: &Rc<Meter>) -> Result<Option<Value>> {
    let index = |len: usize| {
        let index = key.as_int()?;
        usize::try_from(if index < 0 { index + len as i128 } else { index }).ok()
    };
    Ok(match value {
        Value::Dict(dict) => {
            // A key that has no hash is none.
            if matches!(key, Value::List(_) | Value::Dict(_)) { None } else { dict.get(key)?.cloned() }
        }
        Value::List(items) | Value::Tuple(items) => index(items.len()).and_then(|index| items.get(index).cloned()),
        Value::Text(text) if key.as_int().is_some() => {
            meter.bytes(text.len())?;
            let char = index(text.chars().count()).and_then(|index| text.chars().nth(index));
            char.map(|char| Value::text_as(meter, char.into(), text.is_markup)).transpose()?
        }
        Value::Range(range) => index(range.len()).and_then(|index| range.get(index)).map(Value::Int),
        _ => None,
    })
}

fn namespace_attribute(value: &Value, name: &str) -> Result<Option<Value>> {
    let Value::Namespace(namespace) = value else { return Ok(None) };
    let attributes = namespace.attributes.borrow().clone();
    Ok(attributes.get_str(name)?.cloned())
}

fn missing(value: &Value, key: &Value, meter: &Rc<Meter>) -> Result<Value> {
    let object = match value {
        Value::None => "None".to_owned(),
        Value::Namespace(_) | Value::Loop(_) | Value::Function(Function::Macro(_) | Function::Cycler(_)) => {
            format!("jinja2 {} object", value.type_name())
        }
        _ => format!("{} object", value.type_name()),
    };
    let key_repr = to_repr(key, meter)?;
    Ok(Value::undefined(match key {
        Value::Text(_) => format!("'{object}' has no attribute {key_repr}"),
        _ => format!("{object} has no element {key_repr}"),
    }))
}

/// `value.name`: an attribute, or else an item.
pub(super) fn get_attribute(value: &Value, name: &str, meter: &Rc<Meter>) -> Result<Value> {
    if let Value::Undefined(message) = value {
        fail!("{message}");
    }
    if let Some(found) = python_attribute(value, name, meter)? {
        return Ok(found);
    }
    if let Some(found) = namespace_attribute(value, name)? {
        return Ok(found);
    }
    if let Value::Dict(dict) = value
        && let Some(found) = dict.get_str(name)?
    {
        return Ok(found.clone());
    }
    missing(value, &Value::text(meter, name)?, meter)
}

/// The filter `attr`: an attribute, and no item.
pub(super) fn get_only_attribute(value: &Value, name: &str, meter: &Rc<Meter>) -> Result<Value> {
    if let Value::Undefined(message) = value {
        fail!("{message}");
    }
    match python_attribute(value, name, meter)? {
        Some(found) => Ok(found),
        None => match namespace_attribute(value, name)? {
            Some(found) => Ok(found),
            None => missing(value, &Value::text(meter, name)?, meter),
        },
    }
}

/// `value[key]`: an item, or else an attribute.
pub(super) fn get_item(value: &Value, key: &Value, meter: &Rc<Meter>) -> Result<Value> {
    if let Value::Undefined(message) = value {
        fail!("{message}");
    }
    if let Some(found) = python_item(value, key, meter)? {
        return Ok(found);
    }
    if let Value::Text(name) = key {
        if let Some(found) = python_attribute(value, name, meter)? {
            return Ok(found);
        }
        if let Some(found) = namespace_attribute(value, name)? {
            return Ok(found);
        }
    }
    missing(value, key, meter)
}

/// `value[start:stop:step]`.
pub(super) fn slice(value: &Value, bounds: &[Option<Value>; 3], meter: &Rc<Meter>) -> Result<Value> {
    let mut ints = [None; 3];
    for (int, bound) in ints.iter_mut().zip(bounds) {
        *int = match (bound, bound.as_ref().and_then(Value::as_int)) {
            (None | Some(Value::None), _) => None,
            (_, Some(bound)) => Some(bound.clamp(i128::from(i64::MIN), i128::from(i64::MAX))),
            (Some(Value::Undefined(message)), _) => fail!("{message}"),
            _ => fail!("slice indices must be integers or None or have an __index__ method"),
        };
    }
    let [start, stop, step] = ints;
    let step = step.unwrap_or(1);
    if !matches!(value, Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Range(_) | Value::Undefined(_)) {
        // Python raises, which Jinja takes for a missing item.
        return missing(value, &Value::None, meter);
    }
    if step == 0 {
        fail!("slice step cannot be zero");
    }
    let Some(len) = value.len() else { return missing(value, &Value::None, meter) };
    meter.steps(1 + len / 16)?;
    let last = len as i128;
    // The first and the end in the direction of the step.
    let place = |bound: Option<i128>, default: i128| {
        let Some(bound) = bound else { return default };
        let bound = if bound < 0 { bound + last } else { bound };
        if step > 0 { bound.clamp(0, last) } else { bound.clamp(-1, last - 1) }
    };
    let (start, stop) =
        if step > 0 { (place(start, 0), place(stop, last)) } else { (place(start, last - 1), place(stop, -1)) };
    let range = super::value::Range { start, stop, step };
    let indices = (0..range.len()).filter_map(move |index| usize::try_from(range.get(index)?).ok());
    Ok(match value {
        Value::Text(text) => {
            let taken = if step == 1 {
                let byte = |at: i128| text.char_indices().nth(at as usize).map_or(text.len(), |(byte, _)| byte);
                if start < stop {
                    text.get(byte(start)..byte(stop)).unwrap_or_default().to_owned()
                } else {
                    String::new()
                }
            } else {
                meter.room(len * size_of::<char>())?;
                let chars: Vec<char> = text.chars().collect();
                indices.filter_map(|index| chars.get(index)).collect()
            };
            Value::text_as(meter, taken, text.is_markup)?
        }
        Value::List(items) => Value::list(meter, indices.filter_map(|index| items.get(index).cloned()).collect())?,
        Value::Tuple(items) => Value::tuple(meter, indices.filter_map(|index| items.get(index).cloned()).collect())?,
        Value::Range(of) => Value::Range(super::value::Range {
            start: of.start + start * of.step,
            stop: of.start + stop * of.step,
            step: of.step.checked_mul(step).unwrap_or(1),
        }),
        Value::Undefined(message) => fail!("{message}"),
        other => missing(other, &Value::None, meter)?,
    })
}

/// Calls a method of a value.
pub(super) fn call_method(value: &Value, name: &str, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    match value {
        Value::Text(text) if name == "striptags" => {
            args.none(name)?;
            Value::text(meter, super::html::strip_tags(text, meter)?)
        }
        Value::Text(text) if name == "unescape" => {
            args.none(name)?;
            Value::text(meter, super::html::unescape(text))
        }
        Value::Text(text) => text::call(text, name, args, meter),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => numbers::call(value, name, args, meter),
        Value::List(items) if name == "copy" => {
            args.none(name)?;
            Value::list(meter, items.to_vec())
        }
        Value::List(_) | Value::Tuple(_) | Value::Range(_) => search(value, name, args, meter),
        Value::Dict(dict) => dict_method(dict, name, args, meter),
        Value::Function(Function::Global(_)) => from_keys(args, meter),
        Value::View(view, dict) => {
            let [other] = args.bind(name, ["other"], 1)?;
            let own = Value::View(*view, dict.clone());
            for element in other.map(|other| other.elements(meter)).transpose()?.unwrap_or_default() {
                if super::operators::contains(&own, &element, meter)? {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        }
        Value::Loop(of) => match name {
            "cycle" => match args.positional.len() {
                0 => fail!("no items for cycling given"),
                len => Ok(args.positional.into_iter().nth(of.index0.get() % len).unwrap_or(Value::None)),
            },
            _ => {
                let value = Value::tuple(meter, args.positional)?;
                let before = of.changed.replace(Some(value.clone()));
                Ok(Value::Bool(match before {
                    Some(before) => !equal(&before, &value, meter)?,
                    None => true,
                }))
            }
        },
        Value::Function(Function::Cycler(cycler)) => {
            args.none(name)?;
            if name == "reset" {
                cycler.at.set(0);
                return Ok(Value::None);
            }
            let at = cycler.at.get();
            cycler.at.set((at + 1) % cycler.items.len().max(1));
            Ok(cycler.items.get(at).cloned().unwrap_or(Value::None))
        }
        other => fail!("'{}' object has no method '{name}'", other.type_name()),
    }
}

/// `count` and `index` of sequences.
fn search(value: &Value, name: &str, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [wanted, start, stop] = args.bind(name, ["value", "start", "stop"], 1)?;
    if start.is_some() && (name == "count" || matches!(value, Value::Range(_))) {
        fail!("{}.{name}() takes exactly one argument", value.type_name());
    }
    let Some(wanted) = wanted else { return Ok(Value::None) };
    let len = value.len().unwrap_or(0) as i128;
    let place = |bound: Option<&Value>, default: i128| -> Result<i128> {
        let bound = arguments::int(bound, default)?;
        Ok(if bound < 0 { (bound + len).max(0) } else { bound })
    };
    let (start, stop) = (place(start.as_ref(), 0)?, place(stop.as_ref(), len)?);
    let mut iter = value.iterate()?;
    let (mut at, mut count) = (0, 0);
    while let Some(element) = iter.next(meter)? {
        if equal(&element, &wanted, meter)? {
            if name == "index" && (start..stop).contains(&at) {
                return Ok(Value::Int(at));
            }
            count += 1;
        }
        at += 1;
    }
    if name == "count" {
        return Ok(Value::Int(count));
    }
    let wanted = to_repr(&wanted, meter)?;
    match value {
        Value::Tuple(_) => fail!("tuple.index(x): x not in tuple"),
        Value::Range(_) => fail!("{wanted} is not in range"),
        _ => fail!("{wanted} is not in list"),
    }
}

fn dict_method(dict: &Rc<Dict>, name: &str, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    match name {
        "get" => {
            let [key, default] = args.bind(name, ["key", "default"], 1)?;
            let Some(key) = key else { return Ok(Value::None) };
            Ok(dict.get(&key)?.cloned().or(default).unwrap_or(Value::None))
        }
        "fromkeys" => from_keys(args, meter),
        _ => {
            args.none(name)?;
            Ok(match name {
                "items" => Value::View(View::Items, dict.clone()),
                "keys" => Value::View(View::Keys, dict.clone()),
                "values" => Value::View(View::Values, dict.clone()),
                _ => Value::Dict(Rc::new(dict.copy()?)),
            })
        }
    }
}

fn from_keys(args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [keys, value] = args.bind("fromkeys", ["iterable", "value"], 1)?;
    let value = value.unwrap_or(Value::None);
    let mut dict = Dict::new(meter)?;
    for key in keys.map(|keys| keys.elements(meter)).transpose()?.unwrap_or_default() {
        dict.insert(key, value.clone())?;
    }
    Ok(Value::Dict(Rc::new(dict)))
}

/// `dict(…)`: of a dict, of pairs, and of named arguments.
pub(super) fn make_dict(args: Args, meter: &Rc<Meter>) -> Result<Dict> {
    if args.positional.len() > 1 {
        fail!("dict expected at most 1 argument, got {}", args.positional.len());
    }
    let mut dict = match args.positional.first() {
        None => Dict::new(meter)?,
        Some(Value::Dict(dict)) => dict.copy()?,
        Some(pairs) => {
            let mut dict = Dict::new(meter)?;
            for (index, pair) in pairs.elements(meter)?.iter().enumerate() {
                let pair = pair.elements(meter)?;
                let len = pair.len();
                let Ok([key, value]) = <[Value; 2]>::try_from(pair) else {
                    fail!("dictionary update sequence element #{index} has length {len}; 2 is required")
                };
                dict.insert(key, value)?;
            }
            dict
        }
    };
    for (name, value) in args.named {
        dict.insert(Value::text(meter, &*name)?, value)?;
    }
    Ok(dict)
}

/// A pair of the filter `groupby`.
pub(super) fn group(grouper: Value, list: Value, meter: &Rc<Meter>) -> Result<Value> {
    Ok(Value::Tuple(Items::group(meter, grouper, list)?))
}

/// The text of a value that is a string.
pub(super) fn soft_text(value: &Value, meter: &Rc<Meter>) -> Result<Rc<Text>> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => match Value::text(meter, super::repr::to_str(other, meter)?)? {
            Value::Text(text) => Ok(text),
            _ => fail!("a string is none"),
        },
    }
}
