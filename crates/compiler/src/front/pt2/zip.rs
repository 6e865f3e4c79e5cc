//! Zip archives whose entries are stored as they are, as PyTorch writes them.
//!
//! The central directory is the authority on names, sizes and checksums: the headers before the entries leave sizes and
//! checksums open. Everything is checked when the archive is parsed (bounds, overlaps, names), so that an entry is
//! always a slice of the archive. Compressed and encrypted entries are refused when they are read. Checksums are
//! compared where a part is parsed (JSON, pickles) and not for weights, which would have to be read whole.
//!
//! Specification: PKWARE APPNOTE.TXT 6.3.

use indexmap::IndexMap;

use super::crc32::crc32;
use super::error::{Error, ErrorKind};
use crate::Bytes;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const END_LEN: usize = 22;
const LOCATOR_64_LEN: usize = 20;

/// The entries of an archive, by their name below its one root folder.
#[derive(Clone, Debug)]
pub struct Zip {
    bytes: Bytes,
    root: String,
    entries: IndexMap<String, Entry>,
}

/// One entry; its range lies in the archive.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    len: usize,
    method: u16,
    is_encrypted: bool,
    /// 0 if the writer was told to compute none.
    crc32: u32,
}

impl Zip {
    /// Reads the directory of an archive. Its root is the folder of the first entry, whatever the file is called; the
    /// other entries lie below it too, or keep their names.
    pub fn parse(bytes: Bytes) -> Result<Self, Error> {
        let directory = Directory::find(&bytes)?;
        let mut entries = IndexMap::new();
        let mut spans = Vec::new();
        let mut root = None;
        let mut reader = Reader { bytes: &bytes, at: directory.start, end: directory.end };
        for _ in 0..directory.count {
            let record = Record::read(&mut reader)?;
            if record.name.ends_with('/') {
                continue;
            }
            let start = record.data_start(&bytes, directory.start)?;
            let root: &String = root.get_or_insert_with(|| match record.name.split_once('/') {
                Some((folder, _)) => format!("{folder}/"),
                None => String::new(),
            });
            let name = record.name.strip_prefix(root.as_str()).unwrap_or(record.name);
            let Record { method, crc32, size: len, .. } = record;
            let entry = Entry { start, len, method, is_encrypted: record.flags & 1 != 0, crc32 };
            spans.push((record.local, start + len, entries.len()));
            if entries.insert(name.to_owned(), entry).is_some() {
                return Err(Error::new(name, ErrorKind::DuplicateEntry));
            }
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            if let [(_, end, first), (start, _, second)] = pair
                && start < end
            {
                let name = |index: &usize| entries.get_index(*index).map_or("", |(name, _)| name.as_str());
                return Err(Error::new(name(second), ErrorKind::Overlap { other: name(first).to_owned() }));
            }
        }
        Ok(Self { bytes, root: root.unwrap_or_default(), entries })
    }

    /// An archive without entries.
    pub(super) fn empty() -> Self {
        Self { bytes: Bytes::from(Vec::new()), root: String::new(), entries: IndexMap::new() }
    }

    /// The folder that holds all entries, with `/` at its end; empty if there is none.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Names in the order of the directory.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The bytes of an entry, without a look at its checksum.
    pub fn get(&self, name: &str) -> Result<Bytes, Error> {
        Ok(self.entry(name)?.1)
    }

    /// The bytes of an entry, which must be those that its checksum was made of.
    pub fn get_checked(&self, name: &str) -> Result<Bytes, Error> {
        let (entry, data) = self.entry(name)?;
        let got = if entry.crc32 == 0 { 0 } else { crc32(&data) };
        if got == entry.crc32 {
            Ok(data)
        } else {
            Err(Error::new(name, ErrorKind::Checksum { expected: entry.crc32, got }).at(entry.start as u64))
        }
    }

    /// The text of an entry, checked.
    pub fn get_text(&self, name: &str) -> Result<Bytes, Error> {
        let data = self.get_checked(name)?;
        match std::str::from_utf8(&data) {
            Ok(_) => Ok(data),
            Err(error) => {
                let kind = ErrorKind::Json { message: "not UTF-8".to_owned(), near: String::new() };
                Err(Error::new(name, kind).at(error.valid_up_to() as u64))
            }
        }
    }

    fn entry(&self, name: &str) -> Result<(Entry, Bytes), Error> {
        let entry = *self.entries.get(name).ok_or_else(|| Error::new(name, ErrorKind::MissingEntry))?;
        if entry.is_encrypted {
            return Err(Error::new(name, ErrorKind::Encrypted));
        }
        if entry.method != 0 {
            return Err(Error::new(name, ErrorKind::Compressed { method: entry.method }));
        }
        // The range was checked by `parse`; only an owner whose length changes gets here without bytes.
        let data = self.bytes.slice(entry.start..entry.start + entry.len);
        Ok((entry, data.ok_or_else(|| Error::new(name, ErrorKind::MissingEntry))?))
    }
}

/// Where the central directory is.
struct Directory {
    start: usize,
    end: usize,
    count: u64,
}

impl Directory {
    fn find(bytes: &[u8]) -> Result<Self, Error> {
        // The last record may be followed by a comment of up to 65535 bytes.
        let last = bytes.len().checked_sub(END_LEN).ok_or_else(|| Error::new("", ErrorKind::NotZip))?;
        let first = last.saturating_sub(usize::from(u16::MAX));
        let signature = END.to_le_bytes();
        let end = (first..=last).rev().find(|&at| {
            bytes.get(at..at + 4) == Some(&signature)
                && bytes.get(at + 20..at + 22).is_some_and(|len| {
                    len.first_chunk().is_some_and(|len| usize::from(u16::from_le_bytes(*len)) == last - at)
                })
        });
        let end = end.ok_or_else(|| Error::new("", ErrorKind::NotZip))?;
        let mut reader = Reader { bytes, at: end + 4, end: bytes.len() };
        let what = "the end of the central directory";
        let disks = (reader.u16(what)?, reader.u16(what)?);
        reader.u16(what)?;
        let count = reader.u16(what)?.into();
        let size = reader.u32(what)?.into();
        let start = reader.u32(what)?.into();
        let short = (disks, count, size, start);
        let ((disk, first_disk), count, size, start, limit) = match end.checked_sub(LOCATOR_64_LEN) {
            Some(at) if read_u32(bytes, at) == Some(LOCATOR_64) => Self::find_64(bytes, at)?,
            _ => ((disks.0.into(), disks.1.into()), short.1, short.2, short.3, end),
        };
        if disk != 0 || first_disk != 0 {
            return Err(Error::new("", ErrorKind::SplitArchive).at(end as u64));
        }
        let what = "the central directory";
        let stop = start.checked_add(size).ok_or_else(|| Error::new("", ErrorKind::Overflow { what }))?;
        if stop > limit as u64 {
            let kind = ErrorKind::Truncated { what, needed: stop, available: limit as u64 };
            return Err(Error::new("", kind).at(start));
        }
        let (start, stop) = (start as usize, stop as usize);
        Ok(Self { start, end: stop, count })
    }

    /// Disks, count, size, start, and where the record is that says so.
    fn find_64(bytes: &[u8], locator: usize) -> Result<((u32, u32), u64, u64, u64, usize), Error> {
        let what = "the zip64 end of the central directory";
        let mut reader = Reader { bytes, at: locator + 8, end: bytes.len() };
        let end = reader.u64(what)?;
        let end = usize::try_from(end).ok().filter(|&end| end < locator).ok_or_else(|| {
            Error::new("", ErrorKind::Truncated { what, needed: end, available: locator as u64 }).at(locator as u64)
        })?;
        let mut reader = Reader { bytes, at: end, end: locator };
        reader.expect(END_64, what)?;
        reader.skip(12, what)?;
        let disks = (reader.u32(what)?, reader.u32(what)?);
        reader.u64(what)?;
        let (count, size, start) = (reader.u64(what)?, reader.u64(what)?, reader.u64(what)?);
        Ok((disks, count, size, start, end))
    }
}

/// A record of the central directory.
struct Record<'a> {
    name: &'a str,
    flags: u16,
    method: u16,
    crc32: u32,
    size: usize,
    /// Where the header before the data is.
    local: usize,
}

impl<'a> Record<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let what = "a record of the central directory";
        let at = reader.at as u64;
        reader.expect(CENTRAL, what)?;
        reader.skip(4, what)?;
        let (flags, method) = (reader.u16(what)?, reader.u16(what)?);
        reader.skip(4, what)?;
        let crc32 = reader.u32(what)?;
        let (stored, size) = (reader.u32(what)?, reader.u32(what)?);
        let [name, extra, comment] = [reader.u16(what)?, reader.u16(what)?, reader.u16(what)?];
        let disk = reader.u16(what)?;
        reader.skip(6, what)?;
        let local = reader.u32(what)?;
        let name = reader.take(name.into(), what)?;
        let name = std::str::from_utf8(name).map_err(|_| Error::new("", ErrorKind::BadName).at(at))?;
        let extra = reader.take(extra.into(), what)?;
        reader.skip(comment.into(), what)?;
        if disk != 0 {
            return Err(Error::new(name, ErrorKind::SplitArchive).at(at));
        }
        // Numbers that do not fit stand, in this order, in an extra field.
        let mut long = zip64_extra(extra);
        let mut widen = |short: u32| -> Result<u64, Error> {
            if short != u32::MAX {
                return Ok(short.into());
            }
            long.u64("the zip64 field of an entry").map_err(|error| Error { entry: name.to_owned(), ..error })
        };
        let (size, stored, local) = (widen(size)?, widen(stored)?, widen(local)?);
        if method == 0 && size != stored && flags & 1 == 0 {
            let kind =
                ErrorKind::Mismatch { what: "the stored size of an uncompressed entry", expected: size, got: stored };
            return Err(Error::new(name, kind).at(at));
        }
        let too_large = || Error::new(name, ErrorKind::Overflow { what: "the size of the entry" }).at(at);
        let size = usize::try_from(stored).map_err(|_| too_large())?;
        let local = usize::try_from(local).map_err(|_| too_large())?;
        Ok(Self { name, flags, method, crc32, size, local })
    }

    /// Where the data begins: behind the local header, whose own name and extra fields count. The data must end before
    /// the central directory.
    fn data_start(&self, bytes: &[u8], limit: usize) -> Result<usize, Error> {
        let what = "the header of an entry";
        let named = |error: Error| Error { entry: self.name.to_owned(), ..error };
        let mut reader = Reader { bytes, at: self.local, end: limit };
        reader.expect(LOCAL, what).map_err(named)?;
        reader.skip(22, what).map_err(named)?;
        let (name, extra) = (reader.u16(what).map_err(named)?, reader.u16(what).map_err(named)?);
        if reader.take(name.into(), what).map_err(named)? != self.name.as_bytes() {
            return Err(Error::new(self.name, ErrorKind::BadName).at(self.local as u64));
        }
        reader.skip(extra.into(), what).map_err(named)?;
        let start = reader.at;
        reader.skip(self.size, "the entry").map_err(named)?;
        Ok(start)
    }
}

/// The content of the zip64 field among the extra fields of a record; empty if there is none.
fn zip64_extra(mut extra: &[u8]) -> Reader<'_> {
    while let Some(([a, b, c, d], rest)) = extra.split_first_chunk::<4>() {
        let len = usize::from(u16::from_le_bytes([*c, *d])).min(rest.len());
        let (field, rest) = rest.split_at(len);
        if u16::from_le_bytes([*a, *b]) == 1 {
            return Reader { bytes: field, at: 0, end: field.len() };
        }
        extra = rest;
    }
    Reader { bytes: &[], at: 0, end: 0 }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

/// Little-endian numbers of `bytes`, one after the other, up to `end`.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Error> {
        let stop = self.at.checked_add(len).filter(|&stop| stop <= self.end);
        let Some(data) = stop.and_then(|stop| self.bytes.get(self.at..stop)) else {
            let available = self.end.saturating_sub(self.at) as u64;
            return Err(Error::new("", ErrorKind::Truncated { what, needed: len as u64, available }).at(self.at as u64));
        };
        self.at += len;
        Ok(data)
    }

    fn skip(&mut self, len: usize, what: &'static str) -> Result<(), Error> {
        self.take(len, what).map(|_| ())
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        let data = self.take(N, what)?;
        Ok(data.first_chunk().copied().unwrap_or([0; N]))
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, Error> {
        self.array(what).map(u16::from_le_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn expect(&mut self, expected: u32, what: &'static str) -> Result<(), Error> {
        let at = self.at as u64;
        let got = self.u32(what)?;
        if got == expected {
            Ok(())
        } else {
            Err(Error::new("", ErrorKind::BadSignature { what, expected, got }).at(at))
        }
    }
}
