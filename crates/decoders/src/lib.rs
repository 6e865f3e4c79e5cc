//! Builds decoders from the published files of language models: a folder of Hugging Face with its configuration and weights, or
//! a GGUF file. The graph that PyTorch would export is built from a description of each family (`families`), so nobody needs PyTorch.
//!
//! The program has one method, `forward(tokens: i64[1, T], start_pos: i64[1])`. It returns the logits of the last token, or what
//! [`Output`] says. Metadata methods tell ExecuTorch's runners its sizes. The KV cache is state. Weights stay in the file until
//! they are quantized, packed or written, one after the other.
//!
//! # Decisions
//!
//! - `families.rs` describes as data how each family differs from Llama. `decoder.rs` reads a configuration to a description.
//!   `build/` makes the graph, with a ring buffer as the cache of a layer with a sliding window.
//! - A LoRA adapter is not part of a program. It is an input of the program's second method (`lora/`), which shares constants and
//!   states with the first. Sessions keep no matrices, and a batch of calls may have several adapters.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod build;
mod decoder;
mod families;
mod family;
mod fields;
mod gguf_config;
mod lora;
mod options;
mod rope;

#[cfg(test)]
mod field_tests;
#[cfg(test)]
mod tests;

pub use families::FAMILIES;
pub use family::Family;
pub use options::{HIDDEN_STATES, Options, Output};

use rushlight_checkpoint::config::{self, Config};
use rushlight_checkpoint::fields::check;
use rushlight_checkpoint::gguf::Gguf;
use rushlight_checkpoint::{Checkpoint, Tensor, Tensors, damaged, safetensors};
use rushlight_graph::{Bytes, Error, Model};

use decoder::{Decoder, Layer};
use family::Joined;
use options::MAX_CONTEXT;

/// Weights that checkpoints have and nobody needs, by the end of their name.
const NEEDLESS: [&str; 2] = [".rotary_emb.inv_freq", ".self_attn.bias"];

/// The beginning of the names of layers that predict tokens after the next one.
const FURTHER_TOKENS: &str = "mtp.";

/// Builds the program of a checkpoint.
///
/// # Errors
/// `Input` for files that are damaged or do not belong together, `Unsupported` for a family, a setting or a dtype that is not
/// known.
pub fn import_checkpoint(checkpoint: &Checkpoint, options: &Options) -> Result<Model, Error> {
    let file = config::parse("config.json", &checkpoint.config)?;
    let whole = Config(&file);
    let Some(model_type) = whole.text("model_type")? else {
        return Err(damaged("`config.json` has no `model_type`: it describes no model of Hugging Face"));
    };
    let family = Family::of_model_type(model_type)?;
    fields::check_config(whole, family)?;
    if let Some(quantization) = whole.object("quantization_config")? {
        let method = quantization.text("quant_method")?.unwrap_or("some method");
        return Err(Error::unsupported(format!("the checkpoint is quantized with {method}"))
            .help("give the checkpoint before it was quantized, and `--quantize`"));
    }
    // A model of text and images has the decoder as a part.
    let text = whole.object("text_config")?;
    let config = text.unwrap_or(whole);
    fields::check_config(config, family)?;
    let mut decoder = Decoder::of_config(config, family, options)?;
    decoder.feed_forward = decoder::feed_forward_width(config)?;
    decoder.shared_expert = config.size("shared_expert_intermediate_size")?;
    if decoder.is_tied.is_none() && text.is_some() {
        decoder.is_tied = whole.flag("tie_word_embeddings")?;
    }
    if let Some(generation) = &checkpoint.generation_config {
        let file = config::parse("generation_config.json", generation)?;
        let generation = Config(&file);
        check(generation, fields::GENERATION)?;
        let eos = generation.integers("eos_token_id")?;
        if !eos.is_empty() {
            decoder.eos = eos;
        }
        decoder.bos = decoder.bos.or(generation.integers("bos_token_id")?.first().copied());
    }
    decoder.check_tokens()?;
    let limits = options.limits(config.size("max_position_embeddings")?.unwrap_or(MAX_CONTEXT))?;
    let mut stored = Tensors::default();
    for (name, bytes) in &checkpoint.weights {
        safetensors::read(name, bytes, &mut stored)?;
    }
    let mut tensors = if text.is_some() { text_model_names(stored)? } else { base_model_names(stored)? };
    check_biases(config, &tensors)?;
    let model = build::build(&decoder, &mut tensors, limits, options)?;
    check_all_used(&tensors)?;
    Ok(model)
}

/// Refuses a checkpoint without the biases that its configuration declares: the model would be built without them.
fn check_biases(config: Config<'_>, tensors: &Tensors) -> Result<(), Error> {
    for (key, part) in [("attention_bias", "self_attn."), ("qkv_bias", "self_attn."), ("mlp_bias", "mlp.")] {
        let is_bias = |name: &str| name.strip_suffix(".bias").is_some_and(|layer| layer.contains(part));
        if config.flag(key)? == Some(true) && !tensors.left().any(is_bias) {
            return Err(damaged(format!("the checkpoint has no bias that `{key}` of the configuration is for"))
                .expected(format!("tensors `{part}*.bias`")));
        }
    }
    Ok(())
}

/// Tables of GGUF files that the program has in another form.
const RESHAPED: &str = "rope_freqs.weight";

/// Builds the program of a GGUF file. Weights are decoded from its blocks when they are read.
///
/// # Errors
/// `Input` for a file that is damaged, `Unsupported` for an architecture, a setting or a type that is not known.
pub fn import_gguf(file: &Bytes, options: &Options) -> Result<Model, Error> {
    let mut file = Gguf::parse(file)?;
    let family = gguf_config::family(&file)?;
    let settings = gguf_config::config(&mut file, family)?;
    let config = Config(&settings);
    let mut decoder = Decoder::of_config(config, family, options)?;
    decoder.names = family.names.of_gguf();
    // They are added already.
    decoder.norm_offset = 0.0;
    let tensors = &mut file.tensors;
    // Llama 3.1's scaling is a table of factors there.
    if let Some(factors) = tensors.take_optional(RESHAPED) {
        decoder.ropes.iter_mut().try_for_each(|rope| rope.divide(&factors.floats()))?;
    }
    let shared = decoder.names.experts.and_then(|experts| experts.shared);
    for (index, layer) in decoder.layers.iter().enumerate() {
        let prefix = format!("{}.{index}.", decoder.names.layers);
        match (layer, decoder.names.qkv) {
            (Layer::Attention { .. }, Joined::Apart([q, k, _])) if family.has_paired_rows => {
                for (name, heads) in [(q, decoder.heads), (k, decoder.kv_heads)] {
                    for part in ["weight", "bias"] {
                        tensors.change(&format!("{prefix}{name}.{part}"), |it| it.paired_heads = Some(heads));
                    }
                }
            }
            (Layer::Conv { .. }, _) => {
                // Filters of one channel have no dimension for it.
                tensors.change(&format!("{prefix}{}.weight", decoder.names.conv.conv), |it| {
                    if let [channels, taps] = *it.sizes {
                        it.sizes = vec![channels, 1, taps];
                    }
                });
            }
            _ => {}
        }
        if let Some(shared) = shared {
            // A matrix of one row has no dimension for it.
            tensors.change(&format!("{prefix}{}.weight", shared.router), |it| {
                if let [columns] = *it.sizes {
                    it.sizes = vec![1, columns];
                }
            });
        }
    }
    let limits = options.limits(config.size("max_position_embeddings")?.unwrap_or(MAX_CONTEXT))?;
    let model = build::build(&decoder, tensors, limits, options)?;
    check_all_used(tensors)?;
    Ok(model)
}

/// Refuses weights that the graph does not use: it would compute something else than the model.
fn check_all_used(tensors: &Tensors) -> Result<(), Error> {
    let mut left = tensors
        .left()
        .filter(|name| !NEEDLESS.iter().any(|end| name.ends_with(end)) && !name.starts_with(FURTHER_TOKENS));
    match left.next() {
        None => Ok(()),
        Some(first) => Err(Error::unsupported(format!("the family has no weight `{first}`"))
            .got(format!("{} weights that nothing uses", 1 + left.count()))
            .help("the checkpoint is of another architecture than its configuration says")),
    }
}

/// Returns the tensors with the names of a decoder. The file of a base model, which has no head, omits the prefix `model.`.
fn base_model_names(tensors: Tensors) -> Result<Tensors, Error> {
    const PREFIX: &str = "model.";
    if tensors.left().any(|name| name.starts_with(PREFIX)) {
        return Ok(tensors);
    }
    let mut named = Tensors::default();
    for tensor in tensors.into_tensors() {
        let name =
            if tensor.name.starts_with("lm_head.") { tensor.name.clone() } else { format!("{PREFIX}{}", tensor.name) };
        named.add(Tensor { name, ..tensor })?;
    }
    Ok(named)
}

/// Returns the decoder's part of a model of text and images, with the names of a decoder.
fn text_model_names(tensors: Tensors) -> Result<Tensors, Error> {
    let mut named = Tensors::default();
    for tensor in tensors.into_tensors() {
        let name = &tensor.name;
        let name = match name.strip_prefix("language_model.").or_else(|| name.strip_prefix("model.language_model.")) {
            Some(rest) if rest.starts_with("model.") || rest.starts_with("lm_head.") => rest.to_owned(),
            Some(rest) => format!("model.{rest}"),
            None if name.starts_with("lm_head.") => name.clone(),
            None => continue,
        };
        named.add(Tensor { name, ..tensor })?;
    }
    Ok(named)
}
