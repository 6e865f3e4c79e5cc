"""Operators on numbers, sizes and views, with plain Python as their definition."""

import itertools
import math


from . import encode
from .values import BF16, BOOL, F16, F32, F64, I16, I32, I64, I8, REALB, U8, Values, channels_last

PRIM = "executorch_prim::"
INTS = (0, 1, 2, 7, -3, -8, 2**40, -(2**40))
FLOATS = (0.0, 0.5, -1.25, 3.0, -7.5, 1e12)
PAIRS = list(itertools.product(INTS[:6], INTS[:6])) + [(2**40, 3), (-(2**40), 7)] + list(itertools.product(FLOATS, FLOATS)) + list(itertools.product(INTS[:5], FLOATS[:4])) + list(itertools.product(FLOATS[:4], INTS[:5]))


def number(cases, name, args, result, label):
    cases.raw(PRIM + name, [encode.scalar(a) for a in args] + [{"out": 0}], [encode.scalar(result)], label)


def arithmetic(cases):
    binary = {
        "add.Scalar": lambda a, b: a + b, "sub.Scalar": lambda a, b: a - b, "mul.Scalar": lambda a, b: a * b,
        "sym_max.Scalar": max, "sym_min.Scalar": min, "floordiv.Scalar": lambda a, b: a // b, "truediv.Scalar": lambda a, b: a / b,
        "eq.Scalar": lambda a, b: a == b, "gt.Scalar": lambda a, b: a > b, "lt.Scalar": lambda a, b: a < b, "ge.Scalar": lambda a, b: a >= b, "le.Scalar": lambda a, b: a <= b,
    }  # fmt: skip
    for name, function in binary.items():
        for a, b in PAIRS:
            mixed = isinstance(a, float) != isinstance(b, float)
            if name in ("floordiv.Scalar", "truediv.Scalar") and b == 0:
                continue
            result = function(a, b)
            if name.startswith("sym_m") and mixed:
                result = float(result)
            if isinstance(result, int) and abs(result) >= 2**63:
                continue
            number(cases, name, (a, b), result, "mixed" if mixed else type(a).__name__)
    for name in ("eq.Scalar", "gt.Scalar", "lt.Scalar", "ge.Scalar", "le.Scalar"):
        for a, b in itertools.product((False, True), (False, True)):
            number(cases, name, (a, b), binary[name](a, b), "bool")
        for a, b in ((math.nan, 1.0), (math.inf, math.inf), (-math.inf, 0.0), (math.nan, math.nan)):
            number(cases, name, (a, b), binary[name](a, b), "special")
    for a, b in ((1.5, 0.0), (-2.0, 0.0), (3, 0.0)):
        number(cases, "floordiv.Scalar", (a, b), math.copysign(math.inf, a), "by-zero")


def remainders(cases):
    for a, b in itertools.product((0, 1, 5, 7, -7, -8, 2**40 + 1), (1, 2, 3, -3, 5, -1)):
        # Named after Python's operator, computed as C++ does: towards zero.
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        number(cases, "floordiv.int", (a, b), quotient, "towards-zero")
        number(cases, "mod.int", (a, b), a - quotient * b, "sign-of-dividend")
        if a >= 0 and b > 0:
            number(cases, "mod.Scalar", (a, b), a % b, "mod")


def unary(cases):
    for x in INTS + FLOATS:
        number(cases, "neg.Scalar", (x,), -x, "neg")
        number(cases, "sym_float.Scalar", (x,), float(x), "float")
        number(cases, "sym_int.Scalar", (x,), int(x), "int")
    for x in (0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, -0.49, 3.0, 1e12 + 0.5, -7.75, 0.51, 99.99):
        number(cases, "ceil.Scalar", (x,), math.ceil(x), "ceil")
        number(cases, "round.Scalar", (x,), round(x), "round")
        number(cases, "trunc.Scalar", (x,), math.trunc(x), "trunc")
    for x in (True, False):
        for n in range(5):
            cases.raw(PRIM + "sym_not.Scalar", [{"b": x}, {"out": 0}], [{"b": not x}], f"not-{n}")
        for a, b in ((1, 2), (-5, 7), (1.5, -2.5), (True, False), (False, True), (0, 0)):
            number(cases, "sym_ite.Scalar", (x, a, b), a if x else b, type(a).__name__)


def tensors(cases):
    v = Values("prim")
    some = [v.tensor((2, 3)), v.tensor((5,), I64), v.tensor(()), v.tensor((2, 0, 3), F16), channels_last(v.tensor((2, 3, 2, 4))), v.tensor((1, 2, 3, 1, 2), BOOL), v.tensor((7, 1), I32)]
    for t in some:
        dtypes = [encode.NAMES[t.dtype]]
        cases.raw("aten::sym_numel", [encode.tensor(t), {"out": 0}], [{"i": t.numel()}], f"rank{t.dim()}", dtypes)
        for d in range(-t.dim(), t.dim()):
            cases.raw("aten::sym_size.int", [encode.tensor(t), {"i": d}, {"out": 0}], [{"i": t.shape[d]}], f"dim{d}", dtypes)
    for n in range(1, 5):
        t = v.tensor((n, 2))
        cases.raw("aten::sym_numel", [encode.tensor(t), {"out": 0}], [{"i": 2 * n}], "rank2", ["f32"])
    for dtype in REALB:
        for shape in ((), (1,), (1, 1), (3,)):
            t = v.tensor(shape, dtype)
            cases.raw("aten::_local_scalar_dense", [encode.tensor(t), {"out": 0}], [encode.scalar(t.flatten()[0].item())], f"rank{len(shape)}", [encode.NAMES[dtype]])


def copies(cases):
    """`et_copy_index` writes one slice of the accumulated output of a loop; `et_view` aliases memory."""
    v = Values("copies")
    for dtype in (F32, F64, F16, BF16, I64, I32, I16, I8, U8, BOOL):
        for rows, inner, index in ((3, (2,), 1), (4, (), 3), (2, (3, 2), 0), (1, (2,), 0)):
            target, source = v.tensor((rows, *inner), dtype), v.tensor(inner, dtype)
            result = target.clone()
            # Running a loop's n-th step leaves n + 1 rows.
            result[index] = source
            result = result[: index + 1].contiguous()
            args = [{"inout": encode.tensor(target), "expect": 0}, encode.tensor(source), {"i": index}]
            cases.raw(PRIM + "et_copy_index.tensor", args, [encode.tensor(result)], f"row{index}", [encode.NAMES[dtype]])
        for shape, size in (((2, 6), [3, 4]), ((2, 6), [-1]), ((6,), [2, 3]), ((), [1, 1]), ((0, 3), [3, 0]), ((2, 3, 4), [2, -1]), ((1,), []), ((1, 2, 3, 1, 2), [12])):
            t = v.tensor(shape, dtype)
            args = [encode.tensor(t), {"il": size}, {"out": 0}]
            cases.raw(PRIM + "et_view.default", args, [encode.tensor(t.reshape(size))], f"rank{len(shape)}", [encode.NAMES[dtype]])


def generate(cases):
    arithmetic(cases)
    remainders(cases)
    unary(cases)
    tensors(cases)
    copies(cases)


