//! Arguments and results: detects the library of an array, and returns results of the same kind.

use std::ops::Range;
use std::sync::Mutex;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple, PyType};
use rushlight::{Input, Value};

use crate::error;
use crate::ffi::{Array, ArrayMut, Exchange, call};
use crate::interpreter::in_python;
use crate::refusal::Refusal;
use crate::tensor::Tensor;
use crate::torch;
use crate::turns::locked;

/// The type of results.
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

/// A type that offers an exchange API.
struct Known {
    class: Py<PyAny>,
    offered: Offered,
}

#[derive(Clone, Copy)]
struct Offered {
    api: Exchange,
    /// True for PyTorch's tensor type and its subclasses.
    is_torch: bool,
}

/// The last type that offered an exchange API: nearly always the only one.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// `numpy.ndarray`, cached when the first array was read, so that later ones skip the other protocols.
static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Returns the exchange API of a type if it is the last one that offered one.
fn known(class: &Bound<'_, PyAny>) -> Option<Offered> {
    locked(&KNOWN).as_ref().filter(|known| known.class.as_ptr() == class.as_ptr()).map(|known| known.offered)
}

/// Looks up the exchange API of a type and remembers it. The type's metaclass may run Python code meanwhile.
fn offered(class: &Bound<'_, PyAny>) -> PyResult<Option<Offered>> {
    let Some(api) = Exchange::of_type(class)? else { return Ok(None) };
    let offered = Offered { api, is_torch: torch::is_tensor_type(class)? };
    let known = Known { class: class.clone().unbind(), offered };
    let before = locked(&KNOWN).replace(known);
    // Dropped after unlocking, because dropping the type may run Python code.
    drop(before);
    Ok(Some(offered))
}

impl<'py> Argument<'py> {
    /// Reads an argument. Sets `kind` if it is an array of a library and the kind is not known yet.
    pub fn of(object: &Bound<'py, PyAny>, kind: &mut Option<Kind>) -> Result<Self, Refusal> {
        let class = object.get_type();
        if let Some(offered) = known(class.as_any()) {
            return Self::exchanged(object, offered, kind);
        }
        if NDARRAY.get(object.py()).is_some_and(|ndarray| class.is(ndarray)) {
            kind.get_or_insert(Kind::Numpy);
            // On failure, the code below finds the reason.
            if let Ok(array) = Array::from_buffer(object) {
                return Ok(Self::Array(array));
            }
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
            let outside = |_| Refusal::Value("it is outside of the range of 64-bit integers".into());
            return object.extract().map(Self::Int).map_err(outside);
        }
        if object.cast::<PyFloat>().is_ok() {
            return Ok(Self::Double(object.extract()?));
        }
        if let Ok(value) = object.cast::<PyString>() {
            return Ok(Self::String(value.to_str()?.to_owned()));
        }
        if let Some(offered) = offered(class.as_any())? {
            return Self::exchanged(object, offered, kind);
        }
        let is_numpy = match numpy_class(&class) {
            Some(NumpyClass::Plain) => true,
            Some(NumpyClass::Masked) => {
                return Err(Refusal::Value("its mask would be ignored; call filled(value)".into()));
            }
            None => false,
        };
        if is_numpy {
            kind.get_or_insert(Kind::Numpy);
        }
        let buffer = match Array::from_buffer(object) {
            Ok(array) => {
                if is_numpy && class.name()? == "ndarray" && class.module()? == "numpy" {
                    NDARRAY.get_or_init(object.py(), || class.unbind());
                }
                return Ok(Self::Array(array));
            }
            Err(raised @ Refusal::Raised(_)) => return Err(raised),
            // NumPy's other protocols support no further types.
            Err(reason @ (Refusal::Type(_) | Refusal::Protocol(..))) if is_numpy => {
                match in_python(|| object.getattr_opt(intern!(object.py(), "dtype")))? {
                    Some(dtype) => return Err(unreadable(&dtype)?),
                    None => reason,
                }
            }
            Err(reason) => reason,
        };
        if !in_python(|| object.hasattr(intern!(object.py(), "__dlpack__")))? {
            let text = "expected a tensor, an array, a buffer, an int, a float, a bool, a str or None";
            return Err(if buffer.is_of_protocol() { Refusal::Type(text.into()) } else { buffer });
        }
        match Array::from_dlpack(object) {
            Ok(array) => Ok(Self::Array(array)),
            // The buffer's error says more than the failure of another protocol.
            Err(Refusal::Protocol(..)) if !buffer.is_of_protocol() => Err(buffer),
            Err(reason) => Err(reason),
        }
    }

    fn exchanged(object: &Bound<'py, PyAny>, offered: Offered, kind: &mut Option<Kind>) -> Result<Self, Refusal> {
        let Offered { api, is_torch } = offered;
        kind.get_or_insert(Kind::Exchange(api));
        let array = if is_torch { torch::borrow(object, api) } else { Array::from_exchange(object, api) };
        array.map(Self::Array)
    }

    /// Checks that the memory of an array was not replaced since it was read, by Python code that ran to read others.
    ///
    /// # Errors
    /// If it was.
    pub fn check(&self, py: Python<'_>) -> Result<(), Refusal> {
        match self {
            Self::Array(array) if !array.is_current(py) => {
                Err(Refusal::Value("its memory was replaced while the arguments were read".into()))
            }
            _ => Ok(()),
        }
    }

    /// Addresses of the memory of an array that other code may write to.
    pub fn addresses(&self) -> Option<Range<usize>> {
        match self {
            Self::Array(array) => array.addresses(),
            _ => None,
        }
    }

    /// The argument as an input.
    pub fn input(&self) -> Result<Input<'_>, rushlight::Error> {
        Ok(match self {
            Self::Array(array) => array.view()?.into(),
            Self::Own(tensor) => tensor.elements.view()?.into(),
            Self::Int(v) => Input::Int(*v),
            Self::Double(v) => Input::Double(*v),
            Self::Bool(v) => Input::Bool(*v),
            Self::String(v) => Input::String(v),
            Self::None => Input::None,
        })
    }
}

/// Borrows an array for an output: a tensor of PyTorch, or any object with a writable buffer, such as an array of NumPy.
///
/// # Errors
/// For objects without memory that may be written in place, with what to give.
pub fn writable(object: &Bound<'_, PyAny>) -> Result<ArrayMut, Refusal> {
    let class = object.get_type();
    let found = match known(class.as_any()) {
        Some(offered) => Some(offered),
        None => offered(class.as_any())?,
    };
    if let Some(Offered { api, is_torch: true }) = found {
        return torch::borrow_to_write(object, api);
    }
    if object.cast::<Tensor>().is_ok() {
        let text = "results are read-only; give an array of NumPy, a tensor of PyTorch, or another object with a writable buffer";
        return Err(Refusal::Type(text.into()));
    }
    if matches!(numpy_class(&class), Some(NumpyClass::Masked)) {
        return Err(Refusal::Value("its mask would be ignored; give its `data`".into()));
    }
    ArrayMut::from_buffer(object)
}

enum NumpyClass {
    Plain,
    Masked,
}

/// Returns the kind of a NumPy array or scalar class; `None` for other classes.
fn numpy_class(class: &Bound<'_, PyType>) -> Option<NumpyClass> {
    let of_module = |class: &Bound<'_, PyAny>| {
        let class = class.cast::<PyType>().ok()?;
        let (module, name) = (class.module().ok()?, class.name().ok()?);
        match (module.to_str().ok()?, name.to_str().ok()?) {
            ("numpy", "ndarray" | "generic") => Some(NumpyClass::Plain),
            (module, "MaskedArray") if module.starts_with("numpy.ma") => Some(NumpyClass::Masked),
            _ => None,
        }
    };
    let bases = || in_python(|| class.getattr(intern!(class.py(), "__mro__"))).ok()?.cast_into::<PyTuple>().ok();
    of_module(class.as_any()).or_else(|| bases()?.iter().find_map(|base| of_module(&base)))
}

/// Returns the refusal of elements of a NumPy type, with advice.
fn unreadable(dtype: &Bound<'_, PyAny>) -> PyResult<Refusal> {
    let cast = match dtype.getattr(intern!(dtype.py(), "kind"))?.extract::<String>()?.as_str() {
        "M" | "m" => Some("int64"),
        "f" => Some("float64"),
        "c" => Some("complex128"),
        "O" => Some("float32"),
        _ => None,
    };
    let cast = cast.map_or_else(String::new, |cast| format!(", such as with x.astype(\"{cast}\")"));
    Ok(Refusal::Type(format!("elements of type {} are not supported; convert the array first{cast}", dtype.str()?)))
}

/// Converts a result to a Python object.
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
        Kind::Own => Ok(Bound::new(py, Tensor::from(tensor))?.into_any()),
        Kind::Numpy => {
            let from_dlpack = ASARRAY.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
                Ok(py.import("numpy")?.getattr("from_dlpack")?.unbind())
            })?;
            // NumPy has no bfloat16; such a result stays a rushlight.Tensor.
            let is_numpy = tensor.dtype() != rushlight::ScalarType::BFloat16;
            let own = Bound::new(py, Tensor::from(tensor))?.into_any();
            if is_numpy { call(from_dlpack.bind(py), &PyTuple::new(py, [own])?, None) } else { Ok(own) }
        }
    }
}

/// Converts a result of the library to a Python object, for attributes.
pub fn own(py: Python<'_>, result: Result<rushlight::Tensor, rushlight::Error>) -> PyResult<Bound<'_, Tensor>> {
    Bound::new(py, Tensor::from(error::map(py, result)?))
}
