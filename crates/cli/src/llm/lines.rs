//! Lines of a conversation: from a terminal with an editor and its history, or from a pipe; and Ctrl-C.

use std::io::{self, BufRead};
use std::sync::atomic::{AtomicBool, Ordering};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Editor, Helper};

use crate::failure::Failure;
use crate::progress::INTERRUPTED;

/// Where lines come from.
pub enum Lines {
    Terminal(Box<Editor<Continuation, MemHistory>>),
    Pipe(io::StdinLock<'static>),
}

/// A line, without its end.
pub enum Line {
    Text(String),
    /// It is not UTF-8.
    NotText,
}

/// True while the model answers.
static IS_ANSWERING: AtomicBool = AtomicBool::new(false);
/// True once Ctrl-C was pressed since the answer began.
static IS_STOPPED: AtomicBool = AtomicBool::new(false);

/// Lines continue after a backslash.
pub struct Continuation;

impl Lines {
    /// Makes an editor, whose history is not saved. From now on, Ctrl-C stops an answer; a second one ends the program.
    pub fn terminal() -> Result<Self, Failure> {
        let config = Config::builder().auto_add_history(true).build();
        let editor = Editor::with_history(config, MemHistory::new()).map_err(failed)?;
        ctrlc::set_handler(|| {
            if !IS_ANSWERING.load(Ordering::Relaxed) || IS_STOPPED.swap(true, Ordering::Relaxed) {
                std::process::exit(INTERRUPTED.into());
            }
        })
        .map_err(|error| Failure::Other(format!("Ctrl-C cannot be watched: {error}")))?;
        Ok(Self::Terminal(Box::new(with_continuation(editor))))
    }

    pub fn pipe() -> Self {
        Self::Pipe(io::stdin().lock())
    }

    /// The next line; `None` at the end of all.
    pub fn next(&mut self) -> Result<Option<Line>, Failure> {
        let editor = match self {
            Self::Pipe(input) => return next_of(input).map_err(Failure::stdin),
            Self::Terminal(editor) => editor,
        };
        match editor.readline("> ") {
            Ok(line) => Ok(Some(Line::Text(line.replace("\\\n", "\n")))),
            // Ctrl-C gives the line up.
            Err(ReadlineError::Interrupted) => Ok(Some(Line::Text(String::new()))),
            Err(ReadlineError::Eof) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Reads a line of a pipe.
fn next_of(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut bytes = Vec::new();
    if input.read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    let line = bytes.strip_suffix(b"\n").map_or(&bytes[..], |line| line.strip_suffix(b"\r").unwrap_or(line));
    Ok(Some(std::str::from_utf8(line).map_or(Line::NotText, |text| Line::Text(text.to_owned()))))
}

/// Runs what answers; Ctrl-C is noted meanwhile.
pub fn answering<R>(act: impl FnOnce() -> R) -> R {
    IS_STOPPED.store(false, Ordering::Relaxed);
    IS_ANSWERING.store(true, Ordering::Relaxed);
    let result = act();
    IS_ANSWERING.store(false, Ordering::Relaxed);
    result
}

/// True if Ctrl-C was pressed since the answer began.
pub fn is_stopped() -> bool {
    IS_STOPPED.load(Ordering::Relaxed)
}

fn with_continuation(mut editor: Editor<Continuation, MemHistory>) -> Editor<Continuation, MemHistory> {
    editor.set_helper(Some(Continuation));
    editor
}

fn failed(error: ReadlineError) -> Failure {
    match error {
        ReadlineError::Io(error) => Failure::stdin(error),
        error => Failure::Other(format!("cannot read the terminal: {error}")),
    }
}

impl Validator for Continuation {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Helper for Continuation {}
impl Highlighter for Continuation {}

impl Hinter for Continuation {
    type Hint = String;
}

impl Completer for Continuation {
    type Candidate = String;
}
