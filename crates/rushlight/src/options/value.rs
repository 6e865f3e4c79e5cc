//! Values of options.

use std::fmt;

/// A value of an option, of the types that every language has.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// No value: the default.
    None,
    Flag(bool),
    Integer(i128),
    Number(f64),
    Text(String),
    Texts(Vec<String>),
    /// Numbers by token.
    Biases(Vec<(u32, f32)>),
}

impl OptionValue {
    /// A number, written as f32 so that 0.8 stays 0.8.
    pub(super) fn single(number: f32) -> Self {
        Self::Number(number.to_string().parse().unwrap_or(f64::from(number)))
    }
}

/// Writes the value as in a command.
impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Flag(flag) => flag.fmt(f),
            Self::Integer(integer) => integer.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Texts(texts) => write!(f, "{texts:?}"),
            Self::Biases(biases) => f.debug_map().entries(biases.iter().copied()).finish(),
        }
    }
}

impl From<bool> for OptionValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<f32> for OptionValue {
    fn from(number: f32) -> Self {
        Self::single(number)
    }
}

impl From<f64> for OptionValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for OptionValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for OptionValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<String>> for OptionValue {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

impl<T: Into<Self>> From<Option<T>> for OptionValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

macro_rules! from_integers {
    ($($integer:ty),*) => {
        $(impl From<$integer> for OptionValue {
            fn from(integer: $integer) -> Self {
                Self::Integer(integer as i128)
            }
        })*
    };
}

from_integers!(i32, i64, i128, u32, u64, usize);
