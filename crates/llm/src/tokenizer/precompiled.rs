//! SentencePiece's table of normalized characters: a trie of what is replaced, and a text of what replaces it.

use std::ops::ControlFlow;

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
        let bytes = base64::decode(setting).ok_or_else(|| damaged("a `precompiled_charsmap` is not base64"))?;
        Self::of_bytes(&bytes)
    }

    /// The map of these bytes.
    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let short = || damaged("the table of normalized characters is cut short");
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
        let mut found = None;
        self.prefixes(key, |_, text| {
            found = Some(text);
            ControlFlow::Break(())
        });
        found
    }

    /// The longest prefix in the trie: its bytes, and what it becomes.
    pub(super) fn longest_prefix(&self, key: &str) -> Option<(usize, &str)> {
        let mut found = None;
        self.prefixes(key, |len, text| {
            found = Some((len, text));
            ControlFlow::Continue(())
        });
        // Of a damaged table it may end within a character.
        found.filter(|(len, _)| key.is_char_boundary(*len))
    }

    /// Visits the prefixes in the trie, the shortest first: their bytes, and what they become.
    fn prefixes<'s>(&'s self, key: &str, mut visit: impl FnMut(usize, &'s str) -> ControlFlow<()>) -> Option<()> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut at = offset(*self.units.first()?);
        for (index, byte) in key.bytes().take_while(|byte| *byte != 0).enumerate() {
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
                if visit(index + 1, str::from_utf8(&text[..len]).ok()?).is_break() {
                    break;
                }
            }
        }
        Some(())
    }
}
