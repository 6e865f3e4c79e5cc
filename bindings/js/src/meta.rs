//! Method metadata as objects.

use js_sys::{Array, Object};
use rushlight::{MethodMeta, Structure, TensorInfo, ValueInfo};
use wasm_bindgen::JsValue;

use crate::error::set;

pub fn to_js(meta: &MethodMeta) -> Object {
    let object = Object::new();
    set(&object, "name", meta.name.as_str());
    set(&object, "inputs", values(&meta.inputs, &meta.input_names));
    set(&object, "outputs", values(&meta.outputs, &meta.output_names));
    let operators: Array = meta.operators.iter().map(|op| JsValue::from(op.name.as_str())).collect();
    set(&object, "operators", operators);
    let backends: Array = meta.backends.iter().map(|name| JsValue::from(name.as_str())).collect();
    set(&object, "backends", backends);
    set(&object, "signature", meta.signature.as_ref().map(ToString::to_string));
    if let Some(signature) = &meta.signature {
        let parameters: Array = signature.parameters.iter().map(|p| JsValue::from(p.name.as_str())).collect();
        set(&object, "parameters", parameters);
        set(&object, "outputStructure", structure(&signature.outputs));
    }
    object
}

fn values(values: &[ValueInfo], names: &[String]) -> Array {
    let names = names.iter().map(Some).chain(std::iter::repeat(None));
    values.iter().zip(names).map(|(info, name)| JsValue::from(value(info, name))).collect()
}

fn value(info: &ValueInfo, name: Option<&String>) -> Object {
    let object = Object::new();
    set(&object, "name", name.map(String::as_str));
    let (kind, fixed) = match info {
        ValueInfo::Tensor(info) => {
            tensor(&object, info);
            ("tensor", JsValue::UNDEFINED)
        }
        ValueInfo::Int(value) => ("int", (*value).into()),
        ValueInfo::Double(value) => ("double", (*value).into()),
        ValueInfo::Bool(value) => ("bool", (*value).into()),
        ValueInfo::String(value) => ("string", value.as_str().into()),
        ValueInfo::None => ("none", JsValue::NULL),
        ValueInfo::List => ("list", JsValue::UNDEFINED),
    };
    set(&object, "kind", kind);
    if !fixed.is_undefined() {
        set(&object, "value", fixed);
    }
    object
}

fn tensor(object: &Object, info: &TensorInfo) {
    set(object, "dtype", info.dtype.long_name());
    let shape: Array = info.sizes.iter().map(|&size| JsValue::from(size as f64)).collect();
    set(object, "shape", shape);
    set(object, "isDynamic", info.is_dynamic);
    let ranges: Array = info.ranges.iter().map(|range| JsValue::from(range.to_string())).collect();
    set(object, "ranges", ranges);
    set(object, "nbytes", info.nbytes as f64);
}

/// `null` for a value, an array of the children of a tuple or list, and else an object with their `keys`.
fn structure(of: &Structure) -> JsValue {
    let keyed = |entries: Vec<(String, &Structure)>| {
        let object = Object::new();
        set(&object, "keys", entries.iter().map(|(key, _)| JsValue::from(key.as_str())).collect::<Array>());
        set(&object, "children", entries.iter().map(|(_, child)| structure(child)).collect::<Array>());
        object.into()
    };
    match of {
        Structure::Leaf(_) => JsValue::NULL,
        Structure::Tuple(children) | Structure::List(children) => {
            children.iter().map(structure).collect::<Array>().into()
        }
        Structure::Dict(entries) => keyed(entries.iter().map(|(key, child)| (key.to_string(), child)).collect()),
        Structure::Record { fields, .. } => keyed(fields.iter().map(|(key, child)| (key.clone(), child)).collect()),
    }
}
