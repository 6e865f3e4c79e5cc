//! Who took what, and why not.

use std::collections::BTreeMap;
use std::fmt;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use rushlight_graph::{Graph, NodeId};

/// What reports call the runtime's own operators.
pub const PORTABLE: &str = "portable";

/// What became of every node that was offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub entries: Vec<Entry>,
}

/// What became of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// In which precision it is computed, and why, if that is not what the types of its results say.
    #[serde(default)]
    pub precision: Option<String>,
    pub fate: Fate,
    /// True if a back end claimed the node and could not compile its part after all.
    #[serde(default)]
    pub is_returned: bool,
}

/// Whether a backend took a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
            precision: None,
            fate,
            is_returned: false,
        }
    }
}

impl Report {
    /// Notes the precisions in which nodes are computed. `entries` says where they are listed.
    pub(super) fn name_precisions(&mut self, entries: &FxHashMap<NodeId, usize>, precisions: Vec<(NodeId, String)>) {
        for (node, precision) in precisions {
            if let Some(entry) = entries.get(&node).and_then(|index| self.entries.get_mut(*index)) {
                entry.precision = Some(precision);
            }
        }
    }

    /// Notes that a backend gave back nodes that it had taken. `entries` says where they are listed.
    pub(super) fn give_back(
        &mut self,
        entries: &FxHashMap<NodeId, usize>,
        nodes: &[NodeId],
        backend: &str,
        reason: &str,
    ) {
        for node in nodes {
            let Some(entry) = entries.get(node).and_then(|index| self.entries.get_mut(*index)) else { continue };
            entry.fate = Fate::Left { reasons: vec![(backend.into(), reason.into())] };
            entry.precision = None;
            entry.is_returned = true;
        }
    }

    /// The report as JSON, to be kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What [`to_bytes`](Self::to_bytes) wrote; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
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

/// How many nodes each took, then each node with its taker and, below it, its precision, or why backends left it.
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
            if let Some(precision) = &entry.precision {
                writeln!(f, "    {precision}")?;
            }
            for (backend, reason) in entry.reasons() {
                writeln!(f, "    {backend}: {reason}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_back() {
        let entry = |node: &str, fate| Entry {
            method: "forward".into(),
            node: node.into(),
            op: "aten::relu".into(),
            module: "net.0".into(),
            source: Some("net.py:7 in forward: return a".into()),
            precision: Some("int8".into()),
            fate,
            is_returned: false,
        };
        let left = Fate::Left { reasons: vec![("Npu".into(), "too small".into())] };
        let report = Report { entries: vec![entry("a", Fate::Taken { backend: "Npu".into() }), entry("b", left)] };
        assert_eq!(Report::from_bytes(&report.to_bytes()), Some(report));
        assert_eq!(Report::from_bytes(b"[1]"), None);
    }
}
