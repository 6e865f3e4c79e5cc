//! The library's errors as Python exceptions.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use rushlight::MissingOperator;

use crate::ffi;

/// The function that makes the exception.
static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A `rushlight.Error` with the code, the site and the hint.
pub fn to_python(py: Python<'_>, error: &rushlight::Error) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let make = MAKE.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
            Ok(py.import("rushlight._errors")?.getattr("make")?.unbind())
        })?;
        let fields = PyDict::new(py);
        fields.set_item("code", error.code() as u32)?;
        fields.set_item("code_name", format!("{:?}", error.code()))?;
        fields.set_item("site", error.location())?;
        fields.set_item("expected", error.what_was_expected())?;
        fields.set_item("got", error.what_came())?;
        fields.set_item("hint", error.hint())?;
        let missing: Vec<&str> = error.missing_operators().iter().map(|op| op.name.as_str()).collect();
        fields.set_item("missing_operators", missing)?;
        let os_error = error.os_error().map(|(path, number)| (Some(number), path.to_owned()));
        // The system has no number for a folder that the library found itself.
        let os_error = os_error.or_else(|| Some((None, error.folder()?.to_owned())));
        let text = error.to_text(register);
        Ok(PyErr::from_value(ffi::call(make.bind(py), &(text, os_error).into_pyobject(py)?, Some(&fields))?))
    };
    make().unwrap_or_else(|failure| failure)
}

/// Maps a result of the library.
pub fn map<T>(py: Python<'_>, result: Result<T, rushlight::Error>) -> PyResult<T> {
    result.map_err(|error| to_python(py, &error))
}

/// The call that registers a kernel for an operator without one.
pub fn register(operator: &MissingOperator) -> String {
    format!("rushlight.register_op({:?}, function)", functional_name(&operator.name))
}

/// The name that `register_op` takes for an operator that a program lacks.
fn functional_name(out_variant: &str) -> &str {
    let overloaded = out_variant.strip_suffix("_out").filter(|name| name.contains('.'));
    overloaded.or_else(|| out_variant.strip_suffix(".out")).unwrap_or(out_variant)
}
