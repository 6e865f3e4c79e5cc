"""Writes the table of operator schemas that the compiler embeds, from the registries of PyTorch and ExecuTorch.

    python tools/op_schemas.py            writes crates/graph/src/schemas.txt
    python tools/op_schemas.py --check    fails when that file is not what would be written

One line describes one overload, sorted by the bytes of its full name, with four fields between tabs:

    aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)	aten::add.out	inplace	aten::add.Tensor

1. the schema as PyTorch prints it; the full name is what precedes its first parenthesis
2. the full name of the out variant by ExecuTorch's rule (executorch.exir.operator.convert), or `-`
3. flags between commas, or `-`: `core` (a core ATen operator), `view` (a result aliases an argument that the operator
   does not write), `inplace` (writes arguments, and is no out variant), `composite` (defined by other operators, so
   that a decomposition exists), `random` (results differ from call to call)
4. for `inplace`, the functional twin; for `view`, the twin that copies; `-` where there is none

The operators are those that an exported inference program can contain. Absent are gradients beyond those that have
kernels, sparse, nested and engine-specific tensors, dimension names, and the overloads for TorchScript's own types.
"""

import argparse
import logging
import re
import sys
import warnings
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "crates" / "graph" / "src" / "schemas.txt"

# Namespaces, with what a name in them must match and must not.
NAMESPACES = {
    "quantized_decomposed": (r"", r"$^"),
    "dim_order_ops": (r"", r"$^"),
    "llama": (r"", r"$^"),
    "export": (r"", r"$^"),
    "torchao": (r"::(choose_qparams|quantize|dequantize)", r"float8"),
    "torchvision": (r"", r"backward|cuda"),
    "transformers": (r"::grouped_mm_fallback", r"backward"),
    "aten": (
        r"",
        r"""(?x)
        backward | _foreach_ | _fused_ | _amp_ | sparse | nested | jagged | mkldnn | cudnn | miopen | mps | _?cuda_ | vulkan
        | fbgemm | thnn_fused | thnn_differentiable | _test_ | nnpack | lazy | cufft | autocast | sobol | batch_dim
        | ::_?(csr|coo|ccol_indices|crow_indices|col_indices|row_indices|indices|values|coalesce|coalesced|is_coalesced|nnz)(_copy|_)?($|\.)
        | ::(q_|int_repr|quantized_|quantize_|dequantize($|\.tensors)|_dequantize|choose_qparams|_choose_qparams|qscheme|_make_per)
        | ::_?empty_(affine|per_channel|quantized) | ::_(dyn_quant|weight_int|convert_weight|wrapped|mixed_dtypes|cslt|dim[IV])
        | ::_(fw_primal|make_dual|unpack_dual|new_zeros_with|spdiags|spsolve|rowwise|validate|copy_from|has_compatible)
        | ::_(scaled_mm|scaled_addmm|scaled_grouped|flash|efficient_attention|triton|cast_|saturate|debug)
        | ::_(backward|resize_output|record_stream|propagate|sync|foobar|print|philox|to_cpu|pack_padded|pad_packed|version)
        | ::(set_?|set_data|data|record_stream|retain_grad|retains_grad|requires_grad_|output_nr|is_leaf|from_file|smm)($|\.)
        | ::_?(pin_memory|is_pinned|to_dense|fused_moving|to_padded|sspaddmm|hspmm|batch_norm_(elemt|gather|stats|update))
        | ::_scaled_dot_product_(cudnn|efficient|fused|flash_attention($|\.)) | \.\w*(generator|names)
        """,
    ),
}

GRADIENTS = {
    *("aten::_adaptive_avg_pool2d_backward", "aten::avg_pool2d_backward", "aten::convolution_backward"),
    *("aten::embedding_dense_backward", "aten::max_pool2d_with_indices_backward"),
    *("aten::native_group_norm_backward", "aten::native_layer_norm_backward"),
}

# Argument types that no exported program passes.
FOREIGN = re.compile(r"\b(Dimname|Storage|Stream|ConstQuantizerBase|QScheme|__torch__)\b")

# In-place operators whose functional twin is not called the same without the underscore.
TWINS = {
    "aten::_native_batch_norm_legit": "aten::_native_batch_norm_legit_functional",
    "aten::_batch_norm_with_update": "aten::_batch_norm_with_update_functional",
    "aten::normal_": "aten::normal_functional",
}


def overloads():
    """The wanted overloads by full name."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import executorch.extension.llm.custom_ops.custom_ops
    import executorch.extension.llm.custom_ops.op_fallback
    import executorch.kernels.quantized
    import torch
    import torchao.quantization.pt2e.quantize_pt2e
    import torchao.quantization.quant_primitives
    import torchvision
    import transformers_ops  # noqa: F401  all of these register operators

    found = {}
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if namespace not in NAMESPACES:
            continue
        wanted, unwanted = NAMESPACES[namespace]
        if f"{namespace}::{base}" not in GRADIENTS and (re.search(unwanted, name) or not re.search(wanted, name)):
            continue
        operator = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
        if not FOREIGN.search(str(operator._schema)):
            found[name] = operator
    return found


def writes(schema):
    """The arguments that a call writes."""
    return [arg for arg in schema.arguments if arg.alias_info is not None and arg.alias_info.is_write]


def is_out(schema):
    """Whether the results are filled into arguments given by keyword, which is PyTorch's convention."""
    return any(arg.kwarg_only for arg in writes(schema))


def out_variant(operator):
    from executorch.exir.operator.convert import to_out_variant

    try:
        return to_out_variant(operator)[0]._schema
    except (RuntimeError, AssertionError, AttributeError):
        # ExecuTorch's rule asks for equal names and defaults; a conventional name with one argument more will do.
        overload = f"{operator._schema.overload_name}_out".removeprefix("_")
        packet = operator._overloadpacket
        same = overload in packet.overloads() and len(getattr(packet, overload)._schema.arguments)
        return getattr(packet, overload)._schema if same == len(operator._schema.arguments) + 1 else None


def full_name(schema):
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def accepted(schema):
    """The arguments that a call may give: types, and names but for the first."""
    return [(arg.name if position else "", str(arg.type)) for position, arg in enumerate(schema.arguments)]


def functional_twin(schema, found):
    """The overload that takes the same and returns what `schema` writes; the first argument may have another name."""
    if schema.name in TWINS:
        base = TWINS[schema.name]
    else:
        base = re.sub(r"::__i(\w+__)$", r"::__\1", schema.name)
        base = base[:-1] if base == schema.name and base.endswith("_") else base
    same_overload = base + full_name(schema).removeprefix(schema.name)
    for name in sorted(found, key=lambda name: name != same_overload):
        twin = found[name]._schema
        if twin.name == base and not writes(twin) and accepted(twin) == accepted(schema):
            return name
    return None


def line(name, operator, found):
    import torch

    schema = operator._schema
    view = any(result.alias_info is not None for result in schema.returns) and not writes(schema)
    inplace = bool(writes(schema)) and not is_out(schema)
    out = None if is_out(schema) else out_variant(operator)
    twin = None
    if inplace:
        twin = functional_twin(schema, found)
    elif view:
        copy = name.replace(schema.name, schema.name + "_copy", 1)
        twin = copy if copy in found else None
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    flags = {
        "core": torch.Tag.core in operator.tags,
        "view": view,
        "inplace": inplace,
        "composite": composite,
        "random": torch.Tag.nondeterministic_seeded in operator.tags,
    }
    flags = ",".join(flag for flag, holds in flags.items() if holds)
    return "\t".join([str(schema), full_name(out) if out else "-", flags or "-", twin or "-"])


def table():
    found = overloads()
    return "".join(line(name, found[name], found) + "\n" for name in sorted(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    check = parser.parse_args().check
    fresh = table()
    if check:
        there = TABLE.read_text() if TABLE.exists() else ""
        if there != fresh:
            different = set(there.splitlines()) ^ set(fresh.splitlines())
            print(f"{TABLE} is out of date, {len(different)} lines differ; the first:", *sorted(different)[:5], sep="\n  ")
            sys.exit(1)
    else:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text(fresh)
    print(f"{TABLE.name}: {fresh.count(chr(10))} overloads, {len(fresh) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
