//! The key of a lowered program: a hash of everything that it was made from.

use blake3::{Hash, Hasher};
use rushlight_engine::parallel_map;

/// Version of the entries' content and of the way they are made. A new version makes all older entries unreachable.
const FORMAT: u32 = 10;

/// Bytes that are hashed separately, so that several threads can share the work.
const PIECE: usize = 4 << 20;

/// Everything that determines a lowered program.
pub(in crate::lower) struct Made<'a> {
    /// The program, and the files with external data in order.
    pub files: Vec<&'a [u8]>,
    /// Settings by name.
    pub settings: &'a [(&'a str, &'a str)],
}

impl Made<'_> {
    /// Returns the key. It is the same for the same files, settings, version of Rushlight and system. It differs for
    /// any others, also for files that somebody made on purpose.
    pub fn key(&self, threads: usize) -> Hash {
        let mut hasher = Hasher::new();
        let mut text = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        text("a lowered program of Rushlight");
        text(&FORMAT.to_string());
        text(env!("CARGO_PKG_VERSION"));
        text(std::env::consts::ARCH);
        text(std::env::consts::OS);
        text(&format!("{} settings, {} files", self.settings.len(), self.files.len()));
        for (name, value) in self.settings {
            text(name);
            text(value);
        }
        for file in &self.files {
            hasher.update(&(file.len() as u64).to_le_bytes());
            hasher.update(content(file, threads).as_bytes());
        }
        hasher.finalize()
    }
}

/// Returns a hash of the hashes of all pieces. Their number follows from the length, which is hashed separately.
pub(in crate::lower) fn content(bytes: &[u8], threads: usize) -> Hash {
    let mut all = Hasher::new();
    for hash in parallel_map(bytes.chunks(PIECE).collect(), threads, blake3::hash) {
        all.update(hash.as_bytes());
    }
    all.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_with_every_file_and_setting() {
        let key = |files: &[&[u8]], settings: &[(&str, &str)]| Made { files: files.to_vec(), settings }.key(1);
        let all = [
            key(&[b"ab"], &[]),
            key(&[b"a", b"b"], &[]),
            key(&[b"b", b"a"], &[]),
            key(&[b"ab", b""], &[]),
            key(&[b"ab"], &[("a", "b")]),
            key(&[b"ab"], &[("ab", "")]),
            key(&[b"ab"], &[("a", "c")]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }

    #[test]
    fn content_does_not_depend_on_threads() {
        let mut bytes = vec![7u8; 2 * PIECE + 9];
        let hash = content(&bytes, 1);
        assert_eq!(hash, content(&bytes, 3));
        bytes[PIECE] ^= 1;
        assert_ne!(hash, content(&bytes, 3));
    }
}
