//! Arguments and results: which library an array is of, and how to give one back of the same kind.

use std::sync::Mutex;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use rushlight::{Input, Value};

use crate::error;
use crate::ffi::{Array, Exchange};
use crate::tensor::Tensor;

/// What results are given back as.
#[derive(Clone)]
pub enum Kind {
    /// `rushlight.Tensor`.
    Own,
    /// `numpy.ndarray`.
    Numpy,
    /// The type behind an exchange API, such as `torch.Tensor`.
    Exchange(Exchange),
}

/// One argument, borrowed from its Python object.
pub enum Argument<'py> {
    Array(Array),
    Own(PyRef<'py, Tensor>),
    Int(i64),
    Double(f64),
    Bool(bool),
    String(String),
    None,
}

/// The last type that offered an exchange API: nearly always the only one.
static EXCHANGE: Mutex<Option<(Py<PyAny>, Exchange)>> = Mutex::new(None);

fn exchange_of(class: &Bound<'_, PyAny>) -> Option<Exchange> {
    let mut known = EXCHANGE.lock().ok()?;
    if let Some((known_class, api)) = &*known
        && known_class.as_ptr() == class.as_ptr()
    {
        return Some(*api);
    }
    let api = Exchange::of_type(class)?;
    *known = Some((class.clone().unbind(), api));
    Some(api)
}

impl<'py> Argument<'py> {
    /// Reads an argument. Sets `kind` if it is an array of a library and the kind is not known yet.
    pub fn of(object: &Bound<'py, PyAny>, kind: &mut Option<Kind>) -> PyResult<Self> {
        let py = object.py();
        if let Some(api) = exchange_of(object.get_type().as_any()) {
            kind.get_or_insert(Kind::Exchange(api));
            return Ok(Self::Array(Array::from_exchange(object, api)?));
        }
        if let Ok(tensor) = object.cast::<Tensor>() {
            return Ok(Self::Own(tensor.borrow()));
        }
        if object.is_none() {
            return Ok(Self::None);
        }
        if let Ok(value) = object.cast::<PyBool>() {
            return Ok(Self::Bool(value.is_true()));
        }
        if object.cast::<PyInt>().is_ok() {
            return Ok(Self::Int(object.extract()?));
        }
        if object.cast::<PyFloat>().is_ok() {
            return Ok(Self::Double(object.extract()?));
        }
        if let Ok(value) = object.cast::<PyString>() {
            return Ok(Self::String(value.to_str()?.to_owned()));
        }
        if object.get_type().module().is_ok_and(|module| module == "numpy") {
            kind.get_or_insert(Kind::Numpy);
        }
        let buffer = Array::from_buffer(object);
        if buffer.is_err() && object.hasattr(intern!(py, "__dlpack__"))? {
            return Ok(Self::Array(Array::from_dlpack(object)?));
        }
        buffer.map(Self::Array).map_err(|reason| {
            let name = object.get_type().name().map_or_else(|_| "object".to_owned(), |n| n.to_string());
            let text = format!(
                "cannot use a {name} as an input: expected a tensor, an array, a buffer, an int, a float, a bool, \
                 a str or None"
            );
            let error = PyTypeError::new_err(text);
            error.set_cause(py, Some(reason));
            error
        })
    }

    /// The argument as an input.
    pub fn input(&self) -> Result<Input<'_>, rushlight::Error> {
        Ok(match self {
            Self::Array(array) => array.view()?.into(),
            Self::Own(tensor) => tensor.inner.view()?.into(),
            Self::Int(v) => Input::Int(*v),
            Self::Double(v) => Input::Double(*v),
            Self::Bool(v) => Input::Bool(*v),
            Self::String(v) => Input::String(v),
            Self::None => Input::None,
        })
    }
}

/// Gives a result back.
pub fn to_python<'py>(py: Python<'py>, value: Value, kind: &Kind) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Tensor(tensor) => return tensor_to_python(py, tensor, kind),
        Value::Int(v) => v.into_pyobject(py)?.into_any(),
        Value::Double(v) => v.into_pyobject(py)?.into_any(),
        Value::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
        Value::String(v) => v.into_pyobject(py)?.into_any(),
        Value::None => py.None().into_bound(py),
    })
}

fn tensor_to_python<'py>(py: Python<'py>, tensor: rushlight::Tensor, kind: &Kind) -> PyResult<Bound<'py, PyAny>> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    match kind {
        Kind::Exchange(api) => api.to_object(py, tensor),
        Kind::Own => Ok(Bound::new(py, Tensor { inner: tensor })?.into_any()),
        Kind::Numpy => {
            let from_dlpack = ASARRAY.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
                Ok(py.import("numpy")?.getattr("from_dlpack")?.unbind())
            })?;
            // NumPy has no bfloat16; such a result stays a rushlight.Tensor.
            let is_numpy = tensor.dtype() != rushlight::ScalarType::BFloat16;
            let own = Bound::new(py, Tensor { inner: tensor })?.into_any();
            if is_numpy { Ok(from_dlpack.bind(py).call1((own,))?) } else { Ok(own) }
        }
    }
}

/// A result of the library's as a Python object, for attributes.
pub fn own(py: Python<'_>, result: Result<rushlight::Tensor, rushlight::Error>) -> PyResult<Bound<'_, Tensor>> {
    Bound::new(py, Tensor { inner: error::map(py, result)? })
}
