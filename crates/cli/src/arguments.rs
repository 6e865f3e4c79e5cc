//! Arguments that several subcommands take.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rushlight::{LoadMode, Lower, Module, ModuleBuilder, Steps};

use crate::failure::Failure;

/// The program to work on.
#[derive(Args)]
pub struct Model {
    /// The .pte file
    pub model: PathBuf,

    /// A .ptd file with constants that the program does not hold; may be repeated
    #[arg(long = "data", value_name = "FILE.ptd")]
    pub data: Vec<PathBuf>,

    /// How the file is brought into memory
    #[arg(long, value_enum, default_value = "mmap")]
    pub load_mode: Mode,
}

/// How the program is run.
#[derive(Args)]
pub struct Running {
    /// How many threads a call may use; as many as the machine runs at once by default
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Compile a portable program when it is loaded: auto where that pays, off never, or for a backend
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = lower())]
    pub lower: Lower,

    #[command(flatten)]
    pub caching: Caching,
}

/// Where lowered programs are kept.
#[derive(Args)]
pub struct Caching {
    /// Keep large programs that were compiled when they were loaded in this folder, and take them from there [default: the
    /// environment variable RUSHLIGHT_CACHE, or nowhere]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
}

impl Caching {
    /// Adds it to what loads a program.
    pub fn add_to(&self, builder: ModuleBuilder) -> ModuleBuilder {
        match &self.cache {
            Some(folder) => builder.cache(folder),
            None => builder,
        }
    }
}

/// A parser of one of these names.
pub fn named<T>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names.into_iter().collect::<Vec<_>>()).try_map(|name| name.parse::<T>())
}

fn lower() -> impl TypedValueParser<Value = Lower> {
    PossibleValuesParser::new(Lower::NAMES.map(|(name, _)| name)).try_map(|name| Lower::from_name(&name))
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Mode {
    /// Read whole
    File,
    /// Map
    Mmap,
    /// Map and lock into memory
    MmapMlock,
}

impl Model {
    /// Loads the program to look at it, as it is.
    pub fn load(&self) -> Result<Module, Failure> {
        Ok(self.builder().lower(Lower::Off).load(&self.model)?)
    }

    /// Loads the program to run it, and to record the steps of the CPU back end if that is asked for.
    pub fn load_to_run(&self, running: &Running, steps: Option<Arc<Steps>>) -> Result<Module, Failure> {
        let mut builder = running.caching.add_to(self.builder().lower(running.lower));
        if let Some(threads) = running.threads {
            builder = builder.threads(threads);
        }
        if let Some(steps) = steps {
            builder = builder.profile_steps(steps);
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
    pub fn choose(&self, module: &Module) -> String {
        if let Some(method) = &self.method {
            return method.clone();
        }
        let names: Vec<&str> = module.method_names().collect();
        match names[..] {
            [only] => only.to_owned(),
            _ => "forward".to_owned(),
        }
    }
}
