//! A program's description as JSON: the output of `rushlight inspect --json` and the reports of `rushlight compile` and
//! `rushlight quantize`.

use rushlight::{MethodMeta, QuantizationReport, SizeRange, TensorInfo, ValueInfo};
use rushlight_compiler::partition::{Entry, Report};
use rushlight_format::{Program, tokenizer};
use serde_json::{Value as Json, json};

/// Methods, inputs, outputs, operators, delegates, memory plan, segments and tokenizer of a program.
pub fn program(program: &Program<'_>) -> Json {
    let segments: Vec<Json> =
        (0..program.num_segments()).map(|i| json!({ "bytes": program.segment(i).map_or(0, <[u8]>::len) })).collect();
    let named: Vec<Json> = program.named_data().map(|(key, data)| json!({ "key": key, "bytes": data.len() })).collect();
    let tokenizer = tokenizer::files(program.named_data());
    let tokenizer: Vec<Json> = tokenizer.map(|(name, data)| json!({ "file": name, "bytes": data.len() })).collect();
    json!({
        "bytes": program.bytes().len(),
        "version": program.version(),
        "extended_header": program.header().is_some(),
        "constants": program.num_constants(),
        "segments": segments,
        "named_data": named,
        "tokenizer": tokenizer,
        "methods": program.methods().map(|plan| method(&MethodMeta::of(&plan))).collect::<Vec<_>>(),
    })
}

/// One method.
pub fn method(meta: &MethodMeta) -> Json {
    let operators: Vec<Json> = meta.operators.iter().map(|op| json!({ "name": op.name, "calls": op.calls })).collect();
    json!({
        "name": meta.name,
        "signature": meta.signature.as_ref().map(ToString::to_string),
        "inputs": values(&meta.inputs, &meta.input_names),
        "outputs": values(&meta.outputs, &meta.output_names),
        "attributes": meta.attributes.iter().map(tensor).collect::<Vec<_>>(),
        "instructions": meta.num_instructions,
        "operators": operators,
        "backends": meta.backends,
        "planned_buffers": meta.planned_buffers,
    })
}

/// Lists the backend that claimed each node, and the reasons of the others.
pub fn partition(report: &Report) -> Json {
    let node = |entry: &Entry| {
        let reasons = entry.reasons().iter().map(|(backend, reason)| (backend.clone(), reason.as_str().into()));
        json!({
            "method": entry.method,
            "node": entry.node,
            "operator": entry.op,
            "module": entry.module,
            "source": entry.source,
            "backend": entry.claimant(),
            "precision": entry.precision,
            "reasons": Json::Object(reasons.collect()),
        })
    };
    json!({ "shares": report.claim_counts(), "nodes": report.entries.iter().map(node).collect::<Vec<_>>() })
}

/// Describes a quantization, the worst layers first. Ratios are in dB; they are null if nothing was compared or nothing
/// differs.
pub fn quantization(report: &QuantizationReport) -> Json {
    let (before, after) = report.bytes();
    let mut json = serde_json::to_value(report).unwrap_or_default();
    json["bytes_before"] = before.into();
    json["bytes_after"] = after.into();
    json["layers_in_integers"] = report.quantized().into();
    json
}

/// Inputs or outputs, with their names.
fn values(infos: &[ValueInfo], names: &[String]) -> Vec<Json> {
    let named = |(index, info): (usize, &ValueInfo)| {
        let mut json = value(info);
        if json.get("name").is_none_or(Json::is_null) {
            json["name"] = names.get(index).filter(|name| !name.is_empty()).cloned().into();
        }
        json
    };
    infos.iter().enumerate().map(named).collect()
}

fn value(info: &ValueInfo) -> Json {
    match info {
        ValueInfo::Tensor(info) => tensor(info),
        ValueInfo::Int(v) => json!({ "kind": "int", "value": v }),
        ValueInfo::Double(v) => json!({ "kind": "double", "value": v }),
        ValueInfo::Bool(v) => json!({ "kind": "bool", "value": v }),
        ValueInfo::String(v) => json!({ "kind": "string", "value": v }),
        ValueInfo::None => json!({ "kind": "none" }),
        ValueInfo::List => json!({ "kind": "list" }),
    }
}

fn range(range: &SizeRange) -> Json {
    let SizeRange { min, max, step, expression } = range;
    json!({ "min": min, "max": max, "step": [step.0, step.1], "expression": expression })
}

fn tensor(info: &TensorInfo) -> Json {
    json!({
        "kind": "tensor",
        "dtype": info.dtype.name(),
        "sizes": info.sizes,
        "dim_order": info.dim_order,
        "dynamic": info.is_dynamic,
        "ranges": info.ranges.iter().map(range).collect::<Vec<_>>(),
        "planned": info.is_memory_planned,
        "bytes": info.nbytes,
        "name": info.name,
    })
}
