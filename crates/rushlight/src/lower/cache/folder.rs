//! The folder of the cache. It belongs to its user alone, and its size is bounded.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use blake3::Hash;
use rushlight_runtime::Code;

use crate::atomic::PARTIAL;
use crate::error::Error;

/// The ending of entries, after their key.
const ENDING: &str = ".pte";

/// Age at which an incomplete file is abandoned: no process still writes it.
const ABANDONED: Duration = Duration::from_hours(1);

/// Returns the file of an entry.
pub(super) fn file_of(folder: &Path, key: &Hash) -> PathBuf {
    folder.join(format!("{}{ENDING}", key.to_hex()))
}

/// Makes the folder and its parent folders, for the user alone if the system has users.
pub(super) fn create(folder: &Path) -> Result<(), Error> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| unusable("cannot make the folder", folder, &error))
}

/// Refuses a folder that everybody may write to: its content determines the results of models.
pub(super) fn check(folder: &Path) -> Result<(), Error> {
    let metadata = match fs::metadata(folder) {
        Ok(metadata) => metadata,
        // The folder is made when there is an entry to write.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unusable("cannot open the folder", folder, &error)),
    };
    if !metadata.is_dir() {
        return Err(Error::new(Code::AccessFailed, format!("`{}` is not a folder", folder.display())));
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o002 != 0 {
        return Err(Error::new(
            Code::AccessFailed,
            format!("everybody may write to the folder `{}`", folder.display()),
        )
        .help("give the cache a folder of its own, which is made if it is missing"));
    }
    Ok(())
}

fn unusable(what: &str, folder: &Path, error: &io::Error) -> Error {
    Error::new(Code::AccessFailed, format!("{what} `{}`", folder.display())).got(error.to_string())
}

/// Records the use of an entry.
pub(super) fn touch(file: &Path) {
    // If this fails, the entry is removed sooner than it should be, and is written again then.
    drop(fs::OpenOptions::new().write(true).open(file).and_then(|file| file.set_modified(SystemTime::now())));
}

/// Removes abandoned files. Then removes the least recently used entries until all together have at most `limit` bytes.
/// `keep` stays.
pub(super) fn sweep(folder: &Path, limit: u64, keep: &Path) {
    let Ok(files) = fs::read_dir(folder) else { return };
    let mut entries = Vec::new();
    for file in files.flatten() {
        let kind = Kind::of(&file.file_name());
        let Some((kind, metadata)) = kind.zip(file.metadata().ok().filter(fs::Metadata::is_file)) else { continue };
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        match kind {
            Kind::Entry => entries.push((used, metadata.len(), file.path())),
            Kind::Partial if used.elapsed().is_ok_and(|age| age > ABANDONED) => remove(&file.path()),
            Kind::Partial => {}
        }
    }
    let mut total = entries.iter().fold(0u64, |total, (_, len, _)| total.saturating_add(*len));
    entries.sort();
    for (_, len, file) in entries.iter().filter(|(_, _, file)| file != keep) {
        if total <= limit {
            break;
        }
        remove(file);
        total = total.saturating_sub(*len);
    }
}

/// Removes a file. Ignores errors: another process may have removed it, or the system may hold it.
fn remove(file: &Path) {
    drop(fs::remove_file(file));
}

/// The kinds of files that the cache writes. Other files in the folder are ignored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Entry,
    Partial,
}

impl Kind {
    fn of(name: &OsStr) -> Option<Self> {
        let (key, ending) = name.to_str()?.split_at_checked(2 * blake3::OUT_LEN)?;
        if !key.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        match ending.strip_prefix(ENDING)? {
            "" => Some(Self::Entry),
            rest if rest.starts_with('.') && rest.ends_with(PARTIAL) => Some(Self::Partial),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_cache_are_known() {
        let key = "0123456789abcdef".repeat(4);
        let kind = |name: String| Kind::of(OsStr::new(&name));
        assert_eq!(kind(format!("{key}.pte")), Some(Kind::Entry));
        assert_eq!(kind(format!("{key}.pte.12.0.partial")), Some(Kind::Partial));
        for other in [format!("{key}.ptd"), key.to_uppercase() + ".pte", "model.pte".into(), key, String::new()] {
            assert_eq!(kind(other.clone()), None, "{other}");
        }
    }

    #[test]
    fn the_least_recently_used_go_first_and_others_stay() {
        let folder = std::env::temp_dir().join(format!("rushlight-sweep-{}", std::process::id()));
        create(&folder).expect("a folder");
        let long_ago = SystemTime::now() - 2 * ABANDONED;
        let file = |name: String, age: u64| {
            let path = folder.join(name);
            fs::write(&path, [0; 100]).expect("a file");
            let used = long_ago + Duration::from_secs(1000 - age);
            fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(used)).expect("a time");
            path
        };
        let entry = |letter: &str, age| file(format!("{}.pte", letter.repeat(64)), age);
        let entries = [entry("a", 10), entry("b", 30), entry("c", 20), entry("d", 40)];
        let abandoned = file(format!("{}.pte.1.1.partial", "a".repeat(64)), 0);
        let fresh = file(format!("{}.pte.1.2.partial", "a".repeat(64)), 0);
        touch(&fresh);
        let foreign = file("model.pte".into(), 500);
        sweep(&folder, 250, &entries[3]);
        let there = |path: &PathBuf| path.exists();
        assert_eq!(entries.iter().map(there).collect::<Vec<_>>(), [true, false, false, true]);
        assert_eq!([&abandoned, &fresh, &foreign].map(there), [false, true, true]);
        fs::remove_dir_all(&folder).expect("the test's own folder");
    }
}
