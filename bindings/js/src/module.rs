//! Programs and calls of their methods.

use rushlight::ModuleBuilder;
use rushlight::options::LoadOptions;
use rushlight_js_plain::{Timer, meta, read_options};
use wasm_bindgen::prelude::*;

use crate::memory::Bytes;
use crate::plain;
use crate::values::Values;

#[wasm_bindgen]
extern "C" {
    /// Milliseconds of a clock that browsers and Node.js have.
    #[wasm_bindgen(js_namespace = performance)]
    fn now() -> f64;
}

/// A program whose methods are loaded when they are first used.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Module(rushlight::Module);

#[wasm_bindgen]
impl Module {
    /// Loads the bytes of a `.pte` file with those of `.ptd` files. It runs as it is; `lower` compiles it for a
    /// backend. Options have names in camel case, with values as text.
    pub fn load(
        program: Bytes,
        data: Vec<Bytes>,
        names: Vec<String>,
        texts: Vec<String>,
        threads: usize,
    ) -> Result<Self, JsValue> {
        let builder = builder(&names, &texts, data)?.threads(threads);
        #[cfg(feature = "compile")]
        let builder = builder.lower(rushlight::Lower::Off);
        plain::map(builder.load_shared(program.shared())).map(Self)
    }

    /// Returns the benefit of lowering: `compiled`, `small`, `portable` or `foreign`, as in `rushlight::Portability`.
    #[wasm_bindgen(getter)]
    pub fn portability(&self) -> String {
        format!("{:?}", self.0.portability()).to_lowercase()
    }

    #[wasm_bindgen(getter)]
    pub fn methods(&self) -> Vec<String> {
        self.0.method_names().map(ToOwned::to_owned).collect()
    }

    pub fn meta(&self, method: &str) -> Result<JsValue, JsValue> {
        plain::map(self.0.meta(method)).map(|of| plain::to_js(meta(&of)))
    }

    #[wasm_bindgen(js_name = loadMethod)]
    pub fn load_method(&mut self, method: &str) -> Result<(), JsValue> {
        plain::map(self.0.load_method(method))
    }

    pub fn run(&mut self, method: &str, inputs: &Values) -> Result<Values, JsValue> {
        let values = plain::map(inputs.inputs())?;
        let outputs = match inputs.names() {
            Some(names) => self.0.call(method).named(names.iter().map(String::as_str).zip(values)).run(),
            None => self.0.run(method, &values),
        };
        plain::map(outputs).map(Values::from)
    }

    /// Runs a method `runs` times and returns the time of each step.
    pub fn profile(&mut self, method: &str, inputs: &Values, runs: u32) -> Result<JsValue, JsValue> {
        let mut timer = Timer::new(now);
        for _ in 0..runs {
            let values = plain::map(inputs.inputs())?;
            let call = self.0.call(method);
            let call = match inputs.names() {
                Some(names) => call.named(names.iter().map(String::as_str).zip(values)),
                None => call.inputs(&values),
            };
            plain::map(call.tracer(&mut timer).run())?;
        }
        Ok(plain::to_js(timer.steps()))
    }
}

/// A builder with options and `.ptd` files.
pub fn builder(names: &[String], texts: &[String], data: Vec<Bytes>) -> Result<ModuleBuilder, JsValue> {
    let options: LoadOptions = plain::map(read_options(names, texts))?;
    let builder = plain::map(options.builder())?;
    Ok(data.into_iter().fold(builder, |builder, data| builder.external_data_shared(data.shared())))
}
