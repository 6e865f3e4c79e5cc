//! Writing files so that a failure leaves what was there before.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use rushlight_format::{FormatError, Image, Part};
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
        self.write_by(path, |file| write_image(image, file))
    }

    /// Writes a file under another name, by a function.
    pub fn write_by(
        &mut self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Unwritten>,
    ) -> Result<(), Error> {
        let write = || -> Result<(), Unwritten> {
            let (file, beside) = create_beside(path)?;
            self.written.push_back((beside, path.to_owned()));
            let mut file = BufWriter::with_capacity(1 << 20, file);
            write(&mut file)?;
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

/// What the names of files end with that are not complete.
pub(crate) const PARTIAL: &str = ".partial";

/// Creates a file beside another, under a name that no other thread or process has.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut tries = 0;
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.{}{PARTIAL}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let beside = path.with_file_name(name);
        match File::create_new(&beside) {
            // A process that had the same number, here or in another container, left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
            created => return Ok((created?, beside)),
        }
    }
}

/// Writes all of a file, large ones by two threads.
pub(crate) fn write_image(image: &Image<'_>, file: &mut impl Write) -> Result<(), Unwritten> {
    if image.size() < WORTH_A_THREAD {
        image.write(|piece| file.write_all(piece).map_err(Unwritten::from))
    } else {
        write_while_making(image, file)
    }
}

/// Bytes of a file from which on it is written by one thread while another makes what comes next.
const WORTH_A_THREAD: u64 = 4 << 20;

/// How many parts wait to be written.
const BUFFERS: usize = 2;

/// What comes next in a file.
enum Next<'i> {
    Part(Part<'i>),
    Made(Vec<u8>),
}

/// Writes a file while another thread makes the data that has to be made. A few buffers go back and forth between the two,
/// so that their memory stays in the caches and is not taken from the system again each time.
fn write_while_making(image: &Image<'_>, file: &mut impl Write) -> Result<(), Unwritten> {
    let (send, parts) = sync_channel(BUFFERS);
    let (give_back, spare) = channel::<Vec<u8>>();
    let make = move || -> Result<(), FormatError> {
        for part in image.parts() {
            let next = match part {
                Part::Blob { blob, .. } if blob.in_place().is_none() => {
                    let mut buffer = spare.try_recv().unwrap_or_default();
                    part.write(&mut buffer, |_| Ok::<(), FormatError>(()))?;
                    Next::Made(buffer)
                }
                part => Next::Part(part),
            };
            // Who no longer takes them has failed, and says why.
            if send.send(next).is_err() {
                break;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let Ok(maker) = thread::Builder::new().spawn_scoped(scope, make) else {
            return image.write(|piece| file.write_all(piece).map_err(Unwritten::from));
        };
        for next in parts {
            match next {
                Next::Part(part) => {
                    part.write(&mut Vec::new(), |piece| file.write_all(piece).map_err(Unwritten::from))?;
                }
                Next::Made(buffer) => {
                    file.write_all(&buffer)?;
                    // After the last part nobody takes it.
                    drop(give_back.send(buffer));
                }
            }
        }
        match maker.join() {
            Ok(made) => Ok(made?),
            Err(panic) => resume_unwind(panic),
        }
    })
}

/// Why a file was not written.
pub(crate) enum Unwritten {
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
