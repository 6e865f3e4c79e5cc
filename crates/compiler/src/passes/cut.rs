//! Minimum cuts of flow networks.

use std::collections::VecDeque;

/// A flow network between [`SOURCE`] and [`SINK`]. Vertices are numbers.
#[derive(Debug)]
pub(super) struct Network {
    /// Each edge is next to its reverse edge: their indices differ in the last bit.
    edges: Vec<Edge>,
    /// By vertex: the edges that leave it.
    leaving: Vec<Vec<usize>>,
}

#[derive(Debug)]
struct Edge {
    to: usize,
    /// Residual capacity of the edge.
    left: u64,
}

pub(super) const SOURCE: usize = 0;
pub(super) const SINK: usize = 1;

/// Capacity of edges that no cut crosses. The sum of all finite capacities must be less.
pub(super) const UNLIMITED: u64 = u64::MAX / 4;

impl Network {
    pub fn new() -> Self {
        Self { edges: Vec::new(), leaving: vec![Vec::new(); 2] }
    }

    /// Adds a vertex.
    pub fn vertex(&mut self) -> usize {
        self.leaving.push(Vec::new());
        self.leaving.len() - 1
    }

    pub fn edge(&mut self, from: usize, to: usize, capacity: u64) {
        self.leaving[from].push(self.edges.len());
        self.edges.push(Edge { to, left: capacity });
        self.leaving[to].push(self.edges.len());
        self.edges.push(Edge { to: from, left: 0 });
    }

    /// Returns for each vertex: true if it is on the source's side of the minimum cut. Of several minimum cuts, the one
    /// with the fewest vertices on that side is taken.
    ///
    /// Edmonds and Karp's algorithm: as long as there is a path from source to sink, the flow along a shortest one is
    /// increased by as much as it can carry. The source's side is everything that it still reaches afterwards.
    pub fn source_side(mut self) -> Vec<bool> {
        loop {
            let reached_by = self.reached();
            let Some(path) = self.path(&reached_by) else {
                return reached_by.iter().map(Option::is_some).collect();
            };
            let amount = path.iter().map(|edge| self.edges[*edge].left).min().unwrap_or(0);
            for edge in path {
                self.edges[edge].left -= amount;
                self.edges[edge ^ 1].left += amount;
            }
        }
    }

    /// Returns for each vertex that flow can still reach the edge over which it is reached first. The source has an
    /// arbitrary edge.
    fn reached(&self) -> Vec<Option<usize>> {
        let mut reached_by = vec![None; self.leaving.len()];
        reached_by[SOURCE] = Some(0);
        let mut next = VecDeque::from([SOURCE]);
        while let Some(vertex) = next.pop_front() {
            for edge in &self.leaving[vertex] {
                let Edge { to, left } = self.edges[*edge];
                if left > 0 && reached_by[to].is_none() {
                    reached_by[to] = Some(*edge);
                    next.push_back(to);
                }
            }
        }
        reached_by
    }

    /// Returns the edges from the sink back to the source.
    fn path(&self, reached_by: &[Option<usize>]) -> Option<Vec<usize>> {
        let (mut at, mut path) = (SINK, Vec::new());
        while at != SOURCE {
            let edge = reached_by[at]?;
            path.push(edge);
            at = self.edges[edge ^ 1].to;
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_edges_are_cut() {
        let mut network = Network::new();
        let [a, b, c] = [(); 3].map(|()| network.vertex());
        for (from, to, capacity) in
            [(SOURCE, a, 7), (SOURCE, b, 3), (a, c, 2), (a, b, 2), (b, c, 9), (c, SINK, 8), (b, SINK, UNLIMITED)]
        {
            network.edge(from, to, capacity);
        }
        assert_eq!(network.source_side(), [true, false, true, false, false]);
    }

    #[test]
    fn flow_can_be_taken_back() {
        // The shortest path blocks two longer ones.
        let mut network = Network::new();
        let [a, b, c, d] = [(); 4].map(|()| network.vertex());
        let edges = [(SOURCE, a, 1), (SOURCE, b, 1), (a, c, 1), (a, d, 1), (b, c, 1), (c, SINK, 1), (d, SINK, 1)];
        for (from, to, capacity) in edges {
            network.edge(from, to, capacity);
        }
        assert_eq!(network.source_side(), [true, false, false, false, false, false]);
    }

    #[test]
    fn of_cuts_that_cost_the_same_the_first_is_taken() {
        let mut network = Network::new();
        let a = network.vertex();
        network.edge(SOURCE, a, 5);
        network.edge(a, SINK, 5);
        assert_eq!(network.source_side(), [true, false, false]);
    }
}
