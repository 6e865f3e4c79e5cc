//! From `.pt2` files to `.pte` files.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rushlight_compiler::front::pt2::ImportOptions;
use rushlight_compiler::{Bytes, CompileOptions, Compiled, ConstantResult, ErrorKind, compile_pt2};
use rushlight_format::FormatError;
use rushlight_format::pte::WriteOptions;
use rushlight_runtime::Code;

use crate::error::Error;
use crate::source::{self, LoadMode, Shared};

/// Compiles exported programs, each to a method of one `.pte` file.
#[derive(Debug, Default)]
pub struct Compiler {
    methods: Vec<(String, Source)>,
    options: CompileOptions,
}

#[derive(Debug)]
enum Source {
    File(PathBuf),
    Bytes(Bytes),
}

/// A compiled program: what a `.pte` file will hold. Weights are read from the `.pt2` file when they are written.
#[derive(Debug)]
pub struct CompiledProgram {
    compiled: Compiled,
}

/// The bytes of a file, mapped. The file must not be changed while they are in use.
pub fn open_shared(path: impl AsRef<Path>) -> Result<Bytes, Error> {
    Ok(Bytes::new(Shared(source::open(path.as_ref(), LoadMode::Mmap)?)))
}

impl Compiler {
    /// A compiler with the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// A method, from the `.pt2` file that `torch.export.save` wrote.
    #[must_use]
    pub fn method(mut self, name: impl Into<String>, path: impl AsRef<Path>) -> Self {
        self.methods.push((name.into(), Source::File(path.as_ref().to_owned())));
        self
    }

    /// A method, from the bytes of a `.pt2` file.
    #[must_use]
    pub fn method_bytes(mut self, name: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        self.methods.push((name.into(), Source::Bytes(bytes.into())));
        self
    }

    /// A method that takes nothing and returns a constant.
    #[must_use]
    pub fn constant(mut self, name: impl Into<String>, value: ConstantResult) -> Self {
        self.options.constant_methods.push((name.into(), vec![value]));
        self
    }

    /// Whether buffers of the same name in several methods are one: what one method writes, the others see.
    #[must_use]
    pub fn share_state(mut self, share_state: bool) -> Self {
        self.options.import = ImportOptions { share_state };
        self
    }

    /// All options of the compiler.
    pub fn options(&mut self) -> &mut CompileOptions {
        &mut self.options
    }

    /// Compiles.
    ///
    /// # Errors
    /// `AccessFailed` for files that cannot be read, `InvalidProgram` for files that are damaged, `NotSupported` for what
    /// the compiler does not have. The error names the node and its line of Python.
    pub fn compile(self) -> Result<CompiledProgram, Error> {
        if self.methods.is_empty() {
            return Err(Error::invalid("nothing to compile").help("name at least one .pt2 file"));
        }
        let mut programs = Vec::with_capacity(self.methods.len());
        for (name, source) in self.methods {
            let bytes = match source {
                Source::File(path) => open_shared(path)?,
                Source::Bytes(bytes) => bytes,
            };
            programs.push((name, bytes));
        }
        let programs: Vec<(&str, Bytes)> =
            programs.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
        Ok(CompiledProgram { compiled: compile_pt2(&programs, &self.options)? })
    }
}

impl CompiledProgram {
    /// What was compiled, for looking at it.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// When the program is too large for its format, or a weight cannot be read.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        self.compiled.program.to_bytes().map_err(unwritable)
    }

    /// The size of the file in bytes.
    ///
    /// # Errors
    /// When the program is too large for its format.
    pub fn size(&self) -> Result<u64, Error> {
        Ok(self.compiled.program.write(&WriteOptions::default()).map_err(unwritable)?.size())
    }

    /// Writes the file beside its name and renames it, so that a failure leaves no broken file. Returns its size.
    ///
    /// # Errors
    /// `AccessFailed` when the file cannot be written; what was there before stays.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let path = path.as_ref();
        let image = self.compiled.program.write(&WriteOptions::default()).map_err(unwritable)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let beside = path.with_file_name(name);
        let write = || -> Result<(), Unwritten> {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(&beside)?);
            image.write(|piece| file.write_all(piece).map_err(Unwritten::from))?;
            file.into_inner().map_err(|error| Unwritten::File(error.into_error()))?;
            std::fs::rename(&beside, path)?;
            Ok(())
        };
        write().map_err(|error| {
            // What was written so far is of no use; that it cannot be removed changes nothing.
            drop(std::fs::remove_file(&beside));
            match error {
                Unwritten::File(error) => {
                    Error::new(Code::AccessFailed, format!("cannot write `{}`", path.display())).got(error.to_string())
                }
                Unwritten::Format(error) => unwritable(error),
            }
        })?;
        Ok(image.size())
    }
}

/// Why a file was not written.
enum Unwritten {
    File(io::Error),
    Format(FormatError),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<FormatError> for Unwritten {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

fn unwritable(error: FormatError) -> Error {
    Error::new(Code::InvalidProgram, format!("the program cannot be written: {error}"))
}

impl From<rushlight_compiler::Error> for Error {
    fn from(error: rushlight_compiler::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Input | ErrorKind::InvalidProgram => Code::InvalidProgram,
            ErrorKind::Unsupported => Code::NotSupported,
            ErrorKind::Type => Code::InvalidType,
            ErrorKind::Backend => Code::DelegateInvalidCompatibility,
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
