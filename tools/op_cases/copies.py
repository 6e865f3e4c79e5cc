"""Copies, casts and dim orders."""

import itertools

import executorch.exir.passes.dim_order_ops_registry  # noqa: F401
import torch

from . import opinfo
from .values import BF16, BOOL, C64, C128, COMPLEX, EVERY, F16, F32, F64, FLOATS, I32, I64, I8, INT, REALB, SHAPES, U8, Values, channels_last, specials

PER_OPERATOR = 230
IDENTITY = ["alias_copy", "detach_copy", "lift_fresh_copy"]
OPERATORS = [f"aten::{n}.out" for n in IDENTITY + ["clone", "copy", "_to_copy", "view_as_real_copy"]] + ["aten::copy_"]
SOURCES = "clone to view_as_real contiguous detach double float half bfloat16 int long bool byte char short".split() + ["_refs.detach"]
CAST = "aten::_to_copy.out"
CAST_DIM_ORDER = "dim_order_ops::_to_dim_order_copy.out"
CLONE_DIM_ORDER = "dim_order_ops::_clone_dim_order.out"


def castable(v, shape, dtype, to):
    """Negative floats have no defined value as unsigned integers."""
    return v.tensor(shape, dtype, 0, 9) if to == U8 and dtype.is_floating_point else v.tensor(shape, dtype)


def identities(cases):
    for name in [f"aten::{n}.out" for n in IDENTITY] + ["aten::clone.out", "et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out", CLONE_DIM_ORDER]:
        v = Values(name)
        for dtype in EVERY:
            cases.call(name, v.tensor((2, 3), dtype), _name="dtype")
        for shape in SHAPES:
            cases.call(name, v.tensor(shape), _name=f"rank{len(shape)}")
        cases.call(name, specials(F32), _name="special")
        if name in (CLONE_DIM_ORDER, "aten::clone.out"):
            continue
        # Views keep the strides of what they copy only in these.
        cases.call(name, channels_last(v.tensor((1, 3, 2, 2))), _name="channels-last")
    v = Values("clone")
    for shape in ((2, 3, 2, 2), (1, 2, 3, 1)):
        for t in (v.tensor(shape), channels_last(v.tensor(shape)), channels_last(v.tensor(shape, I64))):
            for fmt in (torch.contiguous_format, torch.preserve_format, torch.channels_last, None):
                cases.call("aten::clone.out", t, memory_format=fmt, _name="format")
            for order in (None, [0, 1, 2, 3], [0, 2, 3, 1]):
                cases.call(CLONE_DIM_ORDER, t, dim_order=order, _name="order")
    for fmt in (torch.contiguous_format, torch.channels_last_3d):
        cases.call("aten::clone.out", v.tensor((1, 2, 2, 2, 2)), memory_format=fmt, _name="format-3d")


def casts(cases):
    for name in (CAST, CAST_DIM_ORDER):
        v = Values(name)
        for a, b in itertools.product(REALB, REALB):
            cases.call(name, castable(v, (6,), a, b), dtype=b, _name="cast")
        for a, b in itertools.product(FLOATS, FLOATS):
            cases.call(name, specials(a), dtype=b, _name="special")
        for a, b in itertools.product(INT, INT + FLOATS + (BOOL,)):
            cases.call(name, specials(a), dtype=b, _name="extremes")
        for dtype in (F64, F32):
            ties = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, 2**-25, 3 * 2**-25, 1 + 2**-8, 1 + 3 * 2**-8], dtype=dtype)
            for b in (F16, BF16):
                cases.call(name, ties, dtype=b, _name="ties")
        for shape in SHAPES:
            cases.call(name, v.tensor(shape), dtype=F64, _name=f"rank{len(shape)}")
        for t in (v.tensor((1, 3, 2, 2)), channels_last(v.tensor((2, 3, 2, 2)))):
            for dtype in (F32, F16, I32):
                if name == CAST:
                    for fmt in (torch.contiguous_format, torch.channels_last, torch.preserve_format):
                        cases.call(name, t, dtype=dtype, memory_format=fmt, _name="format")
                else:
                    for order in ([0, 1, 2, 3], [0, 2, 3, 1], None):
                        cases.call(name, t, dtype=dtype, dim_order=order, _name="order")
    v = Values("complex casts")
    for a, b in itertools.product(COMPLEX, COMPLEX):
        cases.call(CAST_DIM_ORDER, v.tensor((3, 2), a), dtype=b, _name="complex")
    for a, b in itertools.product((F32, F64), COMPLEX):
        cases.call(CAST_DIM_ORDER, v.tensor((3, 2), a), dtype=b, _name="real-to-complex")
    for dtype, shape in itertools.product(COMPLEX, SHAPES):
        cases.call("aten::view_as_real_copy.out", v.tensor(shape, dtype), _name=f"rank{len(shape)}")


def copies(cases):
    v = Values("copy")
    for op in ("aten::copy.out", "aten::copy_"):
        for a, b in itertools.product(REALB, REALB):
            cases.call(op, v.tensor((5,), a), castable(v, (5,), b, a), _name="cast")
        for a, b in (((2, 3), (3,)), ((2, 3), ()), ((), ()), ((0, 2), (2,)), ((2, 4, 3), (4, 1)), ((2, 1, 2, 1, 2), (1, 2)), ((39,), (39,)), ((2, 3), (1, 3))):
            cases.call(op, v.tensor(a), v.tensor(b), _name="broadcast")
        cases.call(op, v.tensor((1, 3, 2, 2)), channels_last(v.tensor((1, 3, 2, 2))), _name="from-channels-last")
        cases.call(op, channels_last(v.tensor((1, 3, 2, 2))), v.tensor((1, 3, 2, 2)), _name="to-channels-last")
        cases.call(op, v.tensor((4,)), v.tensor((4,)), True, _name="non-blocking")


def empties(cases):
    for dtype, (shape, order) in itertools.product(
        (F32, I64, BOOL, U8, BF16, I8, I32, C64, C128), (((), []), ((2, 3), [0, 1]), ((1, 2, 2, 3), [0, 2, 3, 1]), ((0, 2), None))
    ):
        cases.call("dim_order_ops::_empty_dim_order.out", shape, dtype=dtype, dim_order=order, _check="shape", _name="shape")


def generate(cases):
    identities(cases)
    casts(cases)
    copies(cases)
    empties(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F16, I64, I32, BOOL, C64), numel=130, per_dtype=4)
