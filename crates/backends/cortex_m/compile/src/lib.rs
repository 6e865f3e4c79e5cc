//! The ahead-of-time half of the backend for microcontrollers: int8 layers become the operators `cortex_m::*`.
//!
//! Level 4. The backend has no payload and no run-time half. It gives operators, which run on the kernels of
//! `rushlight-kernels` and, with the option `runtime=executorch`, on those of ExecuTorch's Cortex-M backend, with the same bits.
//!
//! It reads the graphs of PyTorch's quantizers and of `rushlight quantize`: operators on floats, between nodes that dequantize
//! their inputs and a node that quantizes their result. Such a pattern becomes one operator on integers. Everything that is
//! known when a model is compiled is computed here: multipliers and shifts, biases, tables of activations, the order of weights
//! in memory.
//!
//! # Decisions
//!
//! - **A pattern is selected once** (`select`). Claims and lowering ask the same function, so that each claimed pattern can be
//!   lowered.
//! - **Images are channels-last where a kernel needs it.** The lowering knows the orders in which an image exists, and copies it
//!   only if a reader needs the other order (`lower`). Copies at the border of a part join the part.
//! - **Results are ExecuTorch's.** Multipliers are computed as by its passes, from the same doubles. Activations that it does not
//!   fuse are tables.
//! - **The core changes no result.** It decides if linear layers carry sums of weights (MVE) or biases, and how much scratch memory
//!   CMSIS-NN's kernels need.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod affine;
mod claim;
mod lower;
mod operators;
mod quantizer;
mod select;
mod table;
mod target;

use rushlight_compiler::partition::{Backend, Canonical, Claims, Compiled, OptionSpec, OptionValue, Part};
use rushlight_compiler::quantization::Quantizer;
use rushlight_graph::{Error, ErrorKind};

use quantizer::CortexMQuantizer;
pub use target::{Core, Runtime, Target};

/// The ahead-of-time half of the backend for microcontrollers.
#[derive(Clone, Copy, Debug, Default)]
pub struct CortexM {
    pub target: Target,
    /// True if methods take and give int8 instead of floats where they can.
    pub has_int8_interface: bool,
}

const CPU: &str = "cpu";
const RUNTIME: &str = "runtime";
const INTERFACE: &str = "io";

/// The element types of inputs and outputs, the default first.
const INTERFACES: &[&str] = &["float", "int8"];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::choice(
        CPU,
        Core::NAMES,
        "the core that the program is made for; every core runs it, with the same results, but CMSIS-NN's kernels only on cores with the \
         same vector instructions",
    ),
    OptionSpec::choice(
        RUNTIME,
        Runtime::NAMES,
        "the runtime that runs the program; ExecuTorch's kernels need scratch memory, and Rushlight's none",
    ),
    OptionSpec::choice(
        INTERFACE,
        INTERFACES,
        "what methods take and give; with int8, the caller quantizes, with the scales in `forward_input0_scale` and the like",
    ),
];

impl Backend for CortexM {
    fn name(&self) -> &'static str {
        "CortexM"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> Result<(), Error> {
        let wrong = || {
            Error::new(ErrorKind::Option, format!("the option `{name}` does not take this value"))
                .got(format!("`{value}`"))
        };
        match (name, value) {
            (CPU, OptionValue::String(text)) => self.target.core = Core::of_name(text).ok_or_else(wrong)?,
            (RUNTIME, OptionValue::String(text)) => self.target.runtime = Runtime::of_name(text).ok_or_else(wrong)?,
            (INTERFACE, OptionValue::String(text)) if INTERFACES.contains(&text) => {
                self.has_int8_interface = text == "int8";
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn has_integer_interface(&self) -> bool {
        self.has_int8_interface
    }

    fn operators(&self) -> &'static [&'static str] {
        operators::DECLARED
    }

    fn quantizer(&self) -> Option<&dyn Quantizer> {
        Some(&CortexMQuantizer)
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        claim::claim(canonical, claims);
        Ok(())
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        lower::lower(part, self.target).map(Compiled::Operators)
    }
}
