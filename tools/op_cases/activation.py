"""Activations, clamping and selection by a condition."""

import itertools
import math

import torch

from . import opinfo
from .values import BF16, BOOL, F16, F32, F64, FLOATS, I16, I32, I64, INT, REAL, REALB, U8, Values, channels_last, specials

OPERATORS = [f"aten::{n}.out" for n in ("elu", "gelu", "glu", "hardtanh", "leaky_relu", "logit", "clamp")] + [
    "aten::clamp.Tensor_out",
    "aten::where.self_out",
    "aten::masked_fill.Scalar_out",
]
SOURCES = (
    "nn.functional.elu nn.functional.gelu nn.functional.glu nn.functional.hardtanh nn.functional.leaky_relu nn.functional.selu "
    "nn.functional.celu nn.functional.relu6 nn.functional.hardswish logit clamp clamp_min clamp_max where masked_fill"
).split()
SHAPES = ((), (0,), (1,), (2, 4), (2, 1, 4), (2, 2, 1, 4), (2, 1, 2, 1, 4), (37,))


def shaped(cases, op, *args, low=-4, high=4, **kwargs):
    v = Values(op + "/shapes")
    for shape in SHAPES:
        cases.call(op, v.tensor(shape, F32, low, high), *args, **kwargs, _name=f"rank{len(shape)}")
    cases.call(op, channels_last(v.tensor((2, 3, 2, 2), F32, low, high)), *args, **kwargs, _name="channels-last")


def unary(cases, op, variants, dtypes=FLOATS, low=-4, high=4):
    """Every variant of an activation over dtypes, special values and shapes."""
    v = Values(op)
    for args, kwargs in variants:
        for dtype in dtypes:
            cases.call(op, v.tensor((2, 5), dtype, low, high), *args, **kwargs, _name="values")
            cases.call(op, specials(dtype), *args, **kwargs, _name="special")
        shaped(cases, op, *args, low=low, high=high, **kwargs)


def activations(cases):
    unary(cases, "aten::elu.out", [((), {}), ((0.5, 1.2, 1), {}), ((2, 1, 0.25), {}), ((-1.5,), {})])
    unary(cases, "aten::gelu.out", [((), {"approximate": "none"}), ((), {"approximate": "tanh"})], low=-8, high=8)
    unary(cases, "aten::hardtanh.out", [((), {}), ((0, 6), {}), ((-2.5, 3), {})], REAL)
    unary(cases, "aten::leaky_relu.out", [((), {}), ((0.5,), {}), ((-0.3,), {}), ((0,), {})])
    unary(cases, "aten::logit.out", [((), {}), ((0.1,), {}), ((0.0,), {})], FLOATS + INT + (BOOL,), 0.05, 0.95)
    # In half precision 1 - 1e-6 is 1.
    unary(cases, "aten::logit.out", [((1e-6,), {})], (F32, F64, I32), 0.05, 0.95)
    v = Values("glu")
    for dtype in FLOATS:
        for shape, dim in (((4,), 0), ((2, 6), -1), ((4, 3), 0), ((2, 4, 3), 1), ((2, 2, 4, 3), -2), ((1, 2, 1, 2, 6), 4), ((2, 0, 4), 2), ((6, 6), 1)):
            cases.call("aten::glu.out", v.tensor(shape, dtype), dim, _name=f"dim{dim}")
    cases.call("aten::glu.out", specials(F32)[:22].reshape(2, 11).repeat(1, 2), -1, _name="special")
    cases.call("aten::glu.out", channels_last(v.tensor((2, 4, 2, 2))), 1, _name="channels-last")


def clamps(cases):
    op = "aten::clamp.out"
    v = Values(op)
    bounds = ((-1, 2), (None, 1), (0, None), (-0.5, 1.5), (2, -2), (None, 0.5), (-3.7, None), (0, 6))
    for dtype, (low, high) in itertools.product(REAL, bounds):
        cases.call(op, v.tensor((2, 5), dtype), low, high, _name="bounds")
    for low, high in ((math.nan, 1.0), (-math.inf, 1.0), (0.0, math.inf), (-1.0, math.nan), (0.5, 0.75)):
        cases.call(op, specials(F32), low, high, _name="special")
        cases.call(op, specials(F16), low, high, _name="special")
    for dtype in INT:
        cases.call(op, specials(dtype), 0, 2, _name="extremes")
    cases.call(op, v.tensor((4,), BOOL), 0, 1, _name="bool")
    shaped(cases, op, -1.0, 1.0)
    for dtype, out in ((F32, F64), (F32, F16), (I32, F32), (U8, I64)):
        cases.call(op, v.tensor((5,), dtype), 1, 3, _out=out, _name="out-dtype")
    op = "aten::clamp.Tensor_out"
    v = Values(op)
    for dtype in REAL:
        low, high = v.tensor((5,), dtype), v.tensor((2, 1), dtype)
        for bound in ((low, high), (None, high), (low, None)):
            cases.call(op, v.tensor((2, 5), dtype), *bound, _name="bounds")
    for a, b in ((F32, F64), (I32, F32), (I64, I32), (F16, F32), (U8, I16), (F16, BF16), (I64, F16)):
        cases.call(op, v.tensor((2, 5), a), v.tensor((5,), b), v.tensor((), b), _name="promote")
    for shape in SHAPES:
        cases.call(op, v.tensor(shape), v.tensor(()), v.tensor((1,)), _name=f"rank{len(shape)}")
    for dtype in FLOATS:
        cases.call(op, specials(dtype), specials(dtype).flip(0), None, _name="special")
        cases.call(op, specials(dtype), None, specials(dtype).flip(0), _name="special")
    cases.call(op, channels_last(v.tensor((2, 3, 2, 2))), v.tensor(()), None, _name="channels-last")


def selections(cases):
    op = "aten::where.self_out"
    v = Values(op)
    for a, b in itertools.product(REALB, REALB):
        cases.call(op, v.tensor((6,), BOOL), v.tensor((6,), a), v.tensor((6,), b), _name="promote")
    for c, a, b in (((3,), (2, 3), ()), ((2, 1), (3,), (2, 3)), ((), (4,), (4,)), ((4,), (), ()), ((0,), (0,), (1,)), ((2, 1, 3), (4, 1), (1,)), ((), (), ()), ((2, 1, 1, 1, 2), (3, 1, 1), ())):
        cases.call(op, v.tensor(c, BOOL), v.tensor(a), v.tensor(b), _name="broadcast")
    for dtype in (F32, I64, F16):
        cases.call(op, v.tensor((6,), U8, 0, 2), v.tensor((6,), dtype), v.tensor((6,), dtype), _name="byte-condition")
    t = [channels_last(v.tensor((1, 3, 2, 2), d)) for d in (BOOL, F32, F32)]
    cases.call(op, *t, _name="channels-last")
    cases.call(op, v.tensor((25,), BOOL), specials(F32).repeat(2)[:25], torch.zeros(()), _name="special")
    cases.call(op, v.tensor((101,), BOOL), v.tensor((101,)), v.tensor((101,)), _name="long")
    op = "aten::masked_fill.Scalar_out"
    v = Values(op)
    for dtype, value in itertools.product(REALB, (0, 1, -2.5, True, math.inf, -math.inf, math.nan)):
        # A negative float has no defined value as an unsigned integer.
        if dtype != U8 or value != -2.5:
            cases.call(op, v.tensor((2, 5), dtype), v.tensor((2, 5), BOOL), value, _name="value")
    for a, b in (((2, 3), (3,)), ((2, 3), ()), ((), ()), ((0, 2), (2,)), ((2, 1, 3), (2, 4, 1)), ((3,), (2, 3)), ((2, 1, 2, 1, 2), (2,)), ((41,), (41,))):
        cases.call(op, v.tensor(a), v.tensor(b, BOOL), -1.5, _name="broadcast")
    cases.call(op, channels_last(v.tensor((1, 3, 2, 2))), v.tensor((1, 1, 2, 2), BOOL), 9, _name="channels-last")


def generate(cases):
    activations(cases)
    clamps(cases)
    selections(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F64, F16, BF16, I64, I32, U8, BOOL), numel=130, per_dtype=4)
