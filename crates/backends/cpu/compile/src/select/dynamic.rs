//! Selects dynamic quantization. It has three operators: one chooses scales at run time, one quantizes and one
//! dequantizes. Each row has its own scale (per token), or the tensor has one. XNNPACK's dynamic quantization has one
//! operator for the first two.

use rushlight_cpu_payload::ZeroPointRule;
use rushlight_engine::{Half, NibbleRows};
use rushlight_format::ScalarType;

use rushlight_graph::operators::{aten, quantized_decomposed, rushlight, torchao};
use rushlight_graph::{Arg, Call, Def, Expr, Graph, Node, NodeId, ValueId};

use super::normalization::known_or;
use super::{Context, Selection};

/// The parameters with which a node chooses scales and zero points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parameters {
    /// The tensor that is quantized.
    pub x: ValueId,
    pub choice: ZeroPointRule,
    /// True if the whole tensor has one scale, rather than one for each row.
    pub is_shared: bool,
    /// The smallest and the largest byte in use.
    pub range: [u8; 2],
}

/// A node of a dynamic quantization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Dynamic {
    ChooseScales(Parameters),
    /// Chooses scales and quantizes.
    QuantizeRows(Parameters),
    /// `scales` is the result of the node that chose them.
    Quantize {
        scales: ValueId,
        parameters: Parameters,
    },
    Dequantize {
        input: ValueId,
        parameters: Parameters,
    },
    /// Quantized rows in another shape that keeps the rows.
    Reshape {
        input: ValueId,
    },
    /// Chosen scales, as f32. `scales` is the result of the node that chose them.
    Scales {
        scales: ValueId,
    },
    /// Chosen zero points, as int8. `scales` is the other result of the node that chose them.
    ZeroPoints {
        scales: ValueId,
    },
}

/// Dequantizes rows of integers with stored scales of f32 and zero points of bytes, as in a quantized cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowDequantize {
    pub input: ValueId,
    pub scales: ValueId,
    pub zero_points: ValueId,
    /// True if a byte holds two 4-bit integers, and a group of them has one scale.
    pub are_nibbles: bool,
}

/// Quantizes rows to 4-bit integers in groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NibbleQuantize {
    pub input: ValueId,
    /// Number of elements in a group.
    pub group: i64,
}

/// The selection of a node that makes or reads 4-bit rows; `None` for other nodes, and for rows that the engine does
/// not read.
pub(super) fn nibbles(cx: &Context<'_>, call: &Call<'_>) -> Option<Selection> {
    let tensor = |value: ValueId| call.graph.tensor(value).ok();
    let has_groups = |width: i64, group: i64| {
        usize::try_from(width).is_ok_and(|width| usize::try_from(group) == Ok(NibbleRows::group(width)))
    };
    match call.name() {
        rushlight::QUANTIZE_INT4_ROWS => {
            let (input, group) = (call.optional("rows")?, call.int("group")?);
            let ty = tensor(input)?;
            let is_legal = ty.dtype == ScalarType::Float && has_groups(ty.shape.last()?.as_int()?, group);
            is_legal.then_some(Selection::NibbleQuantize(NibbleQuantize { input, group }))
        }
        rushlight::DEQUANTIZE_INT4_ROWS => {
            let (input, scales) = (call.optional("packed")?, call.optional("scales")?);
            let zero_points = call.optional("zero_points")?;
            let last = |value: ValueId| tensor(value)?.shape.last()?.as_int();
            let (width, groups) = (2 * last(input)?, last(scales)?);
            let are_unsigned =
                [input, zero_points].iter().all(|value| tensor(*value).is_some_and(|ty| ty.dtype == ScalarType::Byte));
            let is_legal = are_unsigned && groups > 0 && has_groups(width, width / groups);
            let rows = RowDequantize { input, scales, zero_points, are_nibbles: true };
            (is_legal && cx.is_byte(input) && cx.is_byte(zero_points)).then_some(Selection::RowDequantize(rows))
        }
        _ => None,
    }
}

/// The selection of a node that has a role; `None` if its quantization has another form or other users.
pub(super) fn select(graph: &Graph, node: NodeId, role: Role) -> Option<Dynamic> {
    let chooses = matches!(role, Role::Choose | Role::QuantizeRows);
    let choose = if chooses { node } else { choice_of(graph, node)? };
    let parameters = chosen(graph, choose).filter(|_| is_alone(graph, choose))?;
    Some(match role {
        Role::Choose => Dynamic::ChooseScales(parameters),
        Role::QuantizeRows => Dynamic::QuantizeRows(parameters),
        Role::Quantize => Dynamic::Quantize { scales: *graph.nodes[choose].results.first()?, parameters },
        Role::Dequantize => Dynamic::Dequantize { input: Call::new(graph, node).optional("input")?, parameters },
    })
}

/// The selection of a node that converts scales or zero points to the types that a quantized cache stores.
pub(super) fn parameter(graph: &Graph, node: NodeId) -> Option<Dynamic> {
    let (choose, dynamic) = parameter_of(graph, node)?;
    is_alone(graph, choose).then_some(dynamic)
}

/// The node that chose the scales or zero points that a node converts, and the converting node's selection.
fn parameter_of(graph: &Graph, node: NodeId) -> Option<(NodeId, Dynamic)> {
    let call = Call::new(graph, node);
    let source = call.optional("self").filter(|_| call.name() == aten::_TO_COPY)?;
    let Def::Result(choose, index) = graph.values[source].def else { return None };
    if role(graph.nodes[choose].op.name()) != Some(Role::Choose) {
        return None;
    }
    let parameters = chosen(graph, choose).filter(|parameters| !parameters.is_shared)?;
    let scales = *graph.nodes[choose].results.first()?;
    let is_signed = [dtype(&graph.nodes[choose], "dtype"), dtype(&graph.nodes[choose], "target_dtype")]
        .contains(&Some(ScalarType::Char));
    let has_rows = graph.tensor(source).ok()?.rank() == graph.tensor(parameters.x).ok()?.rank();
    match (index, graph.tensor(call.result().ok()?).ok()?.dtype) {
        (0, ScalarType::Float) if has_rows => Some((choose, Dynamic::Scales { scales })),
        (1, ScalarType::Char) if has_rows && is_signed => Some((choose, Dynamic::ZeroPoints { scales })),
        _ => None,
    }
}

/// The selection of a node that dequantizes rows with stored scales and zero points.
pub(super) fn rows(cx: &Context<'_>, call: &Call<'_>) -> Option<RowDequantize> {
    if call.name() != quantized_decomposed::DEQUANTIZE_PER_TOKEN {
        return None;
    }
    let (input, scales) = (call.optional("input")?, call.optional("scales")?);
    let zero_points = call.optional("zero_points")?;
    let tensor = |value: ValueId| call.graph.tensor(value).ok();
    let (_, rows) = tensor(input)?.shape.split_last()?;
    let is_of_rows = |value: ValueId| {
        let shape = tensor(value).and_then(|ty| ty.shape.split_last());
        shape.is_some_and(|(last, outer)| last.is(1) && outer == rows)
    };
    let are_floats = [scales, call.result().ok()?]
        .into_iter()
        .all(|value| tensor(value).is_some_and(|ty| ty.dtype == ScalarType::Float));
    let is_alike = tensor(input)?.dtype == tensor(zero_points)?.dtype;
    let is_stored = are_floats && is_alike && cx.is_byte(input) && cx.is_byte(zero_points);
    let rows = RowDequantize { input, scales, zero_points, are_nibbles: false };
    (is_stored && is_of_rows(scales) && is_of_rows(zero_points)).then_some(rows)
}

/// The role of a node in a dynamic quantization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Choose,
    /// Chooses scales and quantizes.
    QuantizeRows,
    Quantize,
    Dequantize,
}

/// The role that an operator can have.
pub(super) fn role(name: &str) -> Option<Role> {
    Some(match name {
        quantized_decomposed::CHOOSE_QPARAMS_TENSOR
        | quantized_decomposed::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC
        | torchao::CHOOSE_QPARAMS_AFFINE => Role::Choose,
        rushlight::QUANTIZE_ROWS => Role::QuantizeRows,
        quantized_decomposed::QUANTIZE_PER_TENSOR_TENSOR
        | quantized_decomposed::QUANTIZE_PER_TOKEN
        | torchao::QUANTIZE_AFFINE => Role::Quantize,
        quantized_decomposed::DEQUANTIZE_PER_TENSOR_TENSOR
        | quantized_decomposed::DEQUANTIZE_PER_TOKEN
        | torchao::DEQUANTIZE_AFFINE => Role::Dequantize,
        _ => return None,
    })
}

/// The parameters with which a node chooses scales, if they are those of `u8`.
fn chosen(graph: &Graph, node: NodeId) -> Option<Parameters> {
    let call = Call::new(graph, node);
    let x = call.optional("input").or_else(|| call.optional("rows"))?;
    let ty = graph.tensor(x).ok()?;
    if ty.dtype != ScalarType::Float || ty.shape.is_empty() {
        return None;
    }
    if call.name() == rushlight::QUANTIZE_ROWS {
        let half = match dtype(call.node, "factor")? {
            ScalarType::Float => None,
            ScalarType::Half => Some(Half::F16),
            ScalarType::BFloat16 => Some(Half::Bf16),
            _ => return None,
        };
        return Some(Parameters { x, choice: ZeroPointRule::Inverse { half }, is_shared: false, range: [0, 255] });
    }
    let (choice, is_shared, [low, high]) = match call.name() {
        quantized_decomposed::CHOOSE_QPARAMS_TENSOR => {
            let eps = call.number("eps")? as f32;
            (ZeroPointRule::FromMin { eps }, true, [call.int("quant_min")?, call.int("quant_max")?])
        }
        quantized_decomposed::CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC => (ZeroPointRule::MinError, false, [-128, 127]),
        torchao::CHOOSE_QPARAMS_AFFINE if call.text("mapping_type") == Some("ASYMMETRIC") => {
            let eps = known_or(&call, "eps", f64::from(f32::EPSILON))? as f32;
            let natural = if dtype(call.node, "target_dtype")? == ScalarType::Byte { [0, 255] } else { [-128, 127] };
            let bound = |name: &str, natural: i64| known_or(&call, name, natural as f64).map(|bound| bound as i64);
            let range = [bound("quant_min", natural[0])?, bound("quant_max", natural[1])?];
            (ZeroPointRule::FromMin { eps }, is_whole_tensor(&call, &ty.shape)?, range)
        }
        _ => return None,
    };
    let above = match dtype(call.node, "dtype").or_else(|| dtype(call.node, "target_dtype"))? {
        ScalarType::Char => 128,
        ScalarType::Byte => 0,
        _ => return None,
    };
    let byte = |bound: i64| u8::try_from(bound.checked_add(above)?).ok();
    let range = [byte(low)?, byte(high)?];
    (range[0] < range[1]).then_some(Parameters { x, choice, is_shared, range })
}

fn dtype(node: &Node, name: &str) -> Option<ScalarType> {
    match node.arg(name)? {
        Arg::DType(dtype) => Some(*dtype),
        _ => None,
    }
}

/// True if an affine quantization has one block, the whole tensor; false if its blocks are rows; `None` for other
/// blocks.
fn is_whole_tensor(call: &Call<'_>, shape: &[Expr]) -> Option<bool> {
    let blocks = call.exprs("block_size")?;
    let (last, outer) = shape.split_last()?;
    let (last_block, outer_blocks) = blocks.split_last()?;
    let covers = |block: &Expr, size: &Expr| block.is(-1) || block == size;
    if blocks.len() != shape.len() || !covers(last_block, last) {
        return None;
    }
    if outer_blocks.iter().all(|block| block.is(1)) {
        return Some(outer.iter().all(|size| size.is(1)));
    }
    outer_blocks.iter().zip(outer).all(|(block, size)| covers(block, size)).then_some(true)
}

/// The node that chose the scales with which a node quantizes or dequantizes, if they are those of `u8` and the
/// quantization is complete.
fn choice_of(graph: &Graph, node: NodeId) -> Option<NodeId> {
    let call = Call::new(graph, node);
    let of = |name: &str| call.optional(name);
    let scale = of("scale").or_else(|| of("scales"))?;
    let zero = of("zero_point").or_else(|| of("zero_points"))?;
    if let (Def::Result(choose, 1), Def::Result(other, 2)) = (graph.values[scale].def, graph.values[zero].def) {
        let is_rows = graph.nodes[choose].op.name() == rushlight::QUANTIZE_ROWS;
        let is_of_rows = graph.values[of("input")?].def == Def::Result(choose, 0);
        let dequantizes = role(call.name()) == Some(Role::Dequantize);
        return (is_rows && choose == other && is_of_rows && dequantizes).then_some(choose);
    }
    let (Def::Result(choose, 0), Def::Result(other, 1)) = (graph.values[scale].def, graph.values[zero].def) else {
        return None;
    };
    let chosen = chosen(graph, choose).filter(|_| choose == other)?;
    let input = call.optional("input")?;
    match role(call.name())? {
        Role::Quantize => (input == chosen.x).then_some(choose),
        Role::Dequantize => {
            let Def::Result(quantize, 0) = graph.values[input].def else { return None };
            let is_quantize = role(graph.nodes[quantize].op.name()) == Some(Role::Quantize);
            (is_quantize && choice_of(graph, quantize) == Some(choose)).then_some(choose)
        }
        Role::Choose | Role::QuantizeRows => None,
    }
}

/// True if only quantization, dequantization and conversion use the scales that a node chooses, and only dequantization
/// and the writing of a cache use the integers.
fn is_alone(graph: &Graph, choose: NodeId) -> bool {
    let results = graph.nodes[choose].results.clone();
    let blocks = graph.live_blocks();
    let users = |values: &[ValueId]| -> Vec<NodeId> {
        let uses = |node: &NodeId| {
            let mut uses = false;
            let args = graph.nodes[*node].args.iter();
            args.for_each(|arg| arg.for_each_value(&mut |value| uses |= values.contains(&value)));
            uses
        };
        blocks.iter().flat_map(|block| &graph.blocks[*block].nodes).copied().filter(uses).collect()
    };
    let mut quantized: Vec<ValueId> = Vec::new();
    for node in users(&results) {
        if choice_of(graph, node) != Some(choose) && parameter_of(graph, node).is_none_or(|(own, _)| own != choose) {
            return false;
        }
        if role(graph.nodes[node].op.name()) == Some(Role::Quantize) {
            quantized.extend(&graph.nodes[node].results);
        }
    }
    let is_written = |node: NodeId| matches!(graph.nodes[node].op.name(), aten::SLICE_SCATTER | aten::INDEX_PUT);
    if users(&quantized).into_iter().any(|node| choice_of(graph, node) != Some(choose) && !is_written(node)) {
        return false;
    }
    let is_returned = |value: &ValueId| {
        let is_stored = graph.updates.iter().any(|update| update.value == *value);
        let mut returned = blocks.iter().flat_map(|block| &graph.blocks[*block].results).chain(&graph.outputs);
        is_stored || returned.any(|output| output.as_value() == Some(*value))
    };
    !results.iter().chain(&quantized).any(is_returned)
}

/// The tensor that a node reshapes without changing its rows.
pub(super) fn keeps_rows(call: &Call<'_>) -> Option<ValueId> {
    if !matches!(call.name(), aten::VIEW_COPY | aten::ALIAS_COPY | aten::CLONE) {
        return None;
    }
    let source = call.optional("self")?;
    let last = |value: ValueId| call.shape(value).ok()?.last().cloned();
    (last(source)? == last(call.result().ok()?)?).then_some(source)
}
