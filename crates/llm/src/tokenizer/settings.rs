//! Reading the settings of a `tokenizer.json`.

use serde_json::Value as Json;

use crate::error::{Error, Result};

pub(super) fn damaged(problem: impl Into<String>) -> Error {
    Error::Tokenizer(problem.into())
}

/// The kind of a component.
pub(super) fn kind(json: &Json) -> Result<&str> {
    json["type"].as_str().ok_or_else(|| damaged("a component has no `type`"))
}

pub(super) fn text<'j>(json: &'j Json, name: &str) -> Result<&'j str> {
    json[name].as_str().ok_or_else(|| damaged(format!("`{name}` of {} is not a string", shown(json))))
}

pub(super) fn list<'j>(json: &'j Json, name: &str) -> Result<&'j [Json]> {
    let list = json[name].as_array().map(Vec::as_slice);
    list.ok_or_else(|| damaged(format!("`{name}` of {} is not a list", shown(json))))
}

/// A switch, which may be left out.
pub(super) fn flag(json: &Json, name: &str, default: bool) -> bool {
    json[name].as_bool().unwrap_or(default)
}

pub(super) fn count(json: &Json, name: &str) -> Result<usize> {
    let count = json[name].as_u64().and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| damaged(format!("`{name}` of {} is no number", shown(json))))
}

/// Maximum number of bytes that components may make of a text of `len`. Unicode's normal forms make 18 of one.
pub(super) const fn max_len(len: usize) -> usize {
    len.saturating_mul(64).saturating_add(1 << 12)
}

/// Fails if a text has grown beyond all use.
pub(super) fn check_len(len: usize, max: usize) -> Result<()> {
    if len > max {
        return Err(damaged(format!("a component makes more than {max} bytes of a text")));
    }
    Ok(())
}

/// A token's number.
pub(super) fn id(json: &Json) -> Result<u32> {
    let id = json.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| damaged(format!("{} is no token", shown(json))))
}

/// A component in a message: its type, or its beginning.
fn shown(json: &Json) -> String {
    const LONGEST: usize = 60;
    if let Some(kind) = json["type"].as_str() {
        return format!("`{kind}`");
    }
    json.to_string().chars().take(LONGEST).collect()
}
