//! Tags, which keep parts of one backend apart, and the options of their parts.

use rushlight_graph::{Error, NodeId};
use rushlight_runtime::OptionValue;
use rustc_hash::FxHashMap;

use super::Backend;
use super::options::check_option;

/// The parts that a claimed node may join: those of one backend under one tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Claimant {
    /// Index in the list of backends.
    pub backend: usize,
    /// Index among the backend's tags.
    pub tag: usize,
}

/// The value of an option for the parts of one tag. An owned [`OptionValue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartOption {
    Bool(bool),
    Int(i64),
    String(String),
}

impl PartOption {
    /// Borrows the value.
    pub fn value(&self) -> OptionValue<'_> {
        match self {
            Self::Bool(value) => OptionValue::Bool(*value),
            Self::Int(value) => OptionValue::Int(*value),
            Self::String(value) => OptionValue::String(value),
        }
    }
}

impl From<OptionValue<'_>> for PartOption {
    fn from(value: OptionValue<'_>) -> Self {
        match value {
            OptionValue::Bool(value) => Self::Bool(value),
            OptionValue::Int(value) => Self::Int(value),
            OptionValue::String(value) => Self::String(value.to_owned()),
        }
    }
}

/// A tag with the options of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag {
    /// Empty for nodes without a tag.
    pub name: String,
    pub options: Vec<(String, PartOption)>,
}

/// The tags of one backend in one method. The first is that of nodes without a tag.
#[derive(Clone, Debug)]
pub(super) struct Tags {
    tags: Vec<Tag>,
    of_nodes: FxHashMap<NodeId, usize>,
}

impl Default for Tags {
    fn default() -> Self {
        Self { tags: vec![Tag::default()], of_nodes: FxHashMap::default() }
    }
}

impl Tags {
    /// Returns the index of a tag, which is added if it is new.
    fn index(&mut self, name: &str) -> usize {
        let known = self.tags.iter().position(|tag| tag.name == name);
        known.unwrap_or_else(|| {
            self.tags.push(Tag { name: name.to_owned(), options: Vec::new() });
            self.tags.len() - 1
        })
    }

    pub fn set(&mut self, node: NodeId, name: &str) {
        let index = self.index(name);
        self.of_nodes.insert(node, index);
    }

    pub fn set_option(&mut self, name: &str, option: &str, value: OptionValue<'_>) {
        let index = self.index(name);
        if let Some(Tag { options, .. }) = self.tags.get_mut(index) {
            options.retain(|(known, _)| known != option);
            options.push((option.to_owned(), value.into()));
        }
    }

    /// Returns the index of a node's tag; 0 if it has none.
    pub fn of(&self, node: NodeId) -> usize {
        self.of_nodes.get(&node).copied().unwrap_or(0)
    }

    pub fn get(&self, index: usize) -> Option<&Tag> {
        self.tags.get(index)
    }

    /// Checks the options against those that the backend declares.
    pub fn check(&self, backend: &dyn Backend) -> Result<(), Error> {
        for Tag { name, options } in &self.tags {
            for (option, value) in options {
                check_option(backend, option, value.value()).map_err(|error| error.at(format!("tag `{name}`")))?;
            }
        }
        Ok(())
    }
}
