//! The method of a program that takes a LoRA adapter: its inputs, and the layers that they change.

use std::collections::HashMap;

use indexmap::IndexMap;
use rushlight_format::ScalarType;
use rushlight_format::shapes::{Place, RuleModel, Term};

use rushlight_checkpoint::lora::{Kind, Targets};
use rushlight_graph::{Error, ErrorKind, Expr, Graph, Symbol, TensorType, Type, ValueId};

/// Largest maximum of ranks.
const MAX_RANK: usize = 1024;

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

/// Returns the targets of adapters up to a rank.
///
/// # Errors
/// `Option` for a rank of 0 or above 1024.
pub(crate) fn targets(linears: Vec<Linear>, max_rank: usize) -> Result<Targets, Error> {
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
    Ok(Targets { kinds: kinds.into_values().collect(), max_rank })
}

/// Adds the inputs to a method. Returns those of each linear layer.
pub(crate) fn declare(targets: &Targets, graph: &mut Graph) -> HashMap<String, Adapted> {
    let mut adapted = HashMap::new();
    for (number, kind) in targets.kinds.iter().enumerate() {
        let symbol = Symbol { name: format!("r{number}"), min: 1, max: Some(targets.max_rank as i64) };
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

/// Returns the rules about the sizes of the inputs. `first` is the number of the first input.
pub(crate) fn rules(targets: &Targets, first: u16) -> Vec<RuleModel> {
    let (min, max) = (1, Some(targets.max_rank as i64));
    let mut rules = Vec::new();
    for (kind, a) in targets.kinds.iter().zip((first..).step_by(2)) {
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
