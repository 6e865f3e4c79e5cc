//! The facade's error: the fault, its place, the expected and the actual value, and advice.

use std::fmt;
use std::path::{Path, PathBuf};

use rushlight_runtime::{self as runtime, Code};

/// An error with ExecuTorch's code and everything that a person needs to act on it.
///
/// `Display` writes a headline, and lines for the expected value, the actual value and a hint if they are known.
/// Methods return these parts one by one. `Debug` is the same text, because a `main` that returns an error prints it.
#[derive(Clone)]
pub struct Error {
    // Boxed, because results carry it around.
    parts: Box<Parts>,
}

#[derive(Clone)]
struct Parts {
    code: Code,
    message: String,
    site: Option<String>,
    expected: Option<String>,
    got: Option<String>,
    help: Option<String>,
    missing: Vec<MissingOperator>,
    /// The file that could not be accessed, and the system's number of the reason.
    os: Option<(PathBuf, i32)>,
    /// The folder at the path of a file.
    folder: Option<PathBuf>,
}

/// An operator that a program needs and the registry lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingOperator {
    /// Full name, such as `aten::add.out`.
    pub name: String,
    /// Number of instructions that call it.
    pub uses: usize,
    /// The first of these instructions.
    pub first_instruction: usize,
    /// File and line of the first use in the model's source, if the program records it.
    pub source: Option<String>,
    /// The operator set of this crate that has it, if any.
    pub set: Option<&'static str>,
}

impl MissingOperator {
    /// Returns the warning about a compiled program that calls the operator. `register` tells the user how to register a kernel.
    pub fn warning(&self, register: &str) -> String {
        let source = self.source.as_ref().map_or_else(String::new, |source| format!(", from {source}"));
        let name = &self.name;
        format!(
            "`{name}` has no kernel in Rushlight{source}: methods that call it load only where one is registered: {register}"
        )
    }
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let parts = Parts {
            code,
            message: message.into(),
            site: None,
            expected: None,
            got: None,
            help: None,
            missing: Vec::new(),
            os: None,
            folder: None,
        };
        Self { parts: Box::new(parts) }
    }

    /// Creates an `InvalidArgument` error.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    #[must_use]
    pub(crate) fn site(mut self, site: String) -> Self {
        self.parts.site = Some(site);
        self
    }

    #[must_use]
    pub(crate) fn expected(mut self, expected: String) -> Self {
        self.parts.expected = Some(expected);
        self
    }

    #[must_use]
    pub(crate) fn got(mut self, got: String) -> Self {
        self.parts.got = Some(got);
        self
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.parts.help = Some(help.into());
        self
    }

    /// Adds a file and the system's error.
    #[must_use]
    pub(crate) fn of_file(mut self, path: &Path, error: &std::io::Error) -> Self {
        self.parts.os = error.raw_os_error().map(|number| (path.to_owned(), number));
        self.got(error.to_string())
    }

    /// Adds a path, if it is a folder.
    #[must_use]
    pub(crate) fn got_folder(mut self, path: &Path) -> Self {
        self.parts.folder = path.is_dir().then(|| path.to_owned());
        self.got("a folder".into())
    }

    #[must_use]
    pub(crate) fn missing(mut self, missing: Vec<MissingOperator>) -> Self {
        self.parts.missing = missing;
        self
    }

    /// Returns ExecuTorch's code for the condition.
    pub fn code(&self) -> Code {
        self.parts.code
    }

    /// Returns the headline, without expected value, actual value and help.
    pub fn message(&self) -> &str {
        &self.parts.message
    }

    /// Returns the place of the fault: method, instruction, operator, argument.
    pub fn location(&self) -> Option<&str> {
        self.parts.site.as_deref()
    }

    /// The expected value or condition.
    pub fn what_was_expected(&self) -> Option<&str> {
        self.parts.expected.as_deref()
    }

    /// The actual value or condition.
    pub fn what_came(&self) -> Option<&str> {
        self.parts.got.as_deref()
    }

    /// Returns advice on how to fix the error.
    pub fn hint(&self) -> Option<&str> {
        self.parts.help.as_deref()
    }

    /// The file that could not be accessed, and the system's number of the reason (`errno` on Unix).
    pub fn os_error(&self) -> Option<(&Path, i32)> {
        self.parts.os.as_ref().map(|(path, number)| (path.as_path(), *number))
    }

    /// Returns the folder that is at the path of a file.
    pub fn folder(&self) -> Option<&Path> {
        self.parts.folder.as_deref()
    }

    /// Returns all operators that the registry lacks, for an `OperatorMissing` error.
    pub fn missing_operators(&self) -> &[MissingOperator] {
        &self.parts.missing
    }
}

impl Error {
    /// Returns the text for users who do not register operators in Rust. `register` returns the instruction for a
    /// missing operator.
    pub fn to_text(&self, register: impl Fn(&MissingOperator) -> String) -> String {
        struct Text<'a, F>(&'a Error, F);
        impl<F: Fn(&MissingOperator) -> String> fmt::Display for Text<'_, F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write(f, &self.1)
            }
        }
        Text(self, register).to_string()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, register: &impl Fn(&MissingOperator) -> String) -> fmt::Result {
        let parts = &*self.parts;
        write!(f, "[{:?} 0x{:02x}] {}", parts.code, parts.code as u32, parts.message)?;
        let lines = [("at", &parts.site), ("expected", &parts.expected), ("got", &parts.got)];
        for (name, text) in lines {
            if let Some(text) = text {
                write!(f, "\n  {name:<9} {text}")?;
            }
        }
        let width = parts.missing.iter().map(|op| op.name.len()).max().unwrap_or(0);
        for op in &parts.missing {
            let uses = if op.uses == 1 { "used once".to_owned() } else { format!("used {} times", op.uses) };
            write!(f, "\n  {:<width$}  {uses}, first at instruction {}", op.name, op.first_instruction)?;
            if let Some(source) = &op.source {
                write!(f, " ({source})")?;
            }
            match op.set {
                Some(set) => write!(f, "   in set `{set}`")?,
                None => write!(f, "   register it: {}", register(op))?,
            }
        }
        if let Some(help) = &parts.help {
            write!(f, "\n  {:<9} {help}", "help")?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|_| "ModuleBuilder::ops(&MY_OPS)".to_owned())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// For conversions that cannot fail.
impl From<core::convert::Infallible> for Error {
    fn from(never: core::convert::Infallible) -> Self {
        match never {}
    }
}

impl From<runtime::Error> for Error {
    /// Converts without the context of a program. Errors of a [`Module`](crate::Module) have more context.
    fn from(error: runtime::Error) -> Self {
        let result = Self::new(error.code, error.detail.to_string());
        if error.site == runtime::Site::default() { result } else { result.site(error.site.to_string()) }
    }
}

#[cfg(feature = "compile")]
impl From<rushlight_graph::Error> for Error {
    fn from(error: rushlight_graph::Error) -> Self {
        use rushlight_graph::ErrorKind;

        let code = match error.kind() {
            ErrorKind::Input | ErrorKind::InvalidProgram => Code::InvalidProgram,
            ErrorKind::Unsupported => Code::NotSupported,
            ErrorKind::Operator => Code::OperatorMissing,
            ErrorKind::Type => Code::InvalidType,
            ErrorKind::Output | ErrorKind::Option => Code::InvalidArgument,
            ErrorKind::Backend => Code::DelegateInvalidCompatibility,
            ErrorKind::Cancelled => Code::InvalidState,
            _ => Code::Internal,
        };
        let mut converted = Self::new(code, error.message());
        let site = match (error.site(), error.source_line()) {
            (Some(site), Some(line)) => Some(format!("{site}, from {line}")),
            (site, line) => site.or(line).map(ToOwned::to_owned),
        };
        if let Some(site) = site {
            converted = converted.site(site);
        }
        if let Some(expected) = error.what_was_expected() {
            converted = converted.expected(expected.to_owned());
        }
        if let Some(got) = error.what_came() {
            converted = converted.got(got.to_owned());
        }
        match error.hint() {
            Some(hint) => converted.help(hint),
            None => converted,
        }
    }
}
