//! Exported models to programs.

use js_sys::Uint8Array;
use rushlight::{Compiler, Error, Quantization, Scheme, Value};
use wasm_bindgen::prelude::*;

use crate::memory::Bytes;
use crate::values::Values;
use crate::{error, module};

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

/// Lowers the bytes of a portable `.pte` file, with those of `.ptd` files, to those of a `.pte` file that needs neither these
/// nor the compiler. The error says why it is left as it is. `lower` is what it is compiled for; see `rushlight::ModuleBuilder`.
#[wasm_bindgen]
pub fn lower(
    program: Bytes,
    data: Vec<Bytes>,
    lower: String,
    memory_limit: Option<usize>,
) -> Result<Uint8Array, JsValue> {
    let builder = module::builder(memory_limit, data).lower(lower.as_str());
    let module = error::map(builder.load_shared(program.shared()))?;
    error::map(module.to_lowered()).map(|bytes| Uint8Array::from(bytes.as_slice()))
}

fn quantization(scheme: &str, method: String, samples: Result<Vec<Vec<Value>>, Error>) -> Result<Quantization, Error> {
    let (quantization, samples) = (Quantization::new(scheme.parse::<Scheme>()?), samples?);
    Ok(if samples.is_empty() { quantization } else { quantization.calibrate(method, samples) })
}
