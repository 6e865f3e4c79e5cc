//! The report of a compilation: the claimant of each node, or the reasons of its refusals.

use std::collections::BTreeMap;
use std::fmt;

use rustc_hash::FxHashMap;

use rushlight_graph::{Graph, NodeId};

use crate::json::Json;

/// The name of the runtime's own operators in reports.
pub const PORTABLE: &str = "portable";

/// The claimant or refusals of every node, in the order of the methods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub entries: Vec<Entry>,
}

/// The claimant or refusals of a node.
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
    /// The precision of the computation, and its reason, if that differs from the types of the results.
    pub precision: Option<String>,
    pub fate: Fate,
    /// True if a backend claimed the node but could not compile its part.
    pub is_returned: bool,
}

/// The outcome of the claims on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Claimed {
        backend: String,
    },
    /// Reasons of refusal by backend; the node runs on the runtime's operators.
    Refused {
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
    /// Records the precisions in which nodes are computed. `entries` has their indices in the report.
    pub(super) fn name_precisions(&mut self, entries: &FxHashMap<NodeId, usize>, precisions: Vec<(NodeId, String)>) {
        for (node, precision) in precisions {
            if let Some(entry) = entries.get(&node).and_then(|index| self.entries.get_mut(*index)) {
                entry.precision = Some(precision);
            }
        }
    }

    /// Records that a backend could not compile nodes that it had claimed. `entries` has their indices in the report.
    pub(super) fn give_back(
        &mut self,
        entries: &FxHashMap<NodeId, usize>,
        nodes: &[NodeId],
        backend: &str,
        reason: &str,
    ) {
        for node in nodes {
            let Some(entry) = entries.get(node).and_then(|index| self.entries.get_mut(*index)) else { continue };
            entry.fate = Fate::Refused { reasons: vec![(backend.into(), reason.into())] };
            entry.precision = None;
            entry.is_returned = true;
        }
    }

    /// Encodes the report as JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        Json::Array(self.entries.iter().map(Entry::to_json).collect()).to_string().into_bytes()
    }

    /// Decodes a report that [`to_bytes`](Self::to_bytes) encoded; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let entries = Json::parse(bytes)?.into_array()?.into_iter().map(Entry::from_json);
        Some(Self { entries: entries.collect::<Option<_>>()? })
    }

    /// Counts the nodes of each backend. Nodes that none claimed are counted under [`PORTABLE`].
    pub fn claim_counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for entry in &self.entries {
            *counts.entry(entry.claimant()).or_insert(0) += 1;
        }
        counts
    }
}

impl Entry {
    /// A row of the fields in their order; the fate is the backend or the reasons.
    fn to_json(&self) -> Json {
        let text = |text: &str| Json::String(text.into());
        let fate = match &self.fate {
            Fate::Claimed { backend } => text(backend),
            Fate::Refused { reasons } => {
                let pairs = reasons.iter().map(|(name, reason)| Json::Array(vec![text(name), text(reason)]));
                Json::Array(pairs.collect())
            }
        };
        Json::Array(vec![
            text(&self.method),
            text(&self.node),
            text(&self.op),
            text(&self.module),
            Json::optional(self.source.as_deref()),
            Json::optional(self.precision.as_deref()),
            fate,
            Json::Bool(self.is_returned),
        ])
    }

    fn from_json(row: Json) -> Option<Self> {
        let [method, node, op, module, source, precision, fate, is_returned] = row.into_tuple()?;
        let fate = match fate {
            Json::String(backend) => Fate::Claimed { backend },
            fate => {
                let pairs = fate.into_array()?.into_iter().map(|pair| {
                    let [name, reason] = pair.into_tuple()?;
                    Some((name.into_string()?, reason.into_string()?))
                });
                Fate::Refused { reasons: pairs.collect::<Option<_>>()? }
            }
        };
        let optional = |json: Json| match json {
            Json::Null => Some(None),
            json => json.into_string().map(Some),
        };
        Some(Self {
            method: method.into_string()?,
            node: node.into_string()?,
            op: op.into_string()?,
            module: module.into_string()?,
            source: optional(source)?,
            precision: optional(precision)?,
            fate,
            is_returned: is_returned.as_bool()?,
        })
    }

    /// The backend that claimed the node; [`PORTABLE`] if none did.
    pub fn claimant(&self) -> &str {
        match &self.fate {
            Fate::Claimed { backend } => backend,
            Fate::Refused { .. } => PORTABLE,
        }
    }

    /// Reasons of refusal by backend. A claimed node has none: the backends that were asked before its claimant are not
    /// recorded.
    pub fn reasons(&self) -> &[(String, String)] {
        match &self.fate {
            Fate::Claimed { .. } => &[],
            Fate::Refused { reasons } => reasons,
        }
    }
}

/// The number of nodes of each claimant, then each node with its claimant and, below it, its precision or the refusals.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.entries.len();
        for (owner, count) in self.claim_counts() {
            writeln!(f, "{owner}: {count} of {total} nodes")?;
        }
        let width = |text: fn(&Entry) -> &str| self.entries.iter().map(|entry| text(entry).len()).max().unwrap_or(0);
        let (node, op, claimant) = (width(|entry| &entry.node), width(|entry| &entry.op), width(Entry::claimant));
        let mut method = None;
        for entry in &self.entries {
            if method != Some(&entry.method) {
                writeln!(f, "method `{}`", entry.method)?;
                method = Some(&entry.method);
            }
            let source = entry.source.as_deref().unwrap_or_default();
            let line = format!("  {:node$}  {:op$}  {:claimant$}  {source}", entry.node, entry.op, entry.claimant());
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
    use rushlight_graph::operators::aten;

    #[test]
    fn reports_are_read_back() {
        let entry = |node: &str, fate| Entry {
            method: "forward".into(),
            node: node.into(),
            op: aten::RELU.into(),
            module: "net.0".into(),
            source: Some("net.py:7 in forward: return a".into()),
            precision: Some("int8".into()),
            fate,
            is_returned: false,
        };
        let left = Fate::Refused { reasons: vec![("Npu".into(), "too small".into())] };
        let report = Report { entries: vec![entry("a", Fate::Claimed { backend: "Npu".into() }), entry("b", left)] };
        assert_eq!(Report::from_bytes(&report.to_bytes()), Some(report));
        assert_eq!(Report::from_bytes(b"[1]"), None);
    }
}
