"""Factories, fills and random tensors."""

import itertools
import math

import torch

from . import opinfo
from .values import BF16, BOOL, F16, F32, F64, FLOATS, I16, I32, I64, I8, REALB, SHAPES, U8, Values, channels_last

OPERATORS = [f"aten::{n}.out" for n in ("full", "full_like", "zeros", "ones", "arange", "scalar_tensor")] + [
    "aten::arange.start_out",
    "aten::fill.Scalar_out",
    "aten::fill.Tensor_out",
]
SOURCES = "full full_like zeros ones arange scalar_tensor fill new_full new_zeros new_ones linspace".split()
NUMBERS = (0, 1, -3, 2.75, True, 100)


def fills(cases):
    for dtype in REALB:
        for n in NUMBERS:
            if n == -3 and dtype == U8:
                continue
            cases.call("aten::full.out", (2, 3), n, dtype=dtype, _name="value")
            cases.call("aten::scalar_tensor.out", n, dtype=dtype, _name="value")
            v = Values(f"fill{dtype}{n}")
            cases.call("aten::full_like.out", v.tensor((2, 3), dtype), n, _name="value")
            cases.call("aten::fill.Scalar_out", v.tensor((2, 3), dtype), n, _name="value")
            cases.call("aten::fill.Tensor_out", v.tensor((2, 3), dtype), torch.tensor(n), _name="value")
        for name in ("zeros", "ones"):
            for shape in SHAPES[:4]:
                cases.call(f"aten::{name}.out", shape, dtype=dtype, _name="dtype")
    v = Values("fills")
    for shape in SHAPES + ((0,), (3, 0, 2), (2, 3, 4, 2, 1)):
        cases.call("aten::full.out", shape, 1.5, dtype=F32, _name=f"rank{len(shape)}")
        cases.call("aten::full_like.out", v.tensor(shape), 1.5, _name=f"rank{len(shape)}")
        cases.call("aten::fill.Scalar_out", v.tensor(shape), 1.5, _name=f"rank{len(shape)}")
        cases.call("aten::fill.Tensor_out", v.tensor(shape), torch.tensor(-2), _name=f"rank{len(shape)}")
        cases.call("aten::zeros.out", shape, dtype=F32, _name=f"rank{len(shape)}")
        cases.call("aten::ones.out", shape, dtype=F32, _name=f"rank{len(shape)}")
    for n in (math.nan, math.inf, -math.inf, -0.0):
        for dtype in FLOATS:
            cases.call("aten::full.out", (3,), n, dtype=dtype, _name="special")
            cases.call("aten::scalar_tensor.out", n, dtype=dtype, _name="special")
            cases.call("aten::full_like.out", v.tensor((3,), dtype), n, _name="special")
            cases.call("aten::fill.Scalar_out", v.tensor((3,), dtype), n, _name="special")
            cases.call("aten::fill.Tensor_out", v.tensor((3,), dtype), torch.tensor(n), _name="special")
    t = channels_last(v.tensor((1, 3, 2, 2)))
    cases.call("aten::full_like.out", t, 2, memory_format=torch.preserve_format, _name="channels-last")
    cases.call("aten::full_like.out", v.tensor((1, 3, 2, 2)), 2, memory_format=torch.channels_last, _name="to-channels-last")
    cases.call("aten::full_like.out", t, 2, memory_format=torch.contiguous_format, _name="to-contiguous")
    cases.call("aten::full_like.out", v.tensor((3,), F32), 2, dtype=I64, _name="out-dtype")
    cases.call("aten::full_like.out", v.tensor((3,), I32), 2, dtype=BF16, _name="out-dtype")
    cases.call("aten::fill.Scalar_out", t, 2, _name="channels-last")
    cases.call("aten::fill.Tensor_out", t, torch.tensor(2.5), _name="channels-last")
    for n in (2**31, 2**53 + 1, -(2**62), 1e300, 1e-320):
        cases.call("aten::scalar_tensor.out", n, dtype=F64 if isinstance(n, float) else I64, _name="wide")
        cases.call("aten::full.out", (2,), n, dtype=F64 if isinstance(n, float) else I64, _name="wide")


def ranges(cases):
    for dtype in (U8, I8, I16, I32, I64) + FLOATS:
        for end in (0, 1, 7, 33):
            cases.call("aten::arange.out", end, dtype=dtype, _name="end")
        for end in (4.5, 3.0, 0.25):
            if dtype.is_floating_point:
                cases.call("aten::arange.out", end, dtype=dtype, _name="float-end")
        for start, end, step in ((1, 7, 1), (0, 10, 3), (5, 5, 1), (2, 19, 4)):
            cases.call("aten::arange.start_out", start, end, step, dtype=dtype, _name="start")
        if dtype != U8:
            for start, end, step in ((7, -3, -2), (-5, 5, 2), (0, -6, -5)):
                cases.call("aten::arange.start_out", start, end, step, dtype=dtype, _name="negative")
        if dtype.is_floating_point:
            for start, end, step in ((0.5, 3.0, 0.5), (0.0, 1.0, 0.1), (1.0, -1.0, -0.3), (0, 2, 0.25)):
                cases.call("aten::arange.start_out", start, end, step, dtype=dtype, _name="fraction")


def shapes_only(cases):
    """Results without defined values: dtype and sizes are compared."""
    for dtype, shape in itertools.product((F32, I64, BOOL, F16, U8), ((), (0,), (2, 3), (1, 2, 2, 3, 1))):
        cases.call("aten::empty.out", shape, dtype=dtype, _check="shape", _name="shape")


def random(cases):
    torch.manual_seed(1)
    for dtype in FLOATS:
        for shape in ((1000,), (40, 25), (2, 3, 1, 150), (0,), (), (10, 10, 10, 1, 1)):
            check = {"_check": "uniform" if math.prod(shape) > 100 else "shape"}
            cases.call("aten::rand.out", shape, dtype=dtype, **check, _name="uniform")
            check = {"_check": "normal" if math.prod(shape) > 100 else "shape"}
            cases.call("aten::randn.out", shape, dtype=dtype, **check, _name="normal")
            v = Values(f"dropout{dtype}{shape}")
            t = v.tensor(shape, dtype, 1, 3)
            for p, train in ((0.25, True), (0.5, True), (0.75, False), (0.0, True), (1.0, True), (0.5, None)):
                plain = train is False or p in (0.0, 1.0)
                check = {} if plain else {"_check": "dropout" if t.numel() > 100 else "shape"}
                if not plain and t.numel() > 100 or t.numel() <= 100:
                    cases.call("aten::native_dropout.out", t, p, train, **check, _name=f"p{p}")


def generate(cases):
    fills(cases)
    ranges(cases)
    shapes_only(cases)
    random(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F16, I64, I32, BOOL), numel=130, per_dtype=4)
