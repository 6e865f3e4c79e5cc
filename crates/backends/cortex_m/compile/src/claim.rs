//! Claims the nodes of patterns, and the nodes at the border that quantize and dequantize.

use rushlight_compiler::partition::{Canonical, Claim, Claims};
use rushlight_graph::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::select::Context;

const NO_PATTERN: &str = "it is in no int8 pattern: its operands are not dequantized, or its result is not quantized";

pub(crate) fn claim(canonical: &Canonical<'_>, claims: &mut Claims) {
    let context = Context::new(canonical.graph, canonical.model);
    let nodes: Vec<NodeId> = canonical.nodes().filter(|node| !canonical.is_claimed(*node)).collect();
    let open: FxHashSet<NodeId> = nodes.iter().copied().collect();
    let mut chosen: FxHashMap<NodeId, Claim> = FxHashMap::default();
    for root in nodes.iter().copied().filter(|node| context.quantize(*node).is_some()) {
        // Without a pattern it quantizes a float result of another backend.
        chosen.insert(root, Claim::Take);
        match context.pattern(root) {
            Ok(pattern) if pattern.inner.iter().all(|node| open.contains(node)) => {
                chosen.extend(pattern.inner.into_iter().map(|node| (node, Claim::Inner)));
                chosen.extend(pattern.operands.into_iter().map(|node| (node, Claim::Copy)));
            }
            Err(refusal) if refusal.node != root => {
                chosen.entry(refusal.node).or_insert(Claim::Refuse(refusal.reason));
            }
            _ => {}
        }
    }
    for node in nodes.iter().copied() {
        if context.dequantize(node).is_some() && !canonical.is_constant(node) {
            chosen.entry(node).or_insert(Claim::Take);
        }
    }
    for node in nodes.iter().copied().filter(|node| context.is_order_copy(*node)) {
        if is_between(&context, node, &chosen) {
            chosen.insert(node, Claim::Take);
        }
    }
    for node in nodes {
        claims.set(node, chosen.remove(&node).unwrap_or_else(|| Claim::Refuse(NO_PATTERN.to_owned())));
    }
}

/// True if a claimed node computes the operand of a copy, or if all readers of the copy are claimed.
fn is_between(context: &Context<'_>, node: NodeId, chosen: &FxHashMap<NodeId, Claim>) -> bool {
    let is_claimed = |node: NodeId| matches!(chosen.get(&node), Some(Claim::Take | Claim::Inner | Claim::Copy));
    let mut sources = Vec::new();
    context.graph.for_each_use_by(node, &mut |value| sources.push(value));
    let from = sources.first().and_then(|value| context.producer(*value));
    let readers = context.graph.nodes[node].result().map_or(&[][..], |result| context.users(result));
    let is_read_inside = !readers.is_empty() && readers.iter().all(|reader| reader.is_some_and(is_claimed));
    from.is_some_and(is_claimed) || is_read_inside
}
