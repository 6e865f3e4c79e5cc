//! Method metadata.

use rushlight::{MethodMeta, Structure, TensorInfo, ValueInfo};

use crate::Plain;

/// A `MethodMeta` of JavaScript's, with the names of its parameters and the structure of its outputs where it has a signature.
pub fn meta(meta: &MethodMeta) -> Plain {
    let mut fields = vec![
        ("name", meta.name.as_str().into()),
        ("inputs", values(&meta.inputs, &meta.input_names, input)),
        ("outputs", values(&meta.outputs, &meta.output_names, value)),
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

type Fields = Vec<(&'static str, Plain)>;

fn values(values: &[ValueInfo], names: &[String], fields: fn(&ValueInfo) -> Fields) -> Plain {
    let names = names.iter().map(|name| Some(name.as_str())).chain(std::iter::repeat(None));
    let value = |(info, name): (_, Option<&str>)| {
        let mut fields = fields(info);
        fields.insert(0, ("name", name.into()));
        Plain::Object(fields)
    };
    Plain::Array(values.iter().zip(names).map(value).collect())
}

/// An input, with the value that the export fixed.
fn input(info: &ValueInfo) -> Fields {
    let mut fields = value(info);
    let fixed = match info {
        ValueInfo::Int(value) => Plain::BigInt(*value),
        ValueInfo::Double(value) => (*value).into(),
        ValueInfo::Bool(value) => (*value).into(),
        ValueInfo::String(value) => value.as_str().into(),
        ValueInfo::None => Plain::Null,
        ValueInfo::Tensor(_) | ValueInfo::List => return fields,
    };
    fields.push(("value", fixed));
    fields
}

fn value(info: &ValueInfo) -> Fields {
    let mut fields = Vec::new();
    let kind = match info {
        ValueInfo::Tensor(info) => {
            fields.extend(tensor(info));
            "tensor"
        }
        ValueInfo::Int(_) => "int",
        ValueInfo::Double(_) => "double",
        ValueInfo::Bool(_) => "bool",
        ValueInfo::String(_) => "string",
        ValueInfo::None => "none",
        ValueInfo::List => "list",
    };
    fields.push(("kind", kind.into()));
    fields
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
