//! A method that is loaded several times, for calls at the same time.

use pyo3::prelude::*;
use pyo3::types::PyList;
use rushlight::{MethodInstance, MethodMeta};
use rushlight_python_macros::guarded;

use crate::array::own;
use crate::call::{Cancellation, Given, call, call_into};
use crate::tensor::Tensor;
use crate::turns::Turns;

/// Copies of a method, each with memory and state of its own, over the weights of one module. A call takes one that is free, or waits
/// for one.
#[pyclass(frozen, module = "rushlight")]
pub struct Instances {
    inner: Turns<MethodInstance>,
    meta: MethodMeta,
}

impl Instances {
    pub fn new(instances: Vec<MethodInstance>, meta: MethodMeta) -> Self {
        Self { inner: Turns::of(instances), meta }
    }

    fn label(&self) -> impl Sync + Fn(&mut MethodInstance, usize) -> String {
        |_, index| self.meta.input_label(index)
    }
}

#[guarded]
#[pymethods]
impl Instances {
    /// The number of calls that run at the same time.
    fn count(&self) -> usize {
        self.inner.count()
    }

    /// True if the method keeps state between calls.
    fn has_state(&self, py: Python<'_>) -> PyResult<bool> {
        self.inner.with(py, MethodInstance::has_state)
    }

    /// Runs the method.
    #[pyo3(signature = (inputs, cancellation = None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<Bound<'py, PyAny>>,
        cancellation: Option<&Cancellation>,
    ) -> PyResult<Bound<'py, PyList>> {
        let given = Given { inputs: &inputs, outputs: &[], cancellation };
        call(py, &self.inner, &given, self.label(), |instance, inputs, signals| instance.run_traced(inputs, signals))
    }

    /// As `call`, and writes the outputs to arrays. None stands for an output that is not written.
    #[pyo3(signature = (inputs, outputs, cancellation = None))]
    fn call_into<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<Bound<'py, PyAny>>,
        outputs: Vec<Bound<'py, PyAny>>,
        cancellation: Option<&Cancellation>,
    ) -> PyResult<()> {
        let given = Given { inputs: &inputs, outputs: &outputs, cancellation };
        call_into(py, &self.inner, &given, self.label(), |instance, inputs, outputs, signals| {
            instance.run_into(inputs, outputs, signals)
        })
    }

    /// A copy of a parameter or buffer by its name in the exported module.
    fn attribute<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, Tensor>> {
        let result = self.inner.with(py, |instance| instance.attribute(name))?;
        own(py, result)
    }
}
