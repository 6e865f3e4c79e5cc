//! The source of a language model: its program, or the published files that it is compiled from.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use clap::{Arg, Args};
use rushlight::options::CompilerOptions;
use rushlight::{Cache, is_language_model};

use crate::arguments::{Model, Opening, Running};
use crate::failure::Failure;
use crate::option_args::{Chosen, OptionArgs, Selection};
use crate::output;
use crate::progress::Follower;

/// A language model.
#[derive(Args)]
pub struct Source {
    /// The .pte file; or a folder of Hugging Face or a .gguf file, which is compiled once and kept in the cache
    #[arg(value_name = "FILE.pte|FOLDER|FILE.gguf", required_unless_present = "model_flag")]
    model: Option<PathBuf>,

    /// The same, as other tools take it
    #[arg(short = 'm', long = "model", value_name = "FILE.pte|FOLDER|FILE.gguf", conflicts_with = "model")]
    model_flag: Option<PathBuf>,

    #[command(flatten)]
    opening: Opening,

    #[command(flatten)]
    settings: Chosen<Settings>,

    /// The program, once it is known: the tokenizer and the model are read from it.
    #[arg(skip)]
    program: OnceCell<PathBuf>,
}

/// Options of the compilation of a folder or a .gguf file.
pub struct Settings;

impl Selection for Settings {
    type Of = CompilerOptions;

    fn rows() -> OptionArgs<CompilerOptions> {
        OptionArgs::all().without(&["share_state", "tokenizer", "no_tokenizer"])
    }

    fn adjust(name: &str, arg: Arg) -> Arg {
        let arg = crate::compile::Settings::adjust(name, arg).help_heading("Options for a FOLDER or FILE.gguf");
        match name {
            "max_context_len" => arg.short('c').visible_aliases(["ctx", "ctx-size"]),
            _ => arg,
        }
    }
}

impl Source {
    /// The program. Compiles published files if the cache does not have their program.
    pub fn program(&self, running: &Running) -> Result<Model, Failure> {
        let opening = self.opening.clone();
        if let Some(program) = self.program.get() {
            return Ok(Model { model: program.clone(), opening });
        }
        let path = self.path();
        if path.exists() && !is_language_model(path) && self.settings.options != CompilerOptions::default() {
            return Err(Failure::Arguments(format!(
                "`{}` is compiled already, and options of compiling change nothing\n  help      \
                 give them to `rushlight compile`, or name the folder or .gguf file that the program was compiled from",
                path.display()
            )));
        }
        let program = program(path, &self.settings.options, running)?;
        Ok(Model { model: self.program.get_or_init(|| program).clone(), opening })
    }

    /// The program of a smaller model that guesses tokens, with the options of this one.
    pub fn draft(&self, path: &Path, running: &Running) -> Result<Model, Failure> {
        let opening = Opening { data: Vec::new(), ..self.opening.clone() };
        Ok(Model { model: program(path, &self.settings.options, running)?, opening })
    }

    /// Has a folder or a .gguf file compiled to a program that returns hidden states.
    pub fn return_hidden_states(&mut self) {
        self.settings.options.hidden_states = is_language_model(self.path());
    }

    /// The name of the folder, or of the file without its ending.
    pub fn name(&self) -> Option<String> {
        let path = self.path();
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.map(|name| name.to_string_lossy().into_owned())
    }

    /// The path that was given: clap requires one.
    pub fn path(&self) -> &Path {
        self.model.as_ref().or(self.model_flag.as_ref()).map_or(Path::new(""), PathBuf::as_path)
    }
}

/// The file of the program of a model.
fn program(model: &Path, options: &CompilerOptions, running: &Running) -> Result<PathBuf, Failure> {
    if !is_language_model(model) {
        return Ok(model.to_owned());
    }
    let cache = match &running.options.cache {
        Some(folder) => Cache::new(folder),
        None => Cache::of_user()?,
    };
    let follower = Follower::watch();
    let cached = cache.language_model(model, options, &follower.progress()).map_err(Failure::of_arguments)?;
    drop(follower);
    if cached.is_new {
        output::note(&format!("`{}` is compiled once, to `{}`", model.display(), cached.file.display()));
    }
    Ok(cached.file)
}
