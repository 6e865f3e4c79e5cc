//! The options of compiling a program.

use std::path::PathBuf;

#[cfg(feature = "backends")]
use rushlight_compiler::quantization::Scheme;
#[cfg(feature = "llm")]
use rushlight_decoders::{Options as LanguageModelOptions, Output};

use super::{Field, OptionError, OptionSpec, Options};
use crate::compile::Compiler;
use crate::error::Error;
use crate::kv_cache::KvCache;
#[cfg(feature = "backends")]
use crate::quantize::Quantization;
use crate::tokenizer::ProgramTokenizer;

/// The options of a [`Compiler`] that users set by name. [`apply`](Self::apply) sets them, and
/// [`language_model`](Self::language_model) returns those of a decoder.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CompilerOptions {
    /// [`Compiler::backend`], in the order of priority.
    pub backend: Vec<String>,
    /// [`Compiler::share_state`].
    pub share_state: bool,
    /// The name of a quantization scheme.
    pub quantize: Option<String>,
    /// Bits of embedding tables; 0 leaves them as they are.
    pub embeddings: usize,
    /// [`Compiler::kv_cache`].
    pub kv_cache: Option<String>,
    /// [`Compiler::tokenizer`].
    pub tokenizer: Option<PathBuf>,
    /// True to leave the tokenizer out of the program.
    pub no_tokenizer: bool,
    /// Positions of a language model's cache.
    pub max_context_len: Option<usize>,
    /// Maximum number of tokens in a call of a language model.
    pub max_seq_len: Option<usize>,
    /// True if a language model returns the logits of all tokens.
    pub full_logits: bool,
    /// True if a language model returns hidden states.
    pub hidden_states: bool,
    /// Maximum rank of LoRA adapters of a language model.
    pub lora_rank: Option<usize>,
}

static TABLE: &[OptionSpec<CompilerOptions>] = &[
    OptionSpec::new(
        "backend",
        Field::Texts(|options| &mut options.backend),
        "NAME[:KEY=VALUE,...]",
        "A backend that may claim nodes, with options such as `cpu:precision=bf16`; may be repeated, and the first one is \
         asked first",
    ),
    OptionSpec::new(
        "share_state",
        Field::Flag(|options| &mut options.share_state),
        "",
        "Treat buffers of the same name in several methods as one",
    ),
    #[cfg(feature = "backends")]
    OptionSpec::new(
        "quantize",
        Field::Choice(|| Scheme::ALL.map(|scheme| scheme.name).to_vec(), |options| &mut options.quantize),
        "SCHEME",
        "Quantize layers; schemes that need a calibration use the inputs that the export recorded, if no others are given",
    ),
    #[cfg(feature = "backends")]
    OptionSpec::new(
        "embeddings",
        Field::Version(&[0, 4, 8], |options| &mut options.embeddings),
        "BITS",
        "Quantize embedding tables to this number of bits: 8, per row, or 4, in groups of 32; 0 leaves them as they are",
    ),
    OptionSpec::new(
        "kv_cache",
        Field::Choice(|| KvCache::ALL.map(KvCache::name).to_vec(), |options| &mut options.kv_cache),
        "TYPE",
        "Element type of KV caches; int8 has a scale and a zero point for each row, int4 for each group of 32 elements; \
         f32 by default",
    ),
    OptionSpec::new(
        "tokenizer",
        Field::Path(|options| &mut options.tokenizer),
        "FILE|FOLDER",
        "The tokenizer to store in the program; by default that of the language model, if it has one",
    ),
    OptionSpec::new(
        "no_tokenizer",
        Field::Flag(|options| &mut options.no_tokenizer),
        "",
        "Leave the tokenizer out of the program",
    ),
    #[cfg(feature = "llm")]
    OptionSpec::new(
        "max_context_len",
        Field::Limit(1, usize::MAX, |options| &mut options.max_context_len),
        "TOKENS",
        "Positions of a language model's cache; by default those of the model, at most 2048",
    ),
    #[cfg(feature = "llm")]
    OptionSpec::new(
        "max_seq_len",
        Field::Limit(1, usize::MAX, |options| &mut options.max_seq_len),
        "TOKENS",
        "Maximum number of tokens in a call of a language model; by default all its positions",
    ),
    #[cfg(feature = "llm")]
    OptionSpec::new(
        "full_logits",
        Field::Flag(|options| &mut options.full_logits),
        "",
        "Make a language model return the logits of all tokens, rather than of the last one",
    ),
    #[cfg(feature = "llm")]
    OptionSpec::new(
        "hidden_states",
        Field::Flag(|options| &mut options.hidden_states),
        "",
        "Make a language model return the hidden states of all tokens, for embeddings, instead of logits",
    ),
    #[cfg(feature = "llm")]
    OptionSpec::new(
        "lora_rank",
        Field::Limit(1, usize::MAX, |options| &mut options.lora_rank),
        "RANK",
        "Give a language model a second method, which accepts LoRA adapters up to this rank",
    ),
];

impl Options for CompilerOptions {
    fn table() -> &'static [OptionSpec<Self>] {
        TABLE
    }
}

impl CompilerOptions {
    /// Sets the options of a compiler, but for those of a language model's decoder. `calibrate` adds calibration inputs to
    /// the quantization, if there is one.
    ///
    /// # Errors
    /// For values outside of the ranges, and for options that contradict each other.
    #[cfg(feature = "backends")]
    pub fn apply_with(
        &self,
        compiler: Compiler,
        calibrate: impl FnOnce(Quantization) -> Quantization,
    ) -> Result<Compiler, Error> {
        let mut compiler = self.apply_common(compiler)?;
        match (&self.quantize, self.embeddings) {
            (Some(scheme), bits) => {
                let quantization = Quantization::new(scheme.parse::<Scheme>()?);
                let quantization = match bits {
                    0 => quantization,
                    bits => quantization.embeddings(bits as u32),
                };
                compiler = compiler.quantize(calibrate(quantization));
            }
            (None, 0) => {}
            (None, bits) => return Err(OptionError::range("embeddings", "0 without `quantize`", bits).into()),
        }
        Ok(compiler)
    }

    /// As `apply_with`, without calibration inputs.
    ///
    /// # Errors
    /// The errors of `apply_with`.
    pub fn apply(&self, compiler: Compiler) -> Result<Compiler, Error> {
        #[cfg(feature = "backends")]
        return self.apply_with(compiler, |quantization| quantization);
        #[cfg(not(feature = "backends"))]
        return self.apply_common(compiler);
    }

    fn apply_common(&self, compiler: Compiler) -> Result<Compiler, Error> {
        let mut options = self.clone();
        TABLE.iter().try_for_each(|spec| spec.check(&mut options))?;
        let mut compiler = compiler.share_state(self.share_state);
        for backend in &self.backend {
            compiler = compiler.backend(backend.as_str());
        }
        if let Some(kind) = &self.kv_cache {
            compiler = compiler.kv_cache(kind.parse::<KvCache>()?);
        }
        Ok(match (&self.tokenizer, self.no_tokenizer) {
            (Some(_), true) => return Err(OptionError::range("no_tokenizer", "false with `tokenizer`", true).into()),
            (Some(path), false) => compiler.tokenizer(ProgramTokenizer::Of(path.clone())),
            (None, true) => compiler.tokenizer(ProgramTokenizer::Omitted),
            (None, false) => compiler,
        })
    }

    /// Returns the options of a language model's decoder.
    ///
    /// # Errors
    /// For options that contradict each other.
    #[cfg(feature = "llm")]
    pub fn language_model(&self) -> Result<LanguageModelOptions, Error> {
        let output = match (self.full_logits, self.hidden_states) {
            (true, true) => return Err(OptionError::range("full_logits", "false with `hidden_states`", true).into()),
            (true, false) => Output::AllLogits,
            (false, true) => Output::HiddenStates,
            (false, false) => Output::LastLogits,
        };
        let Self { max_context_len, max_seq_len, lora_rank, .. } = *self;
        Ok(LanguageModelOptions { max_context_len, max_seq_len, output, lora_rank, ..LanguageModelOptions::default() })
    }
}
