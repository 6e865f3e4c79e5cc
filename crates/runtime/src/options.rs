//! Options of back ends: declared by name and type, given at load or later.

use crate::error::{Detail, Result};
use crate::fault::Fault;

/// A value for an option of one back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendOption<'a> {
    /// Id of the back end it is for.
    pub backend: &'a str,
    pub key: &'a str,
    pub value: OptionValue<'a>,
}

impl BackendOption<'_> {
    /// Finds the option among those that its back end declares. Fails, with all that exist, if it is not one of them, or if
    /// the value has another type.
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

impl OptionValue<'_> {
    #[cfg(feature = "alloc")]
    fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an int",
            Self::String(_) => "a string",
        }
    }
}

/// An option that a back end declares in [`Backend::options`](crate::Backend::options).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    pub name: &'static str,
    /// The value when none is given. Its type is the option's.
    pub default: OptionValue<'static>,
    /// One sentence for users.
    pub about: &'static str,
    /// True if the option cannot change after the method is loaded.
    pub only_at_load: bool,
}

impl OptionSpec {
    /// Declares an option that can be set at load and later.
    pub const fn new(name: &'static str, default: OptionValue<'static>, about: &'static str) -> Self {
        Self { name, default, about, only_at_load: false }
    }

    /// Lets the option be set at load only.
    #[must_use]
    pub const fn only_at_load(mut self) -> Self {
        self.only_at_load = true;
        self
    }

    #[cfg(feature = "alloc")]
    pub(crate) fn type_name(&self) -> &'static str {
        self.default.type_name()
    }
}

/// Finds the option of this name. Fails, with all that exist, if there is none, or if the value has another type.
pub(crate) fn find(specs: &'static [OptionSpec], name: &str, value: OptionValue<'_>) -> Result<&'static OptionSpec> {
    let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
        return Err(Detail::UnknownOption { known: specs }.into());
    };
    if core::mem::discriminant(&spec.default) != core::mem::discriminant(&value) {
        return Err(Detail::OptionType { option: spec }.into());
    }
    Ok(spec)
}

/// As [`find`], for a method that is loaded.
pub(crate) fn find_changeable(specs: &'static [OptionSpec], name: &str, value: OptionValue<'_>) -> Result<()> {
    if find(specs, name, value)?.only_at_load { Err(Fault::FixedOption.into()) } else { Ok(()) }
}
