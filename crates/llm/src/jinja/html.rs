//! Filters for HTML and addresses.

use std::rc::Rc;
use std::sync::LazyLock;

use regex_automata::hybrid::dfa::DFA;
use regex_automata::{Anchored, Input};

use super::arguments::{self, Args};
use super::attributes::soft_text;
use super::failure::{Result, fail};
use super::meter::{Meter, Writer};
use super::repr::to_str;
use super::text::escape;
use super::unicode;
use super::value::Value;

/// A value as HTML, which a value that is HTML stays.
pub(super) fn escaped(value: &Value, meter: &Rc<Meter>) -> Result<Value> {
    if let Value::Text(text) = value
        && text.is_markup
    {
        return Ok(value.clone());
    }
    force_escaped(value, meter)
}

pub(super) fn force_escaped(value: &Value, meter: &Rc<Meter>) -> Result<Value> {
    let text = soft_text(value, meter)?;
    let mut out = Writer::new(meter);
    escape(&text, &mut out)?;
    Value::text_as(meter, out.into_text(), true)
}

/// A text without comments and tags, whose white space is single spaces.
pub(super) fn strip_tags(text: &str, meter: &Rc<Meter>) -> Result<String> {
    meter.room(2 * text.len())?;
    let without = |text: &str, begin: &str, end: &str| {
        let mut left = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(begin) {
            let (before, tag) = rest.split_at(at);
            let Some((_, after)) = tag.split_once(end) else { break };
            left.push_str(before);
            rest = after;
        }
        left + rest
    };
    let text = without(&without(text, "<!--", "-->"), "<", ">");
    let words: Vec<&str> = text.split(unicode::is_space).filter(|word| !word.is_empty()).collect();
    Ok(unescape(&words.join(" ")))
}

/// Replaces character references by their characters. It knows references by number, and the usual names.
pub(super) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, reference) = rest.split_at(at);
        out.push_str(before);
        let found = reference.get(1..).and_then(|after| after.split_once(';')).and_then(|(name, after)| {
            let char = match name {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                "nbsp" => '\u{a0}',
                name => {
                    let number = name.strip_prefix('#')?;
                    let code = match number.strip_prefix(['x', 'X']) {
                        Some(digits) => u32::from_str_radix(digits, 16),
                        None => number.parse(),
                    };
                    char::from_u32(code.ok()?)?
                }
            };
            Some((char, after))
        });
        match found {
            Some((char, after)) => {
                out.push(char);
                rest = after;
            }
            None => {
                out.push('&');
                rest = reference.get(1..).unwrap_or_default();
            }
        }
    }
    out + rest
}

fn quote(text: &str, for_query: bool, out: &mut Writer) -> Result<()> {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push_char(byte.into())?,
            b'/' if !for_query => out.push("/")?,
            b' ' if for_query => out.push("+")?,
            byte => out.push(&format!("%{byte:02X}"))?,
        }
    }
    Ok(())
}

pub(super) fn url_encode(value: &Value, meter: &Rc<Meter>) -> Result<Value> {
    let mut out = Writer::new(meter);
    let pairs = match value {
        Value::Dict(dict) => Value::View(super::value::View::Items, dict.clone()).elements(meter)?,
        Value::List(_) | Value::Tuple(_) | Value::View(..) | Value::Range(_) | Value::Generator(_) => {
            value.elements(meter)?
        }
        Value::Undefined(_) => Vec::new(),
        other => {
            quote(&to_str(other, meter)?, false, &mut out)?;
            return Value::text(meter, out.into_text());
        }
    };
    for (index, pair) in pairs.iter().enumerate() {
        let pair = pair.elements(meter)?;
        let [key, value] = &pair[..] else { fail!("not enough values to unpack (expected 2, got {})", pair.len()) };
        if index > 0 {
            out.push("&")?;
        }
        quote(&to_str(key, meter)?, true, &mut out)?;
        out.push("=")?;
        quote(&to_str(value, meter)?, true, &mut out)?;
    }
    Value::text(meter, out.into_text())
}

pub(super) fn xml_attributes(value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let [has_space] = args.bind("xmlattr", ["autospace"], 0)?;
    let Value::Dict(dict) = value else { fail!("'{}' object has no attribute 'items'", value.type_name()) };
    let mut out = Writer::new(meter);
    let mut is_first = true;
    for (key, value) in dict.iter() {
        if matches!(value, Value::None | Value::Undefined(_)) {
            continue;
        }
        let Some(key) = key.as_str() else { fail!("expected string or bytes-like object, got '{}'", key.type_name()) };
        if key.contains([' ', '\t', '\n', '\r', '\u{b}', '\u{c}', '/', '>', '=']) {
            fail!("Invalid character in attribute name: '{key}'");
        }
        if !std::mem::take(&mut is_first) || arguments::is_true(has_space.as_ref(), true) {
            out.push(" ")?;
        }
        escape(key, &mut out)?;
        out.push("=\"")?;
        if let Value::Text(text) = escaped(value, meter)? {
            out.push(&text)?;
        }
        out.push("\"")?;
    }
    Value::text(meter, out.into_text())
}

/// An expression that a whole text has to match.
struct Whole(LazyLock<Option<DFA>>);

impl Whole {
    fn matches(&self, text: &str, meter: &Meter) -> Result<bool> {
        meter.steps(text.len())?;
        let Some(dfa) = &*self.0 else { return Ok(false) };
        let input = Input::new(text).anchored(Anchored::Yes);
        let found = dfa.try_search_fwd(&mut dfa.create_cache(), &input);
        Ok(matches!(found, Ok(Some(found)) if found.offset() == text.len()))
    }
}

/// Addresses as Jinja takes them for links.
static URL: Whole = Whole(LazyLock::new(|| {
    let scheme = r"(?:https?://|www\.)(?:(?:[\w%-]+\.)+)?(?:[a-z]{2,63}|xn--[\w%]{2,59})";
    let domain = r"(?:[\w%-]{2,63}\.)+(?:com|net|int|edu|gov|org|info|mil)";
    let numbers = r"https?://(?:\d{1,3}(?:\.\d{1,3}){3}|\[(?:[\da-f]{0,4}:){2}(?:[\da-f]{0,4}:?){1,6}\])";
    DFA::new(&format!(r"(?i)(?:{scheme}|{domain}|{numbers})(?::\d{{1,5}})?(?:[/?\x23]\S*)?\z")).ok()
}));
static MAIL: Whole = Whole(LazyLock::new(|| DFA::new(r"\S+@\w[\w.-]*\.\w+\z").ok()));
static SCHEME: Whole = Whole(LazyLock::new(|| DFA::new(r"[\w.+-]{2,}:/{0,2}\z").ok()));

/// The filter `urlize`.
pub(super) fn urlize(value: &Value, args: Args, meter: &Rc<Meter>) -> Result<Value> {
    let names = ["trim_url_limit", "nofollow", "target", "rel", "extra_schemes"];
    let [limit, nofollow, target, rel, schemes] = args.bind("urlize", names, 0)?;
    let limit = arguments::optional_int(limit.as_ref())?;
    let mut relations: std::collections::BTreeSet<String> = ["noopener".to_owned()].into();
    if let Some(rel) = arguments::text(rel.as_ref())? {
        relations.extend(rel.split_whitespace().map(str::to_owned));
    }
    if arguments::is_true(nofollow.as_ref(), false) {
        relations.insert("nofollow".to_owned());
    }
    let attribute = |name: &str, text: &str| -> Result<String> {
        let mut out = Writer::new(meter);
        escape(text, &mut out)?;
        Ok(format!(" {name}=\"{}\"", out.into_text()))
    };
    let relations: Vec<String> = relations.into_iter().collect();
    let mut attributes = attribute("rel", &relations.join(" "))?;
    if let Some(target) = arguments::text(target.as_ref())?.filter(|target| !target.is_empty()) {
        attributes += &attribute("target", &target)?;
    }
    let mut extra = Vec::new();
    if let Some(scheme) = schemes.filter(|schemes| !matches!(schemes, Value::None)) {
        for scheme in scheme.elements(meter)? {
            let scheme = arguments::required_text(Some(&scheme))?;
            if !SCHEME.matches(&scheme, meter)? {
                fail!("'{}' is not a valid URI scheme prefix.", &**scheme);
            }
            extra.push(scheme);
        }
    }
    let Value::Text(text) = escaped(value, meter)? else { return Ok(Value::None) };
    let mut out = Writer::new(meter);
    let mut rest: &str = &text;
    while !rest.is_empty() {
        let space = rest.find(|char| !unicode::is_space(char)).unwrap_or(rest.len());
        let (white, word) = rest.split_at(space);
        out.push(white)?;
        let (word, after) = word.split_at(word.find(unicode::is_space).unwrap_or(word.len()));
        rest = after;
        let (head, mut middle, mut tail) = around(word);
        for (begin, end) in [("(", ")"), ("<", ">"), ("&lt;", "&gt;")] {
            let begins = middle.matches(begin).count();
            if begins <= middle.matches(end).count() {
                continue;
            }
            meter.bytes(begins.min(tail.matches(end).count()).saturating_mul(word.len()))?;
            for _ in 0..begins.min(tail.matches(end).count()) {
                let Some(at) = tail.find(end) else { break };
                let (moved, left) = tail.split_at(at + end.len());
                middle += moved;
                tail = left.to_owned();
            }
        }
        out.push(head)?;
        let link = |to: &str, shown: &str, attributes: &str| format!("<a href=\"{to}\"{attributes}>{shown}</a>");
        let made = if URL.matches(&middle, meter)? {
            let shown = match limit.and_then(|limit| usize::try_from(limit).ok()) {
                Some(limit) if middle.chars().count() > limit => {
                    format!("{}...", middle.chars().take(limit).collect::<String>())
                }
                _ => middle.clone(),
            };
            let has_scheme = middle.starts_with("https://") || middle.starts_with("http://");
            let to = if has_scheme { middle.clone() } else { format!("https://{middle}") };
            link(&to, &shown, &attributes)
        } else if let Some(mail) = middle.strip_prefix("mailto:")
            && MAIL.matches(mail, meter)?
        {
            link(&middle, mail, "")
        } else if middle.contains('@')
            && !middle.starts_with("www.")
            && !middle.starts_with('@')
            && !middle.contains(':')
            && MAIL.matches(&middle, meter)?
        {
            link(&format!("mailto:{middle}"), &middle, "")
        } else {
            let is_known = |scheme: &&Rc<super::value::Text>| middle != ****scheme && middle.starts_with(&****scheme);
            match extra.iter().find(is_known) {
                Some(_) => link(&middle, &middle, &attributes),
                None => middle,
            }
        };
        out.push(&made)?;
        out.push(&tail)?;
    }
    Value::text(meter, out.into_text())
}

/// Splits a word into its middle, the brackets before it and the punctuation after it.
fn around(word: &str) -> (&str, String, String) {
    let mut middle = word;
    while let Some(rest) = ["(", "<", "&lt;"].iter().find_map(|begin| middle.strip_prefix(begin)) {
        middle = rest;
    }
    let head = word.get(..word.len() - middle.len()).unwrap_or_default();
    let mut inner = middle;
    while let Some(rest) = [")", ">", ".", ",", "\n", "&gt;"].iter().find_map(|end| inner.strip_suffix(end)) {
        inner = rest;
    }
    (head, inner.to_owned(), middle.get(inner.len()..).unwrap_or_default().to_owned())
}
