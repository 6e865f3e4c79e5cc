//! Properties of PyTorch's tensors that DLPack does not describe: lazily negated or conjugated elements, and storages without
//! memory.

use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::ffi::{Array, ArrayMut, Exchange, call_method};
use crate::interpreter::in_python;
use crate::refusal::Refusal;

/// Addresses below this may be an offset from null, as PyTorch exports a view of a tensor whose storage has no memory. For
/// them the storage is checked, since programs may also have real memory there.
const DOUBTFUL: u64 = 1 << 40;

/// True for PyTorch's tensor type and its subclasses.
pub fn is_tensor_type(class: &Bound<'_, PyAny>) -> PyResult<bool> {
    let modules = class.py().import(intern!(class.py(), "sys"))?.getattr(intern!(class.py(), "modules"))?;
    let Some(torch) = modules.cast::<PyDict>()?.get_item("torch")? else { return Ok(false) };
    match torch.getattr_opt("Tensor")? {
        Some(tensor) => class.cast::<pyo3::types::PyType>()?.is_subclass(&tensor),
        None => Ok(false),
    }
}

/// Borrows a tensor through the exchange API. One that is negated or conjugated lazily is resolved, which copies it.
pub fn borrow(object: &Bound<'_, PyAny>, api: Exchange) -> Result<Array, Refusal> {
    let py = object.py();
    if is(object, intern!(py, "is_neg"))? {
        return borrow_resolved(&resolved(object, intern!(py, "resolve_neg"))?, api);
    }
    borrow_resolved(object, api)
}

/// Borrows a tensor to write to its elements.
pub fn borrow_to_write(object: &Bound<'_, PyAny>, api: Exchange) -> Result<ArrayMut, Refusal> {
    let py = object.py();
    for (property, text) in [
        (intern!(py, "is_neg"), "it is negated lazily; call resolve_neg()"),
        (intern!(py, "is_conj"), "it is conjugated lazily; call resolve_conj()"),
    ] {
        if is(object, property)? {
            return Err(Refusal::Value(text.into()));
        }
    }
    if in_python(|| object.getattr(intern!(py, "requires_grad")))?.is_truthy()? {
        return Err(Refusal::Value("it records gradients, which the program does not compute; call detach()".into()));
    }
    Ok(ArrayMut::exclusive(borrow_stored(object, api)?))
}

/// Borrows a tensor that is not negated.
fn borrow_resolved(object: &Bound<'_, PyAny>, api: Exchange) -> Result<Array, Refusal> {
    let py = object.py();
    let array = borrow_stored(object, api)?;
    if !array.dtype().is_complex() || !is(object, intern!(py, "is_conj"))? {
        return Ok(array);
    }
    // `resolve_conj` may leave the negative bit set.
    let conjugated = resolved(object, intern!(py, "resolve_conj"))?;
    borrow_stored(&resolved(&conjugated, intern!(py, "resolve_neg"))?, api)
}

/// Borrows a tensor's elements as they are stored, with the storage: `set_` gives the tensor another one.
fn borrow_stored(object: &Bound<'_, PyAny>, api: Exchange) -> Result<Array, Refusal> {
    let py = object.py();
    let storage = match call_method(object, intern!(py, "untyped_storage")) {
        Ok(storage) => storage,
        Err(error) if error.is_instance_of::<PyException>(py) => return Err(unreadable(object)?),
        Err(error) => return Err(Refusal::Raised(error)),
    };
    let array = match Array::from_exchange(object, api) {
        Ok(array) => array.keep(&storage),
        // PyTorch's text has lines about its own code, and names what DLPack lacks rather than what to do.
        Err(Refusal::Protocol(..) | Refusal::Value(_) | Refusal::Layout(_) | Refusal::Type(_)) => {
            return Err(unreadable(object)?);
        }
        Err(raised @ Refusal::Raised(_)) => return Err(raised),
    };
    match array.addresses() {
        Some(addresses) if (addresses.start as u64) < DOUBTFUL => {
            let size: usize = call_method(&storage, intern!(py, "nbytes"))?.extract()?;
            let start: usize = call_method(&storage, intern!(py, "data_ptr"))?.extract()?;
            let is_inside = start != 0 && start <= addresses.start && addresses.end - start <= size;
            if is_inside { Ok(array) } else { Err(unreadable(object)?) }
        }
        _ => Ok(array),
    }
}

/// Calls a method without arguments and returns the truth of its result.
fn is<'py>(object: &Bound<'py, PyAny>, method: &Bound<'py, PyString>) -> Result<bool, Refusal> {
    let py = object.py();
    let answer = call_method(object, method).map_err(|error| Refusal::of_protocol(py, object, error))?;
    answer.is_truthy().map_err(Refusal::Raised)
}

fn resolved<'py>(object: &Bound<'py, PyAny>, method: &Bound<'py, PyString>) -> Result<Bound<'py, PyAny>, Refusal> {
    call_method(object, method).map_err(|error| Refusal::of_protocol(object.py(), object, error))
}

/// Says why a tensor has no dense memory of the CPU, and what to do.
fn unreadable(object: &Bound<'_, PyAny>) -> PyResult<Refusal> {
    // Subclasses may raise whatever they like.
    let text = |name: &str| -> String {
        in_python(|| object.getattr(name).and_then(|value| Ok(value.str()?.to_string()))).unwrap_or_default()
    };
    let (layout, device, dtype) = (text("layout"), text("device"), text("dtype"));
    let kind = if device == "meta" {
        "it is on the device meta and has no elements; give one with elements on the CPU".to_owned()
    } else if text("is_nested") == "True" {
        "it is a nested tensor; call to_padded_tensor, or give its parts".to_owned()
    } else if !layout.is_empty() && layout != "torch.strided" {
        format!("its layout is {layout}; call to_dense()")
    } else if !device.is_empty() && device != "cpu" {
        format!("it is on the device {device}; call cpu()")
    } else if text("is_quantized") == "True" {
        format!("it is quantized ({dtype}); call dequantize(), or int_repr() for its integers")
    } else if dtype.starts_with("torch.float8") || dtype.starts_with("torch.float4") || dtype.starts_with("torch.bits")
    {
        format!("elements of type {dtype} are not supported; convert them, such as with to(torch.float32)")
    } else {
        "it has no memory of its own: its storage was freed, or it is a fake, functional or transformed tensor, or a subclass \
         that wraps others; give one whose elements are in memory"
            .to_owned()
    };
    Ok(Refusal::Value(kind))
}
