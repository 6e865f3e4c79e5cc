//! States of a part: written where they are, if nothing needs what was there before.

use rushlight_graph::{Def, Error, Graph, NodeId, StateId, Target, ValueId};
use rustc_hash::FxHashSet;

use crate::error::error;
use crate::select::{DataMovement, Scatter, Selection, Selections};

use super::Lowering;

/// The scatters that can write a state where it is: the last one gives its next value, and nothing else uses what they
/// overwrite.
pub(super) fn in_place(graph: &Graph, selections: &Selections) -> FxHashSet<NodeId> {
    let users = graph.users();
    let is_used_once = |value: ValueId| users.get(&value).is_some_and(|users| users.len() == 1);
    let mut all = FxHashSet::default();
    for update in &graph.updates {
        let mut chain = Vec::new();
        let mut value = update.value;
        while let Def::Result(node, 0) = graph.values[value].def
            && let Some(
                Selection::DataMovement(DataMovement::SliceScatter { input, source, .. })
                | Selection::Scatter(Scatter { input, source, .. }),
            ) = selections.get(node)
            && is_used_once(*input)
            && source != input
        {
            chain.push(node);
            value = *input;
        }
        if matches!((graph.values[value].def, update.target), (Def::State(own), Target::State(state)) if own == state) {
            all.extend(chain);
        }
    }
    all
}

impl Lowering<'_> {
    /// Gives each state of the part its memory.
    pub(super) fn states(&mut self) -> Result<(), Error> {
        for (value, known) in self.graph.values.iter() {
            if let Def::State(id) = known.def {
                let state = &self.model.states[id];
                let view = self.plan.state(&state.name, &state.ty, self.is_cache(id))?;
                self.views.insert(value, view);
            }
        }
        Ok(())
    }

    /// True if each write of a state is one of positions that are given.
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

    /// Stores the values that states have after the call, but for those that are written where they are.
    pub(super) fn update_states(&mut self) -> Result<(), Error> {
        let mut stores = Vec::new();
        for update in &self.graph.updates {
            let Target::State(id) = update.target else { return Err(error("a part that stores to an input")) };
            let state = &self.model.states[id];
            let to = self.plan.state(&state.name, &state.ty, self.is_cache(id))?;
            let mut from = self.dense(update.value)?;
            if from.buffer == to.buffer {
                continue;
            }
            if self.plan.is_state(&from) {
                // Another store may come first.
                let copy = self.plan.dense(from.shape.clone())?;
                self.copy("state", &from, &copy, None)?;
                from = copy;
            }
            stores.push((from, to));
        }
        stores.iter().try_for_each(|(from, to)| self.copy("state", from, to, None))
    }
}
