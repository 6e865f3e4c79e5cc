//! Language models as they are published: folders of Hugging Face, and GGUF files.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rushlight_checkpoint::{Checkpoint, indexed_files};
use rushlight_decoders::{Options, import_checkpoint, import_gguf};
use rushlight_format::FileKind;
use rushlight_graph::Model;
use rushlight_runtime::Code;

use crate::error::Error;
use crate::source::open_shared;

/// The configuration of a model, beside its weights.
const CONFIG: &str = "config.json";
const GENERATION_CONFIG: &str = "generation_config.json";
/// The weights, in one file or in those that the index lists.
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Maximum size of a file of JSON.
const MAX_JSON: u64 = 64 << 20;

/// True if a path is a language model that [`Compiler::language_model`](crate::Compiler::language_model) takes, rather than
/// an exported program: a folder, or a GGUF file. A pipe or a device that is named as a GGUF file counts as one, which the
/// compiler refuses: reading it may wait, or have no end.
pub fn is_language_model(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    path.is_dir() || is_gguf(path) || is_special_gguf(path)
}

/// True for a pipe, a device or a socket with the name of a GGUF file.
fn is_special_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
        && fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// True for a regular file that begins as GGUF files do: reading from a pipe would take its bytes away.
pub(crate) fn is_gguf(path: &Path) -> bool {
    let mut start = [0; 8];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && FileKind::of(&start) == FileKind::Gguf
}

/// The program of a language model, and the files that it was read from.
pub(crate) fn import(path: &Path, options: &Options) -> Result<(Model, Vec<PathBuf>), Error> {
    if is_gguf(path) {
        let model = import_gguf(&open_shared(path)?, options)
            .map_err(|error| error.at(format!("file `{}`", path.display())))?;
        return Ok((model, vec![path.to_owned()]));
    }
    if is_special_gguf(path) {
        return Err(Error::new(Code::AccessFailed, format!("`{}` is a pipe, a device or a socket", path.display()))
            .expected("a regular file".into())
            .help("save the model to a file first"));
    }
    let config = path.join(CONFIG);
    if !config.is_file() {
        return Err(Error::new(Code::NotFound, format!("`{}` has no `{CONFIG}`", path.display()))
            .expected("a folder of Hugging Face, with the configuration and .safetensors files, or a .gguf file".into())
            .help("name the folder or the .gguf file of the model itself, not a folder around it"));
    }
    let names = weight_files(path)?;
    let mut checkpoint = Checkpoint { config: read(&config)?, ..Checkpoint::default() };
    let generation = path.join(GENERATION_CONFIG);
    if generation.is_file() {
        checkpoint.generation_config = Some(read(&generation)?);
    }
    let mut files = vec![config];
    for name in names {
        let file = path.join(&name);
        checkpoint.weights.push((name, open_shared(&file)?));
        files.push(file);
    }
    Ok((import_checkpoint(&checkpoint, options)?, files))
}

/// The names of the files with weights.
fn weight_files(folder: &Path) -> Result<BTreeSet<String>, Error> {
    let index = folder.join(INDEX);
    if index.is_file() {
        return indexed_files(&read(&index)?).map_err(Error::from);
    }
    if folder.join(WEIGHTS).is_file() {
        return Ok(BTreeSet::from([WEIGHTS.to_owned()]));
    }
    let entries = fs::read_dir(folder).map_err(|error| {
        Error::new(Code::AccessFailed, format!("cannot read the folder `{}`", folder.display())).got(error.to_string())
    })?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: BTreeSet<String> = names.filter(|name| name.ends_with(".safetensors")).collect();
    if names.is_empty() {
        return Err(Error::new(Code::NotFound, format!("`{}` has no weights", folder.display()))
            .expected(".safetensors files".into())
            .help("save the model with `save_pretrained(folder, safe_serialization=True)`"));
    }
    Ok(names)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let fail = |error: std::io::Error| {
        Error::new(Code::AccessFailed, format!("cannot read `{}`", path.display())).got(error.to_string())
    };
    if fs::metadata(path).map_err(fail)?.len() > MAX_JSON {
        return Err(Error::new(Code::NotSupported, format!("`{}` is too large", path.display()))
            .expected(format!("at most {MAX_JSON} bytes")));
    }
    fs::read(path).map_err(fail)
}
