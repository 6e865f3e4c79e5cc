//! Rushlight in a browser or Node.js: a WebAssembly module without a system interface, files, clock or threads.
//!
//! The host hands over bytes and numbers one by one, so that no function here takes an address. `tools/wasm.mjs` is a host.
//!
//! ```console
//! $ cargo build -p rushlight-example-wasm --target wasm32-unknown-unknown
//! $ node tools/wasm.mjs target/wasm32-unknown-unknown/debug/rushlight_example_wasm.wasm tests/corpus/1.5.1/mlp.json
//! ```
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::time::Duration;

use rushlight::{Error, Input, Module, TensorView};

#[derive(Default)]
struct Host {
    program: Vec<u8>,
    module: Option<Module>,
    inputs: Vec<f32>,
    outputs: Vec<f32>,
    message: String,
}

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
}

/// Appends a byte to the program.
#[unsafe(no_mangle)]
pub extern "C" fn program(byte: u32) {
    HOST.with_borrow_mut(|host| host.program.push(byte as u8));
}

/// Loads the program, lowered for this machine if `lower` is not 0 and with a limit on time if `millis` is not. Returns 1 if
/// it runs in that way, 0 with a [`message`] otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn load(lower: u32, millis: u32) -> u32 {
    HOST.with_borrow_mut(|host| {
        let mut builder = Module::builder().lower(if lower == 0 { "off" } else { "cpu" });
        if millis > 0 {
            builder = builder.time_limit(Duration::from_millis(u64::from(millis)));
        }
        let loaded = builder.load_bytes(&std::mem::take(&mut host.program)).and_then(|mut module| {
            if lower != 0 {
                module.report().map_err(Error::clone)?;
            }
            module.load_method("forward").map(|()| module)
        });
        host.module = host.done(loaded);
        u32::from(host.module.is_some())
    })
}

/// Appends a number to the inputs, which are of f32.
#[unsafe(no_mangle)]
pub extern "C" fn input(number: f32) {
    HOST.with_borrow_mut(|host| host.inputs.push(number));
}

/// Runs `forward` on the inputs. Returns the count of its outputs' numbers, or -1 with a [`message`].
#[unsafe(no_mangle)]
pub extern "C" fn run() -> i32 {
    HOST.with_borrow_mut(|host| {
        let inputs = std::mem::take(&mut host.inputs);
        let outputs = host.module.as_mut().map(|module| forward(module, &inputs));
        match outputs.and_then(|outputs| host.done(outputs)) {
            Some(outputs) => {
                host.outputs = outputs;
                i32::try_from(host.outputs.len()).unwrap_or(i32::MAX)
            }
            None => -1,
        }
    })
}

/// Returns a number of the outputs; NaN beyond their end.
#[unsafe(no_mangle)]
pub extern "C" fn output(index: u32) -> f32 {
    HOST.with_borrow(|host| host.outputs.get(index as usize).copied().unwrap_or(f32::NAN))
}

/// Returns a byte of the last error message, in UTF-8; -1 beyond its end.
#[unsafe(no_mangle)]
pub extern "C" fn message(index: u32) -> i32 {
    HOST.with_borrow(|host| host.message.as_bytes().get(index as usize).map_or(-1, |byte| i32::from(*byte)))
}

impl Host {
    fn done<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.message = error.to_string()).ok()
    }
}

fn forward(module: &mut Module, mut numbers: &[f32]) -> Result<Vec<f32>, Error> {
    let meta = module.meta("forward")?;
    let mut inputs: Vec<Input<'_>> = Vec::new();
    for info in meta.inputs.iter().filter_map(|input| input.as_tensor()) {
        let (one, rest) = numbers
            .split_at(info.sizes.iter().fold(1, |numel: usize, size| numel.saturating_mul(*size)).min(numbers.len()));
        numbers = rest;
        inputs.push(TensorView::of(&info.sizes, one)?.into());
    }
    let outputs = module.forward(&inputs)?;
    let mut floats = Vec::new();
    for output in &outputs {
        floats.extend_from_slice(output.as_slice()?);
    }
    Ok(floats)
}
