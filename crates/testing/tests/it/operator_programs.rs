//! The operator cases as files, for the tests of other languages: programs with one operator, their inputs, and outputs that agree with
//! PyTorch's.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rushlight::{Input, Module, ScalarType, Tensor, Value};
use rushlight_testing::cases::{self, Case, Check, TensorData};
use rushlight_testing::program::{self, METHOD, Placement};
use rushlight_testing::{runner, skips};
use serde_json::{Value as Json, json};

/// Writes a file of each family into the folder that `RUSHLIGHT_OPERATORS` names. The operators that it takes are deterministic, so
/// that other machines have to give the same bits; tensors are row-major, as other languages have no others.
#[test]
#[ignore = "writes files for the tests of other languages"]
fn are_written() {
    let folder = PathBuf::from(std::env::var_os("RUSHLIGHT_OPERATORS").expect("RUSHLIGHT_OPERATORS names a folder"));
    std::fs::create_dir_all(&folder).unwrap();
    for family in cases::families().unwrap() {
        let read = cases::read(&family).unwrap();
        let written: Vec<Json> = read.iter().filter_map(recorded).collect();
        std::fs::write(folder.join(format!("{family}.json")), serde_json::to_vec(&written).unwrap()).unwrap();
    }
}

fn recorded(case: &Case) -> Option<Json> {
    if case.check != Check::Values || !case.unspecified.is_empty() || skips::find(&case.op, &case.name).is_some() {
        return None;
    }
    let written = program::write(case, Placement::Planned).unwrap();
    if !written.inputs.iter().all(|tensor| is_row_major(tensor)) {
        return None;
    }
    let name = format!("{} {}", case.op, case.name);
    match runner::run_case(case, Placement::Planned) {
        Ok(()) => {}
        Err(reason) if reason == "missing" => return None,
        Err(reason) => panic!("{name}: {reason}"),
    }
    let given = |data: &TensorData| {
        let mut tensor = Tensor::zeros(data.dtype, &data.sizes).unwrap();
        tensor.bytes_mut().copy_from_slice(&data.bytes);
        Value::Tensor(tensor)
    };
    let given: Vec<Value> = written.inputs.iter().map(|data| given(data)).collect();
    let given: Vec<Input<'_>> = given.iter().map(|value| value.try_into().unwrap()).collect();
    let mut module = Module::builder().lower("off").load_bytes(&written.bytes).unwrap();
    let outputs = module.run(METHOD, &given).unwrap();
    let tensor = |dtype: ScalarType, shape: &[usize], bytes: &[u8]| json!({ "kind": "tensor", "dtype": dtype.long_name(), "shape": shape, "base64": STANDARD.encode(bytes) });
    let inputs: Vec<Json> =
        written.inputs.iter().map(|input| tensor(input.dtype, &input.sizes, &input.bytes)).collect();
    let output = |value: &Value| match value {
        Value::Tensor(output) => tensor(output.dtype(), output.shape(), output.bytes()),
        Value::Int(value) => json!({ "kind": "int", "value": value.to_string() }),
        // As JavaScript reads numbers.
        Value::Double(value) => json!({ "kind": "double", "value": value.to_string().replace("inf", "Infinity") }),
        Value::Bool(value) => json!({ "kind": "bool", "value": value }),
        other => panic!("{name} returns {other:?}"),
    };
    let outputs: Vec<Json> = outputs.iter().map(output).collect();
    Some(json!({ "name": name, "program": STANDARD.encode(&written.bytes), "inputs": inputs, "outputs": outputs }))
}

fn is_row_major(tensor: &TensorData) -> bool {
    tensor.dim_order.iter().enumerate().all(|(at, &dim)| at == usize::from(dim))
}
