//! Limits of chat templates, without which the template engine would overflow the stack.

use std::collections::HashSet;

use crate::error::{Error, Result};

/// Bytes of a template, and those of one tag beside its strings: what is nested in it is evaluated on the stack.
const MAX_SOURCE: usize = 1 << 18;
const MAX_TAG: usize = 1536;

/// Maximum number of `elif` in a template, each of which is nested in the one before.
const MAX_ELIF: usize = 500;

/// Fails if a template is larger than any of a model, has a tag that is, or uses a namespace in a way by which it could contain
/// itself.
///
/// # Errors
/// `Template`.
pub(crate) fn check(source: &str) -> Result<()> {
    let refused = |problem: String| Err(Error::Template(problem));
    if source.len() > MAX_SOURCE {
        return refused(format!("it has {} bytes, more than {MAX_SOURCE}", source.len()));
    }
    let tags = tags(source)?;
    let elifs = tags.iter().filter(|tag| tag.words.first() == Some(&"elif")).count();
    if elifs > MAX_ELIF {
        return refused(format!("it has {elifs} times `elif`, more than {MAX_ELIF}"));
    }
    // A namespace is in no value if nothing but its attributes is assigned to names or given to macros.
    let mut namespaces = HashSet::new();
    for tag in &tags {
        if let ["set", name, "=", "namespace", "(", ..] = tag.words[..] {
            namespaces.insert(name);
        }
    }
    for tag in &tags {
        let words = &tag.words;
        for (at, word) in words.iter().enumerate() {
            let (before, after) = (&words[..at], &words[at + 1..]);
            let is_name = before.last() == Some(&".") || matches!(after, ["=", next, ..] if *next != "=") && at > 1;
            let is_allowed = match *word {
                "namespace" => is_name || matches!((before, after), (["set", _, "="], ["(", ..])),
                word if namespaces.contains(word) => {
                    let is_loop_variable = before.first() == Some(&"for") && !before.contains(&"in");
                    is_name
                        || is_loop_variable
                        || matches!((before, after), (["set"], ["=", ..]) | (_, ["." | "[", ..]))
                        || tag.keeps_nothing()
                }
                _ => true,
            };
            if !is_allowed {
                return refused(format!(
                    "`{word}` is to be made by `set` and used by its attributes here, as it could contain itself"
                ));
            }
        }
    }
    Ok(())
}

struct Tag<'a> {
    /// Words and punctuation marks, without strings and marks of white space.
    words: Vec<&'a str>,
    is_output: bool,
}

impl Tag<'_> {
    /// True if no name gets a value of the tag: it is written or a condition, and calls nothing but methods, filters and tests.
    fn keeps_nothing(&self) -> bool {
        let is_condition = matches!(self.words.first(), Some(&("if" | "elif")));
        let calls =
            self.words.windows(2).enumerate().filter(|(_, pair)| pair[1] == "(" && pair[0].starts_with(is_word));
        let is_harmless = |(at, pair): (usize, &[&str])| {
            let before = at.checked_sub(1).and_then(|before| self.words.get(before));
            matches!(pair[0], "and" | "or" | "not" | "in" | "if" | "elif" | "else" | "is")
                || matches!(before, Some(&("." | "|" | "is")))
        };
        (self.is_output || is_condition) && calls.into_iter().all(is_harmless)
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn tags(source: &str) -> Result<Vec<Tag<'_>>> {
    let mut tags = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let after = rest.get(at + 2..).unwrap_or_default();
        rest = match rest.as_bytes().get(at + 1) {
            Some(b'#') => after.split_once("#}").map_or("", |(_, rest)| rest),
            Some(b'{') => tag(after, "}}", &mut tags)?,
            Some(b'%') => tag(after, "%}", &mut tags)?,
            _ => &rest[at + 1..],
        };
    }
    Ok(tags)
}

/// Adds a tag. Returns what follows its end.
fn tag<'a>(text: &'a str, end: &str, tags: &mut Vec<Tag<'a>>) -> Result<&'a str> {
    let mut words = Vec::new();
    let (mut rest, mut count) = (text.trim_start_matches(['-', '+']), 0);
    while !rest.is_empty() && !rest.starts_with(end) {
        let first = rest.chars().next().unwrap_or_default();
        let len = if matches!(first, '\'' | '"') {
            string_len(rest, first)
        } else {
            let len =
                if is_word(first) { rest.find(|char| !is_word(char)).unwrap_or(rest.len()) } else { first.len_utf8() };
            count += len;
            if !first.is_whitespace() {
                words.push(&rest[..len]);
            }
            len
        };
        if count > MAX_TAG {
            return Err(Error::Template(format!("a tag has more than {MAX_TAG} bytes beside its strings")));
        }
        rest = &rest[len..];
    }
    tags.push(Tag { words, is_output: end == "}}" });
    Ok(rest.get(end.len()..).unwrap_or_default())
}

/// The bytes of a string with its quotes.
fn string_len(text: &str, quote: char) -> usize {
    let mut is_escaped = true;
    for (at, char) in text.char_indices() {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            char if char == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_cannot_contain_themselves() {
        for source in [
            "{% set ns = namespace(x=0, ns=1) %}{% set ns.x = ns.x + 1 %}{{ ns['x'] }}{{ 'ns ~ ns' }} ns {# ns #}",
            "{%- set ns = namespace() -%}{%- set ns.a = message.ns ~ tool.namespace -%}",
            // A name that is a namespace in one place and a text in others.
            "{% for a in [1] %}{% endfor %}{% set a = namespace(x='') %}{% set a = a.x %}{% if 'b' in a and (a) %}{{ 'c' + a + a.strip('d') | trim('e') }}{% endif %}",
        ] {
            assert!(check(source).is_ok(), "{source}");
        }
        for source in [
            "{% set ns = namespace() %}{% set ns.x = ns %}",
            "{% set ns = namespace() %}{% set l = [ns] %}{% set ns.x = l %}",
            "{% set ns = namespace() %}{% with l = [ns] %}{% set ns.x = l %}{% endwith %}",
            "{% set ns = namespace() %}{% for l in [ns] %}{% set ns.x = l %}{% endfor %}",
            "{% macro f(l) %}{% set ns.x = l %}{% endmacro %}{% set ns = namespace() %}{{ f(ns) }}",
            "{% macro f(l) %}{% set ns.x = l %}{% endmacro %}{% set ns = namespace() %}{% if f(ns) %}{% endif %}",
            "{% set a, b = namespace(), 1 %}",
            "{% set f = namespace %}",
            "{% with ns = namespace() %}{% endwith %}",
        ] {
            assert!(check(source).is_err(), "{source}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let elifs = |count: usize| format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(count));
        assert!(check(&elifs(MAX_ELIF)).is_ok());
        assert!(check(&elifs(MAX_ELIF + 1)).is_err());
        assert!(check(&format!("{{{{ {} }}}}", "x+".repeat(MAX_TAG / 2 + 1))).is_err());
        assert!(check(&format!("{{{{ '{}' }}}}", "x\\'".repeat(MAX_TAG))).is_ok());
        assert!(check(&"x".repeat(MAX_SOURCE + 1)).is_err());
    }
}
