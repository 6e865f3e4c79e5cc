//! The forms of configuration fields. Each known field is checked, including those that no computation uses: a wrong form shows that the
//! file is damaged, or that another program wrote it.

use serde_json::Value;

use rushlight_graph::Error;

use crate::config::{Config, MAX_SIZE, wrong};

/// The form of a field's value. `null` is the same as no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An integer from 1 to 2^31.
    Size,
    /// A size, or 0 for none.
    Count,
    /// An integer.
    Integer,
    /// A token, a list of tokens, or -1 for none.
    Tokens,
    /// A finite number.
    Number,
    /// A number above 0.
    Positive,
    /// A number from 0 to 1.
    Share,
    /// A number above 0, and at most 1.
    PositiveShare,
    /// True or false.
    Flag,
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// A text or a list of texts.
    TextOrTexts,
    /// A list of integers from 0 up.
    Counts,
    /// A list of numbers above 0.
    Positives,
    /// An object.
    Object,
    /// An integer from 0 up, or a list of them.
    CountOrCounts,
    /// Any list.
    List,
    /// A list of integers from 0 up, or an object of such lists.
    Indices,
    /// Text, a flag, or a list of texts: a mixture that libraries write.
    Loose,
}

use Form::{
    Count, CountOrCounts, Counts, Flag, Indices, Integer, List, Loose, Number, Object, Positive, PositiveShare,
    Positives, Share, Size, Text, TextOrTexts, Texts, Tokens,
};

impl Form {
    fn name(self) -> &'static str {
        match self {
            Size => "an integer from 1 to 2^31",
            Count => "an integer from 0 to 2^31",
            Integer => "an integer",
            Tokens => "the number of a token, or a list of them",
            Number => "a number",
            Positive => "a number above 0",
            Share => "a number from 0 to 1",
            PositiveShare => "a number above 0, at most 1",
            Flag => "true or false",
            Text => "text",
            Texts => "a list of texts",
            TextOrTexts => "text or a list of texts",
            Counts => "a list of integers from 0 to 2^31",
            Positives => "a list of numbers above 0",
            CountOrCounts => "an integer from 0 to 2^31, or a list of them",
            List => "a list",
            Object => "an object",
            Indices => "a list of integers, or an object of lists",
            Loose => "text, true or false, or a list of texts",
        }
    }

    fn has(self, value: &Value) -> bool {
        let count = |value: &Value| value.as_u64().is_some_and(|count| count <= MAX_SIZE as u64);
        let token = |value: &Value| count(value) || value.as_i64() == Some(-1);
        let number = |value: &Value| value.as_f64().filter(|number| number.is_finite());
        let positive = |value: &Value| number(value).is_some_and(|number| number > 0.0);
        let all = |is: &dyn Fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(is));
        match self {
            Size => count(value) && value.as_u64() != Some(0),
            Count => count(value),
            Integer => value.is_i64() || value.is_u64(),
            Tokens => token(value) || all(&token),
            Number => number(value).is_some(),
            Positive => positive(value),
            Share => number(value).is_some_and(|number| (0.0..=1.0).contains(&number)),
            PositiveShare => positive(value) && number(value).is_some_and(|number| number <= 1.0),
            Flag => value.is_boolean(),
            Text => value.is_string(),
            Texts => all(&Value::is_string),
            TextOrTexts => value.is_string() || all(&Value::is_string),
            Counts => all(&count),
            Positives => all(&positive),
            CountOrCounts => count(value) || all(&count),
            List => value.is_array(),
            Object => value.is_object(),
            Indices => value.is_object() || all(&count),
            Loose => value.is_string() || value.is_boolean() || all(&Value::is_string),
        }
    }
}

/// Checks the known fields of an object.
///
/// # Errors
/// `Input` for the first that is something else.
pub fn check(config: Config<'_>, fields: &[(&str, Form)]) -> Result<(), Error> {
    for (key, form) in fields {
        if let Some(value) = config.get(key).filter(|value| !form.has(value)) {
            return Err(wrong(key, form.name(), value));
        }
    }
    Ok(())
}
