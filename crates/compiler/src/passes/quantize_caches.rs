//! KV caches of int8, as ExecuTorch keeps them: a scale and a zero point for each row.

use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, quantized_decomposed};
use rushlight_graph::{
    Action, Arg, Builder, ConstantData, Def, Error, ErrorKind, Graph, Model, NodeId, Pass, State, StateId, Target,
    TensorType, Update, ValueId,
};
use rustc_hash::FxHashMap;

/// Makes KV caches int8. A cache is a state of f32 whose rows, the last dimension, a method writes at positions of another one,
/// and uses only then.
///
/// A row is quantized when it is written, with the scale and the zero point that
/// `quantized_decomposed::choose_qparams_per_token_asymmetric` chooses, which become states beside it. What reads the cache
/// reads all of its rows dequantized; those that were never written are zeros. It is an error if no state is a cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuantizeCaches;

/// The states that one cache becomes, in the order of [`PARTS`].
type Parts<T> = [T; 3];

/// The types of the states, and how their names end.
const PARTS: Parts<(ScalarType, &str)> =
    [(ScalarType::Char, "int8"), (ScalarType::Float, "scales"), (ScalarType::Char, "zero_points")];

impl Pass for QuantizeCaches {
    fn name(&self) -> &'static str {
        "quantize-caches"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let caches = caches(model);
        if caches.is_empty() {
            return Err(Error::new(ErrorKind::Option, "the program has no KV cache to quantize")
                .expected("a state of f32 that the program writes at positions, and reads then"));
        }
        let mut parts: FxHashMap<StateId, Parts<StateId>> = FxHashMap::default();
        for cache in caches {
            let State { name, ty, .. } = model.states[cache].clone();
            parts.insert(
                cache,
                PARTS.map(|(dtype, suffix)| {
                    let mut shape = ty.shape.clone();
                    if suffix != PARTS[0].1
                        && let Some(width) = shape.last_mut()
                    {
                        *width = 1.into();
                    }
                    let (name, ty) = (format!("{name}.{suffix}"), TensorType::new(dtype, shape));
                    model.states.push(State { name, ty, initial: ConstantData::Zeros })
                }),
            );
        }
        // A method has values of the states that it uses.
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
            Ok(Action::Replace(vec![rewritten(builder, node, source, parts[&cache])?]))
        })?;
        for graph in model.methods.values_mut() {
            let mut updates = Vec::with_capacity(graph.updates.len());
            for update in std::mem::take(&mut graph.updates) {
                match update.target {
                    Target::State(cache) if parts.contains_key(&cache) => {
                        let values = quantized(graph, update.value)?;
                        let parts = parts[&cache].into_iter().map(Target::State);
                        updates.extend(parts.zip(values).map(|(target, value)| Update { target, value }));
                    }
                    _ => updates.push(update),
                }
            }
            graph.updates = updates;
        }
        Ok(())
    }
}

/// The states that are caches in all methods that use them.
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

/// The state whose rows a node overwrites, and what it writes there.
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

/// Quantizes rows, writes them and their parameters as `node` wrote floats, and dequantizes the cache.
fn rewritten(
    builder: &mut Builder<'_>,
    node: NodeId,
    source: ValueId,
    parts: Parts<StateId>,
) -> Result<ValueId, Error> {
    let (int8, float) = (ScalarType::Char, ScalarType::Float);
    let range = [Arg::from(i64::from(i8::MIN)), i64::from(i8::MAX).into()];
    let cast = |builder: &mut Builder<'_>, value: ValueId, dtype: ScalarType| {
        builder.one_with(aten::_TO_COPY, vec![value.into()], &[("dtype", dtype.into())])
    };
    let chosen =
        builder.call(quantized_decomposed::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC, vec![source.into(), int8.into()])?;
    let [scales, zero_points] = chosen[..] else { return Err(Error::invalid("scales without zero points")) };
    let args = [source.into(), scales.into(), zero_points.into()].into_iter().chain(range.clone());
    let rows = builder.one(quantized_decomposed::QUANTIZE_PER_TOKEN, args.chain([int8.into()]).collect())?;
    let rows = [rows, cast(builder, scales, float)?, cast(builder, zero_points, int8)?];
    let (name, args) = (builder.graph.nodes[node].op.name().to_owned(), builder.graph.nodes[node].args.clone());
    let before = args.first().and_then(Arg::as_value);
    let mut after = Vec::with_capacity(rows.len());
    for (id, row) in parts.into_iter().zip(rows) {
        let state = builder.graph.values.iter().find(|(_, value)| value.def == Def::State(id));
        let state = state.map(|(value, _)| value).ok_or_else(|| Error::invalid("a state without a value"))?;
        let args = args.iter().cloned().map(|arg| match arg.as_value() {
            Some(value) if Some(value) == before => state.into(),
            Some(value) if value == source => row.into(),
            _ => arg,
        });
        after.push(builder.one(&name, args.collect())?);
    }
    let [cache, scales, zero_points] = after[..] else { return Err(Error::invalid("a cache without its parts")) };
    let scales = cast(builder, scales, ScalarType::Double)?;
    let zero_points = cast(builder, zero_points, ScalarType::Long)?;
    let args = [cache.into(), scales.into(), zero_points.into()].into_iter().chain(range);
    builder.one(quantized_decomposed::DEQUANTIZE_PER_TOKEN, args.chain([int8.into(), float.into()]).collect())
}

/// The parts of a cache that [`rewritten`] dequantized.
fn quantized(graph: &Graph, value: ValueId) -> Result<Parts<ValueId>, Error> {
    let operand = |value: ValueId, index: usize| {
        let Def::Result(node, 0) = graph.values[value].def else { return None };
        graph.nodes[node].args.get(index).and_then(Arg::as_value)
    };
    let parts = || {
        let scales = operand(operand(value, 1)?, 0)?;
        Some([operand(value, 0)?, scales, operand(operand(value, 2)?, 0)?])
    };
    parts().ok_or_else(|| Error::invalid("a cache that is not dequantized"))
}
