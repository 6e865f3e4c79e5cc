//! Method metadata as dictionaries.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rushlight::{Key, MethodMeta, Parameter, RecordKind, Signature, Structure, TensorInfo, ValueInfo};

pub fn meta_to_python<'py>(py: Python<'py>, meta: &MethodMeta) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &meta.name)?;
    let inputs = meta.inputs.iter().map(|info| value_to_python(py, info));
    dict.set_item("inputs", inputs.collect::<PyResult<Vec<_>>>()?)?;
    let outputs = meta.outputs.iter().map(|info| output_to_python(py, info));
    dict.set_item("outputs", outputs.collect::<PyResult<Vec<_>>>()?)?;
    let attributes: PyResult<Vec<_>> = meta.attributes.iter().map(|info| info_to_python(py, info)).collect();
    dict.set_item("attributes", attributes?)?;
    dict.set_item("planned_buffers", &meta.planned_buffers)?;
    dict.set_item("operators", meta.operators.iter().map(|op| (op.name.as_str(), op.calls)).collect::<Vec<_>>())?;
    dict.set_item("backends", &meta.backends)?;
    dict.set_item("num_instructions", meta.num_instructions)?;
    dict.set_item("input_names", &meta.input_names)?;
    dict.set_item("output_names", &meta.output_names)?;
    dict.set_item("signature_text", meta.signature.as_ref().map(ToString::to_string))?;
    dict.set_item(
        "signature",
        meta.signature.as_ref().map(|signature| signature_to_python(py, signature)).transpose()?,
    )?;
    Ok(dict)
}

/// Parameters by name, and the outputs, as `_signature.py` reads them: tuples that begin with the kind.
pub fn signature_to_python<'py>(py: Python<'py>, signature: &Signature) -> PyResult<Bound<'py, PyTuple>> {
    let parameter =
        |parameter: &Parameter| Ok((parameter.name.clone(), structure_to_python(py, &parameter.structure)?));
    let parameters = signature.parameters.iter().map(parameter).collect::<PyResult<Vec<_>>>()?;
    (parameters, structure_to_python(py, &signature.outputs)?).into_pyobject(py)
}

fn structure_to_python<'py>(py: Python<'py>, structure: &Structure) -> PyResult<Bound<'py, PyTuple>> {
    let children = |children: &[Structure]| {
        children.iter().map(|child| structure_to_python(py, child)).collect::<PyResult<Vec<_>>>()
    };
    match structure {
        Structure::Leaf(_) => ("leaf",).into_pyobject(py),
        Structure::Tuple(items) => ("tuple", children(items)?).into_pyobject(py),
        Structure::List(items) => ("list", children(items)?).into_pyobject(py),
        Structure::Dict(entries) => {
            let entry = |(key, child): &(Key, Structure)| {
                let key = match key {
                    Key::Text(text) => ("text", text).into_pyobject(py)?,
                    Key::Int(number) => ("int", number).into_pyobject(py)?,
                    Key::Other(json) => ("other", json).into_pyobject(py)?,
                };
                Ok((key, structure_to_python(py, child)?))
            };
            ("dict", entries.iter().map(entry).collect::<PyResult<Vec<_>>>()?).into_pyobject(py)
        }
        Structure::Record { kind, class, fields } => {
            let kind = match kind {
                RecordKind::NamedTuple => "named tuple",
                RecordKind::Registered => "registered",
            };
            let field = |(field, child): &(String, Structure)| Ok((field.clone(), structure_to_python(py, child)?));
            (kind, class, fields.iter().map(field).collect::<PyResult<Vec<_>>>()?).into_pyobject(py)
        }
    }
}

pub fn value_to_python<'py>(py: Python<'py>, info: &ValueInfo) -> PyResult<Bound<'py, PyDict>> {
    let (kind, value) = match info {
        ValueInfo::Tensor(info) => return info_to_python(py, info),
        ValueInfo::Int(v) => ("int", v.into_pyobject(py)?.into_any()),
        ValueInfo::Double(v) => ("float", v.into_pyobject(py)?.into_any()),
        ValueInfo::Bool(v) => ("bool", v.into_pyobject(py)?.to_owned().into_any()),
        ValueInfo::String(v) => ("str", v.into_pyobject(py)?.into_any()),
        ValueInfo::None => ("none", py.None().into_bound(py)),
        ValueInfo::List => ("list", py.None().into_bound(py)),
    };
    let dict = PyDict::new(py);
    dict.set_item("kind", kind)?;
    dict.set_item("value", value)?;
    Ok(dict)
}

/// As [`value_to_python`], without a value that the program computes.
fn output_to_python<'py>(py: Python<'py>, info: &ValueInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = value_to_python(py, info)?;
    if info.as_tensor().is_none() {
        dict.set_item("value", py.None())?;
    }
    Ok(dict)
}

fn info_to_python<'py>(py: Python<'py>, info: &TensorInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("kind", "tensor")?;
    dict.set_item("dtype", info.dtype.long_name())?;
    dict.set_item("dtype_code", info.dtype.code())?;
    dict.set_item("sizes", PyTuple::new(py, &info.sizes)?)?;
    dict.set_item("dim_order", PyTuple::new(py, &info.dim_order)?)?;
    dict.set_item("is_dynamic", info.is_dynamic)?;
    dict.set_item("is_memory_planned", info.is_memory_planned)?;
    dict.set_item("nbytes", info.nbytes)?;
    dict.set_item("name", &info.name)?;
    let ranges: Vec<String> = info.ranges.iter().map(ToString::to_string).collect();
    dict.set_item("ranges", PyTuple::new(py, ranges)?)?;
    Ok(dict)
}
