"""Counting: distinct elements, histograms, the most frequent element, segments; and samples of distributions."""

import itertools

import torch

from .values import BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, REALB, U8, Values, channels_last


def distinct(cases):
    v = Values("unique")
    for dtype in REALB:
        for inverse, counts in itertools.product((False, True), (False, True)):
            cases.call("aten::_unique2.out", v.tensor((3, 5), dtype, -2, 2), True, inverse, counts, _name="dtype")
            cases.call("aten::unique_consecutive.out", v.tensor((11,), dtype, 0, 2), inverse, counts, _name="dtype")
        cases.call("aten::unique_dim.out", v.tensor((7, 2), dtype, 0, 1), 0, True, True, True, _name="rows")
        cases.call("aten::unique_consecutive.out", v.tensor((7, 1), dtype, 0, 1), True, True, 0, _name="rows")
    for shape in ((), (0,), (1,), (2, 3, 2), (2, 1, 3, 2)):
        x = v.tensor(shape, I64, 0, 3)
        cases.call("aten::_unique2.out", x, True, True, True, _name=f"rank{len(shape)}")
        cases.call("aten::unique_consecutive.out", x, True, True, _name=f"rank{len(shape)}")
    for dim in (0, 1, 2, -1):
        x = v.tensor((3, 4, 3), I64, 0, 1)
        cases.call("aten::unique_dim.out", x, dim, True, True, True, _name=f"dim{dim}")
        cases.call("aten::unique_consecutive.out", x.sort(dim).values, True, True, dim, _name=f"dim{dim}")
    cases.call("aten::_unique2.out", channels_last(v.tensor((2, 3, 2, 2), I64, 0, 4)), True, True, True, _name="channels-last")
    nan = float("nan")
    cases.call("aten::_unique2.out", torch.tensor([nan, 1.0, float("inf"), 1.0, -float("inf"), nan]), True, True, True, _name="nan")


def counts(cases):
    v = Values("bincount")
    for dtype in (U8, I32, I64):
        for least in (0, 4, 20):
            x = v.tensor((13,), dtype, 0, 9)
            cases.call("aten::bincount.out", x, None, least, _name="counts")
            for weights in (F32, F64, I64):
                cases.call("aten::bincount.out", x, v.tensor((13,), weights), least, _mag=True, _name="weights")
    cases.call("aten::bincount.out", torch.zeros(0, dtype=I64), None, 3, _name="empty")
    for dtype, size, fill in itertools.product((F32, I64, BOOL, F16), (0, 3, 20), (-1, 7)):
        for shape in ((6,), (2, 3), (2, 1, 4), (0, 2), ()):
            cases.call("aten::nonzero_static.out", v.tensor(shape, dtype, -1, 1), size=size, fill_value=fill, _name=f"rank{len(shape)}")
    for dtype in REALB:
        for shape, dim in (((9,), 0), ((3, 7), -1), ((5, 3), 0), ((2, 6, 2), 1)):
            for keepdim in (False, True):
                cases.call("aten::mode.values", v.tensor(shape, dtype, 0, 2), dim, keepdim, _unspecified=[1], _name="dtype")
    cases.call("aten::mode.values", v.tensor((), F32), 0, _name="rank0")


def histograms(cases):
    v = Values("histogram")
    op = "aten::_histogramdd_from_bin_tensors.out"
    for dtype in (F32, F64):
        for dims, density, weighted in itertools.product((1, 2, 3), (False, True), (False, True)):
            edges = [torch.tensor([-3.0, -1.0, 0.5, 1.0, 4.0][: 5 - d], dtype=dtype) for d in range(dims)]
            weight = v.tensor((20,), dtype, 0, 2) if weighted else None
            cases.call(op, v.tensor((20, dims), dtype), edges, weight=weight, density=density, _mag=True, _name=f"dims{dims}")
        special = torch.tensor([[-3.0], [4.0], [0.5], [float("nan")], [float("inf")], [5.0]], dtype=dtype)
        cases.call(op, special, [torch.tensor([-3.0, 0.5, 4.0], dtype=dtype)], _name="edges")


def segments(cases):
    v = Values("segments")
    op = "aten::segment_reduce.out"
    lengths = torch.tensor([2, 0, 3, 1])
    for dtype, reduce, initial in itertools.product(FLOATS, ("sum", "mean", "max", "min", "prod"), (None, 1.5)):
        for shape in ((6,), (6, 2)):
            cases.call(op, v.tensor(shape, dtype), reduce, lengths=lengths, axis=0, unsafe=False, initial=initial, _name=reduce)
        cases.call(op, v.tensor((6, 2), dtype), reduce, offsets=torch.tensor([0, 2, 2, 6], dtype=I64), axis=0, initial=initial, _name=reduce)
    for reduce in ("sum", "max"):
        cases.call(op, v.tensor((2, 4, 3)), reduce, lengths=torch.tensor([[1, 3], [2, 2]]), axis=1, _name="batches")


def samples(cases):
    v = Values("samples")
    torch.manual_seed(1)
    for dtype in FLOATS:
        for shape, count, replacement in (((5,), 3, False), ((5,), 8, True), ((2, 4), 4, False), ((3, 4), 1, True)):
            cases.call("aten::multinomial.out", v.tensor(shape, dtype, 0.1, 4), count, replacement, _check="shape", _name="weights")
        for shape in ((), (4,), (2, 3), (0,)):
            cases.call("aten::poisson.out", v.tensor(shape, dtype, 0, 30), _check="shape", _name=f"rank{len(shape)}")
            cases.call("aten::_standard_gamma.out", v.tensor(shape, dtype, 0.1, 8), _check="shape", _name=f"rank{len(shape)}")
        cases.call("aten::binomial.out", v.tensor((2, 3), dtype, 1, 40).round(), v.tensor((3,), dtype, 0, 1), _check="shape", _name="broadcast")


def generate(cases):
    distinct(cases)
    counts(cases)
    histograms(cases)
    segments(cases)
    samples(cases)
