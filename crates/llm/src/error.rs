//! Errors of this crate.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use rushlight::Code;
use rushlight_compiler::front::llm::lora;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The program cannot be loaded, or a call of it failed.
    Module(rushlight::Error),
    /// A file cannot be read.
    File { path: PathBuf, error: io::Error },
    /// A tokenizer's file is damaged or of an unknown kind, or it cannot encode a text.
    Tokenizer(String),
    /// A model has no tokenizer: its program carries none, and none of the files that were looked at is there.
    NoTokenizer { model: Option<PathBuf>, looked_at: Vec<PathBuf> },
    /// A chat template is damaged, or refuses the messages.
    Template(String),
    /// A grammar that cannot be read, or takes too much, or allows nothing.
    #[cfg(feature = "grammar")]
    Grammar(String),
    /// The program is no language model.
    NotLanguageModel { problem: String },
    /// The program returns hidden states, where logits are needed.
    ReturnsHiddenStates,
    /// The program returns logits, where hidden states are needed.
    ReturnsLogits,
    /// There is no token to begin with.
    NoTokens,
    /// A token that the model does not have.
    UnknownToken { token: u32, vocabulary: usize },
    /// More tokens than positions that are left.
    ContextFull { position: usize, tokens: usize, capacity: usize },
    /// A session cannot go to a position that it has not reached.
    NotReached { position: usize, reached: usize },
    /// An earlier call of the session failed, so that its cache may be incomplete: `Session::reset` makes it usable again.
    Poisoned,
    /// No logit is a number above negative infinity.
    NoLogits,
    /// The KV cache is in planned memory of the program, where sessions cannot do this.
    NotSupported(&'static str),
    /// A draft model that does not have the tokens of the model.
    DraftVocabulary { expected: usize, got: usize },
    /// A draft model whose session cannot go back, as it has to after each wrong guess.
    DraftRewind,
    /// A draft of the caller's own failed.
    Draft(String),
    /// The bytes are no saved session.
    NoSession,
    /// A saved session of another adapter.
    OtherAdapter,
    /// The program takes no adapters.
    NoAdapters,
    /// An adapter that was read for a model of other layers.
    AdapterOfAnotherModel,
    /// A scale of an adapter that is infinite or NaN.
    AdapterScale(f32),
    /// Options of sampling that mean nothing.
    Sampling { option: &'static str, expected: &'static str, got: f64 },
}

impl Error {
    /// The code of ExecuTorch's runtime for it.
    pub fn code(&self) -> Code {
        match self {
            Self::Module(error) => error.code(),
            Self::File { .. } => Code::AccessFailed,
            Self::NoTokenizer { .. } => Code::NotFound,
            Self::NotLanguageModel { .. } | Self::Tokenizer(_) => Code::InvalidProgram,
            Self::ContextFull { .. } => Code::OutOfResources,
            Self::Poisoned | Self::NotReached { .. } => Code::InvalidState,
            Self::NotSupported(_) | Self::ReturnsHiddenStates | Self::NoAdapters => Code::NotSupported,
            Self::NoLogits => Code::Internal,
            _ => Code::InvalidArgument,
        }
    }

    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }

    pub(crate) fn not_a_model(problem: impl Into<String>) -> Self {
        Self::NotLanguageModel { problem: problem.into() }
    }

    /// A part of the text, which has a line for each but the first: `expected`, `got` or `help`.
    pub fn part(&self, name: &str) -> Option<String> {
        let text = self.to_string();
        let mut lines = text.lines().skip(1);
        lines.find_map(|line| Some(line.trim_start().strip_prefix(name)?.strip_prefix(' ')?.trim().to_owned()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(error) => write!(f, "{error}"),
            Self::File { path, error } => write!(f, "cannot read `{}`: {error}", path.display()),
            Self::Tokenizer(problem) => write!(f, "tokenizer: {problem}"),
            Self::NoTokenizer { model, looked_at } => {
                match model {
                    Some(model) => write!(f, "`{}` carries no tokenizer", model.display())?,
                    None => write!(f, "the program carries no tokenizer")?,
                }
                if !looked_at.is_empty() {
                    write!(f, ", and none is beside it\n  expected ")?;
                }
                for (index, path) in looked_at.iter().enumerate() {
                    let before = match index {
                        0 => "",
                        _ if index + 1 == looked_at.len() => " or",
                        _ => ",",
                    };
                    write!(f, "{before} `{}`", path.display())?;
                }
                write!(
                    f,
                    "\n  help      name its file or folder (`--tokenizer`, `tokenizer=` in Python), or compile the model again"
                )
            }
            Self::Template(problem) => write!(f, "chat template: {problem}"),
            #[cfg(feature = "grammar")]
            Self::Grammar(problem) => write!(f, "grammar: {problem}"),
            Self::NotLanguageModel { problem } => write!(
                f,
                "the program is no language model: {problem}\n  expected  forward(tokens: i64[1, T], start_pos: i64[1]) -> logits"
            ),
            Self::ReturnsHiddenStates => write!(
                f,
                "the program returns hidden states: it has embeddings, and generates nothing\n  expected  logits\n  help      compile \
                 without --hidden-states"
            ),
            Self::ReturnsLogits => write!(
                f,
                "the program returns logits: it has no embeddings\n  expected  hidden states\n  help      compile with --hidden-states"
            ),
            Self::NoTokens => write!(f, "there is no token to begin with: the prompt is empty"),
            Self::UnknownToken { token, vocabulary } => write!(
                f,
                "the model has no token {token}\n  expected  0 to {}\n  help      use the tokenizer that belongs to the model",
                vocabulary.saturating_sub(1)
            ),
            Self::ContextFull { position, tokens, capacity } => write!(
                f,
                "the context is full\n  expected  at most {} more tokens, {position} of {capacity} positions are taken\n  got       \
                 {tokens}\n  help      begin anew, or compile with a larger --max-context-len",
                capacity.saturating_sub(*position)
            ),
            Self::NotReached { position, reached } => {
                write!(f, "the session cannot go to position {position}: it has {reached} tokens")
            }
            Self::Poisoned => write!(f, "an earlier call of this session failed: reset it to go on"),
            Self::NoLogits => {
                write!(f, "no logit is a number: the model computed NaN or negative infinity for all tokens")
            }
            Self::NotSupported(what) => write!(
                f,
                "{what}: the KV cache is in the memory of the program\n  help      compile for a backend that keeps it, as \
                 `--backend cpu`"
            ),
            Self::DraftVocabulary { expected, got } => write!(
                f,
                "the draft model has another vocabulary\n  expected  {expected} tokens, as the model has\n  got       {got}\n  help      \
                 use a smaller model of the same family"
            ),
            Self::DraftRewind => write!(
                f,
                "the draft model cannot go back after a wrong guess\n  expected  a program that a back end runs, without a ring cache or \
                 a recurrent state\n  help      compile it with `--backend cpu`, and a sliding window with a --max-seq-len of its context"
            ),
            Self::Draft(problem) => write!(f, "the draft: {problem}"),
            Self::NoSession => write!(f, "the bytes are no saved session"),
            Self::OtherAdapter => {
                write!(f, "the session was saved with another LoRA adapter, or without one: restore it with the same")
            }
            Self::AdapterOfAnotherModel => write!(f, "the LoRA adapter was read for a model with other layers"),
            Self::AdapterScale(scale) => {
                write!(f, "the scale of a LoRA adapter is no number\n  expected  a finite number\n  got       {scale}")
            }
            Self::NoAdapters => write!(
                f,
                "the program takes no LoRA adapters\n  expected  a method `{}`\n  help      compile the model's folder or GGUF file with \
                 --lora-rank",
                lora::METHOD
            ),
            Self::Sampling { option, expected, got } => {
                write!(f, "the sampling option `{option}` has no such value\n  expected  {expected}\n  got       {got}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Module(error) => Some(error),
            Self::File { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<rushlight::Error> for Error {
    fn from(error: rushlight::Error) -> Self {
        Self::Module(error)
    }
}
