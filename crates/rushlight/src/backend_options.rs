//! Options of backends in a module.

use rushlight_runtime::{BackendOption, Code, Detail, OptionSpec, OptionValue};

use crate::error::Error;

/// Options by backend and name; a later value replaces an earlier one.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendOptions(Vec<(String, String, OwnedValue)>);

/// An [`OptionValue`] that owns its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedValue {
    Bool(bool),
    Int(i64),
    String(String),
}

impl OwnedValue {
    pub fn as_value(&self) -> OptionValue<'_> {
        match self {
            Self::Bool(value) => OptionValue::Bool(*value),
            Self::Int(value) => OptionValue::Int(*value),
            Self::String(value) => OptionValue::String(value),
        }
    }
}

impl From<OptionValue<'_>> for OwnedValue {
    fn from(value: OptionValue<'_>) -> Self {
        match value {
            OptionValue::Bool(value) => Self::Bool(value),
            OptionValue::Int(value) => Self::Int(value),
            OptionValue::String(value) => Self::String(value.to_owned()),
        }
    }
}

impl BackendOptions {
    pub fn set(&mut self, backend: &str, name: &str, value: OptionValue<'_>) {
        self.0.retain(|(known, option, _)| known != backend || option != name);
        self.0.push((backend.to_owned(), name.to_owned(), value.into()));
    }

    /// Returns the options, with the names by which users call the backends.
    pub fn as_given(&self) -> impl Iterator<Item = BackendOption<'_>> {
        self.0.iter().map(|(backend, name, value)| BackendOption { backend, key: name, value: value.as_value() })
    }
}

/// The declared options of a backend.
#[derive(Clone, Copy)]
pub(crate) struct Declared<'a> {
    /// The name for users.
    pub name: &'a str,
    /// The name in programs.
    pub id: &'a str,
    pub options: &'static [OptionSpec],
}

/// Checks an option against its backend's declaration. Returns it with the backend's name in programs.
pub(crate) fn check<'a>(
    option: BackendOption<'a>,
    backends: impl Iterator<Item = Declared<'a>> + Clone,
) -> Result<BackendOption<'a>, Error> {
    let Some(backend) = backends.clone().find(|backend| backend.name == option.backend) else {
        let names: Vec<String> = backends.map(|backend| format!("`{}`", backend.name)).collect();
        let expected =
            if names.is_empty() { "no options: the module has no backends".into() } else { names.join(", ") };
        return Err(Error::new(
            Code::NotFound,
            format!("option `{}` is for a backend that the module does not have", option.key),
        )
        .expected(expected)
        .got(format!("`{}`", option.backend)));
    };
    option.check(backend.options).map_err(|error| explain(&error, &option))?;
    Ok(BackendOption { backend: backend.id, ..option })
}

/// Explains an error about an option.
pub(crate) fn explain(error: &rushlight_runtime::Error, option: &BackendOption<'_>) -> Error {
    let BackendOption { backend, key, value } = option;
    match error.detail {
        Detail::UnknownOption { known } => {
            let known: Vec<String> = known.iter().map(OptionSpec::to_string).collect();
            let expected = if known.is_empty() { "no options".into() } else { known.join(", ") };
            Error::new(error.code, format!("backend `{backend}` has no option `{key}`")).expected(expected)
        }
        Detail::OptionType { .. } => Error::new(error.code, error.detail.to_string()).got(format!("{value:?}")),
        _ => Error::new(error.code, error.detail.to_string()).site(format!("option `{key}` of backend `{backend}`")),
    }
}
