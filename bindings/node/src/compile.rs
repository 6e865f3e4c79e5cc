//! Exported models to programs.

use napi::bindgen_prelude::{ClassInstance, Env, ToNapiValue, Uint8Array, Unknown};
use napi_derive::napi;
use rushlight::options::CompilerOptions;
use rushlight::runtime::StableBytes as _;
use rushlight::{Compiler, is_language_model};
use rushlight_js_plain::read_options;

use crate::bytes::{Bytes, Content, take};
use crate::error::Result;
use crate::interrupt::{Interrupt, progress};
use crate::into_js::IntoJs;
use crate::job::{call, start};
use crate::values::{Argument, Given};

/// Compiles a `.pt2` file, or a published language model, to the bytes of a `.pte` file with one method, and returns a
/// promise. Options have names in camel case, with values as text. The interrupt ends the compilation.
#[napi(catch_unwind)]
pub fn compile<'env>(
    env: &'env Env,
    mut exported: ClassInstance<'_, Bytes>,
    method: String,
    names: Vec<String>,
    texts: Vec<String>,
    samples: Vec<Vec<Given>>,
    interrupt: Option<ClassInstance<'_, Interrupt>>,
) -> napi::Result<Unknown<'env>> {
    let (exported, samples) = call(*env, || {
        let value = |given| Argument::of(given)?.into_value();
        let sample = |values: Vec<Given>| values.into_iter().map(value).collect::<Result<Vec<_>>>();
        Ok((take(&mut exported)?, samples.into_iter().map(sample).collect::<Result<Vec<_>>>()?))
    })?;
    let interrupt = interrupt.map(|interrupt| interrupt.flag());
    start(env, move || {
        let options: CompilerOptions = read_options(&names, &texts)?;
        let compiler = match exported {
            Content::Block(block) => Compiler::new().method_bytes(method.clone(), block.bytes().to_vec()),
            Content::Path(path) if is_language_model(&path) => {
                Compiler::new().language_model(path, options.language_model()?)
            }
            Content::Path(path) => Compiler::new().method(method.clone(), path),
        };
        let compiler = options.apply_with(compiler, |quantization| {
            if samples.is_empty() { quantization } else { quantization.calibrate(method, samples) }
        })?;
        Ok(Compiled(compiler.progress(progress(interrupt)).compile()?.to_bytes()?))
    })
}

/// The bytes of a program.
struct Compiled(Vec<u8>);

impl IntoJs for Compiled {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        Uint8Array::from(self.0).into_unknown(env)
    }
}
