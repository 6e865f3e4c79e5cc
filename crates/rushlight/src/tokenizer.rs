//! The tokenizer that a program of a language model carries.

use std::fs;
use std::path::{Path, PathBuf};

use rushlight_format::tokenizer::{
    HUGGING_FACE, KEY_PREFIX, MAX_SETTINGS, MAX_VOCABULARY, OTHER_VOCABULARY, SETTINGS, VOCABULARIES,
};
use rushlight_format::{Blob, FileKind};
use rushlight_runtime::Code;

use crate::error::Error;
use crate::source::open_shared;

/// The tokenizer that a program carries among its named data, where `rushlight_llm` finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProgramTokenizer {
    /// The tokenizer in the folder or the GGUF file of the language model, if it has one; an exported program carries none.
    #[default]
    OfModel,
    /// None.
    Omitted,
    /// The tokenizer in a folder or a file: `tokenizer.json` with its settings beside it, `tokenizer.model`, `tekken.json`, or
    /// with the feature `llm` a `.gguf`.
    Of(PathBuf),
}

/// The files of a tokenizer, as named data of a program.
#[derive(Debug, Default)]
pub(crate) struct TokenizerFiles {
    pub named_data: Vec<(String, Blob<'static>)>,
    /// The files that were read.
    pub paths: Vec<PathBuf>,
}

impl TokenizerFiles {
    /// Those of a folder or a file that is named.
    ///
    /// # Errors
    /// `NotFound` if there are none, and errors of reading them.
    pub fn named(path: &Path) -> Result<Self, Error> {
        let files = Self::of(path)?;
        if files.named_data.is_empty() {
            let expected = format!("{}, or a .gguf file with a vocabulary", VOCABULARIES.join(", "));
            let message = format!("`{}` has no tokenizer", path.display());
            return Err(Error::new(Code::NotFound, message).expected(expected));
        }
        Ok(files)
    }

    /// Those of a folder or a file; none if there are none.
    ///
    /// # Errors
    /// Errors of reading them.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let mut files = Self::default();
        #[cfg(feature = "llm")]
        if crate::language_model::is_gguf(path) {
            files.add_gguf(path)?;
            return Ok(files);
        }
        let inside = VOCABULARIES.iter().map(|name| path.join(name)).find(|file| file.is_file());
        let Some(vocabulary) = inside.or_else(|| (!path.is_dir()).then(|| path.to_owned())) else { return Ok(files) };
        let name = vocabulary.file_name().unwrap_or_default().to_string_lossy();
        // Of `llama.tokenizer.json` they are `llama.tokenizer_config.json` and so on.
        let prefix = name.strip_suffix(HUGGING_FACE);
        let carried = prefix.map_or(&*name, |_| HUGGING_FACE);
        let carried = if VOCABULARIES.contains(&carried) { carried } else { OTHER_VOCABULARY };
        files.add(carried, &vocabulary, MAX_VOCABULARY)?;
        for settings in SETTINGS {
            let file = vocabulary.with_file_name(format!("{}{settings}", prefix.unwrap_or_default()));
            if file.is_file() {
                files.add(settings, &file, MAX_SETTINGS)?;
            }
        }
        Ok(files)
    }

    /// Adds the metadata of a GGUF file that has a vocabulary.
    #[cfg(feature = "llm")]
    fn add_gguf(&mut self, path: &Path) -> Result<(), Error> {
        use rushlight_checkpoint::gguf;
        use rushlight_format::tokenizer::GGUF;

        let vocabulary = gguf::vocabulary(&open_shared(path)?);
        if let Some(vocabulary) = vocabulary.map_err(|error| error.at(format!("file `{}`", path.display())))? {
            check_size(path, vocabulary.len() as u64, MAX_VOCABULARY)?;
            self.named_data.push((format!("{KEY_PREFIX}{GGUF}"), vocabulary.into()));
            self.paths.push(path.to_owned());
        }
        Ok(())
    }

    fn add(&mut self, name: &str, path: &Path, max_bytes: u64) -> Result<(), Error> {
        check_size(path, fs::metadata(path).map_or(0, |metadata| metadata.len()), max_bytes)?;
        let bytes = open_shared(path)?;
        let kind = FileKind::of(&bytes);
        if matches!(kind, FileKind::Program | FileKind::Gguf) {
            return Err(Error::new(Code::NotSupported, format!("`{}` is not a tokenizer", path.display()))
                .expected("a folder or a file of a tokenizer".into())
                .got(kind.to_string()));
        }
        self.named_data.push((format!("{KEY_PREFIX}{name}"), bytes.into()));
        self.paths.push(path.to_owned());
        Ok(())
    }
}

fn check_size(path: &Path, bytes: u64, max_bytes: u64) -> Result<(), Error> {
    if bytes <= max_bytes {
        return Ok(());
    }
    Err(Error::new(Code::NotSupported, format!("`{}` is too large for a tokenizer", path.display()))
        .expected(format!("at most {max_bytes} bytes"))
        .got(format!("{bytes} bytes")))
}
