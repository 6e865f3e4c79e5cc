//! Memory that tensors of a method share.

use std::cmp::Reverse;

use rushlight_format::signature::SHARED_STATE_KEY;
use rustc_hash::FxHashMap;

use rushlight_graph::{Def, Graph, Model, StateId};

/// The arena of tensors that a method computes.
pub(super) const ARENA: u32 = 1;
/// The arena of states, in programs whose methods share states.
pub(super) const SHARED_ARENA: u32 = 2;

/// Offsets of the states in [`SHARED_ARENA`].
#[derive(Debug, Default)]
pub(super) struct SharedStates {
    pub offsets: FxHashMap<StateId, u64>,
}

/// Lays out states at the same offset for all methods. If methods share any state, this includes states of a single method: such methods
/// share all of their memory, and the intermediate results of another method would overwrite the state.
pub(super) fn shared_states(model: &Model) -> SharedStates {
    let mut users: Vec<u32> = vec![0; model.states.len()];
    for graph in model.methods.values() {
        let mut used = vec![false; model.states.len()];
        for state in used_states(graph) {
            if let Some(flag) = used.get_mut(state.index()) {
                *flag = true;
            }
        }
        users.iter_mut().zip(used).for_each(|(count, used)| *count += u32::from(used));
    }
    let users_of = |id: StateId| users.get(id.index()).copied().unwrap_or(0);
    let is_declared = model.named_data.iter().any(|(key, _)| key == SHARED_STATE_KEY);
    let mut used: Vec<StateId> = model.states.iter().map(|(id, _)| id).filter(|id| users_of(*id) > 0).collect();
    if !is_declared && used.iter().all(|id| users_of(*id) == 1) {
        return SharedStates::default();
    }
    // Where memory is not shared after all, each method has the states up to its last one.
    used.sort_by_key(|id| Reverse(users_of(*id)));
    let mut shared = SharedStates::default();
    let mut end = 0u64;
    for id in used {
        shared.offsets.insert(id, end);
        let bytes = model.states[id].ty.max_bytes(&rushlight_graph::Symbols::new()).unwrap_or(0);
        end = end.saturating_add(bytes).next_multiple_of(16);
    }
    shared
}

/// The states that a method reads or writes; one may come twice.
pub(super) fn used_states(graph: &Graph) -> Vec<StateId> {
    let mut states = Vec::new();
    graph.for_each_use(&mut |value| {
        if let Def::State(id) = graph.values[value].def {
            states.push(id);
        }
    });
    states.extend(graph.updates.iter().filter_map(|update| match update.target {
        rushlight_graph::Target::State(id) => Some(id),
        rushlight_graph::Target::Input(_) => None,
    }));
    states
}

/// A set of tensors that use one piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Slot(pub u32);

/// Size and lifetime of a [`Slot`].
#[derive(Clone, Debug)]
pub(super) struct SlotInfo {
    /// Bytes at the largest sizes.
    pub bytes: u64,
    pub memory_id: u32,
    /// A place that was settled before the plan.
    pub fixed: Option<u64>,
    /// True if it is in use during the whole call.
    pub whole_call: bool,
    /// True if the data comes from elsewhere: a constant, or memory of the caller's.
    pub elsewhere: bool,
}

/// Slots, some of which have been found to be one.
#[derive(Debug, Default)]
pub(super) struct Slots {
    infos: Vec<SlotInfo>,
    parents: Vec<u32>,
}

impl Slots {
    pub fn push(&mut self, info: SlotInfo) -> Slot {
        let slot = self.infos.len() as u32;
        self.infos.push(info);
        self.parents.push(slot);
        Slot(slot)
    }

    /// A slot of its own for a tensor of this size.
    pub fn computed(&mut self, bytes: u64) -> Slot {
        self.push(SlotInfo { bytes, memory_id: ARENA, fixed: None, whole_call: false, elsewhere: false })
    }

    /// The representative of all slots that were joined with this one.
    pub fn find(&self, slot: Slot) -> Slot {
        let mut at = slot.0;
        while let Some(parent) = self.parents.get(at as usize).copied().filter(|parent| *parent != at) {
            at = parent;
        }
        Slot(at)
    }

    pub fn get(&self, slot: Slot) -> &SlotInfo {
        let root = self.find(slot);
        &self.infos[root.0 as usize]
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut SlotInfo {
        let root = self.find(slot);
        &mut self.infos[root.0 as usize]
    }

    /// Makes two slots one, as large as the larger.
    pub fn join(&mut self, into: Slot, other: Slot) {
        let (into, other) = (self.find(into), self.find(other));
        if into == other {
            return;
        }
        let SlotInfo { bytes, whole_call, .. } = *self.get(other);
        let info = self.get_mut(into);
        info.bytes = info.bytes.max(bytes);
        info.whole_call |= whole_call;
        self.parents[other.0 as usize] = into.0;
    }

    pub fn len(&self) -> usize {
        self.infos.len()
    }
}
