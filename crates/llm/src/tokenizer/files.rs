//! The files of settings beside a tokenizer's vocabulary: those of a folder, or those that a program carries.

use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use rushlight_format::tokenizer::{KEY_PREFIX, MAX_SETTINGS};
use serde_json::Value as Json;

use crate::error::{Error, Result};

/// Opens a file to be read. Others than regular ones may wait for ever, or have no end: pipes, devices, sockets.
pub(crate) fn regular_file(path: &Path) -> io::Result<File> {
    let check = |metadata: Metadata| {
        if metadata.is_file() {
            return Ok(());
        }
        let kind = if metadata.is_dir() { "a folder" } else { "a pipe, a device or a socket" };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("expected a regular file, got {kind}")))
    };
    // To open a pipe may wait already.
    check(std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    check(file.metadata()?)?;
    Ok(file)
}

/// Where files of settings are.
#[derive(Clone, Copy)]
pub(super) enum SettingsFiles<'a> {
    /// In a folder; what their names begin with.
    Folder(&'a Path, &'a str),
    Program(rushlight_format::Program<'a>),
}

impl<'a> SettingsFiles<'a> {
    /// The JSON of a file, if there is one.
    pub(super) fn json(self, name: &str) -> Result<Option<Json>> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| self.damaged(name, &error))
    }

    /// The text of a file, if there is one.
    pub(super) fn text(self, name: &str) -> Result<Option<String>> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        String::from_utf8(bytes.into_owned()).map(Some).map_err(|error| self.damaged(name, &error))
    }

    fn bytes(self, name: &str) -> Result<Option<Cow<'a, [u8]>>> {
        let bytes: Cow<'a, [u8]> = match self {
            Self::Folder(folder, prefix) => {
                let path = folder.join(format!("{prefix}{name}"));
                if !path.exists() {
                    return Ok(None);
                }
                let mut bytes = Vec::new();
                let opened =
                    regular_file(&path).and_then(|opened| opened.take(MAX_SETTINGS + 1).read_to_end(&mut bytes));
                opened.map_err(|error| Error::file(&path, error))?;
                bytes.into()
            }
            Self::Program(program) => match program.named(&format!("{KEY_PREFIX}{name}")) {
                Some(bytes) => bytes.into(),
                None => return Ok(None),
            },
        };
        if bytes.len() as u64 > MAX_SETTINGS {
            return Err(self.damaged(name, &format_args!("it has more than {MAX_SETTINGS} bytes")));
        }
        Ok(Some(bytes))
    }

    pub(super) fn damaged(self, name: &str, problem: &dyn std::fmt::Display) -> Error {
        Error::Tokenizer(match self {
            Self::Folder(folder, prefix) => {
                format!("`{}`: {problem}", folder.join(format!("{prefix}{name}")).display())
            }
            Self::Program(_) => format!("`{name}` inside of the program: {problem}"),
        })
    }
}
