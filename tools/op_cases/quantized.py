"""The quantized_decomposed operators.

Expected values come from PyTorch's reference library of decomposed quantization, from ExecuTorch's ahead-of-time
library where PyTorch only has the schema (`add`), and from the plain formula for `mixed_mm` and `mixed_linear`. For
the scale of a tiny range PyTorch and ExecuTorch's kernels have different floors; the cases hold PyTorch's.
"""

import itertools

import executorch.kernels.quantized  # noqa: F401
import torch
from executorch.exir.passes import _quant_patterns_and_replacements  # noqa: F401

from .values import BF16, F16, F32, F64, I16, I32, I64, I8, U8, Values

Q = "quantized_decomposed::"
U16 = torch.uint16
RANGES = {U8: (0, 255), I8: (-128, 127), I16: (-32768, 32767), U16: (0, 65535), I32: (-(2**31), 2**31 - 1)}
QPARAMS = ((0.1, 0), (0.037, 3), (1.5, -2), (0.25, 10), (1 / 3, 1))
SHAPES = ((), (1,), (7,), (2, 3), (2, 1, 4), (1, 2, 2, 3), (1, 2, 1, 2, 3), (0, 3), (67,))


def quantized(v, shape, dtype, low=-100, high=100):
    bounds = RANGES[dtype]
    if dtype == U16:
        return v.tensor(shape, I32, max(low, 0), high * 100).to(U16)
    return v.tensor(shape, dtype, max(low, bounds[0]), min(high, bounds[1]))


def zero_point(dtype, z):
    return abs(z) if dtype in (U8, U16) else z


def per_tensor(cases):
    v = Values("per tensor")
    for dtype, (low, high) in RANGES.items():
        for scale, z in QPARAMS:
            z = zero_point(dtype, z)
            for source in (F32, F16, BF16):
                x = v.tensor((3, 4), source, -30, 30)
                cases.call(f"{Q}quantize_per_tensor.out", x, scale, z, low, high, dtype, _name="quantize")
                t = torch.tensor(scale, dtype=F64), torch.tensor(z)
                cases.call(f"{Q}quantize_per_tensor.Tensor_out", x, *t, low, high, dtype, _name="quantize")
            for out in (None, F16, F64, BF16):
                x = quantized(v, (3, 4), dtype)
                options = {"out_dtype": out} if out else {}
                if dtype != U16 or out is None:
                    cases.call(f"{Q}dequantize_per_tensor.out", x, scale, z, low, high, dtype, **options, _name="dequantize")
                    t = torch.tensor(scale, dtype=F64), torch.tensor(z)
                    cases.call(f"{Q}dequantize_per_tensor.Tensor_out", x, *t, low, high, dtype, **options, _name="dequantize")
    for shape in SHAPES:
        x = v.tensor(shape, F32, -20, 20)
        y = quantized(v, shape, I8)
        t = torch.tensor(0.2, dtype=F32), torch.tensor(4, dtype=I64)
        cases.call(f"{Q}quantize_per_tensor.out", x, 0.2, 4, -128, 127, I8, _name=f"rank{len(shape)}")
        cases.call(f"{Q}quantize_per_tensor.Tensor_out", x, *t, -128, 127, I8, _name=f"rank{len(shape)}")
        cases.call(f"{Q}dequantize_per_tensor.out", y, 0.2, 4, -128, 127, I8, _name=f"rank{len(shape)}")
        cases.call(f"{Q}dequantize_per_tensor.Tensor_out", y, *t, -128, 127, I8, _name=f"rank{len(shape)}")
    # Ties round to even, values beyond the range are clamped, and the range may be narrower than the type.
    ties = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.5, -128.5, 1e6, -1e6, 0.0, -0.0])
    for low, high in ((-128, 127), (-127, 127), (-8, 7), (0, 15)):
        cases.call(f"{Q}quantize_per_tensor.out", ties, 1.0, 0, low, high, I8, _name="ties")
        cases.call(f"{Q}quantize_per_tensor.Tensor_out", ties, torch.tensor(1.0), torch.tensor(0), low, high, I8, _name="ties")


def per_channel(cases):
    v = Values("per channel")
    rows = (((3, 4), 0), ((3, 4), 1), ((2, 3, 4), -1), ((2, 3, 4), 1), ((2, 3, 2, 2), 1), ((4, 1, 2, 2), 0), ((1, 2, 1, 2, 3), 4), ((5,), 0), ((0, 3), 1), ((4, 37), 0))
    for (shape, axis), dtype in itertools.product(rows, (U8, I8, I16, I32)):
        low, high = RANGES[dtype]
        count = shape[axis]
        for part in (F64, F32):
            scales = v.tensor((count,), part, 0.02, 0.9)
            zeros = v.index((count,), 5)
            cases.call(f"{Q}quantize_per_channel.out", v.tensor(shape, F32, -20, 20), scales, zeros, axis, low, high, dtype, _name=f"axis{axis}")
            for z in (zeros, None):
                cases.call(f"{Q}dequantize_per_channel.out", quantized(v, shape, dtype), scales, z, axis, low, high, dtype, _name=f"axis{axis}")
        cases.call(f"{Q}dequantize_per_channel.out", quantized(v, shape, dtype), scales, zeros, axis, low, high, dtype, out_dtype=F16, _name="half")


def per_token(cases):
    v = Values("per token")
    choose = torch.ops.quantized_decomposed.choose_qparams_per_token_asymmetric
    for shape in ((2, 4), (1, 9), (5,), (2, 3, 4), (2, 1, 2, 3), (1, 2, 1, 2, 3), (3, 41), (1, 1)):
        for source in (F32, F16, BF16):
            for spread in (1, 20):
                x = v.tensor(shape, source, -spread, spread)
                cases.call(f"{Q}choose_qparams_per_token_asymmetric.out", x, I8, _name=f"rank{len(shape)}")
        for tiny in (0.0, 1e-6, -1e-6):
            cases.call(f"{Q}choose_qparams_per_token_asymmetric.out", torch.full(shape, tiny), I8, _name="tiny")
        for low, high in ((3, 8), (-9, -2)):
            # Zero is always representable, so the range reaches to it.
            cases.call(f"{Q}choose_qparams_per_token_asymmetric.out", v.tensor(shape, F32, low, high), I8, _name="one-sided")
        x = v.tensor(shape, F32, -9, 9)
        scale, zero = choose(x, I8)
        for s, z in ((scale, zero), (scale.float(), zero), (scale.float(), zero.int()), (scale, zero.to(I8))):
            cases.call(f"{Q}quantize_per_token.out", x, s, z, -128, 127, I8, _name=f"rank{len(shape)}")
            y = quantized(v, shape, I8)
            # Eager PyTorch's difference of two int8 overflows.
            for out in () if z.dtype == I8 else (F32, F16):
                cases.call(f"{Q}dequantize_per_token.out", y, s, z, -128, 127, I8, out, _name=f"rank{len(shape)}")


def choose(cases):
    v = Values("choose")
    for shape, (low, high), (qmin, qmax, dtype) in itertools.product(
        ((7,), (2, 3), (), (2, 1, 3, 2), (53,)), ((-4, 4), (1, 9), (-20, -3), (0, 0)), ((-128, 127, I8), (0, 255, U8), (-127, 127, I8), (0, 15, U8))
    ):
        x = v.tensor(shape, F32, low, high)
        cases.call(f"{Q}choose_qparams.Tensor_out", x, qmin, qmax, 1e-5, dtype, _name="range")


def embeddings(cases):
    v = Values("embeddings")
    indices = (((3,), I64), ((2, 2), I64), ((), I64), ((0,), I64), ((4,), I32), ((1, 2, 2), I64))
    for (shape, index), scales, zeros in itertools.product(indices, (F32, F16), (False, True)):
        index = v.index(shape, 5, index)
        for groups in (0, 1, 2):
            s = v.tensor((5, groups) if groups else (5,), scales, 0.02, 0.5)
            z = v.tensor(s.shape, scales, -3, 3).round() if zeros else None
            for name, weight, low, high in (
                ("byte", quantized(v, (5, 8), I8), -128, 127), ("byte", quantized(v, (5, 8), U8), 0, 255), ("4bit", quantized(v, (5, 4), U8, 0, 255), -8, 7), ("2bit", quantized(v, (5, 4), U8, 0, 255), -2, 1),
            ):  # fmt: skip
                cases.call(f"{Q}embedding_{name}.out", weight, s, z, low, high, index, _name=f"groups{groups}")
                for dtype in (F32, F16):
                    cases.call(f"{Q}embedding_{name}.dtype_out", weight, s, z, low, high, index, dtype=dtype, _name=f"groups{groups}")


def sums(cases):
    """The wheel's kernel gives the values: PyTorch has only the schema."""
    v = Values("add")
    out = torch.ops.quantized_decomposed.add.out
    for shape in SHAPES + ((3, 5), (2, 2, 2)):
        for (sa, za), (sb, zb), (so, zo) in (((0.1, 1), (0.2, 2), (0.3, 3)), ((0.05, 128), (0.05, 128), (0.1, 128)), ((1.0, 0), (0.5, 10), (0.25, 0)), ((0.013, 7), (0.7, 200), (0.02, 100))):
            args = (quantized(v, shape, U8, 0, 255), sa, za, 0, 255, quantized(v, shape, U8, 0, 255), sb, zb, 0, 255, so, zo, 0, 255)
            cases.call(f"{Q}add.out", *args, _expect=lambda b: out(**b, out=torch.empty_like(b["a"])), _name=f"rank{len(shape)}")


def mixed(cases):
    v = Values("mixed")
    for (n, k, m), dtype in itertools.product(((2, 3, 4), (1, 1, 1), (5, 8, 3), (0, 3, 2), (1, 33, 17), (3, 16, 1)), (F32, F16)):
        x, scales = v.tensor((n, k), dtype), v.tensor((k,), dtype, 0.02, 0.5)

        def product(b):
            return (b["input"].float() @ (b["weight"].float() * b["weight_scales"].float()[:, None])).to(b["input"].dtype)

        for _ in range(2):
            cases.call(f"{Q}mixed_mm.out", x, quantized(v, (k, m), I8), scales, None, _expect=product, _name=f"{n}x{k}x{m}")
        for groups in (None, 1, 2) if k % 2 == 0 else (None, 1):
            scales = v.tensor((m, groups) if groups else (m,), dtype, 0.02, 0.5)

            def linear(b, to=dtype):
                s = b["weight_scales"].float()
                s = s[:, None] if s.dim() == 1 else s
                weight = b["weight"].float() * s.repeat_interleave(k // s.shape[1], 1)
                return (b["input"].float() @ weight.t()).to(b["dtype"] or to)

            for to in (None, F32, F16):
                cases.call(f"{Q}mixed_linear.out", x, quantized(v, (m, k), I8), scales, None, to, _expect=linear, _name=f"{n}x{k}x{m}")


def generate(cases):
    per_tensor(cases)
    per_channel(cases)
    per_token(cases)
    choose(cases)
    embeddings(cases)
    sums(cases)
    mixed(cases)
