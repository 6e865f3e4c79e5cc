//! Calls of methods: reads the arguments, runs detached from the interpreter, and returns or writes the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rushlight::{Input, OutputMut, Value};
use rushlight_python_macros::guarded;

use crate::array::{Argument, Kind, to_python, writable};
use crate::callback;
use crate::ffi::ArrayMut;
use crate::refusal::Refusal;
use crate::signals::Signals;
use crate::turns::Turns;

/// Ends calls from another thread.
#[pyclass(frozen, module = "rushlight")]
#[derive(Default)]
pub struct Cancellation {
    pub flag: Arc<AtomicBool>,
}

#[guarded]
#[pymethods]
impl Cancellation {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Ends the calls that were given this, each after its current step.
    fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// The arguments of a call as they come from Python.
pub struct Given<'a, 'py> {
    pub inputs: &'a [Bound<'py, PyAny>],
    /// Arrays for the outputs, or None for outputs that are not written.
    pub outputs: &'a [Bound<'py, PyAny>],
    pub cancellation: Option<&'a Cancellation>,
}

impl<'a, 'py> Given<'a, 'py> {
    /// Inputs alone.
    pub fn inputs(inputs: &'a [Bound<'py, PyAny>]) -> Self {
        Self { inputs, outputs: &[], cancellation: None }
    }
}

/// Reads the arguments, runs detached from the interpreter, and returns the results as what came in.
pub fn call<'py, T: Send>(
    py: Python<'py>,
    model: &Turns<T>,
    given: &Given<'_, 'py>,
    label: impl Sync + Fn(&mut T, usize) -> String,
    run: impl Send + FnOnce(&mut T, &[Input<'_>], &mut Signals) -> Result<Vec<Value>, rushlight::Error>,
) -> PyResult<Bound<'py, PyList>> {
    let label = |index| model.with(py, |model| label(model, index));
    let (arguments, kind) = read(given.inputs, label)?;
    callback::forget();
    check(py, &arguments, given.inputs, label)?;
    let values = act(py, model, &arguments, given.cancellation, label, run)?;
    let kind = kind.unwrap_or(Kind::Own);
    let outputs = PyList::empty(py);
    for value in values {
        outputs.append(to_python(py, value, &kind)?)?;
    }
    Ok(outputs)
}

/// As [`call`], and has the outputs written to the arrays that were given for them.
pub fn call_into<'py, T: Send>(
    py: Python<'py>,
    model: &Turns<T>,
    given: &Given<'_, 'py>,
    label: impl Sync + Fn(&mut T, usize) -> String,
    run: impl Send
    + FnOnce(&mut T, &[Input<'_>], &mut [Option<OutputMut<'_>>], &mut Signals) -> Result<(), rushlight::Error>,
) -> PyResult<()> {
    let label = |index| model.with(py, |model| label(model, index));
    let (arguments, _) = read(given.inputs, label)?;
    let place = |index| if given.outputs.len() == 1 { "out".to_owned() } else { format!("out {index}") };
    let mut arrays = Vec::with_capacity(given.outputs.len());
    for (index, object) in given.outputs.iter().enumerate() {
        let array = if object.is_none() { Ok(None) } else { writable(object).map(Some) };
        arrays.push(array.map_err(|refusal| refusal.at(py, place(index), object))?);
    }
    callback::forget();
    check(py, &arguments, given.inputs, label)?;
    for (index, array) in arrays.iter().enumerate() {
        let Some(array) = array else { continue };
        if !array.is_current(py) {
            let refusal = Refusal::Value("its memory was replaced while the arguments were read".into());
            return Err(refusal.at(py, place(index), &given.outputs[index]));
        }
        let other = match arguments.iter().position(|argument| array.overlaps(argument.addresses())) {
            Some(input) => Some(label(input)?),
            None => arrays[..index]
                .iter()
                .flatten()
                .any(|other| array.overlaps(other.addresses()))
                .then(|| "another output".into()),
        };
        if let Some(other) = other {
            return Err(PyValueError::new_err(format!(
                "{}: it shares memory with {other}; give an array of its own, such as a copy",
                place(index)
            )));
        }
    }
    act(py, model, &arguments, given.cancellation, label, |model, inputs, signals| {
        let mut outputs = Vec::with_capacity(arrays.len());
        for array in &mut arrays {
            outputs.push(array.as_mut().map(ArrayMut::output).transpose()?);
        }
        run(model, inputs, &mut outputs, signals)
    })
}

/// Reads inputs. Returns the library of the first array, too. `label` names an input for errors.
fn read<'py>(
    inputs: &[Bound<'py, PyAny>],
    label: impl Fn(usize) -> PyResult<String>,
) -> PyResult<(Vec<Argument<'py>>, Option<Kind>)> {
    let mut kind = None;
    let mut arguments = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.iter().enumerate() {
        match Argument::of(input, &mut kind) {
            Ok(argument) => arguments.push(argument),
            Err(refusal) => return Err(refusal.at(input.py(), label(index)?, input)),
        }
    }
    Ok((arguments, kind))
}

/// Checks that Python code that ran to read some inputs has not replaced the memory of others.
fn check(
    py: Python<'_>,
    arguments: &[Argument<'_>],
    inputs: &[Bound<'_, PyAny>],
    label: impl Fn(usize) -> PyResult<String>,
) -> PyResult<()> {
    for (index, (argument, input)) in arguments.iter().zip(inputs).enumerate() {
        if let Err(refusal) = argument.check(py) {
            return Err(refusal.at(py, label(index)?, input));
        }
    }
    Ok(())
}

/// Runs a model detached from the interpreter. An exception of a signal handler replaces the result.
fn act<T: Send, R: Send>(
    py: Python<'_>,
    model: &Turns<T>,
    arguments: &[Argument<'_>],
    cancellation: Option<&Cancellation>,
    label: impl Fn(usize) -> PyResult<String>,
    run: impl Send + FnOnce(&mut T, &[Input<'_>], &mut Signals) -> Result<R, rushlight::Error>,
) -> PyResult<R> {
    let mut inputs = Vec::with_capacity(arguments.len());
    for (index, argument) in arguments.iter().enumerate() {
        inputs.push(match argument.input() {
            Ok(input) => input,
            Err(error) => return Err(PyValueError::new_err(format!("{}: {error}", label(index)?))),
        });
    }
    let flag = cancellation.map(|cancellation| cancellation.flag.clone());
    let (result, raised) = model.with(py, |model| {
        let mut signals = Signals::new(flag);
        let result = run(model, &inputs, &mut signals);
        (result, signals.raised())
    })?;
    match raised {
        Some(raised) => Err(raised),
        None => result.map_err(|failure| callback::explained(py, &failure)),
    }
}
