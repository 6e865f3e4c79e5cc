//! The properties in which families of decoders differ, as types.

use rushlight_checkpoint::fields::Form;

/// A family of decoders that share a configuration and an architecture.
#[derive(Debug)]
pub struct Family {
    /// The name for people.
    pub name: &'static str,
    /// Values of `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// The value of `general.architecture` in GGUF files; `None` if such files are not read.
    pub architecture: Option<&'static str>,
    pub(crate) names: Names,
    /// True if llama.cpp reordered the rows of queries and keys, so that the two rows of a RoPE pair are adjacent.
    pub(crate) has_paired_rows: bool,
    /// The activation in GGUF files, which do not store it; `None` for SiLU.
    pub(crate) gguf_activation: Option<&'static str>,
    /// Offset that is added to the weights of norms.
    pub(crate) norm_offset: f32,
    pub(crate) qk_norm: QkNorm,
    pub(crate) windows: Windows,
    pub(crate) ropes: Ropes,
    pub(crate) attention_scale: AttentionScale,
    pub(crate) embedding_scale: EmbeddingScale,
    /// Base of the rotary frequencies if the configuration has none.
    pub(crate) theta: f64,
    /// Fraction of a head's columns that RoPE rotates, if the configuration has none.
    pub(crate) rotary_fraction: f64,
    /// True if the projection to queries also gives each head a gate. The sigmoid of the gate multiplies the head's
    /// result.
    pub(crate) has_gated_attention: bool,
    /// Fields of its configuration that other families do not have, with the form of each.
    pub(crate) fields: &'static [(&'static str, Form)],
}

/// The usual name of the last norm.
pub(crate) const NORM: &str = "model.norm";

/// Names of modules. Those of a layer follow its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub embedding: &'static str,
    pub norm: &'static str,
    pub head: &'static str,
    pub layers: &'static str,
    /// Norms around attention and the feed-forward network; `None` for norms that a family lacks.
    pub before_attention: Option<&'static str>,
    pub after_attention: Option<&'static str>,
    pub before_feed_forward: Option<&'static str>,
    pub after_feed_forward: Option<&'static str>,
    /// Projections to queries, keys and values: three projections, or one for all.
    pub qkv: Joined<3>,
    pub o: &'static str,
    pub q_norm: &'static str,
    pub k_norm: &'static str,
    /// Projections to the gate and to the values that it multiplies.
    pub gate_up: Joined<2>,
    pub down: &'static str,
    /// Short convolution.
    pub conv: Conv,
    pub delta_net: Option<DeltaNet>,
    pub experts: Option<Experts>,
}

/// Names of a gated delta net, which some layers have instead of attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaNet {
    /// Projections to queries, keys and values, to the gate of the result, to the update rate of the state, and to its
    /// decay.
    pub qkv: &'static str,
    pub gate: &'static str,
    pub beta: &'static str,
    pub decay: &'static str,
    /// The convolution of queries, keys and values over positions.
    pub conv: &'static str,
    /// Logarithms of the decay factors, and the bias of the decay's projection.
    pub decay_log: &'static str,
    pub decay_bias: &'static str,
    pub norm: &'static str,
    pub output: &'static str,
}

/// Names of a mixture of experts, which some layers have instead of one feed-forward network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experts {
    /// The linear layer whose softmax weights the experts.
    pub router: &'static str,
    /// The prefix of an expert's number. GGUF files number no experts: one tensor has the matrices of all experts of a
    /// layer. In older GGUF files the name of the layer is this prefix.
    pub each: Option<&'static str>,
    /// Names of the linear layers of an expert.
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    /// The expert that all tokens go to.
    pub shared: Option<SharedExpert>,
    /// True if the weights of the chosen experts are divided by their sum; `None` if `norm_topk_prob` decides.
    pub are_normalized: Option<bool>,
    /// The default for GGUF files without that setting.
    pub are_normalized_in_gguf: bool,
}

/// Names of the layers of a shared expert, and of its router. The sigmoid of the router weights the expert's result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedExpert {
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    pub router: &'static str,
}

/// Linear layers with the same input: separate, or one layer with their outputs concatenated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Joined<const N: usize> {
    Apart([&'static str; N]),
    One(&'static str),
}

impl<const N: usize> Joined<N> {
    fn names(&self) -> &[&'static str] {
        match self {
            Self::Apart(names) => names,
            Self::One(name) => std::slice::from_ref(name),
        }
    }
}

/// Names of a short convolution: the projection to its gates and input, the convolution, and the projection of its output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv {
    pub input: &'static str,
    pub conv: &'static str,
    pub output: &'static str,
}

/// Norms of queries and keys before RoPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QkNorm {
    None,
    /// A norm over each head.
    Head,
    /// A norm over all heads together.
    Whole,
}

/// The layers that attend to a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// None, unless `layer_types` lists them.
    Listed,
    /// All, if `sliding_window` is given.
    All,
    /// If `use_sliding_window` is true, the layers that `layer_types` lists, or else those from `max_window_layers` on.
    Switched,
    /// The layers that `layer_types` lists, or else all but every n-th, where n is `sliding_window_pattern`.
    Pattern(usize),
}

/// The differences in RoPE between layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ropes {
    /// All have the same.
    Same,
    /// `no_rope_layers` marks layers without RoPE with 0. By default, every n-th layer has none, where n is
    /// `no_rope_layer_interval` or 4.
    Skipped,
    /// Layers with a window have frequencies of their own. Their base is `rope_local_base_freq`, or this default.
    Local(f64),
}

/// The factor of the scores of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionScale {
    /// The inverse root of the head's width.
    HeadDim,
    /// The inverse square root of a number in the configuration.
    InverseRoot(&'static str),
    /// A number in the configuration.
    Number(&'static str),
}

/// The factor of embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmbeddingScale {
    One,
    /// The square root of their width.
    RootOfWidth,
    /// A number in the configuration.
    Number(&'static str),
}

impl Names {
    /// The names in GGUF files, where most families use the same names.
    pub(crate) fn of_gguf(&self) -> Self {
        Self {
            embedding: "token_embd",
            norm: if self.norm == NORM { "output_norm" } else { "token_embd_norm" },
            head: "output",
            layers: "blk",
            before_attention: self.before_attention.map(|_| "attn_norm"),
            after_attention: self.after_attention.map(|_| "post_attention_norm"),
            before_feed_forward: self.before_feed_forward.map(|_| "ffn_norm"),
            after_feed_forward: self.after_feed_forward.map(|_| "post_ffw_norm"),
            qkv: match self.qkv {
                Joined::Apart(_) => Joined::Apart(["attn_q", "attn_k", "attn_v"]),
                Joined::One(_) => Joined::One("attn_qkv"),
            },
            o: "attn_output",
            q_norm: "attn_q_norm",
            k_norm: "attn_k_norm",
            gate_up: match self.gate_up {
                Joined::Apart(_) => Joined::Apart(["ffn_gate", "ffn_up"]),
                Joined::One(_) => Joined::One("ffn_up"),
            },
            down: "ffn_down",
            conv: Conv { input: "shortconv.in_proj", conv: "shortconv.conv", output: "shortconv.out_proj" },
            delta_net: self.delta_net,
            experts: self.experts.map(Experts::of_gguf),
        }
    }

    /// Names of the linear layers of attention, short convolutions, gated delta nets and feed-forward networks. The
    /// order is the same for all file formats.
    pub(crate) fn linears(&self) -> Vec<&'static str> {
        let rest = [self.o, self.down, self.conv.input, self.conv.output];
        let delta_net = self.delta_net.map(|net| [net.qkv, net.gate, net.beta, net.decay, net.output]);
        [self.qkv.names(), self.gate_up.names(), &rest, delta_net.as_slice().as_flattened()].concat()
    }
}

impl Experts {
    fn of_gguf(self) -> Self {
        Self {
            router: "ffn_gate_inp",
            each: None,
            gate: "ffn_gate",
            up: "ffn_up",
            down: "ffn_down",
            shared: self.shared.map(|_| SharedExpert {
                gate: "ffn_gate_shexp",
                up: "ffn_up_shexp",
                down: "ffn_down_shexp",
                router: "ffn_gate_inp_shexp",
            }),
            ..self
        }
    }
}
