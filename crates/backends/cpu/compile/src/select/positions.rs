//! Positions: integers that say where in a cache a call writes, and what a query sees of it.
//!
//! They are i64 in a program, and `f32` between steps, where whole numbers to 2^24 are exact. So each has a bound: an input
//! at most [`MAX_POSITION`], which is checked when it is converted, and what is computed from it as much more as its
//! operator can make of it. Others are left to the reference operators.

use rushlight_cpu_payload::{Binary, MAX_POSITION, Unary};
use rushlight_format::ScalarType;

use rushlight_graph::operators::aten;
use rushlight_graph::ops::wrap_dim;
use rushlight_graph::{Arg, Constant, Def, Expr, Graph, Target, ValueId};
use rustc_hash::FxHashSet;

use crate::call::Call;
use crate::constants;
use crate::storage::is_stored_as_float;

use super::elementwise::{Elementwise, Operand};
use super::{Context, DataMovement, Embedding, Selection, is_integer};

/// The largest whole number up to which all are exact in `f32`.
const EXACT: i64 = 1 << 24;

/// Maximum elements of constants and ranges that are positions: the room of a cache.
const MAX_LEN: usize = 1 << 20;

/// `start`, `start + 1`, ... as many as the result has elements; one number where it has no dimension.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub start: Expr,
}

/// `source` replaces what is at some indices of a dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scatter {
    pub input: ValueId,
    pub source: ValueId,
    /// Positions, of one dimension.
    pub indices: ValueId,
    pub dim: usize,
    /// True if the indices are positions themselves: what is after the last one was not written yet.
    pub is_in_order: bool,
}

/// Elements of the rows of the last dimension, at the positions of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatherElements {
    pub input: ValueId,
    /// Positions: rows of as many as there are of the input.
    pub index: ValueId,
}

/// The inputs of a method with which it says where it writes its states.
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

/// The largest absolute value of whole numbers that are stored as floats; `None` if a value is none.
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

/// The largest value of a size or a number that is known before a call; `None` if it has no bound, or may be negative.
fn most(cx: &Context<'_>, expr: &Expr) -> Option<i64> {
    match expr.range(&cx.graph.symbols) {
        (Some(0..), Some(most)) if most <= MAX_LEN as i64 => Some(most),
        _ => None,
    }
}

/// The selection of a node that gives whole numbers from positions or sizes; `None` if it is none, or they may not be exact.
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

/// The bound of the whole numbers that a node gives; `None` if it gives others, or some that may not be exact.
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

/// The bound of what an operator makes of whole numbers, if that is whole.
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

/// The absolute value of a whole number.
fn whole(number: f32) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < EXACT as f32).then_some(number.abs() as i64)
}

fn range(call: &Call<'_>) -> Option<Range> {
    let start = if call.arg("start").is_some() { call.expr("start")? } else { Expr::Int(0) };
    let step = if call.arg("step").is_some() { call.int("step")? } else { 1 };
    (step == 1).then_some(Range { start })
}

/// The dimension and the indices of an `index_put` or `index` that has one index.
fn index_of(call: &Call<'_>) -> Option<(usize, ValueId)> {
    let Arg::List(indices) = call.arg("indices")? else { return None };
    let mut given = indices.iter().enumerate().filter(|(_, index)| !index.is_none());
    let (dim, index) = given.next()?;
    if given.next().is_some() {
        return None;
    }
    Some((dim, index.as_value()?))
}

/// The scatter that an `index_put` is; `None` if it has several indices, broadcasts, or accumulates.
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

/// The rows of a constant that an `index` of its first dimension selects, as an embedding does.
pub(super) fn rows(cx: &Context<'_>, call: &Call<'_>) -> Option<Embedding> {
    let table = call.graph.constant_of(call.optional("self")?)?;
    let (0, indices) = index_of(call)? else { return None };
    bound_of(cx, indices)?;
    let ty = &cx.model.constants[table].ty;
    (ty.rank() == 2 && is_stored_as_float(ty.dtype)).then_some(Embedding { table, indices, quantized: None })
}

/// The elements that a `gather` along the last dimension picks of rows of `f32`; `None` if it has other rows than the index.
pub(super) fn elements(cx: &Context<'_>, call: &Call<'_>) -> Option<GatherElements> {
    let (input, index) = (call.optional("self")?, call.optional("index")?);
    bound_of(cx, index)?;
    let (ty, picked) = (call.graph.tensor(input).ok()?, call.shape(index).ok()?);
    let ((_, rows), (_, index_rows)) = (ty.shape.split_last()?, picked.split_last()?);
    let is_last = wrap_dim(call.int("dim")?, ty.rank()) == Some(rows.len());
    (is_last && rows == index_rows && ty.dtype == ScalarType::Float).then_some(GatherElements { input, index })
}

/// True if indices come from a remainder: positions of a ring.
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
