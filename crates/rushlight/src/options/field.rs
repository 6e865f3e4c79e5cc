//! Fields of options: the place and the range of each value.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use super::error::Wrong;
use super::units;
use super::value::OptionValue;

/// The field of an option in `T`, with the range of its values. The function returns the place of the value.
pub enum Field<T> {
    /// True or false.
    Flag(fn(&mut T) -> &mut bool),
    /// A finite number.
    Number(Range, fn(&mut T) -> &mut f32),
    /// An integer from the first number to the second.
    Count(usize, usize, fn(&mut T) -> &mut usize),
    /// As `Count`, without a value by default.
    Limit(usize, usize, fn(&mut T) -> &mut Option<usize>),
    /// As `Limit`, in which `true` stands for 0 and `false` for none.
    FlagOrCount(fn(&mut T) -> &mut Option<usize>),
    /// A finite number, without a value by default.
    Bound(fn(&mut T) -> &mut Option<f64>),
    /// Bytes of memory, at least 1; as text with a unit.
    Size(fn(&mut T) -> &mut Option<usize>),
    /// A time of more than 0, in seconds; as text with a unit.
    Time(fn(&mut T) -> &mut Option<Duration>),
    /// A seed. No value, and the text `random`, are another seed each time.
    Seed(fn(&mut T) -> &mut u64),
    /// One of these integers.
    Version(&'static [usize], fn(&mut T) -> &mut usize),
    /// One of these texts.
    Choice(fn() -> Vec<&'static str>, fn(&mut T) -> &mut Option<String>),
    /// Any text.
    Text(fn(&mut T) -> &mut Option<String>),
    /// The path of a file or folder.
    Path(fn(&mut T) -> &mut Option<PathBuf>),
    /// A list of texts.
    Texts(fn(&mut T) -> &mut Vec<String>),
    /// Numbers that are added to logits, by token.
    Biases(fn(&mut T) -> &mut Vec<(u32, f32)>),
}

/// A range of numbers. Infinity and NaN are outside of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    min: f32,
    /// True if `min` itself is outside.
    is_open: bool,
    max: f32,
}

impl Range {
    /// All finite numbers.
    pub const ANY: Self = Self { min: f32::NEG_INFINITY, is_open: false, max: f32::INFINITY };

    /// Numbers from `min` on.
    pub const fn at_least(min: f32) -> Self {
        Self { min, ..Self::ANY }
    }

    /// Numbers of more than `min`.
    pub const fn above(min: f32) -> Self {
        Self { min, is_open: true, ..Self::ANY }
    }

    /// The numbers of the range up to `max`.
    #[must_use]
    pub const fn at_most(self, max: f32) -> Self {
        Self { max, ..self }
    }

    /// The numbers in the range.
    pub fn contains(self, number: f32) -> bool {
        let above = if self.is_open { number > self.min } else { number >= self.min };
        number.is_finite() && above && number <= self.max
    }
}

/// Writes the range as an error has it: `more than 0, at most 1`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, is_open, max } = *self;
        match (min == f32::NEG_INFINITY, is_open, max == f32::INFINITY) {
            (true, _, true) => f.write_str("a finite number"),
            (true, _, false) => write!(f, "at most {max}"),
            (false, true, true) => write!(f, "more than {min}"),
            (false, true, false) => write!(f, "more than {min}, at most {max}"),
            (false, false, true) => write!(f, "{min} or more"),
            (false, false, false) => write!(f, "from {min} to {max}"),
        }
    }
}

impl<T> Field<T> {
    /// Returns the values that the option takes, as an error and a table name them.
    pub fn expected(&self) -> String {
        match self {
            Self::Flag(_) => "true or false".to_owned(),
            Self::Number(range, _) => range.to_string(),
            Self::Count(min, usize::MAX, _) | Self::Limit(min, usize::MAX, _) => format!("{min} or more"),
            Self::Count(min, max, _) | Self::Limit(min, max, _) => format!("from {min} to {max}"),
            Self::FlagOrCount(_) => "true, false, or 0 or more".to_owned(),
            Self::Bound(_) => "a finite number".to_owned(),
            Self::Size(_) => "a size of at least 1 byte, such as 1000000, 64MiB or 2GB".to_owned(),
            Self::Time(_) => "a time above 0, such as 10, 500ms, 2s or 5min".to_owned(),
            Self::Seed(_) => format!("from 0 to {}", u64::MAX),
            Self::Version(known, _) => either(known.iter().map(ToString::to_string)),
            Self::Choice(known, _) => either(known().into_iter().map(|name| format!("\"{name}\""))),
            Self::Text(_) => "a text".to_owned(),
            Self::Path(_) => "a path".to_owned(),
            Self::Texts(_) => "a text or a list of texts".to_owned(),
            Self::Biases(_) => "finite or infinite numbers by token".to_owned(),
        }
    }

    /// True if several values may be given.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Texts(_) | Self::Biases(_))
    }

    pub(super) fn get(&self, target: &mut T) -> OptionValue {
        match self {
            Self::Flag(at) => OptionValue::Flag(*at(target)),
            Self::Number(_, at) => OptionValue::single(*at(target)),
            Self::Count(_, _, at) | Self::Version(_, at) => (*at(target)).into(),
            Self::Limit(_, _, at) | Self::FlagOrCount(at) | Self::Size(at) => (*at(target)).into(),
            Self::Bound(at) => (*at(target)).into(),
            Self::Time(at) => at(target).map(|time| time.as_secs_f64()).into(),
            Self::Seed(at) => (*at(target)).into(),
            Self::Choice(_, at) | Self::Text(at) => at(target).clone().into(),
            Self::Path(at) => at(target).as_ref().map(|path| path.to_string_lossy().into_owned()).into(),
            Self::Texts(at) => at(target).clone().into(),
            Self::Biases(at) => OptionValue::Biases(at(target).clone()),
        }
    }

    /// Checks the type and the range of a value. `None` is a value of options that have none by default.
    pub(super) fn check(&self, value: &OptionValue) -> Result<(), Wrong> {
        use OptionValue as Value;
        let is_within = |min: usize, max: usize, given: i128| (min as i128..=max as i128).contains(&given);
        let is_valid = match (self, value) {
            (Self::Flag(_), Value::Flag(_)) | (Self::Texts(_), Value::Text(_) | Value::Texts(_)) => Ok(true),
            (Self::Text(_) | Self::Path(_), Value::Text(_)) | (Self::FlagOrCount(_), Value::Flag(_)) => Ok(true),
            (Self::Number(range, _), Value::Number(number)) => Ok(range.contains(*number as f32)),
            (Self::Number(range, _), Value::Integer(integer)) => Ok(range.contains(*integer as f32)),
            (Self::Bound(_), Value::Number(number)) => Ok(number.is_finite()),
            (Self::Bound(_), Value::Integer(_)) => Ok(true),
            (Self::Count(min, max, _) | Self::Limit(min, max, _), Value::Integer(given)) => {
                Ok(is_within(*min, *max, *given))
            }
            (Self::FlagOrCount(_), Value::Integer(given)) => Ok(is_within(0, usize::MAX, *given)),
            (Self::Size(_), Value::Integer(given)) => Ok(is_within(1, usize::MAX, *given)),
            (Self::Time(_), Value::Integer(seconds)) => Ok(time(*seconds as f64).is_some()),
            (Self::Time(_), Value::Number(seconds)) => Ok(time(*seconds).is_some()),
            (Self::Seed(_), Value::Integer(given)) => Ok(u64::try_from(*given).is_ok()),
            (Self::Version(known, _), Value::Integer(given)) => Ok(known.iter().any(|known| *known as i128 == *given)),
            (Self::Choice(known, _), Value::Text(text)) => Ok(known().contains(&text.as_str())),
            (Self::Biases(_), Value::Biases(biases)) => Ok(biases.iter().all(|(_, bias)| !bias.is_nan())),
            // A number, a flag or a list has a default, which stands for no value.
            (
                Self::Flag(_)
                | Self::Number(..)
                | Self::Count(..)
                | Self::Version(..)
                | Self::Texts(_)
                | Self::Biases(_),
                Value::None,
            ) => Err(()),
            (_, Value::None) => Ok(true),
            _ => Err(()),
        };
        match is_valid {
            Ok(true) => Ok(()),
            other => Err(Wrong { expected: self.expected(), got: shown(value), is_type: other.is_err() }),
        }
    }

    pub(super) fn set(&self, target: &mut T, value: OptionValue) -> Result<(), Wrong> {
        use OptionValue as Value;
        self.check(&value)?;
        let count = match &value {
            Value::Integer(integer) => usize::try_from(*integer).ok(),
            _ => None,
        };
        let number = match &value {
            Value::Integer(integer) => Some(*integer as f64),
            Value::Number(number) => Some(*number),
            _ => None,
        };
        let text = match &value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        match self {
            Self::Flag(at) => *at(target) = value == Value::Flag(true),
            Self::Number(_, at) => *at(target) = number.map_or(0.0, |number| number as f32),
            Self::Count(_, _, at) | Self::Version(_, at) => *at(target) = count.unwrap_or(0),
            Self::Limit(_, _, at) | Self::Size(at) => *at(target) = count,
            Self::FlagOrCount(at) => *at(target) = if value == Value::Flag(true) { Some(0) } else { count },
            Self::Bound(at) => *at(target) = number,
            Self::Time(at) => *at(target) = number.and_then(time),
            Self::Seed(at) => {
                *at(target) = match value {
                    Value::Integer(seed) => u64::try_from(seed).unwrap_or_default(),
                    _ => RandomState::new().hash_one(0),
                }
            }
            Self::Choice(_, at) | Self::Text(at) => *at(target) = text,
            Self::Path(at) => *at(target) = text.map(PathBuf::from),
            Self::Texts(at) => {
                *at(target) = match value {
                    Value::Text(text) => vec![text],
                    Value::Texts(texts) => texts,
                    _ => Vec::new(),
                }
            }
            Self::Biases(at) => {
                if let Value::Biases(biases) = value {
                    *at(target) = biases;
                }
            }
        }
        Ok(())
    }

    pub(super) fn set_text(&self, target: &mut T, text: &str) -> Result<(), Wrong> {
        use OptionValue as Value;
        let integer = || text.parse::<i128>().ok().map(Value::Integer);
        let value = match self {
            Self::Texts(at) => {
                at(target).push(text.to_owned());
                return Ok(());
            }
            Self::Biases(at) => match biases(text) {
                Some(biases) => {
                    at(target).extend(biases);
                    return Ok(());
                }
                None => None,
            },
            Self::Choice(..) | Self::Text(_) | Self::Path(_) => Some(Value::Text(text.to_owned())),
            Self::Flag(_) => text.parse().ok().map(Value::Flag),
            Self::Number(..) | Self::Bound(_) => text.parse().ok().map(Value::Number),
            Self::Count(..) | Self::Limit(..) | Self::Version(..) => integer(),
            Self::FlagOrCount(_) => text.parse().ok().map(Value::Flag).or_else(integer),
            Self::Size(_) => units::size(text).map(Value::from),
            Self::Time(_) => units::duration(text).map(|time| Value::Number(time.as_secs_f64())),
            // -1 as llama.cpp has it.
            Self::Seed(_) if ["random", "-1"].contains(&text) => Some(Value::None),
            Self::Seed(_) => integer(),
        };
        match value {
            Some(value) => self.set(target, value),
            None => {
                let or_random = if matches!(self, Self::Seed(_)) { ", or `random`" } else { "" };
                Err(Wrong { expected: self.expected() + or_random, got: text.to_owned(), is_type: false })
            }
        }
    }
}

fn time(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero())
}

/// Parses biases: `15=-2.5,7=1`.
fn biases(text: &str) -> Option<Vec<(u32, f32)>> {
    text.split(',')
        .map(|pair| {
            let (token, bias) = pair.split_once('=')?;
            let bias = bias.trim().parse::<f32>().ok().filter(|bias| !bias.is_nan())?;
            Some((token.trim().parse().ok()?, bias))
        })
        .collect()
}

/// Returns `a`, `a or b`, or `a, b or c`.
fn either(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) }
}

/// Returns a value as errors show it.
fn shown(value: &OptionValue) -> String {
    match value {
        OptionValue::Text(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

impl<T> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expected())
    }
}
