//! The source of a language model: its program, or the published files that it is compiled from.

use std::cell::OnceCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args};
use rushlight::options::{CompilerOptions, LoadOptions};
use rushlight::{Cache, Scheme, is_language_model};
use rushlight_llm::{Error, Tokenizer};

use crate::arguments::{self, Model, Opening};
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

    /// The model as an option, in place of the argument
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

/// Options of running a language model.
pub type Running = Chosen<RunningOptions>;

/// Rows of the options of loading.
pub struct RunningOptions;

impl Selection for RunningOptions {
    type Of = LoadOptions;

    fn rows() -> OptionArgs<LoadOptions> {
        arguments::RunningOptions::rows()
    }

    fn adjust(name: &str, arg: Arg) -> Arg {
        let arg = arguments::RunningOptions::adjust(name, arg);
        match name {
            "cache" => arg.help(
                "Keep programs in this folder that were compiled from a FOLDER or FILE.gguf, or at load, and load them from \
                 there; by default the folder of RUSHLIGHT_CACHE, or the user's cache folder for a FOLDER or FILE.gguf",
            ),
            _ => arg,
        }
    }
}

impl Selection for Settings {
    type Of = CompilerOptions;

    fn rows() -> OptionArgs<CompilerOptions> {
        OptionArgs::all().without(&["share_state", "tokenizer", "no_tokenizer"]).without(&crate::compile::CALIBRATED)
    }

    fn adjust(name: &str, arg: Arg) -> Arg {
        let arg = crate::compile::Settings::adjust(name, arg);
        if name == "max_context_len" {
            return arg.short('c').visible_aliases(["ctx", "ctx-size"]).help(
                "Number of positions of the context: at most those that a .pte was compiled for; by default all of them, and for \
                 a FOLDER or FILE.gguf those of the model, at most 2048",
            );
        }
        let arg = arg.help_heading("Options for a FOLDER or FILE.gguf");
        match name {
            "quantize" => arg.value_parser(scheme_parser()).help(
                "Quantize layers: activations are rounded at run time with int8-dynamic and 8da4w, and stay floats with int4 and \
                 int8-weight",
            ),
            _ => arg,
        }
    }
}

/// Accepts the schemes that need no calibration inputs, because there are none.
fn scheme_parser() -> impl TypedValueParser<Value = String> {
    let known = Scheme::ALL.iter().map(|scheme| PossibleValue::new(scheme.name).hide(scheme.is_static()));
    PossibleValuesParser::new(known).try_map(|name| match Scheme::ALL.iter().find(|scheme| scheme.name == name) {
        Some(scheme) if scheme.is_static() => Err(format!(
            "it needs calibration inputs, and language models are compiled without any; use `{}`",
            scheme.finer.join("` or `")
        )),
        _ => Ok(name),
    })
}

impl Source {
    /// The program. Compiles published files if the cache does not have their program.
    pub fn program(&self, running: &Running) -> Result<Model, Failure> {
        let opening = self.opening.clone();
        if let Some(program) = self.program.get() {
            return Ok(Model { model: program.clone(), opening });
        }
        let path = self.path();
        check_file(path)?;
        // The context of a program is limited when it is loaded.
        let mut compiling = self.settings.options.clone();
        compiling.max_context_len = None;
        if path.exists() && !is_language_model(path) && compiling != CompilerOptions::default() {
            return Err(Failure::Arguments(format!(
                "`{}` is compiled already, and options of compiling change nothing\n  help      \
                 give them to `rushlight compile`, or name the folder or .gguf file that the program was compiled from",
                path.display()
            )));
        }
        let program = program(path, &self.settings.options, running)?;
        Ok(Model { model: self.program.get_or_init(|| program).clone(), opening })
    }

    /// The length of the context that was asked for.
    pub fn context(&self) -> Option<usize> {
        self.settings.options.max_context_len
    }

    /// The program of a smaller model that guesses tokens, with the options of this one.
    pub fn draft(&self, path: &Path, running: &Running) -> Result<Model, Failure> {
        let opening = Opening { data: Vec::new(), ..self.opening.clone() };
        check_file(path)?;
        Ok(Model { model: program(path, &self.settings.options, running)?, opening })
    }

    /// Refuses a model that would be compiled to a program of embeddings, which generates nothing.
    pub fn check_generates(&self) -> Result<(), Failure> {
        if self.settings.options.hidden_states {
            return Err(Failure::Arguments(
                "`--hidden-states` makes a program of embeddings, which generates nothing\n  help      leave it out, or use \
                 `rushlight llm embed` or `rushlight llm serve`"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// The tokenizer of a folder or a .gguf file, or the one beside it; `None` for a program. It is read before the model is
    /// compiled, which takes long.
    pub fn published_tokenizer(&self) -> Result<Option<Tokenizer>, Failure> {
        let path = self.path();
        let is_model = is_language_model(path) && (path.is_file() || path.join("config.json").is_file());
        if !is_model {
            return Ok(None);
        }
        let error = match Tokenizer::open(path) {
            Ok(tokenizer) => return Ok(Some(tokenizer)),
            Err(error) => error,
        };
        if let Some(file) = Tokenizer::beside(path) {
            return Ok(Some(Tokenizer::open(file)?));
        }
        match error {
            Error::File { error, .. } if path.is_dir() && error.kind() == ErrorKind::NotFound => {
                Err(Failure::Arguments(format!(
                    "`{}` has no tokenizer\n  expected  tokenizer.json, tekken.json, tokenizer.model or tokenizer.bin in \
                     it\n  help      name a file or folder with one (`--tokenizer`)",
                    path.display()
                )))
            }
            error => Err(error.into()),
        }
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

/// Checks that a model is a file or a folder. It is opened several times, and a pipe or a device may wait or have no end.
fn check_file(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Err(Failure::Arguments(format!(
            "`{}` is a pipe, a device or a socket\n  expected  a .pte file, a folder or a .gguf file\n  help      save the \
             model to a file first",
            path.display()
        ))),
        // Loading it has the error of a file that cannot be read.
        _ => Ok(()),
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
