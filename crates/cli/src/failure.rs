//! Failures of the command: a message on standard error and an exit code for scripts.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use rushlight::{Code, Error};

use crate::stderr::to_stderr;

/// The reason why the command failed.
pub enum Failure {
    /// An error of the library, which has its own code.
    Model(Error),
    /// An error of the library about the arguments of the command.
    Usage(Error),
    /// Arguments that contradict each other or have no effect.
    Arguments(String),
    /// The results of two programs differ.
    Differs(String),
    /// A file could not be read or written; `what` is the attempted action.
    File { what: String, error: io::Error },
    /// An input does not fit the model.
    Input(String),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// Writes the failure, with colours on a terminal.
    pub fn report(&self) {
        let (bold, red, plain) = ("\x1b[1m", "\x1b[1;31m", "\x1b[0m");
        let text = match self {
            Self::Model(error) | Self::Usage(error) => {
                let text = error.to_string();
                let (head, tail) = text.split_once('\n').map_or((text.as_str(), None), |(h, t)| (h, Some(t)));
                let (code, head) = head.split_once("] ").map_or(("", head), |(code, head)| (code, head));
                let tail = tail.map_or_else(String::new, |tail| format!("\n{tail}"));
                return to_stderr(&format!("{red}error{code}]{plain}: {bold}{head}{plain}{tail}"));
            }
            Self::File { what, error } => format!("{what}: {error}"),
            Self::Input(text) | Self::Other(text) | Self::Arguments(text) | Self::Differs(text) => text.clone(),
        };
        let (head, tail) = text.split_once('\n').unwrap_or((&text, ""));
        let tail = if tail.is_empty() { String::new() } else { format!("\n{tail}") };
        to_stderr(&format!("{red}error{plain}: {bold}{head}{plain}{tail}"));
    }

    /// The exit code that `rushlight --help` documents.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) | Self::Arguments(_) => 2,
            Self::Differs(_) => 7,
            Self::File { .. } => 3,
            Self::Input(_) => 6,
            Self::Other(_) => 1,
            Self::Model(error) => match error.code() {
                Code::AccessFailed => 3,
                Code::NotFound if error.message().starts_with("cannot open") => 3,
                Code::InvalidProgram | Code::InvalidExternalData | Code::DelegateInvalidCompatibility => 4,
                Code::OperatorMissing | Code::NotFound => 5,
                Code::InvalidArgument | Code::InvalidType => 6,
                Code::MemoryAllocationFailed | Code::DelegateMemoryAllocationFailed | Code::OutOfResources => 8,
                _ => 1,
            },
        })
    }

    /// An input that does not fit, with the next step.
    pub fn input(what: impl Display, help: impl Display) -> Self {
        Self::Input(format!("{what}\n  help      {help}"))
    }

    /// Arguments that contradict each other or have no effect, with the next step.
    pub fn arguments(what: impl Display, help: impl Display) -> Self {
        Self::Arguments(format!("{what}\n  help      {help}"))
    }

    /// A file that could not be read.
    pub fn read(path: &Path, error: io::Error) -> Self {
        Self::File { what: format!("cannot read `{}`", path.display()), error }
    }

    /// Standard input could not be read.
    #[cfg(feature = "llm")]
    pub fn stdin(error: io::Error) -> Self {
        Self::File { what: "cannot read standard input".to_owned(), error }
    }

    /// A folder that could not be made.
    pub fn make(folder: &Path, error: io::Error) -> Self {
        Self::File { what: format!("cannot make the folder `{}`", folder.display()), error }
    }

    /// Standard output could not be written.
    pub fn print(error: io::Error) -> Self {
        Self::File { what: "cannot write to standard output".to_owned(), error }
    }

    /// An error of the library about the arguments, unless it is about files.
    pub fn of_arguments(error: Error) -> Self {
        if error.code() == Code::InvalidArgument { Self::Usage(error) } else { Self::Model(error) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}
