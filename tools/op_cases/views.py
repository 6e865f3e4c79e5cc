"""Operators that rearrange or select elements: the copying forms of ATen's views."""

import torch

from . import opinfo
from .values import BF16, BOOL, C64, EVERY, F16, F32, I32, I64, U8, Values, channels_last

NAMES = {
    "as_strided_copy.out", "diagonal_copy.out", "expand_copy.out", "narrow_copy.out", "permute_copy.out", "pixel_shuffle.out",
    "pixel_unshuffle.out", "select_copy.int_out", "slice_copy.Tensor_out", "squeeze_copy.dim_out", "squeeze_copy.dims_out", "t_copy.out",
    "transpose_copy.int_out", "unfold_copy.out", "unsqueeze_copy.out", "view_copy.out", "flip.out", "roll.out", "repeat.out", "tril.out",
    "repeat_interleave.Tensor_out",
}  # fmt: skip
OPERATORS = sorted(f"aten::{n}" for n in NAMES)
SOURCES = (
    "as_strided diagonal expand narrow permute nn.functional.pixel_shuffle nn.functional.pixel_unshuffle select slice squeeze t transpose "
    "unfold unsqueeze view reshape flip fliplr flipud roll repeat tile tril repeat_interleave swapaxes movedim flatten ravel T mT "
    "diagonal_copy permute_copy expand_copy squeeze_copy t_copy transpose_copy unfold_copy unsqueeze_copy view_copy as_strided_copy "
    "select_copy slice_copy narrow_copy alias_copy"
).split()

# Operator -> [(shape, arguments)], each tried in all dtypes for the first and a few for the rest.
CALLS = {
    "as_strided_copy.out": [
        ((2, 6), ((2, 3), (6, 2))), ((12,), ((3, 3), (1, 2), 2)), ((4, 3), ((3, 4), (1, 3), 0)), ((7,), ((), (), 3)), ((2, 3, 2), ((2, 2), (0, 1), 4)),
        ((6,), ((0, 2), (2, 1))), ((2, 2, 2, 2, 2), ((2, 2, 2), (16, 4, 1), 1)), ((10,), ((5, 6), (1, 1), 0)),
    ],
    "diagonal_copy.out": [
        ((3, 4), ()), ((3, 4), (1,)), ((3, 4), (-2,)), ((2, 3, 4), (0, 1, 2)), ((2, 3, 4), (1, -1, 0)), ((2, 3, 2, 2), (0, 3, 1)),
        ((3, 3), (5,)), ((0, 3), ()), ((1, 2, 2, 2, 3), (-1, 2, 4)),
    ],
    "expand_copy.out": [
        ((3, 1), ((3, 4),)), ((3,), ((2, 3),)), ((), ((2, 2),)), ((1,), ((5,),)), ((2, 1, 3), ((-1, 4, -1),)), ((1, 1), ((0, 3),)), ((2, 3), ((2, 3),)),
        ((1, 2, 1), ((2, 3, 2, 2),)), ((1, 2, 1, 1, 3), ((2, 2, 2, 2, 3),)), ((4, 1), ((2, -1, 3),)),
    ],
    "narrow_copy.out": [
        ((5, 3), (0, 1, 2)), ((5, 3), (1, 0, 3)), ((5, 3), (-1, 2, 1)), ((4,), (0, -2, 2)), ((4,), (0, 4, 0)), ((2, 3, 4), (1, 1, 2)),
        ((2, 2, 2, 3), (3, 0, 2)), ((1, 2, 3, 2, 2), (2, 1, 2)), ((0, 3), (1, 1, 1)), ((17,), (0, 3, 11)),
    ],
    "permute_copy.out": [
        ((2, 3), ((1, 0),)), ((2, 3, 4), ((2, 0, 1),)), ((2, 3, 4), ((0, -1, 1),)), ((), ((),)), ((3,), ((0,),)), ((2, 3, 2, 2), ((0, 2, 3, 1),)),
        ((2, 2, 3, 2), ((3, 1, 2, 0),)), ((1, 2, 3, 2, 2), ((4, 2, 0, 3, 1),)), ((0, 3, 2), ((1, 0, 2),)), ((9, 11), ((-1, 0),)),
    ],
    "pixel_shuffle.out": [
        ((1, 4, 2, 2), (2,)), ((4, 3, 2), (2,)), ((2, 9, 1, 2), (3,)), ((1, 3, 2, 2), (1,)), ((0, 4, 2, 2), (2,)), ((2, 1, 4, 2, 2), (2,)), ((1, 8, 3, 3), (2,)), ((16, 1, 1), (4,)),
    ],
    "pixel_unshuffle.out": [
        ((1, 1, 4, 4), (2,)), ((1, 4, 6), (2,)), ((2, 1, 3, 6), (3,)), ((1, 3, 2, 2), (1,)), ((2, 1, 1, 4, 4), (2,)), ((1, 2, 6, 6), (2,)), ((1, 4, 4), (4,)),
    ],
    "select_copy.int_out": [
        ((3, 4), (0, 1)), ((3, 4), (1, -1)), ((3, 4), (-1, 0)), ((5,), (0, 2)), ((2, 3, 4), (1, 2)), ((2, 3, 2, 2), (-2, 1)), ((2, 1, 3, 2, 2), (2, -3)), ((2, 0, 3), (0, 1)), ((13, 2), (1, 1)),
    ],
    "slice_copy.Tensor_out": [
        ((6, 2), (0, 1, 4, 1)), ((6, 2), (0, 0, 6, 2)), ((6, 2), (1, None, None, 1)), ((6,), (0, -3, -1, 1)), ((6,), (0, 2, 9223372036854775807, 3)),
        ((6,), (0, 4, 2, 1)), ((6,), (-1, -100, 100, 1)), ((2, 5, 3), (1, 1, 5, 2)), ((2, 2, 2, 4), (3, 1, 4, 2)), ((1, 2, 3, 2, 2), (2, 1, 3, 1)),
        ((0, 4), (1, 1, 3, 1)), ((31,), (0, 3, 29, 5)), ((4, 3), (0, 4, 4, 1)),
    ],
    "squeeze_copy.dim_out": [
        ((1, 3), (0,)), ((1, 3), (1,)), ((2, 1, 3), (-2,)), ((1,), (0,)), ((), (0,)), ((2, 1, 3, 1), (3,)), ((1, 2, 1, 2, 1), (2,)), ((0, 1), (1,)), ((2, 3), (-1,)),
    ],
    "squeeze_copy.dims_out": [
        ((1, 3, 1), ((0, 2),)), ((1, 3), ((1,),)), ((2, 1, 3), ((),)), ((1, 1), ((0, 1),)), ((), ((),)), ((2, 1, 3, 1), ((-1, 1),)), ((1, 2, 1, 2, 1), ((0, 2, 4),)), ((0, 1), ((1,),)), ((2, 3), ((0, 1),)),
    ],
    "t_copy.out": [((3, 4), ()), ((5,), ()), ((), ()), ((0, 3), ()), ((1, 6), ()), ((7, 5), ()), ((2, 2), ()), ((3, 1), ())],
    "transpose_copy.int_out": [
        ((3, 4), (0, 1)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (0, -1)), ((5,), (0, 0)), ((2, 3, 2, 2), (1, 3)), ((1, 2, 3, 2, 2), (4, 1)), ((0, 3), (0, 1)),
        ((), (0, 0)), ((2, 3, 4), (1, 1)), ((9, 11), (-2, -1)),
    ],
    "unfold_copy.out": [
        ((6,), (0, 3, 1)), ((6,), (0, 2, 2)), ((2, 7), (1, 3, 2)), ((4, 5), (0, 2, 1)), ((2, 3, 4), (-1, 4, 1)), ((3,), (0, 0, 1)), ((2, 2, 5, 2), (2, 2, 3)), ((5, 2), (-2, 1, 2)), ((), (0, 1, 1)), ((1, 2, 1, 4, 2), (3, 2, 2)),
    ],
    "unsqueeze_copy.out": [((2, 3), (0,)), ((2, 3), (1,)), ((2, 3), (-1,)), ((), (0,)), ((3,), (-2,)), ((2, 1, 2, 2), (2,)), ((0, 2), (1,)), ((1, 2, 3), (3,)), ((2, 3, 2, 2), (4,))],
    "view_copy.out": [
        ((2, 6), ((3, 4),)), ((2, 6), ((-1,),)), ((2, 6), ((2, -1, 2),)), ((1,), ((),)), ((), ((1, 1),)), ((2, 3, 4), ((6, 4),)), ((0, 3), ((3, 0),)), ((4,), ((1, 4, 1),)),
        ((2, 3, 2, 2), ((2, -1),)), ((1, 2, 1, 2, 3), ((4, 3),)), ((0, 2), ((2, -1),)), ((37,), ((37, 1),)),
    ],
    "flip.out": [
        ((2, 3), ((0,),)), ((2, 3), ((0, 1),)), ((2, 3), ((-1,),)), ((2, 3), ((),)), ((), ((),)), ((5,), ((0,),)), ((2, 3, 4), ((0, 2),)), ((2, 3, 2, 2), ((1, 3),)), ((1, 2, 2, 3, 2), ((4, 1, 0),)), ((0, 2), ((0,),)), ((41,), ((0,),)),
    ],
    "roll.out": [
        ((5,), ((2,), (0,))), ((2, 3), ((1,), (1,))), ((2, 3), ((1, 2), (0, 1))), ((2, 3), ((4,), ())), ((2, 3), ((-1,), (-1,))), ((2, 3, 4), ((7, -9), (2, 0))), ((), ((1,), ())), ((0, 2), ((1,), (0,))),
        ((2, 3, 2, 2), ((1, 1), (2, 3))), ((1, 2, 2, 3, 2), ((2,), (3,))), ((2, 3), ((1, 1), (0, 0))), ((13,), ((100,), (0,))), ((3, 2), ((0,), (0,))),
    ],
    "repeat.out": [
        ((2, 3), ((2, 1),)), ((3,), ((2, 2),)), ((), ((3,),)), ((2,), ((0,),)), ((2, 3), ((1, 2, 2),)), ((1, 2, 1), ((2, 1, 3),)), ((0, 2), ((2, 2),)), ((2, 1, 2, 1), ((1, 2, 1, 2),)), ((1, 2, 1, 1, 2), ((2, 1, 1, 2, 1),)), ((), ((),)),
    ],
    "tril.out": [
        ((3, 4), ()), ((3, 4), (1,)), ((4, 3), (-1,)), ((2, 3, 3), (0,)), ((3, 3), (-5,)), ((3, 3), (5,)), ((0, 3), ()), ((2, 0), ()), ((2, 2, 2, 3), (1,)), ((1, 2, 1, 3, 3), (-1,)), ((1, 5), (2,)), ((7, 9), (2,)),
    ],
}  # fmt: skip


def calls(cases):
    for name, rows in CALLS.items():
        op = f"aten::{name}"
        v = Values(op)
        for dtype in EVERY if name not in ("tril.out", "roll.out", "flip.out") else EVERY[:-2]:
            cases.call(op, v.tensor(rows[0][0], dtype), *rows[0][1], _name="dtype")
            shape, args = rows[1]
            cases.call(op, v.tensor(shape, dtype), *args, _name="dtype")
        for shape, args in rows:
            for dtype in (F32, I64, F16, U8, BOOL):
                cases.call(op, v.tensor(shape, dtype), *args, _name=f"rank{len(shape)}")
            if len(shape) == 4:
                cases.call(op, channels_last(v.tensor(shape)), *args, _name="channels-last")


def interleaved(cases):
    op = "aten::repeat_interleave.Tensor_out"
    for dtype in (I64, I32):
        for repeats in ([2, 0, 3], [1], [], [0, 0], [1, 1, 1, 1], [5], [0, 2], [3, 1, 4, 1, 5]):
            t = torch.tensor(repeats, dtype=dtype)
            cases.call(op, t, _name="repeats")
            cases.call(op, t, output_size=sum(repeats), _name="output-size")


def generate(cases):
    calls(cases)
    interleaved(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F16, I64, BOOL, C64, I32, BF16), numel=130, per_dtype=4)
