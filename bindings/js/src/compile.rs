//! Exported models to programs.

use js_sys::Uint8Array;
use rushlight::Compiler;
use rushlight::options::CompilerOptions;
use rushlight_js_plain::read_options;
use wasm_bindgen::prelude::*;

use crate::memory::Bytes;
use crate::values::Values;
use crate::{module, plain};

/// Compiles the bytes of a `.pt2` file to those of a `.pte` file with one method. Options have names in camel case, with
/// values as text. Samples are inputs of calls, for the calibration of a quantization.
#[wasm_bindgen]
pub fn compile(
    exported: Bytes,
    method: String,
    names: Vec<String>,
    texts: Vec<String>,
    samples: Vec<Values>,
) -> Result<Uint8Array, JsValue> {
    let options: CompilerOptions = plain::map(read_options(&names, &texts))?;
    let samples: Vec<_> = plain::map(samples.into_iter().map(Values::into_values).collect::<Result<_, _>>())?;
    let compiler = Compiler::new().method_bytes(method.clone(), exported.bytes().to_vec());
    let compiler = options.apply_with(compiler, |quantization| {
        if samples.is_empty() { quantization } else { quantization.calibrate(method, samples) }
    });
    let program = plain::map(plain::map(compiler)?.compile())?;
    Ok(Uint8Array::from(plain::map(program.to_bytes())?.as_slice()))
}

/// Lowers the bytes of a portable `.pte` file, with those of `.ptd` files, to those of a `.pte` file that needs neither these
/// nor the compiler. The error says why it is left as it is. Options are those of loading.
#[wasm_bindgen]
pub fn lower(program: Bytes, data: Vec<Bytes>, names: Vec<String>, texts: Vec<String>) -> Result<Uint8Array, JsValue> {
    let builder = module::builder(&names, &texts, data)?;
    let module = plain::map(builder.load_shared(program.shared()))?;
    plain::map(module.to_lowered()).map(|bytes| Uint8Array::from(bytes.as_slice()))
}
