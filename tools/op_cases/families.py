"""The families of operators, each a module of this package and a file of cases."""

FAMILIES = (
    "elementwise_unary",
    "elementwise_binary",
    "comparison",
    "activation",
    "creation",
    "copies",
    "views",
    "joins",
    "reductions",
    "norms",
    "matmuls",
    "convolutions",
    "indexing",
    "core_extra",
    "prim",
    "quantized",
    "cortex_m",
    "llama",
    "experts",
    "linalg",
    "special",
    "counting",
    "aten_extra",
    "composites_extra",
    "composites_math",
    "composites_structure",
)

# Operators without cases, and why.
SKIPPED = {
    "aten::resize_": "changes a tensor's storage; not expected in an edge program",
    "aten::empty_strided.out": "names strides, which a program cannot hold; not expected in an edge program",
    "llama::_quantized_moe_ffn_active": "asks how the exporting library was built; no program calls it",
}
