//! SentencePiece's table of normalized characters: a trie of what is replaced, and a text of what replaces it.

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

impl CharsMap {
    /// The map of a setting: base64 of the size of the trie, the trie, and the texts.
    pub(super) fn of(setting: &str) -> Result<Self> {
        let short = || damaged("the table of a `Precompiled` normalizer is cut short");
        let bytes = base64::decode(setting).ok_or_else(|| damaged("a `precompiled_charsmap` is not base64"))?;
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
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = offset(*self.units.first()?);
        for byte in key.bytes().take_while(|byte| *byte != 0) {
            at ^= usize::from(byte);
            let unit = *self.units.get(at)?;
            // The label, and that it is no value.
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                return None;
            }
            at ^= offset(unit);
            if unit & (1 << 8) != 0 {
                let start = (self.units.get(at)? & !(1 << 31)) as usize;
                let text = self.normalized.get(start..)?;
                let len = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                return str::from_utf8(&text[..len]).ok();
            }
        }
        None
    }
}
