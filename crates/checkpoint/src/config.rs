//! Reads settings of JSON files such as `config.json`.

use serde_json::{Map, Value};

use rushlight_graph::Error;

use crate::tensors::damaged;

/// The settings of a model, or of a part of it. A key whose value is `null` is absent.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a>(pub &'a Map<String, Value>);

/// Parses a file that holds one JSON object.
///
/// # Errors
/// `Input` for other content.
pub fn parse(file: &str, text: &[u8]) -> Result<Map<String, Value>, Error> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(damaged(format!("`{file}` is no JSON object"))),
        Err(fault) => Err(damaged(format!("`{file}` is no JSON")).got(fault.to_string())),
    }
}

/// Values by their keys. A value of another form is an error of the kind `Input`.
impl<'a> Config<'a> {
    /// The value of a key; `None` for `null`.
    pub fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The value of a key as `read` has it.
    fn read<T>(self, key: &str, what: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(key, what, value))
    }

    /// A size: an integer from 1 up.
    pub fn size(self, key: &str) -> Result<Option<usize>, Error> {
        let size = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|size| (1..=MAX_SIZE).contains(size));
        self.read(key, "an integer from 1 to 2^31", size)
    }

    /// As [`size`](Self::size); an error if it is missing.
    pub fn required_size(self, key: &str) -> Result<usize, Error> {
        self.size(key)?.ok_or_else(|| missing(key))
    }

    /// A finite number.
    pub fn number(self, key: &str) -> Result<Option<f64>, Error> {
        self.read(key, "a number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    /// As [`number`](Self::number); an error if it is missing.
    pub fn required_number(self, key: &str) -> Result<f64, Error> {
        self.number(key)?.ok_or_else(|| missing(key))
    }

    /// A number above zero.
    pub fn positive(self, key: &str) -> Result<Option<f64>, Error> {
        self.read(key, "a number above 0", |value| value.as_f64().filter(|x| x.is_finite() && *x > 0.0))
    }

    /// As [`positive`](Self::positive); an error if it is missing.
    pub fn required_positive(self, key: &str) -> Result<f64, Error> {
        self.positive(key)?.ok_or_else(|| missing(key))
    }

    /// True or false.
    pub fn flag(self, key: &str) -> Result<Option<bool>, Error> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// A text.
    pub fn text(self, key: &str) -> Result<Option<&'a str>, Error> {
        self.read(key, "text", Value::as_str)
    }

    /// An object.
    pub fn object(self, key: &str) -> Result<Option<Self>, Error> {
        self.read(key, "an object", |value| value.as_object().map(Self))
    }

    /// A list of finite numbers.
    pub fn numbers(self, key: &str) -> Result<Option<Vec<f64>>, Error> {
        let number = |value: &Value| value.as_f64().filter(|number| number.is_finite());
        self.read(key, "a list of numbers", |value| value.as_array()?.iter().map(number).collect())
    }

    /// A list of texts.
    pub fn texts(self, key: &str) -> Result<Option<Vec<&'a str>>, Error> {
        self.read(key, "a list of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// An integer or a list of them.
    pub fn integers(self, key: &str) -> Result<Vec<i64>, Error> {
        let list = |value: &Value| match value {
            Value::Array(items) => items.iter().map(Value::as_i64).collect(),
            value => value.as_i64().map(|one| vec![one]),
        };
        Ok(self.read(key, "an integer or a list of them", list)?.unwrap_or_default())
    }
}

/// Largest size of a configuration; products of two fit an `i64`.
pub const MAX_SIZE: usize = 1 << 31;

fn missing(key: &str) -> Error {
    damaged(format!("the configuration has no `{key}`"))
}

pub(crate) fn wrong(key: &str, what: &str, got: &Value) -> Error {
    let mut text = got.to_string();
    if text.len() > 80 {
        text = text.chars().take(80).chain("…".chars()).collect();
    }
    damaged(format!("`{key}` of the configuration is not what it should be")).expected(what).got(text)
}
