//! Atomic writes of files. A failure leaves the old content, links are followed, files keep their modes, pipes and devices
//! are written through, and outputs that are inputs are refused.
//!
//! All outputs are written here, those of tools too: beside their names, then renamed. An input is recognized by device and inode.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use rushlight_format::{FormatError, Image, Part};
use rushlight_graph::Progress;
use rushlight_runtime::Code;

use crate::error::Error;

/// Writes a file as [`CompiledProgram::save`](crate::CompiledProgram::save) does: beside its name, which it gets when it is
/// complete.
///
/// # Errors
/// `AccessFailed` when it cannot be written; what was there before stays.
pub fn write_file(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    let mut files = Files::default();
    files.write_by(path.as_ref(), |file| Ok(file.write_all(bytes)?))?;
    files.finish()
}

/// The files that something reads, so that it does not write over them.
#[derive(Clone, Debug, Default)]
pub struct InputFiles {
    files: Vec<(PathBuf, Identity)>,
}

impl InputFiles {
    /// Returns an empty set of files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file. Missing files and those that are not regular cannot be written over, and are ignored.
    pub fn add(&mut self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        if let Some(identity) = Identity::of(path) {
            self.files.push((path.to_owned(), identity));
        }
    }

    /// Refuses outputs that are one of these files, under whatever name, and outputs that are one file.
    ///
    /// # Errors
    /// `InvalidArgument`, which names both.
    pub fn check_outputs<P: AsRef<Path>>(&self, outputs: impl IntoIterator<Item = P>) -> Result<(), Error> {
        let mut before: Vec<(PathBuf, Identity)> = Vec::new();
        for output in outputs {
            let path = output.as_ref();
            let Some(identity) = Identity::of(path).or_else(|| Identity::of_new(path)) else { continue };
            let same = |files: &[(PathBuf, Identity)]| {
                files.iter().find(|(_, known)| *known == identity).map(|(path, _)| path.display().to_string())
            };
            let output = path.display();
            if let Some(input) = same(&self.files) {
                return Err(Error::invalid(format!("the output `{output}` would replace an input"))
                    .got(format!("the same file as the input `{input}`"))
                    .help("give the output a name of its own"));
            }
            if let Some(other) = same(&before) {
                return Err(Error::invalid(format!("two outputs would both be written to `{output}`"))
                    .got(format!("`{other}` and `{output}`"))
                    .help("give each output a name of its own"));
            }
            before.push((path.to_owned(), identity));
        }
        Ok(())
    }
}

/// Identity of a file, equal for all of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    #[cfg(unix)]
    Node { device: u64, number: u64 },
    /// The canonical path.
    Path(PathBuf),
}

impl Identity {
    /// Returns the identity of a regular file.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Some(Self::Node { device: metadata.dev(), number: metadata.ino() })
        }
        #[cfg(not(unix))]
        {
            drop(metadata);
            fs::canonicalize(path).ok().map(Self::Path)
        }
    }

    /// Returns the identity of a file that does not exist yet, in a folder that does.
    fn of_new(path: &Path) -> Option<Self> {
        if fs::metadata(path).is_ok() {
            return None;
        }
        let path = follow(path).ok()?;
        Some(Self::Path(fs::canonicalize(folder_of(&path)).ok()?.join(path.file_name()?)))
    }
}

/// Files written beside their names, which they get when all are complete. Links lead to the files that are written, and
/// pipes and devices are written through at once.
#[derive(Default)]
pub(crate) struct Files {
    /// Where each is, and the name that it gets.
    written: VecDeque<(Beside, PathBuf)>,
    replaces_all: bool,
}

impl Files {
    /// Files in a folder of our own: whatever has the name of one, a link too, is replaced.
    #[cfg(feature = "lower")]
    pub fn replacing() -> Self {
        Self { written: VecDeque::new(), replaces_all: true }
    }

    /// Writes a file under another name, piece by piece.
    pub fn write(&mut self, path: &Path, image: &Image<'_>, written: &mut Written<'_>) -> Result<(), Error> {
        self.write_by(path, |file| {
            write_image(image, &mut |piece| written.write(piece, |part| Ok(file.write_all(part)?)))
        })
    }

    /// Writes a file under another name, by a function.
    pub fn write_by(
        &mut self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Unwritten>,
    ) -> Result<(), Error> {
        let write = || -> Result<(), Unwritten> {
            let mut file = BufWriter::with_capacity(1 << 20, self.open(path)?);
            write(&mut file)?;
            file.into_inner().map_err(|error| Unwritten::File(error.into_error()))?;
            Ok(())
        };
        write().map_err(|error| error.of(path))
    }

    /// Opens what a file is written to, and notes the name that it is to get.
    fn open(&mut self, path: &Path) -> io::Result<File> {
        if self.replaces_all {
            let (file, beside) = create_beside(path)?;
            self.written.push_back((beside, path.to_owned()));
            return Ok(file);
        }
        let before = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            // A trailing separator names a folder, even if nothing is there yet.
            Err(_) if path.as_os_str().to_string_lossy().ends_with(std::path::is_separator) => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            // A descriptor's name, such as `/dev/stdout`, is in no folder in which a file could be renamed.
            Ok(metadata) if !metadata.is_file() || is_descriptor(path) => {
                return OpenOptions::new().write(true).truncate(metadata.is_file()).open(path);
            }
            Ok(metadata) => {
                // A file that may not be written may not be replaced.
                OpenOptions::new().write(true).open(path)?;
                Some(metadata)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let path = follow(path)?;
        let (file, beside) = create_beside(&path)?;
        self.written.push_back((beside, path));
        if let Some(before) = before {
            keep_mode(&file, &before);
        }
        Ok(file)
    }

    /// Gives the files their names, in the order in which they were written.
    pub fn finish(mut self) -> Result<(), Error> {
        while let Some((beside, path)) = self.written.pop_front() {
            beside.rename(&path).map_err(|error| inaccessible(&path, &error))?;
        }
        Ok(())
    }
}

/// A file that has not got its name. It is removed if it never does.
enum Beside {
    /// Under another name.
    Named(PathBuf),
    /// Under none: the system removes it, however the process ends.
    #[cfg(target_os = "linux")]
    Unnamed(File),
}

impl Beside {
    /// Gives the file its name.
    fn rename(mut self, path: &Path) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Self::Unnamed(file) = &mut self {
            let named = unnamed::link(file, path)?;
            return fs::rename(named.path(), path);
        }
        fs::rename(self.path(), path)
    }

    /// The other name; empty without one.
    fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            #[cfg(target_os = "linux")]
            Self::Unnamed(_) => Path::new(""),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Self::Named(path) = self {
            // It has its name, or is of no use; that it cannot be removed changes nothing.
            drop(fs::remove_file(path));
        }
    }
}

/// Files without a name, as Linux has them on most file systems.
#[cfg(target_os = "linux")]
mod unnamed {
    use std::fs::File;
    use std::io::{self, Seek};
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};

    use super::{Beside, create_named, folder_of, free_name};

    /// Creates a file in the folder of another; `None` where the file system has none, or it could not get a name.
    pub(super) fn create(path: &Path) -> Option<(File, Beside)> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, folder_of(path), flags, Mode::from_raw_mode(0o666)).ok()?);
        std::fs::symlink_metadata(name(&file)).ok()?;
        let beside = Beside::Unnamed(file.try_clone().ok()?);
        Some((file, beside))
    }

    /// The name by which the system finds an open file.
    fn name(file: &File) -> String {
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }

    /// Gives a file a name beside another.
    pub(super) fn link(file: &mut File, path: &Path) -> io::Result<Beside> {
        let from = name(file);
        let linked =
            free_name(path, |beside| linkat(CWD, &from, CWD, beside, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from));
        if let Ok(((), beside)) = linked {
            return Ok(Beside::Named(beside));
        }
        // Where links are forbidden, a copy does it.
        let (mut copy, beside) = create_named(path)?;
        let beside = Beside::Named(beside);
        file.rewind()?;
        io::copy(file, &mut copy)?;
        copy.set_permissions(file.metadata()?.permissions())?;
        Ok(beside)
    }
}

/// Resolves links, of which the last may be dangling.
fn follow(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        path => return path,
    }
    let mut path = path.to_owned();
    // The limit of Linux.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(link) => path = folder_of(&path).join(link),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        None => Path::new("."),
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
    }
}

/// True for names of files that this process has open, such as `/dev/stdout`.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"].iter().any(|prefix| path.starts_with(prefix))
}

/// Gives a new file the owner and mode of the one that it replaces, as far as the system lets it: not all file systems
/// have modes, and only root gives files away.
fn keep_mode(file: &File, before: &fs::Metadata) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let is_ours = file.metadata().is_ok_and(|new| (new.uid(), new.gid()) == (before.uid(), before.gid()));
        if !is_ours {
            drop(fchown(file, Some(before.uid()), Some(before.gid())));
        }
    }
    drop(file.set_permissions(before.permissions()));
}

/// What the names of files end with that are not complete.
pub(crate) const PARTIAL: &str = ".partial";

/// Maximum bytes of a name that a temporary name begins with: systems allow 255 for the whole.
const MAX_PREFIX: usize = 200;

/// Creates a file beside another, under no name or one that no other thread or process has.
fn create_beside(path: &Path) -> io::Result<(File, Beside)> {
    #[cfg(target_os = "linux")]
    if let Some(created) = unnamed::create(path) {
        return Ok(created);
    }
    let (file, beside) = create_named(path)?;
    Ok((file, Beside::Named(beside)))
}

fn create_named(path: &Path) -> io::Result<(File, PathBuf)> {
    free_name(path, |beside| File::create_new(beside))
}

/// Creates something under a name beside a file that no other thread or process has.
fn free_name<T>(path: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut tries = 0;
    loop {
        let mut name = path.file_name().filter(|name| name.len() <= MAX_PREFIX).unwrap_or_default().to_owned();
        name.push(format!(".{}.{}{PARTIAL}", process(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let beside = path.with_file_name(name);
        match create(&beside) {
            // A process that had the same number, here or in another container, left it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
            created => return Ok((created?, beside)),
        }
    }
}

/// The number of this process; 0 where the system has none.
fn process() -> u32 {
    if cfg!(all(target_family = "wasm", target_os = "unknown")) { 0 } else { std::process::id() }
}

/// Passes all of a file to `sink`, of large ones what another thread makes.
pub(crate) fn write_image(
    image: &Image<'_>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), Unwritten>,
) -> Result<(), Unwritten> {
    if image.size() < WORTH_A_THREAD { image.write(sink) } else { write_while_making(image, sink) }
}

/// How much of some files is written.
pub(crate) struct Written<'p> {
    progress: &'p Progress,
    done: u64,
    total: u64,
}

impl<'p> Written<'p> {
    /// Nothing yet of `total` bytes.
    pub fn none_of(total: u64, progress: &'p Progress) -> Self {
        Self { progress, done: 0, total }
    }

    /// Writes a piece by a function, in parts after each of which the writing can end.
    pub fn write(
        &mut self,
        piece: &[u8],
        mut write: impl FnMut(&[u8]) -> Result<(), Unwritten>,
    ) -> Result<(), Unwritten> {
        for part in piece.chunks(PART) {
            write(part)?;
            self.done += part.len() as u64;
            self.progress.report("writing", self.done, self.total).map_err(Unwritten::Ended)?;
        }
        Ok(())
    }
}

/// Maximum bytes that are written without asking whether the writing is to end.
const PART: usize = 4 << 20;

/// Bytes of a file from which on it is written by one thread while another makes what comes next.
const WORTH_A_THREAD: u64 = 4 << 20;

/// How many parts wait to be written.
const BUFFERS: usize = 2;

/// What comes next in a file.
enum Next<'i> {
    Part(Part<'i>),
    Made(Vec<u8>),
}

/// Passes a file to `sink` while another thread makes the data that has to be made. A few buffers go back and forth between the
/// two, so that their memory stays in the caches and is not taken from the system again each time.
fn write_while_making(
    image: &Image<'_>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), Unwritten>,
) -> Result<(), Unwritten> {
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
            return image.write(sink);
        };
        for next in parts {
            match next {
                Next::Part(part) => {
                    part.write(&mut Vec::new(), &mut *sink)?;
                }
                Next::Made(buffer) => {
                    sink(&buffer)?;
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
    /// The caller ended the writing.
    Ended(rushlight_graph::Error),
}

impl Unwritten {
    /// The error of the file.
    pub fn of(self, path: &Path) -> Error {
        match self {
            Self::File(error) => inaccessible(path, &error),
            Self::Format(error) => unwritable(error),
            Self::Ended(error) => error.into(),
        }
    }
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
    let failed = Error::new(Code::AccessFailed, format!("cannot write `{}`", path.display()));
    let folder = folder_of(path);
    match error.kind() {
        io::ErrorKind::IsADirectory => failed.expected("the name of a file".into()).got_folder(path),
        io::ErrorKind::NotFound if path.as_os_str().is_empty() => {
            failed.expected("the name of a file".into()).got("nothing".into())
        }
        io::ErrorKind::NotFound if !folder.exists() => failed
            .of_file(path, error)
            .got(format!("there is no folder `{}`", folder.display()))
            .help("make the folder first"),
        _ => failed.of_file(path, error),
    }
}

pub(crate) fn unwritable(error: FormatError) -> Error {
    Error::new(Code::InvalidProgram, format!("the program cannot be written: {error}"))
}
