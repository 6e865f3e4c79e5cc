//! The configuration of a GGUF model, in the words of Hugging Face, so that both are read in one place.

use serde_json::{Map, Value as Json, json};

use rushlight_graph::Error;

use crate::decoder::MAX_LAYERS;
use crate::family::{Family, Ropes};
use rushlight_checkpoint::gguf::{Gguf, Value};
use rushlight_checkpoint::{Tensors, damaged};

/// Settings that are copied: the key without the architecture, and that of Hugging Face.
const COPIED: &[(&str, &str)] = &[
    ("block_count", "num_hidden_layers"),
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("vocab_size", "vocab_size"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("attention.scale", "attention_multiplier"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
    ("rope.freq_base", "rope_theta"),
    ("shortconv.l_cache", "conv_L_cache"),
    ("feed_forward_length", "intermediate_size"),
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_weights_norm", "norm_topk_prob"),
];

/// Layers of the models of 27B parameters of Gemma 2 and 3, which alone scale queries by the width that a head would have.
const GEMMA_27B: [(&str, u64); 2] = [("gemma2", 46), ("gemma3", 62)];

/// The family of a file.
///
/// # Errors
/// `Unsupported` for an architecture that is not known.
pub(crate) fn family(file: &Gguf) -> Result<&'static Family, Error> {
    match file.metadata.get("general.architecture") {
        Some(Value::Text(name)) => {
            let count = file.metadata.get(&format!("{name}.expert_count"));
            Family::of_architecture(name, matches!(count, Some(Value::Int(count)) if *count != 0))
        }
        _ => Err(damaged("the GGUF file has no `general.architecture`")),
    }
}

/// The settings of a file of a family.
///
/// # Errors
/// `Input` for settings that contradict each other, `Unsupported` for experts of a family that has none, or that are chosen otherwise.
pub(crate) fn config(file: &mut Gguf, family: &Family) -> Result<Map<String, Json>, Error> {
    let architecture = family.architecture.unwrap_or_default();
    let Gguf { metadata, tensors } = file;
    let get = |key: &str| metadata.get(&format!("{architecture}.{key}"));
    let mut config = Map::new();
    for (key, name) in COPIED {
        if let Some(value) = get(key).and_then(scalar) {
            config.insert((*name).to_owned(), value);
        }
    }
    experts(&get, family, tensors, &mut config)?;
    let heads = shared(get("attention.head_count"));
    config.insert("num_attention_heads".to_owned(), heads.clone().unwrap_or(Json::Null));
    config.insert(
        "num_key_value_heads".to_owned(),
        shared(get("attention.head_count_kv")).or(heads).unwrap_or(Json::Null),
    );
    // Layers without keys are convolutions.
    if let Some(Value::Numbers(list)) = get("attention.head_count_kv") {
        let kind = |heads: &f64| if *heads == 0.0 { "conv" } else { "full_attention" };
        config.insert("layer_types".to_owned(), list.iter().map(kind).collect());
    }
    if !config.contains_key("vocab_size") {
        let vocabulary = match metadata.get("tokenizer.ggml.tokens") {
            Some(Value::Texts(tokens)) => Some(tokens.len() as u64),
            _ => tensors.sizes("token_embd.weight").and_then(|sizes| sizes.first()).map(|size| *size as u64),
        };
        config.insert("vocab_size".to_owned(), json!(vocabulary));
    }
    if architecture.starts_with("gemma") {
        let number = |key: &str| config.get(key).and_then(Json::as_u64);
        let layers = number("num_hidden_layers").unwrap_or(0);
        let head = number("hidden_size").zip(number("num_attention_heads")).and_then(|(all, of)| all.checked_div(of));
        let width = if GEMMA_27B.contains(&(architecture, layers)) { head } else { number("head_dim").or(head) };
        config.insert("query_pre_attn_scalar".to_owned(), json!(width));
    }
    if let Some(activation) = family.gguf_activation {
        config.insert("hidden_act".to_owned(), json!(activation));
    }
    let mut rope = rope(&get, tensors);
    if let Some(columns) = get("rope.dimension_count").and_then(scalar)
        && let Some((columns, width)) = columns.as_f64().zip(head_dim(&config))
        && columns < width
    {
        rope.insert("partial_rotary_factor".to_owned(), json!(columns / width));
    }
    if let Some(theta) = config.get("rope_theta") {
        rope.insert("rope_theta".to_owned(), theta.clone());
    }
    let global = Json::Object(rope);
    let parameters = match family.ropes {
        Ropes::Local(local) => {
            json!({"full_attention": global, "sliding_attention": {"rope_type": "default", "rope_theta": local}})
        }
        _ => global,
    };
    config.insert("rope_parameters".to_owned(), parameters);
    let token = |key: &str| match metadata.get(&format!("tokenizer.ggml.{key}")) {
        Some(Value::Int(id)) => Some(*id),
        _ => None,
    };
    config.insert("bos_token_id".to_owned(), json!(token("bos_token_id")));
    // The end of a turn ends an answer as that of a text does.
    let mut ends: Vec<i64> = ["eos_token_id", "eot_token_id"].into_iter().filter_map(token).collect();
    ends.dedup();
    config.insert("eos_token_id".to_owned(), json!(ends));
    Ok(config)
}

/// The settings of a mixture of experts that files say otherwise, or not at all.
fn experts<'v>(
    get: &impl Fn(&str) -> Option<&'v Value>,
    family: &Family,
    tensors: &Tensors,
    config: &mut Map<String, Json>,
) -> Result<(), Error> {
    /// llama.cpp's number of the softmax over all experts; 0 is none.
    const SOFTMAX: f64 = 1.0;
    let Some(names) = family.names.of_gguf().experts else {
        return match get("expert_count") {
            Some(Value::Int(count)) if *count != 0 => {
                Err(Error::unsupported(format!("a mixture of experts in a file of {}", family.name)).got(count))
            }
            _ => Ok(()),
        };
    };
    // Groups of one expert or of all are none, and a factor of 0 is none.
    let plain = [("expert_gating_func", SOFTMAX), ("expert_weights_scale", 1.0), ("expert_group_count", 1.0)];
    for (key, expected) in plain {
        let got = get(key).and_then(scalar);
        if let Some(got) = got.filter(|got| got.as_f64().is_none_or(|number| number != 0.0 && number != expected)) {
            return Err(Error::unsupported(format!("experts that are chosen or weighed otherwise, by `{key}`"))
                .expected(expected)
                .got(got.to_string()));
        }
    }
    config.entry("norm_topk_prob").or_insert(json!(names.are_normalized_in_gguf));
    // The tensors say which layers have experts, and, where an older file does not, how wide these are.
    let layers = config.get("num_hidden_layers").and_then(Json::as_u64).unwrap_or(0).min(MAX_LAYERS as u64);
    let all = (0..layers).find_map(|layer| tensors.sizes(&format!("blk.{layer}.{}_exps.weight", names.up)));
    if let (None, Some([_, width, _])) = (config.get("moe_intermediate_size"), all) {
        config.insert("moe_intermediate_size".to_owned(), json!(width));
    }
    let has_none = |layer: &u64| !tensors.contains(&format!("blk.{layer}.{}.weight", names.router));
    config.insert("mlp_only_layers".to_owned(), (0..layers).filter(has_none).collect());
    Ok(())
}

/// The settings of RoPE.
fn rope<'v>(get: &impl Fn(&str) -> Option<&'v Value>, tensors: &mut Tensors) -> Map<String, Json> {
    let mut rope = Map::new();
    let mut copy = |key: &str, name: &str| {
        if let Some(value) = get(key).and_then(scalar) {
            rope.insert(name.to_owned(), value);
        }
    };
    copy("rope.scaling.factor", "factor");
    copy("rope.scaling.original_context_length", "original_max_position_embeddings");
    copy("rope.scaling.attn_factor", "attention_factor");
    let kind = match get("rope.scaling.type") {
        Some(Value::Text(kind)) if kind != "none" => kind.as_str(),
        _ => "default",
    };
    let factors = ["rope_factors_long.weight", "rope_factors_short.weight"].map(|name| tensors.take_optional(name));
    let kind = match factors {
        [Some(long), Some(short)] => {
            rope.insert("long_factor".to_owned(), json!(long.floats()));
            rope.insert("short_factor".to_owned(), json!(short.floats()));
            "longrope"
        }
        _ => kind,
    };
    rope.insert("rope_type".to_owned(), json!(kind));
    rope
}

fn head_dim(config: &Map<String, Json>) -> Option<f64> {
    let number = |key: &str| config.get(key).and_then(Json::as_f64);
    number("head_dim").or_else(|| Some(number("hidden_size")? / number("num_attention_heads")?))
}

fn scalar(value: &Value) -> Option<Json> {
    match value {
        Value::Int(int) => Some(json!(int)),
        Value::Float(float) => Some(json!(float)),
        Value::Bool(bool) => Some(json!(bool)),
        Value::Text(text) => Some(json!(text)),
        _ => None,
    }
}

/// A number, or the largest of a list with one for each layer.
fn shared(value: Option<&Value>) -> Option<Json> {
    match value? {
        Value::Numbers(list) => Some(json!(list.iter().fold(0.0f64, |most, number| most.max(*number)) as u64)),
        value => scalar(value),
    }
}
