//! Arguments that several subcommands share.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Arg, Args};
use rushlight::options::LoadOptions;
use rushlight::{BackendSpec, LoadMode, Lower, Module, ModuleBuilder};
use rushlight_engine::MAX_THREADS;

use crate::failure::Failure;
use crate::option_args::{Chosen, OptionArgs, Selection};

/// The program to work on.
#[derive(Args)]
pub struct Model {
    /// The .pte file
    pub model: PathBuf,
    #[command(flatten)]
    pub opening: Opening,
}

/// The files of a program besides its own, and the way to read them.
#[derive(Args, Clone)]
pub struct Opening {
    /// A .ptd file with constants that the program does not hold; may be repeated
    #[arg(long = "data", value_name = "FILE.ptd")]
    pub data: Vec<PathBuf>,

    /// Loading mode of the file
    #[arg(long, value_enum, default_value = "mmap")]
    pub load_mode: Mode,
}

/// Options of running a program.
pub type Running = Chosen<RunningOptions>;

/// The folder that keeps lowered programs.
pub type Caching = Chosen<CachingOptions>;

/// Limits on a program's memory and time.
pub type Limits = Chosen<LimitOptions>;

/// Limit on a method's memory.
pub type MemoryLimit = Chosen<MemoryOptions>;

/// Declares rows of the table of options of loading as arguments.
macro_rules! loading {
    ($name:ident, $rows:expr) => {
        #[doc = "Rows of the options of loading."]
        pub struct $name;

        impl Selection for $name {
            type Of = LoadOptions;

            fn rows() -> OptionArgs<LoadOptions> {
                ($rows)(OptionArgs::<LoadOptions>::all())
            }

            fn adjust(name: &str, arg: Arg) -> Arg {
                match name {
                    "lower" => arg.value_parser(lower),
                    "threads" => arg.env("RUSHLIGHT_THREADS").short('t'),
                    "cache" => arg.value_parser(folder),
                    _ => arg,
                }
            }
        }
    };
}

// The mode is an argument of the program.
loading!(RunningOptions, |all: OptionArgs<LoadOptions>| all.without(&["load_mode"]));
loading!(CachingOptions, |all: OptionArgs<LoadOptions>| all.only(&["cache"]));
loading!(LimitOptions, |all: OptionArgs<LoadOptions>| all.only(&["memory_limit", "time_limit"]));
loading!(MemoryOptions, |all: OptionArgs<LoadOptions>| all.only(&["memory_limit"]));

impl<S: Selection<Of = LoadOptions>> Chosen<S> {
    /// Sets the options of a builder.
    pub fn add_to(&self, builder: ModuleBuilder) -> Result<ModuleBuilder, rushlight::Error> {
        self.options.apply(builder)
    }
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

/// Checks the path of a folder. The folder is made when it is needed.
fn folder(text: &str) -> Result<String, String> {
    match std::fs::metadata(text) {
        _ if text.is_empty() => Err("expected the name of a folder".to_owned()),
        Ok(metadata) if !metadata.is_dir() => Err("expected a folder, and this is none".to_owned()),
        _ => Ok(text.to_owned()),
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

/// Checks the choice for a portable program at load.
fn lower(text: &str) -> Result<String, String> {
    let parsed = text.parse::<Lower>().map_err(|error| {
        let expected = error.what_was_expected().map(|expected| format!("; expected {expected}"));
        format!("{}{}", error.message(), expected.unwrap_or_default())
    });
    parsed.map(|_| text.to_owned())
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
        std::iter::once(&self.model).chain(&self.opening.data).cloned()
    }

    /// Loads the program for inspection, without changes.
    pub fn load(&self) -> Result<Module, Failure> {
        self.load_with(|builder| Ok(builder.lower(Lower::Off)))
    }

    /// Loads the program with options.
    pub fn load_with(
        &self,
        options: impl FnOnce(ModuleBuilder) -> Result<ModuleBuilder, rushlight::Error>,
    ) -> Result<Module, Failure> {
        Ok(options(self.builder())?.load(&self.model)?)
    }

    /// Loads the program to run it.
    pub fn load_to_run<S: Selection<Of = LoadOptions>>(&self, running: &Chosen<S>) -> Result<Module, Failure> {
        self.load_with(|builder| running.add_to(builder))
    }

    fn builder(&self) -> ModuleBuilder {
        let mode = match self.opening.load_mode {
            Mode::File => LoadMode::File,
            Mode::Mmap => LoadMode::Mmap,
            Mode::MmapMlock => LoadMode::MmapMlock,
        };
        let builder = Module::builder().mode(mode);
        self.opening.data.iter().fold(builder, ModuleBuilder::external_data)
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
