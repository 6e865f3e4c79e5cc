//! Stores KV caches in types other than f32.

mod format;

use rushlight_format::ScalarType;
use rushlight_graph::operators::aten;
use rushlight_graph::{
    Action, Arg, Builder, ConstantData, Def, Error, ErrorKind, Graph, Model, NodeId, Pass, State, StateId, Target,
    Update, ValueId,
};
use rustc_hash::FxHashMap;

pub use format::CacheFormat;

/// Stores KV caches in a format. A cache is a state of f32 whose rows, the last dimension, a method writes at the
/// positions of another dimension. The method must read it only afterwards.
///
/// A row is converted when it is written. Readers of the cache get the dequantized values of all rows; rows that were
/// never written are zeros. It is an error if no state is a cache.
#[derive(Clone, Copy, Debug)]
pub struct StoreCaches(pub CacheFormat);

impl Pass for StoreCaches {
    fn name(&self) -> &str {
        self.0.pass()
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let Self(format) = self;
        let caches = caches(model);
        if caches.is_empty() {
            return Err(Error::new(ErrorKind::Option, "the program has no KV cache to store in another type")
                .help("leave out the type of caches")
                .expected("a state of f32 that the program writes at positions, and reads then"));
        }
        let mut parts: FxHashMap<StateId, Vec<StateId>> = FxHashMap::default();
        for cache in caches {
            let State { name, ty, .. } = model.states[cache].clone();
            let of_cache = format.parts(&ty)?.into_iter().map(|(suffix, ty)| {
                let name = format!("{name}.{suffix}");
                model.states.push(State { name, ty, initial: ConstantData::Zeros })
            });
            parts.insert(cache, of_cache.collect());
        }
        // A method has values for the states that it uses.
        let states = &model.states;
        for graph in model.methods.values_mut() {
            parts.values().flatten().for_each(|id| {
                graph.state(*id, states);
            });
        }
        model.rewrite(|builder, node| {
            let write = written_cache(builder.graph, node);
            let Some((cache, source)) = write.filter(|(cache, _)| parts.contains_key(cache)) else {
                return Ok(Action::Keep);
            };
            Ok(Action::Replace(vec![rewritten(builder, node, source, *format, &parts[&cache])?]))
        })?;
        for graph in model.methods.values_mut() {
            let mut updates = Vec::with_capacity(graph.updates.len());
            for update in std::mem::take(&mut graph.updates) {
                match update.target {
                    Target::State(cache) if parts.contains_key(&cache) => {
                        for part in &parts[&cache] {
                            updates.push(Update { target: Target::State(*part), value: written(graph, *part)? });
                        }
                    }
                    _ => updates.push(update),
                }
            }
            graph.updates = updates;
        }
        Ok(())
    }
}

/// Finds the states that are caches in all methods that use them.
fn caches(model: &Model) -> Vec<StateId> {
    let mut is_cache: FxHashMap<StateId, bool> = FxHashMap::default();
    for graph in model.methods.values() {
        let users = graph.users();
        for (value, known) in graph.values.iter() {
            let Def::State(state) = known.def else { continue };
            let users = users.get(&value).map(Vec::as_slice).unwrap_or_default();
            let is_updated_by = |node: NodeId| {
                let mut updates = graph.updates.iter().filter(|update| update.target == Target::State(state));
                updates.next().map(|update| graph.values[update.value].def) == Some(Def::Result(node, 0))
            };
            let is_written = match users {
                [] => continue,
                [Some(node)] => {
                    written_cache(graph, *node).is_some_and(|(own, _)| own == state) && is_updated_by(*node)
                }
                _ => false,
            };
            *is_cache.entry(state).or_insert(true) &= is_written;
        }
    }
    let is_zero = |id: &StateId| model.states[*id].is_zeros();
    let ids = model.states.ids().filter(|id| is_cache.get(id) == Some(&true));
    ids.filter(is_zero).collect()
}

/// Returns the state whose rows a node overwrites, and the value that it writes there.
fn written_cache(graph: &Graph, node: NodeId) -> Option<(StateId, ValueId)> {
    let node = &graph.nodes[node];
    let value = |name: &str| node.arg(name).and_then(Arg::as_value);
    let (source, dim) = match node.op.name() {
        aten::SLICE_SCATTER => (value("src")?, int(node.arg("dim")?)?),
        aten::INDEX_PUT => {
            let (Arg::List(indices), None | Some(Arg::Bool(false))) = (node.arg("indices")?, node.arg("accumulate"))
            else {
                return None;
            };
            let mut given = indices.iter().enumerate().filter(|(_, index)| !index.is_none());
            let ((dim, _), None) = (given.next()?, given.next()) else { return None };
            (value("values")?, i64::try_from(dim).ok()?)
        }
        _ => return None,
    };
    let before = value("self")?;
    let Def::State(state) = graph.values[before].def else { return None };
    let (cache, rows) = (graph.tensor(before).ok()?, graph.tensor(source).ok()?);
    let rank = i64::try_from(cache.rank()).ok()?;
    let is_of_rows = rank > 1 && dim.rem_euclid(rank) + 1 < rank && rows.rank() == cache.rank();
    let are_floats = cache.dtype == ScalarType::Float && rows.dtype == ScalarType::Float;
    (is_of_rows && are_floats && rows.shape.last() == cache.shape.last()).then_some((state, source))
}

fn int(arg: &Arg) -> Option<i64> {
    match arg {
        Arg::Int(expr) => expr.as_int(),
        _ => None,
    }
}

/// Converts rows, writes their parts in place of the floats that `node` wrote, and converts the cache back.
fn rewritten(
    builder: &mut Builder<'_>,
    node: NodeId,
    source: ValueId,
    format: CacheFormat,
    parts: &[StateId],
) -> Result<ValueId, Error> {
    let rows = format.encode(builder, source)?;
    let (name, args) = (builder.graph.nodes[node].op.name().to_owned(), builder.graph.nodes[node].args.clone());
    let before = args.first().and_then(Arg::as_value);
    let mut after = Vec::with_capacity(rows.len());
    for (id, row) in parts.iter().zip(rows) {
        let state = builder.graph.values.iter().find(|(_, value)| value.def == Def::State(*id));
        let state = state.map(|(value, _)| value).ok_or_else(|| Error::invalid("a state without a value"))?;
        let args = args.iter().cloned().map(|arg| match arg.as_value() {
            Some(value) if Some(value) == before => state.into(),
            Some(value) if value == source => row.into(),
            _ => arg,
        });
        after.push(builder.one(&name, args.collect())?);
    }
    format.decode(builder, &after)
}

/// Returns the result of the only node that writes a part of a cache.
fn written(graph: &Graph, part: StateId) -> Result<ValueId, Error> {
    let mut nodes = graph.blocks[graph.body].nodes.iter().map(|node| &graph.nodes[*node]);
    let writer = nodes.find(|node| {
        let before = node.arg("self").and_then(Arg::as_value);
        matches!(node.op.name(), aten::SLICE_SCATTER | aten::INDEX_PUT)
            && before.is_some_and(|before| graph.values[before].def == Def::State(part))
    });
    writer.and_then(|node| node.results.first().copied()).ok_or_else(|| Error::invalid("a cache that nothing writes"))
}
