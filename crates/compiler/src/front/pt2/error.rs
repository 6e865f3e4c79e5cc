//! Reasons why a `.pt2` archive, or a part of it, was refused.

use std::fmt;

use super::pickle::PickleFault;

/// A fault and its site.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// The entry of the archive that holds the fault; entries of an archive within it follow after ` > `. Empty for the
    /// archive itself.
    pub entry: String,
    /// The name of a weight or constant that is at fault.
    pub tensor: Option<String>,
    /// Byte offset in the entry, or in the archive.
    pub offset: Option<u64>,
    pub kind: ErrorKind,
}

/// The fault, with expected and actual values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No end of a central directory was found: another kind of file, or a truncated one.
    NotZip,
    /// An archive with other content. `kind` names the likely format.
    NotPt2 { kind: &'static str },
    /// An archive of `torch.export` without a program.
    NoModel { holds: &'static str },
    /// A structure reaches past the end of its container.
    Truncated { what: &'static str, needed: u64, available: u64 },
    /// A record begins with the wrong four bytes.
    BadSignature { what: &'static str, expected: u32, got: u32 },
    /// Two fields that must agree differ.
    Mismatch { what: &'static str, expected: u64, got: u64 },
    /// The name of an entry differs between the directory and the entry, or is not UTF-8.
    BadName,
    /// The archive has the entry twice.
    DuplicateEntry,
    /// The entry shares bytes with another.
    Overlap { other: String },
    /// The archive is in several parts.
    SplitArchive,
    /// The entry is compressed, with this method of the zip format.
    Compressed { method: u16 },
    /// The entry is encrypted.
    Encrypted,
    /// The checksum of the bytes does not match.
    Checksum { expected: u32, got: u32 },
    /// A required entry is missing.
    MissingEntry,
    /// The archive was written on a machine with another byte order.
    ByteOrder { got: String },
    /// This reader does not know the version of the container.
    ArchiveVersion { got: String },
    /// The JSON is not as expected. `near` is the text in front of the fault.
    Json { message: String, near: String },
    /// This reader does not know the schema of the program.
    SchemaVersion { major: i64, minor: i64, torch: String },
    /// The archive has no model of this name.
    UnknownModel { name: String, known: Vec<String> },
    /// The archive has no weight or constant of this name.
    UnknownWeight { name: String },
    /// The archive holds several models, and none was chosen.
    SeveralModels { names: Vec<String> },
    /// The code stands for no element type of a program.
    ScalarType { code: i64 },
    /// A number that must not be negative.
    Negative { what: &'static str, value: i64 },
    /// A product or sum exceeds the address space.
    Overflow { what: &'static str },
    /// A weight whose size is an expression.
    SymbolicSize,
    /// A weight that is not strided.
    Layout { code: i64 },
    /// The last element of a tensor is beyond the end of its storage.
    OutOfStorage { needed: u64, available: u64 },
    /// Sizes and strides of different rank.
    Rank { sizes: usize, strides: usize },
    /// A custom object. Only the library that saved it can read it.
    CustomObject,
    /// A malformed structure of inputs or outputs.
    TreeSpec { message: String },
    /// A pickle that is damaged or refused.
    Pickle(PickleFault),
}

impl Error {
    pub(crate) fn new(entry: &str, kind: ErrorKind) -> Self {
        Self { entry: entry.to_owned(), tensor: None, offset: None, kind }
    }

    pub(crate) fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub(crate) fn for_tensor(mut self, name: &str) -> Self {
        self.tensor = Some(name.to_owned());
        self
    }

    /// Places the fault of an entry within the outer archive.
    pub(crate) fn within(mut self, outer: &str) -> Self {
        if !outer.is_empty() {
            self.entry = if self.entry.is_empty() { outer.to_owned() } else { format!("{outer} > {}", self.entry) };
        }
        self
    }

    /// Returns the fault that serde reports in `text`, which is the whole entry.
    pub(crate) fn json(entry: &str, text: &str, error: &serde_json::Error) -> Self {
        let line_start: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let mut offset = (line_start + error.column()).min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = text.get(..offset).unwrap_or_default();
        let near: String = before.chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
        let mut message = error.to_string();
        if let Some(position) = message.rfind(" at line ") {
            message.truncate(position);
        }
        Self::new(entry, ErrorKind::Json { message, near }).at(offset as u64)
    }

    /// Describes the site: tensor, entry and byte.
    pub fn site(&self) -> String {
        let tensor = self.tensor.as_ref().map_or(String::new(), |name| format!("`{name}` in "));
        let entry = if self.entry.is_empty() { "the archive" } else { &self.entry };
        let offset = self.offset.map_or(String::new(), |offset| format!(", byte {offset}"));
        format!("{tensor}{entry}{offset}")
    }

    /// The remedy, where one is known.
    pub fn advice(&self) -> Option<&'static str> {
        const SAVE_AGAIN: &str =
            "save the program again with torch 2.9 or later: torch.export.save(program, \"model.pt2\")";
        Some(match &self.kind {
            ErrorKind::NotZip | ErrorKind::NotPt2 { .. } | ErrorKind::NoModel { .. } => {
                "make the file with torch.export.save(torch.export.export(model, inputs), \"model.pt2\")"
            }
            ErrorKind::Compressed { .. } => {
                "the archive was packed again by another program: use the file as torch.export.save wrote it, or store it \
                 without compression (zip -0)"
            }
            ErrorKind::Encrypted => "store it without a password",
            ErrorKind::Truncated { .. }
            | ErrorKind::BadSignature { .. }
            | ErrorKind::Mismatch { .. }
            | ErrorKind::BadName
            | ErrorKind::DuplicateEntry
            | ErrorKind::Overlap { .. }
            | ErrorKind::Checksum { .. } => "the file is damaged: copy or save it again",
            ErrorKind::MissingEntry | ErrorKind::ArchiveVersion { .. } | ErrorKind::SchemaVersion { .. } => SAVE_AGAIN,
            ErrorKind::ByteOrder { .. } => "save it on a little-endian machine",
            ErrorKind::SeveralModels { .. } => "name one of them",
            ErrorKind::CustomObject => "export the model without it, for instance after replacing it by tensors",
            ErrorKind::Pickle(fault) => return fault.advice(),
            _ => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.site(), self.kind)?;
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl std::error::Error for Error {}

impl From<Error> for rushlight_graph::Error {
    fn from(error: Error) -> Self {
        use rushlight_graph::ErrorKind::{Input, Unsupported};
        let kind = match error.kind {
            ErrorKind::ScalarType { .. }
            | ErrorKind::Layout { .. }
            | ErrorKind::SymbolicSize
            | ErrorKind::CustomObject
            | ErrorKind::Pickle(PickleFault::Global { .. }) => Unsupported,
            _ => Input,
        };
        let compiler = Self::new(kind, error.kind.to_string()).at(error.site());
        error.advice().map_or(compiler.clone(), |advice| compiler.help(advice))
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotZip => f.write_str("not a zip archive, or the end of it is missing"),
            Self::NotPt2 { kind } => write!(f, "not a .pt2 archive but {kind}"),
            Self::NoModel { holds } => {
                write!(f, "the archive has no exported program (`models/NAME.json`), but {holds}")
            }
            Self::Truncated { what, needed, available } => {
                write!(f, "{what} needs {needed} bytes, and {available} are there")
            }
            Self::BadSignature { what, expected, got } => {
                write!(f, "{what} begins with {got:#010x} instead of {expected:#010x}")
            }
            Self::Mismatch { what, expected, got } => write!(f, "{what} is {got}, and {expected} was expected"),
            Self::BadName => f.write_str("its name is not UTF-8, or not the same in the directory and before its data"),
            Self::DuplicateEntry => f.write_str("the archive has two entries of this name"),
            Self::Overlap { other } => write!(f, "it shares bytes with the entry {other}"),
            Self::SplitArchive => f.write_str("the archive is split into several files"),
            Self::Compressed { method } => {
                write!(f, "it is compressed (method {method}), and weights are used where they lie")
            }
            Self::Encrypted => f.write_str("it is encrypted"),
            Self::Checksum { expected, got } => {
                write!(f, "its bytes have the checksum {got:#010x} instead of {expected:#010x}")
            }
            Self::MissingEntry => f.write_str("the archive has no such entry"),
            Self::ByteOrder { got } => write!(f, "it was written in byte order `{got}`, and `little` is expected"),
            Self::ArchiveVersion { got } => write!(f, "archive version `{got}` is not known, and 0 is expected"),
            Self::Json { message, near } => write!(f, "{message}, after `{near}`"),
            Self::SchemaVersion { major, minor, torch } => write!(
                f,
                "the program has schema version {major}.{minor} (written by torch {torch}), and 8 is expected"
            ),
            Self::UnknownModel { name, known } if known.is_empty() => {
                write!(f, "there is no model `{name}`, nor any other")
            }
            Self::UnknownModel { name, known } => {
                write!(f, "there is no model `{name}`; there is {}", known.join(", "))
            }
            Self::UnknownWeight { name } => write!(f, "there is no value for `{name}`"),
            Self::SeveralModels { names } => write!(f, "it holds {} models: {}", names.len(), names.join(", ")),
            Self::ScalarType { code } => write!(f, "element type {code} of the schema is not supported"),
            Self::Negative { what, value } => write!(f, "{what} is {value}, and must not be negative"),
            Self::Overflow { what } => write!(f, "{what} exceeds what this machine can address"),
            Self::SymbolicSize => f.write_str("a stored tensor has a size, stride or offset that is an expression"),
            Self::Layout { code } => {
                write!(f, "layout {code} of the schema is not supported, only strided tensors are")
            }
            Self::OutOfStorage { needed, available } => {
                write!(f, "its elements need {needed} bytes of storage, and {available} are there")
            }
            Self::Rank { sizes, strides } => write!(f, "it has {sizes} sizes and {strides} strides"),
            Self::CustomObject => f.write_str("it is a custom object, which only the library that saved it can read"),
            Self::TreeSpec { message } => write!(f, "the structure of inputs or outputs is not well formed: {message}"),
            Self::Pickle(fault) => fault.fmt(f),
        }
    }
}
