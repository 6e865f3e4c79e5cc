//! Checkpoints and files that are damaged, or of another kind.
#![allow(clippy::indexing_slicing, reason = "tests fail by panics")]

use rushlight_graph::{Bytes, Error};
use serde_json::{Value as Json, json};

use super::*;

const HIDDEN: usize = 8;
const VOCAB: usize = 5;

fn config() -> Json {
    json!({
        "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": [2, 3],
    })
}

/// Names and sizes of the weights of that configuration; the head is that of the embeddings.
fn weights() -> Vec<(&'static str, Vec<usize>)> {
    let layer = |name: &'static str, sizes: &[usize]| (name, sizes.to_vec());
    vec![
        layer("model.embed_tokens.weight", &[VOCAB, HIDDEN]),
        layer("model.norm.weight", &[HIDDEN]),
        layer("model.layers.0.input_layernorm.weight", &[HIDDEN]),
        layer("model.layers.0.post_attention_layernorm.weight", &[HIDDEN]),
        layer("model.layers.0.self_attn.q_proj.weight", &[8, HIDDEN]),
        layer("model.layers.0.self_attn.k_proj.weight", &[4, HIDDEN]),
        layer("model.layers.0.self_attn.v_proj.weight", &[4, HIDDEN]),
        layer("model.layers.0.self_attn.o_proj.weight", &[HIDDEN, 8]),
        layer("model.layers.0.mlp.gate_proj.weight", &[6, HIDDEN]),
        layer("model.layers.0.mlp.up_proj.weight", &[6, HIDDEN]),
        layer("model.layers.0.mlp.down_proj.weight", &[HIDDEN, 6]),
    ]
}

/// A safetensors file of bf16 numbers.
fn safetensors(weights: &[(&str, Vec<usize>)]) -> Vec<u8> {
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, sizes) in weights {
        let start = end;
        end += 2 * sizes.iter().product::<usize>();
        header.insert((*name).to_owned(), json!({"dtype": "BF16", "shape": sizes, "data_offsets": [start, end]}));
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend((0..end).map(|at| if at % 2 == 0 { 0 } else { 0x3f }));
    file
}

fn import_with(config: &Json, weights: &[(&str, Vec<usize>)], options: &Options) -> Result<Model, Error> {
    let weights = vec![("model.safetensors".to_owned(), Bytes::from(safetensors(weights)))];
    let config = serde_json::to_vec(config).unwrap();
    import_checkpoint(&Checkpoint { config, generation_config: None, weights }, options)
}

fn refused(config: &Json, weights: &[(&str, Vec<usize>)]) -> String {
    import_with(config, weights, &Options::default()).unwrap_err().to_string()
}

#[test]
fn a_checkpoint_becomes_a_method_with_its_metadata() {
    let model = import_with(&config(), &weights(), &Options::default()).unwrap();
    let names: Vec<&str> = model.constant_methods.keys().map(String::as_str).collect();
    for name in ["get_max_seq_len", "get_vocab_size", "get_bos_id", "get_eos_ids", "use_kv_cache"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(model.states.len(), 2);
    assert_eq!(model.methods["forward"].updates.len(), 2);
    let options =
        Options { max_context_len: Some(16), max_seq_len: Some(4), output: Output::AllLogits, ..Options::default() };
    let model = import_with(&config(), &weights(), &options).unwrap();
    let graph = &model.methods["forward"];
    let logits = graph.outputs[0].as_value().unwrap();
    assert_eq!(graph.tensor(logits).unwrap().rank(), 3);
}

#[test]
fn hidden_states_take_the_place_of_logits() {
    let options = Options { output: Output::HiddenStates, ..Options::default() };
    // The weights of a tied head are ignored. A base model has no head, and no prefix in its names.
    let mut with_head = weights();
    with_head.push(("lm_head.weight", vec![VOCAB, HIDDEN]));
    let base: Vec<_> = weights().into_iter().map(|(name, sizes)| (name.trim_start_matches("model."), sizes)).collect();
    for weights in [weights(), with_head, base.clone()] {
        let model = import_with(&config(), &weights, &options).unwrap();
        let graph = &model.methods["forward"];
        let shape = &graph.tensor(graph.outputs[0].as_value().unwrap()).unwrap().shape;
        assert_eq!((shape.len(), shape[2].as_int()), (3, Some(HIDDEN as i64)));
        assert_eq!(model.constant_methods[HIDDEN_STATES], [rushlight_graph::Literal::Bool(true)]);
    }
    // The embeddings are the head.
    let model = import_with(&config(), &base, &Options::default()).unwrap();
    assert!(!model.constant_methods.contains_key(HIDDEN_STATES));
}

#[test]
fn a_program_that_takes_embeddings_has_two_methods() {
    let options = Options { takes_embeddings: true, max_seq_len: Some(4), ..Options::default() };
    let model = import_with(&config(), &weights(), &options).unwrap();
    let methods: Vec<&str> = model.methods.keys().map(String::as_str).collect();
    assert_eq!(methods, ["token_embedding", "text_decoder"]);
    let shape = |graph: &rushlight_graph::Graph, value| {
        graph.tensor(value).unwrap().shape.iter().map(rushlight_graph::Expr::as_int).collect::<Vec<_>>()
    };
    let embedding = &model.methods["token_embedding"];
    let decoder = &model.methods["text_decoder"];
    let rushlight_graph::Input::Value(rows) = decoder.inputs[0] else { panic!("a value") };
    let expected = [Some(1), None, Some(HIDDEN as i64)];
    assert_eq!(shape(decoder, rows), expected);
    assert_eq!(shape(embedding, embedding.outputs[0].as_value().unwrap()), expected);
    assert_eq!(shape(decoder, decoder.outputs[0].as_value().unwrap()), [Some(1), Some(VOCAB as i64)]);
    assert!(embedding.updates.is_empty() && decoder.updates.len() == 2);
    // The tied head and the embedding are one constant.
    let names: Vec<&str> = model.constants.iter().map(|(_, constant)| constant.name.as_str()).collect();
    assert_eq!(names.iter().filter(|name| **name == "model.embed_tokens.weight").count(), 1, "{names:?}");
    let adapted = Options { lora_rank: Some(2), ..options };
    assert!(import_with(&config(), &weights(), &adapted).unwrap_err().to_string().contains("LoRA"));
}

#[test]
fn an_unknown_type_is_an_error_with_all_families() {
    let mut other = config();
    other["model_type"] = json!("mamba");
    let error = refused(&other, &weights());
    assert!(error.contains("`mamba`"), "{error}");
    assert!(FAMILIES.iter().all(|family| error.contains(family.name)), "{error}");
    other.as_object_mut().unwrap().remove("model_type");
    assert!(refused(&other, &weights()).contains("model_type"));
}

#[test]
fn settings_of_the_wrong_kind_are_errors() {
    let wrong = [
        ("hidden_size", json!(0)),
        ("hidden_size", json!("8")),
        ("hidden_size", json!(null)),
        ("num_attention_heads", json!(3)),
        ("num_attention_heads", json!(1u64 << 60)),
        ("num_hidden_layers", json!(1u64 << 31)),
        ("num_hidden_layers", json!(2)),
        ("vocab_size", json!(6)),
        ("rms_norm_eps", json!([1])),
        ("hidden_act", json!("relu6")),
        ("layer_types", json!(["full_attention", "full_attention"])),
        ("layer_types", json!(["linear_attention"])),
        ("rope_scaling", json!({"rope_type": "llama3"})),
        ("rope_scaling", json!({"rope_type": "spiral"})),
        ("rope_scaling", json!({"rope_type": "longrope", "short_factor": [1.0]})),
        ("partial_rotary_factor", json!(1.5)),
        ("partial_rotary_factor", json!(0.3)),
        ("quantization_config", json!({"quant_method": "awq"})),
        ("tie_word_embeddings", json!(false)),
        ("head_dim", json!(6)),
    ];
    for (key, value) in wrong {
        let mut config = config();
        config[key] = value.clone();
        let error = import_with(&config, &weights(), &Options::default());
        assert!(error.is_err(), "{key}: {value}");
    }
}

/// A layer of a gated delta net: a head of queries and keys, two of values.
fn delta_net() -> (Json, Vec<(&'static str, Vec<usize>)>) {
    let mut config = config();
    let settings = [
        ("linear_num_key_heads", 1),
        ("linear_num_value_heads", 2),
        ("linear_key_head_dim", 4),
        ("linear_value_head_dim", 3),
        ("linear_conv_kernel_dim", 4),
    ];
    config["model_type"] = json!("qwen3_5_text");
    settings.into_iter().for_each(|(key, value)| config[key] = json!(value));
    let mut weights = weights();
    weights.retain(|(name, _)| !name.contains("self_attn"));
    weights.extend([
        ("model.layers.0.linear_attn.in_proj_qkv.weight", vec![14, HIDDEN]),
        ("model.layers.0.linear_attn.in_proj_z.weight", vec![6, HIDDEN]),
        ("model.layers.0.linear_attn.in_proj_b.weight", vec![2, HIDDEN]),
        ("model.layers.0.linear_attn.in_proj_a.weight", vec![2, HIDDEN]),
        ("model.layers.0.linear_attn.conv1d.weight", vec![14, 1, 4]),
        ("model.layers.0.linear_attn.A_log", vec![2]),
        ("model.layers.0.linear_attn.dt_bias", vec![2]),
        ("model.layers.0.linear_attn.norm.weight", vec![3]),
        ("model.layers.0.linear_attn.out_proj.weight", vec![HIDDEN, 6]),
    ]);
    (config, weights)
}

#[test]
fn gated_delta_nets_have_two_states() {
    let (config, weights) = delta_net();
    let sizes = |model: &Model| -> Vec<Vec<i64>> {
        let size = |size: &rushlight_graph::Expr| size.as_int().unwrap();
        model.states.iter().map(|(_, state)| state.ty.shape.iter().map(size).collect()).collect()
    };
    let model = import_with(&config, &weights, &Options::default()).unwrap();
    assert_eq!(sizes(&model), [vec![1, 14, 3], vec![1, 2, 4, 3]]);
    // Layers that predict further tokens are ignored.
    let mut more = weights.clone();
    more.push(("mtp.fc.weight", vec![HIDDEN, 2 * HIDDEN]));
    import_with(&config, &more, &Options::default()).unwrap();
    for left_out in 0..weights.len() {
        let mut weights = weights.clone();
        let (name, _) = weights.remove(left_out);
        let error = refused(&config, &weights);
        assert!(error.contains(name), "{error}");
    }
    for (key, value) in [
        ("linear_num_key_heads", json!(4)),
        ("linear_num_value_heads", json!(0)),
        ("linear_value_head_dim", json!(1 << 20)),
        ("linear_key_head_dim", json!("4")),
        ("linear_conv_kernel_dim", json!(1 << 20)),
        ("linear_conv_kernel_dim", json!(3)),
        ("full_attention_interval", json!(0)),
        ("layer_types", json!(["full_attention"])),
    ] {
        let mut config = config.clone();
        config[key] = value.clone();
        assert!(import_with(&config, &weights, &Options::default()).is_err(), "{key}: {value}");
    }
}

#[test]
fn weights_that_do_not_fit_are_errors() {
    for left_out in 0..weights().len() {
        let mut weights = weights();
        let (name, _) = weights.remove(left_out);
        let error = refused(&config(), &weights);
        assert!(error.contains(name), "{error}");
    }
    let mut more = weights();
    more.push(("model.layers.0.self_attn.sinks", vec![2]));
    assert!(refused(&config(), &more).contains("sinks"));
    let mut other = weights();
    other[1].1 = vec![7];
    assert!(refused(&config(), &other).contains("[7]"));
}

#[test]
fn lengths_that_the_model_does_not_have_are_errors() {
    for (context, seq_len) in [(33, 1), (0, 1), (8, 9), (8, 0)] {
        let options = Options { max_context_len: Some(context), max_seq_len: Some(seq_len), ..Options::default() };
        assert!(import_with(&config(), &weights(), &options).is_err(), "{context} {seq_len}");
    }
}

/// Names and sizes of tensors of a GGUF file.
type Tensors<'a> = [(&'a str, Vec<usize>)];

/// A GGUF file of the same model.
fn gguf() -> Vec<u8> {
    let dense = [("ffn_gate", vec![6, HIDDEN]), ("ffn_up", vec![6, HIDDEN]), ("ffn_down", vec![HIDDEN, 6])];
    gguf_with(&[], &dense)
}

/// A GGUF file with more settings, and another feed-forward network.
fn gguf_with(settings: &[(&str, u32)], feed_forward: &Tensors<'_>) -> Vec<u8> {
    let text = |file: &mut Vec<u8>, text: &str| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    };
    let mut integers = vec![
        ("block_count", 1u32),
        ("context_length", 32),
        ("embedding_length", HIDDEN as u32),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
    ];
    integers.extend(settings);
    let attention = [
        ("attn_norm", vec![HIDDEN]),
        ("ffn_norm", vec![HIDDEN]),
        ("attn_q", vec![8, HIDDEN]),
        ("attn_k", vec![4, HIDDEN]),
        ("attn_v", vec![4, HIDDEN]),
        ("attn_output", vec![HIDDEN, 8]),
    ];
    let layer = attention.iter().chain(feed_forward).map(|(name, sizes)| (format!("blk.0.{name}"), sizes.clone()));
    let mut names = vec![("token_embd".to_owned(), vec![VOCAB, HIDDEN]), ("output_norm".to_owned(), vec![HIDDEN])];
    names.extend(layer);
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend((names.len() as u64).to_le_bytes());
    file.extend((integers.len() as u64 + 1).to_le_bytes());
    text(&mut file, "general.architecture");
    file.extend(8u32.to_le_bytes());
    text(&mut file, "llama");
    for (key, value) in integers {
        text(&mut file, &format!("llama.{key}"));
        file.extend(4u32.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    let mut offset = 0u64;
    for (name, sizes) in &names {
        text(&mut file, &format!("{name}.weight"));
        file.extend((sizes.len() as u32).to_le_bytes());
        for size in sizes.iter().rev() {
            file.extend((*size as u64).to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        file.extend(offset.to_le_bytes());
        offset = (offset + 4 * sizes.iter().product::<usize>() as u64).next_multiple_of(32);
    }
    file.resize(file.len().next_multiple_of(32) + offset as usize, 0);
    file
}

#[test]
fn gguf_files_are_read() {
    let model = import_gguf(&gguf().into(), &Options::default()).unwrap();
    assert_eq!(model.states.len(), 2);
}

const EXPERTS: [(&str, u32); 3] = [("expert_count", 2), ("expert_used_count", 1), ("feed_forward_length", 6)];

/// The tensors of two experts, and those of older files.
fn experts() -> [Vec<(&'static str, Vec<usize>)>; 2] {
    let router = || ("ffn_gate_inp", vec![2, HIDDEN]);
    let stacked = [
        ("ffn_gate_exps", vec![2, 6, HIDDEN]),
        ("ffn_up_exps", vec![2, 6, HIDDEN]),
        ("ffn_down_exps", vec![2, HIDDEN, 6]),
    ];
    let apart = [
        ("ffn_gate.0", vec![6, HIDDEN]),
        ("ffn_gate.1", vec![6, HIDDEN]),
        ("ffn_up.0", vec![6, HIDDEN]),
        ("ffn_up.1", vec![6, HIDDEN]),
        ("ffn_down.0", vec![HIDDEN, 6]),
        ("ffn_down.1", vec![HIDDEN, 6]),
    ];
    [[router()].into_iter().chain(stacked).collect(), [router()].into_iter().chain(apart).collect()]
}

#[test]
fn gguf_files_have_experts_in_one_tensor_or_apart() {
    for tensors in experts() {
        let read = |settings: &[(&str, u32)], tensors: &Tensors<'_>| {
            import_gguf(&gguf_with(settings, tensors).into(), &Options::default())
        };
        let model = read(&EXPERTS, &tensors).unwrap();
        let weights = model.constants.iter().map(|(_, constant)| constant);
        let of_experts: Vec<_> = weights.filter(|constant| constant.name.ends_with("_exps.weight")).collect();
        assert_eq!(of_experts.len(), 3);
        assert!(of_experts.iter().all(|constant| constant.floats().unwrap().len() == 2 * 6 * HIDDEN));
        for left_out in 0..tensors.len() {
            let mut fewer = tensors.clone();
            let (name, _) = fewer.remove(left_out);
            let error = read(&EXPERTS, &fewer).unwrap_err().to_string();
            assert!(error.contains("no tensor `blk.0.ffn_"), "{name}: {error}");
        }
    }
}

#[test]
fn mixtures_of_experts_that_cannot_be_are_errors() {
    let [tensors, _] = experts();
    let with = |key: &'static str, value: u32| {
        let mut settings: Vec<_> = EXPERTS.into_iter().filter(|(name, _)| *name != key).collect();
        settings.push((key, value));
        settings
    };
    let wrong = [
        (EXPERTS[..1].to_vec(), "no `num_experts_per_tok`"),
        (with("expert_used_count", 0), "an integer from 1"),
        (with("expert_used_count", 3), "3 of 2 experts"),
        (with("expert_count", 0), "no tensor `blk.0.ffn_gate.weight`"),
        (with("expert_count", 3), "[3, 8]"),
        (with("expert_count", u32::MAX), "an integer from 1"),
        (with("expert_count", 1 << 30), "at most 4096 experts"),
        (with("expert_feed_forward_length", 7), "[2, 7, 8]"),
        (with("expert_gating_func", 2), "expert_gating_func"),
        (with("expert_group_count", 2), "expert_group_count"),
    ];
    for (settings, expected) in wrong {
        let error = import_gguf(&gguf_with(&settings, &tensors).into(), &Options::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
    let mut checkpoint = config();
    checkpoint["model_type"] = json!("mixtral");
    checkpoint["intermediate_size"] = json!(6);
    for (count, chosen) in [(0u64, 1u64), (2, 0), (2, 3), (1 << 30, 1), (1 << 60, 1)] {
        checkpoint["num_local_experts"] = json!(count);
        checkpoint["num_experts_per_tok"] = json!(chosen);
        let error = refused(&checkpoint, &weights());
        assert!(error.contains("experts"), "{error}");
    }
}

#[test]
fn broken_gguf_files_are_errors() {
    let whole = gguf();
    let read = |bytes: Vec<u8>| import_gguf(&bytes.into(), &Options::default());
    for length in 0..whole.len() {
        // The part that is cut off may be padding.
        let cut = read(whole[..length].to_vec());
        assert!(cut.is_err() || whole.len() - length < 32, "{length}");
    }
    // Counts, lengths, sizes, types and offsets beyond all bounds.
    let table = whole.windows(10).position(|bytes| bytes == b"token_embd").unwrap() + 17;
    for at in (4..table + 40).step_by(4) {
        for value in [[0xff; 4], [0; 4], [0xff, 0xff, 0xff, 0x7f], [1, 0, 0, 0x80]] {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&value);
            let _ = read(bytes);
        }
    }
    let unknown = String::from_utf8_lossy(&whole).into_owned();
    assert!(unknown.contains("llama"));
    let mut other = whole.clone();
    let at = whole.windows(5).position(|bytes| bytes == b"llama").unwrap();
    other[at..at + 5].copy_from_slice(b"mamba");
    let error = read(other).unwrap_err().to_string();
    assert!(error.contains("`mamba`") && error.contains("qwen3"), "{error}");
}

#[test]
fn tensors_of_gguf_files_do_not_overlap() {
    let mut bytes = gguf();
    // The offset of the second tensor becomes that of the first.
    let name = b"output_norm.weight";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len() + 4 + 8 + 4;
    bytes[at..at + 8].copy_from_slice(&0u64.to_le_bytes());
    let error = import_gguf(&bytes.into(), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("lies where none can"), "{error}");
}
