//! Which nodes the back end takes.

use rushlight_format::ScalarType;

use rushlight_graph::ops::wrap_dim;
use rushlight_graph::quantization;
use rushlight_graph::{Expr, Graph, NodeId, ValueId};

use super::call::Call;
use super::dynamic::{self, Role};
use super::held_as_float;
use super::lower::{affine_of, elementwise, pooling, shapes};

/// Constant indices of up to this number are taken.
const MOST_INDICES: i64 = 256;

/// Why a node is left to others; `None` if the back end takes it.
pub(super) fn reason_to_leave(graph: &Graph, node: NodeId) -> Option<String> {
    let call = Call::new(graph, node);
    let name = call.name();
    if quantization::is_quantize(name) || quantization::is_dequantize(name) {
        return reason_to_leave_quantization(&call);
    }
    if let Some(role) = dynamic::role(name) {
        let choose = if role == Role::Choose { Some(node) } else { dynamic::choice_of(graph, node) };
        let is_taken = choose.is_some_and(|choose| dynamic::is_taken(graph, choose));
        return (!is_taken).then(|| "rounding with scales that are used for more, or in another form".into());
    }
    let is_integer = |dtype| matches!(dtype, ScalarType::Long | ScalarType::Int);
    let tensors = || {
        let mut values = Vec::new();
        call.node.args.iter().for_each(|arg| arg.for_each_value(&mut |value| values.push(value)));
        values
    };
    let dtype = |value: &ValueId| graph.tensor(*value).map(|ty| ty.dtype);
    let is_truth = |value: &ValueId| dtype(value).is_ok_and(|dtype| dtype == ScalarType::Bool);
    let indices = match name {
        "aten::embedding" => call.optional("indices"),
        "aten::index_select" => call.optional("index"),
        _ => None,
    };
    for value in tensors() {
        match graph.tensor(value) {
            Ok(ty) if held_as_float(ty.dtype) => {}
            Ok(ty) if Some(value) == indices && is_integer(ty.dtype) => {}
            Ok(ty) => return Some(format!("an input of {}, which is not held as f32", ty.dtype.name())),
            Err(_) => return Some("a number that another operator computes".into()),
        }
    }
    let used = used_results(graph, node);
    for value in &used {
        match dtype(value) {
            Ok(ScalarType::Bool) => {
                let of_truth = tensors().iter().all(is_truth);
                if !elementwise::gives_truth(name, of_truth)
                    && !shapes::takes(&call)
                    && pooling::any_or_all(name).is_none()
                {
                    return Some(format!("`{name}` of truth values"));
                }
            }
            Ok(dtype) if held_as_float(dtype) => {}
            _ => return Some("a result that is not held as f32".into()),
        }
    }
    let first_only = || used.iter().all(|value| Some(value) == call.node.results.first());
    let rank = |param: &str| call.value(param).and_then(|value| call.shape(value)).map_or(0, <[_]>::len);
    let constant = |param: &str| call.optional(param).is_none_or(|value| call.is_constant(value));
    let channels = |param: &str| {
        let shape = call.value(param).and_then(|value| call.shape(value));
        shape.is_ok_and(|shape| shape.get(1).is_some_and(Expr::is_static))
    };
    let divides = || call.arg("divisor_override").is_none() || call.int("divisor_override").is_some_and(|by| by > 0);
    let fits = match name {
        "aten::convolution" => {
            let transposed = call.flag("transposed");
            let fits = (3..=4).contains(&rank("input")) || (rank("input") == 5 && !transposed);
            fits && constant("weight") && constant("bias") && channels("input")
        }
        "aten::addmm" => has_constant_bias(&call),
        "aten::mm" | "aten::bmm" => true,
        "aten::_softmax" | "aten::_log_softmax" => {
            rank("self") > 0 && call.int("dim").and_then(|index| wrap_dim(index, rank("self"))).is_some()
        }
        "aten::native_layer_norm" => first_only(),
        "aten::scaled_dot_product_attention" => {
            let dropout = call.number("dropout_p").is_none_or(|rate| rate == 0.0);
            let known = call.number("scale").is_some() || call.arg("scale").is_none();
            dropout && known && ["query", "key", "value"].iter().all(|name| rank(name) == 4) && rank("attn_mask") <= 4
        }
        "aten::max_pool2d_with_indices" => first_only() && rank("self") == 4,
        "aten::avg_pool2d" => rank("self") == 4 && divides(),
        "aten::max_pool3d_with_indices" => first_only() && rank("self") == 5,
        "aten::avg_pool3d" => rank("self") == 5 && divides(),
        "aten::_adaptive_avg_pool2d" => pooling::adaptive_window(&call).is_some(),
        "aten::upsample_bilinear2d.vec" | "aten::upsample_nearest2d.vec" => {
            rank("input") == 4 && pooling::scale_factors(&call).is_some()
        }
        name if pooling::any_or_all(name).is_some() => {
            // Of nothing, the largest truth value is not that of `any`.
            let is_filled = call.value("self").and_then(|value| call.shape(value)).is_ok_and(|shape| {
                shape.iter().all(|size| size.range(&graph.symbols).0.is_some_and(|least| least > 0))
            });
            rank("self") > 0 && is_filled && call.optional("self").as_ref().is_some_and(is_truth)
        }
        name if pooling::fold(name).is_some() => rank("self") > 0 && call.arg("dtype").is_none(),
        "aten::embedding" => constant("weight") && rank("weight") == 2,
        "aten::index_select" => {
            // Each run of neighbouring indices becomes a copy.
            let count = call.value("index").and_then(|index| call.shape(index));
            let count = count.ok().and_then(|shape| shape.first().map_or(Some(1), Expr::as_int));
            rank("self") > 0 && constant("index") && count.is_some_and(|count| count <= MOST_INDICES)
        }
        name => elementwise::takes(&call) || shapes::takes(&call) || name == "aten::alias_copy",
    };
    if fits {
        return None;
    }
    let computed = ["weight", "bias"].into_iter().find(|param| !constant(param));
    Some(match (name, computed) {
        ("aten::convolution" | "aten::embedding", Some(param)) => format!("`{name}` with a {param} that is computed"),
        ("aten::convolution", None) => format!("`{name}` of {} dimensions in this form", rank("input")),
        (name, _) => format!("`{name}` in this form"),
    })
}

/// True if an `addmm` is a GEMM with constant weights and a constant bias, neither of them scaled.
pub(super) fn has_constant_bias(call: &Call<'_>) -> bool {
    has_bias(call, |weights| call.is_constant(weights))
}

/// As [`has_constant_bias`], for weights that `is_known` says are constant.
pub(super) fn has_bias(call: &Call<'_>, is_known: impl Fn(ValueId) -> bool) -> bool {
    let is_constant = call.optional("self").is_some_and(|value| call.is_constant(value));
    let is_vector = call.value("self").and_then(|value| call.shape(value)).is_ok_and(|shape| shape.len() == 1);
    let one = |param: &str| call.arg(param).is_none() || call.number(param) == Some(1.0);
    call.optional("mat2").is_some_and(is_known) && is_constant && is_vector && one("alpha") && one("beta")
}

/// The same of a node that quantizes or dequantizes.
fn reason_to_leave_quantization(call: &Call<'_>) -> Option<String> {
    let types = call.optional("input").zip(call.result().ok()).and_then(|(input, result)| {
        Some((call.graph.tensor(input).ok()?.dtype, call.graph.tensor(result).ok()?.dtype))
    });
    let Some((from, to)) = types else { return Some("a value that is no tensor".into()) };
    let (number, integer) = if quantization::is_quantize(call.name()) { (from, to) } else { (to, from) };
    if !matches!(integer, ScalarType::Char | ScalarType::Byte) {
        return Some(format!("integers of {}, which are not held as bytes", integer.name()));
    }
    if number != ScalarType::Float {
        return Some(format!("quantized numbers of {}", number.name()));
    }
    if affine_of(call).is_none() {
        return Some("a scale or range that makes no sense, or is not known".into());
    }
    None
}

/// The results of a node that anything uses.
fn used_results(graph: &Graph, node: NodeId) -> Vec<ValueId> {
    let results = &graph.nodes[node].results;
    if results.len() == 1 {
        return results.clone();
    }
    let mut used = Vec::new();
    graph.for_each_use(&mut |value| {
        if results.contains(&value) && !used.contains(&value) {
            used.push(value);
        }
    });
    used
}
