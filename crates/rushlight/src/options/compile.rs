//! The options of compiling a program.

use std::path::PathBuf;

#[cfg(feature = "_backends")]
use rushlight_compiler::quantization::Scheme;
#[cfg(feature = "llm")]
use rushlight_decoders::{Options as LanguageModelOptions, Output};
#[cfg(feature = "_backends")]
use rushlight_quantize::{Observer, Rounding};

#[cfg(feature = "_backends")]
use super::OptionValue;
use super::{Field, OptionError, OptionSpec, Options};
use crate::compile::Compiler;
use crate::error::Error;
use crate::kv_cache::KvCache;
#[cfg(feature = "_backends")]
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
    /// The name of the observer, which chooses the ranges of activations.
    pub observer: Option<String>,
    /// The name of the rounding of weights.
    pub weights: Option<String>,
    /// Patterns of the names of modules that stay in floats.
    pub keep: Vec<String>,
    /// Minimum signal-to-noise ratio of the outputs, in dB.
    pub min_snr: Option<f64>,
    /// True to keep the biases of convolutions.
    pub no_bias_correction: bool,
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
    #[cfg(feature = "_backends")]
    OptionSpec::new(
        "quantize",
        Field::Choice(|| Scheme::ALL.map(|scheme| scheme.name).to_vec(), |options| &mut options.quantize),
        "SCHEME",
        "Quantize layers; schemes that need a calibration use the inputs that the export recorded, if no others are given",
    ),
    #[cfg(feature = "_backends")]
    OptionSpec::new(
        "observer",
        Field::Choice(|| Observer::ALL.map(Observer::name).to_vec(), |options| &mut options.observer),
        "OBSERVER",
        "The choice of the ranges of activations from a calibration; histogram by default",
    ),
    #[cfg(feature = "_backends")]
    OptionSpec::new(
        "weights",
        Field::Choice(|| Rounding::ALL.map(Rounding::name).to_vec(), |options| &mut options.weights),
        "ROUNDING",
        "The rounding of quantized weights; mse by default, and gptq needs a calibration",
    ),
    #[cfg(feature = "_backends")]
    OptionSpec::new(
        "keep",
        Field::Texts(|options| &mut options.keep),
        "PATTERN",
        "Keep modules in float, by name; `*` is any text, a pattern that matches no module is an error, and it may be repeated",
    ),
    #[cfg(feature = "_backends")]
    OptionSpec::new(
        "min_snr",
        Field::Bound(|options| &mut options.min_snr),
        "DB",
        "Minimum signal-to-noise ratio of the outputs in dB: the worst layers stay in float until it is reached on the \
         calibration",
    ),
    #[cfg(feature = "_backends")]
    OptionSpec::new(
        "no_bias_correction",
        Field::Flag(|options| &mut options.no_bias_correction),
        "",
        "Keep the biases of convolutions, instead of correcting them for the shift that rounding causes in the means of results",
    ),
    #[cfg(feature = "_backends")]
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

/// The settings of a quantization, besides its scheme.
#[cfg(feature = "_backends")]
pub const QUANTIZING: &[&str] = &["embeddings", "observer", "weights", "keep", "min_snr", "no_bias_correction"];

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
    #[cfg(feature = "_backends")]
    pub fn apply_with(
        &self,
        compiler: Compiler,
        calibrate: impl FnOnce(Quantization) -> Quantization,
    ) -> Result<Compiler, Error> {
        let compiler = self.apply_common(compiler)?;
        match &self.quantize {
            Some(scheme) => Ok(compiler.quantize(calibrate(self.quantization(scheme.parse()?)?))),
            None => match self.quantizing() {
                Some((name, value)) => {
                    Err(OptionError::range(name, "the default without `quantize`, of which it is a setting", value)
                        .into())
                }
                None => Ok(compiler),
            },
        }
    }

    /// The settings of a quantization.
    #[cfg(feature = "_backends")]
    fn quantization(&self, scheme: Scheme) -> Result<Quantization, Error> {
        let mut quantization = Quantization::new(scheme).bias_correction(!self.no_bias_correction);
        if self.embeddings > 0 {
            quantization = quantization.embeddings(self.embeddings as u32);
        }
        if let Some(observer) = &self.observer {
            quantization = quantization.observer(observer.parse()?);
        }
        if let Some(rounding) = &self.weights {
            quantization = quantization.rounding(rounding.parse()?);
        }
        quantization = self.keep.iter().fold(quantization, Quantization::keep);
        Ok(match self.min_snr {
            Some(decibels) => quantization.min_snr(decibels),
            None => quantization,
        })
    }

    /// The name and value of a setting of a quantization that is not the default.
    #[cfg(feature = "_backends")]
    fn quantizing(&self) -> Option<(&'static str, OptionValue)> {
        let (mut given, mut default) = (self.clone(), Self::default());
        QUANTIZING.iter().find_map(|name| {
            let spec = Self::spec(name).ok()?;
            let value = spec.field.get(&mut given);
            (value != spec.field.get(&mut default)).then_some((*name, value))
        })
    }

    /// As `apply_with`, without calibration inputs.
    ///
    /// # Errors
    /// The errors of `apply_with`.
    pub fn apply(&self, compiler: Compiler) -> Result<Compiler, Error> {
        #[cfg(feature = "_backends")]
        return self.apply_with(compiler, |quantization| quantization);
        #[cfg(not(feature = "_backends"))]
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
