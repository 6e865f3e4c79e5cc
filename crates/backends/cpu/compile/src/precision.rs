//! In which precision a node is computed, and why, for the report.

use rushlight_graph::quantization;
use rushlight_graph::{Def, Graph, Model, NodeId, ValueId};

use super::call::Call;
use super::dynamic;
use super::held_as_float;
use super::integer::{IntegerProduct, WeightsAlone, bytes_of, factors, integer_product};
use super::lower::{elementwise, shapes};
use super::wide;

/// Of a node that has to do with integers; `None` of others, which compute in the type of their results.
pub(super) fn precision(graph: &Graph, model: &Model, node: NodeId) -> Option<String> {
    let call = Call::new(graph, node);
    let name = call.name();
    if quantization::is_quantize(name) || quantization::is_dequantize(name) || dynamic::role(name).is_some() {
        return None;
    }
    match integer_product(graph, model, node) {
        Some(IntegerProduct::Static) => return Some("int8, weights of 8 bits".to_owned()),
        Some(IntegerProduct::Rows) if name == "aten::convolution" => {
            return Some("int8 with a scale that is chosen when it runs, weights of 8 bits".to_owned());
        }
        Some(IntegerProduct::Rows) => return Some("int8 rows, weights of 8 bits".to_owned()),
        Some(IntegerProduct::Groups { is_four_bits: true }) => return Some("int8 rows, weights of 4 bits".to_owned()),
        Some(IntegerProduct::Groups { .. }) => return Some("int8 rows, weights of 8 bits by group".to_owned()),
        None => {}
    }
    if call.name() == "aten::embedding" {
        return of_table(graph, model, call.optional("weight")?);
    }
    if let Some((input, weight)) = factors(&call) {
        return of_floats(graph, model, input, weight);
    }
    let mut operands = Vec::new();
    call.node.args.iter().for_each(|arg| arg.for_each_value(&mut |value| operands.push(value)));
    operands.retain(|value| graph.tensor(*value).is_ok_and(|ty| held_as_float(ty.dtype)));
    let (bytes, others): (Vec<ValueId>, Vec<ValueId>) =
        operands.into_iter().partition(|value| bytes_of(graph, *value).is_some());
    let of_product = |value: &ValueId| match graph.values[*value].def {
        Def::Result(node, _) => integer_product(graph, model, node).is_some(),
        _ => false,
    };
    if others.iter().any(of_product) {
        return Some("f32, of the exact sums of the product before it".to_owned());
    }
    match (bytes.is_empty(), others.first()) {
        (true, _) => None,
        (false, None) if !takes_bytes(&call) => Some(format!("f32: `{name}` has no form for integers")),
        (false, None) if gives_bytes_to_bytes(name) && !is_rounded(graph, &call) => {
            Some("f32: its result is not rounded".to_owned())
        }
        (false, None) => Some("int8".to_owned()),
        (false, Some(float)) => Some(format!("f32: `{}` is not quantized", graph.values[*float].name)),
    }
}

/// Whether an operator that is no product is computed of bytes, as they are or read as what they stand for.
fn takes_bytes(call: &Call<'_>) -> bool {
    elementwise::takes(call)
        || shapes::takes(call)
        || gives_bytes_to_bytes(call.name())
        || matches!(
            call.name(),
            "aten::alias_copy"
                | "aten::upsample_nearest2d.vec"
                | "aten::max_pool2d_with_indices"
                | "aten::avg_pool2d"
                | "aten::_adaptive_avg_pool2d"
                | "aten::mean.dim"
                | "aten::mean"
        )
}

/// Whether an operator takes bytes only if its result becomes bytes.
fn gives_bytes_to_bytes(name: &str) -> bool {
    matches!(name, "aten::_softmax" | "aten::upsample_bilinear2d.vec")
}

/// Whether nothing but rounding to bytes uses what a node gives.
fn is_rounded(graph: &Graph, call: &Call<'_>) -> bool {
    let Ok(result) = call.result() else { return false };
    let mut uses = 0;
    graph.for_each_use(&mut |value| uses += usize::from(value == result));
    let rounds = |node: &NodeId| {
        let user = Call::new(graph, *node);
        quantization::is_quantize(user.name()) && user.optional("input") == Some(result)
    };
    uses == 1 && graph.blocks[graph.body].nodes.iter().any(rounds)
}

/// What the rows of a table of integers become.
fn of_table(graph: &Graph, model: &Model, table: ValueId) -> Option<String> {
    let Def::Constant(id) = graph.values[table].def else { return None };
    let constant = &model.constants[id];
    constant.quantized()?;
    Some(match WeightsAlone::of_rows(constant) {
        Some(rows) if rows.matrix.is_four_bits => "f32, rows of 4 bits".to_owned(),
        Some(_) => "f32, rows of 8 bits".to_owned(),
        None => "f32, rows made floats".to_owned(),
    })
}

/// Why a product is computed in floats, if its input or its weights are integers.
fn of_floats(graph: &Graph, model: &Model, input: ValueId, weight: ValueId) -> Option<String> {
    let is_quantized = bytes_of(graph, input).is_some() || dynamic::rounded_rows(graph, input).is_some();
    let constant = match graph.values[weight].def {
        Def::Constant(id) => Some(&model.constants[id]),
        _ => None,
    };
    let Some(constant) = constant.filter(|constant| constant.quantized().is_some()) else {
        return is_quantized.then(|| "f32: its weights are no integers that are known when it is compiled".to_owned());
    };
    if is_quantized {
        return Some("f32: weights of this form, or windows of this size, have no product of integers".to_owned());
    }
    let weights = match WeightsAlone::of(constant) {
        Some(weights) if weights.matrix.is_four_bits => "weights of 4 bits",
        Some(_) => "weights of 8 bits",
        None => "weights made floats",
    };
    let input = if wide::is_rounded(graph, input) { "has 16 bits, which floats hold" } else { "is not quantized" };
    Some(format!("f32, {weights}: its input {input}"))
}
