"""Comparisons, logical and bitwise operators."""

import itertools
import math

import torch

from . import opinfo
from .values import BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, I8, INT, REALB, U8, Values, channels_last, specials

# All pairs of dtypes are a hundred cases.
PER_OPERATOR = 220
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
SHIFT = ("bitwise_left_shift", "bitwise_right_shift")
OPERATORS = (
    [f"aten::{n}.Tensor_out" for n in COMPARE + BITWISE + SHIFT]
    + [f"aten::{n}.Scalar_out" for n in COMPARE + BITWISE]
    + [f"aten::{n}.Tensor_Scalar_out" for n in SHIFT]
    + [f"aten::{n}.out" for n in LOGICAL]
)
INTB = INT + (BOOL,)
SHAPES = (((3, 4), (4,)), ((), (2, 3)), ((2, 1, 3), (4, 1)), ((0, 3), (3,)), ((2, 1, 2, 1, 2), (3, 1, 2, 1)), ((), ()), ((45,), (45,)))


def few(v, shape, dtype):
    """A narrow range, so that equal pairs occur."""
    return v.tensor(shape, dtype, *((-2, 2) if dtype not in FLOATS else (-1, 1)))


def layouts(cases, op, v, dtype):
    for a, b in SHAPES:
        cases.call(op, few(v, a, dtype), few(v, b, dtype), _name="broadcast")
    t = few(v, (2, 3, 2, 2), dtype)
    cases.call(op, channels_last(t), channels_last(few(v, (2, 3, 2, 2), dtype)), _name="channels-last")


def comparisons(cases, name):
    op = f"aten::{name}.Tensor_out" if name in COMPARE else f"aten::{name}.out"
    v = Values(op)
    for a, b in itertools.product(REALB, REALB):
        cases.call(op, few(v, (7,), a), few(v, (7,), b), _name="promote")
    layouts(cases, op, v, F32)
    for dtype in FLOATS:
        a, b = torch.cartesian_prod(specials(dtype)[:8], specials(dtype)[:8]).unbind(1)
        cases.call(op, a.contiguous(), b.contiguous(), _name="special")
    for dtype in INT:
        cases.call(op, specials(dtype), specials(dtype).flip(0), _name="extremes")
    for dtype, out in itertools.product((F32, I32, BOOL), (U8, I64, F32, F16)):
        cases.call(op, few(v, (2, 3), dtype), few(v, (2, 3), dtype), _out=out, _name="out-dtype")
    cases.call(op, torch.tensor([2**53 + 1, 2**24 + 1, 5]), torch.tensor([2.0**53, 2.0**24, 5.0], dtype=F64), _name="precision")


def scalar_comparisons(cases, name):
    op = f"aten::{name}.Scalar_out"
    v = Values(op)
    for dtype, n in itertools.product(REALB, (0, 1, -2, 0.5, True, 3.0)):
        cases.call(op, few(v, (7,), dtype), n, _name="scalar")
    for n in (math.nan, math.inf, -math.inf, 0.0):
        for dtype in (F32, F16):
            cases.call(op, specials(dtype), n, _name="special")
    for shape in ((), (0,), (2, 1, 3), (2, 1, 2, 1, 2), (41,)):
        cases.call(op, few(v, shape, F32), 0, _name=f"rank{len(shape)}")
    cases.call(op, channels_last(few(v, (1, 3, 2, 2), F32)), 0.5, _name="channels-last")
    for out in (U8, I64, F32, F16):
        cases.call(op, few(v, (2, 3), F32), 0.25, _out=out, _name="out-dtype")


def bitwise(cases, name):
    op = f"aten::{name}.Tensor_out"
    v = Values(op)
    for a, b in itertools.product(INTB, INTB):
        cases.call(op, v.tensor((7,), a), v.tensor((7,), b), _name="promote")
    for dtype in INT:
        a, b = torch.cartesian_prod(specials(dtype), specials(dtype)).unbind(1)
        cases.call(op, a.contiguous(), b.contiguous(), _name="extremes")
    layouts(cases, op, v, I32)
    for dtype, n in itertools.product(INTB, (0, 1, -1, 6, True, 255)):
        cases.call(f"aten::{name}.Scalar_out", v.tensor((7,), dtype), n, _name="scalar")
    for shape in ((), (0,), (2, 1, 3), (2, 1, 2, 1, 2), (41,)):
        cases.call(f"aten::{name}.Scalar_out", v.tensor(shape, I64), 5, _name=f"rank{len(shape)}")
    for dtype, out in ((I32, I64), (U8, I32), (I8, F32), (BOOL, U8)):
        cases.call(op, v.tensor((4,), dtype), v.tensor((4,), dtype), _out=out, _name="out-dtype")
        cases.call(f"aten::{name}.Scalar_out", v.tensor((4,), dtype), 3, _out=out, _name="out-dtype")


def shifts(cases, name):
    op = f"aten::{name}.Tensor_out"
    v = Values(op)
    for a, b in itertools.product(INT, INT):
        cases.call(op, v.tensor((9,), a), v.tensor((9,), b, 0, 6), _name="promote")
    for dtype in INT:
        bits = torch.iinfo(dtype).bits
        cases.call(op, specials(dtype), torch.arange(len(specials(dtype))).to(dtype) % bits, _name="extremes")
        # PyTorch defines shifts by the width or more, and by negative counts.
        cases.call(op, specials(dtype)[:5], torch.tensor([bits - 1, bits, bits + 1, 100, 1]).to(dtype), _name="wide")
        if dtype != U8:
            cases.call(op, specials(dtype)[:3], torch.tensor([-1, -bits, -100], dtype=dtype), _name="negative-count")
        for n in (0, 1, 3, bits - 1, bits):
            cases.call(f"aten::{name}.Tensor_Scalar_out", v.tensor((7,), dtype), n, _name="scalar")
    for a, b in SHAPES:
        cases.call(op, v.tensor(a, I32), v.tensor(b, I32, 0, 5), _name="broadcast")
    for shape in ((), (0,), (2, 1, 3), (2, 1, 2, 1, 2), (41,)):
        cases.call(f"aten::{name}.Tensor_Scalar_out", v.tensor(shape, I64), 2, _name=f"rank{len(shape)}")


def generate(cases):
    for name in COMPARE + LOGICAL:
        comparisons(cases, name)
    for name in COMPARE:
        scalar_comparisons(cases, name)
    for name in BITWISE:
        bitwise(cases, name)
    for name in SHIFT:
        shifts(cases, name)
    sources = COMPARE + LOGICAL + BITWISE + SHIFT
    opinfo.collect(cases, sources, OPERATORS, (F32, F64, F16, BF16, I64, I32, U8, BOOL), numel=130, per_dtype=3)
