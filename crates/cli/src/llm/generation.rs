//! Arguments of the commands that generate text: the model, its tokenizer, and sampling.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rushlight_llm::{Draft, DraftModel, Generation, Model, Sampling, Speculation, Tokenizer};

use crate::arguments::{self, count};
use crate::failure::Failure;

/// A language model and its tokenizer.
#[derive(Args)]
pub struct TextModel {
    #[command(flatten)]
    pub model: arguments::Model,
    #[command(flatten)]
    pub running: arguments::Running,

    /// The tokenizer: a file of Hugging Face, SentencePiece, tiktoken, Mistral or llama2.c, a .gguf, or a folder; by default
    /// MODEL.tokenizer.json, tokenizer.json, tekken.json, tokenizer.model or tokenizer.bin beside the model
    #[arg(long, short, value_name = "FILE|FOLDER")]
    tokenizer: Option<PathBuf>,
}

impl TextModel {
    pub fn load(&self) -> Result<Model, Failure> {
        Ok(Model::new(self.model.load_to_run(&self.running, None)?)?)
    }

    pub fn tokenizer(&self) -> Result<Tokenizer, Failure> {
        let beside = || Tokenizer::beside(&self.model.model);
        match self.tokenizer.clone().or_else(beside) {
            Some(path) => Ok(Tokenizer::open(path)?),
            None => Err(Failure::Arguments(format!(
                "`{}` has no tokenizer beside it\n  help      name it with `--tokenizer`: `tokenizer.json`, `tokenizer.model`, `tekken.json` or a `.gguf`",
                self.model.model.display()
            ))),
        }
    }
}

/// How tokens are chosen, and when to stop.
#[derive(Args)]
pub struct Options {
    /// Maximum number of tokens to generate; by default as many as the context has room for
    #[arg(long, short = 'n', value_name = "TOKENS")]
    max_new_tokens: Option<usize>,

    /// Sampling temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.8, allow_negative_numbers = true)]
    temperature: f32,

    /// Choose among the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,

    /// Choose among the most likely tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_negative_numbers = true)]
    top_p: f32,

    /// Choose among tokens with at least this share of the probability of the most likely one
    #[arg(long, value_name = "P", default_value_t = 0.05, allow_negative_numbers = true)]
    min_p: f32,

    /// Choose among tokens whose information is closest to the entropy, as many as together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    typical_p: f32,

    /// Divide logits of tokens that were seen by this, and multiply negative ones
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    repetition_penalty: f32,

    /// Subtract this from logits of tokens that were generated
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,

    /// Subtract this from logits of tokens for each time that they were generated
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,

    /// Seed of the random number generator; the same one gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// A text that ends the answer; may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Go on after tokens that end an answer
    #[arg(long)]
    ignore_eos: bool,

    /// Guess tokens, and verify several in one call: the answer is the same, and comes faster where the guesses are right. The
    /// model is to be compiled with `--full-logits`
    #[arg(long, value_name = "HOW", conflicts_with = "draft_model")]
    speculate: Option<Guess>,

    /// Guess tokens by a smaller model that has the same tokens
    #[arg(long, value_name = "FILE")]
    draft_model: Option<PathBuf>,

    /// Maximum number of tokens to guess at a time
    #[arg(long, value_name = "TOKENS", default_value_t = 8, value_parser = count)]
    draft_max: usize,
}

/// How tokens are guessed without a model.
#[derive(Clone, Copy, ValueEnum)]
enum Guess {
    /// What followed the last tokens when they came before
    Lookup,
}

/// Tokens that have to be alike before what followed them is a guess.
const MAX_NGRAM: usize = 4;

impl Options {
    pub fn generation(&self) -> Generation {
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: Vec::new(),
            seed: self.seed,
        };
        Generation {
            max_new_tokens: self.max_new_tokens,
            sampling,
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            log_probabilities: None,
            speculation: self
                .speculate
                .map(|Guess::Lookup| Speculation::PromptLookup { max_ngram: MAX_NGRAM, max_draft: self.draft_max }),
        }
    }

    /// What guesses tokens, if that is asked for.
    pub fn draft(&self, model: &Model, files: &TextModel) -> Result<Option<Box<dyn Draft>>, Failure> {
        if let Some(path) = &self.draft_model {
            let file = arguments::Model { model: path.clone(), data: Vec::new(), load_mode: files.model.load_mode };
            let draft = file.load_to_run(&files.running, None)?;
            return Ok(Some(Box::new(DraftModel::new(Model::new(draft)?, model, self.draft_max)?)));
        }
        Ok(self.generation().speculation.map(|speculation| Box::new(speculation) as Box<dyn Draft>))
    }
}
