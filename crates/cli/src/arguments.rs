//! Arguments that several subcommands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use rushlight::{BackendSpec, KvCache, LoadMode, Lower, Module, ModuleBuilder, ProgramTokenizer, Scheme};
use rushlight_engine::MAX_THREADS;

use crate::failure::Failure;

/// The program to work on.
#[derive(Args)]
pub struct Model {
    /// The .pte file
    pub model: PathBuf,

    /// A .ptd file with constants that the program does not hold; may be repeated
    #[arg(long = "data", value_name = "FILE.ptd")]
    pub data: Vec<PathBuf>,

    /// Loading mode of the file
    #[arg(long, value_enum, default_value = "mmap")]
    pub load_mode: Mode,
}

/// Options of running a program.
#[derive(Args)]
pub struct Running {
    /// Number of threads of a call; by default the number that the machine runs at once
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,

    /// Compile a portable program when it is loaded: auto if that pays, off never, or always for a backend, with
    /// options such as `cpu:precision=bf16` (`rushlight backends` lists them)
    #[arg(long, default_value = "auto", value_name = "auto|off|BACKEND", value_parser = lower)]
    pub lower: Lower,

    #[command(flatten)]
    pub caching: Caching,

    #[command(flatten)]
    pub limits: Limits,
}

/// Quantization that needs no calibration.
#[derive(Args)]
pub struct WeightQuantization {
    /// Quantize without a calibration: `rushlight quantize` has the schemes, and more settings
    #[arg(long, value_name = "SCHEME", value_parser = named::<Scheme>(Scheme::ALL.map(Scheme::name)))]
    pub quantize: Option<Scheme>,

    /// Quantize embedding tables to this number of bits: 8, per row, or 4, in groups of 32
    #[arg(long, value_name = "BITS", requires = "quantize")]
    pub embeddings: Option<u32>,
}

/// The program of a language model.
#[derive(Args)]
pub struct LanguageModel {
    /// Positions of a language model's cache; by default those of the model, at most 2048
    #[arg(long, value_name = "TOKENS")]
    pub max_context_len: Option<usize>,

    /// Maximum number of tokens in a call of a language model; by default all its positions
    #[arg(long, value_name = "TOKENS")]
    pub max_seq_len: Option<usize>,

    /// Make a language model return the logits of all tokens, rather than of the last one
    #[arg(long)]
    pub full_logits: bool,

    /// Element type of KV caches; int8 has a scale and a zero point for each row, int4 for each group of 32 elements
    #[arg(long, value_name = "TYPE", default_value = KvCache::default().name(),
        value_parser = named::<KvCache>(KvCache::ALL.map(KvCache::name)))]
    pub kv_cache: KvCache,

    /// The tokenizer to store in the program: a file of Hugging Face, SentencePiece, tiktoken, Mistral or llama2.c, a
    /// .gguf, or a folder; by default that of the language model, if it has one
    #[arg(long, value_name = "FILE|FOLDER")]
    pub tokenizer: Option<PathBuf>,

    /// Leave the tokenizer out of the program
    #[arg(long, conflicts_with = "tokenizer")]
    pub no_tokenizer: bool,
}

impl LanguageModel {
    pub fn program_tokenizer(&self) -> ProgramTokenizer {
        match &self.tokenizer {
            Some(path) => ProgramTokenizer::Of(path.clone()),
            None if self.no_tokenizer => ProgramTokenizer::Omitted,
            None => ProgramTokenizer::OfModel,
        }
    }
}

/// Limits on a program's memory and time.
#[derive(Args)]
pub struct Limits {
    #[command(flatten)]
    memory: MemoryLimit,

    /// Maximum duration of a call: a number with ms, s, min or h, such as 500ms; without a unit, seconds. The call ends
    /// at most one step later
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time_limit: Option<Duration>,
}

/// Limit on a method's memory.
#[derive(Args)]
pub struct MemoryLimit {
    /// Maximum memory of a method, besides the file: bytes, or a number with kB, MB, GB, KiB, MiB or GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory_limit: Option<usize>,
}

impl Limits {
    /// Adds the limits to a builder.
    pub fn add_to(&self, builder: ModuleBuilder) -> ModuleBuilder {
        let builder = self.memory.add_to(builder);
        match self.time_limit {
            Some(limit) => builder.time_limit(limit),
            None => builder,
        }
    }
}

impl MemoryLimit {
    /// Adds the limit to a builder.
    pub fn add_to(&self, builder: ModuleBuilder) -> ModuleBuilder {
        match self.memory_limit {
            Some(limit) => builder.memory_limit(limit),
            None => builder,
        }
    }
}

/// Splits a text into a number and the unit after it, in lower case.
fn with_unit(text: &str) -> (&str, String) {
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim(), unit.trim().to_ascii_lowercase())
}

/// Parses a size in bytes.
fn size(text: &str) -> Result<usize, String> {
    let (number, unit) = with_unit(text);
    let factor = match &*unit {
        "" | "b" => Some(1u64),
        "kb" => Some(1_000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        "tb" => Some(1_000_000_000_000),
        "kib" => Some(1 << 10),
        "mib" => Some(1 << 20),
        "gib" => Some(1 << 30),
        "tib" => Some(1 << 40),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "expected a size of at least 1 byte, such as 1000000, 64MiB or 2GB".to_owned())
}

/// Parses a duration.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = with_unit(text);
    let seconds = match &*unit {
        "ns" => Some(1e-9),
        "us" | "µs" => Some(1e-6),
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = number.parse::<f64>().ok().zip(seconds).map(|(number, seconds)| number * seconds);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration = duration.filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "expected a time above 0, such as 10, 500ms, 2s or 5min".to_owned())
}

/// The folder that keeps lowered programs.
#[derive(Args)]
pub struct Caching {
    /// Keep large programs that were compiled at load in this folder, and load them from there [default: the
    /// environment variable RUSHLIGHT_CACHE, or nowhere]
    #[arg(long, value_name = "FOLDER", value_parser = folder)]
    cache: Option<PathBuf>,
}

impl Caching {
    /// Sets the folder of the cache on a builder.
    pub fn add_to(&self, builder: ModuleBuilder) -> ModuleBuilder {
        match &self.cache {
            Some(folder) => builder.cache(folder),
            None => builder,
        }
    }
}

/// A parser that accepts one of these names.
pub fn named<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names.into_iter().collect::<Vec<_>>()).try_map(|name| name.parse::<T>())
}

/// Parses a number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=MAX_THREADS) => Ok(threads),
        _ => Err(format!("expected a number from 1 to {MAX_THREADS}")),
    }
}

/// Parses a count of rows to show: at least one.
pub fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a number from 1 on".to_owned())
}

/// Parses a number that is neither NaN nor infinite.
pub fn finite(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| "expected a finite number".to_owned())
}

/// Parses a finite number that is not negative.
pub fn magnitude(text: &str) -> Result<f64, String> {
    finite(text).ok().filter(|number| *number >= 0.0).ok_or_else(|| "expected a finite number from 0 on".to_owned())
}

/// Parses the path of a folder. The folder is made when it is needed.
fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match std::fs::metadata(&path) {
        _ if text.is_empty() => Err("expected the name of a folder".to_owned()),
        Ok(metadata) if !metadata.is_dir() => Err("expected a folder, and this is none".to_owned()),
        _ => Ok(path),
    }
}

/// Parses the name of a file to write. Refuses `-`, because the command prints text to standard output.
pub fn output_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if path.as_os_str() == "-" {
            return Err("expected the name of a file: standard output takes what the command prints, and no files; \
                        `./-` is a file of that name");
        }
        Ok(path)
    })
}

/// Parses the choice for a portable program at load.
fn lower(text: &str) -> Result<Lower, String> {
    text.parse().map_err(|error: rushlight::Error| {
        let expected = error.what_was_expected().map(|expected| format!("; expected {expected}"));
        format!("{}{}", error.message(), expected.unwrap_or_default())
    })
}

/// Parses a backend with its options.
pub fn backend_spec(text: &str) -> Result<BackendSpec, Failure> {
    text.parse().map_err(Failure::of_arguments)
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Mode {
    /// Read the whole file
    File,
    /// Map the file
    Mmap,
    /// Map the file and lock it into memory
    MmapMlock,
}

impl Model {
    /// Returns the files to read.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        std::iter::once(&self.model).chain(&self.data).cloned()
    }

    /// Loads the program for inspection, without changes.
    pub fn load(&self) -> Result<Module, Failure> {
        self.load_with(|builder| builder.lower(Lower::Off))
    }

    /// Loads the program with options.
    pub fn load_with(&self, options: impl FnOnce(ModuleBuilder) -> ModuleBuilder) -> Result<Module, Failure> {
        Ok(options(self.builder()).load(&self.model)?)
    }

    /// Loads the program to run it.
    pub fn load_to_run(&self, running: &Running) -> Result<Module, Failure> {
        let mut builder = running.limits.add_to(running.caching.add_to(self.builder().lower(running.lower.clone())));
        if let Some(threads) = running.threads {
            builder = builder.threads(threads);
        }
        Ok(builder.load(&self.model)?)
    }

    fn builder(&self) -> ModuleBuilder {
        let mode = match self.load_mode {
            Mode::File => LoadMode::File,
            Mode::Mmap => LoadMode::Mmap,
            Mode::MmapMlock => LoadMode::MmapMlock,
        };
        let builder = Module::builder().mode(mode);
        self.data.iter().fold(builder, ModuleBuilder::external_data)
    }
}

/// The method to work on.
#[derive(Args)]
pub struct Method {
    /// The method; by default `forward`, or the only one
    #[arg(long, short)]
    pub method: Option<String>,
}

impl Method {
    /// The chosen method, or `forward`, or the only one.
    pub fn choose(&self, module: &Module) -> Result<String, Failure> {
        let names: Vec<&str> = module.method_names().collect();
        let method = match (&self.method, &names[..]) {
            (Some(method), _) => &**method,
            (None, [only]) => only,
            (None, _) => "forward",
        };
        module.meta(method).map_err(Failure::Usage)?;
        Ok(method.to_owned())
    }
}
