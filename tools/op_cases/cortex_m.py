"""The int8 operators of ExecuTorch's Cortex-M backend.

Expected values come from ExecuTorch's Python operators, except for those that compute in float and differ from the C kernels in the last bit:
softmax, average pooling (`cmsis_nn.py`), quotients, and convolutions with dilation, which PyTorch has not for integers.
"""

import itertools

import torch
from executorch.backends.cortex_m.passes import cortex_m_pass_manager  # noqa: F401
from executorch.backends.cortex_m.passes.passes_utils import requantize_cmsis
from torch.nn import functional as F

from . import cmsis_nn
from .values import F32, I8, I16, I32, U8, Values

M = "cortex_m::"
PER_OPERATOR = 120
SCALES = ((1 << 30, -8), (1717986918, -9), (2147483647, -7), (1234567890, -11), (0, 0), (1999999999, -6))
OUTPUTS = ((0, -128, 127), (-128, -128, 127), (7, 7, 127), (-20, -60, 90))


def int8(v, *shape):
    return v.tensor(shape, I8, -128, 127)


def image(v, *shape):
    return int8(v, *shape).to(memory_format=torch.channels_last)


def per_channel(v, count):
    picked = [v.choice(SCALES) for _ in range(count)]
    return (torch.tensor(part, dtype=I32) for part in zip(*picked))


def clamped(sums, multipliers, shifts, offset, low, high):
    """The last step of a layer whose sums, [N, C, H, W], are exact floats."""
    channels = [requantize_cmsis(s.round().long(), int(m), int(e)) for s, m, e in zip(sums.unbind(1), multipliers, shifts)]
    result = (torch.stack(channels, 1) + offset).clamp(low, high)
    return result.to(I8).contiguous(memory_format=torch.channels_last)


def conv_sums(b, weight, groups):
    bias = None if b["bias"] is None else b["bias"].double()
    window = {"stride": b["stride"], "padding": b["padding"], "dilation": b["dilation"]}
    return F.conv2d(b["input"].double() + b["input_offset"], weight.double(), bias, groups=groups, **window)


def finished(b, sums):
    keys = ("requantize_multipliers", "requantize_shifts", "output_offset", "activation_min", "activation_max")
    return clamped(sums, *(b[key] for key in keys))


def convolution(b):
    groups = b["input"].shape[1] // b["weight"].shape[3]
    return finished(b, conv_sums(b, b["weight"].permute(0, 3, 1, 2), groups))


def depthwise(b):
    return finished(b, conv_sums(b, b["weight"].permute(3, 0, 1, 2), b["input"].shape[1]))


def twin(cases, name, x, *args, _expect=None, _name=None):
    """Records a call, and the one of the operator for NHWC with the same values."""
    cases.call(f"{M}{name}.out", x, *args, _expect=_expect, _name=_name)
    if _expect is None:
        cases.call(f"{M}{name}_nhwc.out", x.permute(0, 2, 3, 1).contiguous(), *args, _name=_name)
    else:
        nhwc = lambda b: _expect(b | {"input": b["input"].permute(0, 3, 1, 2)}).permute(0, 2, 3, 1).contiguous()
        cases.call(f"{M}{name}_nhwc.out", x.permute(0, 2, 3, 1).contiguous(), *args, _expect=nhwc, _name=_name)


def convolutions(cases):
    v = Values("cortex_m convolutions")
    shapes = (
        # input, output channels, kernel, stride, padding, dilation, groups
        ((1, 3, 5, 6), 4, (3, 3), (1, 1), (1, 1), (1, 1), 1), ((2, 8, 4, 4), 6, (1, 1), (1, 1), (0, 0), (1, 1), 1),
        ((1, 4, 7, 5), 5, (1, 1), (2, 2), (0, 0), (1, 1), 1), ((1, 5, 1, 9), 3, (1, 3), (1, 2), (0, 1), (1, 1), 1),
        ((1, 6, 5, 5), 4, (3, 2), (2, 1), (1, 0), (1, 1), 2), ((1, 2, 7, 7), 3, (3, 3), (1, 1), (2, 2), (2, 2), 1),
        ((2, 17, 3, 3), 9, (3, 3), (1, 1), (1, 1), (1, 1), 1), ((1, 1, 6, 4), 2, (4, 2), (2, 2), (2, 1), (1, 1), 1),
        ((1, 3, 2, 2), 2, (1, 1), (1, 1), (1, 1), (1, 1), 1), ((1, 1, 1, 1), 1, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    )  # fmt: skip
    scratch = torch.zeros(0, dtype=U8)
    for (size, channels, kernel, stride, padding, dilation, groups), (offset, low, high), has_bias in itertools.product(shapes, OUTPUTS[:3], (True, False)):
        bias = v.tensor((channels,), I32, -30000, 30000) if has_bias else None
        zero = int(v.index((), 256)) - 127
        args = (stride, padding, dilation, zero, offset, *per_channel(v, channels), low, high, scratch)
        weight = int8(v, channels, *kernel, size[1] // groups)
        expect = convolution if dilation != (1, 1) else None
        twin(cases, "quantized_conv2d", image(v, *size), weight, bias, *args, _expect=expect, _name=f"{kernel[0]}x{kernel[1]}")
    shapes = (
        # input, multiplier, kernel, stride, padding, dilation
        ((1, 4, 5, 6), 1, (3, 3), (1, 1), (1, 1), (1, 1)), ((1, 19, 4, 3), 1, (3, 3), (2, 2), (1, 1), (1, 1)),
        ((1, 2, 6, 5), 3, (2, 3), (1, 2), (1, 0), (1, 1)), ((1, 1, 9, 4), 20, (4, 2), (2, 2), (2, 1), (1, 1)),
        ((1, 3, 7, 7), 1, (3, 3), (1, 1), (2, 2), (2, 2)), ((1, 33, 1, 3), 1, (1, 1), (1, 1), (0, 0), (1, 1)),
    )  # fmt: skip
    for (size, multiplier, kernel, stride, padding, dilation), (offset, low, high), has_bias in itertools.product(shapes, OUTPUTS, (True, False)):
        channels = size[1] * multiplier
        bias = v.tensor((channels,), I32, -9000, 9000) if has_bias else None
        zero = int(v.index((), 256)) - 127
        args = (stride, padding, dilation, multiplier, zero, offset, *per_channel(v, channels), low, high, scratch)
        expect = depthwise if dilation != (1, 1) else None
        twin(cases, "quantized_depthwise_conv2d", image(v, *size), int8(v, 1, *kernel, channels), bias, *args, _expect=expect, _name=f"{kernel[0]}x{kernel[1]}")
    shapes = (
        # input, output channels, kernel, stride, padding, output padding. Those of the second line make CMSIS-NN write outside of its output.
        ((1, 3, 4, 3), 4, (3, 3), (2, 2), (1, 1), (0, 0)), ((2, 18, 3, 3), 2, (2, 2), (1, 1), (0, 0), (0, 0)), ((1, 2, 3, 5), 3, (4, 3), (2, 1), (1, 1), (1, 0)),
        ((1, 2, 4, 4), 3, (3, 3), (3, 3), (1, 1), (0, 0)), ((1, 2, 4, 4), 3, (2, 2), (2, 2), (1, 1), (0, 0)), ((1, 3, 3, 4), 2, (1, 1), (2, 2), (0, 0), (0, 0)), ((1, 3, 3, 4), 2, (2, 2), (3, 3), (0, 0), (0, 0)),
    )  # fmt: skip
    for (size, channels, kernel, stride, padding, extra), (offset, low, high), has_bias in itertools.product(shapes, OUTPUTS[:3], (True, False)):
        bias = v.tensor((channels,), I32, -9000, 9000) if has_bias else None
        zero = int(v.index((), 256)) - 127
        args = (stride, padding, extra, (1, 1), zero, offset, *per_channel(v, channels), low, high, scratch, scratch)
        twin(cases, "quantized_transpose_conv2d", image(v, *size), int8(v, channels, *kernel, size[1]), bias, *args, _name=f"{kernel[0]}x{kernel[1]}")


def layers(cases):
    v = Values("cortex_m layers")
    for (shape, outputs), (multiplier, shift), (offset, low, high) in itertools.product((((3, 7), 5), ((1, 64), 10), ((2, 3, 9), 4), ((5,), 3), ((1, 1), 1), ((0, 4), 2)), SCALES[:4], OUTPUTS):
        zero = int(v.index((), 256)) - 127
        x, weight, bias = int8(v, *shape), int8(v, outputs, shape[-1]), v.tensor((outputs,), I32, -9000, 9000)
        scale = ([multiplier], [shift])
        cases.call(f"{M}quantized_linear.out", x, weight, bias, None, zero, 0, offset, *scale, high, low, _name="bias")
        sums = weight.sum(1, dtype=I32)[None] * zero + bias
        cases.call(f"{M}quantized_linear.out", x, weight, None, sums, zero, 0, offset, *scale, high, low, _name="kernel_sum")
    for (batch, rows, inner, columns), (multiplier, shift) in itertools.product(((1, 3, 4, 5), (2, 1, 33, 2), (3, 4, 5, 6), (1, 1, 1, 1)), SCALES):
        a, b = (int(n) - 127 for n in v.index((2,), 256))
        args = (int8(v, batch, rows, inner), a, int8(v, batch, columns, inner), b, int(v.index((), 256)) - 128, multiplier, shift - 2, torch.zeros(0, dtype=U8))
        cases.call(f"{M}quantized_batch_matmul.out", *args, _name="matmul")


def pools(cases):
    v = Values("cortex_m pools")
    for size, kernel, stride, padding, ceil in (
        ((1, 3, 6, 5), [2, 2], [2, 2], [0, 0], False), ((2, 17, 7, 4), [3, 2], [1, 2], [1, 1], False), ((1, 1, 5, 5), [3, 3], [2, 2], [1, 1], True),
        ((1, 4, 7, 7), [2, 3], [2, 3], [0, 1], True), ((1, 33, 8, 8), [8, 8], [8, 8], [0, 0], False), ((1, 2, 1, 1), [1, 1], [1, 1], [0, 0], False),
    ):  # fmt: skip
        for zero in (-128, 3):
            args = (kernel, stride, padding, ceil, zero, 1 << 30, 1, torch.zeros(0, dtype=U8))
            average = lambda b: cmsis_nn.avg_pool2d(*b.values())
            twin(cases, "quantized_avg_pool2d", image(v, *size), *args, _expect=average, _name="avg")
            for low, high in ((-128, 127), (-10, 40)):
                twin(cases, "quantized_max_pool2d", image(v, *size), kernel, stride, padding, [1, 1], False, zero, zero, low, high, _name="max")


def elementwise(cases):
    v = Values("cortex_m elementwise")
    pairs = (((7,), (7,)), ((2, 3), (2, 3)), ((1, 4, 3, 2), (1, 4, 3, 2)), ((2, 5, 3, 3), (1, 5, 1, 1)), ((1, 5, 1, 1), (1, 5, 2, 3)), ((0, 3), (0, 3)), ((), ()))
    for (a, b), (offset, low, high) in itertools.product(pairs, OUTPUTS):
        x, y = (image(v, *shape) if len(shape) == 4 else int8(v, *shape) for shape in (a, b))
        for (m, s), (n, t) in (((1 << 30, 0), (1717986918, -1)), ((1500000000, -2), (-(1 << 30), 0))):
            zeros = [int(n) - 128 for n in v.index((2,), 256)]
            cases.call(f"{M}quantized_add.out", x, zeros[0], m, s, y, zeros[1], n, t, offset, 1234567890, -17, low, high, _name="add")
        cases.call(f"{M}quantized_mul.out", x, zeros[0], y, zeros[1], offset, *v.choice(SCALES), _name="mul")
    for a, b in pairs[:4] + (((3, 4), (1,)), ((2, 1, 3), (4, 1))):
        x, y = (image(v, *shape) if len(shape) == 4 else int8(v, *shape) for shape in (a, b))
        for name in ("minimum", "maximum"):
            cases.call(f"{M}{name}.out", x, y, _expect=lambda b, name=name: getattr(torch, name)(b["self"], b["other"]), _name=name)
    for shape in ((256,), (3, 5), (1, 3, 4, 4), (0,)):
        x = torch.arange(-128, 128).to(I8) if shape == (256,) else int8(v, *shape)
        cases.call(f"{M}quantized_activation.out", x, int8(v, 256), _name="lut")
    for dtype, (low, high) in ((I8, (-128, 127)), (I16, (-32768, 32767))):
        for shape, scale in itertools.product(((9,), (3, 4), (1, 3, 2, 2)), (1.0, 20.5, 0.37)):

            def quotients(b, low=low, high=high):
                x, y = b["self"].int() - b["self_zero_point"], b["other"].int() - b["other_zero_point"]
                scaled = torch.where(y == 0, 0.0, x.float() / y.float()) * torch.tensor(b["output_scale"], dtype=F32)
                rounded = (scaled.double().abs() + 0.5).floor() * scaled.sign()
                return (rounded.long() + b["output_zero_point"]).clamp(low, high).to(b["self"].dtype)

            x, y = v.tensor(shape, dtype, low, high), v.tensor(shape, dtype, -30, 30)
            cases.call(f"{M}quantized_div.out", x, 3, y, -2, 5, scale, _expect=quotients, _name="div")


def rest(cases):
    v = Values("cortex_m rest")
    for scale, zero in ((0.1, 0), (0.037, 3), (1.5, -128), (1 / 3, 127)):
        for dtype, low, high in ((I8, -128, 127), (I8, -127, 127), (I16, -32768, 32767)):
            args = (scale, zero, low, high, dtype)
            for shape in ((7,), (1, 3, 2, 2), (0, 3), ()):
                expect = lambda b: torch.ops.quantized_decomposed.quantize_per_tensor.default(*b.values())
                back = lambda b: torch.ops.quantized_decomposed.dequantize_per_tensor.default(*b.values())
                cases.call(f"{M}quantize_per_tensor.out", v.tensor(shape, F32, -40, 40), *args, _expect=expect, _name="quantize")
                cases.call(f"{M}dequantize_per_tensor.out", v.tensor(shape, dtype, low, high), *args, _expect=back, _name="dequantize")
    for shape, dim in (((3, 7), -1), ((2, 3, 40), 2), ((1, 1), 1), ((5,), 0), ((1, 513), 1)):
        for multiplier, shift, least in ((1717986918, 23, -248), (1 << 30, 20, -1984), (2000000000, 26, -31)):
            x = torch.zeros(shape, dtype=I8) if shape == (1, 513) else int8(v, *shape)
            # More equal values than 512 give zeros.
            expect = (lambda b: torch.full_like(b["input"], -128)) if shape == (1, 513) else (lambda b: cmsis_nn.softmax(*b.values()))
            cases.call(f"{M}softmax.out", x, dim, 4, -128, multiplier, shift, least, _expect=expect, _name="softmax")
    for shape in ((5,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 0, 2)):
        for order in itertools.islice(itertools.permutations(range(len(shape))), 24):
            cases.call(f"{M}transpose.out", int8(v, *shape), list(order), _name=f"rank{len(shape)}")
    for shape, before, after in (((3,), [0, 0, 0, 2], [0, 0, 0, 1]), ((2, 3), [0, 0, 1, 0], [0, 0, 0, 2]), ((1, 2, 3), [0, 1, 0, 1], [0, 0, 2, 0]), ((2, 2, 3, 2), [1, 0, 2, 1], [0, 1, 1, 0]), ((2, 2, 3, 2), [0, 0, 0, 0], [0, 0, 0, 0])):
        for value in (-128, 0, 9):
            cases.call(f"{M}pad.out", int8(v, *shape), before, after, value, _name=f"rank{len(shape)}")
    cases.call(f"{M}pad.out", image(v, 1, 3, 4, 2), [0, 1, 2, 0], [0, 0, 1, 0], 5, _name="channels_last")


def generate(cases):
    convolutions(cases)
    layers(cases)
    pools(cases)
    elementwise(cases)
    rest(cases)
