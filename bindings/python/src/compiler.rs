//! From exported programs to `.pte` files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};
use rushlight::compiler::graph::Literal;
use rushlight::compiler::{Bytes, ConstantResult};
use rushlight::format::pte::{InstructionModel, PlanModel};
use rushlight::{CompiledProgram, Compiler};

use crate::error;
use crate::module::Source;

/// What a `.pte` file will hold.
#[pyclass(frozen, module = "rushlight")]
pub struct Compiled {
    inner: CompiledProgram,
}

enum Exported {
    File(PathBuf),
    Bytes(Bytes),
}

/// Compiles exported programs, each to a method. `constants` are methods that return what they are given.
#[pyfunction]
pub fn compile(
    py: Python<'_>,
    methods: Vec<(String, Bound<'_, PyAny>)>,
    constants: Vec<(String, Vec<Bound<'_, PyAny>>)>,
    share_state: bool,
    plan_inputs: bool,
    plan_outputs: bool,
    stack_traces: bool,
) -> PyResult<Compiled> {
    let mut programs = Vec::with_capacity(methods.len());
    for (name, source) in methods {
        let source = match Source::of(&source)? {
            Source::Path(path) => Exported::File(path),
            Source::Bytes(bytes) => Exported::Bytes(Bytes::new(bytes.extract::<PyBackedBytes>()?)),
        };
        programs.push((name, source));
    }
    let mut literals = Vec::with_capacity(constants.len());
    for (name, values) in constants {
        let values: PyResult<Vec<_>> =
            values.iter().map(|value| Ok(ConstantResult::Literal(literal(&name, value)?))).collect();
        literals.push((name, values?));
    }
    let compiled = py.detach(|| {
        let mut compiler = Compiler::new().share_state(share_state);
        for (name, source) in programs {
            compiler = match source {
                Exported::File(path) => compiler.method(name, path),
                Exported::Bytes(bytes) => compiler.method_bytes(name, bytes),
            };
        }
        let options = compiler.options();
        options.constant_methods = literals;
        options.emit.plan_inputs = plan_inputs;
        options.emit.plan_outputs = plan_outputs;
        options.emit.stack_traces = stack_traces;
        compiler.compile()
    });
    Ok(Compiled { inner: error::map(py, compiled)? })
}

#[pymethods]
impl Compiled {
    /// The bytes of the file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = error::map(py, py.detach(|| self.inner.to_bytes()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes the file and returns its size in bytes.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        error::map(py, py.detach(|| self.inner.save(path)))
    }

    /// The size of the file in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        error::map(py, self.inner.size())
    }

    /// For each method a dictionary of what it consists of.
    fn methods<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.inner.compiled().program.methods.iter().map(|plan| method(py, plan)).collect()
    }
}

fn method<'py>(py: Python<'py>, plan: &PlanModel<'_>) -> PyResult<Bound<'py, PyDict>> {
    let mut operators = BTreeMap::new();
    for instruction in &plan.instructions {
        if let InstructionModel::Kernel { operator, .. } = instruction
            && let Some(operator) = plan.operators.get(*operator as usize)
        {
            let name = match operator.overload.as_str() {
                "" => operator.name.clone(),
                overload => format!("{}.{overload}", operator.name),
            };
            *operators.entry(name).or_insert(0usize) += 1;
        }
    }
    let mut operators: Vec<_> = operators.into_iter().collect();
    operators.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    let dict = PyDict::new(py);
    dict.set_item("name", &plan.name)?;
    dict.set_item("instructions", plan.instructions.len())?;
    dict.set_item("planned_bytes", plan.buffer_sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size)))?;
    dict.set_item("operators", operators)?;
    Ok(dict)
}

fn literal(method: &str, value: &Bound<'_, PyAny>) -> PyResult<Literal> {
    if value.is_none() {
        Ok(Literal::None)
    } else if let Ok(value) = value.cast::<PyBool>() {
        Ok(Literal::Bool(value.is_true()))
    } else if value.cast::<PyInt>().is_ok() {
        Ok(Literal::Int(value.extract()?))
    } else if value.cast::<PyFloat>().is_ok() {
        Ok(Literal::Float(value.extract()?))
    } else if let Ok(value) = value.cast::<PyString>() {
        Ok(Literal::Str(value.to_str()?.to_owned()))
    } else {
        let class = value.get_type().name()?;
        let text = format!(
            "constant method `{method}` cannot return a {class}: expected an int, a float, a bool, a str or None"
        );
        Err(PyTypeError::new_err(text))
    }
}
