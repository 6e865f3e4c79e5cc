//! Which nodes can run together.
//!
//! Each node has a level: that of the nodes that it uses, and one more where it uses a node of another taker. What one
//! backend takes on one level can run as one: a path that leaves a taker comes back on a higher level.

use std::collections::HashMap;

use crate::graph::{Graph, NodeId, ValueId};

/// The level of each node of a block. `takers` says for each node which backend took it.
pub(super) fn levels(graph: &Graph, nodes: &[NodeId], takers: &[Option<usize>]) -> Vec<u32> {
    let mut made_by: HashMap<ValueId, (u32, Option<usize>)> = HashMap::new();
    let mut levels = Vec::with_capacity(nodes.len());
    for (node, taker) in nodes.iter().zip(takers) {
        let mut level = 0;
        graph.for_each_use_by(*node, &mut |value| {
            if let Some((other, other_taker)) = made_by.get(&value) {
                level = level.max(other + u32::from(other_taker != taker));
            }
        });
        levels.push(level);
        for result in &graph.nodes[*node].results {
            made_by.insert(*result, (level, *taker));
        }
    }
    levels
}
