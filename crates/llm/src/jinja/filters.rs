//! The filters of Jinja, and `tojson` of transformers.

use std::rc::Rc;

use super::arguments::{self, Args};
use super::ast::Operator;
use super::attributes::{get_item, get_only_attribute, group, soft_text};
use super::checks;
use super::dict::Dict;
use super::failure::{Result, fail};
use super::html;
use super::json;
use super::meter::{Meter, Writer};
use super::numbers;
use super::operators::{binary, equal, is_less, sort};
use super::percent;
use super::repr::{pretty, to_str, write_str};
use super::text::{self, capitalize, replace, split_lines, strip};
use super::unicode;
use super::value::{Items, Value, View};
use super::wordwrap;

/// All filters.
pub(super) const NAMES: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
];

/// Applies a filter.
pub(super) fn apply(name: &str, value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let _level = meter.deeper()?;
    meter.steps(1)?;
    match name {
        "abs" => {
            args.none(name)?;
            match (value, value.as_int()) {
                (Value::Undefined(message), _) => fail!("{message}"),
                (Value::Float(float), _) => Ok(Value::Float(float.abs())),
                (_, Some(int)) => Ok(Value::Int(int.saturating_abs())),
                _ => fail!("bad operand type for abs(): '{}'", value.type_name()),
            }
        }
        "attr" => {
            let [attribute] = args.bind(name, ["name"], 1)?;
            get_only_attribute(value, &arguments::required_text(attribute.as_ref())?, meter)
        }
        "batch" => batch(value, args, meter),
        "slice" => slices(value, args, meter),
        "count" | "length" => {
            args.none(name)?;
            match value.len() {
                Some(len) => {
                    meter.bytes(value.as_str().map_or(0, str::len))?;
                    Ok(Value::Int(len as i128))
                }
                None => fail!("object of type '{}' has no len()", value.type_name()),
            }
        }
        "d" | "default" => {
            let [default, also_false] = args.bind(name, ["default_value", "boolean"], 0)?;
            if value.is_undefined() || arguments::is_true(also_false.as_ref(), false) && !value.is_true() {
                return default.map_or_else(|| Value::text(meter, ""), Ok);
            }
            Ok(value.clone())
        }
        "dictsort" => dict_sort(value, args, meter),
        "first" => {
            args.none(name)?;
            let first = value.iterate()?.next(meter)?;
            Ok(first.unwrap_or_else(|| Value::undefined("No first item, sequence was empty.")))
        }
        "last" => {
            args.none(name)?;
            if matches!(value, Value::Generator(_) | Value::None) || value.iterate().is_err() {
                fail!("'{}' object is not reversible", value.type_name());
            }
            let last = last(value, meter)?;
            Ok(last.unwrap_or_else(|| Value::undefined("No last item, sequence was empty.")))
        }
        "random" => {
            args.none(name)?;
            let Some(len) = value.len() else { fail!("object of type '{}' has no len()", value.type_name()) };
            if len == 0 {
                return Ok(Value::undefined("No random item, sequence was empty."));
            }
            let index = meter.random() % len as u64;
            get_item(value, &Value::Int(index.into()), meter)
        }
        "format" => {
            let format = soft_text(value, meter)?;
            if !args.positional.is_empty() && !args.named.is_empty() {
                fail!("can't handle positional and keyword arguments at the same time");
            }
            let values = if args.named.is_empty() {
                Value::tuple(meter, args.positional)?
            } else {
                let mut dict = Dict::new(meter)?;
                for (name, value) in args.named {
                    dict.insert(Value::text(meter, &*name)?, value)?;
                }
                Value::Dict(Rc::new(dict))
            };
            percent::format(&format, &values, meter)
        }
        "groupby" => group_by(value, args, meter),
        "items" => {
            args.none(name)?;
            match value {
                Value::Undefined(_) => Value::generator(meter, Vec::new()),
                Value::Dict(dict) => Value::generator(meter, Value::View(View::Items, dict.clone()).elements(meter)?),
                _ => fail!("Can only get item pairs from a mapping."),
            }
        }
        "join" => {
            let [separator, attribute] = args.bind(name, ["d", "attribute"], 0)?;
            let separator = separator.map_or(Ok(String::new()), |separator| to_str(&separator, meter))?;
            let path = Path::of(attribute.as_ref(), meter)?;
            let mut out = Writer::new(meter);
            let mut iter = value.iterate()?;
            let mut is_first = true;
            while let Some(item) = iter.next(meter)? {
                if !std::mem::take(&mut is_first) {
                    out.push(&separator)?;
                }
                write_str(&path.get(&item, None, meter)?, &mut out, meter)?;
            }
            Value::text(meter, out.into_text())
        }
        "list" => {
            args.none(name)?;
            Value::list(meter, value.elements(meter)?)
        }
        "map" => map(value, args, meter),
        "select" | "reject" | "selectattr" | "rejectattr" => select(name, value, args, meter),
        "max" | "min" => extreme(name, value, args, meter),
        "reverse" => {
            args.none(name)?;
            if let Value::Text(text) = value {
                meter.bytes(text.len())?;
                return Value::text_as(meter, text.chars().rev().collect(), text.is_markup);
            }
            let Ok(mut elements) = value.elements(meter) else { fail!("argument must be iterable") };
            elements.reverse();
            if matches!(value, Value::Generator(_) | Value::Undefined(_)) {
                return Value::list(meter, elements);
            }
            Value::generator(meter, elements)
        }
        "sort" => {
            let [reverse, case_sensitive, attribute] =
                args.bind(name, ["reverse", "case_sensitive", "attribute"], 0)?;
            let is_sensitive = arguments::is_true(case_sensitive.as_ref(), false);
            let paths = Path::all(attribute.as_ref(), meter)?;
            let mut keyed = Vec::new();
            for item in value.elements(meter)? {
                let mut keys = Vec::new();
                for path in &paths {
                    keys.push(cased(path.get(&item, None, meter)?, is_sensitive, meter)?);
                }
                keyed.push((Value::list(meter, keys)?, item));
            }
            Value::list(meter, sort(keyed, arguments::is_true(reverse.as_ref(), false), meter)?)
        }
        "sum" => {
            let [attribute, start] = args.bind(name, ["attribute", "start"], 0)?;
            let path = Path::of(attribute.as_ref(), meter)?;
            let mut sum = start.unwrap_or(Value::Int(0));
            if sum.as_str().is_some() {
                fail!("sum() can't sum strings [use ''.join(seq) instead]");
            }
            let mut iter = value.iterate()?;
            while let Some(item) = iter.next(meter)? {
                sum = binary(Operator::Add, &sum, &path.get(&item, None, meter)?, meter)?;
            }
            Ok(sum)
        }
        "unique" => {
            let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
            let is_sensitive = arguments::is_true(case_sensitive.as_ref(), false);
            let path = Path::of(attribute.as_ref(), meter)?;
            let mut seen = Dict::new(meter)?;
            let mut unique = Vec::new();
            let mut iter = value.iterate()?;
            while let Some(item) = iter.next(meter)? {
                let key = cased(path.get(&item, None, meter)?, is_sensitive, meter)?;
                let len = seen.len();
                seen.insert(key, Value::None)?;
                if seen.len() > len {
                    unique.push(item);
                }
            }
            Value::generator(meter, unique)
        }
        "int" => numbers::int_filter(value, args),
        "float" => numbers::float_filter(value, args),
        "round" => numbers::round_filter(value, args),
        "filesizeformat" => Value::text(meter, numbers::file_size(value, args)?),
        "tojson" => json::to_json(value, args, meter),
        "pprint" => {
            args.none(name)?;
            Value::text(meter, pretty(value, meter)?)
        }
        "string" => {
            args.none(name)?;
            Ok(Value::Text(soft_text(value, meter)?))
        }
        "safe" => {
            args.none(name)?;
            Value::text_as(meter, to_str(value, meter)?, true)
        }
        "e" | "escape" => {
            args.none(name)?;
            html::escaped(value, meter)
        }
        "forceescape" => {
            args.none(name)?;
            html::force_escaped(value, meter)
        }
        "striptags" => {
            args.none(name)?;
            Value::text_as(meter, html::strip_tags(&to_str(value, meter)?, meter)?, true)
        }
        "urlencode" => {
            args.none(name)?;
            html::url_encode(value, meter)
        }
        "urlize" => html::urlize(value, args, meter),
        "xmlattr" => html::xml_attributes(value, args, meter),
        "wordwrap" => wordwrap::word_wrap(value, args, meter),
        _ => text_filter(name, value, args, meter),
    }
}

/// Filters of strings.
fn text_filter(name: &str, value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    if !NAMES.contains(&name) {
        fail!("No filter named '{name}'.");
    }
    if name == "truncate" && value.as_str().is_none() {
        return truncate_other(value, &args);
    }
    let text = soft_text(value, meter)?;
    meter.bytes(text.len())?;
    let made = |made: String| Value::text_as(meter, made, text.is_markup);
    match name {
        "capitalize" => {
            args.none(name)?;
            made(capitalize(&text))
        }
        "lower" => {
            args.none(name)?;
            made(text.to_lowercase())
        }
        "upper" => {
            args.none(name)?;
            made(text.to_uppercase())
        }
        "title" => {
            args.none(name)?;
            made(title(&text))
        }
        "center" => {
            let [width] = args.bind(name, ["width"], 0)?;
            let width = width.unwrap_or(Value::Int(80));
            text::call(&text, "center", Args { positional: vec![width], named: Vec::new() }, meter)
        }
        "trim" => {
            let [chars] = args.bind(name, ["chars"], 0)?;
            let chars = arguments::text(chars.as_ref())?;
            made(strip(&text, chars.as_deref().map(|chars| &**chars), "strip", meter)?.to_owned())
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"], 2)?;
            let part = |part: Option<Value>| part.map_or(Ok(String::new()), |part| to_str(&part, meter));
            let count = arguments::optional_int(count.as_ref())?.unwrap_or(-1);
            Value::text(meter, replace(&text, &part(old)?, &part(new)?, count, meter)?)
        }
        "wordcount" => {
            args.none(name)?;
            let words = text.split(|char| !unicode::is_word(char)).filter(|word| !word.is_empty());
            Ok(Value::Int(words.count() as i128))
        }
        "truncate" => {
            let [length, kills_words, end, leeway] = args.bind(name, ["length", "killwords", "end", "leeway"], 0)?;
            let length = arguments::int(length.as_ref(), 255)?;
            let leeway = arguments::optional_int(leeway.as_ref())?.unwrap_or(5);
            let end = arguments::text(end.as_ref())?;
            let end = end.as_deref().map_or("...", |end| &**end);
            let end_len = end.chars().count() as i128;
            if length < end_len {
                fail!("expected length >= {end_len}, got {length}");
            }
            if leeway < 0 {
                fail!("expected leeway >= 0, got {leeway}");
            }
            if text.chars().count() as i128 <= length.saturating_add(leeway) {
                return Ok(Value::Text(text));
            }
            let kept = usize::try_from(length - end_len).unwrap_or(usize::MAX);
            let at = text.char_indices().nth(kept).map_or(text.len(), |(at, _)| at);
            let mut kept = text.get(..at).unwrap_or_default();
            if !arguments::is_true(kills_words.as_ref(), false) {
                kept = kept.rsplit_once(' ').map_or(kept, |(kept, _)| kept);
            }
            made(format!("{kept}{end}"))
        }
        _ => {
            // `indent`.
            if value.as_str().is_none() {
                fail!("unsupported operand type(s) for +=: '{}' and 'str'", value.type_name());
            }
            let [width, first, blank] = args.bind(name, ["width", "first", "blank"], 0)?;
            let indent = match width {
                Some(Value::Text(indent)) => indent.to_string(),
                width => {
                    let width = arguments::count(width.as_ref(), 4)?;
                    meter.room(width)?;
                    " ".repeat(width)
                }
            };
            // The appended line end makes the empty text a line.
            let whole = format!("{}\n", &**text);
            let mut out = Writer::new(meter);
            for (index, line) in split_lines(&whole, false).into_iter().enumerate() {
                if index > 0 {
                    out.push("\n")?;
                }
                let is_indented = if index == 0 {
                    arguments::is_true(first.as_ref(), false)
                } else {
                    !line.is_empty() || arguments::is_true(blank.as_ref(), false)
                };
                if is_indented {
                    out.push(&indent)?;
                }
                out.push(line)?;
            }
            made(out.into_text())
        }
    }
}

/// `truncate` of a value that is not a string: returns a short value as it is, and fails for a long one.
fn truncate_other(value: &Value, args: &Args) -> Result<Value> {
    let Some(len) = value.len() else { fail!("object of type '{}' has no len()", value.type_name()) };
    let named = |name: &str| args.named.iter().find(|(known, _)| **known == *name).map(|(_, value)| value);
    let length = arguments::int(args.positional.first().or_else(|| named("length")), 255)?;
    let leeway = arguments::optional_int(args.positional.get(3).or_else(|| named("leeway")))?.unwrap_or(5);
    if len as i128 > length.saturating_add(leeway) {
        fail!("'{}' object has no attribute 'rsplit'", value.type_name());
    }
    Ok(value.clone())
}

/// Words with a capital first letter and lower-case letters after it.
fn title(text: &str) -> String {
    let is_between = |char: char| unicode::is_space(char) || matches!(char, '-' | '(' | '{' | '[' | '<');
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = !is_between(first);
        let end = rest.find(|char| is_between(char) == is_word).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let (head, tail) = word.split_at(first.len_utf8());
        made.push_str(&head.to_uppercase());
        made.push_str(&tail.to_lowercase());
        rest = after;
    }
    made
}

/// Attributes of attributes, by a name with dots or an index.
struct Path(Vec<Value>);

impl Path {
    fn of(attribute: Option<&Value>, meter: &Rc<Meter>) -> Result<Self> {
        Ok(Self(match attribute {
            None | Some(Value::None) => Vec::new(),
            Some(Value::Text(text)) => {
                let parts = text.split('.').map(|part| match part.parse::<i64>() {
                    Ok(index) if part.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Value::Int(index.into())),
                    _ => Value::text(meter, part),
                });
                parts.collect::<Result<_>>()?
            }
            Some(index) => vec![index.clone()],
        }))
    }

    /// Several, with commas between.
    fn all(attribute: Option<&Value>, meter: &Rc<Meter>) -> Result<Vec<Self>> {
        match attribute {
            Some(Value::Text(text)) => {
                text.split(',').map(|part| Self::of(Some(&Value::text(meter, part)?), meter)).collect()
            }
            other => Ok(vec![Self::of(other, meter)?]),
        }
    }

    fn get(&self, item: &Value, default: Option<&Value>, meter: &Rc<Meter>) -> Result<Value> {
        let mut item = item.clone();
        for part in &self.0 {
            item = get_item(&item, part, meter)?;
            if let Some(default) = default.filter(|default| item.is_undefined() && !matches!(default, Value::None)) {
                item = default.clone();
            }
        }
        Ok(item)
    }
}

/// Returns a key of a string that ignores case, unless `is_sensitive`.
fn cased(key: Value, is_sensitive: bool, meter: &Rc<Meter>) -> Result<Value> {
    match &key {
        Value::Text(text) if !is_sensitive => Value::text(meter, text.to_lowercase()),
        _ => Ok(key),
    }
}

fn last(value: &Value, meter: &Rc<Meter>) -> Result<Option<Value>> {
    match value {
        Value::List(items) | Value::Tuple(items) => Ok(items.last().cloned()),
        Value::Text(text) => {
            text.chars().next_back().map(|char| Value::text_as(meter, char.into(), text.is_markup)).transpose()
        }
        other => Ok(other.elements(meter)?.pop()),
    }
}

fn batch(value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [count, fill] = args.bind("batch", ["linecount", "fill_with"], 1)?;
    let count = arguments::int(count.as_ref(), 0)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    let mut iter = value.iterate()?;
    while let Some(item) = iter.next(meter)? {
        if batch.len() == count {
            batches.push(Value::list(meter, std::mem::take(&mut batch))?);
        }
        batch.push(item);
    }
    if !batch.is_empty() {
        if let Some(fill) = fill.filter(|fill| !matches!(fill, Value::None) && count != usize::MAX) {
            let missing = count.saturating_sub(batch.len());
            meter.room(missing.saturating_mul(size_of::<Value>()))?;
            batch.extend(std::iter::repeat_n(fill, missing));
        }
        batches.push(Value::list(meter, batch)?);
    }
    Value::generator(meter, batches)
}

fn slices(value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [count, fill] = args.bind("slice", ["slices", "fill_with"], 1)?;
    let count = arguments::int(count.as_ref(), 0)?;
    let items = Items::new(meter, value.elements(meter)?)?;
    if count == 0 {
        fail!("integer division or modulo by zero");
    }
    let Ok(count) = usize::try_from(count) else { return Value::generator(meter, Vec::new()) };
    meter.room(count.saturating_mul(size_of::<Value>()))?;
    let (each, more) = (items.len() / count, items.len() % count);
    let mut slices = Vec::new();
    let mut at = 0;
    for index in 0..count {
        let len = each + usize::from(index < more);
        let mut slice = items.get(at..at + len).unwrap_or_default().to_vec();
        at += len;
        if let Some(fill) = fill.as_ref().filter(|fill| !matches!(fill, Value::None) && index >= more) {
            slice.push(fill.clone());
        }
        slices.push(Value::list(meter, slice)?);
    }
    Value::generator(meter, slices)
}

fn dict_sort(value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [case_sensitive, by, reverse] = args.bind("dictsort", ["case_sensitive", "by", "reverse"], 0)?;
    let by = arguments::text(by.as_ref())?;
    let by_value = match by.as_deref().map_or("key", |by| &**by) {
        "key" => false,
        "value" => true,
        _ => fail!("You can only sort by either \"key\" or \"value\""),
    };
    let dict = match value {
        Value::Dict(dict) => dict,
        Value::Undefined(message) => fail!("{message}"),
        other => fail!("'{}' object has no attribute 'items'", other.type_name()),
    };
    let is_sensitive = arguments::is_true(case_sensitive.as_ref(), false);
    let mut keyed = Vec::new();
    for (key, value) in dict.iter() {
        let by = cased(if by_value { value.clone() } else { key.clone() }, is_sensitive, meter)?;
        keyed.push((by, Value::tuple(meter, vec![key.clone(), value.clone()])?));
    }
    Value::list(meter, sort(keyed, arguments::is_true(reverse.as_ref(), false), meter)?)
}

fn group_by(value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [attribute, default, case_sensitive] = args.bind("groupby", ["attribute", "default", "case_sensitive"], 1)?;
    let path = Path::of(attribute.as_ref(), meter)?;
    let is_sensitive = arguments::is_true(case_sensitive.as_ref(), false);
    let key = |item: &Value| cased(path.get(item, default.as_ref(), meter)?, is_sensitive, meter);
    let mut keyed = Vec::new();
    for item in value.elements(meter)? {
        keyed.push((key(&item)?, item));
    }
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for item in sort(keyed, false, meter)? {
        let by = key(&item)?;
        match groups.last_mut() {
            Some((known, items)) if equal(known, &by, meter)? => items.push(item),
            _ => groups.push((by, vec![item])),
        }
    }
    let mut made = Vec::new();
    for (by, items) in groups {
        let shown = match items.first() {
            Some(first) if !is_sensitive => path.get(first, default.as_ref(), meter)?,
            _ => by,
        };
        made.push(group(shown, Value::list(meter, items)?, meter)?);
    }
    Value::list(meter, made)
}

fn extreme(name: &str, value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
    let is_sensitive = arguments::is_true(case_sensitive.as_ref(), false);
    let path = Path::of(attribute.as_ref(), meter)?;
    let mut best: Option<(Value, Value)> = None;
    let mut iter = value.iterate()?;
    while let Some(item) = iter.next(meter)? {
        let key = cased(path.get(&item, None, meter)?, is_sensitive, meter)?;
        let is_better = match &best {
            None => true,
            Some((known, _)) if name == "min" => is_less(&key, known, meter)?,
            Some((known, _)) => is_less(known, &key, meter)?,
        };
        if is_better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(|| Value::undefined("No aggregated item, sequence was empty."), |(_, item)| item))
}

fn map(value: &Value, mut args: Args, meter: &Rc<Meter>) -> Result<Value> {
    if !value.is_true() {
        return Value::generator(meter, Vec::new());
    }
    let mut mapped = Vec::new();
    let mut iter = value.iterate()?;
    if args.positional.is_empty() && args.named.iter().any(|(name, _)| **name == *"attribute") {
        let [attribute, default] = args.bind("map", ["attribute", "default"], 0)?;
        let path = Path::of(attribute.as_ref(), meter)?;
        while let Some(item) = iter.next(meter)? {
            mapped.push(path.get(&item, default.as_ref(), meter)?);
        }
        return Value::generator(meter, mapped);
    }
    if args.positional.is_empty() {
        fail!("map requires a filter argument");
    }
    let filter = arguments::required_text(Some(&args.positional.remove(0)))?;
    while let Some(item) = iter.next(meter)? {
        mapped.push(apply(&filter, &item, copy(&args), meter)?);
    }
    Value::generator(meter, mapped)
}

fn copy(args: &Args) -> Args {
    Args { positional: args.positional.clone(), named: args.named.clone() }
}

fn select(name: &str, value: &Value, mut args: Args, meter: &Rc<Meter>) -> Result<Value> {
    if !value.is_true() {
        return Value::generator(meter, Vec::new());
    }
    let path = if name.ends_with("attr") {
        if args.positional.is_empty() {
            fail!("Missing parameter for attribute name");
        }
        Path::of(Some(&args.positional.remove(0)), meter)?
    } else {
        Path(Vec::new())
    };
    let test = if args.positional.is_empty() {
        None
    } else {
        Some(arguments::required_text(Some(&args.positional.remove(0)))?)
    };
    let mut selected = Vec::new();
    let mut iter = value.iterate()?;
    while let Some(item) = iter.next(meter)? {
        let tested = path.get(&item, None, meter)?;
        let holds = match &test {
            Some(test) => checks::check(test, &tested, copy(&args), meter)?,
            None => tested.is_true(),
        };
        if holds != name.starts_with("reject") {
            selected.push(item);
        }
    }
    Value::generator(meter, selected)
}
