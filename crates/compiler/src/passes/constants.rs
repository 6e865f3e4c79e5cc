//! Constant tensors, and the equality of constants.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

use rushlight_graph::Error;
use rushlight_graph::{Arena, Constant, ConstantData, ConstantId, Def, Model, State, StateId, Target, ValueId};

use rushlight_graph::Pass;

/// Makes states that no method updates constants, and drops the updates of those that no method reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreezeStates;

/// Makes equal constants one, in all methods.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeConstants;

impl Pass for FreezeStates {
    fn name(&self) -> &'static str {
        "freeze-states"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        drop_unread(model);
        let mut updated = vec![false; model.states.len()];
        for update in model.methods.values().flat_map(|graph| &graph.updates) {
            if let Target::State(state) = update.target
                && let Some(updated) = updated.get_mut(state.index())
            {
                *updated = true;
            }
        }
        let mut frozen: FxHashMap<StateId, ConstantId> = FxHashMap::default();
        for graph in model.methods.values_mut() {
            let mut replaced = FxHashMap::default();
            for value in graph.values.ids() {
                let Def::State(state) = graph.values[value].def else { continue };
                if updated.get(state.index()).copied().unwrap_or(true) {
                    continue;
                }
                let constants = &mut model.constants;
                let constant = *frozen.entry(state).or_insert_with(|| {
                    let State { name, ty, initial } = model.states[state].clone();
                    constants.push(Constant { name, ty, data: initial })
                });
                replaced.insert(value, graph.constant(constant, constants));
            }
            if !replaced.is_empty() {
                graph.replace_uses(&replaced);
            }
        }
        Ok(())
    }
}

/// Drops the updates of states that nothing reads.
fn drop_unread(model: &mut Model) {
    let mut read = vec![false; model.states.len()];
    for graph in model.methods.values() {
        graph.for_each_use(&mut |value| {
            if let Def::State(state) = graph.values[value].def
                && let Some(read) = read.get_mut(state.index())
            {
                *read = true;
            }
        });
    }
    for graph in model.methods.values_mut() {
        graph.updates.retain(|update| match update.target {
            Target::State(state) => read.get(state.index()).copied().unwrap_or(true),
            Target::Input(_) => true,
        });
    }
}

impl Pass for MergeConstants {
    fn name(&self) -> &'static str {
        "merge-constants"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let mut used: Vec<ConstantId> = Vec::new();
        for graph in model.methods.values() {
            graph.for_each_use(&mut |value| used.extend(graph.constant_of(value)));
        }
        used.sort_unstable();
        used.dedup();
        let firsts = firsts(&model.constants, &used)?;
        if firsts.is_empty() {
            return Ok(());
        }
        for graph in model.methods.values_mut() {
            let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
            for value in graph.values.ids() {
                if let Some(first) = graph.constant_of(value).and_then(|constant| firsts.get(&constant)) {
                    replaced.insert(value, graph.constant(*first, &model.constants));
                }
            }
            graph.replace_uses(&replaced);
        }
        Ok(())
    }
}

/// For each constant that equals an earlier one, the first of these.
fn firsts(constants: &Arena<Constant>, used: &[ConstantId]) -> Result<FxHashMap<ConstantId, ConstantId>, Error> {
    let mut by_sample: FxHashMap<u64, Vec<ConstantId>> = FxHashMap::default();
    let mut whole: FxHashMap<ConstantId, u64> = FxHashMap::default();
    let mut firsts = FxHashMap::default();
    for id in used {
        let constant = &constants[*id];
        let candidates = by_sample.entry(sample(constant)).or_default();
        let mut first = None;
        for candidate in candidates.iter() {
            if equal(constants, *id, *candidate, &mut whole)? {
                first = Some(*candidate);
                break;
            }
        }
        match first {
            Some(first) => drop(firsts.insert(*id, first)),
            None => candidates.push(*id),
        }
    }
    Ok(firsts)
}

/// A hash of the type and of some of the content, such that equal constants have the same. Content that is not simply
/// there counts by where it comes from.
fn sample(constant: &Constant) -> u64 {
    const WINDOW: usize = 64;
    const WINDOWS: usize = 32;
    let mut hasher = FxHasher::default();
    constant.ty.dtype.hash(&mut hasher);
    constant.ty.shape.hash(&mut hasher);
    match &constant.data {
        ConstantData::Zeros => 0u8.hash(&mut hasher),
        ConstantData::Dense(bytes) if bytes.len() <= WINDOW * WINDOWS => bytes.hash(&mut hasher),
        ConstantData::Dense(bytes) => {
            let step = bytes.len() / WINDOWS;
            for start in (0..WINDOWS).map(|window| window * step) {
                bytes.get(start..start + WINDOW).hash(&mut hasher);
            }
        }
        ConstantData::Strided { storage, offset, strides } => {
            (storage.as_ptr(), offset, strides).hash(&mut hasher);
        }
        ConstantData::Computed(computed) => Arc::as_ptr(computed).hash(&mut hasher),
    }
    hasher.finish()
}

/// True if two constants are the same. Whole contents are only read if their hashes are equal.
fn equal(
    constants: &Arena<Constant>,
    a: ConstantId,
    b: ConstantId,
    whole: &mut FxHashMap<ConstantId, u64>,
) -> Result<bool, Error> {
    let (a_held, b_held) = (&constants[a], &constants[b]);
    if a_held.ty != b_held.ty {
        return Ok(false);
    }
    Ok(match (&a_held.data, &b_held.data) {
        (ConstantData::Zeros, ConstantData::Zeros) => true,
        (ConstantData::Dense(x), ConstantData::Dense(y)) => {
            let mut hash = |id: ConstantId, bytes: &[u8]| {
                *whole.entry(id).or_insert_with(|| {
                    let mut hasher = FxHasher::default();
                    bytes.hash(&mut hasher);
                    hasher.finish()
                })
            };
            let identical = x.as_ptr() == y.as_ptr() && x.len() == y.len();
            identical || (hash(a, x) == hash(b, y) && x == y)
        }
        (
            ConstantData::Strided { storage: x, offset, strides },
            ConstantData::Strided { storage: y, offset: other_offset, strides: other_strides },
        ) => x.as_ptr() == y.as_ptr() && x.len() == y.len() && offset == other_offset && strides == other_strides,
        (ConstantData::Computed(x), ConstantData::Computed(y)) => Arc::ptr_eq(x, y),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;

    use super::*;
    use rushlight_graph::testing::Method;
    use rushlight_graph::{Arg, TensorType};

    #[test]
    fn long_constants_that_differ_anywhere_stay() {
        let mut m = Method::new();
        // Between the windows that are hashed first.
        let long = |at: usize| (0..10_000).map(|i| u8::from(i == at)).collect::<Vec<u8>>();
        let values = [400, 401, 400].map(|at| {
            let constant = Constant::dense("c", TensorType::of(ScalarType::Byte, &[10_000]), long(at)).unwrap();
            let id = m.model.constants.push(constant);
            let Model { methods, constants, .. } = &mut m.model;
            methods["forward"].constant(id, constants)
        });
        m.graph().outputs = values.map(Arg::Value).to_vec();
        m.after(&MergeConstants);
        assert_eq!(m.graph().outputs, [0, 1, 0].map(|index: usize| Arg::Value(values[index])));
    }

    #[test]
    fn views_of_one_storage_are_one() {
        let mut m = Method::new();
        let storage: rushlight_graph::Bytes = vec![0u8; 24].into();
        let mut view = |offset| {
            let data = ConstantData::Strided { storage: storage.clone(), offset, strides: vec![2] };
            let ty = TensorType::of(ScalarType::Float, &[2]);
            let id = m.model.constants.push(Constant { name: "c".into(), ty, data });
            let Model { methods, constants, .. } = &mut m.model;
            Arg::Value(methods["forward"].constant(id, constants))
        };
        let outputs = vec![view(0), view(1), view(0)];
        m.graph().outputs.clone_from(&outputs);
        m.after(&MergeConstants);
        assert_eq!(m.graph().outputs, [outputs[0].clone(), outputs[1].clone(), outputs[0].clone()]);
    }
}
