"""Matrix products and Fourier transforms."""

import itertools

import torch

from . import opinfo
from .values import BF16, C64, C128, F16, F32, F64, FLOATS, I32, I64, INT, Values

PER_OPERATOR = 220
OPERATORS = ["aten::mm.out", "aten::bmm.out", "aten::addmm.out", "aten::linear.out"]
FFT = ["aten::_fft_r2c.out", "aten::_fft_c2r.out"]
SOURCES = "mm bmm addmm matmul nn.functional.linear addbmm baddbmm einsum inner tensordot nn.functional.bilinear".split()
SIZES = ((2, 3, 4), (1, 1, 1), (1, 5, 3), (4, 1, 3), (3, 4, 1), (0, 3, 2), (2, 0, 3), (2, 3, 0), (5, 7, 9), (1, 33, 17), (17, 9, 1), (8, 16, 8))
LARGE = ((13, 37, 19), (33, 21, 31), (1, 130, 9), (9, 5, 67))


def products(cases):
    v = Values("products")
    for dtype in FLOATS + INT:
        # Integers share their code, so that fewer sizes do.
        sizes = SIZES + (LARGE if dtype in (F32, F16, F64) else ()) if dtype in FLOATS else SIZES[::3]
        for at, (n, k, m) in enumerate(sizes):
            cases.call("aten::mm.out", v.tensor((n, k), dtype), v.tensor((k, m), dtype), _mag=True, _name=f"{n}x{k}x{m}")
            if n * k * m < 2000:
                for batch in (1, 3):
                    cases.call("aten::bmm.out", v.tensor((batch, n, k), dtype), v.tensor((batch, k, m), dtype), _mag=True, _name=f"{batch}x{n}x{k}x{m}")
            biases = ((m,), (n, m), (1, m), (n, 1), ())
            for bias in biases if dtype == F32 else biases[at % 5 : at % 5 + 1]:
                cases.call("aten::addmm.out", v.tensor(bias, dtype), v.tensor((n, k), dtype), v.tensor((k, m), dtype), _mag=True, _name=f"{n}x{k}x{m}")
        cases.call("aten::bmm.out", v.tensor((0, 2, 3), dtype), v.tensor((0, 3, 2), dtype), _mag=True, _name="empty-batch")
    for dtype in (F32, F16, I64, F64):
        for beta, alpha in ((0, 1), (1, 0), (2, 3), (0.5, -1.5), (-1, 2), (0, 0)):
            if dtype.is_floating_point or isinstance(beta, int):
                cases.call("aten::addmm.out", v.tensor((4,), dtype), v.tensor((2, 3), dtype), v.tensor((3, 4), dtype), beta=beta, alpha=alpha, _mag=True, _name="scaled")
    # With beta = 0 the bias does not count, not even as NaN.
    cases.call("aten::addmm.out", torch.full((2,), float("nan")), v.tensor((3, 2)), v.tensor((2, 2)), beta=0, _name="nan-ignored")
    nan = torch.tensor([[1.0, float("nan")], [float("inf"), 2.0]])
    for op, args in (("mm", (nan, v.tensor((2, 3)))), ("bmm", (nan[None], v.tensor((1, 2, 3)))), ("addmm", (v.tensor((3,)), nan, v.tensor((2, 3))))):
        cases.call(f"aten::{op}.out", *args, _name="special")
    for dtype in (C64, C128):
        cases.call("aten::bmm.out", v.tensor((2, 3, 4), dtype), v.tensor((2, 4, 2), dtype), _mag=True, _name="complex")
        cases.call("aten::bmm.out", v.tensor((1, 1, 5), dtype), v.tensor((1, 5, 1), dtype), _mag=True, _name="complex")


def linears(cases):
    op = "aten::linear.out"
    v = Values(op)
    for dtype in FLOATS + (I32, I64):
        for shape, outs in (((2, 3), 4), ((3,), 2), ((2, 2, 3), 5), ((1, 1), 1), ((0, 3), 2), ((2, 1, 2, 3), 2), ((1, 33), 17), ((5, 19), 1), ((1, 2, 1, 2, 4), 3)):
            for bias in (None, v.tensor((outs,), dtype)):
                cases.call(op, v.tensor(shape, dtype), v.tensor((outs, shape[-1]), dtype), bias, _mag=True, _name=f"rank{len(shape)}")
    for n, k, m in LARGE:
        cases.call(op, v.tensor((n, k)), v.tensor((m, k)), v.tensor((m,)), _mag=True, _name=f"{n}x{k}x{m}")


def transforms(cases):
    v = Values("fft")
    shapes = (((8,), [0]), ((7,), [0]), ((2, 6), [1]), ((2, 6), [0]), ((4, 5), [0, 1]), ((2, 3, 4), [1, 2]), ((2, 3, 4), [2, 0]), ((1,), [0]), ((2, 2, 3, 2), [3]), ((1, 2, 1, 2, 16), [4]), ((30,), [0]), ((17,), [0]), ((64,), [0]), ((3, 4, 5), [0, 1, 2]))
    for dtype, part in ((F32, C64), (F64, C128)):
        for (shape, dims), norm, onesided in itertools.product(shapes, (0, 1, 2), (True, False)):
            cases.call(FFT[0], v.tensor(shape, dtype), dims, norm, onesided, _name="forward")
        for (shape, dims), norm in itertools.product(shapes, (0, 1, 2)):
            for odd in (0, 1):
                last = max(2 * (shape[dims[-1]] - 1) + odd, 1)
                if last <= 64:
                    cases.call(FFT[1], v.tensor(shape, part), dims, norm, last, _name="inverse")


def generate(cases):
    products(cases)
    linears(cases)
    transforms(cases)
    mag = {"_mag": True}
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F64, F16, BF16, I64), numel=200, per_dtype=6, options=lambda name: mag)
    opinfo.collect(cases, ["fft.rfft", "fft.irfft", "fft.rfft2", "fft.irfftn", "fft.hfft"], FFT, (F32, F64, C64), numel=130, per_dtype=8)
