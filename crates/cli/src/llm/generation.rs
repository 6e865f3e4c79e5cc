//! Arguments of the commands that generate text: the model, its tokenizer, and sampling.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use rushlight::{LoadMode, Lower};
use rushlight_llm::{Adapter, Draft, DraftModel, Dry, Generation, Mirostat, Model, Sampling, Speculation, Tokenizer};

use crate::arguments::{self, count};
use crate::failure::Failure;

/// A LoRA adapter.
#[derive(Args)]
pub struct Lora {
    /// The folder of a LoRA adapter as PEFT saves it, with adapter_config.json and adapter_model.safetensors; compile
    /// the model with `--lora-rank`
    #[arg(long, value_name = "FOLDER")]
    lora: Option<PathBuf>,

    /// Scale of the adapter
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "lora", allow_negative_numbers = true)]
    lora_scale: f32,
}

impl Lora {
    /// Loads a model, and adds the adapter to its sessions.
    pub fn load(&self, model: &arguments::Model, running: &arguments::Running) -> Result<Model, Failure> {
        let mut model = Model::new(model.load_to_run(running)?)?;
        if let Some(folder) = &self.lora {
            let adapter = Adapter::open(&model, folder, self.lora_scale)?;
            model.set_adapter(Some(adapter))?;
        }
        Ok(model)
    }
}

/// A language model and its tokenizer.
#[derive(Args)]
pub struct TextModel {
    #[command(flatten)]
    pub model: arguments::Model,
    #[command(flatten)]
    pub running: arguments::Running,
    #[command(flatten)]
    pub lora: Lora,

    /// The tokenizer: a file of Hugging Face, SentencePiece, tiktoken, Mistral or llama2.c, a .gguf, a folder, or a
    /// .pte that contains one. By default the one inside the model, or else MODEL.tokenizer.json, tokenizer.json,
    /// tekken.json, tokenizer.model or tokenizer.bin beside it
    #[arg(long, short, value_name = "FILE|FOLDER")]
    tokenizer: Option<PathBuf>,
}

impl TextModel {
    pub fn load(&self) -> Result<Model, Failure> {
        self.lora.load(&self.model, &self.running)
    }

    pub fn tokenizer(&self) -> Result<Tokenizer, Failure> {
        Ok(match &self.tokenizer {
            Some(path) => Tokenizer::open(path)?,
            None => {
                // The file is mapped in any mode, because the run reads it again.
                let module = self.model.load_with(|builder| builder.lower(Lower::Off).mode(LoadMode::Mmap))?;
                Tokenizer::of_model(module.program(), Some(&self.model.model))?
            }
        })
    }
}

/// The choice of tokens, and the end of the answer.
#[derive(Args)]
pub struct Options {
    /// Maximum number of tokens to generate; by default as many as fit in the context
    #[arg(long, short = 'n', value_name = "TOKENS")]
    max_new_tokens: Option<usize>,

    /// Sampling temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = Sampling::RANDOM.temperature, allow_negative_numbers = true)]
    temperature: f32,

    /// Choose among the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = Sampling::RANDOM.top_k)]
    top_k: usize,

    /// Choose among the most likely tokens, up to this total probability
    #[arg(long, value_name = "P", default_value_t = Sampling::RANDOM.top_p, allow_negative_numbers = true)]
    top_p: f32,

    /// Choose among tokens with at least this fraction of the highest probability
    #[arg(long, value_name = "P", default_value_t = Sampling::RANDOM.min_p, allow_negative_numbers = true)]
    min_p: f32,

    /// Choose among tokens whose information is closest to the entropy, up to this total probability
    #[arg(long, value_name = "P", default_value_t = Sampling::RANDOM.typical_p, allow_negative_numbers = true)]
    typical_p: f32,

    /// Divide positive logits of earlier tokens by this, and multiply negative ones
    #[arg(long, value_name = "X", default_value_t = Sampling::RANDOM.repetition_penalty, allow_negative_numbers = true)]
    repetition_penalty: f32,

    /// Subtract this from logits of generated tokens
    #[arg(long, value_name = "X", default_value_t = Sampling::RANDOM.presence_penalty, allow_negative_numbers = true)]
    presence_penalty: f32,

    /// Subtract this from logits of generated tokens, once for each occurrence
    #[arg(long, value_name = "X", default_value_t = Sampling::RANDOM.frequency_penalty, allow_negative_numbers = true)]
    frequency_penalty: f32,

    /// Penalize tokens that continue a repetition (DRY): subtract this times the base to the power of the excess length
    /// from their logits; 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    dry_multiplier: f32,

    /// Base of the penalty for repetitions
    #[arg(long, value_name = "X", default_value_t = Dry::DEFAULT.base, allow_negative_numbers = true)]
    dry_base: f32,

    /// Length above which a repetition is penalized
    #[arg(long, value_name = "TOKENS", default_value_t = Dry::DEFAULT.allowed_length)]
    dry_allowed_length: usize,

    /// Number of last tokens that are searched for repetitions; by default all
    #[arg(long, value_name = "TOKENS")]
    dry_penalty_last_n: Option<usize>,

    /// A text that ends repetitions, in place of the line break, `:`, `"` and `*`; may be repeated, and `none` is none
    #[arg(long, value_name = "TEXT")]
    dry_sequence_breaker: Vec<String>,

    /// Keep the surprisal of the answer near a target, in place of top-k, top-p, min-p and typical-p: version 2 of
    /// mirostat; 0 is off
    #[arg(long, value_name = "VERSION", default_value = "0", value_parser = PossibleValuesParser::new(["0", "2"]))]
    mirostat: String,

    /// Target of mirostat, in bits
    #[arg(long, value_name = "BITS", default_value_t = Mirostat::DEFAULT.tau, allow_negative_numbers = true)]
    mirostat_tau: f32,

    /// Learning rate of mirostat
    #[arg(long, value_name = "X", default_value_t = Mirostat::DEFAULT.eta, allow_negative_numbers = true)]
    mirostat_eta: f32,

    /// Sample as ExecuTorch's runners do, with the temperature, the seed and top-p 0.9
    #[arg(long, conflicts_with_all = ["top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "dry_multiplier", "mirostat"])]
    executorch_sampler: bool,

    /// Seed of the random number generator; the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = Sampling::RANDOM.seed)]
    seed: u64,

    /// A text that ends the answer; may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Continue after tokens that end an answer
    #[arg(long)]
    ignore_eos: bool,

    /// Guess tokens, and verify several in one call: the answer is the same, and is faster if the guesses are right.
    /// Compile the model with `--full-logits`
    #[arg(long, value_name = "HOW", conflicts_with = "draft_model")]
    speculate: Option<Guess>,

    /// Guess tokens with a smaller model that has the same tokens
    #[arg(long, value_name = "FILE")]
    pub draft_model: Option<PathBuf>,

    /// Maximum number of tokens to guess at a time
    #[arg(long, value_name = "TOKENS", default_value_t = Speculation::MAX_DRAFT, value_parser = count)]
    draft_max: usize,
}

/// A way to guess tokens without a model.
#[derive(Clone, Copy, ValueEnum)]
enum Guess {
    /// The continuation after an earlier occurrence of the last tokens
    Lookup,
}

impl Options {
    pub fn generation(&self, tokenizer: &Tokenizer) -> Result<Generation, Failure> {
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            dry: self.dry(tokenizer)?,
            mirostat: (self.mirostat == "2").then_some(Mirostat { tau: self.mirostat_tau, eta: self.mirostat_eta }),
            executorch: self.executorch_sampler,
            logit_bias: Vec::new(),
            seed: self.seed,
        };
        Ok(Generation {
            max_new_tokens: self.max_new_tokens,
            sampling,
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            log_probabilities: None,
            speculation: self.speculation(),
        })
    }

    fn dry(&self, tokenizer: &Tokenizer) -> Result<Option<Dry>, Failure> {
        if self.dry_multiplier == 0.0 {
            return Ok(None);
        }
        let dry = Dry {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: self.dry_allowed_length,
            last: self.dry_penalty_last_n,
            ..Dry::DEFAULT
        };
        Ok(Some(dry.break_at_given(tokenizer, &self.dry_sequence_breaker)?))
    }

    fn speculation(&self) -> Option<Speculation> {
        let Guess::Lookup = self.speculate?;
        Some(Speculation::lookup(self.draft_max))
    }

    /// Returns the source of guessed tokens, if guesses are asked for.
    pub fn draft(&self, model: &Model, files: &TextModel) -> Result<Option<Box<dyn Draft>>, Failure> {
        if let Some(path) = &self.draft_model {
            let file = arguments::Model { model: path.clone(), data: Vec::new(), load_mode: files.model.load_mode };
            let draft = file.load_to_run(&files.running)?;
            return Ok(Some(Box::new(DraftModel::new(Model::new(draft)?, model, self.draft_max)?)));
        }
        Ok(self.speculation().map(|speculation| Box::new(speculation) as Box<dyn Draft>))
    }
}
