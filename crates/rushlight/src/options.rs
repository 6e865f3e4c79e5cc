//! Options of back ends, as a module keeps them.

use rushlight_runtime::{Backend, BackendOption, Code, Detail, OptionSpec, OptionValue};

use crate::error::Error;

/// Options by back end and name; a later value replaces an earlier one.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendOptions(Vec<(String, String, Value)>);

#[derive(Clone, Debug)]
enum Value {
    Bool(bool),
    Int(i64),
    String(String),
}

impl BackendOptions {
    pub fn set(&mut self, backend: &str, name: &str, value: OptionValue<'_>) {
        let value = match value {
            OptionValue::Bool(value) => Value::Bool(value),
            OptionValue::Int(value) => Value::Int(value),
            OptionValue::String(value) => Value::String(value.to_owned()),
        };
        self.0.retain(|(known, option, _)| known != backend || option != name);
        self.0.push((backend.to_owned(), name.to_owned(), value));
    }

    pub fn get(&self) -> impl Iterator<Item = BackendOption<'_>> {
        self.0.iter().map(|(backend, name, value)| {
            let value = match value {
                Value::Bool(value) => OptionValue::Bool(*value),
                Value::Int(value) => OptionValue::Int(*value),
                Value::String(value) => OptionValue::String(value),
            };
            BackendOption { backend, key: name, value }
        })
    }
}

/// Checks an option against what its back end declares.
pub(crate) fn check<'a>(
    option: &BackendOption<'_>,
    backends: impl Iterator<Item = &'a dyn Backend> + Clone,
) -> Result<(), Error> {
    let Some(backend) = backends.clone().find(|backend| backend.id() == option.backend) else {
        let names: Vec<String> = backends.map(|backend| format!("`{}`", backend.id())).collect();
        let expected =
            if names.is_empty() { "no options: the module has no back ends".into() } else { names.join(", ") };
        return Err(Error::new(
            Code::NotFound,
            format!("option `{}` is for a back end that the module does not have", option.key),
        )
        .expected(expected)
        .got(format!("`{}`", option.backend)));
    };
    option.check(backend.options()).map(drop).map_err(|error| explain(&error, option))
}

/// Explains an error about an option.
pub(crate) fn explain(error: &rushlight_runtime::Error, option: &BackendOption<'_>) -> Error {
    let BackendOption { backend, key, value } = option;
    let describe = |option: &OptionSpec| format!("`{}` ({})", option.name, option.about);
    match error.detail {
        Detail::UnknownOption { known } => {
            let known: Vec<String> = known.iter().map(describe).collect();
            let expected = if known.is_empty() { "no options".into() } else { known.join(", ") };
            Error::new(error.code, format!("back end `{backend}` has no option `{key}`")).expected(expected)
        }
        Detail::OptionType { .. } => Error::new(error.code, error.detail.to_string()).got(format!("{value:?}")),
        _ => Error::new(error.code, error.detail.to_string()).site(format!("option `{key}` of back end `{backend}`")),
    }
}
