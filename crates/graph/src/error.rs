//! The compiler's error: its message, its node, expected and actual values, and a hint.

use std::fmt;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input file is damaged or of a version that is not read.
    Input,
    /// The input is well-formed, but describes no valid program.
    InvalidProgram,
    /// An operator, dtype or feature that the compiler does not have.
    Unsupported,
    /// An operator that no runtime has.
    Operator,
    /// A shape or dtype that an operator does not support.
    Type,
    /// A backend refused or failed.
    Backend,
    /// An option that a backend does not have, or a value that the option does not take.
    Option,
    /// A graph that breaks the rules of graphs: a defect of a pass.
    Verification,
    /// The output cannot be written as asked.
    Output,
    /// The caller cancelled the work.
    Cancelled,
}

impl ErrorKind {
    /// The kind as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "Input",
            Self::InvalidProgram => "InvalidProgram",
            Self::Unsupported => "Unsupported",
            Self::Operator => "Operator",
            Self::Type => "Type",
            Self::Backend => "Backend",
            Self::Option => "Option",
            Self::Verification => "Verification",
            Self::Output => "Output",
            Self::Cancelled => "Cancelled",
        }
    }
}

/// An error with its place and, where known, what was expected and a hint. `Display` writes a headline and a line for
/// each of these; `Debug` is the same text, since that is what a `main` that returns an error prints.
#[derive(Clone)]
pub struct Error(Box<Parts>);

#[derive(Clone)]
struct Parts {
    kind: ErrorKind,
    message: String,
    site: Option<String>,
    source: Option<String>,
    expected: Option<String>,
    got: Option<String>,
    help: Option<String>,
}

impl Error {
    /// An error whose headline is `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (site, source, expected, got, help) = (None, None, None, None, None);
        Self(Box::new(Parts { kind, message: message.into(), site, source, expected, got, help }))
    }

    /// A shape or dtype that does not fit.
    pub fn type_error(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Type, message)
    }

    /// Something that the compiler does not have.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// A program that contradicts itself.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidProgram, message)
    }

    /// The error as one of another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Sets the site, such as a method and node. The innermost site that is set stays.
    #[must_use]
    pub fn at(mut self, site: impl fmt::Display) -> Self {
        self.0.site.get_or_insert_with(|| site.to_string());
        self
    }

    /// The line of the model's source that the node comes from.
    #[must_use]
    pub fn from_line(mut self, line: Option<&str>) -> Self {
        if self.0.source.is_none() {
            self.0.source = line.map(ToOwned::to_owned);
        }
        self
    }

    /// Sets the expected value.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display) -> Self {
        self.0.expected = Some(expected.to_string());
        self
    }

    /// Sets the value that came instead.
    #[must_use]
    pub fn got(mut self, got: impl fmt::Display) -> Self {
        self.0.got = Some(got.to_string());
        self
    }

    /// Sets the hint for the user.
    #[must_use]
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.0.help = Some(help.to_string());
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The headline.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The method, node or file, if known.
    pub fn site(&self) -> Option<&str> {
        self.0.site.as_deref()
    }

    /// The line of the model's source, if known.
    pub fn source_line(&self) -> Option<&str> {
        self.0.source.as_deref()
    }

    /// The expected value, if known.
    pub fn what_was_expected(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }

    /// The value that came instead, if known.
    pub fn what_came(&self) -> Option<&str> {
        self.0.got.as_deref()
    }

    /// The hint for the user, if there is one.
    pub fn hint(&self) -> Option<&str> {
        self.0.help.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts { message, site, source, expected, got, help, .. } = &*self.0;
        f.write_str(message)?;
        let lines = [("at", site), ("source", source), ("expected", expected), ("got", got), ("help", help)];
        for (label, text) in lines {
            if let Some(text) = text {
                write!(f, "\n  {label:<8}  {text}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
