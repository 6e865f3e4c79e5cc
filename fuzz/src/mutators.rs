//! Mutators for `fuzz_mutator!`: the structure of a format half of the time, libFuzzer's own bytes otherwise.

use libfuzzer_sys::fuzzer_mutate;
use rushlight_testing::mutations::{self, Random};

use crate::archive::{self, Entry};
use crate::json;

/// Words of little-endian formats: flatbuffers, headers.
pub fn words(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    structured(data, size, max_size, seed, |bytes, random| {
        let mut changed = bytes.to_vec();
        mutations::mutate(&mut changed, random);
        Some(changed)
    })
}

/// Programs: words, or instructions and values, so that the file still parses.
pub fn program(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    structured(data, size, max_size, seed, |bytes, random| {
        if random.below(3) > 0 {
            return mutations::edited(bytes, random);
        }
        let mut changed = bytes.to_vec();
        mutations::mutate(&mut changed, random);
        Some(changed)
    })
}

/// Texts that are JSON.
pub fn json(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    structured(data, size, max_size, seed, json::mutate)
}

/// A byte, and a text that is JSON or anything else.
pub fn byte_and_json(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    structured(data, size, max_size, seed, |bytes, random| {
        let (first, text) = bytes.split_first()?;
        Some([&[*first], json::mutate(text, random)?.as_slice()].concat())
    })
}

/// Lines of JSON, and a safetensors file behind the last.
pub fn lines_and_safetensors<const LINES: usize>(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    structured(data, size, max_size, seed, |bytes, random| {
        let mut parts: Vec<Vec<u8>> = bytes.splitn(LINES + 1, |byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let at = random.below(parts.len());
        let part = parts.get_mut(at)?;
        *part = if at < LINES { json::mutate(part, random)? } else { safetensors(part, random)? };
        Some(parts.join(&b'\n'))
    })
}

/// A safetensors file whose header is changed; the length before it fits.
fn safetensors(file: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (len, rest) = file.split_first_chunk::<8>()?;
    let (header, data) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    let header = json::mutate(header, random)?;
    Some([&(header.len() as u64).to_le_bytes(), header.as_slice(), data].concat())
}

/// Zip archives: an entry's content, name, size or place; entries that come, go and change places. Of entries that are
/// archives themselves too.
pub fn archive(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    structured(data, size, max_size, seed, |bytes, random| {
        let mut entries = archive::entries(bytes);
        if entries.is_empty() {
            return None;
        }
        for _ in 0..=random.below(2) {
            edit(&mut entries, random);
        }
        Some(archive::zip(&entries))
    })
}

fn edit(entries: &mut Vec<Entry>, random: &mut Random) {
    let (at, other) = (random.below(entries.len()), random.below(entries.len()));
    let Some(second) = entries.get(other).cloned() else { return };
    let Some(entry) = entries.get_mut(at) else { return };
    match random.below(12) {
        0 => entry.data = second.data,
        1 => entry.name = second.name,
        2 => entry.size = Some(random.number() as u32 >> random.below(32)),
        3 => entry.start = Some(random.below(1 << 12) as u32),
        4 => entry.method = [0, 8, 1, 9, 12, 93][random.below(6)],
        5 => drop(entries.remove(at)),
        6 => entries.push(second),
        7 => entries.swap(at, other),
        8 if !entry.data.is_empty() => entry.data.truncate(random.below(entry.data.len())),
        _ => {
            let mut inner = archive::entries(&entry.data);
            if !inner.is_empty() {
                edit(&mut inner, random);
                entry.data = archive::zip(&inner);
            } else if let Some(text) = json::mutate(&entry.data, random) {
                entry.data = text;
            } else {
                let old = entry.data.len();
                let most = old + 1 + random.below(16);
                entry.data.resize(most, 0);
                let size = fuzzer_mutate(&mut entry.data, old, most);
                entry.data.truncate(size);
            }
            entry.size = None;
        }
    }
}

fn structured(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    change: impl FnOnce(&[u8], &mut Random) -> Option<Vec<u8>>,
) -> usize {
    let mut random = Random::new(u64::from(seed) + 1);
    if random.below(2) == 0
        && let Some(changed) = data.get(..size).and_then(|bytes| change(bytes, &mut random))
        && changed.len() <= max_size
        && let Some(place) = data.get_mut(..changed.len())
    {
        place.copy_from_slice(&changed);
        return changed.len();
    }
    fuzzer_mutate(data, size, max_size)
}
