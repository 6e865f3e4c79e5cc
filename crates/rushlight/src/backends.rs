//! The backends that come with Rushlight, by name.

use rushlight_compiler::partition::{Backend, PORTABLE};
use rushlight_cpu_compile::{Cpu, Precision};
use rushlight_runtime::Code;

use crate::error::Error;

/// Makes the ahead-of-time half of a backend.
pub(crate) type Make = fn(Precision) -> Box<dyn Backend>;

/// Every name that [`Compiler::backend_named`](crate::Compiler::backend_named) knows. A backend is one line here; for
/// [`PORTABLE`] there is nothing to compile.
const BACKENDS: &[(&str, Option<Make>)] =
    &[("cpu", Some(|precision| Box::new(Cpu { precision, ..Cpu::default() }))), (PORTABLE, None)];

/// Names of the backends that come with Rushlight.
pub fn backend_names() -> impl ExactSizeIterator<Item = &'static str> {
    BACKENDS.iter().map(|(name, _)| *name)
}

/// The backend of a name, or `None` for [`PORTABLE`].
pub(crate) fn backend_named(name: &str) -> Result<Option<Make>, Error> {
    match BACKENDS.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => Ok(*make),
        None => {
            let names: Vec<String> = backend_names().map(|name| format!("`{name}`")).collect();
            Err(Error::new(Code::NotFound, "no backend of this name comes with Rushlight")
                .expected(names.join(", "))
                .got(format!("`{name}`")))
        }
    }
}

/// Finds what cannot be meant in a list of backends, the first asked first.
pub(crate) fn check<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let mut before: Vec<&str> = Vec::new();
    for name in names {
        if before.contains(&name) {
            return Err(Error::invalid(format!("the backend `{name}` is given twice")));
        }
        if before.contains(&PORTABLE) {
            return Err(Error::invalid(format!(
                "the backend `{name}` comes after `{PORTABLE}`, which takes every node"
            ))
            .help(format!("put `{PORTABLE}` last, or leave it out: it takes what others leave")));
        }
        before.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_say_which_there_are() {
        let error = backend_named("npu").unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.what_was_expected().is_some_and(|names| names.contains("`portable`")), "{error}");
        assert_eq!(error.what_came(), Some("`npu`"));
        assert!(backend_named(PORTABLE).is_ok_and(|backend| backend.is_none()));
    }

    #[test]
    fn lists_that_cannot_be_meant_are_refused() {
        assert!(check(["a", "b", PORTABLE]).is_ok());
        assert!(check(["a", "b", "a"]).unwrap_err().message().contains("twice"));
        assert!(check([PORTABLE, "a"]).unwrap_err().hint().is_some_and(|hint| hint.contains("last")));
    }
}
