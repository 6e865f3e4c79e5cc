"""Resizing by sizes and by factors near those that keep an axis, in all modes, wherever it runs."""

import itertools
import random

import pytest
import rushlight
import torch
import torch.nn.functional as F
from torch import nn

FACTORS = [0.4, 0.5, 0.9, 0.99, 1.0, 1.01, 1.05, 1.1, 1.3, 1.5, 2.0, 2.2, 2.4, 3.0]
MODES = {
    3: ["linear", "nearest", "nearest-exact"],
    4: ["bilinear", "bicubic", "nearest", "nearest-exact", "bilinear aa", "bicubic aa"],
    5: ["trilinear", "nearest", "nearest-exact"],
}
SHAPES = {3: [(1, 2, 7), (2, 1, 11)], 4: [(1, 2, 7, 9), (2, 3, 1, 5), (1, 1, 12, 3)], 5: [(1, 2, 3, 4, 5)]}


class Resized(nn.Module):
    """Resizes one input in several ways."""

    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def forward(self, x):
        return tuple(F.interpolate(x, **case) for case in self.cases)


def cases(rank, mode, shape):
    """The arguments of `interpolate`: one factor, one for each axis, with and without sizes from it, and sizes."""
    chosen = random.Random(f"{rank} {mode} {shape}")
    name, _, antialias = mode.partition(" ")
    spatial = rank - 2
    targets = [{"scale_factor": factor} for factor in FACTORS]
    targets += [{"scale_factor": tuple(chosen.choices(FACTORS, k=spatial))} for _ in range(6)]
    targets += [{**target, "recompute_scale_factor": True} for target in targets[::3]]
    targets += [{"size": tuple(chosen.choice([size, 2 * size, max(size - 1, 1), 5]) for size in shape[2:])} for _ in range(6)]
    corners = [{"align_corners": False}, {"align_corners": True}] if "linear" in name or "cubic" in name else [{}]
    for target, corner in itertools.product(targets, corners):
        case = {"mode": name, **target, **corner, **({"antialias": True} if antialias else {})}
        try:
            resized = F.interpolate(torch.zeros(shape), **case)
        except RuntimeError:
            # An axis without pixels.
            continue
        if antialias and resized.shape[-1] == 1:
            # PyTorch gives the first row again and again then, since it takes the stride of the only column for that of rows.
            continue
        yield case


@pytest.mark.parametrize(("rank", "mode"), [(rank, mode) for rank, modes in MODES.items() for mode in modes])
def test_resizing_is_that_of_eager(rank, mode):
    for shape in SHAPES[rank]:
        chosen = list(cases(rank, mode, shape))
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        module = Resized(chosen).eval()
        expected = module(x)
        exported = torch.export.export(module, (x,))
        portable = rushlight.compile(exported, progress=False).buffer
        compiled = rushlight.compile(exported, backend="cpu", progress=False).buffer
        for way, loaded in {
            "portable": rushlight.load(portable, lower="off"),
            "lowered": rushlight.load(portable, lower="cpu"),
            "compiled": rushlight.load(compiled),
        }.items():
            for case, got, want in zip(chosen, loaded(x), expected, strict=True):
                torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5, msg=lambda m, w=way, c=case: f"{w} {shape} {c}: {m}")


class BothGiven(nn.Module):
    def forward(self, x):
        return torch.ops.aten.upsample_bilinear2d(x, [8, 8], False, 1.3, 1.3)


def test_sizes_that_contradict_their_factor_are_refused():
    exported = torch.export.export(BothGiven(), (torch.zeros(1, 1, 4, 4),))
    with pytest.raises(rushlight.Error, match="a factor that does not give its size"):
        rushlight.compile(exported)
