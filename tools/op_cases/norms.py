"""Softmax and normalisation."""

import torch

from . import opinfo
from .values import BF16, F16, F32, F64, FLOATS, Values, channels_last, specials

OPERATORS = [
    f"aten::{n}"
    for n in (
        "_softmax.out _log_softmax.out native_layer_norm.out native_group_norm.out _native_batch_norm_legit.out "
        "_native_batch_norm_legit.no_stats_out _native_batch_norm_legit_no_training.out"
    ).split()
]
SOURCES = (
    "softmax log_softmax nn.functional.layer_norm native_layer_norm nn.functional.group_norm nn.functional.batch_norm native_batch_norm "
    "_native_batch_norm_legit nn.functional.instance_norm nn.functional.softmin"
).split()


def softmaxes(cases):
    for op in ("aten::_softmax.out", "aten::_log_softmax.out"):
        v = Values(op)
        for dtype in FLOATS:
            for shape, dim in (((5,), 0), ((3, 4), 1), ((3, 4), 0), ((2, 3, 4), 1), ((2, 3, 4), -1), ((2, 3, 2, 2), 1), ((1, 2, 2, 3, 2), 3), ((), 0), ((0, 3), 1), ((3, 0), 0), ((2, 70), 1), ((4, 1), 1)):
                cases.call(op, v.tensor(shape, dtype), dim, False, _name=f"dim{dim}")
            cases.call(op, v.tensor((2, 6), dtype, -90, 90), 1, False, _name="wide-range")
            rows = torch.tensor([[1, float("nan"), 2], [float("inf"), 1, -1], [float("-inf"), 3, 0], [float("-inf")] * 3, [float("inf"), float("inf"), 0]], dtype=dtype)
            cases.call(op, rows, 1, False, _name="special")
        cases.call(op, channels_last(v.tensor((1, 3, 2, 2))), 1, False, _name="channels-last")
        cases.call(op, channels_last(v.tensor((2, 3, 2, 2))), -1, False, _name="channels-last")
        cases.call(op, v.tensor((700,), F32, -9, 9), 0, False, _name="long")


def layer_norms(cases):
    op = "aten::native_layer_norm.out"
    v = Values(op)
    for dtype in FLOATS:
        for shape, inner in (((2, 5), (5,)), ((2, 3, 4), (4,)), ((2, 3, 4), (3, 4)), ((6,), (6,)), ((2, 2, 3, 2), (2, 3, 2)), ((1, 2, 1, 2, 3), (2, 3)), ((0, 4), (4,)), ((3, 67), (67,)), ((3, 1), (1,))):
            weight, bias = v.tensor(inner, dtype), v.tensor(inner, dtype)
            for w, b in ((weight, bias), (None, None), (weight, None), (None, bias)):
                cases.call(op, v.tensor(shape, dtype), inner, w, b, 1e-5, _name=f"rank{len(shape)}")
        cases.call(op, torch.full((2, 4), 3.0, dtype=dtype), (4,), None, None, 1e-3, _name="constant")
        # The extremes of f32 are left out: whether their running mean overflows depends on the order.
        cases.call(op, specials(dtype)[:15].reshape(3, 5), (5,), None, None, 1e-5, _name="special")
    cases.call(op, v.tensor((2, 64), F32, 999, 1001), (64,), None, None, 1e-6, _name="large-mean")


def group_norms(cases):
    op = "aten::native_group_norm.out"
    v = Values(op)
    for dtype in FLOATS:
        for shape, groups in (((2, 4), 2), ((2, 4, 3), 2), ((1, 6, 2, 2), 3), ((2, 3, 2, 2), 1), ((2, 3, 2, 2), 3), ((1, 4, 1, 2, 2), 2), ((0, 4, 2), 2), ((1, 2, 5, 7), 2)):
            n, c = shape[:2]
            inner = 1
            for d in shape[2:]:
                inner *= d
            weight, bias = v.tensor((c,), dtype), v.tensor((c,), dtype)
            # PyTorch computes x * scale - mean * scale, which cancels where two elements of a group are close.
            tol = (1e-5, 1e-4) if c // groups * inner == 2 and dtype in (F32, F64) else None
            for w, b in ((weight, bias), (None, None), (weight, None), (None, bias)):
                cases.call(op, v.tensor(shape, dtype), w, b, n, c, inner, groups, 1e-5, _tol=tol, _name=f"groups{groups}")
    cases.call(op, v.tensor((1, 2, 40), F32, 999, 1001), None, None, 1, 2, 40, 1, 1e-6, _name="large-mean")


def batch_norms(cases):
    shapes = ((2, 3), (4, 2, 3), (2, 3, 2, 2), (2, 2, 1, 2, 2), (3, 1), (2, 2, 5, 7))
    v = Values("batch")
    for dtype in FLOATS:
        for shape in shapes:
            c = shape[1]
            stats = v.tensor((c,), dtype), v.tensor((c,), dtype, 0.5, 4)
            weight, bias = v.tensor((c,), dtype), v.tensor((c,), dtype)
            for w, b in ((weight, bias), (None, None), (weight, None), (None, bias)):
                x = v.tensor(shape, dtype)
                cases.call("aten::_native_batch_norm_legit_no_training.out", x, w, b, *stats, 0.1, 1e-5, _name=f"rank{len(shape)}")
                cases.call("aten::_native_batch_norm_legit.no_stats_out", x, w, b, True, 0.1, 1e-5, _name=f"rank{len(shape)}")
                for training in (True, False):
                    cases.call("aten::_native_batch_norm_legit.out", x, w, b, *stats, training, 0.1, 1e-5, _name=f"training-{training}".lower())
    x = channels_last(v.tensor((2, 3, 2, 2)))
    stats = v.tensor((3,)), v.tensor((3,), F32, 0.5, 4)
    cases.call("aten::_native_batch_norm_legit_no_training.out", x, None, None, *stats, 0.1, 1e-3, _name="channels-last")
    cases.call("aten::_native_batch_norm_legit.no_stats_out", x, None, None, True, 0.1, 1e-3, _name="channels-last")
    cases.call("aten::_native_batch_norm_legit.out", x, None, None, *stats, False, 0.1, 1e-3, _name="channels-last")
    for momentum in (0.0, 0.5, 1.0):
        cases.call("aten::_native_batch_norm_legit.out", v.tensor((3, 2, 2)), None, None, v.tensor((2,)), v.tensor((2,), F32, 0.5, 4), True, momentum, 1e-5, _name="momentum")


def generate(cases):
    softmaxes(cases)
    layer_norms(cases)
    group_norms(cases)
    batch_norms(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F64, F16, BF16), numel=200, per_dtype=8)
