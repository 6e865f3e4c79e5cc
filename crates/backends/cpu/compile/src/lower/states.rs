//! States of a part. They are written in place if nothing reads the old contents afterwards.

use rushlight_format::ScalarType;
use rushlight_graph::{Arg, Def, Error, Graph, NodeId, State, StateId, Target, ValueId};
use rustc_hash::FxHashSet;

use crate::error::error;
use crate::select::{DataMovement, Scatter, Selection, Selections};
use crate::storage::initial_bits;
use crate::view::View;

use super::Lowering;

/// Finds the scatters that can write a state in place: the last one gives the state's next value, and nothing else uses
/// the overwritten values.
pub(super) fn in_place(graph: &Graph, selections: &Selections) -> FxHashSet<NodeId> {
    let users = graph.users();
    let is_used_once = |value: ValueId| users.get(&value).is_some_and(|users| users.len() == 1);
    let mut all = FxHashSet::default();
    for update in &graph.updates {
        let mut chain = Vec::new();
        let mut value = update.value;
        while let Def::Result(node, 0) = graph.values[value].def
            && let Some((input, source)) = written(selections, node)
            && is_used_once(input)
            && source != input
        {
            chain.push(node);
            value = input;
        }
        if matches!((graph.values[value].def, update.target), (Def::State(own), Target::State(state)) if own == state) {
            all.extend(chain);
        }
    }
    // The dequantized copy of a cache belongs to the one node that overwrites parts of it.
    for node in &graph.blocks[graph.body].nodes {
        if let Some((input, source)) = written(selections, *node)
            && let Some(Selection::RowDequantize(_)) = selections.of_value(graph, input)
            && is_used_once(input)
            && source != input
        {
            all.insert(*node);
        }
    }
    all
}

/// Returns the tensor that a node overwrites in part, and the tensor that it writes there.
fn written(selections: &Selections, node: NodeId) -> Option<(ValueId, ValueId)> {
    match selections.get(node)? {
        Selection::DataMovement(DataMovement::SliceScatter { input, source, .. })
        | Selection::Scatter(Scatter { input, source, .. }) => Some((*input, *source)),
        _ => None,
    }
}

impl Lowering<'_> {
    /// Gives each state of the part its memory.
    pub(super) fn states(&mut self) -> Result<(), Error> {
        for (value, known) in self.graph.values.iter() {
            if let Def::State(id) = known.def {
                let view = self.state(id)?;
                self.store_at(value, view);
            }
        }
        Ok(())
    }

    /// The memory of a state.
    fn state(&mut self, id: StateId) -> Result<View, Error> {
        let state = &self.model.states[id];
        let initial = if self.is_scaled_by_zeros(id) { Some(0) } else { initial_bits(state) };
        let initial = initial.ok_or_else(|| error(format!("the state `{}` has elements that differ", state.name)))?;
        self.plan.state(&state.name, &state.ty, initial, self.is_cache(id))
    }

    /// True if an int8 state is only read as rows with scales, and the scales are zeros until a row is written. Then
    /// the initial contents do not matter, and the memory needs no initialization.
    fn is_scaled_by_zeros(&self, id: StateId) -> bool {
        let is_read = |value: ValueId| self.state_of(value) == Some(id);
        let starts_as_zeros = |scales: ValueId| {
            let state = self.state_of(scales).map(|state| &self.model.states[state]);
            state.is_some_and(State::is_zeros)
        };
        let is_unread = |node: &NodeId| {
            let mut uses = Vec::new();
            self.graph.for_each_use_by(*node, &mut |value| uses.push(value));
            if !uses.iter().any(|value| is_read(*value)) {
                return true;
            }
            match self.selections.get(*node) {
                Some(Selection::RowDequantize(rows)) => !is_read(rows.scales) && starts_as_zeros(rows.scales),
                _ => self.in_place.contains(node),
            }
        };
        self.model.states[id].ty.dtype == ScalarType::Char
            && self.graph.blocks[self.graph.body].nodes.iter().all(is_unread)
            && !self.graph.outputs.iter().filter_map(Arg::as_value).any(is_read)
    }

    /// Returns the state that a value is, unchanged or overwritten in place.
    fn state_of(&self, value: ValueId) -> Option<StateId> {
        let mut value = value;
        loop {
            match self.graph.values[value].def {
                Def::State(id) => return Some(id),
                Def::Result(node, 0) if self.in_place.contains(&node) => {
                    (value, _) = written(self.selections, node)?;
                }
                _ => return None,
            }
        }
    }

    /// True if every write of a state is at positions that the caller gives.
    fn is_cache(&self, id: StateId) -> bool {
        let mut updates = self.graph.updates.iter().filter(|update| update.target == Target::State(id));
        updates.all(|update| {
            let Def::Result(node, 0) = self.graph.values[update.value].def else { return false };
            let is_in_order = match self.selections.get(node) {
                Some(Selection::Scatter(scatter)) => scatter.is_in_order,
                _ => true,
            };
            is_in_order && self.in_place.contains(&node)
        })
    }

    /// Stores the next values of states, except those that are written in place.
    pub(super) fn update_states(&mut self) -> Result<(), Error> {
        let mut stores = Vec::new();
        for update in &self.graph.updates {
            let Target::State(id) = update.target else { return Err(error("a part that stores to an input")) };
            let to = self.state(id)?;
            if self.half_view(update.value).is_some_and(|from| from.buffer == to.buffer) {
                continue;
            }
            let mut from =
                if to.affine.is_some() { self.stored_dense(update.value)? } else { self.dense(update.value)? };
            if from.buffer == to.buffer {
                continue;
            }
            if to.half.is_some() {
                from = self.narrowed(&from, &to)?;
            }
            if self.plan.is_state(&from) {
                // Another store may overwrite the value first.
                let copy = self.plan.ordered_as(from.shape.clone(), from.order.clone(), from.affine)?;
                self.copy("state", &from, &copy, None)?;
                from = copy;
            }
            stores.push((from, to));
        }
        stores.iter().try_for_each(|(from, to)| self.copy("state", from, to, None))
    }
}
