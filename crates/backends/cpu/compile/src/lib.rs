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

use rushlight_compiler::partition::{Backend, Canonical, Claims, OptionSpec, OptionValue, Part, Payload};
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
    /// The names, as the option is written.
    const NAMES: &[&str] = &["f32", "f16", "bf16"];

    fn of_name(name: &str) -> Option<Self> {
        match name {
            "f32" => Some(Self::F32),
            "f16" => Some(Self::F16),
            "bf16" => Some(Self::Bf16),
            _ => None,
        }
    }
}

const PRECISION: &str = "precision";
const THREADS: &str = "threads";

/// Maximum number of threads that pack weights.
const MAX_THREADS: i64 = rushlight_engine::MAX_THREADS as i64;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::choice(
        PRECISION,
        Precision::NAMES,
        "what weights of matmuls and convolutions are rounded to; sums stay f32, and processors with instructions for bf16 \
         round activations to it too",
    ),
    OptionSpec::new(
        THREADS,
        OptionValue::Int(0),
        "how many threads pack weights while the model is compiled; 0 for as many as the machine runs at once",
    ),
];

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

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> Result<(), Error> {
        let wrong = |expected: &str| {
            let message = format!("the option `{name}` does not take this value");
            Err(Error::new(ErrorKind::Option, message).expected(expected).got(format!("`{value}`")))
        };
        match (name, value) {
            (PRECISION, OptionValue::String(text)) => match Precision::of_name(text) {
                Some(precision) => self.precision = precision,
                None => return wrong("f32, f16 or bf16"),
            },
            (THREADS, OptionValue::Int(threads @ 0..=MAX_THREADS)) => {
                self.threads = usize::try_from(threads).ok().and_then(NonZeroUsize::new);
            }
            (THREADS, _) => return wrong(&format!("0 to {MAX_THREADS}")),
            _ => return wrong("an option that the back end declares"),
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use rushlight_compiler::partition::{parse_option, set_option};

    use super::*;

    #[test]
    fn options_set_what_they_declare() {
        let mut cpu = Cpu::default();
        for (name, precision) in [("bf16", Precision::Bf16), ("f16", Precision::F16), ("f32", Precision::F32)] {
            parse_option(&mut cpu, "precision", name).unwrap();
            assert_eq!(cpu.precision, precision);
        }
        assert!(Precision::NAMES.iter().all(|name| Precision::of_name(name).is_some()));
        parse_option(&mut cpu, "threads", "3").unwrap();
        assert_eq!(cpu.threads, NonZeroUsize::new(3));
        set_option(&mut cpu, "threads", 0.into()).unwrap();
        assert_eq!(cpu.threads, None);
        for (name, value) in
            [("precision", "int8"), ("threads", "-1"), ("threads", "1000000"), ("threads", "many"), ("tile", "3")]
        {
            let error = parse_option(&mut cpu, name, value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Option, "{error}");
        }
        for spec in cpu.options() {
            set_option(&mut cpu, spec.name, spec.default).unwrap();
        }
        assert_eq!((cpu.precision, cpu.threads), (Cpu::default().precision, Cpu::default().threads));
    }
}
