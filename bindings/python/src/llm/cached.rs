//! Programs of published language models, each compiled once.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushlight::options::{CompilerOptions, Options as _};
use rushlight::{Cache, is_language_model};
use rushlight_python_macros::guarded;

use super::error::refused;
use super::generation::option_value;
use crate::error;
use crate::watched;

/// Returns the path of the program of a language model. A folder or a GGUF file is compiled with `options`, unless the cache has its
/// program. The path of a program is returned as it is.
#[guarded]
#[pyfunction]
#[pyo3(signature = (path, cache, options, report))]
pub fn cached_program(
    py: Python<'_>,
    path: PathBuf,
    cache: Option<PathBuf>,
    options: &Bound<'_, PyDict>,
    report: Option<Py<PyAny>>,
) -> PyResult<PathBuf> {
    let mut values = CompilerOptions::default();
    for (name, value) in options {
        let name: String = name.extract()?;
        CompilerOptions::spec(&name).map_err(|wrong| refused(&wrong))?;
        values.set(&name, option_value(&name, &value)?).map_err(|wrong| refused(&wrong))?;
    }
    if !is_language_model(&path) {
        // The context of a program is limited when it is loaded.
        let mut names = options.iter().map(|(name, _)| name.to_string()).filter(|name| name != "max_context_len");
        if let Some(name) = names.next().filter(|_| path.exists()) {
            return Err(PyTypeError::new_err(format!(
                "{name} is an option of compiling a folder or a .gguf file, and `{}` is neither",
                path.display()
            )));
        }
        return Ok(path);
    }
    let cache = match cache {
        Some(folder) => Cache::new(folder),
        None => error::map(py, Cache::of_user())?,
    };
    let cached = watched::run(py, report.as_ref(), move |progress| cache.language_model(path, &values, &progress))?;
    Ok(error::map(py, cached)?.file)
}
