//! Errors of this crate.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use rushlight::Code;
use rushlight::options::OptionError;
use rushlight_checkpoint::lora;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call.
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
    /// Embeddings in a prompt for a program that takes tokens alone.
    TakesNoEmbeddings,
    /// Embeddings that are no rows of the size that the program takes.
    EmbeddingSize { expected: usize, dim: usize, elements: usize },
    /// More tokens than positions that are left.
    ContextFull { position: usize, tokens: usize, capacity: usize },
    /// A context that is longer than the program's, or empty.
    ContextLimit { expected: usize, got: usize },
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
    /// A draft model with another tokenizer: `different` of `count` tokens have other texts.
    DraftTokenizer { different: usize, count: usize },
    /// A draft model whose session cannot go back, as it has to after each wrong guess.
    DraftRewind,
    /// A draft of the caller's own failed.
    Draft(String),
    /// The bytes are no saved session.
    NoSession,
    /// A saved session of another program.
    OtherProgram,
    /// A saved session of another adapter.
    OtherAdapter,
    /// The program takes no adapters.
    NoAdapters,
    /// An adapter that was read for a model of other layers.
    AdapterOfAnotherModel,
    /// A scale of an adapter that is infinite or NaN.
    AdapterScale(f32),
    /// An option of an answer that does not exist, or does not take a value.
    Option(OptionError),
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
            Self::NotSupported(_) | Self::ReturnsHiddenStates | Self::NoAdapters | Self::TakesNoEmbeddings => {
                Code::NotSupported
            }
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

    /// The headline in one line, without expected, got and help. Texts of grammars and templates may have more lines.
    pub fn message(&self) -> String {
        let mut message = self.parts().message;
        message.truncate(message.find('\n').unwrap_or(message.len()));
        message
    }

    /// The expected value or condition.
    pub fn what_was_expected(&self) -> Option<String> {
        self.parts().expected
    }

    /// The actual value or condition.
    pub fn what_came(&self) -> Option<String> {
        self.parts().got
    }

    /// Advice on how to mend it.
    pub fn hint(&self) -> Option<String> {
        self.parts().help
    }

    fn parts(&self) -> Parts {
        match self {
            Self::Module(error) => Parts {
                message: error.message().to_owned(),
                expected: error.what_was_expected().map(str::to_owned),
                got: error.what_came().map(str::to_owned),
                help: error.hint().map(str::to_owned),
            },
            Self::File { path, error } => Parts::new(format!("cannot read `{}`: {error}", path.display())),
            Self::Tokenizer(problem) => Parts::new(format!("tokenizer: {problem}")),
            Self::NoTokenizer { model, looked_at } => {
                let mut parts = Parts::new(match model {
                    Some(model) => format!("`{}` carries no tokenizer", model.display()),
                    None => "the program carries no tokenizer".to_owned(),
                });
                let mut names: Vec<String> = looked_at.iter().map(|path| format!("`{}`", path.display())).collect();
                if let Some(last) = names.pop() {
                    parts.message.push_str(", and none is beside it");
                    parts =
                        parts.expected(if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) });
                }
                parts
                    .help("name its file or folder (`--tokenizer`, `tokenizer=` in Python), or compile the model again")
            }
            Self::Template(problem) => Parts::new(format!("chat template: {problem}")),
            #[cfg(feature = "grammar")]
            Self::Grammar(problem) => Parts::new(format!("grammar: {problem}")),
            Self::NotLanguageModel { problem } => Parts::new(format!("the program is no language model: {problem}"))
                .expected("forward(tokens: i64[1, T], start_pos: i64[1]) -> logits"),
            Self::ReturnsHiddenStates => {
                Parts::new("the program returns hidden states: it has embeddings, and generates nothing")
                    .expected("logits")
                    .help("compile without --hidden-states")
            }
            Self::ReturnsLogits => Parts::new("the program returns logits: it has no embeddings")
                .expected("hidden states")
                .help("compile with --hidden-states"),
            Self::NoTokens => Parts::new("there is no token to begin with: the prompt is empty"),
            Self::UnknownToken { token, vocabulary } => Parts::new(format!("the model has no token {token}"))
                .expected(format!("0 to {}", vocabulary.saturating_sub(1)))
                .help("use the tokenizer that belongs to the model"),
            Self::TakesNoEmbeddings => Parts::new("the program takes tokens, and no embeddings")
                .expected("the methods `token_embedding` and `text_decoder`"),
            Self::EmbeddingSize { expected, dim, elements } => {
                Parts::new("the embeddings are no rows of the size that the program takes")
                    .expected(format!("rows of {expected} elements"))
                    .got(format!("{elements} elements, in rows of {dim}"))
            }
            Self::ContextFull { position, tokens, capacity } => {
                let left = capacity.saturating_sub(*position);
                Parts::new("the context is full")
                    .expected(format!("at most {left} more tokens, {position} of {capacity} positions are taken"))
                    .got(tokens)
                    // Even an empty session has no room for more tokens than the context.
                    .help(if tokens > capacity {
                        "shorten the text, load the program with a larger context (`--ctx`, `max_context_len=` in Python), or \
                         compile it with a larger --max-context-len"
                    } else {
                        "clear the session, load the program with a larger context (`--ctx`, `max_context_len=` in Python), or \
                         compile it with a larger --max-context-len"
                    })
            }
            Self::ContextLimit { expected, got } => Parts::new("the program does not have a context of this length")
                .expected(format!("1 to {expected} positions, for which it was compiled"))
                .got(got)
                .help("choose a shorter context, or compile the model again with a larger --max-context-len"),
            Self::NotReached { position, reached } => {
                Parts::new(format!("the session cannot go to position {position}"))
                    .expected(format!("at most {reached}, the tokens that it has"))
            }
            Self::Poisoned => Parts::new("an earlier call of this session failed: reset it to go on"),
            Self::NoLogits => {
                Parts::new("no logit is a number: the model computed NaN or negative infinity for all tokens")
            }
            Self::NotSupported(what) => Parts::new(format!("{what}: the KV cache is in the memory of the program"))
                .help("compile for a backend that keeps it, as `--backend cpu`"),
            Self::DraftVocabulary { expected, got } => Parts::new("the draft model has another vocabulary")
                .expected(format!("{expected} tokens, as the model has"))
                .got(got)
                .help("use a smaller model of the same family"),
            Self::DraftTokenizer { different, count } => Parts::new("the draft model has another tokenizer")
                .expected("the tokens of the model")
                .got(format!("{different} of {count} tokens differ"))
                .help("use a smaller model of the same family"),
            Self::DraftRewind => Parts::new("the draft model cannot go back after a wrong guess")
                .expected("a program that a backend runs, without a ring cache or a recurrent state")
                .help("compile it with `--backend cpu`, and a sliding window with a --max-seq-len of its context"),
            Self::Draft(problem) => Parts::new(format!("the draft: {problem}")),
            Self::NoSession => Parts::new("the bytes are no saved session"),
            Self::OtherProgram => {
                Parts::new("the session was saved with another program: its cache belongs to other weights")
                    .help("restore it with the file that it was saved with, or start a new session")
            }
            Self::OtherAdapter => {
                Parts::new("the session was saved with another LoRA adapter, or without one: restore it with the same")
            }
            Self::AdapterOfAnotherModel => Parts::new("the LoRA adapter was read for a model with other layers"),
            Self::AdapterScale(scale) => {
                Parts::new("the scale of a LoRA adapter is not a number").expected("a finite number").got(scale)
            }
            Self::NoAdapters => Parts::new("the program takes no LoRA adapters")
                .expected(format!("a method `{}`", lora::METHOD))
                .help("compile the model's folder or GGUF file with --lora-rank"),
            Self::Option(error) => {
                let parts = Parts::new(error.message()).expected(error.expected()).got(error.got());
                Parts { help: error.hint(), ..parts }
            }
        }
    }
}

/// The parts of an error, as those of [`rushlight::Error`].
struct Parts {
    message: String,
    expected: Option<String>,
    got: Option<String>,
    help: Option<String>,
}

impl Parts {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), expected: None, got: None, help: None }
    }

    fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    fn got(mut self, got: impl fmt::Display) -> Self {
        self.got = Some(got.to_string());
        self
    }

    fn help(mut self, help: &str) -> Self {
        self.help = Some(help.to_owned());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Module(error) = self {
            return write!(f, "{error}");
        }
        let Parts { message, expected, got, help } = self.parts();
        f.write_str(&message)?;
        for (name, text) in [("expected", expected), ("got", got), ("help", help)] {
            if let Some(text) = text {
                write!(f, "\n  {name:<10}{text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Module(error) => Some(error),
            Self::File { error, .. } => Some(error),
            Self::Option(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rushlight::Error> for Error {
    fn from(error: rushlight::Error) -> Self {
        Self::Module(error)
    }
}

impl From<OptionError> for Error {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}
