//! The known fields of configurations of decoders, with the form of each.

use rushlight_graph::Error;

use rushlight_checkpoint::config::Config;
use rushlight_checkpoint::fields::Form::{
    self, Count, Counts, Flag, Integer, Number, Object, Positive, PositiveShare, Positives, Share, Size, Text, Texts,
    Tokens,
};
use rushlight_checkpoint::fields::check;

use crate::family::Family;

/// The fields of a `config.json`, or of its part for the decoder, besides those of a single family.
pub(crate) const CONFIG: &[(&str, Form)] = &[
    ("_name_or_path", Text),
    ("_sliding_window_pattern", Size),
    ("architectures", Texts),
    ("attention_bias", Flag),
    ("attention_dropout", Share),
    ("attention_multiplier", Number),
    ("attn_logit_softcapping", Positive),
    ("bos_token_id", Tokens),
    ("cache_implementation", Text),
    ("clip_qkv", Number),
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

/// The fields of a `generation_config.json` that a program has.
pub(crate) const GENERATION: &[(&str, Form)] =
    &[("bos_token_id", Tokens), ("eos_token_id", Tokens), ("pad_token_id", Tokens)];

/// Checks a `config.json` of a family, with the settings of RoPE in it.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_config(config: Config<'_>, family: &Family) -> Result<(), Error> {
    check(config, CONFIG)?;
    check(config, family.fields)?;
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
