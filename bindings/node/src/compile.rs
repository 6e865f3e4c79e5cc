//! Exported models to programs.

use napi::bindgen_prelude::{ClassInstance, Env, ToNapiValue, Uint8Array, Unknown};
use napi_derive::napi;
use rushlight::Compiler;
use rushlight::runtime::StableBytes as _;
use rushlight_js_plain::quantization;

use crate::bytes::{Bytes, Content, take};
use crate::error::Result;
use crate::into_js::IntoJs;
use crate::job::{call, start};
use crate::values::{Argument, Given};

/// Compiles a `.pt2` file to the bytes of a `.pte` file with one method, and returns a promise.
#[napi(catch_unwind)]
pub fn compile<'env>(
    env: &'env Env,
    mut exported: ClassInstance<'_, Bytes>,
    method: String,
    backend: Option<String>,
    quantize: Option<String>,
    samples: Vec<Vec<Given>>,
) -> napi::Result<Unknown<'env>> {
    let (exported, samples) = call(*env, || {
        let value = |given| Argument::of(given)?.into_value();
        let sample = |values: Vec<Given>| values.into_iter().map(value).collect::<Result<Vec<_>>>();
        Ok((take(&mut exported)?, samples.into_iter().map(sample).collect::<Result<Vec<_>>>()?))
    })?;
    start(env, move || {
        let mut compiler = match exported {
            Content::Block(block) => Compiler::new().method_bytes(method.clone(), block.bytes().to_vec()),
            Content::Path(path) => Compiler::new().method(method.clone(), path),
        };
        if let Some(backend) = &backend {
            compiler = compiler.backend(backend.as_str());
        }
        if let Some(scheme) = quantize {
            compiler = compiler.quantize(quantization(&scheme, &method, samples)?);
        }
        Ok(Compiled(compiler.compile()?.to_bytes()?))
    })
}

/// The bytes of a program.
struct Compiled(Vec<u8>);

impl IntoJs for Compiled {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        Uint8Array::from(self.0).into_unknown(env)
    }
}
