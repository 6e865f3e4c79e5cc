"""Core ATen operators that ExecuTorch has no kernel for."""

import itertools

import torch

from . import opinfo
from .encode import MEMORY_FORMATS, NAMES, tensor
from .values import BF16, F16, F32, F64, FLOATS, I32, I64, REALB, Values, channels_last

NAMED = (
    "sort.values avg_pool1d.out adaptive_avg_pool1d.out _adaptive_avg_pool3d.out avg_pool3d.out max_pool3d_with_indices.out "
    "_adaptive_avg_pool2d_backward.out avg_pool2d_backward.grad_input native_group_norm_backward.out native_layer_norm_backward.out "
    "embedding_dense_backward.out _embedding_bag.out scatter_reduce.two_out col2im.out"
).split()
OPERATORS = [f"aten::{n}" for n in NAMED]
SOURCES = (
    "sort argsort msort nn.functional.avg_pool1d nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool3d nn.functional.avg_pool3d "
    "nn.functional.max_pool3d nn.functional.embedding_bag scatter_reduce nn.functional.fold"
).split()


def sorting(cases):
    op = "aten::sort.values"
    v = Values(op)
    for dtype in REALB:
        for descending in (False, True):
            cases.call(op, v.distinct((2, 6) if dtype.itemsize > 1 else (1, 2), dtype), -1, descending, _name="dtype")
            cases.call(op, v.tensor((3, 7), dtype, -2, 2), 1, descending, _name="ties")
    for shape, dim in (((), 0), ((0,), 0), ((7,), 0), ((3, 4), 0), ((2, 3, 4), 1), ((2, 1, 3, 2), 2), ((1, 2, 1, 5, 2), 3), ((67,), -1), ((2, 0), 0)):
        for descending in (False, True):
            cases.call(op, v.tensor(shape), dim, descending, _name=f"rank{len(shape)}")
    for dtype, descending in itertools.product(FLOATS, (False, True)):
        t = torch.tensor([1.0, float("nan"), float("inf"), -0.0, 0.0, float("-inf"), float("nan"), -2.0], dtype=dtype)
        cases.call(op, t, 0, descending, _name="special")


def pools(cases):
    v = Values("pools")
    for dtype in FLOATS:
        for shape, kernel, stride, padding, ceil, include in (((2, 6), [2], [2], [0], False, True), ((1, 2, 7), [3], [2], [1], True, False), ((1, 1, 5), [3], [1], [1], False, True), ((2, 2, 4), [2], [], [0], False, True)):
            cases.call("aten::avg_pool1d.out", v.tensor(shape, dtype), kernel, stride, padding, ceil, include, _mag=True, _name=f"rank{len(shape)}")
        for shape, size in (((2, 6), [3]), ((1, 2, 7), [3]), ((2, 1, 4), [5]), ((1, 3, 5), [1])):
            cases.call("aten::adaptive_avg_pool1d.out", v.tensor(shape, dtype), size, _mag=True, _name=f"size{size[0]}")
        for shape, size in (((1, 2, 3, 4, 4), [2, 2, 2]), ((2, 3, 4, 5), [1, 3, 2]), ((1, 1, 2, 2, 2), [3, 1, 4]), ((2, 1, 3, 3, 3), [3, 3, 3])):
            cases.call("aten::_adaptive_avg_pool3d.out", v.tensor(shape, dtype), size, _mag=True, _name=f"rank{len(shape)}")
        for shape, kernel, stride, padding, ceil, include, divisor in (
            ((1, 2, 4, 4, 4), [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None), ((1, 1, 3, 5, 5), [2, 3, 3], [1, 2, 2], [1, 1, 1], True, False, None), ((2, 3, 4, 3), [2, 2, 2], [], [1, 0, 1], False, True, None),
            ((1, 1, 3, 4, 4), [3, 2, 2], [1, 1, 1], [1, 1, 1], False, True, 5),
        ):  # fmt: skip
            cases.call("aten::avg_pool3d.out", v.tensor(shape, dtype), kernel, stride, padding, ceil, include, divisor, _mag=True, _name=f"rank{len(shape)}")
        for shape, kernel, stride, padding, dilation, ceil in (
            ((1, 2, 4, 4, 4), [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False), ((1, 1, 3, 5, 5), [2, 3, 3], [1, 2, 2], [1, 1, 1], [1, 1, 1], True), ((2, 3, 4, 3), [2, 2, 2], [], [1, 0, 1], [1, 1, 1], False), ((1, 1, 5, 5, 5), [2, 2, 2], [1, 1, 1], [0, 0, 0], [2, 2, 2], False),
        ):  # fmt: skip
            cases.call("aten::max_pool3d_with_indices.out", v.tensor(shape, dtype), kernel, stride, padding, dilation, ceil, _name=f"rank{len(shape)}")


def backwards(cases):
    v = Values("backwards")
    for dtype in FLOATS:
        for shape, size in (((1, 2, 4, 4), (2, 2)), ((2, 5, 7), (3, 2)), ((1, 1, 2, 3), (4, 5)), ((2, 1, 3, 3), (1, 1))):
            cases.call("aten::_adaptive_avg_pool2d_backward.out", v.tensor((*shape[:-2], *size), dtype), v.tensor(shape, dtype), _mag=True, _name=f"rank{len(shape)}")
        for shape, *args in (((1, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None), ((2, 1, 5, 5), [3, 3], [2, 2], [1, 1], True, False, None), ((1, 5, 4), [2, 3], [1, 1], [1, 1], False, False, None), ((1, 1, 4, 5), [2, 2], [], [0, 0], True, True, 3)):
            x = v.tensor(shape, dtype)
            grad = v.tensor(torch.ops.aten.avg_pool2d(x.float(), *args).shape, dtype)
            cases.call("aten::avg_pool2d_backward.grad_input", grad, x, *args, _mag=True, _name=f"rank{len(shape)}")
        for shape, inner in (((2, 5), (5,)), ((2, 3, 4), (3, 4)), ((3, 17), (17,)), ((1, 2, 2, 3), (2, 3)), ((2, 1), (1,))):
            x = v.tensor(shape, dtype)
            weight, bias = v.tensor(inner, dtype), v.tensor(inner, dtype)
            for w, b in ((weight, bias), (None, None)):
                _, mean, rstd = torch.ops.aten.native_layer_norm(x, inner, w, b, 1e-5)
                if w is not None:
                    # Of one element, PyTorch's terms of about rstd = 316 cancel up to their rounding errors.
                    tol = (1e-5, 1e-3) if inner == (1,) and dtype in (F32, F64) else None
                    cases.call("aten::native_layer_norm_backward.out", v.tensor(shape, dtype), x, inner, mean, rstd, w, b, [True, True, True], _tol=tol, _name=f"rank{len(shape)}")
        for shape, groups in (((2, 4), 2), ((2, 4, 3), 2), ((1, 6, 2, 2), 3), ((2, 3, 2, 2), 1), ((1, 4, 1, 2, 2), 2)):
            n, c = shape[:2]
            inner = torch.Size(shape[2:]).numel()
            x = v.tensor(shape, dtype)
            weight = v.tensor((c,), dtype)
            _, mean, rstd = torch.ops.aten.native_group_norm(x, weight, weight, n, c, inner, groups, 1e-5)
            # Of two elements, the terms cancel likewise.
            tol = (1e-5, 1e-4) if c // groups * inner == 2 and dtype in (F32, F64) else None
            cases.call("aten::native_group_norm_backward.out", v.tensor(shape, dtype), x, mean, rstd, weight, n, c, inner, groups, [True, True, True], _tol=tol, _name=f"groups{groups}")
        for shape, count, padding in (((5,), 4, -1), ((2, 3), 6, 2), ((1,), 1, -1), ((2, 2, 2), 3, 0), ((0,), 3, -1), ((7,), 2, -1)):
            for scale in (False, True):
                index = v.index(shape, count)
                cases.call("aten::embedding_dense_backward.out", v.tensor((*shape, 3), dtype), index, count, padding, scale, _mag=True, _name=f"scale-{scale}".lower())


def bags(cases):
    """The first output is defined by the operator; the others say which rows each bag used."""
    op = "aten::_embedding_bag.out"
    v = Values(op)
    for dtype in (F32, F64, F16, BF16):
        for mode, last, index in itertools.product((0, 1, 2), (False, True), (I64, I32)):
            n, offsets = (6, [0, 2, 2, 5])
            offsets = torch.tensor(offsets + [n] if last else offsets, dtype=index)
            weights = v.tensor((n,), dtype) if mode == 0 else None
            for w in {None: [None], 0: [None, weights]}[0 if mode == 0 else None]:
                cases.call(op, v.tensor((5, 3), dtype), v.index((n,), 5, index), offsets, False, mode, False, w, last, -1, _name=f"mode{mode}")
        cases.call(op, v.tensor((5, 3), dtype), v.index((4,), 5), torch.tensor([0, 1]), False, 0, False, None, False, 2, _name="padding")


def scatters(cases):
    op = "aten::scatter_reduce.two_out"
    v = Values(op)
    for reduce, include, dtype in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False), (F32, F16, I64, F64)):
        for shape, dim, source in (((3, 4), 1, (3, 5)), ((5,), 0, (7,)), ((2, 3, 2), -2, (2, 4, 2))):
            index = v.index(source, shape[dim])
            cases.call(op, v.tensor(shape, dtype, 1, 3), dim, index, v.tensor(source, dtype, 1, 3), reduce, include_self=include, _mag=reduce in ("sum", "mean"), _name=reduce)
    cases.call(op, v.tensor(()), 0, v.index((), 1), v.tensor(()), "sum", _name="rank0")


def folds(cases):
    op = "aten::col2im.out"
    v = Values(op)
    for dtype in FLOATS:
        for size, kernel, dilation, padding, stride in (([4, 4], [2, 2], [1, 1], [0, 0], [1, 1]), ([5, 4], [3, 2], [1, 1], [1, 0], [2, 1]), ([4, 6], [2, 2], [2, 1], [0, 1], [1, 2]), ([3, 3], [1, 1], [1, 1], [0, 0], [1, 1])):
            blocks = 1
            for s, k, d, p, t in zip(size, kernel, dilation, padding, stride):
                blocks *= (s + 2 * p - d * (k - 1) - 1) // t + 1
            for batch in ((), (2,)):
                cases.call(op, v.tensor((*batch, 2 * kernel[0] * kernel[1], blocks), dtype), size, kernel, dilation, padding, stride, _mag=True, _name="fold")


def permutations(cases):
    torch.manual_seed(2)
    for dtype in (I64, I32, F32, F64):
        for n in (0, 1, 2, 10, 100):
            cases.call("aten::randperm.out", n, dtype=dtype, _check="permutation", _name=f"n{n}")


def symbolic(cases):
    """Sizes of the memory layout as numbers. A program's tensors start at offset 0 and are dense."""
    v = Values("symbolic")
    tensors = [v.tensor((2, 3)), v.tensor((5,)), v.tensor((2, 3, 4), I64), channels_last(v.tensor((2, 3, 2, 2))), v.tensor((1, 2, 3, 4), F16), v.tensor((2, 0, 3)), v.tensor((3, 1, 2, 1, 2)), v.tensor((1, 1)), v.tensor(()), v.tensor((4, 4), I32)]
    for t in tensors:
        dtypes = [NAMES[t.dtype]]
        for dim in range(t.dim()):
            for d in (dim, dim - t.dim()):
                cases.raw("aten::sym_stride.int", [tensor(t), {"i": d}, {"out": 0}], [{"i": t.stride(d)}], f"dim{d}", dtypes)
        cases.raw("aten::sym_storage_offset", [tensor(t), {"out": 0}], [{"i": 0}], "offset", dtypes)
        for fmt in (torch.contiguous_format, torch.channels_last) if t.dim() == 4 else (torch.contiguous_format,):
            expected = t.is_contiguous(memory_format=fmt)
            cases.raw("aten::sym_is_contiguous", [tensor(t), {"i": MEMORY_FORMATS[fmt]}, {"out": 0}], [{"b": expected}], "format", dtypes)


def generate(cases):
    sorting(cases)
    pools(cases)
    backwards(cases)
    bags(cases)
    scatters(cases)
    folds(cases)
    permutations(cases)
    symbolic(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F64, F16, BF16, I64), numel=200, per_dtype=5)
