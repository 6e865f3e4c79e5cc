//! Method metadata.

use rushlight::{MethodMeta, Structure, TensorInfo, ValueInfo};

use crate::Plain;

/// A `MethodMeta` of JavaScript's, with the names of its parameters and the structure of its outputs where it has a signature.
pub fn meta(meta: &MethodMeta) -> Plain {
    let mut outputs = values(&meta.outputs, &meta.output_names);
    if let Plain::Array(outputs) = &mut outputs {
        // The program computes it: what stands there before is nothing.
        outputs.iter_mut().for_each(|output| output.remove("value"));
    }
    let mut fields = vec![
        ("name", meta.name.as_str().into()),
        ("inputs", values(&meta.inputs, &meta.input_names)),
        ("outputs", outputs),
        ("operators", meta.operators.iter().map(|op| op.name.as_str()).collect()),
        ("backends", meta.backends.iter().map(String::as_str).collect()),
        ("signature", meta.signature.as_ref().map(ToString::to_string).into()),
    ];
    if let Some(signature) = &meta.signature {
        fields.push(("parameters", signature.parameters.iter().map(|parameter| parameter.name.as_str()).collect()));
        fields.push(("outputStructure", structure(&signature.outputs)));
    }
    Plain::Object(fields)
}

fn values(values: &[ValueInfo], names: &[String]) -> Plain {
    let names = names.iter().map(Some).chain(std::iter::repeat(None));
    Plain::Array(values.iter().zip(names).map(|(info, name)| value(info, name)).collect())
}

fn value(info: &ValueInfo, name: Option<&String>) -> Plain {
    let mut fields = vec![("name", name.map(String::as_str).into())];
    let (kind, fixed) = match info {
        ValueInfo::Tensor(info) => {
            fields.extend(tensor(info));
            ("tensor", None)
        }
        ValueInfo::Int(value) => ("int", Some(Plain::BigInt(*value))),
        ValueInfo::Double(value) => ("double", Some((*value).into())),
        ValueInfo::Bool(value) => ("bool", Some((*value).into())),
        ValueInfo::String(value) => ("string", Some(value.as_str().into())),
        ValueInfo::None => ("none", Some(Plain::Null)),
        ValueInfo::List => ("list", None),
    };
    fields.push(("kind", kind.into()));
    fields.extend(fixed.map(|value| ("value", value)));
    Plain::Object(fields)
}

fn tensor(info: &TensorInfo) -> [(&'static str, Plain); 5] {
    [
        ("dtype", info.dtype.long_name().into()),
        ("shape", info.sizes.iter().map(|&size| size as f64).collect()),
        ("isDynamic", info.is_dynamic.into()),
        ("ranges", info.ranges.iter().map(ToString::to_string).collect()),
        ("nbytes", (info.nbytes as f64).into()),
    ]
}

/// `null` for a value, an array of the children of a tuple or list, and else an object with their `keys`.
fn structure(of: &Structure) -> Plain {
    let keyed = |entries: Vec<(String, &Structure)>| {
        let children = entries.iter().map(|(_, child)| structure(child)).collect();
        let keys = entries.into_iter().map(|(key, _)| key).collect();
        Plain::Object(vec![("keys", keys), ("children", Plain::Array(children))])
    };
    match of {
        Structure::Leaf(_) => Plain::Null,
        Structure::Tuple(children) | Structure::List(children) => {
            Plain::Array(children.iter().map(structure).collect())
        }
        Structure::Dict(entries) => keyed(entries.iter().map(|(key, child)| (key.to_text(), child)).collect()),
        Structure::Record { fields, .. } => keyed(fields.iter().map(|(key, child)| (key.clone(), child)).collect()),
    }
}
