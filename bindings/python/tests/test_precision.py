"""Weights of 16 bits: what comes out is what eager PyTorch computes in f32 with weights that were rounded before."""

import copy

import pytest
import rushlight
import torch
from torch import nn

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


class Mixed(nn.Module):
    """Every kind of product whose weights are rounded: pointwise, grouped, large, transposed and linear."""

    def __init__(self):
        super().__init__()
        self.pointwise = nn.Conv2d(24, 64, 1)
        self.grouped = nn.Conv2d(64, 64, 5, padding=2, groups=2)
        self.strided = nn.Conv2d(64, 48, 3, stride=2)
        self.transposed = nn.ConvTranspose2d(48, 32, 3, stride=2)
        self.body = nn.Linear(32, 300)
        self.head = nn.Linear(300, 40)

    def forward(self, x):
        x = torch.relu(self.pointwise(x))
        x = torch.relu(self.grouped(x))
        x = torch.relu(self.strided(x))
        x = self.transposed(x).mean((2, 3))
        return self.head(torch.nn.functional.gelu(self.body(x)))


def rounded(model, dtype):
    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "weight"):
            module.weight.data = module.weight.data.to(dtype).float()
    return model


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("batch", [1, 5])
def test_weights_are_rounded_and_nothing_else(precision, batch):
    torch.manual_seed(0)
    model = Mixed().eval()
    x = torch.randn(batch, 24, 11, 13)
    program = rushlight.export(model, (x,), backend="cpu", precision=precision)
    got = torch.from_dlpack(program(x))
    expected = rounded(model, TYPES[precision])(x)
    assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()
    # The rounding is there, and not lost in what the two sum differently.
    assert (got - model(x)).abs().max() > 1e-5 * expected.abs().max()


@pytest.mark.parametrize("precision", TYPES)
def test_the_file_has_half_the_weights(precision):
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).eval()
    x = (torch.zeros(1, 512),)
    whole = len(rushlight.export(model, x, backend="cpu").buffer)
    half = len(rushlight.export(model, x, backend="cpu", precision=precision).buffer)
    assert half < 0.51 * whole


def test_what_cannot_be_meant_is_refused():
    model, x = nn.Linear(64, 64), (torch.zeros(1, 64),)
    with pytest.raises(rushlight.Error, match="`f8`"):
        rushlight.export(model, x, backend="cpu", precision="f8")
    with pytest.raises(rushlight.Error, match="not asked"):
        rushlight.export(model, x, precision="bf16")
    with torch.no_grad():
        model.weight[3, 5] = 1e5
    with pytest.raises(rushlight.Error, match="65504"):
        rushlight.export(model, x, backend="cpu", precision="f16")
    assert rushlight.export(model, x, backend="cpu", precision="bf16").buffer
