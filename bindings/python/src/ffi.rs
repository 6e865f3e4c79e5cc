//! DLPack and the buffer protocol, and all `unsafe` code of the bindings.
//!
//! Besides the structures of `rushlight_format::dlpack`, it has the exchange API that a type offers as the capsule
//! `__dlpack_c_exchange_api__`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

use pyo3::exceptions::{PyBufferError, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyCapsule, PyDict, PyString, PyTuple};
use pyo3::{ffi, intern};
use rushlight::{OutputMut, ScalarType, TensorView};
use rushlight_bindings_common::ending_panics;
use rushlight_format::dlpack::{self, DataType, ManagedTensor, ManagedTensorVersioned, VERSION, Version};

use crate::interpreter::in_python;
use crate::refusal::Refusal;

/// The strides of a dense array whose dimensions are in order.
const ROW_MAJOR: Option<std::iter::Empty<i64>> = None;

/// Maximum rank that is read, as in NumPy and PyTorch. An exporter that claims more is broken.
const MAX_RANK: usize = 64;

#[repr(C)]
struct ExchangeApi {
    version: Version,
    previous: *mut c_void,
    allocator: *const c_void,
    from_object: Option<unsafe extern "C" fn(*mut c_void, *mut *mut ManagedTensorVersioned) -> c_int>,
    to_object: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned, *mut *mut c_void) -> c_int>,
    view_of_object: Option<ViewOfObject>,
    current_stream: *const c_void,
}

/// Describes the tensor of a Python object, which must be of the type that offers the function.
type ViewOfObject = unsafe extern "C" fn(*mut c_void, *mut dlpack::Tensor) -> c_int;

/// The functions of a type that exchange tensors without Python calls, as torch offers them. Valid while the type
/// lives.
#[derive(Clone, Copy)]
pub struct Exchange(NonNull<ExchangeApi>);

// SAFETY: the table is immutable, and its functions are called with the interpreter attached.
unsafe impl Send for Exchange {}
// SAFETY: as above.
unsafe impl Sync for Exchange {}

impl Exchange {
    /// The exchange API of a type, if it offers one of a version that this code knows.
    ///
    /// # Errors
    /// The exception of the attribute lookup, except for a missing attribute.
    pub fn of_type(class: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let capsule = in_python(|| class.getattr_opt(intern!(class.py(), "__dlpack_c_exchange_api__")))?;
        let Some(Ok(capsule)) = capsule.map(|capsule| capsule.cast_into::<PyCapsule>()) else { return Ok(None) };
        let name = c"dlpack_exchange_api";
        // SAFETY: the capsule is a live object; a wrong name gives null and an error that is cleared.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
        let Some(api) = NonNull::new(pointer.cast::<ExchangeApi>()) else {
            drop(PyErr::take(class.py()));
            return Ok(None);
        };
        // SAFETY: a capsule of this name holds the structure, whose header is stable over versions.
        let version = unsafe { api.as_ref().version };
        Ok((version.major == VERSION.major).then_some(Self(api)))
    }

    /// Converts our tensor to the exporting library's.
    pub fn to_object<'py>(self, py: Python<'py>, tensor: rushlight::Tensor) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the table outlives the type, which the caller holds.
        let to_object = unsafe { self.0.as_ref().to_object };
        let Some(to_object) = to_object else { return Err(PyBufferError::new_err("the type cannot import tensors")) };
        let managed = Exported::managed(tensor)?;
        let mut object = ptr::null_mut();
        // SAFETY: `managed` is a valid managed tensor that the callee takes over on success.
        let status = unsafe { to_object(managed, &raw mut object) };
        if status != 0 || object.is_null() {
            // SAFETY: on failure the tensor is still ours.
            unsafe { delete(managed) };
            return Err(PyErr::take(py).unwrap_or_else(|| PyBufferError::new_err("the tensor was refused")));
        }
        // SAFETY: the callee returned a new reference to a Python object.
        unsafe { Bound::from_owned_ptr_or_err(py, object.cast()) }
    }
}

/// Another library's array, borrowed. It is copied only if its elements cannot be read in place.
pub struct Array {
    dtype: ScalarType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    data: NonNull<u8>,
    /// Bytes from `data` to the end of the last element in memory.
    len: usize,
    /// Keeps the memory valid.
    owner: Owner,
    /// Keeps the memory valid when the tensor gets another storage.
    _storage: Option<Py<PyAny>>,
}

enum Owner {
    Copy { _bytes: Vec<u8> },
    Object { object: Py<PyAny>, view: ViewOfObject },
    Buffer { _buffer: Buffer },
    Managed { _tensor: Managed },
}

// SAFETY: the memory is only read while the owner keeps it, or written through an exclusive reference; owners are released with
// the interpreter attached, because arrays are dropped by the function that borrowed them.
unsafe impl Send for Array {}
// SAFETY: shared access only reads.
unsafe impl Sync for Array {}

impl Array {
    /// Borrows through the exchange API. Needs no Python call and no reference count of a tensor.
    pub fn from_exchange(object: &Bound<'_, PyAny>, api: Exchange) -> Result<Self, Refusal> {
        // SAFETY: the table outlives the type, and `object` keeps its type alive.
        let table = unsafe { api.0.as_ref() };
        let py = object.py();
        let refused = || {
            let error = PyErr::take(py).unwrap_or_else(|| PyBufferError::new_err("the tensor cannot be exported"));
            Refusal::of_protocol(py, object, error)
        };
        if let Some(view) = table.view_of_object {
            let mut tensor = dlpack::Tensor::default();
            // SAFETY: `object` is of the type that offered the function, and `tensor` is valid for writes.
            if unsafe { view(object.as_ptr().cast(), &raw mut tensor) } != 0 {
                return Err(refused());
            }
            let owner = Owner::Object { object: object.clone().unbind(), view };
            // SAFETY: the view is valid while `object` lives, which the owner holds, and keeps its memory: callers `keep` the
            // storage, check `is_current` after other Python code, and their documentation forbids to resize it during a call.
            return unsafe { Self::from_dl(&tensor, owner) };
        }
        let Some(export) = table.from_object else { return Err(refused()) };
        let mut managed = ptr::null_mut();
        // SAFETY: as above; on success `managed` is a tensor that is ours to delete.
        if unsafe { export(object.as_ptr().cast(), &raw mut managed) } != 0 || managed.is_null() {
            return Err(refused());
        }
        // SAFETY: a valid managed tensor, just exported, which is ours.
        unsafe { Self::from_versioned(managed) }
    }

    /// # Safety
    /// `managed` must be a managed tensor that the callee may delete. The header and the deleter come before the
    /// tensor, and are the same in all versions.
    unsafe fn from_versioned(managed: *mut ManagedTensorVersioned) -> Result<Self, Refusal> {
        let owner = Owner::Managed { _tensor: Managed::Versioned(managed) };
        // SAFETY: as the caller promises.
        let Version { major, minor } = unsafe { (*managed).version };
        if major != VERSION.major {
            let text = format!("DLPack {major}.{minor} is not known: expected version {}", VERSION.major);
            return Err(Refusal::Value(text));
        }
        // SAFETY: of this version, the structure has a tensor.
        let tensor = unsafe { (*managed).tensor };
        // SAFETY: valid until the managed tensor is deleted, which the owner does.
        unsafe { Self::from_dl(&tensor, owner) }
    }

    /// Borrows through `__dlpack__`.
    pub fn from_dlpack(object: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let py = object.py();
        let capsule = call_method(object, intern!(py, "__dlpack__"));
        let capsule = capsule.map_err(|error| Refusal::of_protocol(py, object, error))?;
        // Without a GIL, another thread may take the tensor of the same capsule, if the exporter returns the capsule
        // twice.
        let take = |name: &CStr, used: &'static CStr| {
            with_critical_section(&capsule, || {
                // SAFETY: `capsule` is a live object; both functions check what it is.
                unsafe {
                    if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
                        return None;
                    }
                    let pointer = ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr());
                    // In the protocol, a consumed capsule is renamed, and the consumer deletes its tensor.
                    ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr());
                    NonNull::new(pointer)
                }
            })
        };
        if let Some(managed) = take(c"dltensor_versioned", c"used_dltensor_versioned") {
            // SAFETY: a capsule of this name holds this structure, and its consumer deletes it.
            return unsafe { Self::from_versioned(managed.cast::<ManagedTensorVersioned>().as_ptr()) };
        }
        if let Some(managed) = take(c"dltensor", c"used_dltensor") {
            let managed = managed.cast::<ManagedTensor>().as_ptr();
            // SAFETY: a capsule of this name holds this structure.
            let tensor = unsafe { (*managed).tensor };
            let owner = Owner::Managed { _tensor: Managed::Plain(managed) };
            // SAFETY: valid until the managed tensor is deleted, which the owner does.
            return unsafe { Self::from_dl(&tensor, owner) };
        }
        Err(Refusal::Type("__dlpack__ returned no DLPack capsule, or one that was used before".into()))
    }

    /// # Safety
    /// `tensor` must describe memory that stays valid and unchanged while `owner` lives.
    unsafe fn from_dl(tensor: &dlpack::Tensor, owner: Owner) -> Result<Self, Refusal> {
        if tensor.device_type != dlpack::CPU {
            let text = format!("it is on DLPack's device type {}; move it to the CPU first", tensor.device_type);
            return Err(Refusal::Value(text));
        }
        let Some(dtype) = tensor.dtype.scalar_type() else {
            let DataType { code, bits, lanes } = tensor.dtype;
            let text = format!("DLPack's type code {code} of {bits} bits and {lanes} lanes is not supported");
            return Err(Refusal::Type(text));
        };
        let Some(rank) = usize::try_from(tensor.ndim).ok().filter(|rank| *rank <= MAX_RANK) else {
            return Err(Refusal::Value(format!("its rank is {}: expected 0 to {MAX_RANK}", tensor.ndim)));
        };
        let list = |pointer: *mut i64| -> Option<&[i64]> {
            // SAFETY: DLPack: shape, and strides unless null, have `ndim` entries.
            (!pointer.is_null()).then(|| unsafe { slice::from_raw_parts(pointer, rank) })
        };
        let shape = if rank == 0 { Some(&[][..]) } else { list(tensor.shape) };
        let shape = shape.ok_or_else(|| Refusal::Value(format!("it has rank {rank} and no shape")))?;
        let strides = if rank == 0 { Some(&[][..]) } else { list(tensor.strides) };
        let data = tensor.data.cast::<u8>();
        // A null pointer stays null with any offset.
        let data = match usize::try_from(tensor.byte_offset) {
            _ if data.is_null() => data,
            Ok(offset) if data.addr().checked_add(offset).is_some() => data.wrapping_add(offset),
            _ => return Err(Refusal::Value(format!("its offset of {} bytes is too large", tensor.byte_offset))),
        };
        let strides = strides.map(|s| s.iter().copied());
        Self::new(dtype, shape.iter().copied(), strides, data, owner)
    }

    /// Borrows through the buffer protocol. Copies arrays with negative strides, with strides that are not multiples of
    /// an element, or with swapped bytes.
    pub fn from_buffer(object: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let buffer = Buffer::of(object, ffi::PyBUF_RECORDS_RO);
        Self::of_buffer(buffer.map_err(|error| Refusal::of_protocol(object.py(), object, error))?, object.py())
    }

    fn of_buffer(buffer: Buffer, py: Python<'_>) -> Result<Self, Refusal> {
        let raw = &*buffer.raw;
        let rank = usize::try_from(raw.ndim).unwrap_or(0);
        let width = i64::try_from(raw.itemsize).unwrap_or(1).max(1);
        let format = if raw.format.is_null() {
            "B"
        } else {
            // SAFETY: a non-null format is a NUL-terminated string that lives as long as the buffer.
            unsafe { CStr::from_ptr(raw.format) }.to_str().unwrap_or("")
        };
        let Some((dtype, is_swapped)) = dtype_of_format(format, raw.itemsize as usize) else {
            return Err(Refusal::Type(format!(
                "elements of the buffer format {format:?} are not supported; convert the array first"
            )));
        };
        let list = |pointer: *mut ffi::Py_ssize_t| -> Option<Vec<i64>> {
            if rank == 0 {
                return Some(Vec::new());
            }
            // SAFETY: with PyBUF_STRIDES, shape and strides have `ndim` entries, unless they are null.
            (!pointer.is_null())
                .then(|| unsafe { slice::from_raw_parts(pointer, rank) }.iter().map(|&v| v as i64).collect())
        };
        let shape = list(raw.shape).ok_or_else(|| Refusal::Value(format!("it has rank {rank} and no shape")))?;
        // Without strides, as in buffers of ctypes, it is row-major.
        let strides = list(raw.strides);
        let is_borrowed = strides.iter().flatten().all(|stride| *stride >= 0 && stride % width == 0);
        if !is_borrowed || is_swapped {
            let longer = |len: i64, size: &i64| if *size < 0 { None } else { len.checked_mul(*size) };
            let len = shape.iter().try_fold(raw.itemsize as i64, longer);
            if len != Some(raw.len as i64) {
                return Err(Refusal::Value(format!(
                    "its shape is {shape:?}, and it says that it has {} bytes",
                    raw.len
                )));
            }
            let mut bytes = buffer.to_row_major(py)?;
            if is_swapped {
                let parts = if dtype.is_complex() { 2 } else { 1 };
                bytes.chunks_exact_mut(dtype.size() / parts).for_each(<[u8]>::reverse);
            }
            let data = bytes.as_mut_ptr();
            return Self::new(dtype, shape.into_iter(), ROW_MAJOR, data, Owner::Copy { _bytes: bytes });
        }
        let strides = strides.map(|strides| strides.into_iter().map(move |stride| stride / width));
        let data = raw.buf.cast::<u8>();
        Self::new(dtype, shape.into_iter(), strides, data, Owner::Buffer { _buffer: buffer })
    }

    fn new(
        dtype: ScalarType,
        shape: impl ExactSizeIterator<Item = i64>,
        strides: Option<impl ExactSizeIterator<Item = i64>>,
        data: *mut u8,
        owner: Owner,
    ) -> Result<Self, Refusal> {
        let whole = |v: i64| usize::try_from(v).ok();
        let sizes: Option<Vec<usize>> = shape.map(whole).collect();
        let sizes = sizes.ok_or_else(|| Refusal::Value("it has a negative size".into()))?;
        let is_empty = sizes.contains(&0);
        let strides: Option<Vec<usize>> = match strides {
            Some(strides) => {
                let stride = |(v, &size): (i64, &usize)| if size <= 1 || is_empty { Some(1) } else { whole(v) };
                strides.zip(&sizes).map(stride).collect()
            }
            None => {
                let mut stride = 1usize;
                let mut row_major: Vec<usize> = sizes
                    .iter()
                    .rev()
                    .map(|&size| {
                        let own = stride;
                        stride = stride.saturating_mul(size);
                        own
                    })
                    .collect();
                row_major.reverse();
                Some(row_major)
            }
        };
        let strides = strides.ok_or(Refusal::Layout("it has negative strides"))?;
        let last = sizes
            .iter()
            .zip(&strides)
            .try_fold(0usize, |at, (&size, &stride)| at.checked_add(size.saturating_sub(1).checked_mul(stride)?));
        let len = if is_empty { Some(0) } else { last.and_then(|last| last.checked_add(1)?.checked_mul(dtype.size())) };
        let fits = |len: &usize| isize::try_from(*len).is_ok() && data.addr().checked_add(*len).is_some();
        let too_large =
            || Refusal::Value(format!("no memory has room for the shape {sizes:?} with strides {strides:?}"));
        let len = len.filter(fits).ok_or_else(too_large)?;
        let data = match NonNull::new(data) {
            _ if len == 0 => NonNull::<u128>::dangling().cast(),
            Some(data) => data,
            None => return Err(Refusal::Value(format!("it says that it has {len} bytes, and has no memory"))),
        };
        Ok(Self { dtype, sizes, strides, data, len, owner, _storage: None })
    }

    /// Holds the owner of the memory until the array is dropped. Without it, a tensor that gets other memory frees the old one.
    pub fn keep(self, storage: &Bound<'_, PyAny>) -> Self {
        Self { _storage: Some(storage.clone().unbind()), ..self }
    }

    /// Returns false if Python code has resized the tensor or replaced its memory since it was borrowed. Runs no Python code.
    pub fn is_current(&self, py: Python<'_>) -> bool {
        let Owner::Object { object, view } = &self.owner else { return true };
        let mut tensor = dlpack::Tensor::default();
        // SAFETY: `object` is of the type that offered the function, and `tensor` is valid for writes.
        if unsafe { view(object.as_ptr().cast(), &raw mut tensor) } != 0 {
            drop(PyErr::take(py));
            return false;
        }
        let start = usize::try_from(tensor.byte_offset).ok().and_then(|offset| tensor.data.addr().checked_add(offset));
        self.len == 0 || start == Some(self.data.as_ptr().addr())
    }

    /// The element type.
    pub fn dtype(&self) -> ScalarType {
        self.dtype
    }

    /// Addresses of the memory that elements are in; `None` for an array without elements.
    pub fn addresses(&self) -> Option<std::ops::Range<usize>> {
        let start = self.data.as_ptr().addr();
        (self.len > 0).then(|| start..start + self.len)
    }

    /// Returns the array as an input.
    pub fn view(&self) -> Result<TensorView<'_>, rushlight::Error> {
        // SAFETY: the exporter promises that every element of the shape is inside of its memory, so the `len` bytes up
        // to the last element are, too. The owner keeps them valid. An exporter without memory is refused before. An
        // exporter whose memory is smaller than it promises cannot be detected.
        let data = unsafe { slice::from_raw_parts(self.data.as_ptr(), self.len) };
        Ok(TensorView::strided(self.dtype, &self.sizes, &self.strides, data)?)
    }
}

/// Another library's array, borrowed to be written to.
pub struct ArrayMut(Array);

impl ArrayMut {
    /// Borrows through the buffer protocol, from an object that allows writes.
    pub fn from_buffer(object: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let py = object.py();
        let buffer = match Buffer::of(object, ffi::PyBUF_RECORDS) {
            Ok(buffer) => buffer,
            Err(error) if !error.is_instance_of::<PyException>(py) => return Err(Refusal::Raised(error)),
            Err(_) if Buffer::of(object, ffi::PyBUF_RECORDS_RO).is_ok() => {
                return Err(Refusal::Value(
                    "it is read-only; give an array that may be written, such as a copy".into(),
                ));
            }
            Err(_) => {
                let text = "expected an array of NumPy, a tensor of PyTorch, or another object with a writable buffer";
                return Err(Refusal::Type(text.into()));
            }
        };
        match Array::of_buffer(buffer, py)? {
            Array { owner: Owner::Copy { .. }, .. } => Err(Refusal::Value(
                "results are not written to negative strides or swapped bytes; give a new array".into(),
            )),
            array => Ok(Self(array)),
        }
    }

    /// Takes a borrowed array whose elements may be written.
    pub fn exclusive(array: Array) -> Self {
        Self(array)
    }

    /// Returns false if Python code has replaced the memory since it was borrowed. Runs no Python code.
    pub fn is_current(&self, py: Python<'_>) -> bool {
        self.0.is_current(py)
    }

    /// Addresses of the memory that elements are in; `None` for an array without elements.
    pub fn addresses(&self) -> Option<Range<usize>> {
        self.0.addresses()
    }

    /// True if elements of the array may be at these addresses.
    pub fn overlaps(&self, addresses: Option<Range<usize>>) -> bool {
        match (self.addresses(), addresses) {
            (Some(own), Some(other)) => own.start < other.end && other.start < own.end,
            _ => false,
        }
    }

    /// Returns the array as memory for an output.
    ///
    /// # Errors
    /// If its elements are not dense.
    pub fn output(&mut self) -> Result<OutputMut<'_>, rushlight::Error> {
        let array = &self.0;
        // SAFETY: as in `Array::view`, and the exporter allows writes. Callers have checked that no other borrowed array has these
        // addresses, and their documentation forbids others to use the memory during a call.
        let data = unsafe { slice::from_raw_parts_mut(array.data.as_ptr(), array.len) };
        OutputMut::strided(array.dtype, &array.sizes, &array.strides, data)
    }
}

/// Returns the element type of a buffer's format, and true if its bytes are swapped on this machine.
fn dtype_of_format(format: &str, width: usize) -> Option<(ScalarType, bool)> {
    let swapped: &[char] = if cfg!(target_endian = "little") { &['>', '!'] } else { &['<'] };
    let is_swapped = format.starts_with(swapped) && width > 1;
    let format = format.strip_prefix(['@', '=', '<', '>', '!', '|']).unwrap_or(format);
    let dtype = match (format, width) {
        ("?", 1) => ScalarType::Bool,
        ("b", 1) => ScalarType::Char,
        ("B" | "c", 1) => ScalarType::Byte,
        ("h", 2) => ScalarType::Short,
        ("H", 2) => ScalarType::UInt16,
        ("i" | "l" | "q" | "n", 4) => ScalarType::Int,
        ("I" | "L" | "Q" | "N", 4) => ScalarType::UInt32,
        ("i" | "l" | "q" | "n", 8) => ScalarType::Long,
        ("I" | "L" | "Q" | "N", 8) => ScalarType::UInt64,
        ("e", 2) => ScalarType::Half,
        ("f", 4) => ScalarType::Float,
        ("d", 8) => ScalarType::Double,
        ("Zf", 8) => ScalarType::ComplexFloat,
        ("Zd", 16) => ScalarType::ComplexDouble,
        _ => return None,
    };
    Some((dtype, is_swapped))
}

/// Returns the buffer protocol's letter for an element type; `None` for types that it lacks.
fn format_of(dtype: ScalarType) -> Option<&'static CStr> {
    Some(match dtype {
        ScalarType::Bool => c"?",
        ScalarType::Char => c"b",
        ScalarType::Byte => c"B",
        ScalarType::Short => c"h",
        ScalarType::UInt16 => c"H",
        ScalarType::Int => c"i",
        ScalarType::UInt32 => c"I",
        ScalarType::Long => c"q",
        ScalarType::UInt64 => c"Q",
        ScalarType::Half => c"e",
        ScalarType::Float => c"f",
        ScalarType::Double => c"d",
        ScalarType::ComplexFloat => c"Zf",
        ScalarType::ComplexDouble => c"Zd",
        _ => return None,
    })
}

/// Calls an object. Python code may end this thread inside the call without dropping anything of Rust.
pub fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let keywords = keywords.map_or(ptr::null_mut(), Bound::as_ptr);
    // SAFETY: all are live objects, of the types that the function takes.
    let result = in_python(|| unsafe { ffi::PyObject_Call(function.as_ptr(), arguments.as_ptr(), keywords) });
    // SAFETY: a new reference, or null with an error that is set.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}

/// Calls a method without arguments. Makes no method object first.
pub fn call_method<'py>(object: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    let end = ptr::null_mut::<ffi::PyObject>();
    // SAFETY: both are live objects, and null ends the list of arguments.
    let result = in_python(|| unsafe { ffi::PyObject_CallMethodObjArgs(object.as_ptr(), name.as_ptr(), end) });
    // SAFETY: a new reference, or null with an error that is set.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), result) }
}

/// Returns the number of the interpreter that this thread is attached to. It is unique in the process.
pub fn interpreter_id(py: Python<'_>) -> PyResult<i64> {
    // SAFETY: a thread that is attached has an interpreter.
    let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if id < 0 { Err(PyErr::fetch(py)) } else { Ok(id) }
}

/// A buffer of the buffer protocol, released when it is dropped.
struct Buffer {
    raw: Box<ffi::Py_buffer>,
}

impl Buffer {
    fn of(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut raw = Box::new(ffi::Py_buffer::new());
        // SAFETY: `object` is alive and `raw` is valid for writes.
        let status = in_python(|| unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, flags) });
        if status == 0 { Ok(Self { raw }) } else { Err(PyErr::fetch(object.py())) }
    }

    /// Copies the elements in row-major order.
    fn to_row_major(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let mut bytes = vec![0u8; self.raw.len.unsigned_abs()];
        // Before 3.11, its declaration takes a mutable buffer.
        let raw = (&raw const *self.raw).cast_mut();
        // SAFETY: `bytes` has room for the `len` bytes of the buffer, and callers have seen that its shape has no more.
        let status =
            unsafe { ffi::PyBuffer_ToContiguous(bytes.as_mut_ptr().cast(), raw, self.raw.len, b'C' as c_char) };
        if status == 0 { Ok(bytes) } else { Err(PyErr::fetch(py)) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the buffer was filled by PyObject_GetBuffer and is released once.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.raw) });
    }
}

/// A managed tensor that is ours to delete.
enum Managed {
    Plain(*mut ManagedTensor),
    Versioned(*mut ManagedTensorVersioned),
}

impl Drop for Managed {
    fn drop(&mut self) {
        match *self {
            // SAFETY: the tensor was handed over to us, and is deleted once.
            Self::Plain(tensor) => unsafe {
                if let Some(deleter) = (*tensor).deleter {
                    deleter(tensor);
                }
            },
            // SAFETY: as above.
            Self::Versioned(tensor) => unsafe { delete(tensor) },
        }
    }
}

/// # Safety
/// `tensor` must be a valid managed tensor that the caller owns, and does not use afterwards.
unsafe fn delete(tensor: *mut ManagedTensorVersioned) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(deleter) = (*tensor).deleter {
            deleter(tensor);
        }
    }
}

/// One of our tensors that another library uses.
struct Exported {
    managed: ManagedTensorVersioned,
    tensor: rushlight::Tensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Exported {
    /// Returns a managed tensor that owns `tensor`. Its deleter frees everything.
    fn managed(tensor: rushlight::Tensor) -> PyResult<*mut ManagedTensorVersioned> {
        let Some(dtype) = DataType::of(tensor.dtype()) else {
            return Err(PyTypeError::new_err(format!("DLPack has no type for {}", tensor.dtype())));
        };
        let shape: Vec<i64> = tensor.shape().iter().map(|&size| size as i64).collect();
        let mut strides = vec![1i64; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
        }
        let mut exported = Box::new(Self {
            managed: ManagedTensorVersioned {
                version: VERSION,
                context: ptr::null_mut(),
                deleter: Some(Self::delete),
                flags: 0,
                tensor: dlpack::Tensor {
                    device_type: dlpack::CPU,
                    ndim: shape.len() as i32,
                    dtype,
                    ..dlpack::Tensor::default()
                },
            },
            tensor,
            shape,
            strides,
        });
        exported.managed.tensor.data = exported.tensor.bytes_mut().as_mut_ptr().cast();
        exported.managed.tensor.shape = exported.shape.as_mut_ptr();
        exported.managed.tensor.strides = exported.strides.as_mut_ptr();
        let exported = Box::into_raw(exported);
        // SAFETY: `exported` was just made by `Box::into_raw`, so it is valid and exclusive.
        unsafe {
            (*exported).managed.context = exported.cast();
            Ok(&raw mut (*exported).managed)
        }
    }

    unsafe extern "C" fn delete(managed: *mut ManagedTensorVersioned) {
        // SAFETY: `context` is the box that `managed` is part of; the deleter is called once.
        ending_panics((), || drop(unsafe { Box::from_raw((*managed).context.cast::<Self>()) }));
    }
}

/// Returns a DLPack capsule that owns `tensor`.
pub fn capsule(py: Python<'_>, tensor: rushlight::Tensor) -> PyResult<Py<PyAny>> {
    unsafe extern "C" fn drop_unused(capsule: *mut ffi::PyObject) {
        // SAFETY: called with the capsule that is being freed; a consumer has renamed it.
        ending_panics((), || unsafe {
            let name = c"dltensor_versioned";
            if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) != 0 {
                let pointer = ffi::PyCapsule_GetPointer(capsule, name.as_ptr());
                delete(pointer.cast());
            }
        });
    }
    let managed = Exported::managed(tensor)?;
    // SAFETY: the pointer is not null, the name is static, the destructor fits the contents.
    unsafe {
        let capsule = ffi::PyCapsule_New(managed.cast(), c"dltensor_versioned".as_ptr(), Some(drop_unused));
        Ok(Bound::from_owned_ptr_or_err(py, capsule)?.unbind())
    }
}

/// Fills a buffer view of a tensor that `owner` keeps alive and unchanged.
///
/// # Safety
/// `view` must be valid for writes, as the buffer protocol promises. `bytes` must live as long as `owner`.
pub unsafe fn fill_buffer(
    view: *mut ffi::Py_buffer,
    flags: c_int,
    owner: Bound<'_, PyAny>,
    dtype: ScalarType,
    shape: &[usize],
    bytes: &[u8],
) -> PyResult<()> {
    // Of a view that is refused.
    // SAFETY: `view` is valid for writes.
    unsafe { (*view).obj = ptr::null_mut() };
    if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err("the tensor is read-only"));
    }
    let Some(format) = format_of(dtype) else {
        return Err(PyBufferError::new_err(format!("the buffer protocol has no type for {dtype}; use __dlpack__")));
    };
    let mut sizes: Vec<ffi::Py_ssize_t> = shape.iter().map(|&size| size as ffi::Py_ssize_t).collect();
    let mut strides = vec![dtype.size() as ffi::Py_ssize_t; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(sizes[i].max(1));
    }
    sizes.append(&mut strides);
    let mut dims = sizes.into_boxed_slice();
    // SAFETY: `view` is valid for writes; `dims` is leaked into `internal` and freed by `release_buffer`.
    unsafe {
        (*view).buf = bytes.as_ptr().cast_mut().cast();
        (*view).len = bytes.len() as ffi::Py_ssize_t;
        (*view).readonly = 1;
        (*view).itemsize = dtype.size() as ffi::Py_ssize_t;
        (*view).format =
            if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT { format.as_ptr().cast_mut() } else { ptr::null_mut() };
        (*view).ndim = shape.len() as c_int;
        (*view).shape = if flags & ffi::PyBUF_ND == ffi::PyBUF_ND { dims.as_mut_ptr() } else { ptr::null_mut() };
        (*view).strides = if flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES {
            dims.as_mut_ptr().add(shape.len())
        } else {
            ptr::null_mut()
        };
        (*view).suboffsets = ptr::null_mut();
        (*view).internal = Box::into_raw(Box::new(dims)).cast();
        (*view).obj = owner.into_ptr();
    }
    Ok(())
}

/// Frees what [`fill_buffer`] allocated.
///
/// # Safety
/// `view` must be filled by `fill_buffer`, and be released only once.
pub unsafe fn release_buffer(view: *mut ffi::Py_buffer) {
    // SAFETY: `internal` is the box that `fill_buffer` leaked.
    ending_panics((), || drop(unsafe { Box::from_raw((*view).internal.cast::<Box<[ffi::Py_ssize_t]>>()) }));
}
