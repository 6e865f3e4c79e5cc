//! Rows that are rounded to bytes with scales that are chosen when they are seen: three operators in a row, one that chooses,
//! one that rounds and one that makes numbers of the integers again. Pictures have one scale for all of their rows.

use rushlight_cpu_payload::ZeroPointRule;
use rushlight_format::ScalarType;

use rushlight_graph::{Arg, Def, Expr, Graph, Node, NodeId, ValueId};

use super::call::Call;

/// A node that chooses scales and zero points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chosen {
    pub x: ValueId,
    pub choice: ZeroPointRule,
    /// Whether all rows have the same.
    pub is_shared: bool,
    /// The least and the greatest byte in use.
    pub range: [u8; 2],
}

/// What a node does in such a row of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Choose,
    Round,
    Dequantize,
}

/// The role that an operator may have.
pub(super) fn role(name: &str) -> Option<Role> {
    Some(match name {
        "quantized_decomposed::choose_qparams.tensor"
        | "quantized_decomposed::choose_qparams_per_token_asymmetric"
        | "torchao::choose_qparams_affine" => Role::Choose,
        "quantized_decomposed::quantize_per_tensor.tensor"
        | "quantized_decomposed::quantize_per_token"
        | "torchao::quantize_affine" => Role::Round,
        "quantized_decomposed::dequantize_per_tensor.tensor"
        | "quantized_decomposed::dequantize_per_token"
        | "torchao::dequantize_affine" => Role::Dequantize,
        _ => return None,
    })
}

/// What a node chooses, if it is for bytes.
pub(super) fn chosen(graph: &Graph, node: NodeId) -> Option<Chosen> {
    let call = Call::new(graph, node);
    let x = call.optional("input")?;
    let ty = graph.tensor(x).ok()?;
    if ty.dtype != ScalarType::Float || ty.shape.is_empty() {
        return None;
    }
    let (choice, is_shared, [low, high]) = match call.name() {
        "quantized_decomposed::choose_qparams.tensor" => {
            let eps = call.number("eps")? as f32;
            (ZeroPointRule::FromMin { eps }, true, [call.int("quant_min")?, call.int("quant_max")?])
        }
        "quantized_decomposed::choose_qparams_per_token_asymmetric" => (ZeroPointRule::MinError, false, [-128, 127]),
        "torchao::choose_qparams_affine" if call.text("mapping_type") == Some("ASYMMETRIC") => {
            let eps = call.number("eps").map_or(f32::EPSILON, |eps| eps as f32);
            let natural = if dtype(call.node, "target_dtype")? == ScalarType::Byte { [0, 255] } else { [-128, 127] };
            let bound = |name: &str, natural: i64| call.number(name).map_or(natural, |bound| bound as i64);
            let range = [bound("quant_min", natural[0]), bound("quant_max", natural[1])];
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
    (range[0] < range[1]).then_some(Chosen { x, choice, is_shared, range })
}

fn dtype(node: &Node, name: &str) -> Option<ScalarType> {
    match node.arg(name)? {
        Arg::DType(dtype) => Some(*dtype),
        _ => None,
    }
}

/// Whether the blocks of an affine quantization are all of a tensor, rather than its rows; `None` if they are neither.
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

/// The node that chose what a node rounds or dequantizes with, if it is one for bytes, and all of it is in place.
pub(super) fn choice_of(graph: &Graph, node: NodeId) -> Option<NodeId> {
    let call = Call::new(graph, node);
    let of = |name: &str| call.optional(name);
    let scale = of("scale").or_else(|| of("scales"))?;
    let zero = of("zero_point").or_else(|| of("zero_points"))?;
    let (Def::Result(choose, 0), Def::Result(other, 1)) = (graph.values[scale].def, graph.values[zero].def) else {
        return None;
    };
    let chosen = chosen(graph, choose).filter(|_| choose == other)?;
    let input = call.optional("input")?;
    match role(call.name())? {
        Role::Round => (input == chosen.x).then_some(choose),
        Role::Dequantize => {
            let Def::Result(round, 0) = graph.values[input].def else { return None };
            let is_round = role(graph.nodes[round].op.name()) == Some(Role::Round);
            (is_round && choice_of(graph, round) == Some(choose)).then_some(choose)
        }
        Role::Choose => None,
    }
}

/// Whether a node that chooses is taken: nothing but rounding and dequantizing uses what it gives, and nothing but dequantizing
/// uses what is rounded.
pub(super) fn is_taken(graph: &Graph, choose: NodeId) -> bool {
    if chosen(graph, choose).is_none() {
        return false;
    }
    let results = graph.nodes[choose].results.clone();
    let mut rounded: Vec<ValueId> = Vec::new();
    for node in &graph.blocks[graph.body].nodes {
        let mut uses = false;
        graph.nodes[*node]
            .args
            .iter()
            .for_each(|arg| arg.for_each_value(&mut |value| uses |= results.contains(&value)));
        if !uses {
            continue;
        }
        if choice_of(graph, *node) != Some(choose) {
            return false;
        }
        if role(graph.nodes[*node].op.name()) == Some(Role::Round) {
            rounded.extend(&graph.nodes[*node].results);
        }
    }
    for node in &graph.blocks[graph.body].nodes {
        let mut uses = false;
        graph.nodes[*node]
            .args
            .iter()
            .for_each(|arg| arg.for_each_value(&mut |value| uses |= rounded.contains(&value)));
        if uses && choice_of(graph, *node) != Some(choose) {
            return false;
        }
    }
    let is_returned = |value: &ValueId| graph.outputs.iter().any(|output| output.as_value() == Some(*value));
    !results.iter().chain(&rounded).any(is_returned)
}

/// What was chosen for the rows that a value is made of, if they were rounded so and its last dimension is still that
/// of the rows.
pub(super) fn rounded_rows(graph: &Graph, value: ValueId) -> Option<Chosen> {
    let mut value = value;
    loop {
        let Def::Result(node, 0) = graph.values[value].def else { return None };
        let call = Call::new(graph, node);
        if role(call.name()) == Some(Role::Dequantize) {
            return chosen(graph, choice_of(graph, node)?);
        }
        value = keeps_rows(&call)?;
    }
}

/// The tensor that a node shows in another shape with the same rows.
pub(super) fn keeps_rows(call: &Call<'_>) -> Option<ValueId> {
    if !matches!(call.name(), "aten::view_copy" | "aten::alias_copy" | "aten::clone") {
        return None;
    }
    let source = call.optional("self")?;
    let last = |value: ValueId| call.shape(value).ok()?.last().cloned();
    (last(source)? == last(call.result().ok()?)?).then_some(source)
}
