//! Atomic writes of files. A failure leaves the old content. Links are followed, files keep their modes, pipes and
//! devices are written through, and outputs that are inputs are refused.
//!
//! All outputs are written here, also those of tools: to a temporary file in the same folder, which is then renamed. An
//! input is recognized by device and inode.

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

/// Writes a file as [`CompiledProgram::save`](crate::CompiledProgram::save) does: to a temporary file in the same
/// folder, which is renamed when it is complete.
///
/// # Errors
/// `AccessFailed` if the file cannot be written. An old file is then unchanged.
pub fn write_file(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    let mut files = Files::default();
    files.write_by(path.as_ref(), |file| Ok(file.write_all(bytes)?))?;
    files.finish()
}

/// The input files of an operation, which its outputs must not overwrite.
#[derive(Clone, Debug, Default)]
pub struct InputFiles {
    files: Vec<(PathBuf, Identity)>,
}

impl InputFiles {
    /// Returns an empty set of files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file. Missing files and those that are not regular cannot be overwritten, and are ignored.
    pub fn add(&mut self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        if let Some(identity) = Identity::of(path) {
            self.files.push((path.to_owned(), identity));
        }
    }

    /// Refuses outputs that are one of these files, under whatever name, and two outputs that are the same file.
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

/// Temporary files, which get their names when all are complete. For links, the targets are written. Pipes and devices
/// are written through at once.
#[derive(Default)]
pub(crate) struct Files {
    /// Each temporary file, with its final name.
    written: VecDeque<(Beside, PathBuf)>,
    replaces_all: bool,
}

impl Files {
    /// Creates files in a folder of our own: a file or link with the same name is replaced.
    #[cfg(feature = "lower")]
    pub fn replacing() -> Self {
        Self { written: VecDeque::new(), replaces_all: true }
    }

    /// Writes a file under a temporary name, piece by piece.
    pub fn write(&mut self, path: &Path, image: &Image<'_>, written: &mut Written<'_>) -> Result<(), Error> {
        self.write_by(path, |file| written.image(image, file))
    }

    /// Writes a file under a temporary name, by a function.
    pub fn write_by(
        &mut self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Unwritten>,
    ) -> Result<(), Error> {
        let file = self.create(path)?;
        fill(file, path, write)
    }

    /// Creates a file under a temporary name, which [`fill`] writes.
    pub fn create(&mut self, path: &Path) -> Result<BufWriter<File>, Error> {
        let file = self.open(path).map_err(|error| Unwritten::File(error).of(path))?;
        Ok(BufWriter::with_capacity(1 << 20, file))
    }

    /// Opens the temporary file, and records its final name.
    fn open(&mut self, path: &Path) -> io::Result<File> {
        if self.replaces_all {
            let (file, beside) = create_beside(path)?;
            self.written.push_back((beside, path.to_owned()));
            return Ok(file);
        }
        let before = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            // A trailing separator names a folder, even if it does not exist yet.
            Err(_) if path.as_os_str().to_string_lossy().ends_with(std::path::is_separator) => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            // The folder of a descriptor, such as `/dev/stdout`, is no place to rename a file in.
            Ok(metadata) if !metadata.is_file() || is_descriptor(path) => {
                return OpenOptions::new().write(true).truncate(metadata.is_file()).open(path);
            }
            Ok(metadata) => {
                // A file without write permission must not be replaced either.
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

    /// Renames the files to their final names, in the order in which they were written.
    pub fn finish(mut self) -> Result<(), Error> {
        while let Some((beside, path)) = self.written.pop_front() {
            beside.rename(&path).map_err(|error| inaccessible(&path, &error))?;
        }
        Ok(())
    }
}

/// Writes a file that [`Files::create`] created for a path.
pub(crate) fn fill(
    mut file: BufWriter<File>,
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), Unwritten>,
) -> Result<(), Error> {
    let written = write(&mut file)
        .and_then(|()| file.into_inner().map(drop).map_err(|error| Unwritten::File(error.into_error())));
    written.map_err(|error| error.of(path))
}

/// A file without its final name. Dropping it removes the file.
enum Beside {
    /// A file with a temporary name.
    Named(PathBuf),
    /// A file without a name. The system removes it, however the process ends.
    #[cfg(target_os = "linux")]
    Unnamed(File),
}

impl Beside {
    /// Renames the file to its final name.
    fn rename(self, path: &Path) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if let Self::Unnamed(file) = &self {
            let named = unnamed::link(file, path)?;
            return fs::rename(named.path(), path);
        }
        fs::rename(self.path(), path)
    }

    /// Returns the temporary name; empty if there is none.
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
        match self {
            // The file has its name, or is useless. A failure to remove it has no consequence.
            Self::Named(path) => drop(fs::remove_file(path)),
            #[cfg(target_os = "linux")]
            Self::Unnamed(_) => {}
        }
    }
}

/// Files without a name, which Linux supports on most file systems.
#[cfg(target_os = "linux")]
mod unnamed {
    use std::fs::File;
    use std::io::{self, Seek};
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};

    use super::{Beside, create_named, folder_of, free_name};

    /// Creates a file in the folder of another. `None` if the file system does not support files without a name, or the
    /// file could not get a name.
    pub(super) fn create(path: &Path) -> Option<(File, Beside)> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, folder_of(path), flags, Mode::from_raw_mode(0o666)).ok()?);
        std::fs::symlink_metadata(name(&file)).ok()?;
        let beside = Beside::Unnamed(file.try_clone().ok()?);
        Some((file, beside))
    }

    /// Returns the name by which the system finds an open file.
    fn name(file: &File) -> String {
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }

    /// Gives a file a temporary name in the folder of another.
    pub(super) fn link(mut file: &File, path: &Path) -> io::Result<Beside> {
        let from = name(file);
        let linked =
            free_name(path, |beside| linkat(CWD, &from, CWD, beside, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from));
        if let Ok(((), beside)) = linked {
            return Ok(Beside::Named(beside));
        }
        // If links are forbidden, the file is copied.
        let (mut copy, beside) = create_named(path)?;
        let beside = Beside::Named(beside);
        file.rewind()?;
        io::copy(&mut file, &mut copy)?;
        copy.set_permissions(file.metadata()?.permissions())?;
        Ok(beside)
    }
}

/// Resolves links. The last one may be dangling.
fn follow(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        path => return path,
    }
    let mut path = path.to_owned();
    // Linux has the same limit.
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

/// True for names of open files of this process, such as `/dev/stdout`.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"].iter().any(|prefix| path.starts_with(prefix))
}

/// Gives a new file the owner and mode of the file that it replaces, as far as possible. Not all file systems have
/// modes, and only root can change owners.
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

/// The ending of the names of incomplete files.
pub(crate) const PARTIAL: &str = ".partial";

/// Maximum bytes of the prefix of a temporary name. Systems allow 255 bytes for the whole name.
const MAX_PREFIX: usize = 200;

/// Creates a file in the folder of another: without a name, or with a name that no other thread or process uses.
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

/// Creates something in the folder of a file, under a name that no other thread or process uses.
fn free_name<T>(path: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut tries = 0;
    loop {
        let mut name = path.file_name().filter(|name| name.len() <= MAX_PREFIX).unwrap_or_default().to_owned();
        name.push(format!(".{}.{}{PARTIAL}", process(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let beside = path.with_file_name(name);
        match create(&beside) {
            // A process with the same number left it, here or in another container.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
            created => return Ok((created?, beside)),
        }
    }
}

/// Returns the number of this process; 0 if the system has none.
fn process() -> u32 {
    if cfg!(all(target_family = "wasm", target_os = "unknown")) { 0 } else { std::process::id() }
}

/// Passes a file to `sink`. For large files, another thread makes the data.
pub(crate) fn write_image(
    image: &Image<'_>,
    sink: &mut impl FnMut(&[u8]) -> Result<(), Unwritten>,
) -> Result<(), Unwritten> {
    if image.size() < WORTH_A_THREAD { image.write(sink) } else { write_while_making(image, sink) }
}

/// Progress of writing some files.
pub(crate) struct Written<'p> {
    progress: &'p Progress,
    done: u64,
    total: u64,
}

impl<'p> Written<'p> {
    /// Starts with 0 of `total` bytes.
    pub fn none_of(total: u64, progress: &'p Progress) -> Self {
        Self { progress, done: 0, total }
    }

    /// Writes a file's content. Writing can be cancelled after each part.
    pub fn image(&mut self, image: &Image<'_>, to: &mut impl Write) -> Result<(), Unwritten> {
        write_image(image, &mut |piece| self.write(piece, |part| Ok(to.write_all(part)?)))
    }

    /// Writes a piece by a function, in parts. Writing can be cancelled after each part.
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

/// Maximum bytes that are written between two checks for cancellation.
const PART: usize = 4 << 20;

/// Minimum size of a file for a second thread, which makes the next data while the first one writes.
const WORTH_A_THREAD: u64 = 4 << 20;

/// Maximum number of parts that wait to be written.
const BUFFERS: usize = 2;

/// The next part of a file.
enum Next<'i> {
    Part(Part<'i>),
    Made(Vec<u8>),
}

/// Passes a file to `sink` while another thread makes the computed data. A few buffers go back and forth between the
/// two threads. So their memory stays in the caches and is not allocated again each time.
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
            // The receiver has failed, and returns the error itself.
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
                    // After the last part the other thread has ended.
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

/// The reason why a file was not written.
pub(crate) enum Unwritten {
    File(io::Error),
    Format(FormatError),
    /// The caller cancelled the writing.
    Ended(rushlight_graph::Error),
}

impl Unwritten {
    /// Returns the error for a file.
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
