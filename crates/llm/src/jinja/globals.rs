//! The functions that every chat template knows.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::arguments::{self, Args};
use super::attributes::make_dict;
use super::failure::{Result, fail};
use super::meter::Meter;
use super::render::message;
use super::strftime::{Time, strftime};
use super::value::{Cycler, Function, Items, Joiner, Namespace, Range, Value};
use crate::clock::{SystemTime, UNIX_EPOCH};

const NAMES: [&str; 8] =
    ["range", "dict", "lipsum", "cycler", "joiner", "namespace", "raise_exception", "strftime_now"];

/// Maximum length of a range, as in Jinja's sandbox.
const MAX_RANGE: usize = 100_000;

pub(super) fn global(name: &str) -> Option<Value> {
    NAMES.into_iter().find(|known| *known == name).map(|name| Value::Function(Function::Global(name)))
}

pub(super) fn check_namespace_name(name: &str) -> Result<()> {
    if name.starts_with('_') {
        fail!(
            "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '{name}'. Please rename the attribute."
        );
    }
    Ok(())
}

pub(super) fn namespace(args: Args, meter: &Rc<Meter>) -> Result<Rc<Namespace>> {
    let attributes = make_dict(args, meter)?;
    for (name, _) in attributes.iter() {
        check_namespace_name(name.as_str().unwrap_or_default())?;
    }
    Ok(Rc::new(Namespace { attributes: RefCell::new(Rc::new(attributes)) }))
}

/// Calls one of them, but for `namespace`.
pub(super) fn call(name: &str, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    match name {
        "range" => range(args),
        "dict" => Ok(Value::Dict(Rc::new(make_dict(args, meter)?))),
        "cycler" => {
            if args.positional.is_empty() {
                fail!("at least one item has to be provided");
            }
            let items = Items::new(meter, args.positional)?;
            Ok(Value::Function(Function::Cycler(Rc::new(Cycler { items, at: Cell::new(0) }))))
        }
        "joiner" => {
            let [separator] = args.bind(name, ["sep"], 0)?;
            let separator = match separator {
                None => Value::text(meter, ", ")?,
                Some(separator) => separator,
            };
            let separator = arguments::required_text(Some(&separator))?;
            Ok(Value::Function(Function::Joiner(Rc::new(Joiner { separator, is_used: Cell::new(false) }))))
        }
        "raise_exception" => {
            let [text] = args.bind(name, ["message"], 1)?;
            let text = text.map_or(Ok(String::new()), |text| message(&text, meter))?;
            fail!("{text}")
        }
        "strftime_now" => {
            let [format] = args.bind(name, ["format"], 1)?;
            let format = arguments::required_text(format.as_ref())?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let time = Time { seconds: now.as_secs() as i64, micros: now.subsec_micros() };
            Value::text(meter, strftime(&format, time, meter)?)
        }
        _ => fail!("{name}() is not supported in chat templates: its text is random"),
    }
}

fn range(args: Args) -> Result<Value> {
    let [first, second, step] = args.bind("range", ["start", "stop", "step"], 1)?;
    let (start, stop) = match &second {
        None => (0, arguments::int(first.as_ref(), 0)?),
        stop => (arguments::int(first.as_ref(), 0)?, arguments::int(stop.as_ref(), 0)?),
    };
    let step = arguments::int(step.as_ref(), 1)?;
    if step == 0 {
        fail!("range() arg 3 must not be zero");
    }
    let is_small = |int: i128| i64::try_from(int).is_ok();
    let range = Range { start, stop, step };
    if !(is_small(start) && is_small(stop) && is_small(step)) || range.len() > MAX_RANGE {
        fail!("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE}).");
    }
    Ok(Value::Range(range))
}
