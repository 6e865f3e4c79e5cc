//! Programs that are language models.

mod adapters;
mod call;
mod signature;

use std::path::Path;
use std::sync::Arc;

use rushlight::{Code, Fingerprint, MethodBatch, Module, Program, ValueInfo};
use rushlight_checkpoint::lora;

use crate::adapter::Adapter;
use crate::error::{Error, Result};
use crate::prompt::Part;
use signature::{Output, Positions, Signature};

pub(crate) use call::{Rows, SessionCall};

/// A program that takes tokens and returns logits: `forward(tokens: i64[1, T], …) -> [1, vocabulary]` or `[1, T,
/// vocabulary]` of f32, f16 or bf16. Some programs have the methods `prefill` and `decode` instead.
///
/// The second input holds positions: one number is the position of the first token, several numbers are the positions
/// of all tokens. A program without it has no KV cache, and computes the whole context at each call.
///
/// A program whose prompts may have rows of embeddings, such as those of images and sound, has two methods in place of `forward`.
/// `token_embedding(tokens: i64[1, T]) -> f32[1, T, dim]` returns the rows of tokens. `text_decoder(embeddings: f32[1, T, dim],
/// positions: i64)` has the output of `forward`. ExecuTorch's multimodal programs have the same two.
///
/// If a program's method `returns_hidden_states` returns true, it returns the hidden states of all tokens, `[1, T, hidden]`, in place
/// of logits. Such a program computes embeddings ([`Session::embed`](crate::Session::embed)), and generates nothing.
#[derive(Debug)]
pub struct Model {
    module: Module,
    signature: Signature,
    limits: Limits,
    /// The method for one token as a batch of several sessions.
    batch: MethodBatch,
    /// The same for sessions with adapters. It is made when the first such sessions are batched.
    adapted_batch: Option<MethodBatch>,
    /// Maximum number of sessions in a batch: without adapters, and with adapters.
    max_batch: [usize; 2],
    /// The adapter of new sessions.
    adapter: Option<Adapter>,
    /// The fingerprint of the program.
    fingerprint: Fingerprint,
    /// Shared with the session whose KV cache is in planned memory of the program, if there is one.
    planned: Arc<()>,
}

/// The place of the KV cache.
#[derive(Debug)]
pub(crate) enum State {
    /// A cache of the session's own.
    Own(rushlight::Session),
    /// In planned memory of the program; the model holds the other reference.
    InModule(#[expect(dead_code, reason = "the model counts the references")] Arc<()>),
}

/// Metadata of a model: the results of its metadata methods, and the size of its logits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of tokens in a call. Longer prompts are split into several calls.
    pub max_seq_len: usize,
    /// Number of positions of the KV cache.
    pub max_context_len: usize,
    /// Number of tokens in the vocabulary, which is the number of logits.
    pub vocab_size: usize,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
}

/// Maximum number of sessions in a call. Each session takes memory for intermediate results and outputs. Larger batches
/// take several calls.
const MAX_BATCH: usize = 16;

impl Model {
    /// Loads a program, lowered for this machine.
    ///
    /// # Errors
    /// Those of [`Module::load`], and `NotLanguageModel`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(Module::load(path)?)
    }

    /// Wraps a loaded module.
    ///
    /// # Errors
    /// `NotLanguageModel`, with the missing property.
    pub fn new(mut module: Module) -> Result<Self> {
        let signature = Signature::of(&mut module)?;
        let limits = signature.limits(&mut module)?;
        let batch = module.batch(&signature.methods[1])?;
        let fingerprint = module.fingerprint();
        let max_batch = if signature.positions == Positions::None { 1 } else { MAX_BATCH };
        Ok(Self {
            module,
            signature,
            limits,
            batch,
            adapted_batch: None,
            max_batch: [max_batch; 2],
            adapter: None,
            fingerprint,
            planned: Arc::new(()),
        })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Limits the context to `positions`, which are at most those that the program was compiled for. The memory of a KV cache behind
    /// them is never written, so it takes no room.
    ///
    /// # Errors
    /// `ContextLimit` for 0, and for more positions than the program has.
    pub fn limit_context(&mut self, positions: usize) -> Result<()> {
        let Limits { max_context_len, max_seq_len, .. } = &mut self.limits;
        if !(1..=*max_context_len).contains(&positions) {
            return Err(Error::ContextLimit { expected: *max_context_len, got: positions });
        }
        *max_context_len = positions;
        *max_seq_len = positions.min(*max_seq_len);
        Ok(())
    }

    /// Returns the module, for its report and options.
    pub fn module(&mut self) -> &mut Module {
        &mut self.module
    }

    pub(crate) fn program(&self) -> &Program<'static> {
        self.module.program()
    }

    /// Returns the inputs of a method, if there is one with this name.
    pub(crate) fn method_inputs(&self, name: &str) -> Option<Vec<ValueInfo>> {
        Some(self.module.meta(name).ok()?.inputs)
    }

    /// Sets the adapter of future sessions, or none.
    ///
    /// # Errors
    /// `AdapterOfAnotherModel` and `NoAdapters`.
    pub fn set_adapter(&mut self, adapter: Option<Adapter>) -> Result<()> {
        adapter.iter().try_for_each(|adapter| self.check_adapter(adapter))?;
        self.adapter = adapter;
        Ok(())
    }

    /// True for a program that was compiled with a rank for adapters.
    pub fn takes_adapters(&self) -> bool {
        self.method_inputs(lora::METHOD).is_some()
    }

    /// The adapter of new sessions.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.adapter.as_ref()
    }

    /// Makes the state of a session.
    ///
    /// # Errors
    /// `NotSupported`, as [`session`](Self::session) has it.
    pub(crate) fn new_state(&mut self) -> Result<State> {
        match self.module.session() {
            Ok(session) => Ok(State::Own(session)),
            Err(error) if error.code() == Code::NotSupported => {
                if self.signature.methods[0] != self.signature.methods[1] {
                    return Err(Error::NotSupported("`prefill` and `decode` do not share it"));
                }
                if Arc::strong_count(&self.planned) > 1 {
                    return Err(Error::NotSupported("there is one session at a time"));
                }
                self.clear_states();
                Ok(State::InModule(self.planned.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The fingerprint of the program.
    pub(crate) fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// True if each call computes all tokens from the first one on.
    pub(crate) fn has_no_cache(&self) -> bool {
        self.signature.positions == Positions::None
    }

    /// Returns the maximum length of a call that adds some of `count` tokens. Without a cache, one call adds all:
    /// several would compute earlier tokens again.
    pub(crate) fn max_call_len(&self, count: usize) -> usize {
        if self.has_no_cache() { count } else { self.limits.max_seq_len }
    }

    /// True if a call returns the logits of all of its tokens, false if only those of the last.
    pub(crate) fn has_all_logits(&self) -> bool {
        self.signature.output == Output::AllLogits
    }

    /// Number of elements of an embedding; `None` for a program that returns logits.
    pub fn embedding_size(&self) -> Option<usize> {
        (self.signature.output == Output::HiddenStates).then_some(self.signature.width)
    }

    /// Number of elements of a row of embeddings in a prompt ([`Part::Embeddings`]); `None` for a program that
    /// takes tokens alone.
    pub fn prompt_dim(&self) -> Option<usize> {
        self.signature.embedding.map(|embedding| embedding.dim)
    }

    /// Checks that the program can read a part of a prompt.
    pub(crate) fn check(&self, part: &Part<'_>) -> Result<()> {
        let vocabulary = self.limits.vocab_size;
        match *part {
            Part::Tokens(tokens) => match tokens.iter().find(|token| **token as usize >= vocabulary) {
                Some(token) => Err(Error::UnknownToken { token: *token, vocabulary }),
                None => Ok(()),
            },
            Part::Embeddings { rows, dim } => match self.prompt_dim() {
                None => Err(Error::TakesNoEmbeddings),
                Some(expected) if dim != expected || !rows.len().is_multiple_of(dim) => {
                    Err(Error::EmbeddingSize { expected, dim, elements: rows.len() })
                }
                Some(_) => Ok(()),
            },
        }
    }

    /// Clears the states in the memory of the program.
    pub(crate) fn clear_states(&mut self) {
        let names: Vec<String> = self.module.method_names().map(str::to_owned).collect();
        names.iter().for_each(|name| self.module.unload_method(name));
    }
}
