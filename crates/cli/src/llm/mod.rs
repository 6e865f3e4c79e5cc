//! `rushlight llm`: language models.

mod bench;
mod chat;
mod conversation;
mod embed;
#[cfg(feature = "grammar")]
mod form;
mod generation;
mod lines;
mod perplexity;
mod run;
mod saved;
#[cfg(feature = "serve")]
mod serve;
mod source;
mod speaker;
mod tokenize;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Runs language models: text in, text out.
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub struct Llm {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Continue a text
    Run(run::Run),
    /// Talk to a model, line by line
    Chat(chat::Chat),
    /// Serve a model over HTTP with OpenAI's API
    #[cfg(feature = "serve")]
    Serve(serve::Serve),
    /// Time prefill and decode at several positions
    Bench(bench::Bench),
    /// Compute embeddings of texts
    Embed(embed::Embed),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::Perplexity),
    /// Show the tokens of a text
    Tokenize(tokenize::Tokenize),
}

impl Llm {
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::Chat(chat) => chat.run(),
            #[cfg(feature = "serve")]
            Command::Serve(serve) => serve.run(),
            Command::Bench(bench) => bench.run(),
            Command::Embed(embed) => embed.run(),
            Command::Perplexity(perplexity) => perplexity.run(),
            Command::Tokenize(tokenize) => tokenize.run(),
        }
    }
}

impl From<rushlight_llm::Error> for Failure {
    fn from(error: rushlight_llm::Error) -> Self {
        use rushlight_llm::Error;
        match error {
            Error::Module(error) => Self::Model(error),
            Error::File { path, error } => Self::read(&path, error),
            Error::NoTokens | Error::UnknownToken { .. } | Error::ContextFull { .. } | Error::Template(_) => {
                Self::Input(error.to_string())
            }
            Error::Option(_)
            | Error::ContextLimit { .. }
            | Error::DraftVocabulary { .. }
            | Error::DraftTokenizer { .. }
            | Error::DraftRewind
            | Error::NoTokenizer { .. } => Self::Arguments(error.to_string()),
            other => Self::Other(other.to_string()),
        }
    }
}
