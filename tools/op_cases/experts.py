"""What mixtures of experts of Hugging Face's transformers call: histograms of chosen experts, and grouped matrix products."""

import torch
import transformers_ops  # noqa: F401

from . import opinfo
from .values import BF16, F16, F32, F64, FLOATS, I32, I64, Values

HISTC = "aten::histc.out"
GROUPED = "transformers::grouped_mm_fallback.out"


def histograms(cases):
    v = Values(HISTC)
    nan, inf = float("nan"), float("inf")
    for dtype in FLOATS:
        for experts in (1, 2, 4, 8, 60):
            chosen = v.tensor((24,), I64, 0, experts - 1).to(dtype)
            cases.call(HISTC, chosen, experts, 0, experts - 1, _name=f"experts{experts}")
        for shape in ((), (1,), (0,), (5,), (3, 4), (2, 3, 4), (2, 1, 3, 2), (1, 2, 1, 5, 2)):
            for bins, low, high in ((10, 0, 0), (7, -3, 3), (3, -1.5, 0.25), (1, 2, 2)):
                cases.call(HISTC, v.tensor(shape, dtype), bins, low, high, _name=f"rank{len(shape)}")
        cases.call(HISTC, v.tensor((6,), dtype), _name="defaults")
        cases.call(HISTC, torch.full((4,), 3.0, dtype=dtype), 5, 0, 0, _name="one-number")
        cases.call(HISTC, torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8], dtype=dtype), 4, 0, 8, _name="edges")
        cases.call(HISTC, torch.tensor([nan, inf, -inf, 0.5, -0.0, 1.0], dtype=dtype), 4, 0, 1, _name="special")
        cases.call(HISTC, torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], dtype=dtype), 10, 0, 1, _name="tenths")
    cases.call(HISTC, v.tensor((2, 2, 3, 2)).to(memory_format=torch.channels_last), 6, -2, 2, _name="channels-last")


def grouped(cases):
    v = Values(GROUPED)
    for dtype in FLOATS:
        for m, k, n, ends in (
            (6, 4, 5, (2, 3, 6)), (6, 4, 5, (0, 0, 6)), (6, 4, 5, (6, 6, 6)), (5, 3, 2, (1, 2, 3, 4)), (4, 3, 2, (0,)), (1, 8, 16, (0, 1)), (0, 3, 2, (0, 0)), (4, 0, 3, (1, 4)), (4, 3, 0, (1, 4)),
            (13, 17, 19, (5, 5, 12, 13)), (9, 33, 8, (8, 9)),
        ):  # fmt: skip
            for index in (I32, I64):
                offsets = torch.tensor(ends, dtype=index)
                cases.call(GROUPED, v.tensor((m, k), dtype), v.tensor((len(ends), k, n), dtype), offsets, _mag=True, _name=f"{m}x{k}x{n}")
        weights = v.tensor((3, 5, 4), dtype).transpose(1, 2)
        cases.call(GROUPED, v.tensor((6, 4), dtype), weights, torch.tensor([1, 4, 6], dtype=I32), _mag=True, _name="transposed")
    for dtype in (F32, F64, F16, BF16):
        special = torch.tensor([[float("nan"), 1.0], [float("inf"), -1.0], [0.0, 2.0]], dtype=dtype)
        cases.call(GROUPED, special, v.tensor((2, 2, 3), dtype), torch.tensor([1, 3], dtype=I32), _name="special")


def generate(cases):
    histograms(cases)
    grouped(cases)
    opinfo.collect(cases, ["histc"], [HISTC], (F32, F64), numel=200, per_dtype=10)
