//! Exported models to programs.

use js_sys::Uint8Array;
use rushlight::Compiler;
use rushlight_js_plain::quantization;
use wasm_bindgen::prelude::*;

use crate::memory::Bytes;
use crate::values::Values;
use crate::{module, plain};

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
        let samples = plain::map(samples.into_iter().map(Values::into_values).collect::<Result<_, _>>())?;
        compiler = compiler.quantize(plain::map(quantization(&scheme, &method, samples))?);
    }
    let program = plain::map(compiler.compile())?;
    Ok(Uint8Array::from(plain::map(program.to_bytes())?.as_slice()))
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
    let module = plain::map(builder.load_shared(program.shared()))?;
    plain::map(module.to_lowered()).map(|bytes| Uint8Array::from(bytes.as_slice()))
}
