//! LoRA adapters: products of two low-rank matrices, which are added to the outputs of linear layers.
//!
//! A program for adapters has a second method, [`METHOD`], whose inputs after those of `forward` are the matrices: for each kind of
//! linear layer `a: f32[layers, rank, inputs]` and `b: f32[layers, outputs, rank]`, with ranks from 1 to a maximum. Its named data
//! [`KEY`] say which layers these are, as JSON: `{"max_rank": 16, "kinds": [{"modules": [...], "inputs": 2048, "outputs": 512}]}`.
//! [`peft`] makes the matrices of a published adapter.

pub mod peft;

use std::collections::HashMap;

use indexmap::IndexMap;
use rushlight_format::ScalarType;
use rushlight_format::shapes::{Place, RuleModel, Term};
use serde_json::{Value, json};

use rushlight_graph::{Error, ErrorKind, Expr, Graph, Symbol, TensorType, Type, ValueId};

use crate::config::{self, Config};
use crate::tensors::damaged;

/// The method that takes an adapter.
pub const METHOD: &str = "forward_lora";

/// The key of the named data that say which layers adapters change.
pub const KEY: &str = "rushlight.lora";

/// Largest maximum of ranks.
const MAX_RANK: usize = 1024;

/// The linear layers that adapters of a program change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Each has two inputs of the method, in this order.
    pub kinds: Vec<Kind>,
    pub max_rank: usize,
}

/// Linear layers of the same place in all layers of a decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The names that Hugging Face's checkpoints give them.
    pub modules: Vec<String>,
    pub inputs: usize,
    pub outputs: usize,
}

/// A linear layer of a decoder that adapters may change.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    /// The name that Hugging Face's checkpoints give it.
    pub module: String,
    /// Its end, which layers have in common.
    pub kind: &'static str,
    pub inputs: usize,
    pub outputs: usize,
}

/// The matrices of a linear layer: those of all layers of its kind, and which it is of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adapted {
    pub a: ValueId,
    pub b: ValueId,
    pub index: i64,
}

impl Targets {
    /// The targets of adapters up to a rank.
    ///
    /// # Errors
    /// `Option` for a rank of 0 or above 1024.
    pub(crate) fn of(linears: Vec<Linear>, max_rank: usize) -> Result<Self, Error> {
        if !(1..=MAX_RANK).contains(&max_rank) {
            return Err(Error::new(ErrorKind::Option, "LoRA adapters cannot have such a rank")
                .expected(format!("from 1 to {MAX_RANK}"))
                .got(max_rank));
        }
        let mut kinds: IndexMap<_, Kind> = IndexMap::new();
        for Linear { module, kind, inputs, outputs } in linears {
            let kind = kinds.entry((kind, inputs, outputs));
            kind.or_insert_with(|| Kind { modules: Vec::new(), inputs, outputs }).modules.push(module);
        }
        Ok(Self { kinds: kinds.into_values().collect(), max_rank })
    }

    /// Adds the inputs to a method. Returns those of each linear layer.
    pub(crate) fn declare(&self, graph: &mut Graph) -> HashMap<String, Adapted> {
        let mut adapted = HashMap::new();
        for (number, kind) in self.kinds.iter().enumerate() {
            let symbol = Symbol { name: format!("r{number}"), min: 1, max: Some(self.max_rank as i64) };
            let rank = Expr::Symbol(graph.symbols.push(symbol));
            let [layers, inputs, outputs] = kind.sizes().map(|size| Expr::Int(size as i64));
            let float = |shape| Type::Tensor(TensorType::new(ScalarType::Float, shape));
            let a = graph.input(&format!("lora_a_{number}"), float(vec![layers.clone(), rank.clone(), inputs]));
            let b = graph.input(&format!("lora_b_{number}"), float(vec![layers, outputs, rank]));
            for (module, index) in kind.modules.iter().zip(0..) {
                adapted.insert(module.clone(), Adapted { a, b, index });
            }
        }
        adapted
    }

    /// The rules about the sizes of the inputs, the first of which has a number.
    pub(crate) fn rules(&self, first: u16) -> Vec<RuleModel> {
        let (min, max) = (1, Some(self.max_rank as i64));
        let mut rules = Vec::new();
        for (kind, a) in self.kinds.iter().zip((first..).step_by(2)) {
            let [layers, inputs, outputs] = kind.sizes().map(|size| size as u64);
            let [a, b] = [a, a + 1].map(|input| move |dim| Place { input, dim });
            let value = Term::Size { place: a(1), unit: 1, offset: 0 };
            rules.extend([
                RuleModel::Fixed { place: a(0), size: layers },
                RuleModel::Range { place: a(1), unit: 1, offset: 0, min, max },
                RuleModel::Fixed { place: a(2), size: inputs },
                RuleModel::Fixed { place: b(0), size: layers },
                RuleModel::Fixed { place: b(1), size: outputs },
                RuleModel::Computed { place: b(2), value, min, max, text: "rank".to_owned() },
            ]);
        }
        rules
    }

    /// The named data of a program.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let kinds = self.kinds.iter().map(
            |Kind { modules, inputs, outputs }| json!({ "modules": modules, "inputs": inputs, "outputs": outputs }),
        );
        json!({ "max_rank": self.max_rank, "kinds": kinds.collect::<Vec<_>>() }).to_string().into_bytes()
    }

    /// Reads the named data of a program.
    ///
    /// # Errors
    /// `Input` for other content.
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        let file = config::parse(KEY, data)?;
        let max_rank = Config(&file).required_size("max_rank")?;
        let kinds = file.get("kinds").and_then(Value::as_array);
        let kinds = kinds.ok_or_else(|| damaged(format!("`{KEY}` has no list of `kinds`")))?;
        let kind = |value: &Value| -> Result<Kind, Error> {
            let map = value.as_object().ok_or_else(|| damaged(format!("a kind of `{KEY}` is no object")))?;
            let kind = Config(map);
            let modules = kind.texts("modules")?.unwrap_or_default();
            Ok(Kind {
                modules: modules.into_iter().map(str::to_owned).collect(),
                inputs: kind.required_size("inputs")?,
                outputs: kind.required_size("outputs")?,
            })
        };
        Ok(Self { kinds: kinds.iter().map(kind).collect::<Result<_, _>>()?, max_rank })
    }
}

impl Kind {
    /// Number of layers, and of inputs and outputs of each.
    fn sizes(&self) -> [usize; 3] {
        [self.modules.len(), self.inputs, self.outputs]
    }
}
