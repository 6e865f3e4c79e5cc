//! A trie of texts by their bytes, as a double array (Aoe 1989).

use super::settings::damaged;
use crate::error::Result;

/// For each text a number.
#[derive(Debug, Default)]
pub(super) struct Trie(Vec<Unit>);

/// A node. The child by a byte is at `base + byte`, if that has the node as its parent.
#[derive(Clone, Copy, Debug)]
struct Unit {
    base: u32,
    parent: u32,
    value: u32,
}

/// Neither a node nor a value.
const NONE: u32 = u32::MAX;
const FREE: Unit = Unit { base: 0, parent: NONE, value: NONE };

impl Trie {
    /// The node of the empty text.
    pub(super) const ROOT: u32 = 0;

    /// Maximum bytes of a text: searches take time for these at each place.
    const MAX_TEXT: usize = 1 << 12;

    /// The trie of texts and their numbers, of which `u32::MAX` is none. Of equal texts the first counts.
    ///
    /// # Errors
    /// For a text that is too long.
    pub(super) fn new<'t>(texts: impl Iterator<Item = (&'t str, u32)>) -> Result<Self> {
        let mut texts: Vec<(&[u8], u32)> = texts.map(|(text, value)| (text.as_bytes(), value)).collect();
        if let Some((text, token)) = texts.iter().find(|(text, _)| text.len() > Self::MAX_TEXT) {
            return Err(damaged(format!("the token {token} has {} bytes, more than {}", text.len(), Self::MAX_TEXT)));
        }
        texts.sort_by_key(|(text, _)| *text);
        texts.dedup_by_key(|(text, _)| *text);
        let mut builder = Builder { units: vec![Unit { parent: Self::ROOT, ..FREE }], ..Builder::default() };
        // Nodes without their children yet, with the texts after them and the bytes that lead to them.
        let mut left = vec![(Self::ROOT, &texts[..], 0)];
        let mut labels = Vec::new();
        while let Some((node, mut texts, depth)) = left.pop() {
            if let Some(((text, value), rest)) = texts.split_first()
                && text.len() == depth
            {
                builder.units[node as usize].value = *value;
                texts = rest;
            }
            labels.clear();
            labels.extend(texts.chunk_by(|(a, _), (b, _)| a[depth] == b[depth]).map(|part| part[0].0[depth]));
            if labels.is_empty() {
                continue;
            }
            let base = builder.place(&labels, node);
            let parts = texts.chunk_by(|(a, _), (b, _)| a[depth] == b[depth]);
            left.extend(parts.zip(&labels).map(|(part, label)| (base + u32::from(*label), part, depth + 1)));
        }
        Ok(Self(builder.units))
    }

    /// Returns the child of a node for a byte.
    #[inline]
    pub(super) fn child(&self, node: u32, byte: u8) -> Option<u32> {
        let child = self.0.get(node as usize)?.base + u32::from(byte);
        (self.0.get(child as usize)?.parent == node && child != Self::ROOT).then_some(child)
    }

    /// The number of the text that leads to a node.
    #[inline]
    pub(super) fn value(&self, node: u32) -> Option<u32> {
        self.0.get(node as usize).map(|unit| unit.value).filter(|value| *value != NONE)
    }

    /// The node that a text leads to from another one.
    pub(super) fn walk(&self, node: u32, text: &str) -> Option<u32> {
        text.bytes().try_fold(node, |node, byte| self.child(node, byte))
    }

    /// Returns the longest text below a node that `bytes` begins with: its length and number.
    #[inline]
    pub(super) fn longest(&self, mut node: u32, bytes: &[u8]) -> Option<(usize, u32)> {
        let mut longest = None;
        for (at, byte) in bytes.iter().enumerate() {
            let Some(child) = self.child(node, *byte) else { break };
            node = child;
            longest = self.value(node).map(|value| (at + 1, value)).or(longest);
        }
        longest
    }
}

#[derive(Default)]
struct Builder {
    units: Vec<Unit>,
    /// Lower bound of the places with room for one child; below `first_roomy` there is hardly room for several.
    first_free: usize,
    first_roomy: usize,
}

impl Builder {
    /// Maximum places that are tried for the children of a node, before they are put after all others. It keeps the time of
    /// building proportional to the texts.
    const MAX_TRIES: usize = 1024;

    /// Puts the children of a node by these bytes, in ascending order, where there is room. Returns their base.
    fn place(&mut self, labels: &[u8], node: u32) -> u32 {
        let (first, is_single) = (usize::from(labels[0]), labels.len() == 1);
        let mut at = if is_single { self.first_free } else { self.first_roomy }.max(first);
        let mut tries = 0;
        while !labels.iter().all(|label| self.is_free(at - first + usize::from(*label))) {
            at += 1;
            tries += 1;
            if tries == Self::MAX_TRIES && !is_single {
                self.first_roomy = self.units.len();
                at = self.first_roomy.max(first);
            }
        }
        if is_single {
            self.first_free = at + 1;
        }
        let base = at - first;
        let end = base + usize::from(*labels.last().unwrap_or(&0)) + 1;
        if self.units.len() < end {
            self.units.resize(end, FREE);
        }
        labels.iter().for_each(|label| self.units[base + usize::from(*label)].parent = node);
        self.units[node as usize].base = base as u32;
        base as u32
    }

    fn is_free(&self, at: usize) -> bool {
        self.units.get(at).is_none_or(|unit| unit.parent == NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_and_no_others() {
        let texts = ["", "a", "ab", "abc", "b", "bcd", "é", "\u{0}", "\u{0}\u{0}", "zz", "😀", "ab"];
        let trie = Trie::new(texts.iter().zip(0..).map(|(text, value)| (*text, value))).unwrap();
        let value = |text: &str| trie.walk(Trie::ROOT, text).and_then(|node| trie.value(node));
        for (text, expected) in texts.iter().zip(0..) {
            assert_eq!(value(text), Some(if expected == 11 { 2 } else { expected }), "{text:?}");
        }
        for text in ["c", "ac", "abcd", "bc", "ba", "\u{0}\u{0}\u{0}", "z", "\u{1}", "ééé", "😁"] {
            assert_eq!(value(text), None, "{text:?}");
        }
        assert_eq!(trie.longest(Trie::ROOT, b"abcd"), Some((3, 3)));
        assert_eq!(trie.longest(Trie::ROOT, b"bcx"), Some((1, 4)));
        assert_eq!(trie.longest(Trie::ROOT, b"xx"), None);
        assert_eq!(Trie::default().longest(Trie::ROOT, b"xx"), None);
        assert!(Trie::new([("a".repeat(5000).as_str(), 0)].into_iter()).is_err());
    }

    /// Against a table of all prefixes.
    #[test]
    fn many_texts_take_little_room() {
        let mut state = 1_u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let texts: Vec<String> = (0..20_000)
            .map(|_| (0..=next(8)).map(|_| char::from_u32(b'a' as u32 + next(40) * next(9)).unwrap_or('x')).collect())
            .collect();
        let mut values = std::collections::BTreeMap::new();
        for (text, value) in texts.iter().zip(0..) {
            values.entry(text.as_str()).or_insert(value);
        }
        let trie = Trie::new(texts.iter().map(String::as_str).zip(0..)).unwrap();
        let nodes: std::collections::BTreeSet<&[u8]> =
            texts.iter().flat_map(|text| (0..=text.len()).map(|end| &text.as_bytes()[..end])).collect();
        assert!(trie.0.len() < nodes.len() + nodes.len() / 4 + 256, "{} of {}", trie.0.len(), nodes.len());
        for (text, value) in values {
            let node = trie.walk(Trie::ROOT, text).unwrap();
            assert_eq!(trie.value(node), Some(value), "{text:?}");
        }
    }
}
