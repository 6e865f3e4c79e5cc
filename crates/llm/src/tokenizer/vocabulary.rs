//! Tokens by their text, and texts by their token.

use rustc_hash::FxHashMap;
use serde_json::Value as Json;

use super::settings::{damaged, id};
use crate::error::Result;

#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    ids: FxHashMap<Box<str>, u32>,
    texts: Vec<Option<Box<str>>>,
}

/// Tokens of a file are not more: memory that they ask for is bounded.
const MAX_ID: u32 = 1 << 22;

impl Vocabulary {
    /// A setting: an object of texts and their numbers.
    pub(super) fn of(json: &Json) -> Result<Self> {
        let object = json.as_object().ok_or_else(|| damaged("the vocabulary is no object"))?;
        let mut vocabulary = Self::default();
        for (text, number) in object {
            vocabulary.insert(text, id(number)?)?;
        }
        Ok(vocabulary)
    }

    pub(super) fn insert(&mut self, text: &str, id: u32) -> Result<()> {
        if id > MAX_ID {
            return Err(damaged(format!("the token {id} is beyond {MAX_ID}")));
        }
        if self.texts.len() <= id as usize {
            self.texts.resize(id as usize + 1, None);
        }
        self.texts[id as usize] = Some(text.into());
        self.ids.insert(text.into(), id);
        Ok(())
    }

    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize)?.as_deref()
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
