//! Positions: integers that say where in a cache a call writes, and which keys a query sees.
//!
//! They are i64 in a program, and `f32` between steps. f32 is exact for integers up to 2^24, so each position has a
//! bound. The bound of an input is [`MAX_POSITION`], which is checked when the input is converted. The bound of a
//! computed position follows from its operator and its operands. Integers without such a bound are left to the
//! reference operators.

use rushlight_cpu_payload::{Binary, MAX_POSITION, Unary};
use rushlight_format::ScalarType;

use rushlight_graph::operators::aten;
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Arg, Call, Constant, Def, Expr, Graph, Target, ValueId};
use rustc_hash::FxHashSet;

use crate::storage::is_stored_as_float;
use crate::weights::constants;

use super::elementwise::{Elementwise, Operand};
use super::{Context, DataMovement, Embedding, Selection, is_integer};

/// The largest integer up to which all integers are exact in `f32`.
const EXACT: i64 = 1 << 24;

/// Maximum number of elements of constants and ranges that are positions: the capacity of a cache.
const MAX_LEN: usize = 1 << 20;

/// `start`, `start + 1`, ..., one for each element of the result. A result of rank 0 is `start`.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub start: Expr,
}

/// Replaces the elements of `input` at some indices of a dimension by `source`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scatter {
    pub input: ValueId,
    pub source: ValueId,
    /// Positions, of one dimension.
    pub indices: ValueId,
    pub dim: usize,
    /// True if the indices are the positions themselves. Elements after the last position were not written yet.
    pub is_in_order: bool,
}

/// Picks elements of the rows of the last dimension at the positions in an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherElements {
    pub input: ValueId,
    /// Positions `[rows, k]`, with the row count of `input`.
    pub index: ValueId,
}

/// Finds the inputs of a method that say where it writes its states.
pub(super) fn inputs(graph: &Graph) -> FxHashSet<ValueId> {
    let mut open: Vec<ValueId> = Vec::new();
    for update in &graph.updates {
        let mut value = update.value;
        while let (Def::Result(node, 0), Target::State(_)) = (graph.values[value].def, update.target)
            && let call = Call::new(graph, node)
            && call.name() == aten::INDEX_PUT
        {
            open.extend(index_of(&call).map(|(_, indices)| indices));
            let Some(before) = call.optional("self") else { break };
            value = before;
        }
    }
    for node in &graph.blocks[graph.body].nodes {
        let call = Call::new(graph, *node);
        if call.name() == aten::_LOCAL_SCALAR_DENSE && !graph.updates.is_empty() {
            open.extend(call.optional("self"));
        }
    }
    let mut found: FxHashSet<ValueId> = FxHashSet::default();
    while let Some(value) = open.pop() {
        if graph.tensor(value).is_ok_and(|ty| is_integer(ty.dtype))
            && found.insert(value)
            && let Def::Result(node, _) = graph.values[value].def
        {
            graph.for_each_use_by(node, &mut |operand| open.push(operand));
        }
    }
    found.retain(|value| is_long(graph, *value) && matches!(graph.values[*value].def, Def::Param(_)));
    found
}

fn is_long(graph: &Graph, value: ValueId) -> bool {
    graph.tensor(value).is_ok_and(|ty| ty.dtype == ScalarType::Long)
}

/// Returns the largest absolute value of integers that are stored as floats; `None` if a value is not such.
pub(super) fn bound_of(cx: &Context<'_>, value: ValueId) -> Option<i64> {
    if let Some(bound) = cx.positions.get(&value) {
        return Some(*bound);
    }
    match cx.graph.values[value].def {
        Def::Constant(id) => constant_bound(&cx.model.constants[id]),
        Def::State(_) if is_long(cx.graph, value) => Some(MAX_POSITION),
        Def::Param(_) if cx.position_inputs.contains(&value) => Some(MAX_POSITION),
        // Views of an input.
        Def::Result(node, 0) if cx.integers.contains(&value) => {
            bound_of(cx, Call::new(cx.graph, node).optional("self")?)
        }
        _ => None,
    }
}

fn constant_bound(constant: &Constant) -> Option<i64> {
    if !is_integer(constant.ty.dtype) || constant.len().ok()? > MAX_LEN {
        return None;
    }
    let numbers = constants::floats(constant).ok()?;
    let bound = numbers.iter().fold(0.0f32, |bound, number| bound.max(number.abs()));
    (bound < EXACT as f32).then_some(bound as i64)
}

/// Returns the largest value of a size or a number that is known before a call; `None` if it is unbounded or may be
/// negative.
fn most(cx: &Context<'_>, expr: &Expr) -> Option<i64> {
    match expr.range(&cx.graph.symbols) {
        (Some(0..), Some(most)) if most <= MAX_LEN as i64 => Some(most),
        _ => None,
    }
}

/// Returns the selection of a node that computes integers from positions or sizes. `None` for other nodes, and if the
/// integers may not be exact.
pub(super) fn select(cx: &Context<'_>, call: &Call<'_>) -> Option<Selection> {
    let selection = match call.name() {
        aten::ARANGE | aten::ARANGE_START_STEP => range(call).map(Selection::Range),
        aten::SCALAR_TENSOR => call.expr("s").map(|start| Selection::Range(Range { start })),
        aten::INDEX_PUT => scatter(cx, call).map(Selection::Scatter),
        aten::REMAINDER_SCALAR => {
            let (x, divisor) = (call.optional("self")?, call.int("other").filter(|divisor| *divisor > 0)?);
            Some(Selection::Elementwise(Elementwise::Remainder { x, divisor: divisor as f32 }))
        }
        _ => super::elementwise::select(call)
            .map(Selection::Elementwise)
            .or_else(|| super::data_movement::select(cx, call).map(Selection::DataMovement)),
    }?;
    computed_bound(cx, call, &selection).map(|_| selection)
}

/// Returns the bound of the integers that a node computes. `None` if the results are not integers, or may not be exact.
pub(super) fn computed_bound(cx: &Context<'_>, call: &Call<'_>, selection: &Selection) -> Option<i64> {
    let result = call.result().ok()?;
    if !is_integer(cx.graph.tensor(result).ok()?.dtype) {
        return None;
    }
    let bound = match selection {
        Selection::Range(Range { start }) => {
            let len = Expr::product(call.shape(result).ok()?);
            most(cx, start)?.checked_add(most(cx, &len)?).filter(|bound| *bound <= MAX_LEN as i64)?
        }
        Selection::Scatter(Scatter { input, source, .. }) => bound_of(cx, *input)?.max(bound_of(cx, *source)?),
        Selection::Elementwise(elementwise) => elementwise_bound(cx, elementwise)?,
        Selection::DataMovement(DataMovement::Fill(number)) => whole(*number)?,
        Selection::DataMovement(_) => call
            .operands()
            .into_iter()
            .map(|value| bound_of(cx, value))
            .try_fold(0, |most, own| Some(most.max(own?)))?,
        _ => return None,
    };
    (bound < EXACT).then_some(bound)
}

/// Returns the bound of an operator's results on integers. `None` if the results may not be integers.
fn elementwise_bound(cx: &Context<'_>, elementwise: &Elementwise) -> Option<i64> {
    let of = |operand: &Operand| match operand {
        Operand::Value(value) => bound_of(cx, *value),
        Operand::Constant(number) => whole(*number),
    };
    match elementwise {
        Elementwise::Binary { function, a, b, alpha } => {
            let (a, b) = (bound_of(cx, *a)?, of(b)?.checked_mul(whole(*alpha)?)?);
            match function {
                Binary::Add | Binary::Sub => a.checked_add(b),
                Binary::Mul => a.checked_mul(b),
                Binary::Max | Binary::Min => Some(a.max(b)),
                _ => None,
            }
        }
        Elementwise::Unary { function: Unary::Neg | Unary::Abs, x } => bound_of(cx, *x),
        Elementwise::Select { choices, .. } => Some(of(&choices[0])?.max(of(&choices[1])?)),
        Elementwise::Cast { from: ScalarType::Bool, .. } => Some(1),
        Elementwise::Remainder { x, divisor } => bound_of(cx, *x).and(whole(*divisor)),
        Elementwise::Cast { x, .. } => bound_of(cx, *x),
        _ => None,
    }
}

/// Returns the absolute value of an integer in f32; `None` for fractions and for numbers that may not be exact.
fn whole(number: f32) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < EXACT as f32).then_some(number.abs() as i64)
}

fn range(call: &Call<'_>) -> Option<Range> {
    let start = if call.arg("start").is_some() { call.expr("start")? } else { Expr::Int(0) };
    let step = if call.arg("step").is_some() { call.int("step")? } else { 1 };
    (step == 1).then_some(Range { start })
}

/// Returns the dimension and the indices of an `index_put` or `index` that has one index.
fn index_of(call: &Call<'_>) -> Option<(usize, ValueId)> {
    let Arg::List(indices) = call.arg("indices")? else { return None };
    let mut given = indices.iter().enumerate().filter(|(_, index)| !index.is_none());
    let (dim, index) = given.next()?;
    if given.next().is_some() {
        return None;
    }
    Some((dim, index.as_value()?))
}

/// Returns the scatter that an `index_put` computes. `None` if it has several indices, broadcasts, or accumulates.
pub(super) fn scatter(cx: &Context<'_>, call: &Call<'_>) -> Option<Scatter> {
    let (input, source) = (call.optional("self")?, call.optional("values")?);
    let (dim, indices) = index_of(call)?;
    bound_of(cx, indices)?;
    let ([count], shape, written) = (call.shape(indices).ok()?, call.shape(input).ok()?, call.shape(source).ok()?)
    else {
        return None;
    };
    let mut expected = shape.to_vec();
    *expected.get_mut(dim)? = count.clone();
    let is_alike = call.graph.tensor(input).ok()?.dtype == call.graph.tensor(source).ok()?.dtype;
    if written != expected || !is_alike || call.flag("accumulate") {
        return None;
    }
    Some(Scatter { input, source, indices, dim, is_in_order: !wraps(call.graph, indices) })
}

/// Returns the embedding that an `index` of a constant's first dimension computes.
pub(super) fn rows(cx: &Context<'_>, call: &Call<'_>) -> Option<Embedding> {
    let table = call.graph.constant_of(call.optional("self")?)?;
    let (0, indices) = index_of(call)? else { return None };
    bound_of(cx, indices)?;
    let ty = &cx.model.constants[table].ty;
    (ty.rank() == 2 && is_stored_as_float(ty.dtype)).then_some(Embedding { table, indices, quantized: None })
}

/// Returns the elements that a `gather` along the last dimension picks from rows of `f32`. `None` if the input and the
/// index have different row counts.
pub(super) fn elements(cx: &Context<'_>, call: &Call<'_>) -> Option<GatherElements> {
    let (input, index) = (call.optional("self")?, call.optional("index")?);
    bound_of(cx, index)?;
    let (ty, picked) = (call.graph.tensor(input).ok()?, call.shape(index).ok()?);
    let ((_, rows), (_, index_rows)) = (ty.shape.split_last()?, picked.split_last()?);
    let is_last = wrap_dim(call.int("dim")?, ty.rank()) == Some(rows.len());
    (is_last && rows == index_rows && ty.dtype == ScalarType::Float).then_some(GatherElements { input, index })
}

/// True if indices come from a remainder: positions of a ring buffer.
fn wraps(graph: &Graph, indices: ValueId) -> bool {
    let mut open = vec![indices];
    let mut seen: FxHashSet<ValueId> = FxHashSet::default();
    while let Some(value) = open.pop() {
        if let (true, Def::Result(node, _)) = (seen.insert(value), graph.values[value].def) {
            if matches!(graph.nodes[node].op.name(), aten::REMAINDER_SCALAR | aten::REMAINDER_TENSOR) {
                return true;
            }
            graph.for_each_use_by(node, &mut |operand| open.push(operand));
        }
    }
    false
}
