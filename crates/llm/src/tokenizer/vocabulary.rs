//! Tokens by their text, and texts by their token.

use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::settings::{damaged, id};
use crate::error::Result;

#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    ids: FxHashMap<Box<str>, u32>,
    texts: Vec<Option<Box<str>>>,
    longest: usize,
}

/// Numbers of tokens that are left out, beside seven for each that is there: memory is in proportion to the file.
pub(super) const MAX_GAP: usize = 1 << 16;

impl Vocabulary {
    /// A setting: an object of texts and their numbers.
    pub(super) fn of(json: &Json) -> Result<Self> {
        let object = json.as_object().ok_or_else(|| damaged("the vocabulary is no object"))?;
        let mut vocabulary = Self::default();
        let limit = object.len().saturating_mul(8).saturating_add(MAX_GAP);
        for (text, number) in object {
            let id = id(number)?;
            if id as usize >= limit {
                return Err(damaged(format!("the token {id} is beyond {limit}, with {} tokens", object.len())));
            }
            vocabulary.insert(text, id);
        }
        Ok(vocabulary)
    }

    pub(super) fn insert(&mut self, text: &str, id: u32) {
        if self.texts.len() <= id as usize {
            self.texts.resize(id as usize + 1, None);
        }
        self.texts[id as usize] = Some(text.into());
        self.ids.insert(text.into(), id);
        self.longest = self.longest.max(text.len());
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize)?.as_deref()
    }

    /// The tokens with their texts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        self.texts.iter().enumerate().filter_map(|(id, text)| Some((id as u32, text.as_deref()?)))
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The tokens of a text's bytes, as `<0x0A>`, if there are all.
    pub(super) fn bytes(&self, text: &str) -> Option<Vec<u32>> {
        text.bytes().map(|byte| self.id(&format!("<0x{byte:02X}>"))).collect()
    }
}
