//! The ahead-of-time half of the backend for microcontrollers: int8 layers become the operators `cortex_m::*`.
//!
//! Level 4. The backend has no payload and no run-time half: a part becomes a list of operators. They run on the kernels of
//! `rushlight-kernels`. With the option `runtime=executorch`, they also run on the kernels of ExecuTorch's Cortex-M backend, with
//! the same bits.
//!
//! The backend reads the graphs of PyTorch's quantizers and of `rushlight quantize`. There, an operator on floats stands between
//! nodes that dequantize its inputs and a node that quantizes its result. Such a pattern becomes one operator on integers. The
//! constants of the kernels are computed here: multipliers and shifts, biases, tables of activations, the layout of weights.
//!
//! # Decisions
//!
//! - **One function selects patterns** (`select`). Claims and lowering both call it, so that each claimed pattern can be lowered.
//! - **Images are channels-last where a kernel needs it.** The lowering tracks the orders in which an image exists (`lower`). It
//!   copies an image only if a reader needs the other order. Copies at the border of a part join the part.
//! - **Results equal ExecuTorch's.** Multipliers are computed as in its passes, from the same doubles. An activation that it does
//!   not fuse is a table.
//! - **The core changes no result.** It decides if linear layers have sums of weights (MVE) or biases, and the scratch memory of
//!   CMSIS-NN's kernels.
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
    /// True if inputs and outputs are int8 instead of floats, if possible.
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
        "the core that the program is compiled for; it runs on every core, with the same results, but with CMSIS-NN's kernels only on \
         cores with the same vector instructions",
    ),
    OptionSpec::choice(
        RUNTIME,
        Runtime::NAMES,
        "the runtime of the program; ExecuTorch's kernels need scratch memory, and Rushlight's need none",
    ),
    OptionSpec::choice(
        INTERFACE,
        INTERFACES,
        "element type of inputs and outputs; with int8, the caller quantizes, with the scale in `forward_input0_scale` and so on",
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
        &operators::DECLARED
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
