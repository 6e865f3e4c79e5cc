//! The forms of configuration fields. Each known field is checked, including those that no computation uses: a wrong form shows that the
//! file is damaged, or that another program wrote it.

use serde_json::Value;

use rushlight_graph::Error;

use crate::config::{Config, MAX_SIZE, wrong};

/// The form of a field's value. `null` is the same as no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An integer from 1 to 2^31.
    Size,
    /// A size, or 0 for none.
    Count,
    /// An integer.
    Integer,
    /// A token, a list of tokens, or -1 for none.
    Tokens,
    /// A finite number.
    Number,
    /// A number above 0.
    Positive,
    /// A number from 0 to 1.
    Share,
    /// A number above 0, and at most 1.
    PositiveShare,
    Flag,
    Text,
    Texts,
    /// A text or a list of texts.
    TextOrTexts,
    /// A list of integers from 0 up.
    Counts,
    /// A list of numbers above 0.
    Positives,
    Object,
    /// An integer from 0 up, or a list of them.
    CountOrCounts,
    /// Any list.
    List,
    /// A list of integers from 0 up, or an object of such lists.
    Indices,
    /// Text, a flag, or a list of texts: a mixture that libraries write.
    Loose,
}

use Form::{
    Count, CountOrCounts, Counts, Flag, Indices, Integer, List, Loose, Number, Object, Positive, PositiveShare,
    Positives, Share, Size, Text, TextOrTexts, Texts, Tokens,
};

/// The fields of a `config.json`, or of its part for the decoder.
pub(crate) const CONFIG: &[(&str, Form)] = &[
    ("_name_or_path", Text),
    ("_sliding_window_pattern", Size),
    ("architectures", Texts),
    ("attention_bias", Flag),
    ("attention_dropout", Share),
    ("attention_multiplier", Number),
    ("attn_logit_softcapping", Positive),
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
    ("bos_token_id", Tokens),
    ("cache_implementation", Text),
    ("clip_qkv", Number),
    ("conv_L_cache", Size),
    ("conv_bias", Flag),
    ("conv_dim", Size),
    ("conv_dim_out", Size),
    ("conv_use_xavier_init", Flag),
    ("decoder_sparse_step", Size),
    ("dtype", Text),
    ("embd_pdrop", Share),
    ("embedding_multiplier", Number),
    ("eos_token_id", Tokens),
    ("final_logit_softcapping", Positive),
    ("full_attention_interval", Size),
    ("full_attn_idxs", Counts),
    ("head_dim", Size),
    ("hidden_act", Text),
    ("hidden_activation", Text),
    ("hidden_size", Size),
    ("image_token_id", Tokens),
    ("image_token_index", Tokens),
    ("initializer_range", Positive),
    ("intermediate_size", Size),
    ("layer_types", Texts),
    ("linear_conv_kernel_dim", Size),
    ("linear_key_head_dim", Size),
    ("linear_num_key_heads", Size),
    ("linear_num_value_heads", Size),
    ("linear_value_head_dim", Size),
    ("logits_scaling", Positive),
    ("max_position_embeddings", Size),
    ("max_window_layers", Count),
    ("mlp_bias", Flag),
    ("mlp_only_layers", Counts),
    ("model_type", Text),
    ("moe_intermediate_size", Size),
    ("no_rope_layer_interval", Size),
    ("no_rope_layers", Counts),
    ("norm_eps", PositiveShare),
    ("norm_topk_prob", Flag),
    ("num_attention_heads", Size),
    ("num_experts", Size),
    ("num_experts_per_tok", Size),
    ("num_heads", Size),
    ("num_hidden_layers", Size),
    ("num_key_value_heads", Size),
    ("num_local_experts", Size),
    ("original_max_position_embeddings", Size),
    ("output_router_logits", Flag),
    ("pad_token_id", Tokens),
    ("partial_rotary_factor", PositiveShare),
    ("pretraining_tp", Integer),
    ("qkv_bias", Flag),
    ("quantization_config", Object),
    ("query_pre_attn_scalar", Positive),
    ("resid_pdrop", Share),
    ("residual_multiplier", Number),
    ("rms_norm_eps", PositiveShare),
    ("rope_local_base_freq", Positive),
    ("rope_parameters", Object),
    ("rope_scaling", Object),
    ("rope_theta", Positive),
    ("router_aux_loss_coef", Number),
    ("router_jitter_noise", Share),
    ("shared_expert_intermediate_size", Size),
    ("sliding_window", Count),
    ("sliding_window_pattern", Size),
    ("text_config", Object),
    ("theta", Positive),
    ("tie_embedding", Flag),
    ("tie_word_embeddings", Flag),
    ("torch_dtype", Text),
    ("transformers_version", Text),
    ("use_bidirectional_attention", Flag),
    ("use_cache", Flag),
    ("use_mrope", Flag),
    ("use_pos_enc", Flag),
    ("use_sliding_window", Flag),
    ("video_token_id", Tokens),
    ("vision_config", Object),
    ("vision_end_token_id", Tokens),
    ("vision_start_token_id", Tokens),
    ("vocab_size", Size),
];

/// The fields of settings of RoPE.
pub(crate) const ROPE: &[(&str, Form)] = &[
    ("attention_factor", Positive),
    ("beta_fast", Positive),
    ("beta_slow", Positive),
    ("factor", Positive),
    ("full_attention", Object),
    ("high_freq_factor", Positive),
    ("long_factor", Positives),
    ("low_freq_factor", Positive),
    ("mrope_interleaved", Flag),
    ("mrope_section", Counts),
    ("mscale", Positive),
    ("mscale_all_dim", Positive),
    ("original_max_position_embeddings", Size),
    ("partial_rotary_factor", PositiveShare),
    ("rope_theta", Positive),
    ("rope_type", Text),
    ("short_factor", Positives),
    ("sliding_attention", Object),
    ("truncate", Flag),
    ("type", Text),
];

/// The fields of an `adapter_config.json`.
pub(crate) const ADAPTER: &[(&str, Form)] = &[
    ("alora_invocation_tokens", Counts),
    ("alpha_pattern", Object),
    ("arrow_config", Object),
    ("auto_mapping", Object),
    ("base_model_name_or_path", Text),
    ("bias", Text),
    ("corda_config", Object),
    ("ensure_weight_tying", Flag),
    ("eva_config", Object),
    ("exclude_modules", TextOrTexts),
    ("fan_in_fan_out", Flag),
    ("inference_mode", Flag),
    ("init_lora_weights", Loose),
    ("kasa_config", Object),
    ("layer_replication", List),
    ("layers_pattern", TextOrTexts),
    ("layers_to_transform", CountOrCounts),
    ("loftq_config", Object),
    ("lora_alpha", Number),
    ("lora_bias", Flag),
    ("lora_dropout", Share),
    ("lora_ga_config", Object),
    ("megatron_config", Object),
    ("megatron_core", Text),
    ("modules_to_save", Texts),
    ("monteclora_config", Object),
    ("peft_type", Text),
    ("peft_version", Text),
    ("qalora_group_size", Size),
    ("r", Size),
    ("rank_pattern", Object),
    ("revision", Text),
    ("target_modules", TextOrTexts),
    ("target_parameters", Texts),
    ("task_type", Text),
    ("trainable_token_indices", Indices),
    ("use_bdlora", Flag),
    ("use_dora", Flag),
    ("use_qalora", Flag),
    ("use_rslora", Flag),
    ("velora_config", Object),
];

/// The fields of a `generation_config.json` that a program has.
pub(crate) const GENERATION: &[(&str, Form)] =
    &[("bos_token_id", Tokens), ("eos_token_id", Tokens), ("pad_token_id", Tokens)];

impl Form {
    fn name(self) -> &'static str {
        match self {
            Size => "an integer from 1 to 2^31",
            Count => "an integer from 0 to 2^31",
            Integer => "an integer",
            Tokens => "the number of a token, or a list of them",
            Number => "a number",
            Positive => "a number above 0",
            Share => "a number from 0 to 1",
            PositiveShare => "a number above 0, at most 1",
            Flag => "true or false",
            Text => "text",
            Texts => "a list of texts",
            TextOrTexts => "text or a list of texts",
            Counts => "a list of integers from 0 to 2^31",
            Positives => "a list of numbers above 0",
            CountOrCounts => "an integer from 0 to 2^31, or a list of them",
            List => "a list",
            Object => "an object",
            Indices => "a list of integers, or an object of lists",
            Loose => "text, true or false, or a list of texts",
        }
    }

    fn has(self, value: &Value) -> bool {
        let count = |value: &Value| value.as_u64().is_some_and(|count| count <= MAX_SIZE as u64);
        let token = |value: &Value| count(value) || value.as_i64() == Some(-1);
        let number = |value: &Value| value.as_f64().filter(|number| number.is_finite());
        let positive = |value: &Value| number(value).is_some_and(|number| number > 0.0);
        let all = |is: &dyn Fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(is));
        match self {
            Size => count(value) && value.as_u64() != Some(0),
            Count => count(value),
            Integer => value.is_i64() || value.is_u64(),
            Tokens => token(value) || all(&token),
            Number => number(value).is_some(),
            Positive => positive(value),
            Share => number(value).is_some_and(|number| (0.0..=1.0).contains(&number)),
            PositiveShare => positive(value) && number(value).is_some_and(|number| number <= 1.0),
            Flag => value.is_boolean(),
            Text => value.is_string(),
            Texts => all(&Value::is_string),
            TextOrTexts => value.is_string() || all(&Value::is_string),
            Counts => all(&count),
            Positives => all(&positive),
            CountOrCounts => count(value) || all(&count),
            List => value.is_array(),
            Object => value.is_object(),
            Indices => value.is_object() || all(&count),
            Loose => value.is_string() || value.is_boolean() || all(&Value::is_string),
        }
    }
}

/// Checks the known fields of an object.
///
/// # Errors
/// `Input` for the first that is something else.
pub(crate) fn check(config: Config<'_>, fields: &[(&str, Form)]) -> Result<(), Error> {
    for (key, form) in fields {
        if let Some(value) = config.get(key).filter(|value| !form.has(value)) {
            return Err(wrong(key, form.name(), value));
        }
    }
    Ok(())
}

/// Checks a `config.json`, with the settings of RoPE in it.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_config(config: Config<'_>) -> Result<(), Error> {
    check(config, CONFIG)?;
    for key in ["rope_parameters", "rope_scaling"] {
        let Some(rope) = config.object(key)? else { continue };
        check(rope, ROPE)?;
        for kind in ["full_attention", "sliding_attention"] {
            if let Some(rope) = rope.object(kind)? {
                check(rope, ROPE)?;
            }
        }
    }
    Ok(())
}
