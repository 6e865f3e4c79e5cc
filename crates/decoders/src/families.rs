//! The families of decoders, as data: how each differs from Llama. A new family is an entry of [`FAMILIES`].

use std::collections::BTreeSet;

use rushlight_checkpoint::fields::Form::{Flag, Number, Positive, PositiveShare, Share, Size};
use rushlight_graph::Error;

use crate::family::{
    AttentionScale, Conv, DeltaNet, EmbeddingScale, Experts, Family, Joined, NORM, Names, QkNorm, Ropes, SharedExpert,
    Windows,
};

/// Names in checkpoints of Llama.
const NAMES: Names = Names {
    embedding: "model.embed_tokens",
    norm: NORM,
    head: "lm_head",
    layers: "model.layers",
    before_attention: Some("input_layernorm"),
    after_attention: None,
    before_feed_forward: Some("post_attention_layernorm"),
    after_feed_forward: None,
    qkv: Joined::Apart(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
    o: "self_attn.o_proj",
    q_norm: "self_attn.q_norm",
    k_norm: "self_attn.k_norm",
    gate_up: Joined::Apart(["mlp.gate_proj", "mlp.up_proj"]),
    down: "mlp.down_proj",
    conv: Conv { input: "conv.in_proj", conv: "conv.conv", output: "conv.out_proj" },
    delta_net: None,
    experts: None,
};

/// Experts of Qwen's models.
const EXPERTS: Experts = Experts {
    router: "mlp.gate",
    each: Some("mlp.experts"),
    gate: "gate_proj",
    up: "up_proj",
    down: "down_proj",
    shared: None,
    are_normalized: None,
    are_normalized_in_gguf: false,
};

/// Norms on both sides of attention and feed-forward network.
const SANDWICHED: Names = Names {
    after_attention: Some("post_attention_layernorm"),
    before_feed_forward: Some("pre_feedforward_layernorm"),
    after_feed_forward: Some("post_feedforward_layernorm"),
    ..NAMES
};

const LLAMA: Family = Family {
    name: "Llama",
    model_types: &["llama"],
    architecture: Some("llama"),
    names: NAMES,
    has_paired_rows: true,
    gguf_activation: None,
    norm_offset: 0.0,
    qk_norm: QkNorm::None,
    windows: Windows::Listed,
    ropes: Ropes::Same,
    attention_scale: AttentionScale::HeadDim,
    embedding_scale: EmbeddingScale::One,
    theta: 10_000.0,
    rotary_fraction: 1.0,
    has_gated_attention: false,
    fields: &[],
};

const GELU: Option<&str> = Some("gelu_pytorch_tanh");

/// All families.
pub const FAMILIES: &[Family] = &[
    LLAMA,
    Family { name: "Mistral", model_types: &["mistral"], windows: Windows::All, ..LLAMA },
    Family {
        name: "Qwen2, Qwen2.5",
        model_types: &["qwen2"],
        architecture: Some("qwen2"),
        has_paired_rows: false,
        windows: Windows::Switched,
        ..LLAMA
    },
    Family {
        name: "Qwen3",
        model_types: &["qwen3"],
        architecture: Some("qwen3"),
        has_paired_rows: false,
        qk_norm: QkNorm::Head,
        windows: Windows::Switched,
        ..LLAMA
    },
    Family {
        name: "Mixtral",
        model_types: &["mixtral"],
        names: Names {
            experts: Some(Experts {
                router: "block_sparse_moe.gate",
                each: Some("block_sparse_moe.experts"),
                gate: "w1",
                up: "w3",
                down: "w2",
                are_normalized: Some(true),
                ..EXPERTS
            }),
            ..NAMES
        },
        windows: Windows::All,
        theta: 1_000_000.0,
        ..LLAMA
    },
    Family {
        name: "Qwen2-MoE",
        model_types: &["qwen2_moe"],
        architecture: Some("qwen2moe"),
        has_paired_rows: false,
        names: Names {
            experts: Some(Experts {
                shared: Some(SharedExpert {
                    gate: "mlp.shared_expert.gate_proj",
                    up: "mlp.shared_expert.up_proj",
                    down: "mlp.shared_expert.down_proj",
                    router: "mlp.shared_expert_gate",
                }),
                ..EXPERTS
            }),
            ..NAMES
        },
        windows: Windows::Switched,
        ..LLAMA
    },
    Family {
        name: "Qwen3-MoE",
        model_types: &["qwen3_moe"],
        architecture: Some("qwen3moe"),
        has_paired_rows: false,
        names: Names { experts: Some(Experts { are_normalized_in_gguf: true, ..EXPERTS }), ..NAMES },
        qk_norm: QkNorm::Head,
        windows: Windows::Switched,
        ..LLAMA
    },
    Family {
        name: "OLMoE",
        model_types: &["olmoe"],
        architecture: Some("olmoe"),
        has_paired_rows: false,
        names: Names { experts: Some(EXPERTS), ..NAMES },
        qk_norm: QkNorm::Whole,
        ..LLAMA
    },
    Family {
        name: "Phi-3, Phi-4-mini",
        model_types: &["phi3"],
        architecture: Some("phi3"),
        has_paired_rows: false,
        names: Names { qkv: Joined::One("self_attn.qkv_proj"), gate_up: Joined::One("mlp.gate_up_proj"), ..NAMES },
        windows: Windows::All,
        ..LLAMA
    },
    Family {
        name: "Gemma 2",
        model_types: &["gemma2"],
        architecture: Some("gemma2"),
        has_paired_rows: false,
        gguf_activation: GELU,
        names: SANDWICHED,
        norm_offset: 1.0,
        windows: Windows::Pattern(2),
        attention_scale: AttentionScale::InverseRoot("query_pre_attn_scalar"),
        embedding_scale: EmbeddingScale::RootOfWidth,
        ..LLAMA
    },
    Family {
        name: "Gemma 3",
        model_types: &["gemma3_text", "gemma3"],
        architecture: Some("gemma3"),
        has_paired_rows: false,
        gguf_activation: GELU,
        names: SANDWICHED,
        norm_offset: 1.0,
        qk_norm: QkNorm::Head,
        windows: Windows::Pattern(6),
        ropes: Ropes::Local(10_000.0),
        attention_scale: AttentionScale::InverseRoot("query_pre_attn_scalar"),
        embedding_scale: EmbeddingScale::RootOfWidth,
        theta: 1_000_000.0,
        ..LLAMA
    },
    Family {
        name: "SmolLM3",
        model_types: &["smollm3"],
        architecture: Some("smollm3"),
        windows: Windows::Switched,
        ropes: Ropes::Skipped,
        theta: 2_000_000.0,
        ..LLAMA
    },
    Family {
        name: "OLMo 2",
        model_types: &["olmo2"],
        architecture: Some("olmo2"),
        has_paired_rows: false,
        names: Names {
            before_attention: None,
            after_attention: Some("post_attention_layernorm"),
            before_feed_forward: None,
            after_feed_forward: Some("post_feedforward_layernorm"),
            ..NAMES
        },
        qk_norm: QkNorm::Whole,
        ..LLAMA
    },
    Family {
        name: "Granite",
        model_types: &["granite"],
        architecture: Some("granite"),
        attention_scale: AttentionScale::Number("attention_multiplier"),
        embedding_scale: EmbeddingScale::Number("embedding_multiplier"),
        ..LLAMA
    },
    Family {
        name: "LFM2",
        model_types: &["lfm2"],
        architecture: Some("lfm2"),
        has_paired_rows: false,
        names: Names {
            norm: "model.embedding_norm",
            before_attention: Some("operator_norm"),
            before_feed_forward: Some("ffn_norm"),
            o: "self_attn.out_proj",
            q_norm: "self_attn.q_layernorm",
            k_norm: "self_attn.k_layernorm",
            gate_up: Joined::Apart(["feed_forward.w1", "feed_forward.w3"]),
            down: "feed_forward.w2",
            ..NAMES
        },
        qk_norm: QkNorm::Head,
        fields: &[
            ("block_auto_adjust_ff_dim", Flag),
            ("block_dim", Size),
            ("block_ff_dim", Size),
            ("block_ffn_dim_multiplier", Positive),
            ("block_mlp_init_scale", Number),
            ("block_multiple_of", Size),
            ("block_norm_eps", PositiveShare),
            ("block_out_init_scale", Number),
            ("block_use_swiglu", Flag),
            ("block_use_xavier_init", Flag),
            ("conv_L_cache", Size),
            ("conv_bias", Flag),
            ("conv_dim", Size),
            ("conv_dim_out", Size),
            ("conv_use_xavier_init", Flag),
        ],
        theta: 1_000_000.0,
        ..LLAMA
    },
    Family {
        name: "Seed-OSS",
        model_types: &["seed_oss"],
        architecture: None,
        has_paired_rows: false,
        fields: &[("attention_out_bias", Flag), ("residual_dropout", Share)],
        ..LLAMA
    },
    Family {
        name: "Qwen3.5",
        model_types: &["qwen3_5", "qwen3_5_text"],
        architecture: None,
        names: Names {
            delta_net: Some(DeltaNet {
                qkv: "linear_attn.in_proj_qkv",
                gate: "linear_attn.in_proj_z",
                beta: "linear_attn.in_proj_b",
                decay: "linear_attn.in_proj_a",
                conv: "linear_attn.conv1d",
                decay_log: "linear_attn.A_log",
                decay_bias: "linear_attn.dt_bias",
                norm: "linear_attn.norm",
                output: "linear_attn.out_proj",
            }),
            ..NAMES
        },
        has_paired_rows: false,
        norm_offset: 1.0,
        qk_norm: QkNorm::Head,
        rotary_fraction: 0.25,
        has_gated_attention: true,
        ..LLAMA
    },
];

impl Family {
    /// Finds the family of an architecture of GGUF. Files with experts may belong to another family of the same
    /// architecture.
    ///
    /// # Errors
    /// `Unsupported`, with a list of all architectures.
    pub(crate) fn of_architecture(name: &str, has_experts: bool) -> Result<&'static Self, Error> {
        // Mistral uses Llama's architecture name, too; the first family is taken.
        let mut found = FAMILIES.iter().filter(|family| family.architecture == Some(name)).peekable();
        let first = found.peek().copied();
        let found = found.find(|family| family.names.experts.is_some() == has_experts).or(first);
        found.ok_or_else(|| {
            let known: BTreeSet<_> = FAMILIES.iter().filter_map(|family| family.architecture).collect();
            Error::unsupported(format!("models of the architecture `{name}` are not known"))
                .expected(known.into_iter().collect::<Vec<_>>().join(", "))
                .got(format!("general.architecture `{name}`"))
                .help("export the model from PyTorch with torch.export, and compile the .pt2 file")
        })
    }

    /// Finds the family of a `model_type`.
    ///
    /// # Errors
    /// `Unsupported`, with a list of all families.
    pub(crate) fn of_model_type(name: &str) -> Result<&'static Self, Error> {
        let found = FAMILIES.iter().find(|family| family.model_types.contains(&name));
        found.ok_or_else(|| {
            let known = FAMILIES.iter().map(|family| format!("{} ({})", family.name, family.model_types.join(", ")));
            Error::unsupported(format!("models of the type `{name}` are not known"))
                .expected(known.collect::<Vec<_>>().join(", "))
                .got(format!("model_type `{name}`"))
                .help("export the model from PyTorch with torch.export, and compile the .pt2 file")
        })
    }
}
