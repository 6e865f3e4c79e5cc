"""Makes the corpus of programs that ExecuTorch lowers for Vulkan, in `tests/corpus/<version>-vulkan/`.

    python tools/corpus/make_vulkan.py                    everything
    python tools/corpus/make_vulkan.py --only net,pool    some of it

Results are eager PyTorch's of the model before it is lowered, as the package of ExecuTorch has no runtime for Vulkan. Files are described in
`make.py`, whose environment for the newest generation this needs.
"""

import dataclasses

import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.backends.vulkan.quantizer import vulkan_quantizer
from executorch.backends.vulkan.quantizer.vulkan_quantizer import VulkanQuantizer
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer
from torch import nn
from torch.export import Dim
from torch.nn import functional as F
from torchao.quantization.granularity import PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, quantize_

import make  # isort: skip
from make import Program, uniform
from make_xnnpack import Function, lower

PROGRAMS = {}
# Weights and activations are of 16 bits on the device.
HALF = {"tolerance": 4e-3}


def program(build):
    PROGRAMS[build.__name__] = build
    return build


def delegated(model, *calls, options=None, **others):
    return Program(model.eval(), list(calls), partitioners=[VulkanPartitioner(options or {})], **others)


@program
def unary():
    def forward(x):
        return (
            x.abs(), x.cos(), x.exp(), F.gelu(x), F.hardshrink(x), F.hardswish(4 * x), F.hardtanh(x), F.leaky_relu(x, 0.2),
            -x, F.relu(x), x.round(), x.sigmoid(), x.sin(), x.tanh(), x.clamp(-0.5, 0.25), F.relu6(8 * x),
        )  # fmt: skip

    return delegated(Function(forward), (2 * uniform(2, 9),))


@program
def positive():
    return delegated(Function(lambda x: (x.sqrt(), x.rsqrt(), x.log10(), x**2.5, x**x)), (uniform(2, 9).abs() + 0.1,))


@program
def binary():
    def forward(x, y, row):
        return (
            x + y, x - 2 * row, x * y, x / (row.abs() + 0.5), torch.minimum(x, row), torch.div(x, y, rounding_mode="floor"),
            torch.add(x, y, alpha=3),
        )  # fmt: skip

    return delegated(Function(forward), (uniform(2, 3, 5), uniform(2, 3, 5), uniform(5)))


@program
def comparisons():
    def forward(x, y):
        is_positive = torch.logical_and(x > 0, torch.logical_not(y <= 0))
        return x == y, x >= y, x > 0.5, x < y, x <= 1, x != 1.0, torch.where(x > y, x, y), is_positive, torch.logical_or(x < 0, y < 0)

    return delegated(Function(forward), (uniform(3, 5), uniform(3, 5)))


@program
def moves():
    def forward(x):
        return (
            x.permute(0, 2, 1), x.transpose(0, 1).contiguous(), x[:, 1:3], x.flip(1), x.unsqueeze(1), x.repeat(1, 2, 1),
            torch.cat([x, x + 1], 2), x.view(2, -1), x.expand(2, 3, 4) + 0, x.select(1, 1), *x.split(2, 2),
            F.pad(x, (1, 2), value=0.5), x[:1].squeeze(0), F.pixel_shuffle(x.view(1, 4, 2, 3), 2),
        )  # fmt: skip

    return delegated(Function(forward), (uniform(2, 3, 4),))


@program
def reductions():
    def forward(x):
        return (
            x.sum(1), x.mean(2, keepdim=True), x.amax(1), x.amin(2), x.argmax(2), x.argmin(1), F.log_softmax(x, -1), F.softmax(x, 1),
        )  # fmt: skip

    return delegated(Function(forward), (uniform(2, 3, 4),))


@program
def products():
    def forward(x, y, a, b):
        return x @ y, torch.bmm(a, b), torch.addmm(x, x, y)

    return delegated(Function(forward), (uniform(3, 6), uniform(6, 6), uniform(2, 3, 4), uniform(2, 4, 5)))


@program
def creation():
    def forward(x):
        return (
            torch.full((2, 3), 1.0) + x, torch.zeros_like(x) + 1, torch.ones(2, 3) * x, torch.arange(0, 3) + x, torch.full_like(x, 2.0),
        )  # fmt: skip

    return delegated(Function(forward), (uniform(2, 3),))


@program
def gathers():
    def forward(x, indices):
        return torch.gather(x, 1, indices), torch.index_select(x, 0, indices[0]), x[indices[1]]

    return delegated(Function(forward), (uniform(4, 5), torch.tensor([[0, 1], [2, 3], [1, 1], [0, 3]])))


@program
def embedding():
    return delegated(nn.Embedding(20, 8), (torch.tensor([[0, 19, 3], [7, 7, 1]]),))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3, dilation=2),
        nn.Conv2d(6, 4, 1),
    )


@program
def conv():
    return delegated(convolutions(), (uniform(1, 3, 24, 20),), (uniform(1, 3, 24, 20),))


@program
def conv_half():
    return delegated(convolutions(), (uniform(1, 3, 24, 20),), options={"force_fp16": True}, **HALF)


@program
def conv_transpose():
    layer = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
    return delegated(layer, (uniform(1, 4, 5, 6),))


@program
def conv1d():
    return delegated(nn.Conv1d(3, 6, 3, padding=1), (uniform(1, 3, 11),))


@program
def pool():
    def forward(x):
        return F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2), F.avg_pool2d(x, 2)

    return delegated(Function(forward), (uniform(1, 3, 8, 10),))


@program
def resize():
    def forward(x, grid):
        return (
            F.interpolate(x, scale_factor=2.0, mode="nearest"), F.interpolate(x, size=(7, 9), mode="bilinear"),
            F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=True),
        )  # fmt: skip

    return delegated(Function(forward), (uniform(1, 3, 4, 5), uniform(1, 4, 4, 2)))


@program
def norms():
    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.group, self.layer, self.rms = nn.GroupNorm(2, 8), nn.LayerNorm(6), nn.RMSNorm(6, eps=1e-5)

        def forward(self, x):
            x = self.group(x)
            return x, self.layer(x), self.rms(x)

    return delegated(Norms(), (uniform(1, 8, 4, 6),))


@program
def attention():
    """Lengths vary: sizes cross the borders of the delegate's parts."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    dynamic = ({1: Dim("length", max=16)},)
    return delegated(layer, *[(uniform(1, length, 16),) for length in (5, 2, 16)], dynamic=dynamic)


@program
def fused_attention():
    def forward(query, key, value):
        return F.scaled_dot_product_attention(query, key, value)

    return delegated(Function(forward), tuple(uniform(1, 2, 5, 8) for _ in range(3)))


@program
def dynamic():
    layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(-1))
    dynamic = ({0: Dim("batch", min=1, max=8)},)
    return delegated(layers, *[(uniform(n, 6),) for n in (3, 1, 8)], dynamic=dynamic)


@program
def linear_half():
    layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return delegated(layers, (uniform(4, 6),), options={"force_fp16": True}, **HALF)


def quantized_by_torchao(config):
    layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 12)).eval()
    quantize_(layers, config)
    return layers


@program
def weights_of_4_bits():
    config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
    return delegated(quantized_by_torchao(config), (uniform(3, 64),))


@program
def rows_of_8_bits():
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    return delegated(quantized_by_torchao(config), (uniform(3, 64),), tolerance=2e-2)


def quantized_by_pt2e(quantizer, model, *inputs):
    prepared = prepare_pt2e(torch.export.export(model.eval(), inputs).module(), quantizer)
    prepared(*inputs)
    return Program(convert_pt2e(prepared), [inputs], partitioners=[VulkanPartitioner()], tolerance=2e-2)


def of_vulkan(**options):
    return VulkanQuantizer().set_global(vulkan_quantizer.get_symmetric_quantization_config(**options))


def static():
    """The scales of activations are known: ExecuTorch's documentation of Vulkan takes this quantizer for it."""
    return XNNPACKQuantizer().set_global(xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True))


@program
def channels_of_8_bits():
    return quantized_by_pt2e(of_vulkan(), nn.Linear(16, 12), uniform(3, 16))


@program
def channels_of_4_bits():
    return quantized_by_pt2e(of_vulkan(weight_bits=4), nn.Linear(16, 12), uniform(3, 16))


@program
def dynamic_linear():
    return quantized_by_pt2e(of_vulkan(is_dynamic=True), nn.Linear(16, 12), uniform(3, 16))


@program
def static_linear():
    return quantized_by_pt2e(static(), nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 8)), uniform(3, 16))


@program
def static_input():
    """The result of the layer stays floats."""
    config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = XNNPACKQuantizer().set_global(dataclasses.replace(config, output_activation=None))
    return quantized_by_pt2e(quantizer, nn.Linear(16, 12), uniform(3, 16))


@program
def static_conv():
    class Images(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.depthwise = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, groups=8, padding=1)
            self.grouped, self.last = nn.Conv2d(8, 8, 3, groups=2, padding=1), nn.Conv2d(8, 5, 1)

        def forward(self, x):
            x = F.relu(self.first(x))
            x = F.relu(x + self.depthwise(x))
            return self.last(self.grouped(x))

    return quantized_by_pt2e(static(), Images(), uniform(1, 3, 12, 10))


@program
def rms_norm():
    """Written as decoders have it, which ExecuTorch finds."""

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(uniform(8))

        def forward(self, x):
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight

    return delegated(Norm(), (uniform(2, 3, 8),))


if __name__ == "__main__":
    make.PROGRAMS, make.lower = PROGRAMS, lower
    make.main(f"{make.VERSION}-vulkan")
