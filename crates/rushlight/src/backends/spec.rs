//! Backends with the options that users choose.

use std::fmt;
use std::str::FromStr;

use rushlight_compiler::partition::{Backend, BackendText, OptionValue, given_twice, parse_option, set_option};
use rushlight_runtime::Code;

use super::{BackendInfo, Destination, TABLE, backends};
use crate::backend_options::OwnedValue;
use crate::error::Error;

/// A backend that comes with Rushlight, with options: `cpu`, or `cpu:precision=bf16`.
///
/// Every option exists and takes its value. [`backends`](crate::backends) lists the options.
///
/// ```
/// # fn main() -> rushlight::Result<()> {
/// use rushlight::BackendSpec;
///
/// let spec = BackendSpec::new("cpu")?.option("precision", "bf16")?;
/// assert_eq!(spec, "cpu:precision=bf16".parse()?);
/// assert!("cpu:precision=int8".parse::<BackendSpec>().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSpec {
    backend: &'static BackendInfo,
    /// The options in the order in which they are given, each once.
    options: Vec<(String, OwnedValue)>,
}

/// The choice of a backend.
const ADVICE: &str = "choose `cpu` for the processor, also in place of XNNPACK, `cortex-m` for int8 on microcontrollers, \
                      or `portable` for the reference operators, which every runtime has";

impl BackendSpec {
    /// The backend with a name and the defaults of its options. `portable` stands for the reference operators.
    ///
    /// # Errors
    /// `NotFound`, with the known names.
    pub fn new(name: &str) -> Result<Self, Error> {
        match TABLE.iter().find(|backend| backend.name == name && backend.is_compiled_for()) {
            Some(backend) => Ok(Self { backend, options: Vec::new() }),
            None => {
                let names = backends().filter(|backend| backend.is_compiled_for());
                let names: Vec<String> = names.map(|backend| format!("`{}`", backend.name)).collect();
                Err(Error::new(Code::NotFound, "no backend of this name comes with Rushlight")
                    .expected(names.join(", "))
                    .got(format!("`{name}`"))
                    .help(ADVICE))
            }
        }
    }

    /// The backend that lowering prefers, with the defaults of its options.
    #[cfg(feature = "lower")]
    pub(crate) fn preferred() -> Option<Self> {
        super::compiling().next().map(Self::of)
    }

    /// False for the reference operators.
    #[cfg(feature = "lower")]
    pub(crate) fn compiles(&self) -> bool {
        self.backend.halves.is_some()
    }

    /// A backend with the defaults of its options.
    #[cfg(any(feature = "lower", all(feature = "pt2", feature = "_backends")))]
    pub(crate) fn of(backend: &'static BackendInfo) -> Self {
        Self { backend, options: Vec::new() }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// `InvalidArgument`, with the known options, for a name that the backend does not declare, a value that the option
    /// does not take, or an option that is already set.
    pub fn option<'v>(self, name: &str, value: impl Into<OptionValue<'v>>) -> Result<Self, Error> {
        let value = value.into();
        self.checked(name, |backend| set_option(backend, name, value), || Some(value.into()))
    }

    /// As [`option`](Self::option), with a value as text of a command.
    fn parsed_option(self, name: &str, text: &str) -> Result<Self, Error> {
        let value = self.backend.options().iter().find(|spec| spec.name == name).and_then(|spec| spec.parse(text));
        self.checked(name, |backend| parse_option(backend, name, text), || value.map(OwnedValue::from))
    }

    fn checked(
        mut self,
        name: &str,
        set: impl FnOnce(&mut dyn Backend) -> Result<(), rushlight_graph::Error>,
        value: impl FnOnce() -> Option<OwnedValue>,
    ) -> Result<Self, Error> {
        if self.options.iter().any(|(known, _)| known == name) {
            return Err(given_twice(self.name(), name).into());
        }
        let set = match self.backend.compiling_half(&Destination::default()) {
            Some(mut half) => set(&mut *half).map_err(Error::from),
            None => Err(Error::invalid(format!("the backend has no option `{name}`"))
                .expected("no options".to_owned())
                .got(format!("`{name}`"))),
        };
        set.map_err(|error| error.site(format!("backend `{}`", self.name())))?;
        self.options.extend(value().map(|value| (name.to_owned(), value)));
        Ok(self)
    }

    /// The name that users write.
    pub fn name(&self) -> &'static str {
        self.backend.name
    }

    /// The ahead-of-time half, with its options; `None` for the reference operators.
    #[cfg(any(feature = "lower", feature = "pt2"))]
    pub(crate) fn make(&self, destination: &Destination) -> Result<Option<Box<dyn Backend>>, Error> {
        let Some(mut backend) = self.backend.compiling_half(destination) else { return Ok(None) };
        for (name, value) in &self.options {
            set_option(&mut *backend, name, value.as_value())?;
        }
        Ok(Some(backend))
    }

    /// Name and options as settings that affect the compiled program: the options that differ from their defaults, in
    /// the order of declaration.
    #[cfg(feature = "lower")]
    pub(crate) fn settings(&self) -> Vec<(&str, String)> {
        let mut settings = vec![("backend", self.name().to_owned())];
        for spec in self.backend.options() {
            let given = self.options.iter().find(|(name, _)| name == spec.name).map(|(_, value)| value.as_value());
            settings.extend(given.filter(|value| *value != spec.default).map(|value| (spec.name, value.to_string())));
        }
        settings
    }
}

impl FromStr for BackendSpec {
    type Err = Error;

    /// Parses `name` or `name:key=value,key=value`.
    ///
    /// # Errors
    /// Those of [`BackendSpec::new`] and [`BackendSpec::option`], and `InvalidArgument` for text in another form.
    fn from_str(text: &str) -> Result<Self, Error> {
        // An unknown name is reported first.
        let spec = Self::new(text.split_once(':').map_or(text, |(name, _)| name))?;
        let BackendText { options, .. } = BackendText::parse(text)?;
        options.into_iter().try_fold(spec, |spec, (name, value)| spec.parsed_option(name, value))
    }
}

impl TryFrom<&str> for BackendSpec {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        text.parse()
    }
}

/// Writes the form that is parsed: `cpu:precision=bf16`.
impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.options.iter().enumerate().try_for_each(|(index, (name, value))| {
            let separator = if index == 0 { ':' } else { ',' };
            write!(f, "{separator}{name}={}", value.as_value())
        })
    }
}

/// A backend to compile for: one that comes with Rushlight, also as text such as `cpu:precision=bf16`, or one of your
/// own.
#[derive(Debug)]
pub enum BackendChoice {
    Known(BackendSpec),
    Own(Box<dyn Backend>),
}

#[cfg(feature = "pt2")]
impl BackendChoice {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Known(spec) => spec.name(),
            Self::Own(backend) => backend.name(),
        }
    }
}

impl From<BackendSpec> for BackendChoice {
    fn from(spec: BackendSpec) -> Self {
        Self::Known(spec)
    }
}

impl From<Box<dyn Backend>> for BackendChoice {
    fn from(backend: Box<dyn Backend>) -> Self {
        Self::Own(backend)
    }
}

impl<B: Backend + 'static> From<Box<B>> for BackendChoice {
    fn from(backend: Box<B>) -> Self {
        Self::Own(backend)
    }
}

impl TryFrom<&str> for BackendChoice {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        text.parse().map(Self::Known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Error {
        text.parse::<BackendSpec>().expect_err(text)
    }

    #[test]
    fn unknown_names_say_which_there_are() {
        for text in ["npu", "", "npu:precision=bf16", "npu:"] {
            let error = error(text);
            assert_eq!(error.code(), Code::NotFound);
            assert_eq!(error.what_was_expected(), Some("`cpu`, `cortex-m`, `portable`"), "{error}");
        }
        assert_eq!(error("npu:x").what_came(), Some("`npu`"));
    }

    #[test]
    fn options_that_do_not_exist_say_which_do() {
        for (text, message, expected) in [
            ("cpu:presicion=bf16", "the backend has no option `presicion`", "`precision` (what weights"),
            ("cpu:presicion=bf16", "`presicion`", "by default f32), `threads` (how many threads"),
            ("cpu:precision=int8", "does not take this value", "f32, f16 or bf16"),
            ("cpu:precision=", "does not take this value", "f32, f16 or bf16"),
            ("cpu:threads=many", "does not take this value", "an int"),
            ("cpu:threads=-1", "does not take this value", "0 to "),
            ("cpu:precision", "has no value", "`cpu:key=value,key=value`"),
            ("cpu:", "has no value", "`cpu:key=value,key=value`"),
            ("portable:precision=bf16", "the backend has no option `precision`", "no options"),
        ] {
            let error = error(text);
            assert_eq!(error.code(), Code::InvalidArgument, "{text}");
            assert!(error.message().contains(message), "{text}: {error}");
            let name = text.split(':').next().unwrap_or_default();
            assert!(error.to_string().contains(&format!("backend `{name}`")), "{text}: {error}");
            assert!(error.what_was_expected().is_some_and(|e| e.contains(expected)), "{text}: {error}");
        }
        assert!(error("cpu:precision=f16,precision=f16").message().contains("given twice"));
        let cpu = BackendSpec::new("cpu").unwrap();
        assert!(cpu.clone().option("precision", true).is_err());
        let twice = cpu.option("threads", 2).unwrap().option("threads", 2).unwrap_err();
        assert!(twice.message().contains("given twice"), "{twice}");
    }

    #[test]
    fn specs_are_written_as_they_are_read() {
        for text in ["cpu", "cortex-m:cpu=m55", "portable", "cpu:precision=bf16", "cpu:threads=2,precision=f16"] {
            let spec: BackendSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            assert_eq!(spec.make(&Destination::default()).unwrap().is_some(), text != "portable");
        }
    }

    #[test]
    #[cfg(feature = "lower")]
    fn settings_are_what_is_not_the_default() {
        let settings = |text: &str| {
            let spec: BackendSpec = text.parse().unwrap();
            spec.settings().into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(settings("cpu"), settings("cpu:threads=0,precision=f32"));
        assert_eq!(settings("cpu:threads=2,precision=f16"), "backend=cpu precision=f16 threads=2");
    }
}
