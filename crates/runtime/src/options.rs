//! Options of backends: declared by name and type, set when a model is compiled, when it is loaded, or later.

use core::fmt;

use crate::error::{Detail, Result};
use crate::fault::Fault;

/// A value for an option of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendOption<'a> {
    /// Id of the backend.
    pub backend: &'a str,
    pub key: &'a str,
    pub value: OptionValue<'a>,
}

impl BackendOption<'_> {
    /// Finds the option among those that its backend declares. Fails, with the known options, if it is none of them, or
    /// if it does not accept the value.
    pub fn check(&self, declared: &'static [OptionSpec]) -> Result<&'static OptionSpec> {
        find(declared, self.key, self.value)
    }
}

/// Value of a [`BackendOption`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionValue<'a> {
    Bool(bool),
    Int(i64),
    String(&'a str),
}

impl From<bool> for OptionValue<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for OptionValue<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl<'a> From<&'a str> for OptionValue<'a> {
    fn from(value: &'a str) -> Self {
        Self::String(value)
    }
}

/// Writes the value as in a command, without quotes.
impl fmt::Display for OptionValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::String(value) => f.write_str(value),
        }
    }
}

/// An option that a half of a backend declares; the run-time half does so in
/// [`Backend::options`](crate::Backend::options). `Display` writes its name, values, default and documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    pub name: &'static str,
    /// The value if none is set. Its type is the option's type.
    pub default: OptionValue<'static>,
    /// One line of documentation, such as "how often a call is pending before it is complete".
    pub about: &'static str,
    /// The texts that the option accepts; empty for any text.
    pub choices: &'static [&'static str],
    /// True if the option cannot change after the method is loaded.
    pub only_at_load: bool,
}

impl OptionSpec {
    /// Declares an option that can be set at load and later.
    pub const fn new(name: &'static str, default: OptionValue<'static>, about: &'static str) -> Self {
        Self { name, default, about, choices: &[], only_at_load: false }
    }

    /// Declares an option whose value is one of these texts. The default is the first.
    pub const fn choice(name: &'static str, choices: &'static [&'static str], about: &'static str) -> Self {
        let default = match choices {
            [first, ..] => OptionValue::String(first),
            [] => OptionValue::String(""),
        };
        Self { name, default, about, choices, only_at_load: false }
    }

    /// Makes the option settable at load only.
    #[must_use]
    pub const fn only_at_load(mut self) -> Self {
        self.only_at_load = true;
        self
    }

    /// True if the option has the type of `value`, and the value is one of the [`choices`](Self::choices) if there are
    /// any.
    pub fn takes(&self, value: OptionValue<'_>) -> bool {
        match (self.default, value) {
            (OptionValue::Bool(_), OptionValue::Bool(_)) | (OptionValue::Int(_), OptionValue::Int(_)) => true,
            (OptionValue::String(_), OptionValue::String(text)) => {
                self.choices.is_empty() || self.choices.contains(&text)
            }
            _ => false,
        }
    }

    /// Reads a value from a command; `None` unless the option accepts it.
    pub fn parse<'v>(&self, text: &'v str) -> Option<OptionValue<'v>> {
        let value = match self.default {
            OptionValue::Bool(_) => OptionValue::Bool(text.parse().ok()?),
            OptionValue::Int(_) => OptionValue::Int(text.parse().ok()?),
            OptionValue::String(_) => OptionValue::String(text),
        };
        self.takes(value).then_some(value)
    }

    /// The values that the option accepts, as text: `true or false`, `f32, f16 or bf16`.
    pub fn values(&self) -> impl fmt::Display {
        OptionValues(*self)
    }
}

struct OptionValues(OptionSpec);

impl fmt::Display for OptionValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.default, self.0.choices) {
            (OptionValue::Bool(_), _) => f.write_str("true or false"),
            (OptionValue::Int(_), _) => f.write_str("an int"),
            (OptionValue::String(_), []) => f.write_str("a string"),
            (OptionValue::String(_), [first, rest @ ..]) => {
                f.write_str(first)?;
                rest.iter().enumerate().try_for_each(|(i, choice)| {
                    let separator = if i + 1 == rest.len() { " or " } else { ", " };
                    write!(f, "{separator}{choice}")
                })
            }
        }
    }
}

impl fmt::Display for OptionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, default, about, .. } = self;
        write!(f, "`{name}` ({about}: {}", self.values())?;
        if *default != OptionValue::String("") {
            write!(f, ", by default {default}")?;
        }
        f.write_str(")")
    }
}

/// Finds the option of this name. Fails, with the known options, if there is none, or if it does not accept the value.
pub(crate) fn find(specs: &'static [OptionSpec], name: &str, value: OptionValue<'_>) -> Result<&'static OptionSpec> {
    let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
        return Err(Detail::UnknownOption { known: specs }.into());
    };
    if !spec.takes(value) {
        return Err(Detail::OptionType { option: spec }.into());
    }
    Ok(spec)
}

/// Like [`find`], for a loaded method.
pub(crate) fn find_changeable(specs: &'static [OptionSpec], name: &str, value: OptionValue<'_>) -> Result<()> {
    if find(specs, name, value)?.only_at_load { Err(Fault::FixedOption.into()) } else { Ok(()) }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use alloc::string::ToString;

    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec::choice("mode", &["fast", "exact", "both"], "how it rounds"),
        OptionSpec::new("depth", OptionValue::Int(3), "how deep"),
        OptionSpec::new("trace", OptionValue::Bool(false), "whether it traces"),
        OptionSpec::new("folder", OptionValue::String(""), "where it writes"),
    ];

    #[test]
    fn values_are_read_as_they_were_declared() {
        let read = |index: usize, text| SPECS[index].parse(text);
        assert_eq!(read(0, "exact"), Some("exact".into()));
        assert_eq!([read(0, "Exact"), read(0, "")], [None; 2]);
        assert_eq!((read(1, "-4"), read(1, "4.0"), read(1, "")), (Some((-4).into()), None, None));
        assert_eq!((read(2, "true"), read(2, "1")), (Some(true.into()), None));
        assert_eq!(read(3, "a b"), Some("a b".into()));
        assert!(!SPECS[0].takes("slow".into()) && !SPECS[1].takes("4".into()));
        assert!(
            find(SPECS, "mode", "slow".into()).is_err_and(|error| error.to_string().contains("fast, exact or both"))
        );
    }

    #[test]
    fn options_say_what_they_take() {
        assert_eq!(SPECS[0].to_string(), "`mode` (how it rounds: fast, exact or both, by default fast)");
        assert_eq!(SPECS[1].to_string(), "`depth` (how deep: an int, by default 3)");
        assert_eq!(SPECS[2].to_string(), "`trace` (whether it traces: true or false, by default false)");
        assert_eq!(SPECS[3].to_string(), "`folder` (where it writes: a string)");
    }
}
