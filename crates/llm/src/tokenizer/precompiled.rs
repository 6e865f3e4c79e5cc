//! SentencePiece's precompiled charsmap: a trie of what is replaced, and a text of what replaces it.

use unicode_segmentation::UnicodeSegmentation;

use super::settings::damaged;
use crate::base64;
use crate::error::Result;

/// A trie as a double array (Yata et al., darts-clone): each unit has the byte that leads to it, the offset of its children, and
/// whether it has a value.
#[derive(Debug)]
pub(super) struct CharsMap {
    units: Vec<u32>,
    /// Texts that end with a zero.
    normalized: Vec<u8>,
}

/// Bytes of a grapheme that is looked up as a whole.
const MAX_GRAPHEME: usize = 5;

/// Bytes of a key and of what it becomes, which Unicode's normal forms do not reach: a damaged trie may have circles.
const MAX_KEY: usize = 64;
const MAX_TEXT: usize = 256;

impl CharsMap {
    /// The map of a setting: base64 of the size of the trie, the trie, and the texts.
    pub(super) fn of(setting: &str) -> Result<Self> {
        let bytes = base64::decode(setting).ok_or_else(|| damaged("a `precompiled_charsmap` is not base64"))?;
        Self::of_bytes(&bytes)
    }

    /// The map of these bytes.
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

    /// The replacement of the shortest prefix in the trie.
    fn find(&self, key: &str) -> Option<&str> {
        let (_, start) = self.prefixes(key).next()?;
        self.text(start)
    }

    /// The longest prefix in the trie: its bytes, and what it becomes.
    pub(super) fn longest_prefix(&self, key: &str) -> Option<(usize, &str)> {
        let (len, start) = self.prefixes(key).last()?;
        // Of a damaged charsmap it may end within a character.
        key.is_char_boundary(len).then_some((len, self.text(start)?))
    }

    /// The prefixes in the trie, the shortest first: their bytes, and where the text is that they become.
    fn prefixes(&self, key: &str) -> impl Iterator<Item = (usize, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = self.units.first().map(|unit| offset(*unit));
        let bytes = key.bytes().take(MAX_KEY).take_while(|byte| *byte != 0).enumerate();
        let found = bytes.map_while(move |(index, byte)| {
            let place = at? ^ usize::from(byte);
            let unit = *self.units.get(place)?;
            // The label, and that it is no value.
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

    /// The text that begins at a place.
    fn text(&self, start: usize) -> Option<&str> {
        let text = self.normalized.get(start..)?;
        let text = text.get(..MAX_TEXT).unwrap_or(text);
        let len = text.iter().position(|byte| *byte == 0)?;
        str::from_utf8(&text[..len]).ok()
    }
}
