//! Conversion of errors, metadata, times and counts to plain values. `bindings/js` and `bindings/node` make objects of these, each with
//! the interface of its engine, so that programs see the same. Level 8.

mod error;
#[cfg(feature = "llm")]
mod llm;
mod meta;
mod options;
mod profile;

pub use error::{error, own_error};
#[cfg(feature = "llm")]
pub use llm::{chat_prompt, limits, llm_error, step, usage};
pub use meta::meta;
pub use options::read_options;
pub use profile::Timer;

/// A value of JavaScript's that can be posted between threads.
#[derive(Clone, Debug)]
pub enum Plain {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    BigInt(i64),
    Text(String),
    Array(Vec<Plain>),
    Object(Vec<(&'static str, Plain)>),
}

impl From<bool> for Plain {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Plain {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<u32> for Plain {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

/// Counts, which are exact up to 2^53.
impl From<usize> for Plain {
    fn from(value: usize) -> Self {
        Self::Number(value as f64)
    }
}

impl From<&str> for Plain {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Plain {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// `None` is `undefined`.
impl<T: Into<Self>> From<Option<T>> for Plain {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Undefined, Into::into)
    }
}

impl<T: Into<Self>> FromIterator<T> for Plain {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::Array(values.into_iter().map(Into::into).collect())
    }
}
