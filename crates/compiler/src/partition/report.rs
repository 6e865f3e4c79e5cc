//! Who took what, and why not.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::graph::{Graph, NodeId};

/// What reports call the runtime's own operators.
pub const PORTABLE: &str = "portable";

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
    /// The path of the module that was called; empty for the model itself.
    pub module: String,
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
            module: origin.module.clone(),
            source: origin.line(),
            fate,
        }
    }
}

impl Report {
    /// Notes that a backend gave back nodes that it had taken. `entries` says where they are listed.
    pub(super) fn give_back(
        &mut self,
        entries: &HashMap<NodeId, usize>,
        nodes: &[NodeId],
        backend: &str,
        reason: &str,
    ) {
        for node in nodes {
            let Some(entry) = entries.get(node).and_then(|index| self.entries.get_mut(*index)) else { continue };
            entry.fate = Fate::Left { reasons: vec![(backend.into(), reason.into())] };
        }
    }

    /// How many nodes each backend took; those that none took under [`PORTABLE`].
    pub fn shares(&self) -> BTreeMap<&str, usize> {
        let mut shares = BTreeMap::new();
        for entry in &self.entries {
            *shares.entry(entry.taker()).or_insert(0) += 1;
        }
        shares
    }
}

impl Entry {
    /// The backend that took the node; [`PORTABLE`] if none did.
    pub fn taker(&self) -> &str {
        match &self.fate {
            Fate::Taken { backend } => backend,
            Fate::Left { .. } => PORTABLE,
        }
    }

    /// By backend, why those that were asked left the node. Those asked before the one that took it are not recorded.
    pub fn reasons(&self) -> &[(String, String)] {
        match &self.fate {
            Fate::Taken { .. } => &[],
            Fate::Left { reasons } => reasons,
        }
    }
}

/// How many nodes each took, then each node with its taker and, below it, why backends left it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.entries.len();
        for (owner, count) in self.shares() {
            writeln!(f, "{owner}: {count} of {total} nodes")?;
        }
        let width = |text: fn(&Entry) -> &str| self.entries.iter().map(|entry| text(entry).len()).max().unwrap_or(0);
        let (node, op, taker) = (width(|entry| &entry.node), width(|entry| &entry.op), width(Entry::taker));
        let mut method = None;
        for entry in &self.entries {
            if method != Some(&entry.method) {
                writeln!(f, "method `{}`", entry.method)?;
                method = Some(&entry.method);
            }
            let source = entry.source.as_deref().unwrap_or_default();
            let line = format!("  {:node$}  {:op$}  {:taker$}  {source}", entry.node, entry.op, entry.taker());
            writeln!(f, "{}", line.trim_end())?;
            for (backend, reason) in entry.reasons() {
                writeln!(f, "    {backend}: {reason}")?;
            }
        }
        Ok(())
    }
}
