//! The properties of a program for its callers: metadata methods, names of inputs and outputs, rules about their sizes.

use rushlight_format::shapes::{Place, RuleModel};
use rushlight_format::signature::Signature;

use rushlight_graph::{Graph, Input, Literal, Model};

use crate::decoder::Decoder;
use crate::options::{Limits, Output};

/// Number of inputs before those of an adapter.
pub(super) const TOKEN_INPUTS: u16 = 2;

/// The name of embeddings, as inputs and as an output.
pub(super) const EMBEDDINGS: &str = "inputs_embeds";

/// Returns the name of the output of a decoder.
pub(super) fn output_name(output: Output) -> &'static str {
    match output {
        Output::LastLogits | Output::AllLogits => "logits",
        Output::HiddenStates => "hidden_states",
    }
}

/// Returns the names of the inputs and of the output.
pub(super) fn signature(graph: &Graph, output: &str) -> Signature {
    let name = |input: &Input| match input {
        Input::Value(value) => graph.values.get(*value).map(|value| value.name.clone()),
        Input::Literal(_) => None,
    };
    Signature::flat(graph.inputs.iter().filter_map(name), [Some(output.to_owned())])
}

/// Adds the methods with the program's properties that ExecuTorch's runners read.
pub(super) fn describe(model: &mut Model, decoder: &Decoder, limits: Limits) {
    let int = |value: usize| vec![Literal::Int(value as i64)];
    let mut add = |name: &str, values: Vec<Literal>| {
        model.constant_methods.insert(name.to_owned(), values);
    };
    add("get_max_seq_len", int(limits.seq_len));
    add("get_max_context_len", int(limits.context));
    add("get_vocab_size", int(decoder.vocab));
    add("get_n_layers", int(decoder.layers.len()));
    if let Some(bos) = decoder.bos {
        add("get_bos_id", vec![Literal::Int(bos)]);
    }
    if !decoder.eos.is_empty() {
        add("get_eos_ids", decoder.eos.iter().map(|id| Literal::Int(*id)).collect());
    }
    for name in ["use_kv_cache", "use_sdpa_with_kv_cache", "enable_dynamic_shape"] {
        add(name, vec![Literal::Bool(true)]);
    }
}

/// Makes the runtime refuse token tensors of other shapes than `[1, 1..=seq_len]`.
pub(super) fn token_rules(limits: Limits) -> Vec<RuleModel> {
    let place = |dim| Place { input: 0, dim };
    let max = Some(limits.seq_len as i64);
    vec![
        RuleModel::Fixed { place: place(0), size: 1 },
        RuleModel::Range { place: place(1), unit: 1, offset: 0, min: 1, max },
    ]
}

/// Makes the runtime refuse embeddings of other shapes than `[1, 1..=seq_len, hidden]`.
pub(super) fn embedding_rules(limits: Limits, hidden: usize) -> Vec<RuleModel> {
    let mut rules = token_rules(limits);
    rules.push(RuleModel::Fixed { place: Place { input: 0, dim: 2 }, size: hidden as u64 });
    rules
}
