//! Writing files so that a failure leaves what was there before.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rushlight_format::{FormatError, Image};
use rushlight_runtime::Code;

use crate::error::Error;

/// Files written beside their names, which they get when all are complete.
#[derive(Default)]
pub(crate) struct Files {
    /// The name that each has, and the one that it gets.
    written: VecDeque<(PathBuf, PathBuf)>,
}

impl Files {
    /// Writes a file under another name, piece by piece.
    pub fn write(&mut self, path: &Path, image: &Image<'_>) -> Result<(), Error> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let beside = path.with_file_name(name);
        self.written.push_back((beside.clone(), path.to_owned()));
        let write = || -> Result<(), Unwritten> {
            let mut file = BufWriter::with_capacity(1 << 20, File::create(&beside)?);
            image.write(|piece| file.write_all(piece).map_err(Unwritten::from))?;
            file.into_inner().map_err(|error| Unwritten::File(error.into_error()))?;
            Ok(())
        };
        write().map_err(|error| match error {
            Unwritten::File(error) => inaccessible(path, &error),
            Unwritten::Format(error) => unwritable(error),
        })
    }

    /// Gives the files their names, in the order in which they were written.
    pub fn finish(mut self) -> Result<(), Error> {
        while let Some((beside, path)) = self.written.front() {
            std::fs::rename(beside, path).map_err(|error| inaccessible(path, &error))?;
            self.written.pop_front();
        }
        Ok(())
    }
}

impl Drop for Files {
    /// Removes what has not got its name.
    fn drop(&mut self) {
        for (beside, _) in &self.written {
            // It is of no use; that it cannot be removed changes nothing.
            drop(std::fs::remove_file(beside));
        }
    }
}

/// Why a file was not written.
enum Unwritten {
    File(io::Error),
    Format(FormatError),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<FormatError> for Unwritten {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

fn inaccessible(path: &Path, error: &io::Error) -> Error {
    Error::new(Code::AccessFailed, format!("cannot write `{}`", path.display())).got(error.to_string())
}

pub(crate) fn unwritable(error: FormatError) -> Error {
    Error::new(Code::InvalidProgram, format!("the program cannot be written: {error}"))
}
