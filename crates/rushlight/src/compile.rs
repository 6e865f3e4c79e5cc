//! Compiles `.pt2` files to `.pte` files.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rushlight_compiler::emit::{ExternalData, ExternalWeights};
use rushlight_compiler::passes::StoreCaches;
use rushlight_compiler::{CompileOptions, Compiled, ConstantResult, check_method_names, compile, import_pt2};
#[cfg(feature = "llm")]
use rushlight_decoders::Options as LanguageModelOptions;
use rushlight_format::pte::{InstructionModel, OperatorModel, WriteOptions};
use rushlight_format::{Image, SEGMENT_ALIGNMENT};
use rushlight_graph::{Bytes, Progress};
use rushlight_kernels as kernels;
use rushlight_runtime::{Code, Registry};

use crate::atomic::{Files, InputFiles, Written, unwritable};
use crate::backends::{self, BackendChoice, Destination};
use crate::error::{Error, MissingOperator};
use crate::kv_cache::KvCache;
#[cfg(feature = "llm")]
use crate::language_model;
use crate::meta::full_name;
use crate::module::Module;
#[cfg(feature = "_backends")]
use crate::quantize::{Quantization, QuantizationReport};
use crate::source::{check_exported, open_exported};
use crate::tokenizer::{ProgramTokenizer, TokenizerFiles};

/// Compiles exported programs. Each becomes a method of one `.pte` file.
#[derive(Debug, Default)]
pub struct Compiler {
    methods: Vec<(String, MethodSource)>,
    #[cfg(feature = "llm")]
    language_model: Option<(PathBuf, LanguageModelOptions)>,
    tokenizer: ProgramTokenizer,
    /// Backends in the order of priority. An invalid one is an error of the compilation.
    backends: Vec<Result<BackendChoice, Error>>,
    #[cfg(feature = "_backends")]
    quantization: Option<Quantization>,
    kv_cache: KvCache,
    options: CompileOptions,
}

#[derive(Debug)]
enum MethodSource {
    File(PathBuf),
    Bytes(Bytes),
}

/// A compiled program: the content of a `.pte` file. Weights are read from the `.pt2` file when they are written.
#[derive(Debug)]
pub struct CompiledProgram {
    compiled: Compiled,
    inputs: InputFiles,
    #[cfg(feature = "_backends")]
    quantization: Option<QuantizationReport>,
}

impl Compiler {
    /// Creates a compiler with the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method from a `.pt2` file that `torch.export.save` wrote.
    #[must_use]
    pub fn method(mut self, name: impl Into<String>, path: impl AsRef<Path>) -> Self {
        self.methods.push((name.into(), MethodSource::File(path.as_ref().to_owned())));
        self
    }

    /// Adds a method from the bytes of a `.pt2` file.
    #[must_use]
    pub fn method_bytes(mut self, name: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        self.methods.push((name.into(), MethodSource::Bytes(bytes.into())));
        self
    }

    /// Builds a decoder from the published files of a language model, in place of an exported program. `path` is a
    /// folder of Hugging Face with `config.json` and `.safetensors` files, or a GGUF file. It is the only source of the
    /// program. The method `forward` takes tokens `[1, T]` and the position of the first token. It returns logits or
    /// hidden states; the KV cache is state.
    #[cfg(feature = "llm")]
    #[must_use]
    pub fn language_model(mut self, path: impl AsRef<Path>, options: LanguageModelOptions) -> Self {
        self.language_model = Some((path.as_ref().to_owned(), options));
        self
    }

    /// Sets the tokenizer that the program carries; by default that of the language model. Its files are copied
    /// unchanged (only the metadata of a GGUF file). They are read when the program is written.
    #[must_use]
    pub fn tokenizer(mut self, tokenizer: ProgramTokenizer) -> Self {
        self.tokenizer = tokenizer;
        self
    }

    /// Adds a method without inputs that returns a constant.
    #[must_use]
    pub fn constant(mut self, name: impl Into<String>, value: ConstantResult) -> Self {
        self.options.constant_methods.push((name.into(), vec![value]));
        self
    }

    /// True if buffers of the same name in several methods are one: methods see each other's writes. ExecuTorch's
    /// runtime needs an option for this when it loads the program (`share_memory_arenas` of its `Module`).
    #[must_use]
    pub fn share_state(mut self, share_state: bool) -> Self {
        self.options.import.share_state = share_state;
        self
    }

    /// Selects the weights that are stored in `.ptd` files, not in the program. [`ModuleBuilder::external_data`] loads
    /// these files.
    ///
    /// [`ModuleBuilder::external_data`]: crate::ModuleBuilder::external_data
    #[must_use]
    pub fn external_weights(mut self, weights: ExternalWeights) -> Self {
        self.options.emit.external_weights = Some(weights);
        self
    }

    /// Adds a backend. It is shown the nodes that the earlier backends did not claim. It may be one that comes with
    /// Rushlight, such as `"cpu"` or `"cpu:precision=bf16"`, or a boxed one of your own. Nodes that none claims run on
    /// the runtime's operators, which `"portable"` stands for. [`backends`](crate::backends) lists the names and their
    /// options. Any other name is an error of [`compile`](Self::compile).
    ///
    /// ```no_run
    /// # fn main() -> rushlight::Result<()> {
    /// rushlight::Compiler::new().method("forward", "model.pt2").backend("cpu:precision=bf16").compile()?.save("model.pte")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn backend(mut self, backend: impl TryInto<BackendChoice, Error: Into<Error>>) -> Self {
        self.backends.push(backend.try_into().map_err(Into::into));
        self
    }

    /// Quantizes convolutions and linear layers, without PyTorch. The first backend with a
    /// [quantizer](rushlight_compiler::partition::Backend::quantizer) decides how; by default the CPU backend. Backends with
    /// integer kernels run the layers in integers. Without such a backend weights are smaller, and the runtime's operators
    /// dequantize them at each call.
    #[cfg(feature = "_backends")]
    #[must_use]
    pub fn quantize(mut self, quantization: Quantization) -> Self {
        self.quantization = Some(quantization);
        self
    }

    /// Sets the storage format of KV caches. A cache is a state of f32 whose rows the program writes at positions. The
    /// CPU backend reads caches in their format. If a format is set and no state is a cache, [`compile`](Self::compile)
    /// returns an error.
    #[must_use]
    pub fn kv_cache(mut self, kv_cache: KvCache) -> Self {
        self.kv_cache = kv_cache;
        self
    }

    /// Reports the progress of the compilation and the quantization. If it is cancelled, they fail with the code
    /// `InvalidState`.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.options.progress = progress;
        self
    }

    /// Returns all options of the compiler.
    pub fn options(&mut self) -> &mut CompileOptions {
        &mut self.options
    }

    /// The folder or file of the language model, if there is one.
    fn language_model_path(&self) -> Option<PathBuf> {
        #[cfg(feature = "llm")]
        return self.language_model.as_ref().map(|(path, _)| path.clone());
        #[cfg(not(feature = "llm"))]
        return None;
    }

    /// Compiles the program.
    ///
    /// # Errors
    /// `NotFound` for files that are missing, and for a backend that does not exist. `AccessFailed` for files that
    /// cannot be read, and `InvalidProgram` for files that are damaged. `NotSupported` for operators and other features
    /// that the compiler lacks. `InvalidArgument` for two methods with the same name, for a backend that is given twice
    /// or after `portable`, for an unknown option of a backend, and for invalid file names of weights. The error names
    /// the node and its line of Python.
    pub fn compile(mut self) -> Result<CompiledProgram, Error> {
        let language_model = self.language_model_path();
        if self.methods.is_empty() != language_model.is_some() {
            return Err(if self.methods.is_empty() {
                Error::invalid("nothing to compile").help("name at least one .pt2 file")
            } else {
                Error::invalid("a language model is the only source of its program")
                    .help("compile other methods to a file of their own")
            });
        }
        let methods = self.methods.iter().map(|(name, _)| name);
        let constants = self.options.constant_methods.iter().map(|(name, _)| name);
        check_method_names(methods.chain(constants).map(String::as_str))?;
        let chosen = self.backends.into_iter().collect::<Result<Vec<_>, _>>()?;
        backends::check(chosen.iter().map(BackendChoice::name))?;
        for chosen in chosen {
            self.options.backends.extend(match chosen {
                BackendChoice::Own(backend) => Some(backend),
                BackendChoice::Known(spec) => spec.make(&Destination { is_file: true, ..Destination::default() })?,
            });
        }
        self.options.import.metadata |= self.options.backends.iter().any(|backend| backend.reads_metadata());
        if let Some(format) = self.kv_cache.format() {
            self.options.passes.push(Box::new(StoreCaches(format)));
        }
        let mut programs = Vec::with_capacity(self.methods.len());
        let mut inputs = InputFiles::new();
        for (name, source) in self.methods {
            let bytes = match source {
                MethodSource::File(path) => {
                    inputs.add(&path);
                    open_exported(path)?
                }
                MethodSource::Bytes(bytes) => {
                    check_exported(&bytes, None)?;
                    bytes
                }
            };
            programs.push((name, bytes));
        }
        let programs: Vec<(&str, Bytes)> =
            programs.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
        #[cfg(feature = "llm")]
        let decoder = match &self.language_model {
            Some((path, options)) => {
                let (model, files) = language_model::import(path, options)?;
                files.iter().for_each(|file| inputs.add(file));
                Some(model)
            }
            None => None,
        };
        #[cfg(not(feature = "llm"))]
        let decoder = None;
        let mut model = match decoder {
            Some(decoder) => decoder,
            None => import_pt2(&programs, self.options.import)?,
        };
        #[cfg(feature = "_backends")]
        if let (Some(path), Some(quantization)) = (&language_model, &self.quantization) {
            quantization.check_language_model(path)?;
        }
        #[cfg(feature = "_backends")]
        let quantization = self
            .quantization
            .map(|quantization| {
                quantization.apply(&mut model, &programs, &self.options.backends, &self.options.progress)
            })
            .transpose()?;
        // Read after the quantization, which runs programs of the model.
        let tokenizer = match (&self.tokenizer, language_model) {
            (ProgramTokenizer::OfModel, Some(path)) => TokenizerFiles::of(&path)?,
            (ProgramTokenizer::Of(path), _) => TokenizerFiles::named(path)?,
            (ProgramTokenizer::OfModel, None) | (ProgramTokenizer::Omitted, _) => TokenizerFiles::default(),
        };
        tokenizer.paths.iter().for_each(|file| inputs.add(file));
        model.named_data.extend(tokenizer.named_data);
        let program = CompiledProgram {
            compiled: compile(model, &self.options)?,
            inputs,
            #[cfg(feature = "_backends")]
            quantization,
        };
        // A program that cannot be loaded is easiest to explain here.
        if cfg!(debug_assertions) {
            program.verify()?;
        }
        Ok(program)
    }
}

/// Maximum size in bytes of a program that [`CompiledProgram::verify`] loads, so that loading does not dominate the
/// memory of a compilation.
const MAX_VERIFIED: u64 = 256 << 20;

impl CompiledProgram {
    /// Loads all methods as a reader of the file would. Custom operators and backends may be missing, because only that
    /// reader has them.
    ///
    /// # Errors
    /// `Internal` for a program that contradicts itself.
    fn verify(&self) -> Result<(), Error> {
        if self.size()? > MAX_VERIFIED {
            return Ok(());
        }
        let load = || -> Result<(), Error> {
            let mut builder = Module::builder();
            #[cfg(feature = "lower")]
            {
                builder = builder.lower(crate::Lower::Off);
            }
            for (_, data) in self.external_data()? {
                builder = builder.external_data_bytes(&data)?;
            }
            let mut module = builder.load_bytes(&self.to_bytes()?)?;
            let names: Vec<String> = module.method_names().map(ToOwned::to_owned).collect();
            names.iter().try_for_each(|name| {
                let loaded = module.load_method(name);
                module.unload_method(name);
                loaded
            })
        };
        match load() {
            Err(error) if self.contradicts_itself(error.code()) => {
                let message = format!("the compiled program does not load: {}", error.message());
                let help = "this is a defect of the compiler; report it with the model";
                let found = Error::new(Code::Internal, message).help(help);
                Err(error.location().map_or(found.clone(), |at| found.site(at.to_owned())))
            }
            _ => Ok(()),
        }
    }

    /// True if an error of loading is a defect of the program rather than of the environment.
    fn contradicts_itself(&self, code: Code) -> bool {
        match code {
            Code::Internal | Code::InvalidState | Code::InvalidProgram | Code::InvalidExternalData => true,
            Code::DelegateInvalidCompatibility | Code::DelegateInvalidHandle => true,
            // Weights are missing; or a backend is, unless all backends are there.
            #[cfg(feature = "_backends")]
            Code::NotFound => {
                let mut delegates = self.compiled.program.methods.iter().flat_map(|plan| &plan.delegates);
                delegates.all(|delegate| backends::runs_backend(&delegate.id))
            }
            _ => false,
        }
    }

    /// Returns the compiled program, for inspection.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// Returns the operators without a kernel in Rushlight, each once, with the count of its calls in all methods. These are
    /// custom operators. A method that calls one loads only with a kernel from
    /// [`ModuleBuilder::ops`](crate::ModuleBuilder::ops).
    pub fn missing_operators(&self) -> Vec<MissingOperator> {
        let registry = Registry::new(kernels::ALL);
        let mut missing: Vec<MissingOperator> = Vec::new();
        for plan in &self.compiled.program.methods {
            let debug = self.compiled.debug.iter().find(|map| map.method == plan.name);
            let has_kernel = |op: &OperatorModel| registry.find(&op.name, &op.overload).is_some();
            for (index, op) in plan.operators.iter().enumerate().filter(|(_, op)| !has_kernel(op)) {
                let calls_it = |(_, instruction): &(usize, &InstructionModel)| match instruction {
                    InstructionModel::Kernel { operator, .. } => *operator as usize == index,
                    _ => false,
                };
                let mut calls = plan.instructions.iter().enumerate().filter(calls_it);
                let Some((first_instruction, _)) = calls.next() else { continue };
                let uses = 1 + calls.count();
                let name = full_name(&op.name, &op.overload);
                if let Some(known) = missing.iter_mut().find(|known| known.name == name) {
                    known.uses += uses;
                    continue;
                }
                let origin = debug.and_then(|map| map.instructions.get(first_instruction)?.as_ref());
                let source = origin.and_then(|origin| origin.source.clone());
                missing.push(MissingOperator { name, uses, first_instruction, source, set: None });
            }
        }
        missing
    }

    /// Returns the report of the quantization, if there was one.
    #[cfg(feature = "_backends")]
    pub fn quantization(&self) -> Option<&QuantizationReport> {
        self.quantization.as_ref()
    }

    /// Returns the bytes of the file.
    ///
    /// # Errors
    /// If the program is too large for its format, or a weight cannot be read.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        self.to_bytes_with(&Progress::default())
    }

    /// As [`to_bytes`](Self::to_bytes), with progress.
    ///
    /// # Errors
    /// The errors of `to_bytes`, and `InvalidState` if `progress` is cancelled.
    pub fn to_bytes_with(&self, progress: &Progress) -> Result<Vec<u8>, Error> {
        let image = self.compiled.program.write(&WriteOptions::default()).map_err(unwritable)?;
        let mut written = Written::none_of(image.size(), progress);
        let mut bytes = Vec::with_capacity(image.size() as usize);
        let mut keep = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        image.write(|piece| written.write(piece, &mut keep)).map_err(|error| error.of(Path::new("")))?;
        Ok(bytes)
    }

    /// Returns the size of the file in bytes.
    ///
    /// # Errors
    /// If the program is too large for its format.
    pub fn size(&self) -> Result<u64, Error> {
        Ok(self.compiled.program.write(&WriteOptions::default()).map_err(unwritable)?.size())
    }

    /// Returns the files of external weights with the names that [`save`](Self::save) gives them beside a program
    /// `model.pte`. Empty unless [`external_weights`](Compiler::external_weights) selects some.
    ///
    /// # Errors
    /// If a weight cannot be read, or two files have the same name.
    pub fn external_data(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let bytes = |(name, data): (String, &ExternalData)| Ok((name, data.data.to_bytes().map_err(unwritable)?));
        self.external("model", "model.pte")?.into_iter().map(bytes).collect()
    }

    /// Returns the `.ptd` files that [`save`](Self::save) writes beside a program of this name, with their sizes in
    /// bytes.
    ///
    /// # Errors
    /// If two files have the same name, or one is too large for its format.
    pub fn external_files(&self, path: impl AsRef<Path>) -> Result<Vec<(PathBuf, u64)>, Error> {
        let path = path.as_ref();
        let size = |(name, data): (String, &ExternalData)| Ok((path.with_file_name(name), image(data)?.size()));
        self.external_of(path)?.into_iter().map(size).collect()
    }

    /// Writes the file to a temporary name in its folder and renames it, so that a failure leaves no broken file.
    /// Returns its size. The files of external weights are written to the same folder, and renamed first.
    ///
    /// An existing file keeps its mode, links are followed, and a pipe or a device is written through.
    ///
    /// # Errors
    /// `InvalidArgument` if a file would replace one that the program was compiled from. `AccessFailed` if the file
    /// cannot be written; an old file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        self.save_with(path, &Progress::default())
    }

    /// As [`save`](Self::save), with progress.
    ///
    /// # Errors
    /// The errors of `save`, and `InvalidState` if `progress` is cancelled.
    pub fn save_with(&self, path: impl AsRef<Path>, progress: &Progress) -> Result<u64, Error> {
        let path = path.as_ref();
        let external = self.external_of(path)?;
        let paths = external.iter().map(|(name, _)| path.with_file_name(name));
        self.inputs.check_outputs(paths.chain([path.to_owned()]))?;
        let program = self.compiled.program.write(&WriteOptions::default()).map_err(unwritable)?;
        let images =
            external.into_iter().map(|(name, data)| Ok((name, image(data)?))).collect::<Result<Vec<_>, Error>>()?;
        let total = images.iter().map(|(_, image)| image.size()).sum::<u64>() + program.size();
        let mut written = Written::none_of(total, progress);
        let mut files = Files::default();
        for (name, image) in images {
            files.write(&path.with_file_name(name), &image, &mut written)?;
        }
        files.write(path, &program, &mut written)?;
        files.finish()?;
        Ok(program.size())
    }

    fn external_of(&self, path: &Path) -> Result<Vec<(String, &ExternalData)>, Error> {
        let name = |name: Option<&OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
        self.external(&name(path.file_stem()), &name(path.file_name()))
    }

    /// Returns the external weights with the names of their files. The program's name is given without and with its
    /// ending.
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
