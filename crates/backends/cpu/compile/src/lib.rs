//! The ahead-of-time half of the CPU backend. It compiles the parts of a graph that it claims to a [`CpuProgram`],
//! which `rushlight-cpu-run` runs.
//!
//! A part is legalized (`legalize`), each of its nodes is selected (`select`), nodes that share a step are fused (`fuse`), and
//! selections become steps (`lower`). The selected nodes of the legalized method are the claimed ones (`claim`).
//!
//! Activations are fused into the GEMMs before them, and chains of elementwise operators into one step. Images are
//! channels-last, so they are reordered only where they enter and leave. Permutations, reshapes and slices along the
//! outermost dimension are views and cost nothing. Weights are packed here, once.
//!
//! # Decisions
//!
//! - **One place decides how a legal node is computed: `select`.** A `Selection` is the kind of its step with all arguments; a
//!   `Reason` says why there is none. Claims are the nodes that are selected in a legalized copy of the method. Its nodes know the
//!   canonical node that they were made from (`claim.rs`). The extracted parts are legalized again (`legalize.rs`): decomposed
//!   operators are raised, and permutations move behind elementwise operators.
//! - **Views cost nothing until a step needs contiguous elements** (`view.rs`). Permutations, reshapes and slices change strides.
//! - **One arena is planned per payload** (`plan.rs`). The precision that the report names follows from the views of the lowered
//!   tensors (`lower/precision.rs`).
//! - **Positions are f32 between steps** (`select/positions.rs`). A decoder says by an i64 where it writes. Each has a bound, which
//!   the running half checks where the value enters, so that all are exact. `index_put` at positions writes a state in place.
//!   Attention leaves out the keys that a mask hides from all queries, so that it reads the written part of a cache and no more.
//! - **A KV cache is f32, f16, bf16, int8 or int4** (`compiler/src/passes/store_caches`). Integers, scales and zero points are a
//!   state each (`lower/caches.rs`). Attention reads the elements in place and widens them in registers, or in the panels of a
//!   block where there are many queries. States of 16-bit floats are stored as such; other steps widen their elements first.
//! - **Dequantized values stay u8** (`View::affine`) until a step needs floats. Copies, pooling, reductions, resizing and softmax
//!   run on u8. GEMMs and convolutions with integer weights accumulate in i32, and their epilogues requantize in registers
//!   (`fuse.rs`). Elementwise steps read and write u8. Signed integers are stored with a bias of 128, since processors multiply
//!   unsigned by signed bytes. Between pixels, PyTorch accumulates in another order for each channel count and instruction set;
//!   bilinear results may be one step off.
//! - **int16 quantization becomes fake quantization in floats** (`RoundQdqInt16` of the compiler), because its dot products need accumulators of
//!   more than 32 bits.
//! - **Dynamic quantization** (`select/dynamic.rs`) has a scale for each row of a linear layer's input. The input of a convolution
//!   has one scale, because its padding has one zero point.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod claim;
mod error;
mod fuse;
mod legalize;
mod lower;
mod plan;
mod precision;
mod quantizer;
mod select;
mod settings;
mod storage;
mod view;
mod weights;

use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;

use rushlight_compiler::partition::{Backend, Canonical, Claims, Compiled, OptionSpec, OptionValue, Part, Payload};
use rushlight_compiler::quantization::Quantizer;
use rushlight_graph::{Error, ErrorKind, NodeId, OriginId, State};
use rustc_hash::FxHashMap;

use rushlight_cpu_payload::{CPU_BACKEND, CpuProgram};

pub use legalize::passes;
pub use precision::Precision;
pub use settings::Keys;

use lower::{Lowered, Rank};
use quantizer::CpuQuantizer;
use settings::Settings;

/// The ahead-of-time half of the CPU backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// The number of threads that pack weights; the machine's number if `None`.
    pub threads: Option<NonZeroUsize>,
    /// The names of packed weights.
    pub keys: Keys,
    /// The type of packed weights.
    pub precision: Precision,
    /// True if the integers of large matrices are packed again when the program is written, rather than kept until
    /// then. A model of any size then needs little memory. The weights are named by their content.
    pub packs_late: bool,
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
            _ => return wrong("an option that the backend declares"),
        }
        Ok(())
    }

    fn owns_state(&self, state: &State) -> bool {
        let is_fixed = state.ty.shape.iter().all(|size| size.as_int().is_some());
        is_fixed && storage::initial_bits(state).is_some()
    }

    fn quantizer(&self) -> Option<&dyn Quantizer> {
        Some(&CpuQuantizer)
    }

    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        claim::claim(canonical, claims)
    }

    fn compile(&self, part: &Part) -> Result<Compiled, Error> {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let mut legal = part.clone();
        legalize::legalize(&mut legal.model)?;
        let settings = Settings {
            threads,
            keys: self.keys,
            packs_late: self.packs_late && self.keys == Keys::Content,
            precision: self.precision,
        };
        let Lowered { program, named_data, precisions } = lower::lower(&legal, settings)?;
        let data = program.to_bytes();
        // A payload that runs at once is checked when it is loaded.
        if self.keys == Keys::Content {
            CpuProgram::parse(&data)
                .map_err(|problem| error::error(format!("the compiler wrote an invalid payload: {problem}")))?;
        }
        let precisions = of_nodes_before(part, &legal, precisions)?;
        Ok(Payload { data: data.into(), compile_specs: Vec::new(), named_data, precisions }.into())
    }
}

/// The precisions of a part's own nodes, from those of the nodes that replaced them in legalization. Each node of a
/// part has its own origin, which its replacements keep.
fn of_nodes_before(
    part: &Part,
    legal: &Part,
    precisions: Vec<(NodeId, (Rank, String))>,
) -> Result<Vec<(NodeId, String)>, Error> {
    let (graph, legal) = (part.graph()?, legal.graph()?);
    let mut known: FxHashMap<OriginId, (Rank, String)> = FxHashMap::default();
    for (node, precision) in precisions {
        match known.entry(legal.nodes[node].origin) {
            Entry::Occupied(mut other) if precision.0 < other.get().0 => {
                other.insert(precision);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(place) => {
                place.insert(precision);
            }
        }
    }
    let nodes = graph.blocks[graph.body].nodes.iter();
    Ok(nodes.filter_map(|node| Some((*node, known.remove(&graph.nodes[*node].origin)?.1))).collect())
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
