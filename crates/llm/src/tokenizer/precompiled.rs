//! SentencePiece's precompiled charsmap: a trie of character sequences, and the texts that replace them.

use unicode_segmentation::UnicodeSegmentation;

use super::settings::damaged;
use crate::base64;
use crate::error::Result;

/// A trie as a double array (Yata et al., darts-clone). Each unit has the byte that leads to it, the offset of its
/// children, and a flag for a value.
#[derive(Debug)]
pub(super) struct CharsMap {
    units: Vec<u32>,
    /// Texts, each with a zero at its end.
    normalized: Vec<u8>,
}

/// Maximum bytes of a grapheme that is looked up as a whole.
const MAX_GRAPHEME: usize = 5;

/// Maximum bytes of a key and of its replacement. Unicode's normal forms stay below it, but a damaged trie may have
/// cycles.
const MAX_KEY: usize = 64;
const MAX_TEXT: usize = 256;

impl CharsMap {
    /// Reads a setting: base64 of the size of the trie, the trie, and the texts.
    pub(super) fn of(setting: &str) -> Result<Self> {
        let bytes = base64::decode(setting).ok_or_else(|| damaged("a `precompiled_charsmap` is not base64"))?;
        Self::of_bytes(&bytes)
    }

    /// Reads a charsmap from bytes.
    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let short = || damaged("the precompiled charsmap is cut short");
        let (size, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let (units, normalized) = rest.split_at_checked(u32::from_le_bytes(*size) as usize).ok_or_else(short)?;
        let units = units.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        Ok(Self { units, normalized: normalized.to_vec() })
    }

    pub(super) fn normalize(&self, text: &str) -> String {
        let mut normalized = String::with_capacity(text.len());
        for grapheme in text.graphemes(true) {
            if grapheme.len() <= MAX_GRAPHEME
                && let Some(found) = self.find(grapheme)
            {
                normalized.push_str(found);
                continue;
            }
            for char in grapheme.chars() {
                match self.find(char.encode_utf8(&mut [0; 4])) {
                    Some(found) => normalized.push_str(found),
                    None => normalized.push(char),
                }
            }
        }
        normalized
    }

    /// Returns the replacement of the shortest prefix in the trie.
    fn find(&self, key: &str) -> Option<&str> {
        let (_, start) = self.prefixes(key).next()?;
        self.text(start)
    }

    /// Returns the length in bytes of the longest prefix in the trie, and its replacement.
    pub(super) fn longest_prefix(&self, key: &str) -> Option<(usize, &str)> {
        let (len, start) = self.prefixes(key).last()?;
        // In a damaged charsmap, a key may end within a character.
        key.is_char_boundary(len).then_some((len, self.text(start)?))
    }

    /// Returns the prefixes in the trie, the shortest first: the length in bytes, and the position of the replacement.
    fn prefixes(&self, key: &str) -> impl Iterator<Item = (usize, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = self.units.first().map(|unit| offset(*unit));
        let bytes = key.bytes().take(MAX_KEY).take_while(|byte| *byte != 0).enumerate();
        let found = bytes.map_while(move |(index, byte)| {
            let place = at? ^ usize::from(byte);
            let unit = *self.units.get(place)?;
            // The label must match, and the unit must not be a value.
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                return None;
            }
            let children = place ^ offset(unit);
            at = Some(children);
            let value = if unit & (1 << 8) == 0 { None } else { Some(*self.units.get(children)?) };
            Some(value.map(|value| (index + 1, (value & !(1 << 31)) as usize)))
        });
        found.flatten()
    }

    /// Returns the text that begins at a position.
    fn text(&self, start: usize) -> Option<&str> {
        let text = self.normalized.get(start..)?;
        let text = text.get(..MAX_TEXT).unwrap_or(text);
        let len = text.iter().position(|byte| *byte == 0)?;
        str::from_utf8(&text[..len]).ok()
    }
}
