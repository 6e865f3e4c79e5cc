//! Exported models to programs.

use js_sys::Uint8Array;
use rushlight::{Compiler, Error, Quantization, Scheme, Value};
use wasm_bindgen::prelude::*;

use crate::error;
use crate::memory::Bytes;
use crate::values::Values;

/// Compiles the bytes of a `.pt2` file to those of a `.pte` file with one method.
#[wasm_bindgen]
pub fn compile(
    exported: Bytes,
    method: String,
    backend: Option<String>,
    quantize: Option<String>,
    samples: Vec<Values>,
) -> Result<Uint8Array, JsValue> {
    let mut compiler = Compiler::new().method_bytes(method.clone(), exported.bytes().to_vec());
    if let Some(backend) = &backend {
        compiler = compiler.backend(backend.as_str());
    }
    if let Some(scheme) = quantize {
        let samples: Result<Vec<_>, _> = samples.into_iter().map(Values::into_values).collect();
        compiler = compiler.quantize(error::map(quantization(&scheme, method, samples))?);
    }
    let program = error::map(compiler.compile())?;
    Ok(Uint8Array::from(error::map(program.to_bytes())?.as_slice()))
}

fn quantization(scheme: &str, method: String, samples: Result<Vec<Vec<Value>>, Error>) -> Result<Quantization, Error> {
    let (quantization, samples) = (Quantization::new(scheme.parse::<Scheme>()?), samples?);
    Ok(if samples.is_empty() { quantization } else { quantization.calibrate(method, samples) })
}
