//! Arguments that several subcommands take.

use std::path::PathBuf;

use clap::Args;
use rushlight::{LoadMode, Module};

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
        let mut builder = Module::builder().mode(mode);
        for data in &self.data {
            builder = builder.external_data(data);
        }
        Ok(builder.load(&self.model)?)
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
