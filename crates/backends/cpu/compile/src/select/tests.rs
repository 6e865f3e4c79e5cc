use rushlight_graph::operators::aten;
use rushlight_graph::text::Contents;

use super::*;

/// The reasons of the refused nodes of a method, in their order.
fn refusals(inputs_and_nodes: &str) -> Vec<Reason> {
    let model =
        Model::parse(&format!("method \"forward\" {{\n{inputs_and_nodes}\n}}\n"), &Contents::default()).unwrap();
    let graph = &model.methods["forward"];
    let selections = Selections::of(graph, &model);
    graph.blocks[graph.body].nodes.iter().filter_map(|node| selections.refusal(*node).cloned()).collect()
}

#[test]
fn refusals_say_what_is_not_supported() {
    let op = |name: &str| name.to_owned();
    let cases = [
        ("input %x : i64[3]\n%y = aten::add.Tensor(%x, %x, 1) : i64[3]\nreturn %y", Reason::Input(ScalarType::Long)),
        (
            "input %x : f32[3]\n%n = aten::_local_scalar_dense(%x) : float\n%y = aten::add.Scalar(%x, %n, 1) : f32[3]\nreturn %y",
            Reason::ComputedNumber,
        ),
        ("input %x : f32[3]\n%y = aten::argmax(%x, 0, false) : i64[]\nreturn %y", Reason::Result),
        (
            "input %x : bool[3]\n%y = aten::maximum(%x, %x) : bool[3]\nreturn %y",
            Reason::Truth { op: op(aten::MAXIMUM) },
        ),
        (
            "input %x : f32[1, 2, 5, 5]\ninput %w : f32[2, 2, 3, 3]\n\
             %y = aten::convolution(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1) : f32[1, 2, 5, 5]\nreturn %y",
            Reason::ComputedParameter { op: op(aten::CONVOLUTION), param: "weight" },
        ),
        (
            "input %x : f32[3]\n%y = aten::cumsum(%x, 0, none) : f32[3]\nreturn %y",
            Reason::Arguments { op: op(aten::CUMSUM) },
        ),
        (
            "input %x : f32[3]\n%y = quantized_decomposed::quantize_per_tensor(%x, 0.1, 0, -32768, 32767, i16) : i16[3]\nreturn %y",
            Reason::Integers(ScalarType::Short),
        ),
        (
            "input %x : f64[3]\n%y = quantized_decomposed::quantize_per_tensor(%x, 0.1, 0, -128, 127, i8) : i8[3]\nreturn %y",
            Reason::Quantized(ScalarType::Double),
        ),
        (
            "input %x : f32[3]\n%y = quantized_decomposed::quantize_per_tensor(%x, 0.1, 0, -500, 127, i8) : i8[3]\nreturn %y",
            Reason::Affine,
        ),
        (
            "input %x : f32[3]\n%s, %z = quantized_decomposed::choose_qparams.tensor(%x, -128, 127, 0.1, i8) : f64[1], i64[1]\nreturn %s",
            Reason::DynamicScales,
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusals(text).last(), Some(&expected), "{text}");
    }
    let reason = Reason::Input(ScalarType::Long).to_string();
    assert_eq!(reason, "an input of i64, which is not stored as f32");
}

#[test]
fn dequantized_values_are_bytes_until_something_computes() {
    let text = "input %x : i8[4]\n\
        %f = quantized_decomposed::dequantize_per_tensor(%x, 0.5, 3, -128, 127, i8, none) : f32[4]\n\
        %v = aten::view_copy(%f, [2, 2]) : f32[2, 2]\n\
        %y = aten::relu(%v) : f32[2, 2]\nreturn %y";
    let model = Model::parse(&format!("method \"forward\" {{\n{text}\n}}\n"), &Contents::default()).unwrap();
    let graph = &model.methods["forward"];
    let selections = Selections::of(graph, &model);
    let affine = |node: NodeId| selections.quantized(graph.nodes[node].results[0]);
    let affines: Vec<_> = graph.blocks[graph.body].nodes.iter().map(|node| affine(*node)).collect();
    let bytes = Some(Affine::new(0.5, 131, [0, 255]));
    assert_eq!(affines, [bytes, bytes, None]);
}
