//! Arguments that several subcommands take.

use std::path::PathBuf;

use clap::Args;
use rushlight::{LoadMode, Lower, Module};

use crate::failure::Failure;

/// The program to work on.
#[derive(Args)]
pub struct Model {
    /// The .pte file
    pub model: PathBuf,

    /// A .ptd file with constants that the program does not hold; may be repeated
    #[arg(long = "data", value_name = "FILE.ptd")]
    pub data: Vec<PathBuf>,

    /// How many threads a call may use; as many as the machine runs at once by default
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// What is done with a portable program when it is loaded
    #[arg(long, value_enum, default_value = "off")]
    pub lower: LowerAt,

    /// How the file is brought into memory
    #[arg(long, value_enum, default_value = "mmap")]
    pub load_mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LowerAt {
    /// It runs on the reference operators
    Off,
    /// It is compiled for this machine's CPU first
    Auto,
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
    /// Loads the program.
    pub fn load(&self) -> Result<Module, Failure> {
        let mode = match self.load_mode {
            Mode::File => LoadMode::File,
            Mode::Mmap => LoadMode::Mmap,
            Mode::MmapMlock => LoadMode::MmapMlock,
        };
        let lower = match self.lower {
            LowerAt::Off => Lower::Off,
            LowerAt::Auto => Lower::Auto,
        };
        let mut builder = Module::builder().mode(mode).lower(lower);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        for data in &self.data {
            builder = builder.external_data(data);
        }
        let module = builder.load(&self.model)?;
        if let Some(reason) = module.not_lowered() {
            eprintln!("warning: the program is not lowered: {reason}");
        }
        Ok(module)
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
