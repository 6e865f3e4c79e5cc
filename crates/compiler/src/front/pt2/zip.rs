//! Reads zip archives whose entries are stored without compression, as PyTorch writes them.
//!
//! The central directory is the authority on names, sizes and checksums, because the headers before the entries leave
//! sizes and checksums open. Bounds, overlaps and names are checked when the archive is parsed, so an entry is always a
//! slice of the archive. Compressed and encrypted entries are refused when they are read. Checksums are compared for
//! parts that are parsed (JSON, pickles). They are not compared for weights, because that would read every weight.
//!
//! Specification: PKWARE APPNOTE.TXT 6.3.

use indexmap::IndexMap;

use super::crc32::crc32;
use super::error::{Error, ErrorKind};
use rushlight_graph::Bytes;

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
    entries: IndexMap<String, ZipEntry>,
}

/// One entry; its range is within the archive.
#[derive(Clone, Copy, Debug)]
struct ZipEntry {
    start: usize,
    len: usize,
    method: u16,
    is_encrypted: bool,
    /// 0 if the writer was told to compute none.
    crc32: u32,
}

impl Zip {
    /// Reads the directory of an archive. Its root is the folder of the first entry, whatever the name of the file.
    /// Other entries are in the root, too, or keep their full names.
    pub fn parse(bytes: Bytes) -> Result<Self, Error> {
        let directory = Directory::find(&bytes)?;
        let mut entries = IndexMap::new();
        let mut spans = Vec::new();
        let mut root = None;
        let mut reader = LittleEndianReader { bytes: &bytes, at: directory.start, end: directory.end };
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
            let entry = ZipEntry { start, len, method, is_encrypted: record.flags & 1 != 0, crc32 };
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

    /// Returns the bytes of an entry without checking its checksum.
    pub fn get(&self, name: &str) -> Result<Bytes, Error> {
        Ok(self.entry(name)?.1)
    }

    /// Returns the bytes of an entry after checking its checksum.
    pub fn get_checked(&self, name: &str) -> Result<Bytes, Error> {
        let (entry, data) = self.entry(name)?;
        let got = if entry.crc32 == 0 { 0 } else { crc32(&data) };
        if got == entry.crc32 {
            Ok(data)
        } else {
            Err(Error::new(name, ErrorKind::Checksum { expected: entry.crc32, got }).at(entry.start as u64))
        }
    }

    /// Checks the checksums of all entries, including weights. This reads every byte.
    pub fn verify(&self) -> Result<(), Error> {
        self.names().try_for_each(|name| self.get_checked(name).map(drop))
    }

    /// Returns the text of an entry after checking its checksum.
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

    /// Refuses an archive that PyTorch wrote on a big-endian machine. Old archives do not say where they were written.
    pub(super) fn check_byte_order(&self) -> Result<(), Error> {
        const NAME: &str = "byteorder";
        if !self.contains(NAME) {
            return Ok(());
        }
        let order = self.get_text(NAME)?;
        if order.trim_ascii() == b"little" {
            return Ok(());
        }
        Err(Error::new(NAME, ErrorKind::ByteOrder { got: String::from_utf8_lossy(&order).into_owned() }))
    }

    fn entry(&self, name: &str) -> Result<(ZipEntry, Bytes), Error> {
        let entry = *self.entries.get(name).ok_or_else(|| Error::new(name, ErrorKind::MissingEntry))?;
        if entry.is_encrypted {
            return Err(Error::new(name, ErrorKind::Encrypted));
        }
        if entry.method != 0 {
            return Err(Error::new(name, ErrorKind::Compressed { method: entry.method }));
        }
        // `parse` checked the range. Only an owner whose length changes gets here without bytes.
        let data = self.bytes.slice(entry.start..entry.start + entry.len);
        Ok((entry, data.ok_or_else(|| Error::new(name, ErrorKind::MissingEntry))?))
    }
}

/// Position and length of the central directory.
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
        let mut reader = LittleEndianReader { bytes, at: end + 4, end: bytes.len() };
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

    /// Returns disks, count, size, start, and the offset of the record with them.
    fn find_64(bytes: &[u8], locator: usize) -> Result<((u32, u32), u64, u64, u64, usize), Error> {
        let what = "the zip64 end of the central directory";
        let mut reader = LittleEndianReader { bytes, at: locator + 8, end: bytes.len() };
        let end = reader.u64(what)?;
        let end = usize::try_from(end).ok().filter(|&end| end < locator).ok_or_else(|| {
            Error::new("", ErrorKind::Truncated { what, needed: end, available: locator as u64 }).at(locator as u64)
        })?;
        let mut reader = LittleEndianReader { bytes, at: end, end: locator };
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
    /// Offset of the local header, which precedes the data.
    local: usize,
}

impl<'a> Record<'a> {
    fn read(reader: &mut LittleEndianReader<'a>) -> Result<Self, Error> {
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
        // Numbers that do not fit the record are in an extra field, in this order.
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

    /// Returns the offset of the data, after the local header with its own name and extra fields. The data must end
    /// before the central directory.
    fn data_start(&self, bytes: &[u8], limit: usize) -> Result<usize, Error> {
        let what = "the header of an entry";
        let named = |error: Error| Error { entry: self.name.to_owned(), ..error };
        let mut reader = LittleEndianReader { bytes, at: self.local, end: limit };
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
fn zip64_extra(mut extra: &[u8]) -> LittleEndianReader<'_> {
    while let Some(([a, b, c, d], rest)) = extra.split_first_chunk::<4>() {
        let len = usize::from(u16::from_le_bytes([*c, *d])).min(rest.len());
        let (field, rest) = rest.split_at(len);
        if u16::from_le_bytes([*a, *b]) == 1 {
            return LittleEndianReader { bytes: field, at: 0, end: field.len() };
        }
        extra = rest;
    }
    LittleEndianReader { bytes: &[], at: 0, end: 0 }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

/// Little-endian numbers of `bytes`, one after the other, up to `end`.
struct LittleEndianReader<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> LittleEndianReader<'a> {
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

#[cfg(test)]
mod tests {
    use super::super::tests::sample_bytes;
    use super::*;

    /// Returns the offset of an entry's record in the central directory. An archive within the archive has records of
    /// its own.
    fn record(bytes: &[u8], name: &str) -> Option<usize> {
        let start = Directory::find(bytes).map_or(0, |directory| directory.start);
        let windows = bytes.get(start..)?.windows(46 + name.len());
        let is_record = |w: &[u8]| w.starts_with(&CENTRAL.to_le_bytes()) && w.ends_with(name.as_bytes());
        windows.enumerate().find(|(_, window)| is_record(window)).map(|(at, _)| start + at)
    }

    /// Returns the sample with `patch` written `offset` bytes into the record of an entry.
    fn patched(name: &str, offset: usize, patch: &[u8]) -> Vec<u8> {
        let mut bytes = sample_bytes("cond");
        let at = record(&bytes, name).map_or(0, |at| at + offset);
        if let Some(slot) = bytes.get_mut(at..at + patch.len()) {
            slot.copy_from_slice(patch);
        }
        bytes
    }

    fn parse(bytes: Vec<u8>) -> Result<Zip, Error> {
        Zip::parse(Bytes::from(bytes))
    }

    const MODEL: &str = "archive/models/model.json";

    #[test]
    fn entries_are_slices_of_the_archive() {
        let bytes = Bytes::from(sample_bytes("cond"));
        let zip = Zip::parse(bytes.clone());
        assert_eq!(zip.as_ref().map(Zip::root), Ok("archive/"));
        let weight = zip.and_then(|zip| zip.get("data/weights/weight_0")).map_or(Vec::new(), |data| vec![data]);
        let place = weight.first().map_or(0, |data| data.as_ptr() as usize - bytes.as_ptr() as usize);
        assert!(place > 0 && place.is_multiple_of(64) && place < bytes.len(), "{place}");
        assert_eq!(weight.first().map(|data| data.len()), Some(36));
    }

    #[test]
    fn damage_is_refused_with_its_place() {
        let sample = sample_bytes("cond");
        for len in [0, 10, sample.len() / 2, sample.len() - 1] {
            let part = sample.get(..len).unwrap_or_default().to_vec();
            assert_eq!(parse(part).map_err(|error| error.kind).err(), Some(ErrorKind::NotZip), "{len}");
        }
        let cases: [(&str, usize, &[u8], fn(&ErrorKind) -> bool); 7] = [
            ("flags of a later disk", 34, &[1], |kind| *kind == ErrorKind::SplitArchive),
            ("size", 20, &[0xff, 0xff, 0xff, 0x7f], |kind| matches!(kind, ErrorKind::Mismatch { .. })),
            ("offset", 42, &[0xff, 0xff, 0xff, 0x7f], |kind| matches!(kind, ErrorKind::Truncated { .. })),
            ("zip64 offset that is not there", 42, &[0xff; 4], |kind| matches!(kind, ErrorKind::Truncated { .. })),
            ("another header", 42, &[0; 4], |kind| matches!(kind, ErrorKind::BadName)),
            ("no header", 42, &[1, 0, 0, 0], |kind| matches!(kind, ErrorKind::BadSignature { .. })),
            ("not UTF-8", 46, &[0xff], |kind| matches!(kind, ErrorKind::BadName)),
        ];
        for (what, offset, patch, expected) in cases {
            let error = parse(patched(MODEL, offset, patch)).err();
            assert!(error.as_ref().is_some_and(|error| expected(&error.kind)), "{what}: {error:?}");
        }
    }

    #[test]
    fn entries_that_share_bytes_are_refused() {
        let bytes = sample_bytes("cond");
        let (first, second) = ("archive/data/weights/weight_0", "archive/data/weights/weight_1");
        let model = record(&bytes, first).unwrap_or_default();
        let mut twice = patched(second, 42, bytes.get(model + 42..model + 46).unwrap_or_default());
        assert!(parse(twice.clone()).is_err_and(|error| error.kind == ErrorKind::BadName));
        // The directory gets the same name twice.
        let at = record(&twice, second).map_or(0, |at| at + 46 + second.len() - 1);
        if let Some(last) = twice.get_mut(at) {
            *last = b'0';
        }
        assert!(parse(twice).is_err_and(|error| error.kind == ErrorKind::DuplicateEntry));
        let mut overlap = bytes;
        let [first, second] = [first, second].map(|name| record(&overlap, name).unwrap_or_default());
        let start = read_u32(&overlap, first + 42).zip(read_u32(&overlap, second + 42));
        let size = start.map_or(0, |(first, second)| second.saturating_sub(first)).to_le_bytes();
        for offset in [20, 24] {
            if let Some(slot) = overlap.get_mut(first + offset..first + offset + 4) {
                slot.copy_from_slice(&size);
            }
        }
        assert!(parse(overlap).is_err_and(|error| matches!(error.kind, ErrorKind::Overlap { .. })));
    }

    #[test]
    fn entries_that_are_not_stored_are_refused_when_they_are_read() {
        let deflated = parse(patched(MODEL, 10, &[8]));
        assert_eq!(deflated.as_ref().map(|zip| zip.get("byteorder").is_ok()), Ok(true));
        let error = deflated.and_then(|zip| zip.get("models/model.json")).err();
        assert!(error.is_some_and(|error| {
            error.kind == ErrorKind::Compressed { method: 8 }
                && error.to_string().contains("models/model.json")
                && error.to_string().contains("zip -0")
        }));
        let encrypted = parse(patched(MODEL, 8, &[1])).and_then(|zip| zip.get("models/model.json"));
        assert!(encrypted.is_err_and(|error| error.kind == ErrorKind::Encrypted));
    }

    #[test]
    fn checksums_are_compared_where_they_were_made() {
        let wrong = parse(patched(MODEL, 16, &[1, 2, 3, 4]));
        let name = "models/model.json";
        assert!(wrong.as_ref().is_ok_and(|zip| zip.get(name).is_ok()));
        let error = wrong.and_then(|zip| zip.get_checked(name)).err().map(|error| error.kind);
        assert!(matches!(error, Some(ErrorKind::Checksum { expected: 0x0403_0201, .. })), "{error:?}");
        assert!(parse(patched(MODEL, 16, &[0; 4])).is_ok_and(|zip| zip.get_checked(name).is_ok()));
        assert!(parse(sample_bytes("cond")).is_ok_and(|zip| zip.get_checked(name).is_ok()));
        assert_eq!(parse(sample_bytes("cond")).and_then(|zip| zip.verify()), Ok(()));
        let weight = parse(patched("archive/data/weights/weight_0", 16, &[1])).and_then(|zip| zip.verify()).err();
        assert_eq!(weight.map(|error| error.entry).as_deref(), Some("data/weights/weight_0"));
    }
}
