//! `rushlight.Tensor`: a result where there is neither torch nor numpy.
#![allow(unsafe_code)]

use std::ffi::c_int;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::Py_buffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use pyo3::{IntoPyObjectExt, intern};
use rushlight::graph::Bytes;
use rushlight::runtime::{Bool8, Element};
use rushlight::{ScalarType, TensorView};
use rushlight_python_macros::guarded;

use crate::error;
use crate::ffi;
use crate::tensor_text;

/// The code of the element type, the shape and the bytes.
type Parts<'py> = (u8, Vec<usize>, Bound<'py, PyBytes>);

/// A dense row-major tensor. Exports its memory through the buffer protocol and DLPack.
#[pyclass(frozen, module = "rushlight")]
pub struct Tensor {
    pub elements: Elements,
}

/// The elements of a tensor.
pub enum Elements {
    Owned(rushlight::Tensor),
    /// Those of a constant, in the memory of the model. Their address is a multiple of an element.
    Shared {
        dtype: ScalarType,
        shape: Vec<usize>,
        bytes: Bytes,
    },
}

impl Elements {
    fn dtype(&self) -> ScalarType {
        match self {
            Self::Owned(tensor) => tensor.dtype(),
            Self::Shared { dtype, .. } => *dtype,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Owned(tensor) => tensor.shape(),
            Self::Shared { shape, .. } => shape,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(tensor) => tensor.bytes(),
            Self::Shared { bytes, .. } => bytes,
        }
    }

    /// The tensor as an input. Fails if its rank is above 16.
    pub fn view(&self) -> Result<TensorView<'_>, rushlight::Error> {
        Ok(TensorView::new(self.dtype(), self.shape(), self.bytes())?)
    }
}

impl From<rushlight::Tensor> for Tensor {
    fn from(tensor: rushlight::Tensor) -> Self {
        Self { elements: Elements::Owned(tensor) }
    }
}

impl Tensor {
    /// Makes a tensor of a constant's elements. Copies them if they are not aligned.
    pub fn shared(py: Python<'_>, dtype: ScalarType, shape: Vec<usize>, bytes: Bytes) -> PyResult<Bound<'_, Self>> {
        let parts = if dtype.is_complex() { 2 } else { 1 };
        let tensor = if bytes.as_ptr().addr().is_multiple_of((dtype.size() / parts).max(1)) {
            Self { elements: Elements::Shared { dtype, shape, bytes } }
        } else {
            Self::from(error::map(py, rushlight::Tensor::from_bytes(dtype, &shape, &bytes))?)
        };
        Bound::new(py, tensor)
    }
}

#[guarded]
#[pymethods]
impl Tensor {
    /// Sizes of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.elements.shape())
    }

    /// Name of the element type, such as `float32`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.elements.dtype().long_name()
    }

    /// The elements as nested lists of Python numbers.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let numbers = numbers(py, &error::map(py, self.elements.view())?)?;
        nest(py, self.elements.shape(), &numbers)
    }

    /// The elements as bytes, row-major.
    fn tobytes(&self) -> &[u8] {
        self.elements.bytes()
    }

    fn __len__(&self) -> PyResult<usize> {
        self.elements.shape().first().copied().ok_or_else(|| PyTypeError::new_err("a tensor of rank 0 has no length"))
    }

    /// The elements, those at the ends if they are many, with the shape and the element type.
    fn __repr__(&self) -> String {
        const HEAD: &str = "rushlight.Tensor(";
        let view = self.elements.view().ok();
        let elements = view.and_then(|view| tensor_text::of(&view, HEAD.len()));
        let elements = elements.map(|text| text + ", ").unwrap_or_default();
        format!("{HEAD}{elements}shape={:?}, dtype={})", self.elements.shape(), self.elements.dtype().long_name())
    }

    /// Pickles the tensor by its bytes.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Parts<'py>)> {
        let py = slf.py();
        let tensor = &slf.get().elements;
        let parts = (tensor.dtype().code(), tensor.shape().to_vec(), PyBytes::new(py, tensor.bytes()));
        Ok((py.get_type::<Self>().getattr(intern!(py, "_of_parts"))?, parts))
    }

    /// The tensor that was pickled.
    #[staticmethod]
    fn _of_parts(py: Python<'_>, dtype: u8, shape: Vec<usize>, bytes: &[u8]) -> PyResult<Self> {
        let unknown = || PyValueError::new_err(format!("no element type has the code {dtype}"));
        let dtype = ScalarType::from_code(dtype).ok_or_else(unknown)?;
        Ok(Self::from(error::map(py, rushlight::Tensor::from_bytes(dtype, &shape, bytes))?))
    }

    /// A DLPack capsule. Each holds a copy, so that its consumer may write to it.
    #[pyo3(signature = (**_options))]
    fn __dlpack__(&self, py: Python<'_>, _options: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyAny>> {
        let copy = error::map(py, self.elements.view().and_then(|view| rushlight::Tensor::copy_of(&view)))?;
        ffi::capsule(py, copy)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut Py_buffer, flags: c_int) -> PyResult<()> {
        let tensor = &slf.get().elements;
        let (dtype, shape, bytes) = (tensor.dtype(), tensor.shape(), tensor.bytes());
        // SAFETY: `view` comes from the interpreter; the class is frozen, so the bytes stay as long as `slf`.
        unsafe { ffi::fill_buffer(view, flags, slf.clone().into_any(), dtype, shape, bytes) }
    }

    unsafe fn __releasebuffer__(&self, view: *mut Py_buffer) {
        // SAFETY: the interpreter releases each view of `__getbuffer__` once.
        unsafe { ffi::release_buffer(view) }
    }
}

fn numbers<'py>(py: Python<'py>, tensor: &TensorView<'_>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    fn of<'py, T: Element, U: IntoPyObjectExt<'py>>(
        py: Python<'py>,
        tensor: &TensorView<'_>,
        to: impl Fn(T) -> U,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let elements = error::map(py, tensor.as_slice::<T>().map_err(rushlight::Error::from))?;
        elements.iter().map(|&v| to(v).into_bound_py_any(py)).collect()
    }
    match tensor.dtype() {
        ScalarType::Bool => of(py, tensor, Bool8::get),
        ScalarType::Byte => of(py, tensor, |v: u8| v),
        ScalarType::Char => of(py, tensor, |v: i8| v),
        ScalarType::Short => of(py, tensor, |v: i16| v),
        ScalarType::Int => of(py, tensor, |v: i32| v),
        ScalarType::Long => of(py, tensor, |v: i64| v),
        ScalarType::UInt16 => of(py, tensor, |v: u16| v),
        ScalarType::UInt32 => of(py, tensor, |v: u32| v),
        ScalarType::UInt64 => of(py, tensor, |v: u64| v),
        ScalarType::Float => of(py, tensor, |v: f32| v),
        ScalarType::Double => of(py, tensor, |v: f64| v),
        ScalarType::Half => of(py, tensor, rushlight::f16::to_f32),
        ScalarType::BFloat16 => of(py, tensor, rushlight::bf16::to_f32),
        other => Err(PyTypeError::new_err(format!("elements of type {other} have no Python number"))),
    }
}

fn nest<'py>(py: Python<'py>, shape: &[usize], elements: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    let Some((&first, rest)) = shape.split_first() else {
        return elements.first().cloned().ok_or_else(|| PyTypeError::new_err("the tensor has no element"));
    };
    let each = elements.len().checked_div(first).unwrap_or(0);
    let list = PyList::empty(py);
    for i in 0..first {
        list.append(nest(py, rest, elements.get(i * each..(i + 1) * each).unwrap_or_default())?)?;
    }
    Ok(list.into_any())
}
