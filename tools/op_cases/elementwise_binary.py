"""Arithmetic of two tensors or of a tensor and a number."""

import itertools
import math

import torch

from . import opinfo
from .values import BF16, BOOL, C64, F16, F32, F64, FLOATS, I16, I32, I64, I8, INT, REALB, U8, Values, channels_last, specials

TENSOR = {
    "add": "add.out", "sub": "sub.out", "mul": "mul.out", "div": "div.out", "floor_divide": "floor_divide.out",
    "fmod": "fmod.Tensor_out", "remainder": "remainder.Tensor_out", "pow": "pow.Tensor_Tensor_out", "maximum": "maximum.out",
    "minimum": "minimum.out", "atan2": "atan2.out", "div_mode": "div.out_mode",
}  # fmt: skip
SCALAR = {
    "add": "add.Scalar_out", "sub": "sub.Scalar_out", "mul": "mul.Scalar_out", "div": "div.Scalar_out", "fmod": "fmod.Scalar_out",
    "remainder": "remainder.Scalar_out", "pow": "pow.Tensor_Scalar_out", "rsub": "rsub.Scalar_out", "div_mode": "div.Scalar_mode_out",
}  # fmt: skip
# All pairs of dtypes are a hundred cases.
PER_OPERATOR = 220
OPERATORS = [f"aten::{n}" for n in list(TENSOR.values()) + list(SCALAR.values()) + ["pow.Scalar_out"]]
SOURCES = ["add", "sub", "mul", "div", "floor_divide", "fmod", "remainder", "pow", "maximum", "minimum", "atan2", "rsub", "true_divide", "float_power"]
MODES = (None, "trunc", "floor")
BROADCAST = (
    ((3, 4), (4,)), ((3, 4), (3, 1)), ((3, 4), ()), ((), (3, 4)), ((2, 1, 3), (4, 1)), ((1,), (5,)), ((0, 3), (3,)), ((0,), (1,)),
    ((2, 3, 2, 2), (1, 3, 1, 1)), ((2, 1, 2, 1, 2), (3, 1, 2, 1)), ((), ()), ((5, 1), (1, 6)),
)  # fmt: skip


def modes(kind):
    return [{"rounding_mode": m} for m in MODES] if kind == "div_mode" else [{}]


def safe_divisor(kind, t):
    """Integer division by zero is an error in PyTorch, so that a divisor of zero becomes one."""
    if kind in ("floor_divide", "fmod", "remainder", "div_mode") and not t.dtype.is_floating_point:
        return torch.where(t == 0, torch.ones_like(t), t)
    return t


def operand(v, kind, shape, dtype, second):
    if kind == "pow" and second:
        return v.tensor(shape, dtype, 0, 3) if dtype not in FLOATS else v.tensor(shape, dtype, -3, 3)
    if kind == "pow":
        return v.tensor(shape, dtype, -6 if dtype not in FLOATS else 0.1, 6)
    return safe_divisor(kind, v.tensor(shape, dtype)) if second else v.tensor(shape, dtype)


def tensor_edges(cases, kind):
    op = f"aten::{TENSOR[kind]}"
    v = Values(op)
    for mode in modes(kind):
        for a, b in itertools.product(REALB, REALB) if kind != "div_mode" else [(d, d) for d in REALB] + [(F32, I64), (U8, I8), (I32, F16), (BOOL, I64)]:
            cases.call(op, operand(v, kind, (5,), a, False), operand(v, kind, (5,), b, True), **mode, _name="promote")
        for a, b in BROADCAST:
            cases.call(op, operand(v, kind, a, F32, False), operand(v, kind, b, F32, True), **mode, _name="broadcast")
        for dtype in FLOATS:
            s = specials(dtype)[:13]
            grid = torch.cartesian_prod(s, s)
            cases.call(op, grid[:, 0].contiguous(), grid[:, 1].contiguous(), **mode, _name="special-pairs")
            cases.call(op, specials(dtype), specials(dtype).flip(0), **mode, _name="special")
        for dtype in INT:
            s = specials(dtype)
            a, b = torch.cartesian_prod(s, s).unbind(1)
            if kind == "pow":
                a, b = a[b >= 0], b[b >= 0].clamp(max=9)
            if kind in ("floor_divide", "fmod", "remainder", "div_mode"):
                # The one quotient that does not fit its type traps in PyTorch.
                fits = ~((a == torch.iinfo(dtype).min) & (b == -1))
                a, b = a[fits], b[fits]
            cases.call(op, a.contiguous(), safe_divisor(kind, b).contiguous(), **mode, _name="overflow")
        t = operand(v, kind, (2, 3, 2, 2), F32, False)
        cases.call(op, channels_last(t), channels_last(operand(v, kind, (2, 3, 2, 2), F32, True)), **mode, _name="channels-last")
        cases.call(op, channels_last(t), operand(v, kind, (), F32, True), **mode, _name="channels-last-scalar")
        cases.call(op, operand(v, kind, (97,), F32, False), operand(v, kind, (97,), F32, True), **mode, _name="long")
        cases.call(op, operand(v, kind, (3,), F32, False), operand(v, kind, (), F64, True), **mode, _name="rank0-wider")
        cases.call(op, operand(v, kind, (3,), I32, False), operand(v, kind, (), I64, True), **mode, _name="rank0-wider")
        cases.call(op, operand(v, kind, (3,), I64, False), operand(v, kind, (), F32, True), **mode, _name="rank0-float")
        for dtype, out in ((F32, F64), (F32, F16), (I32, F32), (I32, I64), (F64, BF16), (U8, I32)):
            cases.call(op, operand(v, kind, (2, 3), dtype, False), operand(v, kind, (2, 3), dtype, True), **mode, _out=out, _name="out-dtype")


def scalar_edges(cases, kind):
    op = f"aten::{SCALAR[kind]}"
    v = Values(op)
    numbers = (2, -3, 0.5, -1.25, True, 0)
    for mode in modes(kind):
        for dtype in REALB + (C64,):
            for n in numbers:
                if n == 0 and kind in ("fmod", "remainder", "div_mode") and dtype not in FLOATS:
                    continue
                cases.call(op, operand(v, kind, (6,), dtype, False), n, **mode, _name="scalar")
        for n in (math.nan, math.inf, -math.inf, 0.0, -0.0):
            cases.call(op, specials(F32), n, **mode, _name="special")
        cases.call(op, specials(F16), 3, **mode, _name="special")
        for shape in ((), (0,), (2, 1, 3), (2, 1, 2, 1, 2), (41,)):
            cases.call(op, operand(v, kind, shape, F32, False), 3, **mode, _name=f"rank{len(shape)}")
        cases.call(op, channels_last(operand(v, kind, (1, 3, 2, 2), F32, False)), 2.5, **mode, _name="channels-last")
        if kind not in ("fmod", "remainder", "div_mode", "pow"):
            for dtype in INT:
                cases.call(op, specials(dtype), 100, **mode, _name="overflow")
        for dtype, out in ((F32, F64), (I32, F32), (I64, F16), (F32, BF16)):
            cases.call(op, operand(v, kind, (4,), dtype, False), 3, **mode, _out=out, _name="out-dtype")


def alphas(cases):
    v = Values("alpha")
    for name in ("add", "sub"):
        for dtype, alpha in ((F32, 2), (F32, -0.5), (I32, 3), (I64, -2), (F16, 0.25), (BF16, 2), (F64, 1.5), (U8, 2), (I8, 7), (I16, 100)):
            cases.call(f"aten::{name}.out", v.tensor((2, 3), dtype), v.tensor((3,), dtype), alpha=alpha, _name="alpha")
            cases.call(f"aten::{name}.Scalar_out", v.tensor((2, 3), dtype), 5, alpha, _name="alpha")
            cases.call(f"aten::rsub.Scalar_out", v.tensor((2, 3), dtype), 5, alpha, _name="alpha")
        cases.call(f"aten::{name}.out", v.tensor((4,), I32), v.tensor((4,), F32), alpha=1.5, _name="alpha-promote")


def scalar_bases(cases):
    """pow with a number as its base."""
    op = "aten::pow.Scalar_out"
    v = Values(op)
    for dtype in REALB:
        for base in (2, 3, 0.5, 1, 0, 2.5, True):
            cases.call(op, base, v.tensor((6,), dtype, 0, 4), _name="base")
    for base in (-2.0, math.inf, math.nan, -1, 10):
        cases.call(op, base, specials(F32), _name="special")
    for shape in ((), (0, 2), (2, 1, 3), (2, 3, 1, 2), (2, 1, 2, 1, 2), (33,)):
        cases.call(op, 1.5, v.tensor(shape), _name=f"rank{len(shape)}")
    cases.call(op, 2, channels_last(v.tensor((1, 2, 2, 2))), _name="channels-last")


def complexes(cases):
    v = Values("complex")
    for name in ("add.out", "mul.out", "sub.out", "div.out"):
        cases.call(f"aten::{name}", v.tensor((2, 3), C64), v.tensor((2, 3), C64), _name="complex")
        cases.call(f"aten::{name}", v.tensor((2, 3), C64), v.tensor((3,), F32), _name="complex-real")
    cases.call("aten::add.out", v.tensor((2, 3), C64), v.tensor((2, 3), C64), alpha=2, _name="complex-alpha")


def generate(cases):
    for kind in TENSOR:
        tensor_edges(cases, kind)
    for kind in SCALAR:
        scalar_edges(cases, kind)
    alphas(cases)
    scalar_bases(cases)
    complexes(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F64, F16, BF16, I64, I32, U8, BOOL), numel=130, per_dtype=3)
