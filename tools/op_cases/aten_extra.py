"""Operators beyond core ATen that belong to no family of their own: volumes, pools at random places, parts of numbers."""

import itertools

import torch

from .values import BF16, F16, F32, F64, FLOATS, I8, I16, I32, I64, U8, Values, channels_last, specials


def volumes(cases):
    v = Values("volumes")
    for dtype, mode, padding, align in itertools.product((F32, F64), (0, 1), (0, 1, 2), (False, True)):
        x, grid = v.tensor((1, 2, 3, 4, 2), dtype), v.tensor((1, 2, 2, 3, 3), dtype, -1.5, 1.5)
        cases.call("aten::grid_sampler_3d.out", x, grid, mode, padding, align, _mag=True, _name=f"mode{mode}")
    cases.call("aten::grid_sampler_3d.out", channels_last(v.tensor((2, 2, 2, 3, 3))), v.tensor((2, 1, 2, 2, 3), F32, -1, 1), 0, 0, False, _mag=True, _name="channels-last")


def pools(cases):
    v = Values("fractional")
    for dtype in (F32, F64):
        for shape, kernel, size in (((1, 2, 8, 7), [2, 2], [3, 4]), ((2, 6, 6), [2, 3], [3, 2]), ((1, 1, 4, 4), [1, 1], [4, 4]), ((2, 1, 5, 9), [2, 2], [1, 5])):
            lead = shape[:-2] if len(shape) == 4 else (1, shape[0])
            cases.call("aten::fractional_max_pool2d.output", v.tensor(shape, dtype), kernel, size, v.tensor((*lead, 2), dtype, 0, 0.99), _name=f"rank{len(shape)}")
        for shape, kernel, size in (((1, 2, 5, 6, 7), [2, 2, 2], [2, 3, 4]), ((2, 4, 4, 4), [2, 1, 2], [2, 3, 1])):
            lead = shape[:-3] if len(shape) == 5 else (1, shape[0])
            cases.call("aten::fractional_max_pool3d.output", v.tensor(shape, dtype), kernel, size, v.tensor((*lead, 3), dtype, 0, 0.99), _name=f"rank{len(shape)}")
        nan = v.tensor((1, 1, 4, 4), dtype)
        nan[0, 0, 1, 2] = float("nan")
        cases.call("aten::fractional_max_pool2d.output", nan, [2, 2], [2, 2], v.tensor((1, 1, 2), dtype, 0, 0.99), _name="nan")


def numbers(cases):
    v = Values("numbers")
    for dtype in (U8, I8, I16, I32, I64):
        for a, b in (((3, 5), (5,)), ((), (4,)), ((0,), (0,)), ((7,), (7,))):
            cases.call("aten::gcd.out", v.tensor(a, dtype, -60, 60), v.tensor(b, dtype, -60, 60), _name="dtype")
        cases.call("aten::gcd.out", torch.tensor([0, 0, 6, 9], dtype=dtype), torch.tensor([0, 4, 0, 6], dtype=dtype), _name="zero")
    cases.call("aten::gcd.out", v.tensor((4,), I32), v.tensor((4,), I64), _name="mixed")
    for dtype in (F32, F64):
        cases.call("aten::nextafter.out", v.tensor((3, 5), dtype), v.tensor((5,), dtype), _name="dtype")
        cases.call("aten::nextafter.out", specials(dtype), specials(dtype).flip(0), _name="special")
    for dtype in FLOATS:
        for shape in ((7,), (2, 3), (), (0,)):
            cases.call("aten::frexp.Tensor_out", v.tensor(shape, dtype, -100, 100), _name=f"rank{len(shape)}")
        cases.call("aten::frexp.Tensor_out", torch.tensor([0.0, 1.0, 0.5, -0.75, 1e-4], dtype=dtype), _name="special")


def generate(cases):
    volumes(cases)
    pools(cases)
    numbers(cases)
