//! Data movement: views, copies and fills, which compute no element.

use rushlight_format::ScalarType;
use rushlight_graph::operators::aten;
use rushlight_graph::ops::{from_start, wrap_dim};
use rushlight_graph::{Call, Expr, ValueId};

use super::Context;

/// Maximum number of indices of an `index_select`.
const MAX_INDICES: i64 = 1 << 16;

/// Maximum number of runs of consecutive indices. Each becomes a copy.
const MAX_RUNS: usize = 256;

/// A data movement operator with its arguments. Dimensions are not negative.
#[derive(Clone, Debug)]
pub(crate) enum DataMovement {
    /// `full`, `zeros`, `ones`: all elements of the result are this number.
    Fill(f32),
    /// A reshape of the row-major elements.
    View {
        input: ValueId,
    },
    /// `squeeze` and `unsqueeze`: dimensions of size 1 are added or dropped.
    Squeeze {
        input: ValueId,
    },
    /// `clone` and `alias`: the same elements in the same shape.
    Alias {
        input: ValueId,
    },
    Permute {
        input: ValueId,
        dims: Vec<usize>,
    },
    Expand {
        input: ValueId,
    },
    Select {
        input: ValueId,
        dim: usize,
        index: Expr,
    },
    Slice {
        input: ValueId,
        dim: usize,
        start: Expr,
        step: i64,
    },
    Split {
        input: ValueId,
        dim: usize,
    },
    /// `as_strided` with constant strides and offset that stay inside of the input.
    Strided {
        input: ValueId,
        strides: Vec<i64>,
        offset: i64,
    },
    /// `constant_pad_nd`: padding before and after each dimension, the innermost first.
    Pad {
        input: ValueId,
        pad: Vec<i64>,
        value: f32,
    },
    /// `rolls` has each dimension with its shift, `0 <= shift < size`.
    Roll {
        input: ValueId,
        rolls: Vec<(usize, i64)>,
    },
    /// `source` replaces `size` indices of `dim`, from `start` in steps of `step`.
    SliceScatter {
        input: ValueId,
        source: ValueId,
        dim: usize,
        start: Expr,
        size: Expr,
        step: i64,
    },
    /// Constant indices, as runs of consecutive ones: the first index and the length.
    IndexSelect {
        input: ValueId,
        dim: usize,
        runs: Vec<(i64, i64)>,
    },
    Cat {
        inputs: Vec<ValueId>,
        dim: usize,
    },
    Stack {
        inputs: Vec<ValueId>,
        dim: usize,
    },
}

impl DataMovement {
    /// Returns the operand if the result is a view of it, whatever its element type.
    pub const fn moved_value(&self) -> Option<ValueId> {
        match self {
            Self::View { input }
            | Self::Squeeze { input }
            | Self::Alias { input }
            | Self::Permute { input, .. }
            | Self::Select { input, .. }
            | Self::Slice { input, .. } => Some(*input),
            Self::Fill(_)
            | Self::Expand { .. }
            | Self::Split { .. }
            | Self::Strided { .. }
            | Self::Pad { .. }
            | Self::Roll { .. }
            | Self::SliceScatter { .. }
            | Self::IndexSelect { .. }
            | Self::Cat { .. }
            | Self::Stack { .. } => None,
        }
    }
}

/// Returns the data movement that a node computes; `None` if it is another operator, or its arguments are not supported.
pub(super) fn select(cx: &Context<'_>, call: &Call<'_>) -> Option<DataMovement> {
    if let Some(number) = filled_with(call) {
        return Some(DataMovement::Fill(number));
    }
    let input = || call.optional("self");
    let rank = || Some(call.shape(input()?).ok()?.len());
    // PyTorch accepts dimension 0 of a tensor of rank 0; steps do not have it.
    let dim = |rank: usize| wrap_dim(call.int("dim")?, rank).filter(|dim| *dim < rank);
    let step = || call.int("step").filter(|step| *step > 0);
    let result_rank = || Some(call.shape(call.result().ok()?).ok()?.len());
    Some(match call.name() {
        // Element counts that are not provably equal are left to the reference operator, which compares them at run time.
        aten::VIEW_COPY => DataMovement::View { input: input().filter(|_| keeps_elements(call) == Some(true))? },
        aten::UNSQUEEZE_COPY | aten::SQUEEZE_COPY_DIMS | aten::SQUEEZE_COPY_DIM | aten::SQUEEZE_COPY => {
            DataMovement::Squeeze { input: input()? }
        }
        aten::CLONE | aten::ALIAS_COPY => DataMovement::Alias { input: input()? },
        aten::PERMUTE_COPY => {
            let (dims, rank) = (call.ints("dims")?, rank()?);
            DataMovement::Permute {
                input: input()?,
                dims: dims.into_iter().map(|dim| wrap_dim(dim, rank)).collect::<Option<_>>()?,
            }
        }
        aten::EXPAND_COPY => DataMovement::Expand { input: input()? },
        aten::SELECT_COPY_INT => {
            let (input, dim, index) = (input()?, dim(rank()?)?, call.expr("index")?);
            let is_from_end = index.as_int().is_some_and(|index| index < 0);
            let index = if is_from_end { call.shape(input).ok()?.get(dim)?.add(index) } else { index };
            DataMovement::Select { input, dim, index }
        }
        aten::SLICE_COPY_TENSOR => {
            DataMovement::Slice { input: input()?, dim: dim(rank()?)?, start: slice_start(call)?, step: step()? }
        }
        aten::SPLIT_WITH_SIZES_COPY | aten::SPLIT_COPY_TENSOR => {
            DataMovement::Split { input: input()?, dim: dim(rank()?)? }
        }
        aten::AS_STRIDED_COPY => {
            let (strides, offset) = strided(call)?;
            DataMovement::Strided { input: input()?, strides, offset }
        }
        aten::CONSTANT_PAD_ND => {
            let pad = call.ints("pad").filter(|pad| pad.iter().all(|size| *size >= 0))?;
            let is_within = pad.len().div_ceil(2) <= rank()?;
            DataMovement::Pad { input: input().filter(|_| is_within)?, pad, value: filling(call, "value")? }
        }
        aten::ROLL => DataMovement::Roll { input: input()?, rolls: rolls(call)? },
        aten::SLICE_SCATTER => {
            let (input, source, start) = (input()?, call.optional("src")?, slice_start(call)?);
            let shape = call.shape(source).ok()?;
            let dim = dim(shape.len())?;
            DataMovement::SliceScatter { input, source, dim, start, size: shape.get(dim)?.clone(), step: step()? }
        }
        aten::INDEX_SELECT => DataMovement::IndexSelect { input: input()?, dim: dim(rank()?)?, runs: runs(cx, call)? },
        aten::CAT => DataMovement::Cat { inputs: call.values("tensors")?, dim: dim(result_rank()?)? },
        aten::STACK => DataMovement::Stack { inputs: call.values("tensors")?, dim: dim(result_rank()?)? },
        _ => return None,
    })
}

/// True if a view provably has as many elements as its input, whatever the values of symbols.
fn keeps_elements(call: &Call<'_>) -> Option<bool> {
    let from = call.shape(call.value("self").ok()?).ok()?;
    let to = call.shape(call.result().ok()?).ok()?;
    Some(Expr::product(from) == Expr::product(to))
}

/// Returns the fill value of `full`, `zeros`, `ones` and `scalar_tensor`.
fn filled_with(call: &Call<'_>) -> Option<f32> {
    match call.name() {
        aten::FULL | aten::FULL_LIKE => filling(call, "fill_value"),
        aten::ZEROS | aten::ZEROS_LIKE => Some(0.0),
        aten::ONES | aten::ONES_LIKE => Some(1.0),
        aten::SCALAR_TENSOR => filling(call, "s"),
        _ => None,
    }
}

/// Returns a number that fills elements, as the result's elements have it: 1 for each truth value but 0.
fn filling(call: &Call<'_>, name: &str) -> Option<f32> {
    let number = call.number(name)?;
    let dtype = call.graph.tensor(call.result().ok()?).ok()?.dtype;
    Some(if dtype == ScalarType::Bool { f32::from(number != 0.0) } else { number as f32 })
}

/// Returns the constant indices of an `index_select` as runs of consecutive ones: first index and length.
fn runs(cx: &Context<'_>, call: &Call<'_>) -> Option<Vec<(i64, i64)>> {
    let constant = &cx.model.constants[call.graph.constant_of(call.optional("index")?)?];
    let count = constant.ty.shape.first().map_or(Some(1), Expr::as_int)?;
    if count > MAX_INDICES {
        return None;
    }
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for index in constant.read().ok()?.chunks_exact(constant.ty.dtype.size()) {
        let index = match *index {
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        };
        match runs.last_mut() {
            Some((start, len)) if *start + *len == index => *len += 1,
            _ => runs.push((index, 1)),
        }
        if runs.len() > MAX_RUNS {
            return None;
        }
    }
    Some(runs)
}

/// Returns the strides and the offset of `as_strided_copy`, if they are constants and stay inside of the input.
fn strided(call: &Call<'_>) -> Option<(Vec<i64>, i64)> {
    let (sizes, strides) = (call.ints("size")?, call.ints("stride")?);
    let offset = if call.arg("storage_offset").is_some() { call.int("storage_offset")? } else { 0 };
    let count = Expr::product(call.shape(call.value("self").ok()?).ok()?).as_int()?;
    if sizes.len() != strides.len() || offset < 0 || strides.iter().chain(&sizes).any(|number| *number < 0) {
        return None;
    }
    let reach = sizes
        .iter()
        .zip(&strides)
        .try_fold(offset, |reach, (size, stride)| reach.checked_add((size - 1).max(0).checked_mul(*stride)?))?;
    (reach < count).then_some((strides, offset))
}

/// Returns the first index of a slice, from the start of the dimension; `None` if it is not an expression of sizes.
fn slice_start(call: &Call<'_>) -> Option<Expr> {
    let rank = call.shape(call.value("self").ok()?).ok()?.len();
    let dim = wrap_dim(call.int("dim")?, rank)?;
    let size = call.shape(call.value("self").ok()?).ok()?.get(dim)?.clone();
    let start = match call.arg("start") {
        None => Expr::Int(0),
        Some(_) => call.expr("start")?,
    };
    Some(match (start.as_int(), size.as_int()) {
        (Some(start), Some(size)) if start < 0 => Expr::Int((start + size).max(0)),
        (Some(start), Some(size)) => Expr::Int(start.min(size)),
        _ => from_start(start, &size, &call.graph.symbols),
    })
}

/// Returns the dimensions of a `roll` with their shifts, `0 <= shift < size`; `None` if a size is a symbol.
fn rolls(call: &Call<'_>) -> Option<Vec<(usize, i64)>> {
    let shape = call.shape(call.value("self").ok()?).ok()?;
    let (shifts, dims) = (call.ints("shifts")?, call.ints("dims")?);
    if shifts.len() != dims.len() || dims.is_empty() {
        return None;
    }
    let mut rolls: Vec<(usize, i64)> = Vec::new();
    for (shift, index) in shifts.iter().zip(&dims) {
        let at = wrap_dim(*index, shape.len())?;
        let size = shape.get(at)?.as_int().filter(|size| *size > 0)?;
        let shift = shift.rem_euclid(size);
        // A dimension may be rolled several times.
        match rolls.iter_mut().find(|(dim, _)| *dim == at) {
            Some((_, sum)) => *sum = (*sum + shift).rem_euclid(size),
            None => rolls.push((at, shift)),
        }
    }
    Some(rolls)
}
