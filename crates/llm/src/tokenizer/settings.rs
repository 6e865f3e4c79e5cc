//! Reading the settings of a `tokenizer.json`.

use serde_json::Value as Json;

use crate::error::{Error, Result};

/// The error of a tokenizer file that cannot be used.
pub(super) fn damaged(problem: impl Into<String>) -> Error {
    Error::Tokenizer(problem.into())
}

/// The type of a component, such as `ByteLevel`.
pub(super) fn kind(json: &Json) -> Result<&str> {
    json["type"].as_str().ok_or_else(|| damaged("a component has no `type`"))
}

pub(super) fn text<'j>(json: &'j Json, name: &str) -> Result<&'j str> {
    json[name].as_str().ok_or_else(|| damaged(format!("`{name}` of {} is not a string", describe(json))))
}

pub(super) fn list<'j>(json: &'j Json, name: &str) -> Result<&'j [Json]> {
    let list = json[name].as_array().map(Vec::as_slice);
    list.ok_or_else(|| damaged(format!("`{name}` of {} is not a list", describe(json))))
}

/// An optional boolean.
pub(super) fn flag(json: &Json, name: &str, default: bool) -> bool {
    json[name].as_bool().unwrap_or(default)
}

pub(super) fn count(json: &Json, name: &str) -> Result<usize> {
    let count = json[name].as_u64().and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| damaged(format!("`{name}` of {} is not a number", describe(json))))
}

/// Maximum bytes of the result of all components for a text of `len` bytes. One byte can become 18 in Unicode's normal forms.
pub(super) const fn max_len(len: usize) -> usize {
    len.saturating_mul(64).saturating_add(1 << 12)
}

/// Fails if a component's result of `len` bytes is longer than `max`.
pub(super) fn check_len(len: usize, max: usize) -> Result<()> {
    if len > max {
        return Err(damaged(format!("a component makes more than {max} bytes of a text")));
    }
    Ok(())
}

/// The id of a token.
pub(super) fn id(json: &Json) -> Result<u32> {
    let id = json.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| damaged(format!("{} is not the id of a token", describe(json))))
}

/// Describes a component in a message, by its type or by the beginning of its JSON.
fn describe(json: &Json) -> String {
    const MAX_CHARS: usize = 60;
    if let Some(kind) = json["type"].as_str() {
        return format!("`{kind}`");
    }
    json.to_string().chars().take(MAX_CHARS).collect()
}
