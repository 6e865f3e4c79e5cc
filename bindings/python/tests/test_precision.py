"""Weights of 16 bits: what comes out is what eager PyTorch computes in f32 with weights that were rounded before.

Processors with bf16 dot products round the inputs of matmuls too; baseline SSE2 and NEON do not.
"""

import copy
import platform

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
def test_weights_are_rounded_and_nothing_else(precision, batch, monkeypatch):
    # Baseline SIMD, which has no bf16 dot products.
    monkeypatch.setenv("RUSHLIGHT_ISA", "sse2" if platform.machine() in ("x86_64", "AMD64") else "neon")
    torch.manual_seed(0)
    model = Mixed().eval()
    x = torch.randn(batch, 24, 11, 13)
    program = rushlight.export(model, (x,), backend=f"cpu:precision={precision}")
    got = torch.from_dlpack(program(x))
    expected = rounded(model, TYPES[precision])(x)
    assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()
    # The rounding is there, and not lost in what the two sum differently.
    assert (got - model(x)).abs().max() > 1e-5 * expected.abs().max()


@pytest.mark.parametrize("batch", [1, 5])
def test_inputs_are_rounded_at_most_to_bf16(batch):
    torch.manual_seed(0)
    model = Mixed().eval()
    x = torch.randn(batch, 24, 11, 13)
    got = torch.from_dlpack(rushlight.export(model, (x,), backend="cpu:precision=bf16")(x))
    expected = rounded(model, torch.bfloat16)
    exact = expected(x)
    for module in expected.modules():
        if hasattr(module, "weight"):
            module.register_forward_pre_hook(lambda _, inputs: (inputs[0].bfloat16().float(),))
    # As near to one of the two as they are to each other, which is what another rounding of a few inputs makes.
    spread = (expected(x) - exact).abs().max()
    assert min((got - exact).abs().max(), (got - expected(x)).abs().max()) <= spread


class Chained(nn.Module):
    """What may be bf16 between products: windows of one channel, gates, residuals, pools, means and normalised rows."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, stride=2, padding=1)
        self.expand = nn.Conv2d(24, 96, 1)
        self.windows = nn.Conv2d(96, 96, 5, padding=2, groups=96)
        self.squeeze, self.excite = nn.Conv2d(96, 24, 1), nn.Conv2d(24, 96, 1)
        self.project = nn.Conv2d(96, 24, 1)
        self.norm = nn.LayerNorm(48)
        self.inner, self.outer = nn.Linear(48, 192), nn.Linear(192, 48)

    def forward(self, x):
        x = nn.functional.hardswish(self.stem(x))
        y = nn.functional.hardswish(self.windows(nn.functional.relu6(self.expand(x))))
        gate = nn.functional.hardsigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        x = x + self.project(y * gate)
        x = torch.cat([nn.functional.max_pool2d(x, 3, 2, 1), nn.functional.avg_pool2d(x, 2)], 1)
        x = x.flatten(2).transpose(1, 2)
        return x + self.outer(nn.functional.gelu(self.inner(self.norm(x))))


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_nearer_than_those_of_a_model_in_bf16(threads):
    torch.manual_seed(0)
    model, x = Chained().eval(), torch.randn(2, 3, 44, 60)
    program = rushlight.load(rushlight.export(model, (x,), backend="cpu:precision=bf16").buffer, threads=threads)
    with torch.no_grad():
        exact, rough = model(x), copy.deepcopy(model).bfloat16()(x.bfloat16()).float()
    got = torch.from_dlpack(program(x))
    assert (got - exact).abs().max() <= (rough - exact).abs().max()
    assert (got - exact).square().mean() <= (rough - exact).square().mean()


@pytest.mark.parametrize("precision", TYPES)
def test_the_file_has_half_the_weights(precision):
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).eval()
    x = (torch.zeros(1, 512),)
    whole = len(rushlight.export(model, x, backend="cpu").buffer)
    half = len(rushlight.export(model, x, backend=("cpu", {"precision": precision})).buffer)
    assert half < 0.51 * whole


def test_what_cannot_be_meant_is_refused():
    model, x = nn.Linear(64, 64), (torch.zeros(1, 64),)
    with pytest.raises(rushlight.Error, match="`f8`"):
        rushlight.export(model, x, backend="cpu:precision=f8")
    with pytest.raises(TypeError, match='backend="cpu:precision=bf16"'):
        rushlight.export(model, x, precision="bf16")
    with torch.no_grad():
        model.weight[3, 5] = 1e5
    with pytest.raises(rushlight.Error, match="65504"):
        rushlight.export(model, x, backend="cpu:precision=f16")
    assert rushlight.export(model, x, backend="cpu:precision=bf16").buffer
