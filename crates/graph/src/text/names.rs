//! Names of things, and texts in quotes.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::types::dtype_named;
use crate::{Symbol, Symbols};

/// The text of each name of a kind of thing: in quotes where it is no word, numbered where it is not the first.
#[derive(Debug)]
pub(super) struct Names<K> {
    texts: HashMap<K, String>,
    seen: HashMap<String, u32>,
}

impl<K: Eq + Hash> Names<K> {
    pub fn new() -> Self {
        Self { texts: HashMap::new(), seen: HashMap::new() }
    }

    /// Notes a thing and its name.
    pub fn add(&mut self, thing: K, name: &str) {
        let base = if is_name(name) { name.to_owned() } else { quoted(name) };
        let count = self.seen.entry(base.clone()).or_default();
        let text = if *count == 0 { base } else { format!("{base}~{count}") };
        *count += 1;
        self.texts.insert(thing, text);
    }

    /// The text of a thing's name.
    pub fn get(&self, thing: &K) -> &str {
        self.texts.get(thing).map_or("?", String::as_str)
    }
}

/// True if a character can stand in a name without quotes.
pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name_char)
}

/// Words that mean something where a size can stand.
const RESERVED: [&str; 16] = [
    "none",
    "true",
    "false",
    "inf",
    "nan",
    "max",
    "min",
    "complex",
    "device",
    "strided",
    "sparse",
    "contiguous_format",
    "preserve_format",
    "channels_last",
    "channels_last_3d",
    "int",
];

/// True if a name can be a symbol's in expressions.
fn is_symbol(name: &str) -> bool {
    is_name(name)
        && !name.contains('.')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && !RESERVED.contains(&name)
        && dtype_named(name).is_none()
}

/// The symbols with names that expressions can hold, each once.
pub(super) fn plain_symbols(symbols: &Symbols) -> Symbols {
    let mut plain = Symbols::new();
    let mut seen: HashSet<String> = symbols.iter().map(|(_, symbol)| symbol.name.clone()).collect();
    let mut first: HashSet<&str> = HashSet::new();
    for (id, symbol) in symbols.iter() {
        let mut name = symbol.name.clone();
        if !is_symbol(&name) || !first.insert(&symbol.name) {
            name = format!("sym{}", id.index());
            while !seen.insert(name.clone()) {
                name.push('_');
            }
        }
        plain.push(Symbol { name, ..symbol.clone() });
    }
    plain
}

/// A text in quotes, with escapes for what would end or break it.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A word as it is, anything else in quotes.
pub(super) fn word(text: &str, is_word: impl Fn(&str) -> bool) -> String {
    if is_word(text) { text.to_owned() } else { quoted(text) }
}

/// True if a text is an operator's name such as `aten::add.Tensor`.
pub(super) fn is_operator(text: &str) -> bool {
    text.split_once("::").is_some_and(|(namespace, name)| {
        let word = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && is_name(text);
        word(namespace) && word(name)
    })
}
