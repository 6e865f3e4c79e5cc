//! Claims nodes of the canonical form.
//!
//! Nodes are selected in their legalized form: there, a decomposed attention is one node and dequantized weights are
//! constants. So a copy of the method is legalized. The origin of each legalized node is the canonical node that it
//! replaces. The part that holds the claimed nodes is legalized again when it is compiled, which gives the same nodes.
//!
//! Most composites of the canonical form are claimed by their parts: models often come decomposed, so the patterns must find the
//! parts in any case. [`WHOLE`] lists the others.

use rushlight_compiler::partition::{Canonical, Claim, Claims, Part};
use rushlight_compiler::passes::decompose;
use rushlight_graph::operators::{aten, quantized_decomposed, rushlight, torchao};
use rushlight_graph::{Bytes, Delegate, Error, Model, NodeId, Op, Origin, OriginId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::legalize;
use crate::select::{self, Context, Reason, Selections};

/// Composites that are claimed whole. All others are claimed by their parts.
const WHOLE: [&str; 9] = [
    aten::SCALED_DOT_PRODUCT_ATTENTION,
    quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP,
    rushlight::DEQUANTIZE_INT4_ROWS,
    rushlight::EXPERTS_MM,
    rushlight::QUANTIZE_INT4_ROWS,
    rushlight::QUANTIZE_ROWS,
    torchao::CHOOSE_QPARAMS_AFFINE,
    torchao::DEQUANTIZE_AFFINE,
    torchao::QUANTIZE_AFFINE,
];

/// The legalized nodes that replace one canonical node.
#[derive(Default)]
struct Legal {
    /// True if the canonical node itself is among the legalized nodes.
    is_unchanged: bool,
    /// Operands of the legalized nodes.
    uses: Vec<ValueId>,
    /// True if all legalized nodes read or reshape integers that a part is given.
    is_copied: bool,
    /// The reason if one of the legalized nodes is refused.
    refusal: Option<Reason>,
}

/// Claims the nodes whose legalized replacements are selected.
pub(super) fn claim(canonical: &Canonical<'_>, claims: &mut Claims) -> Result<(), Error> {
    let is_by_parts = |node: NodeId| {
        let is_open = canonical.is_composite(node) && !canonical.is_claimed(node);
        is_open && !WHOLE.contains(&canonical.graph.nodes[node].op.name())
    };
    let by_parts: FxHashSet<NodeId> = canonical.nodes().filter(|node| is_by_parts(*node)).collect();
    if canonical.is_last && !by_parts.is_empty() {
        // No later backend can claim them whole, so they are decomposed and all nodes are offered again.
        by_parts.into_iter().for_each(|node| claims.set(node, Claim::Decompose));
        return Ok(());
    }
    let (mut model, sources) = copy_to_legalize(canonical);
    if !by_parts.is_empty() {
        decompose(&mut model, |_, graph, node| WHOLE.contains(&graph.nodes[node].op.name()))?;
    }
    let legal = legalized(model, &sources)?;
    let users = canonical.graph.users();
    let users_of =
        |node: NodeId| canonical.graph.nodes[node].results.iter().filter_map(|result| users.get(result)).flatten();
    let nodes: Vec<NodeId> = canonical.nodes().collect();
    // By value, the canonical nodes whose replacements use it. Empty unless nodes are refused: only those are bypassed.
    let mut readers: FxHashMap<ValueId, Vec<NodeId>> = FxHashMap::default();
    if legal.values().any(|legal| legal.refusal.is_some()) {
        for (reader, legal) in &legal {
            legal.uses.iter().for_each(|value| readers.entry(*value).or_default().push(*reader));
        }
    }
    let shown = Context::new(canonical.graph, canonical.model);
    let mut taken: FxHashMap<NodeId, bool> = FxHashMap::default();
    // Users come after the nodes whose results they use.
    for node in nodes.into_iter().rev().filter(|node| !canonical.is_claimed(*node)) {
        // A pattern that ends in a claimed node may bypass a node that others use, such as a conversion to int16.
        let is_taken = |user: NodeId| taken.get(&user) == Some(&true);
        let results = || canonical.graph.nodes[node].results.iter();
        let is_passed_by = || {
            let mut readers = results().filter_map(|result| readers.get(result)).flatten();
            users_of(node).any(|user| user.is_some_and(is_taken)) && !readers.any(|reader| is_taken(*reader))
        };
        let claim = match legal.get(&node) {
            Some(Legal { refusal: Some(_), is_unchanged: true, .. }) if is_passed_by() => Claim::Copy,
            Some(Legal { refusal: Some(reason), .. }) => Claim::Refuse(reason.to_string()),
            _ if by_parts.contains(&node) => Claim::Decompose,
            Some(Legal { refusal: None, is_copied: true, .. }) => Claim::Copy,
            Some(Legal { refusal: None, .. }) => Claim::Take,
            None if canonical.is_constant(node) => Claim::Copy,
            // An inner node of a pattern joins the part of the pattern's last node.
            None if users_of(node).all(|user| user.is_some_and(is_taken)) => Claim::Inner,
            None => match select::select(&shown, node) {
                Ok(_) => Claim::Take,
                Err(reason) => Claim::Refuse(reason.to_string()),
            },
        };
        taken.insert(node, !matches!(claim, Claim::Refuse(_)));
        claims.set(node, claim);
    }
    Ok(())
}

/// Copies a method into a model of its own. Each node gets its own origin, and nodes that other backends have claimed
/// become calls of a delegate.
fn copy_to_legalize(canonical: &Canonical<'_>) -> (Model, FxHashMap<OriginId, NodeId>) {
    let mut model = Model {
        constants: canonical.model.constants.clone(),
        states: canonical.model.states.clone(),
        schemas: canonical.model.schemas.clone(),
        ..Model::default()
    };
    let elsewhere = model.delegates.push(Delegate {
        backend: String::new(),
        payload: Bytes::from(Vec::new()),
        compile_specs: Vec::new(),
        refusal: None,
        nodes: Vec::new(),
    });
    let mut graph = canonical.graph.clone();
    let mut sources = FxHashMap::default();
    for node in canonical.nodes() {
        let origin = graph.origins.push(Origin::default());
        graph.nodes[node].origin = origin;
        sources.insert(origin, node);
        if canonical.is_claimed(node) {
            graph.nodes[node].op = Op::Delegate(elsewhere);
        }
    }
    model.add_method(Part::METHOD, graph);
    (model, sources)
}

/// Legalizes the copy. Returns the replacement of each canonical node that was not removed.
fn legalized(mut model: Model, sources: &FxHashMap<OriginId, NodeId>) -> Result<FxHashMap<NodeId, Legal>, Error> {
    legalize::legalize(&mut model)?;
    let mut legal: FxHashMap<NodeId, Legal> = FxHashMap::default();
    let Some(graph) = model.methods.get(Part::METHOD) else { return Ok(legal) };
    let selections = Selections::of(graph, &model);
    for block in graph.live_blocks() {
        for node in &graph.blocks[block].nodes {
            let Some(source) = sources.get(&graph.nodes[*node].origin) else { continue };
            if !matches!(graph.nodes[*node].op, Op::Call(_)) {
                continue;
            }
            let known = legal.entry(*source).or_insert_with(|| Legal { is_copied: true, ..Legal::default() });
            known.is_copied &= selections.is_copied(graph, *node);
            known.is_unchanged |= node == source;
            graph.for_each_use_by(*node, &mut |value| known.uses.push(value));
            if let Some(reason) = selections.refusal(*node) {
                known.refusal.get_or_insert_with(|| reason.clone());
            }
        }
    }
    Ok(legal)
}
