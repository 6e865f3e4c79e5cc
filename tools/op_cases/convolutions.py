"""Convolutions, pooling and resampling."""

import itertools

import torch

from . import opinfo
from .values import BF16, F16, F32, F64, FLOATS, I64, INT, Values, channels_last

NAMES = (
    "convolution.out convolution_backward.out avg_pool2d.out _adaptive_avg_pool2d.out max_pool2d_with_indices.out "
    "max_pool2d_with_indices_backward.grad_input upsample_bilinear2d.vec_out upsample_nearest2d.vec_out _upsample_bilinear2d_aa.out grid_sampler_2d.out"
).split()
OPERATORS = [f"aten::{n}" for n in NAMES]
SOURCES = (
    "nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d "
    "nn.functional.conv_transpose3d nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d nn.functional.max_pool2d "
    "nn.functional.interpolate nn.functional.grid_sample nn.functional.upsample_bilinear nn.functional.upsample_nearest nn.functional.max_pool1d"
).split()

# input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups
CONVOLUTIONS = [
    ((1, 2, 5), (3, 2, 3), True, [1], [0], [1], False, [0], 1), ((2, 2, 6), (4, 1, 2), False, [2], [1], [1], False, [0], 2),
    ((1, 2, 9), (3, 2, 3), True, [1], [2], [2], False, [0], 1), ((2, 3, 4), (3, 2, 3), True, [2], [1], [1], True, [1], 1),
    ((1, 3, 5, 5), (4, 3, 3, 3), True, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), ((2, 3, 5, 4), (2, 3, 3, 2), False, [2, 1], [1, 0], [1, 1], False, [0, 0], 1),
    ((1, 4, 6, 6), (4, 1, 3, 3), True, [1, 1], [1, 1], [1, 1], False, [0, 0], 4), ((1, 4, 6, 6), (6, 2, 3, 3), True, [2, 2], [1, 1], [1, 1], False, [0, 0], 2),
    ((1, 2, 7, 7), (3, 2, 3, 3), True, [1, 1], [2, 2], [2, 2], False, [0, 0], 1), ((2, 5, 3, 3), (7, 5, 1, 1), True, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ((1, 3, 4, 4), (3, 2, 3, 3), True, [2, 2], [1, 1], [1, 1], True, [1, 1], 1), ((1, 4, 3, 3), (4, 2, 2, 2), False, [1, 1], [0, 0], [1, 1], True, [0, 0], 2),
    ((2, 2, 3, 4), (2, 3, 3, 2), True, [2, 1], [0, 1], [2, 1], True, [1, 0], 1), ((0, 3, 4, 4), (2, 3, 3, 3), True, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ((1, 2, 3, 4, 4), (3, 2, 2, 3, 3), True, [1, 1, 1], [0, 1, 1], [1, 1, 1], False, [0, 0, 0], 1), ((1, 2, 2, 3, 3), (2, 2, 2, 2, 2), True, [1, 2, 2], [0, 0, 0], [1, 1, 1], True, [0, 1, 1], 1),
    ((1, 8, 9, 9), (8, 1, 3, 3), True, [2, 2], [1, 1], [1, 1], False, [0, 0], 8), ((1, 1, 8, 8), (1, 1, 5, 5), True, [1, 1], [2, 2], [1, 1], False, [0, 0], 1),
    ((1, 16, 4, 4), (12, 16, 1, 1), True, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), ((1, 3, 11, 9), (5, 3, 3, 3), True, [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
    ((1, 4, 6, 5), (8, 1, 3, 3), True, [1, 1], [1, 1], [1, 1], False, [0, 0], 4), ((1, 2, 3, 3), (3, 2, 3, 3), True, [1], [1], [1], False, [0], 1),
]  # fmt: skip


def convolutions(cases):
    op = "aten::convolution.out"
    v = Values(op)
    for dtype in FLOATS:
        for x, w, bias, stride, padding, dilation, transposed, output_padding, groups in CONVOLUTIONS:
            outs = w[1] * groups if transposed else w[0]
            b = v.tensor((outs,), dtype) if bias else None
            rest = (stride, padding, dilation, transposed, output_padding, groups)
            cases.call(op, v.tensor(x, dtype), v.tensor(w, dtype), b, *rest, _mag=True, _name=f"rank{len(x)}")
            if len(x) == 4 and dtype in (F32, F16):
                cases.call(op, channels_last(v.tensor(x, dtype)), channels_last(v.tensor(w, dtype)), b, *rest, _mag=True, _name="channels-last")
    for dtype in INT:
        for transposed in (False, True):
            bias = v.tensor((2,), dtype) if transposed else None
            rest = (bias, [1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)
            cases.call(op, v.tensor((1, 2, 4, 4), dtype), v.tensor((2, 2, 3, 3), dtype, 0, 3), *rest, _as=F64, _name="integer")
    special = torch.tensor([[[1.0, float("nan"), 2.0, float("inf"), 0.0, -1.0]]])
    cases.call(op, special, v.tensor((1, 1, 2)), None, [1], [1], [1], False, [0], 1, _name="special")


def backward(cases):
    op = "aten::convolution_backward.out"
    v = Values(op)
    for dtype in FLOATS:
        for x, w, bias, stride, padding, dilation, transposed, output_padding, groups in CONVOLUTIONS:
            if 0 in x or len(stride) != len(x) - 2:
                continue
            outs = w[1] * groups if transposed else w[0]
            rest = (stride, padding, dilation, transposed, output_padding, groups)
            a, b = v.tensor(x, dtype), v.tensor(w, dtype)
            grad = v.tensor(torch.ops.aten.convolution(a.float(), b.float(), None, *rest).shape, dtype)
            for mask in ([True, True, True],) if dtype != F32 else ([True, True, bias], [True, False, False], [False, True, False]):
                # Results that the mask leaves out are undefined tensors, which a program does not have.
                if all(mask):
                    cases.call(op, grad, a, b, [outs], *rest, mask, _mag=True, _name=f"rank{len(x)}")


def pools(cases):
    v = Values("pool")
    for dtype in FLOATS:
        for shape, kernel, stride, padding, ceil, include, divisor in (
            ((1, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None), ((2, 1, 5, 5), [3, 3], [2, 2], [1, 1], False, True, None), ((2, 1, 5, 5), [3, 3], [2, 2], [1, 1], True, False, None),
            ((1, 5, 4), [2, 3], [1, 1], [1, 1], False, False, None), ((1, 1, 4, 5), [2, 2], [], [0, 0], True, True, 3), ((1, 1, 6, 6), [3, 2], [3, 1], [1, 1], True, True, None), ((0, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None),
            ((1, 3, 9, 7), [3, 3], [1, 1], [1, 1], False, True, None), ((1, 1, 3, 3), [3, 3], [1, 1], [0, 0], False, True, -2),
        ):  # fmt: skip
            cases.call("aten::avg_pool2d.out", v.tensor(shape, dtype), kernel, stride, padding, ceil, include, divisor, _mag=True, _name=f"rank{len(shape)}")
            if len(shape) == 4:
                cases.call("aten::avg_pool2d.out", channels_last(v.tensor(shape, dtype)), kernel, stride, padding, ceil, include, divisor, _mag=True, _name="channels-last")
        for shape, size in (((1, 2, 4, 4), [2, 2]), ((2, 1, 5, 7), [3, 2]), ((2, 3, 3), [1, 1]), ((1, 1, 2, 3), [4, 5]), ((1, 2, 5, 5), [5, 5]), ((0, 1, 3, 3), [2, 2]), ((1, 3, 7, 6), [1, 4])):
            cases.call("aten::_adaptive_avg_pool2d.out", v.tensor(shape, dtype), size, _mag=True, _name=f"rank{len(shape)}")
            if len(shape) == 4:
                cases.call("aten::_adaptive_avg_pool2d.out", channels_last(v.tensor(shape, dtype)), size, _mag=True, _name="channels-last")
    for dtype in FLOATS + INT:
        for shape, kernel, stride, padding, dilation, ceil in (
            ((1, 2, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False), ((2, 1, 5, 5), [3, 3], [2, 2], [1, 1], [1, 1], False), ((2, 1, 5, 6), [3, 2], [2, 2], [1, 1], [1, 1], True), ((1, 5, 4), [2, 2], [], [0, 0], [1, 1], False),
            ((1, 1, 6, 7), [2, 3], [1, 1], [1, 1], [2, 2], False), ((1, 2, 6, 6), [3, 3], [1, 2], [0, 1], [1, 1], True), ((0, 2, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False), ((1, 1, 9, 9), [3, 3], [2, 2], [1, 1], [1, 1], False),
        ):  # fmt: skip
            args = (kernel, stride, padding, dilation, ceil)
            whole = {"_as": F64} if dtype in INT else {}
            x = v.tensor(shape, dtype)
            cases.call("aten::max_pool2d_with_indices.out", x, *args, **whole, _name=f"rank{len(shape)}")
            if len(shape) == 4:
                cases.call("aten::max_pool2d_with_indices.out", channels_last(x), *args, **whole, _name="channels-last")
            if dtype in FLOATS and 0 not in shape:
                x = v.distinct(shape, dtype)
                out, indices = torch.ops.aten.max_pool2d_with_indices(x, *args)
                grad = v.tensor(out.shape, dtype)
                cases.call("aten::max_pool2d_with_indices_backward.grad_input", grad, x, kernel, stride, padding, dilation, ceil, indices, _mag=True, _name=f"rank{len(shape)}")
    nan = torch.tensor([[[1.0, float("nan"), 3.0, float("-inf")], [2.0, 0.0, float("-inf"), float("-inf")]]])
    cases.call("aten::max_pool2d_with_indices.out", nan, [2, 2], [1, 1], [0, 0], [1, 1], False, _name="special")
    cases.call("aten::max_pool2d_with_indices.out", torch.full((1, 2, 2), float("-inf")), [2, 2], [1, 1], [1, 1], [1, 1], False, _name="infinities")


def resampling(cases):
    v = Values("upsample")
    for dtype in INT:
        cases.call("aten::upsample_nearest2d.vec_out", v.tensor((1, 2, 3, 4), dtype), (6, 5), None, _as=F32, _name="integer")
    shapes = (((1, 2, 3, 4), (6, 8)), ((1, 1, 4, 4), (2, 3)), ((2, 1, 3, 3), (5, 7)), ((1, 2, 2, 2), (2, 2)), ((1, 1, 1, 1), (3, 2)), ((1, 1, 5, 4), (1, 1)), ((1, 3, 6, 5), (9, 4)))
    scales = ((2.0, 2.0), (0.5, 1.5), (1.7, 2.3), (3.0, 0.4))
    for dtype in FLOATS:
        half = {"_as": F32} if dtype in (F16, BF16) else {}
        for shape, size in shapes:
            for x in (v.tensor(shape, dtype), channels_last(v.tensor(shape, dtype))):
                name = "size" if x.is_contiguous() else "channels-last"
                cases.call("aten::upsample_nearest2d.vec_out", x, size, None, _name=name)
                for align in (False, True):
                    cases.call("aten::upsample_bilinear2d.vec_out", x, size, align, None, _mag=True, _name=name)
                    cases.call("aten::_upsample_bilinear2d_aa.out", x, size, align, None, None, **half, _mag=True, _name=name)
        for scale in scales:
            x = v.tensor((1, 2, 4, 5), dtype)
            cases.call("aten::upsample_nearest2d.vec_out", x, None, scale, _name="scale")
            for align in (False, True):
                cases.call("aten::upsample_bilinear2d.vec_out", x, None, align, scale, _mag=True, _name="scale")
                size = [int(4 * scale[0]), int(5 * scale[1])]
                cases.call("aten::_upsample_bilinear2d_aa.out", x, size, align, scale[0], scale[1], **half, _mag=True, _name="scale")
        for (x, out), mode, padding, align in itertools.product((((1, 2, 4, 5), (3, 3)), ((2, 1, 3, 3), (2, 4))), (0, 1, 2), (0, 1, 2), (False, True)):
            grid = v.tensor((x[0], *out, 2), dtype, -1.4, 1.4)
            cases.call("aten::grid_sampler_2d.out", v.tensor(x, dtype), grid, mode, padding, align, _name=f"mode{mode}-padding{padding}")
    grid = torch.tensor([[[[0.0, 0.0], [-1.0, -1.0], [1.0, 1.0], [float("nan"), 0.0], [2.5, -7.0], [1e6, -1e6]]]])
    for mode, padding in itertools.product((0, 1), (0, 1, 2)):
        cases.call("aten::grid_sampler_2d.out", v.tensor((1, 1, 3, 3)), grid[:, :, :3], mode, padding, True, _name="corners")


def generate(cases):
    convolutions(cases)
    backward(cases)
    pools(cases)
    resampling(cases)
    accumulate = {"_mag": True}
    plain = {"max_pool2d_with_indices.out", "upsample_nearest2d.vec_out"}
    options = lambda name: {} if name.removeprefix("aten::") in plain else accumulate  # noqa: E731
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F64, F16, BF16, I64), numel=400, per_dtype=6, options=options)
