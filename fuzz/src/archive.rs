//! Zip archives, written entry by entry, with headers that may lie.

/// An entry of an archive.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub name: Vec<u8>,
    pub data: Vec<u8>,
    /// 0 is stored, 8 is deflate.
    pub method: u16,
    /// The size that the directory says the entry has when it is unpacked; the true one if `None`.
    pub size: Option<u32>,
    /// Where the directory says the entry begins; the truth if `None`.
    pub start: Option<u32>,
}

impl Entry {
    pub fn new(name: impl Into<Vec<u8>>, data: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), data: data.into(), ..Self::default() }
    }
}

/// The archive of the entries. No checksums, which readers take for an entry without one.
pub fn zip(entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let start = file.len() as u32;
        let stored = entry.data.len() as u32;
        let size = entry.size.unwrap_or(stored);
        let common = |to: &mut Vec<u8>| {
            to.extend(20u16.to_le_bytes());
            to.extend(0u16.to_le_bytes());
            to.extend(entry.method.to_le_bytes());
            to.extend([0; 8]);
            to.extend(stored.to_le_bytes());
            to.extend(size.to_le_bytes());
            to.extend((entry.name.len() as u16).to_le_bytes());
        };
        file.extend(0x0403_4b50u32.to_le_bytes());
        common(&mut file);
        // Weights lie at multiples of 64 bytes, as PyTorch's writer has them.
        let padding = (64 - (file.len() + 2 + entry.name.len()) % 64) % 64;
        file.extend((padding as u16).to_le_bytes());
        file.extend(&entry.name);
        file.resize(file.len() + padding, 0);
        file.extend(&entry.data);
        directory.extend(0x0201_4b50u32.to_le_bytes());
        directory.extend(20u16.to_le_bytes());
        common(&mut directory);
        directory.extend([0; 12]);
        directory.extend(entry.start.unwrap_or(start).to_le_bytes());
        directory.extend(&entry.name);
    }
    let (start, size, count) = (file.len() as u32, directory.len() as u32, entries.len() as u16);
    file.extend(directory);
    file.extend(0x0605_4b50u32.to_le_bytes());
    file.extend([0; 4]);
    file.extend(count.to_le_bytes());
    file.extend(count.to_le_bytes());
    file.extend(size.to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0; 2]);
    file
}

/// The entries of an archive as its directory lists them; empty for anything else. Only the fuzzer's mutators read archives
/// with this.
pub fn entries(file: &[u8]) -> Vec<Entry> {
    read(file).unwrap_or_default()
}

fn read(file: &[u8]) -> Option<Vec<Entry>> {
    let u16_at = |at: usize| file.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let u32_at = |at: usize| file.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let end = (0..=file.len().checked_sub(22)?).rev().take(1 << 16).find(|at| u32_at(*at) == Some(0x0605_4b50))?;
    let mut at = u32_at(end + 16)? as usize;
    let mut entries = Vec::new();
    for _ in 0..u16_at(end + 10)? {
        if u32_at(at)? != 0x0201_4b50 {
            break;
        }
        let [name, extra, comment] = [28, 30, 32].map(|field| u16_at(at + field).map_or(0, usize::from));
        let (stored, start) = (u32_at(at + 20)? as usize, u32_at(at + 42)? as usize);
        let data = start + 30 + usize::from(u16_at(start + 26)?) + usize::from(u16_at(start + 28)?);
        entries.push(Entry {
            name: file.get(at + 46..at + 46 + name)?.to_vec(),
            data: file.get(data..data.checked_add(stored)?)?.to_vec(),
            method: u16_at(at + 10)?,
            size: u32_at(at + 24),
            start: None,
        });
        at += 46 + name + extra + comment;
    }
    Some(entries)
}
