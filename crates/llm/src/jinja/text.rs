//! The methods of Python's strings.

use std::rc::Rc;

use super::arguments::{self, Args};
use super::dict::Dict;
use super::failure::{Result, fail};
use super::format;
use super::meter::{Meter, Writer};
use super::unicode;
use super::value::{Text, Value};

/// The names of all methods of `str`.
pub(super) const METHODS: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];

/// Calls a method.
pub(super) fn call(text: &Rc<Text>, name: &str, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    meter.bytes(text.len())?;
    let made = |made: String| Value::text_as(meter, made, text.is_markup);
    let all = |args: Args, holds: &dyn Fn(char) -> bool| {
        args.none(name)?;
        Ok(Value::Bool(!text.is_empty() && text.chars().all(holds)))
    };
    match name {
        "capitalize" => {
            args.none(name)?;
            made(capitalize(text))
        }
        "casefold" => {
            args.none(name)?;
            let mut folded = String::with_capacity(text.len());
            text.chars().for_each(|char| unicode::push_folded(char, &mut folded));
            made(folded)
        }
        "lower" => {
            args.none(name)?;
            made(text.to_lowercase())
        }
        "upper" => {
            args.none(name)?;
            made(text.to_uppercase())
        }
        "swapcase" => {
            args.none(name)?;
            made(swap_case(text))
        }
        "title" => {
            args.none(name)?;
            made(title(text))
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = args.bind(name, ["width", "fillchar"], 1)?;
            let width = arguments::count(width.as_ref(), 0)?;
            let fill = match fill {
                None => ' ',
                fill => {
                    let fill = arguments::required_text(fill.as_ref())?;
                    let mut chars = fill.chars();
                    match (chars.next(), chars.next()) {
                        (Some(fill), None) => fill,
                        _ => fail!("The fill character must be exactly one character long"),
                    }
                }
            };
            let len = text.chars().count();
            let missing = width.saturating_sub(len);
            let before = match name {
                "ljust" => 0,
                "rjust" => missing,
                _ => missing / 2 + (missing & width & 1),
            };
            padded(text, fill, before, missing - before, meter).and_then(made)
        }
        "zfill" => {
            let [width] = args.bind(name, ["width"], 1)?;
            let missing = arguments::count(width.as_ref(), 0)?.saturating_sub(text.chars().count());
            let mut out = Writer::new(meter);
            let sign = usize::from(text.starts_with(['+', '-']));
            out.push(text.get(..sign).unwrap_or_default())?;
            out.fill('0', missing)?;
            out.push(text.get(sign..).unwrap_or_default())?;
            made(out.into_text())
        }
        "expandtabs" => {
            let [size] = args.bind(name, ["tabsize"], 0)?;
            let size = arguments::count(size.as_ref(), 8)?;
            let mut out = Writer::new(meter);
            let mut column = 0_usize;
            for char in text.chars() {
                if char == '\t' {
                    let fill = if size == 0 { 0 } else { size - column % size };
                    column = column.saturating_add(fill);
                    out.fill(' ', fill)?;
                } else {
                    column = if matches!(char, '\n' | '\r') { 0 } else { column + 1 };
                    out.push_char(char)?;
                }
            }
            made(out.into_text())
        }
        "count" | "find" | "rfind" | "index" | "rindex" => {
            let [part, start, end] = args.bind(name, ["sub", "start", "end"], 1)?;
            let part = arguments::required_text(part.as_ref())?;
            let (offset, within) = window(text, start.as_ref(), end.as_ref())?;
            let Some(within) = within else {
                return match name {
                    "count" => Ok(Value::Int(0)),
                    "find" | "rfind" => Ok(Value::Int(-1)),
                    _ => fail!("substring not found"),
                };
            };
            if name == "count" {
                let count = if part.is_empty() { within.chars().count() + 1 } else { within.matches(&**part).count() };
                return Ok(Value::Int(count as i128));
            }
            let found = if name.starts_with('r') { within.rfind(&**part) } else { within.find(&**part) };
            match found.and_then(|at| within.get(..at)) {
                Some(before) => Ok(Value::Int((offset + before.chars().count()) as i128)),
                None if name.ends_with("find") => Ok(Value::Int(-1)),
                None => fail!("substring not found"),
            }
        }
        "startswith" | "endswith" => {
            let [part, start, end] = args.bind(name, ["prefix", "start", "end"], 1)?;
            let (_, within) = window(text, start.as_ref(), end.as_ref())?;
            let Some(within) = within else { return Ok(Value::Bool(false)) };
            let has = |part: &Value| -> Result<bool> {
                let Value::Text(part) = part else {
                    let part = part.type_name();
                    fail!("{name} first arg must be str or a tuple of str, not {part}")
                };
                Ok(if name == "startswith" { within.starts_with(&***part) } else { within.ends_with(&***part) })
            };
            match part {
                Some(Value::Tuple(parts)) => {
                    for part in parts.iter() {
                        meter.steps(1)?;
                        if has(part)? {
                            return Ok(Value::Bool(true));
                        }
                    }
                    Ok(Value::Bool(false))
                }
                Some(part) => Ok(Value::Bool(has(&part)?)),
                None => Ok(Value::Bool(false)),
            }
        }
        "removeprefix" | "removesuffix" => {
            let [part] = args.bind(name, ["prefix"], 1)?;
            let part = arguments::required_text(part.as_ref())?;
            let left = if name == "removeprefix" { text.strip_prefix(&**part) } else { text.strip_suffix(&**part) };
            made(left.unwrap_or(text).to_owned())
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"], 2)?;
            let (old, new) = (arguments::required_text(old.as_ref())?, arguments::required_text(new.as_ref())?);
            made(replace(text, &old, &new, arguments::int(count.as_ref(), -1)?, meter)?)
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.bind(name, ["chars"], 0)?;
            let chars = arguments::text(chars.as_ref())?;
            made(strip(text, chars.as_deref().map(|chars| &**chars), name, meter)?.to_owned())
        }
        "split" | "rsplit" => {
            let [separator, max] = args.bind(name, ["sep", "maxsplit"], 0)?;
            let separator = arguments::text(separator.as_ref())?;
            let max = arguments::int(max.as_ref(), -1)?;
            let max = if max < 0 { usize::MAX } else { usize::try_from(max).unwrap_or(usize::MAX) };
            let parts = match separator.as_deref() {
                Some(separator) if separator.is_empty() => fail!("empty separator"),
                Some(separator) if name == "split" => text.splitn(max.saturating_add(1), &**separator).collect(),
                Some(separator) => {
                    let mut parts: Vec<&str> = text.rsplitn(max.saturating_add(1), &**separator).collect();
                    parts.reverse();
                    parts
                }
                None if name == "split" => split_words(text, max),
                None => split_last_words(text, max),
            };
            of_parts(&parts, text, meter)
        }
        "splitlines" => {
            let [keeps] = args.bind(name, ["keepends"], 0)?;
            let parts = split_lines(text, arguments::is_true(keeps.as_ref(), false));
            of_parts(&parts, text, meter)
        }
        "partition" | "rpartition" => {
            let [separator] = args.bind(name, ["sep"], 1)?;
            let separator = arguments::required_text(separator.as_ref())?;
            if separator.is_empty() {
                fail!("empty separator");
            }
            let is_last = name == "rpartition";
            let parts = if is_last { text.rsplit_once(&**separator) } else { text.split_once(&**separator) };
            let parts = match parts {
                Some((before, after)) => [before, &**separator, after],
                None if is_last => ["", "", text],
                None => [text, "", ""],
            };
            let parts = parts.into_iter().map(|part| made(part.to_owned())).collect::<Result<Vec<_>>>()?;
            Value::tuple(meter, parts)
        }
        "join" => {
            let [parts] = args.bind(name, ["iterable"], 1)?;
            let Some(mut parts) = parts.map(|parts| parts.iterate()).transpose()? else { return Ok(Value::None) };
            let mut out = Writer::new(meter);
            let mut index = 0;
            while let Some(part) = parts.next(meter)? {
                let Some(part) = part.as_str() else {
                    fail!("sequence item {index}: expected str instance, {} found", part.type_name())
                };
                if index > 0 {
                    out.push(text)?;
                }
                out.push(part)?;
                index += 1;
            }
            made(out.into_text())
        }
        "format" => made(format::format(text, &args, meter)?),
        "format_map" => {
            let [mapping] = args.bind(name, ["mapping"], 1)?;
            let Some(Value::Dict(dict)) = mapping else { fail!("format_map() needs a dict") };
            let mut args = Args::default();
            for (key, value) in dict.iter() {
                if let Some(key) = key.as_str() {
                    args.named.push((key.into(), value.clone()));
                }
            }
            made(format::format(text, &args, meter)?)
        }
        "maketrans" => table(args, meter),
        "translate" => {
            let [table] = args.bind(name, ["table"], 1)?;
            let Some(table) = table else { return Ok(Value::None) };
            let mut out = Writer::new(meter);
            for char in text.chars() {
                let code = Value::Int((char as u32).into());
                let found = match &table {
                    Value::Dict(dict) => dict.get(&code)?.cloned(),
                    other => fail!("translate() needs a dict, not {}", other.type_name()),
                };
                match found {
                    None => out.push_char(char)?,
                    Some(Value::None) => {}
                    Some(Value::Text(text)) => out.push(&text)?,
                    Some(value) => {
                        match value.as_int().and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32) {
                            Some(char) => out.push_char(char)?,
                            None => fail!("character mapping must return integer, None or str"),
                        }
                    }
                }
            }
            made(out.into_text())
        }
        "isalnum" => all(args, &unicode::is_alphanumeric),
        "isalpha" => all(args, &unicode::is_alpha),
        "isdecimal" => all(args, &unicode::is_decimal),
        "isdigit" => all(args, &unicode::is_digit),
        "isnumeric" => all(args, &unicode::is_numeric),
        "isspace" => all(args, &unicode::is_space),
        "isascii" => {
            args.none(name)?;
            Ok(Value::Bool(text.is_ascii()))
        }
        "isprintable" => {
            args.none(name)?;
            Ok(Value::Bool(text.chars().all(unicode::is_printable)))
        }
        "isidentifier" => {
            args.none(name)?;
            Ok(Value::Bool(unicode::is_identifier(text)))
        }
        "islower" => {
            args.none(name)?;
            Ok(Value::Bool(is_lower(text)))
        }
        "isupper" => {
            args.none(name)?;
            Ok(Value::Bool(is_upper(text)))
        }
        "istitle" => {
            args.none(name)?;
            Ok(Value::Bool(is_title(text)))
        }
        _ => fail!("str.{name}() is not supported in chat templates: it makes bytes"),
    }
}

fn of_parts(parts: &[&str], text: &Text, meter: &Rc<Meter>) -> Result<Value> {
    let parts = parts.iter().map(|part| Value::text_as(meter, (*part).to_owned(), text.is_markup));
    Value::list(meter, parts.collect::<Result<Vec<_>>>()?)
}

fn padded(text: &str, fill: char, before: usize, after: usize, meter: &Rc<Meter>) -> Result<String> {
    let mut out = Writer::new(meter);
    out.fill(fill, before)?;
    out.push(text)?;
    out.fill(fill, after)?;
    Ok(out.into_text())
}

/// Returns the first character and the text of `[start:end]`, in characters. The text is `None` if the start is after the end.
fn window<'t>(text: &'t str, start: Option<&Value>, end: Option<&Value>) -> Result<(usize, Option<&'t str>)> {
    let (start, end) = (arguments::optional_int(start)?, arguments::optional_int(end)?);
    if start.is_none() && end.is_none() {
        return Ok((0, Some(text)));
    }
    let len = text.chars().count() as i128;
    let clamped = |at: i128| if at < 0 { (at + len).max(0) } else { at };
    let (start, end) = (clamped(start.unwrap_or(0)), clamped(end.unwrap_or(len)).min(len));
    if start > end {
        return Ok((0, None));
    }
    let byte = |at: i128| text.char_indices().nth(at as usize).map_or(text.len(), |(byte, _)| byte);
    Ok((start as usize, text.get(byte(start)..byte(end))))
}

/// Replaces the first `count` occurrences, or all for a negative count.
pub(super) fn replace(text: &str, old: &str, new: &str, count: i128, meter: &Rc<Meter>) -> Result<String> {
    let mut left = if count < 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
    let mut out = Writer::new(meter);
    if old.is_empty() {
        // Between all characters.
        for char in text.chars() {
            if left > 0 {
                out.push(new)?;
                left -= 1;
            }
            out.push_char(char)?;
        }
        if left > 0 {
            out.push(new)?;
        }
        return Ok(out.into_text());
    }
    let mut rest = text;
    while left > 0
        && let Some((before, after)) = rest.split_once(old)
    {
        out.push(before)?;
        out.push(new)?;
        rest = after;
        left -= 1;
    }
    out.push(rest)?;
    Ok(out.into_text())
}

/// A text without some characters at its ends; white space by default. `name` is `strip`, `lstrip` or `rstrip`.
pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, name: &str, meter: &Meter) -> Result<&'t str> {
    // Each character is looked for in all of `chars`.
    meter.steps(chars.map_or(0, str::len))?;
    let set: Option<std::collections::HashSet<char>> = chars.map(|chars| chars.chars().collect());
    let is_stripped = |char: char| set.as_ref().map_or_else(|| unicode::is_space(char), |set| set.contains(&char));
    Ok(match name {
        "lstrip" => text.trim_start_matches(is_stripped),
        "rstrip" => text.trim_end_matches(is_stripped),
        _ => text.trim_matches(is_stripped),
    })
}

/// The words of a text. After `max` splits the rest is one.
fn split_words(text: &str, max: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(unicode::is_space);
    while !rest.is_empty() {
        // The rest keeps the white space at its end.
        let end = if parts.len() == max { None } else { rest.find(unicode::is_space) };
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(word);
        rest = after.trim_start_matches(unicode::is_space);
    }
    parts
}

/// As [`split_words`], from the end.
fn split_last_words(text: &str, max: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end_matches(unicode::is_space);
    while !rest.is_empty() {
        if parts.len() == max {
            parts.push(rest);
            break;
        }
        let word = rest.trim_end_matches(|char| !unicode::is_space(char));
        let (before, word) = rest.split_at(word.len());
        parts.push(word);
        rest = before.trim_end_matches(unicode::is_space);
    }
    parts.reverse();
    parts
}

/// The lines of a text, with their ends or without.
pub(super) fn split_lines(text: &str, keeps_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some((at, end)) = rest.char_indices().find(|(_, char)| unicode::is_line_end(*char)) else {
            lines.push(rest);
            break;
        };
        let mut len = end.len_utf8();
        if rest.get(at..).is_some_and(|end| end.starts_with("\r\n")) {
            len = 2;
        }
        let (line, after) = rest.split_at(at + len);
        lines.push(if keeps_ends { line } else { line.get(..at).unwrap_or_default() });
        rest = after;
    }
    lines
}

pub(super) fn capitalize(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    if let Some(first) = text.chars().next() {
        unicode::push_title(first, &mut made);
        // The whole text decides what a final sigma is.
        let lower = text.to_lowercase();
        let skipped: usize = first.to_lowercase().map(char::len_utf8).sum();
        made.push_str(lower.get(skipped..).unwrap_or_default());
    }
    made
}

fn title(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let lower = LowerInContext::new(text);
    let mut follows_cased = false;
    for (at, char) in text.char_indices() {
        if follows_cased {
            lower.push(at, char, &mut made);
        } else {
            unicode::push_title(char, &mut made);
        }
        follows_cased = unicode::is_cased(char);
    }
    made
}

fn swap_case(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let lower = LowerInContext::new(text);
    for (at, char) in text.char_indices() {
        if char.is_uppercase() {
            lower.push(at, char, &mut made);
        } else if char.is_lowercase() {
            made.extend(char.to_uppercase());
        } else {
            made.push(char);
        }
    }
    made
}

/// Lower case with the sigma that ends words.
struct LowerInContext<'a> {
    text: &'a str,
}

impl<'a> LowerInContext<'a> {
    fn new(text: &'a str) -> Self {
        Self { text }
    }

    fn push(&self, at: usize, char: char, made: &mut String) {
        if char != 'Σ' {
            made.extend(char.to_lowercase());
            return;
        }
        // Characters that words contain are skipped; a mark is not cased.
        let is_ignored = |char: &char| !unicode::is_cased(*char) && !unicode::is_word(*char) && !char.is_whitespace();
        let before = self.text.get(..at).unwrap_or_default().chars().rev().find(|char| !is_ignored(char));
        let after = self.text.get(at + char.len_utf8()..).unwrap_or_default().chars().find(|char| !is_ignored(char));
        let is_final = before.is_some_and(unicode::is_cased) && !after.is_some_and(unicode::is_cased);
        made.push(if is_final { 'ς' } else { 'σ' });
    }
}

pub(super) fn is_lower(text: &str) -> bool {
    let is_other = |char: char| char.is_uppercase() || unicode::is_title_letter(char);
    !text.chars().any(is_other) && text.chars().any(char::is_lowercase)
}

pub(super) fn is_upper(text: &str) -> bool {
    let is_other = |char: char| char.is_lowercase() || unicode::is_title_letter(char);
    !text.chars().any(is_other) && text.chars().any(char::is_uppercase)
}

fn is_title(text: &str) -> bool {
    let (mut follows_cased, mut has_cased) = (false, false);
    for char in text.chars() {
        let begins = char.is_uppercase() || unicode::is_title_letter(char);
        if begins && follows_cased || char.is_lowercase() && !follows_cased {
            return false;
        }
        follows_cased = begins || char.is_lowercase();
        has_cased |= follows_cased;
    }
    has_cased
}

/// `str.maketrans`.
fn table(args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [x, y, z] = args.bind("maketrans", ["x", "y", "z"], 1)?;
    let mut dict = Dict::new(meter)?;
    let code = |char: char| Value::Int((char as u32).into());
    if y.is_none() {
        let Some(Value::Dict(from)) = x else { fail!("if you give only one argument to maketrans it must be a dict") };
        for (key, value) in from.iter() {
            let key = match key.as_str() {
                Some(key) if key.chars().count() == 1 => key.chars().next().map_or(Value::None, code),
                Some(_) => fail!("string keys in translate table must be of length 1"),
                None => key.clone(),
            };
            dict.insert(key, value.clone())?;
        }
        return Ok(Value::Dict(Rc::new(dict)));
    }
    let (from, to) = (arguments::required_text(x.as_ref())?, arguments::required_text(y.as_ref())?);
    if from.chars().count() != to.chars().count() {
        fail!("the first two maketrans arguments must have equal length");
    }
    for (from, to) in from.chars().zip(to.chars()) {
        dict.insert(code(from), code(to))?;
    }
    for char in arguments::text(z.as_ref())?.iter().flat_map(|text| text.chars()) {
        dict.insert(code(char), Value::None)?;
    }
    Ok(Value::Dict(Rc::new(dict)))
}

/// Writes a text with references for HTML's special characters.
pub(super) fn escape(text: &str, out: &mut Writer) -> Result<()> {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '\'', '"']) {
        let (before, after) = rest.split_at(at);
        out.push(before)?;
        out.push(match after.as_bytes().first() {
            Some(b'&') => "&amp;",
            Some(b'<') => "&lt;",
            Some(b'>') => "&gt;",
            Some(b'\'') => "&#39;",
            _ => "&#34;",
        })?;
        rest = after.get(1..).unwrap_or_default();
    }
    out.push(rest)
}
