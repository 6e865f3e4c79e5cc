//! The description of a decoder, independent of the file format.

use rushlight_graph::Error;
use rushlight_graph::ops::MAX_EXPERTS;

use crate::family::{AttentionScale, EmbeddingScale, Family, Names, QkNorm, Ropes, Windows};
use crate::options::Options;
use crate::rope::{Rope, Width};
use rushlight_checkpoint::config::Config;
use rushlight_checkpoint::damaged;

/// A decoder: sizes, numbers and the kind of each layer.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub names: Names,
    /// Names in Hugging Face's checkpoints.
    pub published_names: Names,
    pub norm_offset: f32,
    pub qk_norm: QkNorm,
    pub has_gated_attention: bool,
    pub vocab: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub eps: f64,
    pub activation: Activation,
    /// Factor of the scores of attention.
    pub attention_scale: f64,
    /// Scores become `cap * tanh(score / cap)`.
    pub attention_cap: Option<f64>,
    pub logits_cap: Option<f64>,
    pub logits_scale: f64,
    pub embedding_scale: f64,
    /// Factor of the results of attention and of the feed-forward network before they are added.
    pub residual_scale: f64,
    /// True if the head uses the embeddings as weights. `None` if the configuration does not say it: then a checkpoint
    /// without weights of the head is tied.
    pub is_tied: Option<bool>,
    pub ropes: Vec<Rope>,
    pub layers: Vec<Layer>,
    pub delta_net: Option<DeltaNet>,
    pub experts: Option<Mixture>,
    /// Inner width of the feed-forward network and of the shared expert, if the configuration has it.
    pub feed_forward: Option<usize>,
    pub shared_expert: Option<usize>,
    pub bos: Option<i64>,
    pub eos: Vec<i64>,
}

/// A layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Attention {
        /// Number of positions that a token attends to, its own included.
        window: Option<usize>,
        /// One of [`Decoder::ropes`].
        rope: Option<usize>,
    },
    /// A short convolution over `taps` positions instead of attention.
    Conv { taps: usize },
    /// A gated delta net instead of attention.
    DeltaNet,
}

/// The sizes of gated delta nets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeltaNet {
    /// Heads of queries and of keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of the others.
    pub value_heads: usize,
    /// Columns of a query and of a key.
    pub key_dim: usize,
    /// Columns of a value.
    pub value_dim: usize,
    /// Positions that the convolution covers.
    pub taps: usize,
}

/// A mixture of experts.
#[derive(Clone, Debug)]
pub(crate) struct Mixture {
    pub count: usize,
    /// Number of experts for each token.
    pub chosen: usize,
    /// Inner width of an expert.
    pub width: usize,
    /// True if the weights of the chosen experts are divided by their sum.
    pub are_normalized: bool,
    /// For each layer: true if it has experts instead of one feed-forward network.
    pub layers: Vec<bool>,
}

/// The activation of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    Silu,
    GeluTanh,
    Gelu,
}

/// Maximum number of columns of a head.
const MAX_HEAD: usize = 1 << 16;
/// Maximum number of positions that a convolution covers.
const MAX_TAPS: usize = 1 << 10;
/// Maximum number of layers.
pub(crate) const MAX_LAYERS: usize = 1 << 12;

impl Decoder {
    /// Reads a configuration of Hugging Face. `options` set the context length.
    ///
    /// # Errors
    /// `Input` for settings that are missing or of other types, `Unsupported` for those without an implementation.
    pub fn of_config(config: Config<'_>, family: &'static Family, options: &Options) -> Result<Self, Error> {
        let hidden = config.required_size("hidden_size")?;
        let heads = config.required_size("num_attention_heads")?;
        let kv_heads = config.size("num_key_value_heads")?.unwrap_or(heads);
        let head_dim = config.size("head_dim")?.unwrap_or(hidden / heads);
        if !(1..=MAX_HEAD).contains(&head_dim) || !heads.is_multiple_of(kv_heads) {
            return Err(damaged("the heads of attention do not divide its width")
                .expected(
                    "`num_attention_heads` as a multiple of `num_key_value_heads`, and up to 65536 columns for each",
                )
                .got(format!("{heads} heads, {kv_heads} of keys and values, {head_dim} columns")));
        }
        let eps = config.number("rms_norm_eps")?.or(config.number("norm_eps")?).unwrap_or(1e-6);
        let max_positions = config.size("max_position_embeddings")?.unwrap_or(u32::MAX as usize);
        let mut decoder = Self {
            names: family.names,
            published_names: family.names,
            norm_offset: family.norm_offset,
            qk_norm: family.qk_norm,
            has_gated_attention: family.has_gated_attention,
            vocab: config.required_size("vocab_size")?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            eps,
            activation: activation(config)?,
            attention_scale: match family.attention_scale {
                AttentionScale::HeadDim => 1.0 / (head_dim as f64).sqrt(),
                AttentionScale::InverseRoot(key) => 1.0 / config.required_positive(key)?.sqrt(),
                AttentionScale::Number(key) => config.required_number(key)?,
            },
            attention_cap: config.positive("attn_logit_softcapping")?,
            logits_cap: config.positive("final_logit_softcapping")?,
            logits_scale: 1.0 / config.positive("logits_scaling")?.unwrap_or(1.0),
            embedding_scale: match family.embedding_scale {
                EmbeddingScale::One => 1.0,
                EmbeddingScale::RootOfWidth => (hidden as f64).sqrt(),
                EmbeddingScale::Number(key) => config.required_number(key)?,
            },
            residual_scale: config.number("residual_multiplier")?.unwrap_or(1.0),
            is_tied: match config.flag("tie_word_embeddings")? {
                Some(is_tied) => Some(is_tied),
                None => config.flag("tie_embedding")?,
            },
            ropes: Vec::new(),
            layers: Vec::new(),
            delta_net: None,
            experts: None,
            feed_forward: None,
            shared_expert: None,
            bos: config.integers("bos_token_id")?.first().copied(),
            eos: config.integers("eos_token_id")?,
        };
        if config.flag("use_bidirectional_attention")? == Some(true) {
            return Err(Error::unsupported("attention that looks ahead (`use_bidirectional_attention`)"));
        }
        if config.number("clip_qkv")?.is_some() {
            return Err(Error::unsupported("queries, keys and values that are clipped (`clip_qkv`)"));
        }
        let count = config.required_size("num_hidden_layers")?;
        if count > MAX_LAYERS {
            return Err(Error::unsupported(format!("{count} layers")).expected(format!("at most {MAX_LAYERS}")));
        }
        let width = Width { head_dim, max_positions, context: options.context(max_positions) };
        decoder.read_layers(config, family, count, width)?;
        if decoder.layers.contains(&Layer::DeltaNet) {
            decoder.delta_net = Some(delta_net(config)?);
        }
        decoder.experts = mixture(config, family, count)?;
        Ok(decoder)
    }

    /// Refuses BOS and EOS tokens outside the vocabulary. A token of -1 stands for none.
    pub fn check_tokens(&mut self) -> Result<(), Error> {
        self.bos = self.bos.filter(|token| *token != -1);
        self.eos.retain(|token| *token != -1);
        let is_known = |token: &i64| usize::try_from(*token).is_ok_and(|token| token < self.vocab);
        match self.bos.iter().chain(&self.eos).find(|token| !is_known(token)) {
            None => Ok(()),
            Some(token) => Err(damaged("the configuration names a token that the model does not have")
                .expected(format!("`bos_token_id` and `eos_token_id` below `vocab_size`, {}", self.vocab))
                .got(token)),
        }
    }

    /// Returns a linear layer's name in Hugging Face's checkpoints, and the part of it after the layer's number. Covers
    /// the linear layers of attention, short convolutions, gated delta nets and feed-forward networks; `None` for other
    /// modules.
    pub fn published_linear(&self, module: &str) -> Option<(String, &'static str)> {
        let (layer, kind) = module.strip_prefix(self.names.layers)?.strip_prefix('.')?.split_once('.')?;
        let published = self.names.linears().into_iter().zip(self.published_names.linears());
        let (_, kind) = published.into_iter().find(|(name, _)| *name == kind)?;
        Some((format!("{}.{layer}.{kind}", self.published_names.layers), kind))
    }

    fn read_layers(&mut self, config: Config<'_>, family: &Family, count: usize, width: Width) -> Result<(), Error> {
        // Some configurations use 0 for no window.
        let window = match config.number("sliding_window")? {
            Some(0.0) => None,
            _ => config.size("sliding_window")?,
        };
        let kinds = kinds(config, family, count, window)?;
        let skipped = match family.ropes {
            Ropes::Skipped => config.numbers("no_rope_layers")?,
            _ => None,
        };
        let interval = config.size("no_rope_layer_interval")?.unwrap_or(4);
        for (index, kind) in kinds.into_iter().enumerate() {
            let has_window = match kind {
                Kind::Conv => {
                    self.layers.push(Layer::Conv { taps: config.size("conv_L_cache")?.unwrap_or(3) });
                    continue;
                }
                Kind::Linear => {
                    self.layers.push(Layer::DeltaNet);
                    continue;
                }
                Kind::Full => false,
                Kind::Sliding => true,
            };
            let has_rope = match (&skipped, family.ropes) {
                (Some(list), _) => list.get(index).is_none_or(|used| *used != 0.0),
                (None, Ropes::Skipped) => !(index + 1).is_multiple_of(interval),
                _ => true,
            };
            let rope = if has_rope { Some(self.rope(config, family, has_window, width)?) } else { None };
            // A window as wide as the context has no effect.
            let window = window.filter(|window| has_window && *window < width.context);
            self.layers.push(Layer::Attention { window, rope });
        }
        Ok(())
    }

    /// Returns the index of a layer's RoPE. Adds it if no earlier layer has the same.
    fn rope(&mut self, config: Config<'_>, family: &Family, has_window: bool, width: Width) -> Result<usize, Error> {
        let global = config.positive("rope_theta")?.unwrap_or(family.theta);
        let fraction = config.positive("partial_rotary_factor")?.unwrap_or(family.rotary_fraction);
        let scaling = config.object("rope_scaling")?;
        let parameters = config.object("rope_parameters")?;
        // The parameters of each kind of layer, or of all layers.
        let of_kind = match parameters {
            Some(all) => all.object(if has_window { "sliding_attention" } else { "full_attention" })?,
            None => None,
        };
        let (settings, theta) = match (family.ropes, of_kind) {
            (Ropes::Local(local), Some(settings)) => (Some(settings), if has_window { local } else { global }),
            (_, Some(settings)) => (Some(settings), global),
            (Ropes::Local(local), None) if has_window => {
                (None, config.positive("rope_local_base_freq")?.unwrap_or(local))
            }
            _ => (scaling.or(parameters), global),
        };
        // LongRoPE's lengths are outside of its settings, next to them.
        let rope = Rope::of(settings, theta, fraction, config.positive("original_max_position_embeddings")?, width)?;
        Ok(match self.ropes.iter().position(|known| *known == rope) {
            Some(known) => known,
            None => {
                self.ropes.push(rope);
                self.ropes.len() - 1
            }
        })
    }
}

/// Inner width of a feed-forward network, if the configuration has it.
pub(crate) fn feed_forward_width(config: Config<'_>) -> Result<Option<usize>, Error> {
    let given = match config.size("block_ff_dim")? {
        Some(given) => Some(given),
        None => config.size("intermediate_size")?,
    };
    let adjusts = match config.flag("block_auto_adjust_ff_dim")? {
        Some(adjusts) => adjusts,
        // LFM2 does so by default.
        None => config.text("model_type")? == Some("lfm2"),
    };
    let Some(width) = given.filter(|_| adjusts) else { return Ok(given) };
    let (factor, multiple) = (config.positive("block_ffn_dim_multiplier")?, config.size("block_multiple_of")?);
    let width = (factor.unwrap_or(1.0) * (2 * width / 3) as f64) as usize;
    Ok(Some(width.next_multiple_of(multiple.unwrap_or(256))))
}

/// The sizes of the gated delta nets that a configuration describes.
fn delta_net(config: Config<'_>) -> Result<DeltaNet, Error> {
    let size = |key: &str, default| Ok::<_, Error>(config.size(key)?.unwrap_or(default));
    let net = DeltaNet {
        key_heads: size("linear_num_key_heads", 16)?,
        value_heads: size("linear_num_value_heads", 32)?,
        key_dim: size("linear_key_head_dim", 128)?,
        value_dim: size("linear_value_head_dim", 128)?,
        taps: size("linear_conv_kernel_dim", 4)?,
    };
    let widths = [net.key_dim, net.value_dim];
    if widths.iter().any(|width| *width > MAX_HEAD) || !net.value_heads.is_multiple_of(net.key_heads) {
        return Err(damaged("the heads of gated delta nets do not fit each other")
            .expected(
                "`linear_num_value_heads` as a multiple of `linear_num_key_heads`, and up to 65536 columns for each",
            )
            .got(format!("{} and {} heads, {widths:?} columns", net.value_heads, net.key_heads)));
    }
    if net.taps > MAX_TAPS || net.value_heads > MAX_HEAD {
        return Err(Error::unsupported("gated delta nets of such sizes")
            .expected(format!("at most {MAX_TAPS} positions of the convolution, and {MAX_HEAD} heads"))
            .got(format!("{} positions, {} heads", net.taps, net.value_heads)));
    }
    Ok(net)
}

/// The mixture of experts that a configuration describes, if its family has one.
fn mixture(config: Config<'_>, family: &Family, layers: usize) -> Result<Option<Mixture>, Error> {
    let Some(names) = family.names.experts else { return Ok(None) };
    let count = match config.size("num_local_experts")? {
        Some(count) => count,
        None => config.required_size("num_experts")?,
    };
    let chosen = config.required_size("num_experts_per_tok")?;
    if count as i64 > MAX_EXPERTS || chosen > count {
        return Err(damaged("a mixture of experts that cannot be")
            .expected(format!("at most {MAX_EXPERTS} experts, and `num_experts_per_tok` of at most their number"))
            .got(format!("{chosen} of {count} experts")));
    }
    let width = match config.size("moe_intermediate_size")? {
        Some(width) => width,
        None => config.required_size("intermediate_size")?,
    };
    let (step, dense) = (config.size("decoder_sparse_step")?.unwrap_or(1), config.integers("mlp_only_layers")?);
    let is_sparse = |index: usize| (index + 1).is_multiple_of(step) && !dense.contains(&(index as i64));
    Ok(Some(Mixture {
        count,
        chosen,
        width,
        are_normalized: match names.are_normalized {
            Some(always) => always,
            None => config.flag("norm_topk_prob")?.unwrap_or(false),
        },
        layers: (0..layers).map(is_sparse).collect(),
    }))
}

/// The kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    Sliding,
    Conv,
    Linear,
}

/// The kinds of all layers.
fn kinds(config: Config<'_>, family: &Family, count: usize, window: Option<usize>) -> Result<Vec<Kind>, Error> {
    let sliding = |is_sliding: bool| if is_sliding { Kind::Sliding } else { Kind::Full };
    if family.windows == Windows::All {
        return Ok(vec![sliding(window.is_some()); count]);
    }
    if family.windows == Windows::Switched && config.flag("use_sliding_window")? != Some(true) {
        return Ok(vec![Kind::Full; count]);
    }
    if let Some(list) = config.texts("layer_types")? {
        if list.len() != count {
            return Err(damaged("`layer_types` does not list all layers").expected(count).got(list.len()));
        }
        let kind = |text: &str| match text {
            "full_attention" => Ok(Kind::Full),
            "sliding_attention" => Ok(Kind::Sliding),
            "conv" => Ok(Kind::Conv),
            "linear_attention" if family.names.delta_net.is_some() => Ok(Kind::Linear),
            other => Err(Error::unsupported(format!("layers of the type `{other}`"))
                .expected("full_attention, sliding_attention or conv, and linear_attention of families that have it")),
        };
        return list.into_iter().map(kind).collect();
    }
    if let Some(attend) = config.numbers("full_attn_idxs")? {
        let kind = |index| if attend.contains(&(index as f64)) { Kind::Full } else { Kind::Conv };
        return Ok((0..count).map(kind).collect());
    }
    if family.names.delta_net.is_some() {
        let interval = config.size("full_attention_interval")?.unwrap_or(4);
        let kind = |number: usize| if number.is_multiple_of(interval) { Kind::Full } else { Kind::Linear };
        return Ok((1..=count).map(kind).collect());
    }
    Ok(match family.windows {
        Windows::Pattern(pattern) => {
            let pattern = config.size("sliding_window_pattern")?.unwrap_or(pattern);
            (1..=count).map(|number| sliding(!number.is_multiple_of(pattern))).collect()
        }
        // Qwen's layers from a given layer on; SmolLM3 lists the layers without RoPE.
        Windows::Switched => {
            let first = config.size("max_window_layers")?.unwrap_or(count);
            (0..count).map(|index| sliding(index >= first)).collect()
        }
        Windows::Listed | Windows::All => vec![Kind::Full; count],
    })
}

fn activation(config: Config<'_>) -> Result<Activation, Error> {
    let name = match config.text("hidden_activation")? {
        Some(name) => name,
        None => config.text("hidden_act")?.unwrap_or("silu"),
    };
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Ok(Activation::GeluTanh),
        "gelu" => Ok(Activation::Gelu),
        other => {
            Err(Error::unsupported(format!("the activation `{other}`")).expected("silu, gelu or gelu_pytorch_tanh"))
        }
    }
}
