//! Hands parts of a graph to back ends.
//!
//! Each back end, in the order of priority, is shown the canonical form of a method ([`Canonical`]) and claims nodes of it
//! ([`Claims`]). The framework gathers what it claims into as few parts as the order of computation allows, extracts each
//! part as a model of its own, lets the back end compile it, and puts a call of a delegate in its place. A back end
//! legalizes its own parts alone: what nobody claims stays exactly as it was, and runs on the runtime's operators. The
//! [`Report`] says of every node who claimed it, or why each back end refused it.

mod claims;
mod extract;
mod levels;
mod report;
#[cfg(test)]
mod tests;

use std::fmt;

use rushlight_graph::{BlockId, Bytes, Error, ErrorKind, Graph, Model, NodeId};
use rustc_hash::FxHashMap;

pub use claims::{Canonical, Claim, Claims};
pub use report::{Entry, Fate, PORTABLE, Report};

use claims::Taken;

/// The ahead-of-time half of a back end. Its other half, `rushlight_runtime::Backend` of the same name, runs what
/// [`compile`](Self::compile) made.
pub trait Backend: fmt::Debug + Send {
    /// The name by which a program finds the back end's other half.
    fn name(&self) -> &str;

    /// True if an operator should stay one node in the canonical form, though the compiler could make it of simpler ones, as
    /// attention and torchao's quantization do without being asked for. `op` is its full name, such as `aten::rms_norm`. All
    /// back ends see it whole then; where none claims it, it becomes the simpler ones.
    fn keeps_whole(&self, op: &str) -> bool {
        let _ = op;
        false
    }

    /// True if the back end supports a precision of this name, such as `bf16`, whose meaning is the back end's own. A precision
    /// that one of several back ends does not know is refused.
    fn knows_precision(&self, precision: &str) -> bool {
        precision == "f32"
    }

    /// Claims nodes of a method. By default each node is decided by itself, by [`offer`](Self::offer); patterns, such as
    /// quantized groups, are claimed together.
    ///
    /// # Errors
    /// An error of the back end, which ends the compilation.
    fn claim(&self, canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
        for node in canonical.nodes() {
            claims.set(
                node,
                match self.offer(canonical.graph, node) {
                    Offer::Take => Claim::Take,
                    Offer::Leave(reason) => Claim::Refuse(reason),
                },
            );
        }
        Ok(())
    }

    /// True if the back end takes a node by itself. The graph is functional, and its tensors are contiguous.
    fn offer(&self, graph: &Graph, node: NodeId) -> Offer {
        let _ = (graph, node);
        Offer::Leave("the back end claims no single nodes".to_owned())
    }

    /// Compiles a part of a method, which holds the nodes that the back end claimed as they were shown.
    ///
    /// # Errors
    /// `Unsupported` for a part that the back end cannot compile after all, which is left then; anything else ends the
    /// compilation.
    fn compile(&self, part: &Part) -> Result<Payload, Error>;
}

/// The decision of a back end on a node by itself.
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
    /// For the report: in which precision nodes of the part are computed, and why, where the types of their results do not say.
    pub precisions: Vec<(NodeId, String)>,
}

/// Shows each method to the back ends, the first in the list first, and replaces what they claim by delegates.
///
/// # Errors
/// Errors of back ends while they claim nodes or compile parts.
pub fn partition(model: &mut Model, backends: &[Box<dyn Backend>]) -> Result<Report, Error> {
    let mut report = Report::default();
    let names: Vec<String> = model.methods.keys().cloned().collect();
    for name in names {
        let Some(mut graph) = model.methods.get_mut(&name).map(std::mem::take) else { continue };
        let result = partition_method(model, &name, &mut graph, backends, &mut report);
        // The graph goes back whether or not a back end failed.
        if let Some(slot) = model.methods.get_mut(&name) {
            *slot = graph;
        }
        result.map_err(|error| error.at(format!("method `{name}`")))?;
    }
    Ok(report)
}

fn partition_method(
    model: &mut Model,
    method: &str,
    graph: &mut Graph,
    backends: &[Box<dyn Backend>],
    report: &mut Report,
) -> Result<(), Error> {
    let mut taken = Taken::default();
    let mut refusals: FxHashMap<NodeId, Vec<(String, String)>> = FxHashMap::default();
    for (index, backend) in backends.iter().enumerate() {
        let canonical = Canonical::new(model, method, graph, &taken);
        let mut claims = Claims::default();
        backend.claim(&canonical, &mut claims).map_err(|error| error.at(format!("backend `{}`", backend.name())))?;
        let nodes: Vec<NodeId> = canonical.nodes().filter(|node| !taken.is_claimed(*node)).collect();
        for node in nodes {
            match claims.remove(node) {
                Some(Claim::Take) => taken.take(node, index),
                Some(Claim::Copy) => {
                    taken.copy(node, index);
                    let reason = "the parts that use it compute it again".to_owned();
                    refusals.entry(node).or_default().push((backend.name().to_owned(), reason));
                }
                Some(Claim::Refuse(reason)) => {
                    refusals.entry(node).or_default().push((backend.name().to_owned(), reason));
                }
                None => {
                    let reason = "the back end said nothing of it".to_owned();
                    refusals.entry(node).or_default().push((backend.name().to_owned(), reason));
                }
            }
        }
    }
    for block in graph.live_blocks() {
        partition_block(
            model,
            method,
            graph,
            block,
            backends,
            &mut Decided { taken: &taken, refusals: &mut refusals, report },
        )?;
    }
    Ok(())
}

/// The claims and refusals of a method's nodes, and the report that they go to.
struct Decided<'d> {
    taken: &'d Taken,
    /// By node, the back ends that refused it, with their reasons.
    refusals: &'d mut FxHashMap<NodeId, Vec<(String, String)>>,
    report: &'d mut Report,
}

fn partition_block(
    model: &mut Model,
    method: &str,
    graph: &mut Graph,
    block: BlockId,
    backends: &[Box<dyn Backend>],
    decided: &mut Decided<'_>,
) -> Result<(), Error> {
    let nodes = graph.blocks[block].nodes.clone();
    let first = decided.report.entries.len();
    let entries: FxHashMap<NodeId, usize> = nodes.iter().enumerate().map(|(at, node)| (*node, first + at)).collect();
    let takers: Vec<Option<usize>> = nodes.iter().map(|node| decided.taken.by(*node)).collect();
    let copied = claims::copied_whole(graph, decided.taken);
    for (node, taker) in nodes.iter().zip(&takers) {
        let owner = taker.or_else(|| copied.get(node).copied()).and_then(|index| backends.get(index));
        let fate = match owner {
            Some(backend) => Fate::Taken { backend: backend.name().into() },
            None => Fate::Left { reasons: decided.refusals.remove(node).unwrap_or_default() },
        };
        decided.report.entries.push(Entry::new(method, graph, *node, fate));
    }
    let levels = levels::levels(graph, &nodes, &takers, decided.taken);
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
                let copies = decided.taken.copies_of(taker);
                match extract::delegate(model, method, graph, &members, &copies, backend.as_ref()) {
                    Ok((node, precisions)) => {
                        decided.report.name_precisions(&entries, precisions);
                        result.push(node);
                    }
                    // What it cannot compile after all runs as if it had been refused.
                    Err(problem) if problem.kind() == ErrorKind::Unsupported => {
                        decided.report.give_back(&entries, &members, backend.name(), problem.message());
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
