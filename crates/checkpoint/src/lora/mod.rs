//! LoRA adapters: products of two low-rank matrices, which are added to the outputs of linear layers.
//!
//! A program for adapters has a second method, [`METHOD`], whose inputs after those of `forward` are the matrices: for each kind of
//! linear layer `a: f32[layers, rank, inputs]` and `b: f32[layers, outputs, rank]`, with ranks from 1 to a maximum. Its named data
//! [`KEY`] say which layers these are, as JSON: `{"max_rank": 16, "kinds": [{"modules": [...], "inputs": 2048, "outputs": 512}]}`.
//! [`peft`] makes the matrices of a published adapter.

pub mod peft;

use serde_json::{Value, json};

use rushlight_graph::Error;

use crate::config::{self, Config};
use crate::tensors::damaged;

/// The method that takes an adapter.
pub const METHOD: &str = "forward_lora";

/// The key of the named data that say which layers adapters change.
pub const KEY: &str = "rushlight.lora";

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

impl Targets {
    /// The named data of a program.
    pub fn describe(&self) -> Vec<u8> {
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
    pub fn sizes(&self) -> [usize; 3] {
        [self.modules.len(), self.inputs, self.outputs]
    }
}
