"""Elementwise functions of one tensor."""

import torch

from . import opinfo
from .values import BF16, BOOL, COMPLEX, C64, F16, F32, F64, FLOATS, I32, I64, REALB, SHAPES, U8, Values, channels_last, specials

# Integer and boolean inputs give float outputs.
TO_FLOAT = (
    "acos acosh asin asinh atan atanh cos cosh erf exp expm1 log log10 log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh"
).split()
SAME = "abs ceil floor neg round sign trunc relu".split()
TO_BOOL = "isinf isnan logical_not".split()
DOMAIN = {
    "acos": (-1, 1), "asin": (-1, 1), "atanh": (-0.99, 0.99), "acosh": (1, 30), "log": (0.01, 50), "log10": (0.01, 50),
    "log2": (0.01, 50), "log1p": (-0.9, 20), "rsqrt": (0.01, 50), "sqrt": (0, 50), "sin": (-20, 20), "cos": (-20, 20),
    "tan": (-20, 20), "round": (-9, 9),
}  # fmt: skip
OPERATORS = [f"aten::{n}.out" for n in TO_FLOAT + SAME + TO_BOOL + ["bitwise_not", "_conj_physical"]]
SOURCES = TO_FLOAT + SAME + TO_BOOL + ["bitwise_not", "conj_physical", "nn.functional.relu"]


def dtypes_of(name):
    if name == "bitwise_not":
        return (U8, torch.int8, torch.int16, I32, I64, BOOL)
    if name == "_conj_physical":
        return COMPLEX
    return REALB


def edges(cases, name):
    op = f"aten::{name}.out"
    v = Values(op)
    low, high = DOMAIN.get(name, (-4, 4))
    dtypes = dtypes_of(name)
    for dtype in dtypes:
        cases.call(op, specials(dtype), _name="special")
        cases.call(op, v.tensor((13,), dtype, low, high), _name="tail")
        cases.call(op, v.tensor((2, 3), dtype, low, high), _name="rank2")
    first = dtypes[0] if name in ("bitwise_not", "_conj_physical") else F32
    for shape in SHAPES:
        cases.call(op, v.tensor(shape, first, low, high), _name=f"rank{len(shape)}")
    for dtype in (first, F16, I64):
        if dtype in dtypes:
            cases.call(op, channels_last(v.tensor((2, 3, 2, 2), dtype, low, high)), _name="channels-last")
            cases.call(op, v.tensor((), dtype, low, high), _name="scalar")
            cases.call(op, v.tensor((2, 0, 3), dtype), _name="empty")
    cases.call(op, channels_last(v.tensor((1, 2, 2, 3, 2), first, low, high)), _name="channels-last-3d")
    cases.call(op, v.tensor((103,), first, low, high), _name="long")
    cases.call(op, v.tensor((10,), first, low * 100, high * 100), _name="wide-range")


def out_dtypes(cases, name):
    """The output's dtype need not be the computed one where the cast is legal."""
    op = f"aten::{name}.out"
    v = Values(op + "/out")
    low, high = DOMAIN.get(name, (-4, 4))
    if name in TO_FLOAT:
        pairs = [(F32, F64), (F64, F32), (F32, F16), (I32, F64), (I64, F16), (BOOL, BF16), (F16, F32)]
    elif name in TO_BOOL:
        pairs = [(F32, U8), (F32, F32), (I32, I64)] if name == "logical_not" else []
    else:
        pairs = [(F32, F64), (F64, F32)]
    for dtype, out in pairs:
        cases.call(op, v.tensor((2, 4), dtype, low, high), _out=out, _name="out-dtype")


def generate(cases):
    for name in TO_FLOAT + SAME + TO_BOOL + ["bitwise_not", "_conj_physical"]:
        edges(cases, name)
        out_dtypes(cases, name)
    v = Values("complex")
    cases.call("aten::abs.out", v.tensor((3, 4), C64), _name="complex")
    cases.call("aten::abs.out", specials(C64)[2:], _name="complex-special")
    for half in (0.5, 1.5, 2.5, -0.5, -1.5, -2.5):
        for dtype in FLOATS:
            cases.call("aten::round.out", torch.tensor([half, half + 1e-3, half - 1e-3], dtype=dtype), _name="half-to-even")
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F64, F16, BF16, I64, I32, U8, BOOL, C64), numel=130, per_dtype=3)
