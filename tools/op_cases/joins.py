"""Joining, splitting and padding."""

import itertools

from . import opinfo
from .values import BF16, BOOL, C64, EVERY, F16, F32, F64, I32, I64, I8, REALB, U8, Values, channels_last

NAMES = (
    "cat.out stack.out split_copy.Tensor_out split_with_sizes_copy.out unbind_copy.int_out constant_pad_nd.out reflection_pad1d.out "
    "reflection_pad2d.out reflection_pad3d.out replication_pad1d.out replication_pad2d.out replication_pad3d.out"
).split()
OPERATORS = [f"aten::{n}" for n in NAMES]
SOURCES = (
    "cat stack hstack vstack split split_with_sizes unbind chunk tensor_split unbind_copy split_with_sizes_copy split_copy "
    "nn.functional.pad constant_pad_nd block_diag column_stack"
).split()


def cats(cases):
    op = "aten::cat.out"
    v = Values(op)
    for dtype in EVERY:
        cases.call(op, [v.tensor((2, 3), dtype), v.tensor((2, 1), dtype)], 1, _name="dtype")
    for a, b in itertools.product(REALB, (F32, I64, F16, BOOL, U8, BF16, F64)):
        cases.call(op, [v.tensor((2,), a), v.tensor((3,), b)], 0, _name="promote")
    for shapes, dim in (
        ([(2, 3)], 0), ([(2, 3), (4, 3), (1, 3)], 0), ([(2, 3), (2, 1)], -1), ([(0,), (2, 3)], 0), ([(2, 3), (0,)], 1), ([(0, 3), (2, 3)], 0),
        ([(2, 1, 2), (2, 3, 2)], 1), ([(2, 2, 1, 3), (2, 2, 2, 3)], 2), ([(1, 2, 1, 2, 2)] * 3, -2), ([(0,), (0,)], 0), ([(17,), (21,)], 0),
        ([(1, 1)] * 6, 1),
    ):  # fmt: skip
        for dtype in (F32, I32, F16):
            cases.call(op, [v.tensor(s, dtype) for s in shapes], dim, _name=f"dim{dim}")
    for dim in (0, 1, 3):
        cases.call(op, [channels_last(v.tensor((2, 2, 2, 2))) for _ in range(2)], dim, _name="channels-last")
    op = "aten::stack.out"
    v = Values(op)
    for dtype in REALB:
        cases.call(op, [v.tensor((2, 3), dtype), v.tensor((2, 3), dtype)], 1, _name="dtype")
    for a, b in ((F32, I64), (F16, F32), (U8, I8), (BOOL, I32), (F16, BF16)):
        cases.call(op, [v.tensor((2,), a), v.tensor((2,), b)], 0, _name="promote")
    for shape, dim in (((), 0), ((3,), 0), ((3,), -1), ((2, 3), 2), ((2, 3), -3), ((0, 2), 1), ((2, 1, 3), 1), ((2, 2, 1, 2), 4), ((19,), 1)):
        for count in (1, 3):
            cases.call(op, [v.tensor(shape) for _ in range(count)], dim, _name=f"dim{dim}")


def splits(cases):
    v = Values("split")
    for dtype in REALB:
        cases.call("aten::split_copy.Tensor_out", v.tensor((5, 2), dtype), 2, 0, _name="dtype")
        cases.call("aten::split_with_sizes_copy.out", v.tensor((5, 2), dtype), (1, 4), 0, _name="dtype")
        cases.call("aten::unbind_copy.int_out", v.tensor((3, 2), dtype), 0, _name="dtype")
    for shape, size, dim in (((6,), 2, 0), ((2, 7), 3, 1), ((2, 7), 10, -1), ((2, 3, 4), 1, -2), ((0, 4), 2, 1), ((2, 2, 2, 4), 3, 3), ((1, 2, 1, 2, 3), 2, 4), ((0,), 2, 0), ((29,), 8, 0)):
        for dtype in (F32, I64, F16):
            cases.call("aten::split_copy.Tensor_out", v.tensor(shape, dtype), size, dim, _name=f"dim{dim}")
    for shape, sizes, dim in (((6,), (2, 4), 0), ((2, 7), (0, 7), 1), ((2, 7), (3, 2, 2), -1), ((2, 3, 4), (1, 1, 1), -2), ((0, 4), (2, 2), 1), ((2, 2, 2, 4), (3, 1), 3), ((1, 2, 1, 2, 3), (3,), 4), ((29,), (9, 20), 0)):
        for dtype in (F32, I64, F16):
            cases.call("aten::split_with_sizes_copy.out", v.tensor(shape, dtype), sizes, dim, _name=f"dim{dim}")
    for shape, dim in (((3,), 0), ((2, 3), 1), ((2, 3), -1), ((2, 3, 2), 1), ((1, 4), 0), ((3, 0), 0), ((2, 2, 3, 2), -2), ((1, 2, 2, 1, 3), 4), ((2, 17), 0)):
        for dtype in (F32, I64, F16):
            cases.call("aten::unbind_copy.int_out", v.tensor(shape, dtype), dim, _name=f"dim{dim}")


def pads(cases):
    op = "aten::constant_pad_nd.out"
    v = Values(op)
    for dtype in REALB:
        for value in (0, 1, -2.5 if dtype.is_floating_point else 3, True):
            cases.call(op, v.tensor((2, 3), dtype), (1, 2), value, _name="value")
    for shape, pad in (((3,), (1, 1)), ((2, 3), (0, 0, 1, 2)), ((2, 3), (2, 1, 1, 0)), ((2, 3), (-1, 1)), ((2, 3), (0, -2, -1, 0)), ((2, 1, 3), (1, 1, 1, 1, 1, 1)), ((), ()), ((0, 2), (1, 1)), ((2, 3, 2, 2), (1, 0, 0, 1)), ((1, 1, 2, 2, 3), (1, 1, 0, 1)), ((2, 2), ()), ((11,), (5, 9))):
        for value in (0, 1.5):
            cases.call(op, v.tensor(shape), pad, value, _name=f"rank{len(shape)}")
    cases.call(op, channels_last(v.tensor((2, 3, 2, 2))), (1, 1, 2, 0), 0.5, _name="channels-last")
    for n, rows in PADS.items():
        for kind, dtypes in (("reflection", EVERY), ("replication", EVERY)):
            op = f"aten::{kind}_pad{n}d.out"
            v = Values(op)
            for dtype in dtypes:
                shape, pad = rows[0]
                boolean = {"_as": U8} if dtype == BOOL else {}
                cases.call(op, v.tensor(shape, dtype), pad, **boolean, _name="dtype")
            for shape, pad in rows:
                for dtype in (F32, I64, F16):
                    cases.call(op, v.tensor(shape, dtype), pad, _name=f"rank{len(shape)}")
                if len(shape) == 4 and n == 2:
                    cases.call(op, channels_last(v.tensor(shape)), pad, _name="channels-last")


PADS = {
    1: [((2, 4), (1, 2)), ((1, 2, 5), (3, 0)), ((2, 3, 3), (0, 0)), ((1, 6), (-1, 2)), ((2, 1, 4), (2, -1)), ((3, 7), (6, 6)), ((0, 2, 3), (1, 1))],
    2: [((1, 3, 4), (1, 2, 1, 1)), ((1, 2, 3, 3), (2, 0, 0, 2)), ((2, 3, 3), (0, 0, 0, 0)), ((2, 1, 4, 3), (-1, 1, 1, -1)), ((1, 1, 5, 5), (4, 4, 4, 4)), ((0, 1, 3, 3), (1, 1, 1, 1))],
    3: [((1, 2, 3, 3), (1, 1, 2, 0, 1, 0)), ((1, 2, 2, 2, 3), (1, 0, 1, 1, 0, 1)), ((2, 1, 3, 2, 2), (0, 0, 0, 0, 0, 0)), ((1, 1, 3, 3, 3), (2, 2, 2, 2, 2, 2)), ((1, 1, 3, 4, 4), (-1, 1, 0, 2, 1, -1))],
}  # fmt: skip


def generate(cases):
    cats(cases)
    splits(cases)
    pads(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F16, I64, BOOL, C64, I32, BF16), numel=200, per_dtype=4)
