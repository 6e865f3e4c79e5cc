//! Fuses a matmul, a softmax and a second matmul into scaled dot-product attention.

use rustc_hash::FxHashMap;

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Builder, Def, Expr, Graph, Model, Node, NodeId, ValueId};

use rushlight_graph::Pass;

use crate::passes::dce::EliminateDeadCode;

/// Finds `softmax(q k' * scale + mask) v` that is decomposed into `bmm` and `_softmax`, with views, permutations and
/// factors between them. Replaces it by `aten::scaled_dot_product_attention`, for backends that compute it whole.
///
/// Masks that are added in several steps are added to each other instead. The fused operator is the same function of
/// the same values; only the order in which floats are added differs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RaiseAttention;

impl Pass for RaiseAttention {
    fn name(&self) -> &'static str {
        "raise-attention"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let Model { methods, constants, schemas, .. } = model;
        for graph in methods.values_mut() {
            for block in graph.live_blocks() {
                let nodes = graph.blocks[block].nodes.clone();
                let found: FxHashMap<NodeId, Match> =
                    nodes.iter().filter_map(|node| Some((*node, Match::ending_with(graph, *node)?))).collect();
                if found.is_empty() {
                    continue;
                }
                let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
                graph.blocks[block].nodes.clear();
                for node in nodes {
                    if let Some(attention) = found.get(&node) {
                        let (origin, result) = (graph.nodes[node].origin, graph.nodes[node].results[0]);
                        let mut builder = Builder::new(graph, constants, schemas, block, origin);
                        replaced.insert(result, attention.build(&mut builder, result)?);
                    }
                    graph.blocks[block].nodes.push(node);
                }
                graph.replace_uses(&replaced);
            }
        }
        EliminateDeadCode.run(model)
    }
}

/// A decomposed attention.
#[derive(Debug)]
struct Match {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    /// Masks that are added to the scores, each with its four sizes before broadcasting.
    masks: Vec<(ValueId, Vec<Expr>)>,
    scale: f64,
    /// Batch, heads, queries and depth of the result.
    shape: [Expr; 4],
}

impl Match {
    /// Returns the attention whose second matmul is `node`.
    fn ending_with(graph: &Graph, node: NodeId) -> Option<Self> {
        let last = &graph.nodes[node];
        let (weights, values) = operands(last, aten::BMM)?;
        let mut weights = through_views(graph, weights);
        if let Some(guarded) = guarded_softmax(graph, weights) {
            weights = through_views(graph, guarded);
        }
        let softmax = node_of(graph, weights, aten::_SOFTMAX)?;
        let scores = softmax.arg("self")?.as_value()?;
        let score_shape = &graph.tensor(scores).ok()?.shape;
        let is_last =
            matches!(softmax.arg("dim")?, Arg::Int(dim) if dim.is(-1) || dim.is(score_shape.len() as i64 - 1));
        if !is_last {
            return None;
        }
        let [batch, heads, rows, keys] = match score_shape.as_slice() {
            [b, h, m, n] => [b.clone(), h.clone(), m.clone(), n.clone()],
            [b, m, n] => [b.clone(), Expr::Int(1), m.clone(), n.clone()],
            _ => return None,
        };
        let mut scale = 1.0;
        let mut masks = Vec::new();
        let mut at = scores;
        // Walks from the scores back to the matmul that computes them.
        let first = loop {
            let from = through_views(graph, at);
            let producer = graph.producer(from)?;
            match producer.op.name() {
                aten::BMM => break producer,
                aten::ADD_TENSOR if is_one(producer.arg("alpha")) => {
                    let (a, b) = (producer.arg("self")?.as_value()?, producer.arg("other")?.as_value()?);
                    let whole =
                        |value: ValueId| graph.tensor(value).is_ok_and(|ty| ty.numel() == scores_of(graph, from));
                    let (rest, mask) = if leads_to_matmul(graph, a) && whole(a) { (a, b) } else { (b, a) };
                    if !leads_to_matmul(graph, rest) || !whole(rest) {
                        return None;
                    }
                    let seen = mask_shape(graph, mask, from, &[&batch, &heads, &rows, &keys])?;
                    masks.push((mask, seen));
                    // A later factor would scale this mask, too, which attention does not do.
                    if scale != 1.0 {
                        return None;
                    }
                    at = rest;
                }
                aten::MUL_SCALAR | aten::DIV_SCALAR => {
                    scale *= factor(producer)?;
                    at = producer.arg("self")?.as_value()?;
                }
                _ => return None,
            }
        };
        let (q, k) = operands(first, aten::BMM)?;
        let heads_of = |value: ValueId, rows: &Expr| -> Option<(ValueId, f64)> {
            let (value, factor) = four_dimensions(graph, value)?;
            let shape = &graph.tensor(value).ok()?.shape;
            (shape.len() == 4 && shape[0] == batch && shape[1] == heads && shape[2] == *rows).then_some((value, factor))
        };
        let (q, q_scale) = heads_of(q, &rows)?;
        // Keys come with their last two dimensions swapped.
        let (k, k_scale) = keys_of(graph, k)?;
        let k_shape = &graph.tensor(k).ok()?.shape;
        let depth = graph.tensor(q).ok()?.shape.get(3)?.clone();
        if k_shape.as_slice() != [batch.clone(), heads.clone(), keys.clone(), depth] {
            return None;
        }
        let (v, v_scale) = heads_of(values, &keys)?;
        if v_scale != 1.0 {
            return None;
        }
        let width = graph.tensor(v).ok()?.shape.get(3)?.clone();
        scale *= q_scale * k_scale;
        Some(Self { q, k, v, masks, scale, shape: [batch, heads, rows, width] })
    }

    /// Adds the attention. Returns the value that replaces the result of the second matmul.
    fn build(&self, builder: &mut Builder<'_>, result: ValueId) -> Result<ValueId, Error> {
        let mut mask: Option<ValueId> = None;
        for (value, shape) in &self.masks {
            let seen = builder.one(aten::VIEW_COPY, vec![(*value).into(), shape.clone().into()])?;
            mask = Some(match mask {
                Some(mask) => builder.one(aten::ADD_TENSOR, vec![mask.into(), seen.into()])?,
                None => seen,
            });
        }
        let args = vec![self.q.into(), self.k.into(), self.v.into(), mask.map_or(Arg::None, Arg::Value)];
        let named = [("scale", Arg::Float(self.scale))];
        let attention = builder.one_with(aten::SCALED_DOT_PRODUCT_ATTENTION, args, &named)?;
        debug_assert_eq!(builder.tensor(attention)?.shape, self.shape);
        let shape = builder.tensor(result)?.shape;
        builder.one(aten::VIEW_COPY, vec![attention.into(), shape.into()])
    }
}

/// The operands of a matmul.
fn operands(node: &Node, name: &str) -> Option<(ValueId, ValueId)> {
    if node.op.name() != name {
        return None;
    }
    Some((node.arg("self")?.as_value()?, node.arg("mat2")?.as_value()?))
}

fn node_of<'g>(graph: &'g Graph, value: ValueId, name: &str) -> Option<&'g Node> {
    graph.producer(value).filter(|node| node.op.name() == name)
}

/// Returns the softmax before the selection of zeros for rows whose scores are all -inf. Attention returns zeros for
/// them, too.
fn guarded_softmax(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let value_of = |node: &Node, name: &str| node.arg(name).and_then(Arg::as_value);
    let is = |arg: Option<&Arg>, number: f64| match arg {
        Some(Arg::Float(float)) => *float == number,
        Some(Arg::Int(int)) => int.as_int().is_some_and(|int| int as f64 == number),
        _ => false,
    };
    let choice = node_of(graph, value, aten::WHERE_SELF)?;
    let zeros = graph.producer(value_of(choice, "self")?)?;
    if !matches!(zeros.op.name(), aten::FULL_LIKE | aten::FULL) || !is(zeros.arg("fill_value"), 0.0) {
        return None;
    }
    let guarded = value_of(choice, "other")?;
    let none = node_of(graph, value_of(choice, "condition")?, aten::LOGICAL_NOT)?;
    let any = node_of(graph, value_of(none, "self")?, aten::ANY_DIM)?;
    let is_last = |arg: Option<&Arg>, rank: usize| is(arg, -1.0) || is(arg, rank as f64 - 1.0);
    let finite = node_of(graph, value_of(any, "self")?, aten::LOGICAL_NOT)?;
    let infinite = node_of(graph, value_of(finite, "self")?, aten::EQ_SCALAR)?;
    let scores = value_of(infinite, "self")?;
    let rank = graph.tensor(scores).ok()?.rank();
    let softmax = node_of(graph, through_views(graph, guarded), aten::_SOFTMAX)?;
    let fits = is(infinite.arg("other"), f64::NEG_INFINITY)
        && is_last(any.arg("dim"), rank)
        && matches!(any.arg("keepdim"), Some(Arg::Bool(true)))
        && value_of(softmax, "self")? == scores;
    fits.then_some(guarded)
}

fn is_one(arg: Option<&Arg>) -> bool {
    match arg {
        None | Some(Arg::None) => true,
        Some(Arg::Int(int)) => int.is(1),
        Some(Arg::Float(float)) => *float == 1.0,
        _ => false,
    }
}

/// Returns the value before reshapes and expansions that change nothing.
fn through_views(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some(before) = before_view(graph, value) {
        value = before;
    }
    value
}

/// The input of a reshape, or of an expansion to the same sizes.
fn before_view(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let node = graph.producer(value)?;
    let is_view = matches!(
        node.op.name(),
        aten::VIEW_COPY | aten::EXPAND_COPY | aten::CLONE | aten::UNSQUEEZE_COPY | aten::SQUEEZE_COPY_DIMS
    );
    let before = node.arg("self").filter(|_| is_view)?.as_value()?;
    (graph.tensor(before).ok()?.numel() == graph.tensor(value).ok()?.numel()).then_some(before)
}

/// Returns the factor of a node that multiplies or divides by a number.
fn factor(node: &Node) -> Option<f64> {
    let number = match node.arg("other")? {
        Arg::Float(float) => *float,
        Arg::Int(int) => int.as_int()? as f64,
        _ => return None,
    };
    match node.op.name() {
        aten::MUL_SCALAR => Some(number),
        aten::DIV_SCALAR => Some(1.0 / number),
        _ => None,
    }
}

/// True if views, factors and sums compute a value from a matmul.
fn leads_to_matmul(graph: &Graph, value: ValueId) -> bool {
    let mut at = value;
    for _ in 0..16 {
        let Some(node) = graph.producer(through_views(graph, at)) else { return false };
        let next = match node.op.name() {
            aten::BMM => return true,
            aten::MUL_SCALAR | aten::DIV_SCALAR => node.arg("self").and_then(Arg::as_value),
            aten::ADD_TENSOR => {
                let sides = ["self", "other"].map(|name| node.arg(name).and_then(Arg::as_value));
                sides.into_iter().flatten().find(|side| leads_to_matmul(graph, *side))
            }
            _ => None,
        };
        let Some(next) = next else { return false };
        at = next;
    }
    false
}

fn scores_of(graph: &Graph, value: ValueId) -> Expr {
    graph.tensor(value).map_or(Expr::Int(-1), rushlight_graph::TensorType::numel)
}

/// Returns a mask's sizes as `[batch, heads, rows, keys]`, given the sizes of the sum that it is added in. `None` if it
/// has no such form.
fn mask_shape(graph: &Graph, mask: ValueId, sum: ValueId, scores: &[&Expr; 4]) -> Option<Vec<Expr>> {
    let own = &graph.tensor(mask).ok()?.shape;
    let sum = &graph.tensor(sum).ok()?.shape;
    let mut padded = vec![Expr::Int(1); sum.len().checked_sub(own.len())?];
    padded.extend(own.iter().cloned());
    // Leading dimensions of one element in both may be dropped. Four or three dimensions must be left.
    while padded.len() > 4 && padded.first()?.is(1) && sum.get(sum.len() - padded.len())?.is(1) {
        padded.remove(0);
    }
    let sum = &sum[sum.len() - padded.len()..];
    match (padded.as_slice(), sum) {
        ([_, _, _, _], [a, b, c, d]) if [a, b, c, d] == *scores => {}
        ([b, m, n], [x, y, z]) if [x, y, z] == [scores[0], scores[2], scores[3]] && scores[1].is(1) => {
            padded = vec![b.clone(), Expr::Int(1), m.clone(), n.clone()];
        }
        _ => return None,
    }
    // Keys are never broadcast: masks have whole rows.
    (padded.last()? == scores[3]).then_some(padded)
}

/// Returns the value of rank 4 that a matmul's operand of rank 3 is made from, and its factor.
fn four_dimensions(graph: &Graph, value: ValueId) -> Option<(ValueId, f64)> {
    let mut at = value;
    let mut scale = 1.0;
    let rank = |value: ValueId| graph.tensor(value).map_or(0, rushlight_graph::TensorType::rank);
    loop {
        let node = graph.producer(at);
        let name = node.map_or("", |node| node.op.name());
        match name {
            aten::MUL_SCALAR | aten::DIV_SCALAR => {
                let node = node?;
                scale *= factor(node)?;
                at = node.arg("self")?.as_value()?;
            }
            // An expansion to the same sizes.
            aten::EXPAND_COPY if before_view(graph, at).is_some_and(|before| rank(before) == rank(at)) => {
                at = before_view(graph, at)?;
            }
            _ if rank(at) == 4 => return Some((at, scale)),
            _ => at = before_view(graph, at)?,
        }
        if matches!(graph.values[at].def, Def::Param(_) | Def::Constant(_) | Def::State(_)) {
            return (rank(at) == 4).then_some((at, scale));
        }
    }
}

/// Returns the keys of an operand whose last two dimensions are swapped.
fn keys_of(graph: &Graph, value: ValueId) -> Option<(ValueId, f64)> {
    let (exchanged, outer) = four_dimensions(graph, value)?;
    let node = node_of(graph, exchanged, aten::PERMUTE_COPY)?;
    let Arg::List(dims) = node.arg("dims")? else { return None };
    let dims: Option<Vec<i64>> =
        dims.iter().map(|dim| if let Arg::Int(dim) = dim { dim.as_int() } else { None }).collect();
    if dims? != [0, 1, 3, 2] {
        return None;
    }
    let mut at = node.arg("self")?.as_value()?;
    let mut scale = outer;
    while let Some(node) = graph.producer(at).filter(|node| factor(node).is_some()) {
        scale *= factor(node)?;
        at = node.arg("self")?.as_value()?;
    }
    Some((at, scale))
}
