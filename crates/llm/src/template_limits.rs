//! What a chat template may not have: on some forms the engine would overflow the stack.

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
    let tags: Vec<Vec<&str>> = tags(source)?;
    let elifs = tags.iter().filter(|tag| tag.first() == Some(&"elif")).count();
    if elifs > MAX_ELIF {
        return refused(format!("it has {elifs} times `elif`, more than {MAX_ELIF}"));
    }
    // A namespace that only its attributes are read of and written to is in no value.
    let mut namespaces = HashSet::new();
    for tag in &tags {
        if let ["set", name, "=", "namespace", "(", ..] = tag[..] {
            namespaces.insert(name);
        }
    }
    for tag in &tags {
        for (at, word) in tag.iter().enumerate() {
            let (before, after) = (&tag[..at], &tag[at + 1..]);
            let is_name = before.last() == Some(&".") || matches!(after, ["=", next, ..] if *next != "=") && at > 1;
            let is_allowed = match *word {
                "namespace" => is_name || matches!((before, after), (["set", _, "="], ["(", ..])),
                word if namespaces.contains(word) => {
                    is_name || matches!((before, after), (["set"], ["=", ..]) | (_, ["." | "[", ..]))
                }
                _ => true,
            };
            if !is_allowed {
                return refused(format!(
                    "`{word}` may only be made by `set` and used by its attributes, as it could contain itself"
                ));
            }
        }
    }
    Ok(())
}

/// The words and punctuation marks of each tag, without strings and marks of white space.
fn tags(source: &str) -> Result<Vec<Vec<&str>>> {
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

/// Adds the words of a tag up to its end. Returns what follows.
fn tag<'a>(text: &'a str, end: &str, tags: &mut Vec<Vec<&'a str>>) -> Result<&'a str> {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
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
    tags.push(words);
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
        ] {
            assert!(check(source).is_ok(), "{source}");
        }
        for source in [
            "{% set ns = namespace() %}{% set ns.x = ns %}",
            "{% set ns = namespace() %}{% set l = [ns] %}{% set ns.x = l %}",
            "{% set ns = namespace() %}{{ ns|string }}",
            "{% set ns = namespace() %}{{ f(x, ns == 1) }}",
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
