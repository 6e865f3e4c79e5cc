//! Hands parts of a graph to backends.
//!
//! Each backend, in the order of priority, is shown the canonical form of a method ([`Canonical`]) and claims nodes of it
//! ([`Claims`]). The framework gathers the claimed nodes into as few parts as the order of computation allows. It extracts each
//! part as a model of its own, which the backend legalizes and compiles. A call of a delegate, or the operators that the backend
//! gives ([`Compiled`]), take the part's place. Nodes that no backend claims stay exactly as they were, and run on the runtime's
//! operators. The [`Report`] has for every node the backend that claimed it, or each backend's reason to refuse it.
//!
//! Composite operators are offered whole first ([`CANONICAL_COMPOSITES`](crate::passes::CANONICAL_COMPOSITES)). The pipeline
//! decomposes those that no backend claims, and the backends claim nodes of the result anew.

mod claims;
mod extract;
mod levels;
mod operators;
mod options;
mod report;
mod states;
mod tags;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use rushlight_format::Blob;
use rushlight_graph::{BlockId, Bytes, Error, ErrorKind, Graph, Model, NodeId, Progress, State, StateId};
use rustc_hash::{FxHashMap, FxHashSet};

pub use claims::{Canonical, Claim, Claims};
pub use options::{BackendText, given_twice, parse_option, set_option};
pub use report::{Entry, Fate, PORTABLE, Report};
pub use rushlight_runtime::{OptionSpec, OptionValue};
pub use tags::PartOption;

use crate::passes::composites::Composites;
use crate::quantization::Quantizer;

use claims::ClaimedNodes;
use extract::{Cut, Replacement};
use tags::Claimant;

/// The ahead-of-time half of a backend. Its other half, `rushlight_runtime::Backend` of the same name, runs the results
/// of [`compile`](Self::compile).
pub trait Backend: fmt::Debug + Send {
    /// Returns the name by which a program finds the backend's other half.
    fn name(&self) -> &str;

    /// Returns the options of the backend. Users write them as `name:key=value,key=value`. Any other option is an error
    /// that lists these.
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    /// Sets one of the [options](Self::options), before anything is compiled. [`set_option`] and [`parse_option`] call
    /// it after they have checked that the option exists and takes the value.
    ///
    /// # Errors
    /// `Option` for a value that the declaration does not rule out, such as a number outside of its range.
    fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> Result<(), Error> {
        let _ = value;
        let message = format!("the backend `{}` declares the option `{name}`, and cannot set it", self.name());
        Err(Error::new(ErrorKind::Backend, message).help("implement `Backend::set_option`"))
    }

    /// True if inputs that are only quantized, and outputs that are only dequantized, become integers
    /// ([`IntegerInterface`](crate::passes::IntegerInterface)). One such backend in the list suffices.
    fn has_integer_interface(&self) -> bool {
        false
    }

    /// True if the backend reads the metadata that PyTorch recorded of the nodes
    /// ([`Origin::metadata`](rushlight_graph::Origin)). The import leaves it out if no backend reads it.
    fn reads_metadata(&self) -> bool {
        false
    }

    /// Claims nodes of a method. The default asks [`offer`](Self::offer) for each node. Override it to claim patterns,
    /// such as quantized groups, together.
    ///
    /// # Errors
    /// An error of the backend, which ends the compilation.
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

    /// Decides if the backend claims a single node. The graph is functional, and its tensors are contiguous.
    fn offer(&self, graph: &Graph, node: NodeId) -> Offer {
        let _ = (graph, node);
        Offer::Leave("the backend claims no single nodes".to_owned())
    }

    /// True if parts of the backend can hold a state that no other part and no operator of the runtime uses. The state
    /// is then a state of the part's model, not an input and an output. Methods that use it share it.
    fn owns_state(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// Returns the operators that [`compile`](Self::compile) may give instead of a payload. Operators of the backend's own are
    /// schemas, such as `cortex_m::quantized_add(Tensor self, Tensor other, int shift) -> Tensor`. Operators that the compiler
    /// knows are names, such as `aten::permute_copy`. A program calls their out variants. A schema without one gets ExecuTorch's
    /// name for it (`cortex_m::quantized_add.out`).
    fn operators(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the policy by which models are quantized for the backend; `None` if it has none. The policy of the first backend
    /// that has one is used.
    fn quantizer(&self) -> Option<&dyn Quantizer> {
        None
    }

    /// Compiles a part of a method: the nodes that the backend claimed, in the form in which they were shown.
    ///
    /// # Errors
    /// `Unsupported` for a part that the backend cannot compile after all: its nodes then run as if they had been
    /// refused. Any other error ends the compilation.
    fn compile(&self, part: &Part) -> Result<Compiled, Error>;
}

/// The decision of a backend on a single node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    Take,
    /// The reason, for the report.
    Leave(String),
}

/// A part of a method that one backend claimed: a model with one method, `forward`. Its inputs and outputs are the
/// values that cross the border of the part. The model holds the constants, and the states that
/// [belong](Backend::owns_state) to the backend.
#[derive(Clone, Debug)]
pub struct Part {
    pub model: Model,
    /// The name of the method that the part comes from.
    pub method: String,
    /// The [tag](Claims::set_tag) of the part's nodes; empty if they have none.
    pub tag: String,
    /// The [options of the tag](Claims::set_option): names with values. They override the backend's own.
    pub options: Vec<(String, PartOption)>,
    /// For each node of the part, in order, the node of the method that it copies.
    pub sources: Vec<SourceNode>,
    /// Progress and cancellation of the compilation. A backend that compiles a part for seconds should report progress.
    pub progress: Progress,
}

/// The node of a method that a node of a [`Part`] copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceNode {
    /// The node in the graph that [`Backend::claim`] was shown.
    pub node: NodeId,
    /// The index of the node in the list that the program's debug map has for the part. Nodes that were claimed with
    /// [`Claim::Copy`] are not in it.
    pub debug_handle: Option<u32>,
}

impl Part {
    /// The name of the only method of [`model`](Self::model).
    pub const METHOD: &str = "forward";

    /// The graph of the part.
    ///
    /// # Errors
    /// `InvalidProgram` if the model was changed and lacks the method.
    pub fn graph(&self) -> Result<&Graph, Error> {
        self.model.methods.get(Self::METHOD).ok_or_else(|| Error::invalid("a part without its method"))
    }
}

/// The result of compiling a part.
#[derive(Clone, Debug)]
pub enum Compiled {
    /// A payload, which the backend's run-time half runs as a delegate.
    Delegate(Payload),
    /// A model with one method, [`Part::METHOD`], that calls [declared](Backend::operators) operators. Its nodes take the part's
    /// place, and their kernels run them. Its inputs and outputs have the types of the part's, and it has no states and no updates.
    /// [`Part::model`] with rewritten nodes is such a model.
    Operators(Model),
}

impl From<Payload> for Compiled {
    fn from(payload: Payload) -> Self {
        Self::Delegate(payload)
    }
}

/// The compiled form of a part for the backend's run-time half.
#[derive(Clone, Debug)]
pub struct Payload {
    /// The bytes that the backend's run-time half gets when the program is loaded.
    pub data: Bytes,
    /// Settings for the run-time half.
    pub compile_specs: Vec<(String, Vec<u8>)>,
    /// Blobs that parts and methods may share; each has a key. Equal keys must have equal data. Large data can be
    /// [made](rushlight_format::Make) when the file is written.
    pub named_data: Vec<(String, Blob<'static>)>,
    /// For the report: the precisions of nodes, with reasons, if they differ from the types of the nodes' results.
    pub precisions: Vec<(NodeId, String)>,
}

/// Shows each method to the backends, in the order of the list, and replaces the claimed nodes by delegates, or by
/// the operators that the backends give.
///
/// # Errors
/// Errors of backends while they claim nodes or compile parts.
pub fn partition(model: &mut Model, backends: &[Box<dyn Backend>], progress: &Progress) -> Result<Report, Error> {
    let decided = claim(model, backends, &Composites::default())?;
    extract(model, backends, decided, progress)
}

/// Asks the backends for their claims on each method, in the order of the methods. `composites` has the calls that are decomposed
/// if no backend claims them.
///
/// # Errors
/// Errors of backends.
pub(crate) fn claim(
    model: &Model,
    backends: &[Box<dyn Backend>],
    composites: &Composites,
) -> Result<Vec<Decided>, Error> {
    let methods = model.methods.iter();
    let claims = methods.map(|(method, graph)| {
        claim_method(model, method, graph, backends, composites).map_err(|error| in_method(error, method))
    });
    claims.collect()
}

/// Replaces the claimed nodes by delegates, or by the operators that the backends give. `decided` has the claims on
/// each method.
///
/// # Errors
/// Errors of backends while they compile parts.
pub(crate) fn extract(
    model: &mut Model,
    backends: &[Box<dyn Backend>],
    decided: Vec<Decided>,
    progress: &Progress,
) -> Result<Report, Error> {
    let mut claims = model.methods.values().zip(&decided);
    let may_spare = claims.any(|(graph, decided)| decided.claimed.copies_use_claims(graph));
    let owned = states::owned(model, &decided, backends, may_spare);
    if owned.is_empty() && !may_spare {
        let certain = Assumptions { owned, copies_suffice: false };
        return extract_parts(model, backends, decided, &certain, progress).map(|(report, _)| report);
    }
    let (before, kept) = (model.clone(), decided.clone());
    let hopeful = Assumptions { owned, copies_suffice: may_spare };
    match extract_parts(model, backends, decided, &hopeful, progress)? {
        (report, Outcome { breaks_assumptions: false, .. }) => Ok(report),
        (_, Outcome { loses_state, .. }) => {
            *model = before;
            let mut owned = if loses_state { FxHashSet::default() } else { hopeful.owned };
            // Nodes may be in other parts if the copied nodes stay.
            let still_owned = states::owned(model, &kept, backends, false);
            owned.retain(|state| still_owned.contains(state));
            let certain = Assumptions { owned, copies_suffice: false };
            extract_parts(model, backends, kept, &certain, progress).map(|(report, _)| report)
        }
    }
}

/// Assumptions of an extraction. They hold if no backend rejects a part.
struct Assumptions {
    /// The states that belong to backends.
    owned: FxHashSet<StateId>,
    /// True if nothing but the parts needs the nodes that they copy.
    copies_suffice: bool,
}

/// The assumptions of an extraction that did not hold.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    breaks_assumptions: bool,
    /// True if a part with a state was given back: the state then belongs to the program.
    loses_state: bool,
}

fn in_method(error: Error, method: &str) -> Error {
    error.at(format!("method `{method}`"))
}

/// Extracts and compiles the parts of all methods.
fn extract_parts(
    model: &mut Model,
    backends: &[Box<dyn Backend>],
    decided: Vec<Decided>,
    assumed: &Assumptions,
    progress: &Progress,
) -> Result<(Report, Outcome), Error> {
    let mut report = Report::default();
    let mut outcome = Outcome::default();
    let names: Vec<String> = model.methods.keys().cloned().collect();
    for (name, mut decided) in names.into_iter().zip(decided) {
        let Some(mut graph) = model.methods.get_mut(&name).map(std::mem::take) else { continue };
        let mut extraction =
            Extraction { model: &mut *model, method: &name, backends, assumed, report: &mut report, progress };
        let blocks = graph.live_blocks();
        let mut extract = |block| extraction.block(&mut graph, block, &mut decided, &mut outcome);
        let result = blocks.into_iter().try_for_each(&mut extract);
        // The graph is put back, also after an error.
        if let Some(slot) = model.methods.get_mut(&name) {
            *slot = graph;
        }
        result.map_err(|error| in_method(error, &name))?;
    }
    Ok((report, outcome))
}

/// The claims and refusals of a method's nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decided {
    claimed: ClaimedNodes,
    /// By node, the backends that refused it, with their reasons.
    refusals: FxHashMap<NodeId, Vec<(String, String)>>,
    /// Composites to decompose before the backends claim anew: those with [`Claim::Decompose`], or all that no backend
    /// claimed.
    pub composites: FxHashSet<NodeId>,
}

/// Shows a method to the backends. Once one asks for the decomposition of nodes, the others are not asked.
fn claim_method(
    model: &Model,
    method: &str,
    graph: &Graph,
    backends: &[Box<dyn Backend>],
    composites: &Composites,
) -> Result<Decided, Error> {
    let Decided { mut claimed, mut refusals, composites: mut asked } = Decided::default();
    for (index, backend) in backends.iter().enumerate() {
        let is_last = index + 1 == backends.len();
        let canonical = Canonical { model, method, graph, is_last, claimed: &claimed, composites };
        let mut claims = Claims::default();
        let made = backend.claim(&canonical, &mut claims).and_then(|()| claims.tags.check(backend.as_ref()));
        made.map_err(|error| error.at(format!("backend `{}`", backend.name())))?;
        let nodes: Vec<NodeId> = canonical.nodes().filter(|node| !claimed.is_claimed(*node)).collect();
        for node in nodes {
            let mut refuse =
                |reason: String| refusals.entry(node).or_default().push((backend.name().to_owned(), reason));
            let claimant = Claimant { backend: index, tag: claims.tags.of(node) };
            match claims.remove(node) {
                Some(Claim::Take) => claimed.take(node, claimant),
                Some(Claim::Inner) => claimed.take_inner(node, claimant),
                Some(Claim::Copy) => {
                    claimed.copy(node, index);
                    refuse("the parts that use it compute it again".to_owned());
                }
                Some(Claim::Decompose) if composites.keeps(method, graph, node) => {
                    asked.insert(node);
                }
                Some(Claim::Decompose) => refuse("it cannot be decomposed further".to_owned()),
                Some(Claim::Refuse(reason)) => refuse(reason),
                None => refuse("the backend said nothing of it".to_owned()),
            }
        }
        claimed.add_tags(claims.tags);
        if !asked.is_empty() {
            return Ok(Decided { claimed, refusals, composites: asked });
        }
    }
    let is_left = |node: &NodeId| composites.keeps(method, graph, *node) && !claimed.is_used(*node);
    let canonical = Canonical { model, method, graph, is_last: true, claimed: &claimed, composites };
    let left = canonical.nodes().filter(is_left).collect();
    Ok(Decided { claimed, refusals, composites: left })
}

/// An extraction of parts from a method's graph.
struct Extraction<'e> {
    model: &'e mut Model,
    method: &'e str,
    backends: &'e [Box<dyn Backend>],
    assumed: &'e Assumptions,
    report: &'e mut Report,
    progress: &'e Progress,
}

impl Extraction<'_> {
    /// Replaces the claimed nodes of a block.
    fn block(
        &mut self,
        graph: &mut Graph,
        block: BlockId,
        decided: &mut Decided,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let Self { model, method, backends, assumed, report, progress } = self;
        let mut is_sorted = true;
        let nodes = graph.blocks[block].nodes.clone();
        let first = report.entries.len();
        let entries: FxHashMap<NodeId, usize> =
            nodes.iter().enumerate().map(|(at, node)| (*node, first + at)).collect();
        let claimants: Vec<Option<Claimant>> = nodes.iter().map(|node| decided.claimed.by(*node)).collect();
        let copied = claims::copied_whole(graph, &decided.claimed);
        let needless = claims::needless(graph, &decided.claimed, assumed.copies_suffice);
        for (node, claimant) in nodes.iter().zip(&claimants) {
            let owner = claimant
                .map(|by| by.backend)
                .or_else(|| copied.get(node).copied())
                .and_then(|index| backends.get(index));
            let fate = match owner {
                Some(backend) => Fate::Claimed { backend: backend.name().into() },
                None => Fate::Refused { reasons: decided.refusals.remove(node).unwrap_or_default() },
            };
            report.entries.push(Entry::new(method, graph, *node, fate));
        }
        let levels = levels::levels(graph, &nodes, &claimants, &decided.claimed, &needless);
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        // No node depends on a node of a higher level, so sorting by level keeps the order of computation.
        order.sort_by_key(|index| levels.get(*index).copied().unwrap_or(0));
        let mut result = Vec::new();
        let mut rest = order.as_slice();
        while let Some((first, _)) = rest.split_first() {
            let key = |index: &usize| (levels.get(*index).copied(), claimants.get(*index).copied().flatten());
            let (level, _) = key(first);
            let count = rest.iter().take_while(|index| key(index).0 == level).count();
            let (group, after) = rest.split_at(count);
            rest = after;
            for index in group.iter().filter(|index| key(index).1.is_none()) {
                result.extend(nodes.get(*index).copied().filter(|node| !needless.contains(node)));
            }
            let present: BTreeSet<Claimant> = group.iter().filter_map(|index| key(index).1).collect();
            for claimant in present {
                let members = group.iter().filter(|index| key(index).1 == Some(claimant));
                let members: Vec<NodeId> = members.filter_map(|index| nodes.get(*index).copied()).collect();
                if let (Some(backend), Some(tag)) = (backends.get(claimant.backend), decided.claimed.tag(claimant)) {
                    let copies = decided.claimed.copies_of(claimant.backend);
                    let owned = &assumed.owned;
                    let cut = Cut { members: &members, copies: &copies, needless: &needless, owned, tag };
                    match extract::compile(model, method, graph, &cut, backend.as_ref(), progress) {
                        Ok(Replacement { nodes, precisions }) => {
                            report.name_precisions(&entries, precisions);
                            result.extend(nodes);
                        }
                        // Nodes that the backend cannot compile after all run as if they had been refused.
                        Err(problem) if problem.kind() == ErrorKind::Unsupported => {
                            let holds_state = cut.holds_state(graph);
                            outcome.loses_state |= holds_state;
                            outcome.breaks_assumptions |= holds_state || !needless.is_empty();
                            report.give_back(&entries, &members, backend.name(), problem.message());
                            result.extend(members);
                            // Nodes that the part would have copied may come later in the order.
                            is_sorted = false;
                        }
                        Err(problem) => return Err(problem),
                    }
                }
            }
        }
        graph.blocks[block].nodes = if is_sorted { result } else { levels::sorted(graph, &result) };
        Ok(())
    }
}
