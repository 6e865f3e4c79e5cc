//! Detection of file kinds by content, for errors about a file of the wrong kind.

use core::fmt;

/// Kinds of files that contain models, their data or their inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A program of ExecuTorch: `.pte`.
    Program,
    /// Constants outside of a program: `.ptd`.
    Data,
    /// A program with test cases: `.bpte`.
    Bundled,
    /// A file of `torch.export.save`: `.pt2`.
    Exported,
    /// A file of `torch.jit.save`.
    TorchScript,
    /// A file of `torch.save`: a pickle in an archive, or alone.
    Checkpoint,
    /// Another pickle.
    Pickle,
    /// An array of NumPy: `.npy`.
    Npy,
    /// Arrays of NumPy: `.npz`.
    Npz,
    /// Another zip archive.
    Zip,
    /// The beginning of a zip archive, whose end is missing.
    TruncatedZip {
        /// Lower bound of the complete file's size, from the headers that are present.
        needed: u64,
    },
    Safetensors,
    Gguf,
    Onnx,
    Tflite,
    Hdf5,
    /// A PNG, JPEG, GIF, BMP or WebP file.
    Image,
    Gzip,
    /// A pointer of Git LFS in place of a large file that was not fetched.
    LfsPointer,
    /// A web page, such as the one of a download that failed.
    Html,
    /// An empty file.
    Empty,
    /// Zeros in place of the magic bytes of all known formats.
    Zeros,
    Unknown,
}

impl FileKind {
    /// Detects the kind of a file from its first bytes, or from the names in a zip archive's directory.
    pub fn of(file: &[u8]) -> Self {
        if file.is_empty() {
            return Self::Empty;
        }
        match file.get(4..8) {
            Some([b'E', b'T', a, b]) if is_generation(*a, *b) => return Self::Program,
            Some([b'F', b'T', a, b]) if is_generation(*a, *b) => return Self::Data,
            Some([b'B', b'P', a, b]) if is_generation(*a, *b) => return Self::Bundled,
            Some(b"TFL3") => return Self::Tflite,
            _ => {}
        }
        for (start, kind) in BEGINNINGS {
            if file.starts_with(start) {
                return *kind;
            }
        }
        match file {
            [b'P', b'K', 3, 4, ..] => zip(file),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Self::Image,
            // The protocol of a pickle, and the first thing in it.
            [0x80, 2..=5, b'\x8a' | b'}' | b']' | b'(' | b'c' | b'\x95', ..] => Self::Pickle,
            [a, b, c, d, e, f, 0, 0, b'{', b'"' | b'}', ..] => {
                let header = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, 0, 0]);
                if (2..=MAX_SAFETENSORS_HEADER).contains(&header) { Self::Safetensors } else { Self::Unknown }
            }
            // A protobuf: field 1, the version, is followed by the producer's name or by the graph.
            [8, 1..=32, 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42, ..] => Self::Onnx,
            _ if file.get(..64).unwrap_or(file).iter().all(|byte| *byte == 0) => Self::Zeros,
            _ => Self::Unknown,
        }
    }
}

/// Writes a noun with its article: `a compiled program (.pte)`.
impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "a compiled program (.pte)",
            Self::Data => "a data file with constants of a program (.ptd)",
            Self::Bundled => "a bundled program, which has test cases around a .pte (.bpte)",
            Self::Exported => "an exported program that torch.export.save wrote (.pt2)",
            Self::TorchScript => "a TorchScript model (torch.jit.save)",
            Self::Checkpoint => "a checkpoint without a program (torch.save)",
            Self::Pickle => "a pickle",
            Self::Npy => "an array of NumPy (.npy)",
            Self::Npz => "an archive of arrays of NumPy (.npz)",
            Self::Zip => "a zip archive",
            Self::TruncatedZip { .. } => "the beginning of a zip archive, whose end is missing",
            Self::Safetensors => "a safetensors file, which has weights and no program",
            Self::Gguf => "a GGUF model",
            Self::Onnx => "an ONNX model",
            Self::Tflite => "a TensorFlow Lite model",
            Self::Hdf5 => "an HDF5 file",
            Self::Image => "an image",
            Self::Gzip => "a gzip file",
            Self::LfsPointer => "a pointer of Git LFS, and not the file that it stands for",
            Self::Html => "a web page",
            Self::Empty => "an empty file",
            Self::Zeros => "a file that begins with zeros",
            Self::Unknown => "a file of another kind",
        })
    }
}

/// Magic bytes of file formats.
const BEGINNINGS: &[(&[u8], FileKind)] = &[
    (b"\x93NUMPY", FileKind::Npy),
    (b"GGUF", FileKind::Gguf),
    (b"\x89HDF\r\n\x1a\n", FileKind::Hdf5),
    (b"\x89PNG\r\n\x1a\n", FileKind::Image),
    (b"\xff\xd8\xff", FileKind::Image),
    (b"GIF8", FileKind::Image),
    (b"BM", FileKind::Image),
    (b"\x1f\x8b", FileKind::Gzip),
    (b"version https://git-lfs.github.com/", FileKind::LfsPointer),
    (b"<!DOCTYPE html", FileKind::Html),
    (b"<!doctype html", FileKind::Html),
    (b"<html", FileKind::Html),
    // A pickled magic number: the format of torch.save before version 1.6.
    (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", FileKind::Checkpoint),
    (b"PK\x05\x06", FileKind::Zip),
];

/// Maximum header size, as in the safetensors library.
const MAX_SAFETENSORS_HEADER: u64 = 100_000_000;

/// True for the two digits that end the identifiers of ExecuTorch's formats.
fn is_generation(a: u8, b: u8) -> bool {
    a.is_ascii_digit() && b.is_ascii_digit()
}

/// Bytes of the record that ends a zip archive, without its comment.
const END_LEN: usize = 22;

/// Detects the kind of an archive by the names in its directory.
fn zip(file: &[u8]) -> FileKind {
    let Some(mut at) = directory(file) else { return FileKind::TruncatedZip { needed: needed(file) } };
    let (mut arrays, mut others) = (false, false);
    let mut kind = FileKind::Zip;
    while file.get(at..at.saturating_add(4)) == Some(b"PK\x01\x02") {
        let lengths = [28, 30, 32].map(|field| u16_at(file, at.saturating_add(field)).map_or(0, usize::from));
        let [name, extra, comment] = lengths;
        let start = at.saturating_add(46);
        let entry = file.get(start..start.saturating_add(name)).unwrap_or_default();
        let ends = |end: &[u8]| entry == end || entry.strip_suffix(end).is_some_and(|folder| folder.ends_with(b"/"));
        if ends(b"archive_format") || ends(b"serialized_exported_program.json") {
            return FileKind::Exported;
        }
        if ends(b"constants.pkl") {
            kind = FileKind::TorchScript;
        } else if ends(b"data.pkl") && kind == FileKind::Zip {
            kind = FileKind::Checkpoint;
        }
        arrays |= entry.ends_with(b".npy");
        others |= !entry.ends_with(b".npy");
        at = start.saturating_add(name).saturating_add(extra).saturating_add(comment);
    }
    if arrays && !others { FileKind::Npz } else { kind }
}

/// Returns the offset of an archive's directory; `None` if the end record is missing.
fn directory(file: &[u8]) -> Option<usize> {
    let last = file.len().checked_sub(END_LEN)?;
    let first = last.saturating_sub(usize::from(u16::MAX));
    let end = (first..=last).rev().find(|at| {
        file.get(*at..at.saturating_add(4)) == Some(b"PK\x05\x06")
            && u16_at(file, at.saturating_add(20)).is_some_and(|comment| usize::from(comment) == last - at)
    })?;
    match u32_at(file, end.checked_add(16)?)? {
        // The offset is in a separate record, which a locator before the end points to.
        u32::MAX => {
            let locator = end.checked_sub(20)?;
            let record = usize::try_from(u64_at(file, locator.checked_add(8)?)?).ok()?;
            usize::try_from(u64_at(file, record.checked_add(48)?)?).ok()
        }
        start => usize::try_from(start).ok(),
    }
}

/// Returns the end of the entries of a truncated archive, as far as their headers state sizes.
fn needed(file: &[u8]) -> u64 {
    let mut at = 0u64;
    loop {
        let Ok(here) = usize::try_from(at) else { return at };
        let field = |offset: usize| here.checked_add(offset);
        let header = || -> Option<u64> {
            if file.get(here..field(4)?)? != b"PK\x03\x04" {
                return None;
            }
            // Flag bit 3: the sizes are in a descriptor after the data.
            if u16_at(file, field(6)?)? & 8 != 0 {
                return None;
            }
            let size = u32_at(file, field(18)?).filter(|size| *size != u32::MAX)?;
            let (name, extra) = (u16_at(file, field(26)?)?, u16_at(file, field(28)?)?);
            Some(30 + u64::from(size) + u64::from(name) + u64::from(extra))
        };
        match header() {
            Some(len) => at = at.saturating_add(len),
            // At least the directory and the end record are missing.
            None => return at.max(file.len() as u64).saturating_add(END_LEN as u64),
        }
    }
}

fn u16_at(file: &[u8], at: usize) -> Option<u16> {
    file.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    file.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(file: &[u8], at: usize) -> Option<u64> {
    file.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_known() {
        let cases: [(&[u8], FileKind); 17] = [
            (b"", FileKind::Empty),
            (b"\x1c\0\0\0ET12eh00", FileKind::Program),
            (b"\x1c\0\0\0FT01FH01", FileKind::Data),
            (b"\x1c\0\0\0BP08", FileKind::Bundled),
            (b"\x1c\0\0\0TFL3", FileKind::Tflite),
            (b"GGUF\x03\0\0\0", FileKind::Gguf),
            (b"\x10\0\0\0\0\0\0\0{\"a\":{}}", FileKind::Safetensors),
            (b"\x08\x08\x12\x07pytorch", FileKind::Onnx),
            (b"\x93NUMPY\x01\0", FileKind::Npy),
            (b"\x80\x02}q\0.", FileKind::Pickle),
            (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80", FileKind::Checkpoint),
            (b"\x89PNG\r\n\x1a\n", FileKind::Image),
            (b"RIFF\0\0\0\0WEBPVP8 ", FileKind::Image),
            (b"<!doctype html><p>404", FileKind::Html),
            (b"version https://git-lfs.github.com/spec/v1\n", FileKind::LfsPointer),
            (&[0; 100], FileKind::Zeros),
            (b"hello, world", FileKind::Unknown),
        ];
        for (bytes, kind) in cases {
            assert_eq!(FileKind::of(bytes), kind, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn archives_whose_offsets_and_lengths_lie_are_archives() {
        let mut file = [0xffu8; 100];
        file[..4].copy_from_slice(b"PK\x03\x04");
        for at in 4..78 {
            for record in [b"PK\x05\x06", b"PK\x01\x02"] {
                file[at..at + 4].copy_from_slice(record);
                let kind = FileKind::of(&file);
                assert!(matches!(kind, FileKind::Zip | FileKind::TruncatedZip { .. }), "{at}: {kind:?}");
            }
        }
    }
}
