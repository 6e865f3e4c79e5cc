//! From `.pt2` files to `.pte` files.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rushlight_compiler::back::cpu::Precision;
use rushlight_compiler::emit::{ExternalData, ExternalWeights};
use rushlight_compiler::front::pt2::ImportOptions;
use rushlight_compiler::partition::{Backend, PORTABLE};
use rushlight_compiler::{Bytes, CompileOptions, Compiled, ConstantResult, ErrorKind, compile, import_pt2};
use rushlight_format::pte::WriteOptions;
use rushlight_format::{Image, SEGMENT_ALIGNMENT};
use rushlight_runtime::Code;

use crate::atomic::{Files, unwritable};
use crate::backends::{self, Make};
use crate::error::Error;
#[cfg(feature = "cpu")]
use crate::quantize::{Quantization, QuantizationReport};
use crate::source::{self, LoadMode, Shared};

/// Compiles exported programs, each to a method of one `.pte` file.
#[derive(Debug, Default)]
pub struct Compiler {
    methods: Vec<(String, Source)>,
    /// In the order of priority.
    backends: Vec<Chosen>,
    precision: Precision,
    #[cfg(feature = "cpu")]
    quantization: Option<Quantization>,
    options: CompileOptions,
}

/// Whom nodes are offered.
#[derive(Debug)]
enum Chosen {
    Given(Box<dyn Backend>),
    /// One that comes with Rushlight, by its name there.
    Named(String, Make),
    /// The runtime's operators.
    Portable,
}

impl Chosen {
    fn name(&self) -> &str {
        match self {
            Self::Given(backend) => backend.name(),
            Self::Named(name, _) => name,
            Self::Portable => PORTABLE,
        }
    }
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
    #[cfg(feature = "cpu")]
    quantization: Option<QuantizationReport>,
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

    /// Which weights are not in the program but in `.ptd` files, which [`ModuleBuilder::external_data`] takes.
    ///
    /// [`ModuleBuilder::external_data`]: crate::ModuleBuilder::external_data
    #[must_use]
    pub fn external_weights(mut self, weights: ExternalWeights) -> Self {
        self.options.emit.external_weights = Some(weights);
        self
    }

    /// A backend, offered what those before it left. What none takes runs on the runtime's operators.
    #[must_use]
    pub fn backend(mut self, backend: Box<dyn Backend>) -> Self {
        self.backends.push(Chosen::Given(backend));
        self
    }

    /// As [`backend`](Self::backend), one of [`backend_names`](crate::backend_names). `portable` stands for the runtime's
    /// operators, which take everything.
    ///
    /// # Errors
    /// `NotFound`, with the names that there are.
    pub fn backend_named(mut self, name: &str) -> Result<Self, Error> {
        self.backends.push(match backends::backend_named(name)? {
            Some(make) => Chosen::Named(name.to_owned(), make),
            None => Chosen::Portable,
        });
        Ok(self)
    }

    /// What the backend `cpu` rounds weights to; `f32` by default.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Has convolutions and linear layers compute in integers, without PyTorch. The backend `cpu` computes them so; without it
    /// weights are smaller, and the runtime's operators make floats of them at each call.
    #[cfg(feature = "cpu")]
    #[must_use]
    pub fn quantize(mut self, quantization: Quantization) -> Self {
        self.quantization = Some(quantization);
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
    /// the compiler does not have, `InvalidArgument` for a backend that is given twice or after `portable`, for a precision
    /// without the backend `cpu`, and for file names that weights cannot have. The error names the node and its line of Python.
    pub fn compile(mut self) -> Result<CompiledProgram, Error> {
        if self.methods.is_empty() {
            return Err(Error::invalid("nothing to compile").help("name at least one .pt2 file"));
        }
        backends::check(self.backends.iter().map(Chosen::name))?;
        let has_precision = self.backends.iter().any(|chosen| matches!(chosen, Chosen::Named(..)));
        if self.precision != Precision::F32 && !has_precision {
            let message =
                format!("the precision {} is one of the backend `cpu`, which is not asked", self.precision.name());
            return Err(Error::invalid(message).help("name that backend, too"));
        }
        for chosen in self.backends {
            match chosen {
                Chosen::Given(backend) => self.options.backends.push(backend),
                Chosen::Named(_, make) => self.options.backends.push(make(self.precision)),
                Chosen::Portable => {}
            }
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
        #[cfg_attr(not(feature = "cpu"), expect(unused_mut, reason = "what quantizes runs programs"))]
        let mut model = import_pt2(&programs, self.options.import)?;
        #[cfg(feature = "cpu")]
        let quantization = self.quantization.map(|quantization| quantization.apply(&mut model)).transpose()?;
        Ok(CompiledProgram {
            compiled: compile(model, &self.options)?,
            #[cfg(feature = "cpu")]
            quantization,
        })
    }
}

impl CompiledProgram {
    /// What was compiled, for looking at it.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// What a quantization did, if there was one.
    #[cfg(feature = "cpu")]
    pub fn quantization(&self) -> Option<&QuantizationReport> {
        self.quantization.as_ref()
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

    /// The files of the weights that are not in the program, with their names as [`save`](Self::save) gives them beside
    /// a program `model.pte`. Empty unless [`external_weights`](Compiler::external_weights) asks for some.
    ///
    /// # Errors
    /// When a weight cannot be read, or two files have the same name.
    pub fn external_data(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let bytes = |(name, data): (String, &ExternalData)| Ok((name, data.data.to_bytes().map_err(unwritable)?));
        self.external("model", "model.pte")?.into_iter().map(bytes).collect()
    }

    /// The `.ptd` files that [`save`](Self::save) writes beside a program of this name, with their sizes in bytes.
    ///
    /// # Errors
    /// When two files have the same name, or one is too large for its format.
    pub fn external_files(&self, path: impl AsRef<Path>) -> Result<Vec<(PathBuf, u64)>, Error> {
        let path = path.as_ref();
        let size = |(name, data): (String, &ExternalData)| Ok((path.with_file_name(name), image(data)?.size()));
        self.external_of(path)?.into_iter().map(size).collect()
    }

    /// Writes the file beside its name and renames it, so that a failure leaves no broken file. Returns its size. Files
    /// of weights come into its folder, too, and before it.
    ///
    /// # Errors
    /// `AccessFailed` when a file cannot be written; what was there before stays.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let path = path.as_ref();
        let program = self.compiled.program.write(&WriteOptions::default()).map_err(unwritable)?;
        let mut files = Files::default();
        for (name, data) in self.external_of(path)? {
            files.write(&path.with_file_name(name), &image(data)?)?;
        }
        files.write(path, &program)?;
        files.finish()?;
        Ok(program.size())
    }

    fn external_of(&self, path: &Path) -> Result<Vec<(String, &ExternalData)>, Error> {
        let name = |name: Option<&OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
        self.external(&name(path.file_stem()), &name(path.file_name()))
    }

    /// The weights with the names of their files, for a program of this name without and with its ending.
    fn external(&self, stem: &str, program: &str) -> Result<Vec<(String, &ExternalData)>, Error> {
        let files: Vec<_> = self.compiled.external.iter().map(|data| (data.file_name(stem), data)).collect();
        let mut names = HashSet::from([program]);
        match files.iter().find(|(name, _)| !names.insert(name)) {
            None => Ok(files),
            Some((name, _)) => Err(Error::invalid(format!("two files of the program would be called `{name}`"))
                .help("give each file of weights a name of its own")),
        }
    }
}

fn image(data: &ExternalData) -> Result<Image<'_>, Error> {
    data.data.write(SEGMENT_ALIGNMENT).map_err(unwritable)
}

impl From<rushlight_compiler::Error> for Error {
    fn from(error: rushlight_compiler::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Input | ErrorKind::InvalidProgram => Code::InvalidProgram,
            ErrorKind::Unsupported => Code::NotSupported,
            ErrorKind::Type => Code::InvalidType,
            ErrorKind::Output => Code::InvalidArgument,
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
