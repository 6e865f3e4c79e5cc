//! Options of the program of a decoder.

use rushlight_graph::{Error, ErrorKind};

/// Sizes of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of tokens in a call.
    pub seq_len: usize,
    /// Number of positions of the cache.
    pub context: usize,
}

/// Options of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Number of positions of the cache; by default those of the model, at most 2048.
    pub max_context_len: Option<usize>,
    /// Maximum number of tokens of a call; by default all positions.
    pub max_seq_len: Option<usize>,
    /// The output of a call.
    pub output: Output,
    /// Maximum rank of LoRA adapters: the program has a second method, [`METHOD`](rushlight_checkpoint::lora::METHOD), which takes one.
    pub lora_rank: Option<usize>,
    /// True for a program whose prompts may have rows of embeddings, such as those of images and sound. In place of `forward` it
    /// has the methods of ExecuTorch's multimodal programs: `token_embedding(tokens: i64[1, T]) -> f32[1, T, hidden]`, and
    /// `text_decoder(inputs_embeds: f32[1, T, hidden], start_pos: i64[1])` with the output. It takes no LoRA adapters.
    pub takes_embeddings: bool,
}

/// The output of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// The logits of the last token, `[1, vocabulary]`.
    #[default]
    LastLogits,
    /// The logits of all tokens, `[1, T, vocabulary]`.
    AllLogits,
    /// The hidden states of all tokens after the last norm, `[1, T, hidden]`: embeddings are made of them. The program has no head, and
    /// its method [`HIDDEN_STATES`] returns true.
    HiddenStates,
}

/// The metadata method of programs that return hidden states.
pub const HIDDEN_STATES: &str = "returns_hidden_states";

/// Positions by default.
const DEFAULT_CONTEXT: usize = 2048;
/// Maximum number of positions.
pub(crate) const MAX_CONTEXT: usize = 1 << 22;

impl Options {
    /// The number of positions of a program, for a model with `max_positions`.
    pub(crate) fn context(&self, max_positions: usize) -> usize {
        self.max_context_len.unwrap_or_else(|| max_positions.min(DEFAULT_CONTEXT))
    }

    pub(crate) fn limits(&self, max_positions: usize) -> Result<Limits, Error> {
        let context = self.context(max_positions);
        let seq_len = self.max_seq_len.unwrap_or(context);
        if context > max_positions.min(MAX_CONTEXT) || context == 0 {
            return Err(Error::new(ErrorKind::Option, "the context length is out of range")
                .expected(format!("from 1 to {}", max_positions.min(MAX_CONTEXT)))
                .got(context));
        }
        if seq_len == 0 || seq_len > context {
            return Err(Error::new(ErrorKind::Option, "the tokens of a call do not fit the positions")
                .expected(format!("from 1 to {context}"))
                .got(seq_len));
        }
        Ok(Limits { seq_len, context })
    }
}
