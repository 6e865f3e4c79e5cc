//! Options of backends: their declarations, and the way they are written.
//!
//! A backend declares its options ([`Backend::options`]) like its run-time half. It gets values only from
//! [`set_option`] and [`parse_option`], which check them against the declaration first.

use rushlight_graph::{Error, ErrorKind};
use rushlight_runtime::{OptionSpec, OptionValue};

use super::Backend;

/// Sets an option of a backend.
///
/// # Errors
/// `Option`, with the backend's options, for a name that it does not declare or a value that the option does not take.
/// Also the errors of [`Backend::set_option`]. The errors do not name the backend, because users may know it by another
/// name.
pub fn set_option(backend: &mut dyn Backend, name: &str, value: OptionValue<'_>) -> Result<(), Error> {
    check_option(backend, name, value)?;
    backend.set_option(name, value)
}

/// Checks that a backend declares an option, and that the option takes a value.
pub(super) fn check_option(backend: &dyn Backend, name: &str, value: OptionValue<'_>) -> Result<(), Error> {
    let spec = find(backend, name)?;
    if spec.takes(value) { Ok(()) } else { Err(wrong_value(backend, spec, value)) }
}

/// Sets an option of a backend to a value that was written in a command.
///
/// # Errors
/// As [`set_option`].
pub fn parse_option(backend: &mut dyn Backend, name: &str, text: &str) -> Result<(), Error> {
    let spec = find(backend, name)?;
    let value = spec.parse(text).ok_or_else(|| wrong_value(backend, spec, text.into()))?;
    backend.set_option(name, value)
}

fn find(backend: &dyn Backend, name: &str) -> Result<&'static OptionSpec, Error> {
    let declared = backend.options();
    declared.iter().find(|spec| spec.name == name).ok_or_else(|| {
        let known: Vec<String> = declared.iter().map(OptionSpec::to_string).collect();
        let expected = if known.is_empty() { "no options".to_owned() } else { known.join(", ") };
        Error::new(ErrorKind::Option, format!("the backend has no option `{name}`"))
            .expected(expected)
            .got(format!("`{name}`"))
    })
}

fn wrong_value(backend: &dyn Backend, spec: &OptionSpec, value: OptionValue<'_>) -> Error {
    let got = match value {
        OptionValue::String(text) => format!("`{text}`"),
        value => value.to_string(),
    };
    let known: Vec<String> = backend.options().iter().map(OptionSpec::to_string).collect();
    Error::new(ErrorKind::Option, format!("the option `{}` does not take this value", spec.name))
        .expected(spec.values())
        .got(got)
        .help(format!("the options of the backend are {}", known.join(", ")))
}

/// A backend with options in the syntax of commands: `cpu`, or `name:key=value,key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendText<'t> {
    pub name: &'t str,
    /// Keys and values. No key is there twice.
    pub options: Vec<(&'t str, &'t str)>,
}

impl<'t> BackendText<'t> {
    /// Splits a text.
    ///
    /// # Errors
    /// `Option` for a text of another form, and for a key that is given twice.
    pub fn parse(text: &'t str) -> Result<Self, Error> {
        let Some((name, rest)) = text.split_once(':') else { return Ok(Self { name: text, options: Vec::new() }) };
        let mut options: Vec<(&str, &str)> = Vec::new();
        for option in rest.split(',') {
            let Some((key, value)) = option.split_once('=') else {
                return Err(Error::new(ErrorKind::Option, format!("an option of the backend `{name}` has no value"))
                    .expected(format!("`{name}:key=value,key=value`"))
                    .got(format!("`{text}`")));
            };
            if options.iter().any(|(known, _)| *known == key) {
                return Err(given_twice(name, key).got(format!("`{text}`")));
            }
            options.push((key, value));
        }
        Ok(Self { name, options })
    }
}

/// Returns the error for an option that is given twice.
pub fn given_twice(backend: &str, name: &str) -> Error {
    Error::new(ErrorKind::Option, format!("the option `{name}` of the backend `{backend}` is given twice"))
        .help("give it once")
}

#[cfg(test)]
mod tests {
    use super::super::{Compiled, Part};
    use super::*;

    #[derive(Debug, Default)]
    struct Npu {
        mode: Option<String>,
        depth: Option<i64>,
    }

    impl Backend for Npu {
        fn name(&self) -> &'static str {
            "Npu"
        }

        fn options(&self) -> &'static [OptionSpec] {
            const {
                &[
                    OptionSpec::choice("mode", &["fast", "exact"], "how it rounds"),
                    OptionSpec::new("depth", OptionValue::Int(0), "how deep it looks"),
                ]
            }
        }

        fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> Result<(), Error> {
            match (name, value) {
                ("mode", OptionValue::String(mode)) => self.mode = Some(mode.to_owned()),
                ("depth", OptionValue::Int(depth)) => self.depth = Some(depth),
                other => panic!("unchecked: {other:?}"),
            }
            Ok(())
        }

        fn compile(&self, _: &Part) -> Result<Compiled, Error> {
            Err(Error::unsupported("nothing"))
        }
    }

    #[derive(Debug)]
    struct Plain;

    impl Backend for Plain {
        fn name(&self) -> &'static str {
            "Plain"
        }

        fn compile(&self, _: &Part) -> Result<Compiled, Error> {
            Err(Error::unsupported("nothing"))
        }
    }

    #[test]
    fn declared_options_arrive_with_their_types() {
        let mut npu = Npu::default();
        parse_option(&mut npu, "mode", "exact").unwrap();
        parse_option(&mut npu, "depth", "-7").unwrap();
        assert_eq!((npu.mode.as_deref(), npu.depth), (Some("exact"), Some(-7)));
        set_option(&mut npu, "depth", 8.into()).unwrap();
        assert_eq!(npu.depth, Some(8));
    }

    #[test]
    fn others_are_errors_that_list_what_exists() {
        let mut npu = Npu::default();
        let all = "`mode` (how it rounds: fast or exact, by default fast), \
                   `depth` (how deep it looks: an int, by default 0)";
        for error in [
            set_option(&mut npu, "modes", "fast".into()).unwrap_err(),
            parse_option(&mut npu, "modes", "fast").unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.message()), (ErrorKind::Option, "the backend has no option `modes`"));
            assert_eq!((error.what_was_expected(), error.what_came()), (Some(all), Some("`modes`")));
        }
        for (error, expected, got) in [
            (set_option(&mut npu, "mode", "slow".into()), "fast or exact", "`slow`"),
            (set_option(&mut npu, "mode", true.into()), "fast or exact", "true"),
            (set_option(&mut npu, "depth", "4".into()), "an int", "`4`"),
            (parse_option(&mut npu, "depth", "deep"), "an int", "`deep`"),
            (parse_option(&mut npu, "mode", ""), "fast or exact", "``"),
        ] {
            let error = error.unwrap_err();
            assert_eq!((error.what_was_expected(), error.what_came()), (Some(expected), Some(got)));
            assert!(error.hint().is_some_and(|hint| hint.contains(all)), "{error}");
        }
        assert!(npu.mode.is_none() && npu.depth.is_none());
        assert_eq!(parse_option(&mut Plain, "mode", "fast").unwrap_err().what_was_expected(), Some("no options"));
    }

    #[test]
    fn texts_are_names_with_options() {
        let options = |text| BackendText::parse(text).map(|parsed| (parsed.name, parsed.options));
        assert_eq!(options("cpu").unwrap(), ("cpu", vec![]));
        assert_eq!(options("cpu:a=1,b=x=y").unwrap(), ("cpu", vec![("a", "1"), ("b", "x=y")]));
        assert_eq!(options("").unwrap(), ("", vec![]));
        assert_eq!(options("cpu:=").unwrap(), ("cpu", vec![("", "")]));
        for text in ["cpu:", "cpu:a", "cpu:a=1,", "cpu:a=1,,b=2"] {
            let error = options(text).unwrap_err();
            assert_eq!(error.what_was_expected(), Some("`cpu:key=value,key=value`"), "{text}");
            assert_eq!(error.what_came(), Some(&*format!("`{text}`")));
        }
        let twice = options("cpu:a=1,a=1").unwrap_err();
        assert_eq!(
            (twice.kind(), twice.message()),
            (ErrorKind::Option, "the option `a` of the backend `cpu` is given twice")
        );
    }
}
