//! Hands parts of a graph to backends.
//!
//! A [`Backend`] says node by node what it takes; the framework gathers what it takes into as few parts as the order of
//! computation allows, hands each part over as a model of its own, and puts a call of a delegate in its place. Several
//! backends are asked in the order of priority; what none takes runs on the runtime's own operators. The [`Report`] says
//! of every node who took it, or why nobody did.

mod extract;
mod levels;
mod report;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

use rushlight_graph::Bytes;
use rushlight_graph::Pass;
use rushlight_graph::{BlockId, Graph, Model, NodeId, Op};
use rushlight_graph::{Error, ErrorKind};

pub use report::{Entry, Fate, PORTABLE, Report};

/// The ahead-of-time half of a backend. Its other half, `rushlight_runtime::Backend` of the same name, runs what
/// [`compile`](Self::compile) made.
pub trait Backend: fmt::Debug + Send {
    /// The name by which a program finds the backend's other half.
    fn name(&self) -> &str;

    /// Whether an operator should reach [`offer`](Self::offer) whole, though the compiler could make it of simpler ones.
    /// `op` is its full name, such as `aten::scaled_dot_product_attention`.
    fn keeps_whole(&self, op: &str) -> bool {
        let _ = op;
        false
    }

    /// Passes that put the graph in the form that the backend likes best, before it is asked. What they do stays, whoever
    /// takes the nodes in the end.
    fn prepare(&self) -> Vec<Box<dyn Pass>> {
        Vec::new()
    }

    /// True if the backend supports a precision of this name, such as `bf16`, whose meaning is the backend's own. A precision
    /// that one of several backends does not know is refused.
    fn knows_precision(&self, precision: &str) -> bool {
        precision == "f32"
    }

    /// Whether the backend takes a node. The graph is functional, and its tensors are contiguous.
    fn offer(&self, graph: &Graph, node: NodeId) -> Offer;

    /// In which precision the backend computes a node that it takes, and why, for the report; `None` where the types of its
    /// results say it. The constants of the graph are in `model`.
    fn precision(&self, graph: &Graph, model: &Model, node: NodeId) -> Option<String> {
        let _ = (graph, model, node);
        None
    }

    /// Compiles a part of a method.
    ///
    /// # Errors
    /// `Unsupported` for a part that the backend cannot compile after all, which is left then; anything else ends the
    /// compilation.
    fn compile(&self, part: &Part) -> Result<Payload, Error>;
}

/// What a backend says of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    Take,
    /// The reason, for the report.
    Leave(String),
}

/// A part of a method that one backend took: a model with one method, `forward`, whose inputs and outputs are the values
/// that cross the border. Constants come with it.
#[derive(Debug)]
pub struct Part {
    pub model: Model,
    /// The method that it was taken from.
    pub method: String,
}

impl Part {
    /// The name of the only method of [`model`](Self::model).
    pub const METHOD: &str = "forward";

    /// The graph of the part.
    ///
    /// # Errors
    /// `InvalidProgram` if the model was changed so that it has no method of that name.
    pub fn graph(&self) -> Result<&Graph, Error> {
        self.model.methods.get(Self::METHOD).ok_or_else(|| Error::invalid("a part without its method"))
    }
}

/// What a backend made of a part.
#[derive(Clone, Debug)]
pub struct Payload {
    /// What the backend's other half is given when the program is loaded.
    pub data: Bytes,
    /// Settings that go with it.
    pub compile_specs: Vec<(String, Vec<u8>)>,
    /// Blobs that parts and methods may share; each is found by its key. Equal keys must have equal data.
    pub named_data: Vec<(String, Bytes)>,
}

/// Offers every node to the backends, the first in the list first, and replaces what they take by delegates.
///
/// # Errors
/// What a backend says while it compiles a part.
pub fn partition(model: &mut Model, backends: &[Box<dyn Backend>]) -> Result<Report, Error> {
    let mut report = Report::default();
    let names: Vec<String> = model.methods.keys().cloned().collect();
    for name in names {
        let Some(mut graph) = model.methods.get_mut(&name).map(std::mem::take) else { continue };
        let result = graph
            .live_blocks()
            .into_iter()
            .try_for_each(|block| partition_block(model, &name, &mut graph, block, backends, &mut report));
        // The graph goes back whether or not a backend failed.
        if let Some(slot) = model.methods.get_mut(&name) {
            *slot = graph;
        }
        result.map_err(|error| error.at(format!("method `{name}`")))?;
    }
    Ok(report)
}

fn partition_block(
    model: &mut Model,
    method: &str,
    graph: &mut Graph,
    block: BlockId,
    backends: &[Box<dyn Backend>],
    report: &mut Report,
) -> Result<(), Error> {
    let nodes = graph.blocks[block].nodes.clone();
    let first = report.entries.len();
    let entries: HashMap<NodeId, usize> = nodes.iter().enumerate().map(|(at, node)| (*node, first + at)).collect();
    let mut takers = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let mut reasons = Vec::new();
        takers.push(first_taker(graph, *node, backends, &mut reasons));
        let taker = takers.last().copied().flatten().and_then(|index| backends.get(index));
        let fate = match taker {
            Some(backend) => Fate::Taken { backend: backend.name().into() },
            None => Fate::Left { reasons },
        };
        let precision = taker.and_then(|backend| backend.precision(graph, model, *node));
        report.entries.push(Entry { precision, ..Entry::new(method, graph, *node, fate) });
    }
    let levels = levels::levels(graph, &nodes, &takers);
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    // No node depends on one of a higher level, so that sorting by level keeps the order of computation.
    order.sort_by_key(|index| levels.get(*index).copied().unwrap_or(0));
    let mut result = Vec::new();
    let mut rest = order.as_slice();
    while let Some((first, _)) = rest.split_first() {
        let key = |index: &usize| (levels.get(*index).copied(), takers.get(*index).copied().flatten());
        let (level, _) = key(first);
        let count = rest.iter().take_while(|index| key(index).0 == level).count();
        let (group, after) = rest.split_at(count);
        rest = after;
        for index in group.iter().filter(|index| key(index).1.is_none()) {
            result.extend(nodes.get(*index).copied());
        }
        for (taker, backend) in backends.iter().enumerate() {
            let members = group.iter().filter(|index| key(index).1 == Some(taker));
            let members: Vec<NodeId> = members.filter_map(|index| nodes.get(*index).copied()).collect();
            if !members.is_empty() {
                match extract::delegate(model, method, graph, &members, backend.as_ref()) {
                    Ok(node) => result.push(node),
                    // What it cannot compile after all runs as if it had been left.
                    Err(problem) if problem.kind() == ErrorKind::Unsupported => {
                        report.give_back(&entries, &members, backend.name(), problem.message());
                        result.extend(members);
                    }
                    Err(problem) => return Err(problem),
                }
            }
        }
    }
    graph.blocks[block].nodes = result;
    Ok(())
}

/// The first backend that takes the node; the reasons of those that were asked before it.
fn first_taker(
    graph: &Graph,
    node: NodeId,
    backends: &[Box<dyn Backend>],
    reasons: &mut Vec<(String, String)>,
) -> Option<usize> {
    // Delegates are taken already, and control flow stays: what is in its blocks is offered.
    if !matches!(graph.nodes[node].op, Op::Call(_)) {
        return None;
    }
    for (index, backend) in backends.iter().enumerate() {
        match backend.offer(graph, node) {
            Offer::Take => return Some(index),
            Offer::Leave(reason) => reasons.push((backend.name().into(), reason)),
        }
    }
    None
}
