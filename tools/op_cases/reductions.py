"""Reductions, cumulative sums, and the positions of extremes."""

import torch

from . import opinfo
from .values import BF16, BOOL, C64, F16, F32, F64, FLOATS, I32, I64, I8, INT, REAL, REALB, U8, Values, channels_last, specials

PER_OPERATOR = 220
OPERATORS = [
    f"aten::{n}"
    for n in (
        "sum.IntList_out mean.out mean.dtype_out prod.out prod.int_out amax.out amin.out any.all_out any.dims_out any.out argmax.out argmin.out "
        "max.dim_max max.unary_out min.dim_min min.unary_out var.out var.correction_out var_mean.correction_out cumsum.out topk.values"
    ).split()
]
SOURCES = "sum mean prod amax amin any argmax argmin max min max_reduction_no_dim max_reduction_with_dim min_reduction_no_dim min_reduction_with_dim var std var_mean std_mean cumsum topk aminmax nansum".split()
# Rounding errors scale with the sum of the magnitudes of what these accumulate.
ACCUMULATING = ("sum.IntList_out", "mean.out", "mean.dtype_out", "cumsum.out")
DIMS = (
    ((2, 3), [0]), ((2, 3), [1]), ((2, 3), [-1]), ((2, 3, 4), [1]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [0, 1, 2]), ((5,), [0]), ((), []), ((), [0]),
    ((2, 3), []), ((2, 0), [0]), ((2, 2, 3, 2), [1, 3]), ((2, 2, 3, 2), [-1, -2]), ((1, 2, 2, 3, 2), [2, 4]), ((3, 1), [1]), ((67,), [0]), ((3, 40), [1]), ((40, 3), [0]),
)  # fmt: skip
ONE_DIM = tuple((s, d) for s, d in DIMS if len(d) == 1)


def extra(name):
    return {"_mag": True} if name.removeprefix("aten::") in ACCUMULATING else {}


def over_dims(cases):
    """Reductions that take a list of dimensions."""
    for name, dtypes in (
        ("sum.IntList_out", REALB), ("mean.out", FLOATS), ("amax.out", REALB), ("amin.out", REALB), ("any.dims_out", REALB), ("var.out", FLOATS),
        ("var.correction_out", FLOATS), ("var_mean.correction_out", FLOATS),
    ):  # fmt: skip
        op = f"aten::{name}"
        v = Values(op)
        unbiased = {"var.out": ([], {}), "var.correction_out": ([], {"correction": 1})}.get(name, ([], {}))[1]
        for dtype in dtypes:
            for keep in (False, True):
                cases.call(op, v.tensor((2, 5), dtype), [1], keepdim=keep, **unbiased, **extra(name), _name="dtype")
                cases.call(op, v.tensor((3, 2), dtype), [0], keepdim=keep, **unbiased, **extra(name), _name="dtype")
            cases.call(op, specials(dtype)[3:6], [0], **extra(name), _name="zeros")
            cases.call(op, v.tensor((2, 0, 3), dtype), [0], **extra(name), _name="empty-kept")
            cases.call(op, v.tensor((2, 0, 3), dtype), [1], **extra(name), _name="empty-reduced")
        for shape, dims in DIMS:
            for keep in (False, True):
                cases.call(op, v.tensor(shape), dims, keepdim=keep, **unbiased, **extra(name), _name=f"rank{len(shape)}")
        for keep in (False, True):
            for dims in ([1], [2, 3], [0], [-1, 1]):
                cases.call(op, channels_last(v.tensor((2, 3, 2, 2))), dims, keepdim=keep, **extra(name), _name="channels-last")
        for dtype in FLOATS:
            if dtype in dtypes:
                rows = torch.tensor([[1, float("nan"), 2], [float("inf"), 1, -1], [float("-inf"), float("inf"), 0], [-0.0, 0.0, -0.0]], dtype=dtype)
                # One pass over an infinity makes PyTorch's variance and its mean NaN.
                rows = rows[:1] if name.startswith("var") else rows
                cases.call(op, rows, [1], _name="special")
                cases.call(op, rows, [0], _name="special")
    v = Values("sum dtype")
    for dtype, to in ((F32, F64), (I32, F32), (U8, I64), (BOOL, I32), (F16, F32), (I64, F16), (F64, F32), (BF16, F64), (I8, U8), (F32, F16), (BOOL, F32)):
        t = v.tensor((2, 6), dtype, 0, 9) if to == U8 else v.tensor((2, 6), dtype)
        cases.call("aten::sum.IntList_out", t, [1], dtype=to, _mag=True, _name="to-dtype")
        cases.call("aten::sum.IntList_out", t, None, dtype=to, _mag=True, _name="to-dtype-all")
        cases.call("aten::mean.out", t, [1], dtype=to, _mag=True, _name="to-dtype")
        cases.call("aten::mean.dtype_out", t, dtype=to, _mag=True, _name="to-dtype")
        cases.call("aten::cumsum.out", t, 1, dtype=to, _mag=True, _name="to-dtype")
        cases.call("aten::prod.out", v.tensor((2, 3), dtype, 0, 3), dtype=to, _name="to-dtype")
        cases.call("aten::prod.int_out", v.tensor((2, 3), dtype, 0, 3), 1, dtype=to, _name="to-dtype")
    for dtype in INT:
        wrap = torch.full((5,), torch.iinfo(dtype).max, dtype=dtype)
        cases.call("aten::sum.IntList_out", wrap, [0], dtype=dtype, _name="overflow")
        cases.call("aten::cumsum.out", wrap, 0, dtype=dtype, _name="overflow")
        cases.call("aten::prod.out", wrap, dtype=dtype, _name="overflow")
    for dtype in (F32, F16, I32):
        cases.call("aten::sum.IntList_out", v.tensor((2, 3), dtype), None, _mag=True, _name="all")
        cases.call("aten::any.dims_out", v.tensor((2, 3), dtype, -1, 1), None, _name="all")
    cases.call("aten::sum.IntList_out", v.tensor((2, 3), C64), [0], _mag=True, _name="complex")
    cases.call("aten::sum.IntList_out", v.tensor((2, 3), C64), [0, 1], _mag=True, _name="complex")
    for out in (U8, BOOL):
        # PyTorch casts the elements to an out of u8 before it looks at them, so that 0.5 counts as zero; ExecuTorch does not.
        first = lambda bound, out=out: torch.any(bound["self"], 0).to(out)  # noqa: E731
        every = lambda bound, out=out: torch.any(bound["self"]).to(out)  # noqa: E731
        cases.call("aten::any.dims_out", v.tensor((2, 3), F32, -1, 1), [0], _expect=first, _name="out-dtype")
        cases.call("aten::any.out", v.tensor((2, 3), F32, -1, 1), 0, _expect=first, _name="out-dtype")
        cases.call("aten::any.all_out", v.tensor((2, 3), F32, -1, 1), _expect=every, _name="out-dtype")
    for correction in (0, 1, 2, 0.5, None, 5):
        for dims in ([0], [1], None, [0, 1]):
            for op in ("aten::var.correction_out", "aten::var_mean.correction_out"):
                cases.call(op, v.tensor((3, 4)), dims, correction=correction, _name="correction")
    for unbiased in (True, False):
        for dims in ([0], [1], None, [0, 1]):
            cases.call("aten::var.out", v.tensor((3, 4)), dims, unbiased, _name="unbiased")
            cases.call("aten::var.out", v.tensor((1, 1)), dims, unbiased, True, _name="single")
    # A large mean beside a small spread loses everything if the squares are summed.
    for op in ("aten::var.out", "aten::var.correction_out", "aten::var_mean.correction_out"):
        cases.call(op, v.tensor((50,), F32, 999, 1001), [0], _name="large-mean")


def over_one_dim(cases):
    """Reductions that take one dimension, with positions of extremes where there are ties."""
    for name, dtypes in (
        ("prod.int_out", REALB), ("any.out", REALB), ("argmax.out", REAL), ("argmin.out", REAL), ("max.dim_max", REALB), ("min.dim_min", REALB),
    ):  # fmt: skip
        op = f"aten::{name}"
        v = Values(op)
        low, high = (-1, 1) if name == "any.out" else (1, 3) if name.startswith("prod") else (-3, 3)
        for dtype in dtypes:
            for keep in (False, True):
                cases.call(op, v.tensor((2, 5), dtype, low, high), 1, keep, _name="dtype")
                cases.call(op, v.tensor((5, 2), dtype, low, high), 0, keep, _name="dtype")
            cases.call(op, torch.zeros(3, 4, dtype=dtype), 1, _name="ties")
        for shape, dims in ONE_DIM:
            for keep in (False, True):
                cases.call(op, v.tensor(shape, F32, low, high), dims[0], keep, _name=f"rank{len(shape)}")
        for keep in (False, True):
            for dim in (1, 3, 0):
                cases.call(op, channels_last(v.tensor((2, 3, 2, 2), F32, low, high)), dim, keep, _name="channels-last")
        for dtype in FLOATS:
            rows = torch.tensor([[1, float("nan"), 2], [float("inf"), 1, -1], [float("-inf"), float("inf"), 0], [float("nan"), float("nan"), 1], [-0.0, 0.0, -0.0]], dtype=dtype)
            cases.call(op, rows, 1, _name="special")
            cases.call(op, rows, 0, _name="special")


def over_all(cases):
    for name, dtypes in (
        ("mean.dtype_out", FLOATS), ("prod.out", REALB), ("any.all_out", REALB), ("max.unary_out", REALB), ("min.unary_out", REALB), ("argmax.out", REAL), ("argmin.out", REAL),
    ):  # fmt: skip
        op = f"aten::{name}"
        v = Values(op + "/all")
        low, high = (-1, 1) if name.startswith("any") else (0.5, 2) if name.startswith("prod") else (-4, 4)
        for dtype in dtypes:
            for shape in ((7,), (2, 3), ()):
                cases.call(op, v.tensor(shape, dtype, *((1, 3) if name == "prod.out" else (low, high))), **extra(name), _name="dtype")
        for shape in ((), (1,), (2, 3, 4), (2, 1, 2, 3), (1, 2, 1, 3, 2), (0,), (2, 0), (83,), (257,)):
            cases.call(op, v.tensor(shape, F32, low, high), **extra(name), _name=f"rank{len(shape)}")
        for dtype in FLOATS:
            cases.call(op, specials(dtype)[1:5], **extra(name), _name="special")
            cases.call(op, specials(dtype)[:5], **extra(name), _name="nan")
        cases.call(op, channels_last(v.tensor((1, 3, 2, 2), F32, low, high)), **extra(name), _name="channels-last")
        for value in (0, 1):
            cases.call(op, torch.full((3,), value, dtype=BOOL), _name="bool")
    v = Values("keep")
    for name in ("argmax.out", "argmin.out"):
        cases.call(f"aten::{name}", v.tensor((2, 3)), None, True, _name="keep")


def running(cases):
    op = "aten::cumsum.out"
    v = Values(op)
    for dtype in REALB:
        for dim in (0, 1):
            cases.call(op, v.tensor((3, 4), dtype), dim, _mag=True, _name="dtype")
    for shape, dims in ONE_DIM + (((), [-1]),):
        cases.call(op, v.tensor(shape), dims[0], _mag=True, _name=f"rank{len(shape)}")
    cases.call(op, specials(F32)[3:], 0, _name="special")
    cases.call(op, torch.tensor([1, float("inf"), 2, float("-inf"), 3]), 0, _name="infinities")
    cases.call(op, torch.tensor([1, float("nan"), 2]), 0, _name="nan")
    op = "aten::topk.values"
    v = Values(op)
    for dtype in REAL:
        for largest in (True, False):
            for k, dim in ((1, 0), (3, 1), (2, -1), (0, 1)):
                cases.call(op, v.distinct((4, 5), dtype), k, dim, largest, True, _name="dtype")
    for shape, dim in (((7,), 0), ((), 0), ((2, 3, 4), 1), ((2, 1, 3, 2), 2), ((1, 2, 1, 5, 2), 3), ((2, 0, 3), 2), ((61,), -1)):
        for largest in (True, False):
            k = 2 if shape and shape[dim] > 1 else 1
            cases.call(op, v.distinct(shape), k, dim, largest, True, _name=f"rank{len(shape)}")
            if shape and shape[dim] > 1:
                cases.call(op, v.distinct(shape), shape[dim], dim, largest, True, _name="whole")
    for dtype in FLOATS:
        t = torch.tensor([1.0, float("inf"), float("nan"), -2.0, float("-inf"), 3.0], dtype=dtype)
        for largest in (True, False):
            cases.call(op, t, 4, 0, largest, True, _name="special")


def generate(cases):
    over_dims(cases)
    over_one_dim(cases)
    over_all(cases)
    running(cases)
    sources = [s for s in SOURCES if s != "topk"]
    opinfo.collect(cases, sources, OPERATORS, (F32, F64, F16, BF16, I64, I32, U8, BOOL), numel=130, per_dtype=4, options=extra)


