//! Who took what, and why not.

use std::collections::BTreeMap;
use std::fmt;

use crate::graph::{Graph, NodeId};

/// What became of every node that was offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub entries: Vec<Entry>,
}

/// What became of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub method: String,
    /// The node of the exported program.
    pub node: String,
    /// Full name of the operator.
    pub op: String,
    /// The line of Python, if known.
    pub source: Option<String>,
    pub fate: Fate,
}

/// Whether a backend took a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Taken {
        backend: String,
    },
    /// By backend, why it left the node to the runtime's operators.
    Left {
        reasons: Vec<(String, String)>,
    },
}

impl Entry {
    pub(super) fn new(method: &str, graph: &Graph, node: NodeId, fate: Fate) -> Self {
        let node = &graph.nodes[node];
        let origin = &graph.origins[node.origin];
        Self {
            method: method.into(),
            node: origin.node.clone(),
            op: node.op.name().into(),
            source: origin.line(),
            fate,
        }
    }
}

impl Report {
    /// How many nodes each backend took; those that none took under `portable`.
    pub fn shares(&self) -> BTreeMap<&str, usize> {
        let mut shares = BTreeMap::new();
        for entry in &self.entries {
            let owner = match &entry.fate {
                Fate::Taken { backend } => backend,
                Fate::Left { .. } => "portable",
            };
            *shares.entry(owner).or_insert(0) += 1;
        }
        shares
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.entries.len();
        for (owner, count) in self.shares() {
            writeln!(f, "{owner}: {count} of {total} nodes")?;
        }
        for entry in &self.entries {
            let Fate::Left { reasons } = &entry.fate else { continue };
            write!(f, "  {} ({})", entry.node, entry.op)?;
            if let Some(source) = &entry.source {
                write!(f, " from {source}")?;
            }
            for (backend, reason) in reasons {
                write!(f, "; {backend}: {reason}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
