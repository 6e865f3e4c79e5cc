//! Arguments of the commands that generate text: the model, its tokenizer, and sampling.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use rushlight::options::Options as _;
use rushlight::{LoadMode, Lower, Module};
use rushlight_llm::{Adapter, Draft, DraftModel, Generation, GenerationOptions, Model, Pooling, Tokenizer};

use super::source::{Running, Source};
use crate::arguments;
use crate::failure::Failure;
use crate::option_args::OptionArgs;

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
    pub fn load(&self, source: &Source, running: &Running) -> Result<Model, Failure> {
        let mut model = Model::new(source.program(running)?.load_to_run(running)?)?;
        if let Some(positions) = source.context() {
            model.limit_context(positions)?;
        }
        if let Some(folder) = &self.lora {
            let adapter = Adapter::open(&model, folder, self.lora_scale)?;
            model.set_adapter(Some(adapter))?;
        }
        Ok(model)
    }
}

/// The pooling of embeddings.
#[derive(Args)]
pub struct PoolingChoice {
    /// Pooling of the hidden states of a text to its embedding, with a program of `compile --hidden-states`; choose the one
    /// that the model was trained with
    #[arg(long, value_name = "POOLING", default_value = "last", value_parser = ["last", "mean"])]
    pooling: String,
}

impl PoolingChoice {
    pub fn pooling(&self) -> Pooling {
        if self.pooling == "mean" { Pooling::Mean } else { Pooling::Last }
    }
}

/// A chat template in place of the tokenizer's.
#[derive(Args)]
pub struct Template {
    /// A file with a chat template, in place of the tokenizer's
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
}

impl Template {
    /// Gives a tokenizer the template, if there is one.
    pub fn apply(&self, mut tokenizer: Tokenizer) -> Result<Tokenizer, Failure> {
        if let Some(path) = &self.chat_template {
            let text = std::fs::read_to_string(path).map_err(|error| Failure::read(path, error))?;
            tokenizer.set_chat_template(&text)?;
        }
        Ok(tokenizer)
    }
}

/// A language model and its tokenizer.
#[derive(Args)]
pub struct TextModel {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub running: Running,
    #[command(flatten)]
    pub lora: Lora,

    /// The tokenizer: a file of Hugging Face, SentencePiece, tiktoken, Mistral or llama2.c, a .gguf, a folder, or a
    /// .pte that contains one. By default the one inside the model, or else MODEL.tokenizer.json, tokenizer.json,
    /// tekken.json, tokenizer.model or tokenizer.bin beside it
    #[arg(long, value_name = "FILE|FOLDER")]
    tokenizer: Option<PathBuf>,
}

impl TextModel {
    pub fn load(&self) -> Result<Model, Failure> {
        self.lora.load(&self.source, &self.running)
    }

    pub fn tokenizer(&self) -> Result<Tokenizer, Failure> {
        Ok(match &self.tokenizer {
            Some(path) => Tokenizer::open(path)?,
            None => match self.source.published_tokenizer()? {
                Some(tokenizer) => tokenizer,
                None => {
                    let module = load_to_read(&self.source.program(&self.running)?)?;
                    Tokenizer::of_model(module.program(), Some(self.source.path()))?
                }
            },
        })
    }
}

/// Loads a program to read its tokenizer. The file is mapped in any mode, because the run reads it again.
fn load_to_read(program: &arguments::Model) -> Result<Module, Failure> {
    program.load_with(|builder| Ok(builder.lower(Lower::Off).mode(LoadMode::Mmap)))
}

/// The choice of tokens, and the end of the answer: an argument for each row of the table of [`GenerationOptions`].
#[derive(Clone)]
pub struct Options {
    pub values: GenerationOptions,
    pub draft_model: Option<PathBuf>,
}

/// The rows that are arguments of `Form`, which reads files.
const FORMS: [&str; 3] = ["json_schema", "regex", "grammar"];

/// The rows of the table, as arguments.
fn table() -> OptionArgs<GenerationOptions> {
    OptionArgs::all().without(&FORMS)
}

/// Checks a maximum number of tokens. -1 stands for as many as fit, as users of llama.cpp write it.
fn token_count(text: &str) -> Result<String, String> {
    let count = if text == "-1" { Some(usize::MAX) } else { text.parse().ok() };
    count.map(|count| count.to_string()).ok_or_else(|| "expected 0 or more, or -1 for as many as fit".to_owned())
}

/// Names of options that ExecuTorch's sampler ignores: the rows between the temperature and itself.
fn ignored_by_executorch() -> impl Iterator<Item = &'static str> {
    let names = GenerationOptions::table().iter().map(|spec| spec.name);
    names.skip_while(|name| *name != "temperature").skip(1).take_while(|name| *name != "executorch_sampler")
}

impl Args for Options {
    fn augment_args(command: Command) -> Command {
        let draft_model = Arg::new("draft_model")
            .long("draft-model")
            .value_name("FILE.pte|FOLDER|FILE.gguf")
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("speculate")
            .help("Guess tokens with a smaller model that has the same tokens");
        table()
            .augment(command, |name, arg| match name {
                "max_new_tokens" => arg.short('n').alias("n-predict").value_parser(token_count),
                "temperature" => arg.visible_alias("temp"),
                "executorch_sampler" => arg.conflicts_with_all(ignored_by_executorch()),
                _ => arg,
            })
            .arg(draft_model)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Options {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = table().read(matches)?;
        Ok(Self { values, draft_model: matches.get_one("draft_model").cloned() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Options {
    pub fn generation(&self, tokenizer: &Tokenizer) -> Result<Generation, Failure> {
        Ok(self.values.generation(tokenizer)?)
    }

    /// Returns the source of guessed tokens, if guesses are asked for. `tokenizer` is that of the model.
    pub fn draft(
        &self,
        generation: &Generation,
        model: &Model,
        tokenizer: &Tokenizer,
        files: &TextModel,
    ) -> Result<Option<Box<dyn Draft>>, Failure> {
        if let Some(path) = &self.draft_model {
            let program = files.source.draft(path, &files.running)?;
            let draft = Model::new(program.load_to_run(&files.running)?)?;
            return Ok(Some(Box::new(DraftModel::new(draft, model, tokenizer, self.values.draft_max())?)));
        }
        Ok(generation.speculation.map(|speculation| Box::new(speculation) as Box<dyn Draft>))
    }
}
