//! Compares an exported program with a compiled one.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushlight::Input;
use rushlight_devtools::compare::{Comparison, Difference, Incomparable, Reference, Row};
use rushlight_devtools::inputs::{Fill, example, generate};
use rushlight_python_macros::guarded;

use crate::array::Argument;
use crate::callback;
use crate::compiler::{Exported, copied};
use crate::error;
use crate::module::builder;
use crate::source::{Source, bytes_of};
use crate::watched;

type Dicts<'py> = Vec<Bound<'py, PyDict>>;

/// Runs both on the same inputs: the given inputs, the example inputs of the export, or generated inputs. With a seed and no given
/// inputs, they are generated. Returns a dictionary for each result that both have, in the order of computation, then one for each
/// output. Also returns the names of the results that only the reference has.
#[guarded]
#[pyfunction]
#[pyo3(signature = (reference, candidate, method, inputs, seed, report))]
pub fn compare<'py>(
    py: Python<'py>,
    reference: &Bound<'py, PyAny>,
    candidate: &Bound<'py, PyAny>,
    method: &str,
    inputs: Option<Vec<Bound<'py, PyAny>>>,
    seed: Option<u64>,
    report: Option<Py<PyAny>>,
) -> PyResult<(Dicts<'py>, Dicts<'py>, Vec<String>)> {
    let exported = error::map(py, Exported::of(reference)?.open())?;
    let compiler = rushlight::Compiler::new().method_bytes(method, exported.clone());
    let loader = builder(py).lower(rushlight::Lower::Off);
    let candidate = match Source::of(candidate)? {
        Source::Path(path) => loader.load(path),
        Source::Bytes(bytes) => loader.load_bytes(bytes_of(py, &bytes)?.as_ref()),
    };
    let mut candidate = error::map(py, candidate)?;
    let mut given = Vec::new();
    for (index, input) in inputs.iter().flatten().enumerate() {
        let argument = Argument::of(input, &mut None);
        // Copied at once: Python code that reads the next one may free it.
        given.push(copied(py, &argument.map_err(|refusal| refusal.at(py, format_args!("input {index}"), input))?)?);
    }
    if inputs.is_none() {
        let meta = error::map(py, candidate.meta(method))?;
        let examples = if seed.is_none() { example(&exported, meta.inputs.len()) } else { None };
        given = match examples {
            Some(examples) => examples,
            None => {
                let fill = Fill::Random(seed.unwrap_or(0));
                error::map(py, meta.inputs.iter().map(|info| generate(info, fill)).collect())?
            }
        };
    }
    let of_reference = builder(py);
    let method = method.to_owned();
    let comparison = watched::run(py, report.as_ref(), move |progress| -> Result<Comparison, Incomparable> {
        let inputs = given.iter().map(Input::try_from).collect::<Result<Vec<_>, _>>()?;
        Reference::new(compiler, of_reference, progress)?.compare(&mut candidate, &method, &inputs)
    })?;
    let Comparison { rows, outputs, only_in_reference } = comparison.map_err(|error| match error {
        Incomparable::Failed(failure) => callback::explained(py, &failure),
        other @ Incomparable::NoDebugMap { .. } => PyValueError::new_err(other.to_string()),
    })?;
    let rows = rows.iter().map(|row| row_to_python(py, row)).collect::<PyResult<_>>()?;
    let outputs = outputs.iter().map(|row| difference_to_python(py, "name", &row.name, &row.difference));
    Ok((rows, outputs.collect::<PyResult<_>>()?, only_in_reference))
}

fn row_to_python<'py>(py: Python<'py>, row: &Row) -> PyResult<Bound<'py, PyDict>> {
    let dict = difference_to_python(py, "result", &row.result, &row.difference)?;
    dict.set_item("node", &row.node)?;
    dict.set_item("op", &row.op)?;
    dict.set_item("module", &row.module)?;
    dict.set_item("source", &row.source)?;
    dict.set_item("unseen", row.unseen)?;
    Ok(dict)
}

/// Returns the difference of a tensor. Its name is stored under `key`.
fn difference_to_python<'py>(
    py: Python<'py>,
    key: &str,
    name: &str,
    difference: &Difference,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(key, name)?;
    dict.set_item("max_abs", difference.max_abs)?;
    dict.set_item("relative", difference.relative())?;
    dict.set_item("snr_db", difference.snr_db)?;
    dict.set_item("shapes", difference.shapes.clone())?;
    Ok(dict)
}
