//! The CPU back end: turns the parts of a graph that it takes into a [`CpuProgram`],
//! which `rushlight-cpu-run` runs.
//!
//! Activations are fused into the products before them, chains of elementwise operators into one step. Pictures are kept
//! with their channels innermost, so that they are reordered only where they enter and leave; permutations, reshapes
//! and slices along the outermost dimension change how memory is seen and cost nothing. Weights are packed here, once.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod block;
mod call;
mod claim;
mod constants;
mod dynamic;
mod fuse;
mod integer;
mod legalize;
mod lower;
mod offer;
mod plan;
mod precision;
mod raise;
mod sink;
mod tables;
mod view;
mod weights;
mod wide;

use std::num::NonZeroUsize;

use rushlight_compiler::partition::{Backend, Canonical, Claims, Part, Payload};
use rushlight_graph::{Error, ErrorKind};

use rushlight_cpu_payload::{CPU_BACKEND, CpuProgram};
use rushlight_format::ScalarType;

pub use integer::{has_kernel, packed_bytes};

/// The ahead-of-time half of the CPU back end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// How many threads pack weights; as many as the machine runs at once if `None`.
    pub threads: Option<NonZeroUsize>,
    /// How packed weights are told apart.
    pub keys: Keys,
    /// The type of packed weights.
    pub precision: Precision,
}

/// What the weights of matrix products and convolutions are rounded to, which saves half of their memory and of the time that
/// they take to be read. Sums are in `f32`, and so is everything else, except that processors that multiply pairs of bf16
/// (x86-64 with AVX-512 BF16) round what is multiplied with weights of that type too, and what goes from one product to the next,
/// and take about half of the time.
/// Weights that Winograd's algorithm transforms, which is not used with bf16, and those of depthwise convolutions stay `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    #[default]
    F32,
    /// 11 bits of mantissa, to 65504 in magnitude; greater weights are an error.
    F16,
    /// 8 bits of mantissa, and the range of `f32`.
    Bf16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// `f32`, `f16` or `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

impl std::str::FromStr for Precision {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|precision| precision.name() == name);
        known.ok_or_else(|| {
            error("no precision has this name").expected("`f32`, `f16` or `bf16`").got(format!("`{name}`"))
        })
    }
}

/// What the name of packed weights says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Their content: what is the same is stored once, and the same program is the same file. All bytes are read for it.
    #[default]
    Content,
    /// Where they lie in memory, for a program with one method that is run at once and never written.
    Place,
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        CPU_BACKEND
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        claim::claim(canonical, claims)
    }

    fn compile(&self, part: &Part) -> Result<Payload, Error> {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let mut legal = Part { model: part.model.clone(), method: part.method.clone() };
        legalize::legalize(&mut legal.model)?;
        claim::check(&legal)?;
        let (program, named_data) = lower::lower(&legal, threads, self)?;
        let data = program.to_bytes();
        // A payload that is run at once is checked when it is loaded.
        if self.keys == Keys::Content {
            CpuProgram::parse(&data)
                .map_err(|problem| error(format!("the compiler wrote an invalid payload: {problem}")))?;
        }
        Ok(Payload { data: data.into(), compile_specs: Vec::new(), named_data })
    }
}

/// Whether values of a type are computed as `f32`, from which they are converted where they enter or leave. Truth is 1
/// and 0, and floats of 16 bits are rounded where a program converts to them
/// and where they leave, but not in between.
fn held_as_float(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::Float | ScalarType::Half | ScalarType::BFloat16 | ScalarType::Bool)
}

fn error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Backend, message)
}
