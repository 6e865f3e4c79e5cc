"""Makes the corpus of programs that ExecuTorch lowers for XNNPACK, in `tests/corpus/<version>-xnnpack/`.

    python tools/corpus/make_xnnpack.py                    everything
    python tools/corpus/make_xnnpack.py --only conv,pool   some of it

Together they have every node of the delegate's schema that its partitioner makes of float tensors, and one is quantized. Files are described in
`make.py`, whose environment for the newest generation this needs.
"""

import torch
from executorch.backends.xnnpack.partition.config.generic_node_configs import EluConfig
from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import make  # isort: skip
from make import Program, uniform

PROGRAMS = {}


def program(build):
    PROGRAMS[build.__name__] = build
    return build


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def delegated(model, *calls, partitioner=None, **options):
    return Program(model.eval(), list(calls), partitioners=[partitioner or XnnpackPartitioner()], **options)


@program
def unary():
    def forward(x):
        positive = x.abs() + 0.1
        return (
            x.ceil(), x.floor(), x.exp(), positive.log(), -x, positive.sqrt(), positive.rsqrt(), x.sigmoid(), x.tanh(),
            x.sin(), x.cos(), x.pow(2), F.hardswish(4 * x), F.gelu(x), F.leaky_relu(x, 0.2), x.clamp(-0.5, 0.25),
            F.hardtanh(x), F.relu(x), x.abs(),
        )  # fmt: skip

    return delegated(Function(forward), (2 * uniform(2, 9),))


@program
def elu():
    configs = [*ALL_PARTITIONER_CONFIGS, EluConfig]
    return delegated(nn.ELU(0.7), (2 * uniform(2, 9),), partitioner=XnnpackPartitioner(configs=configs))


@program
def binary():
    def forward(x, y, row):
        return (
            F.relu(x + y), x - row, x * y, x / (row.abs() + 0.5), torch.maximum(x, y), torch.minimum(x, row),
            F.hardtanh(x * row, -0.25, 0.5), F.relu6(x - y),
        )  # fmt: skip

    return delegated(Function(forward), (uniform(2, 3, 5), uniform(2, 3, 5), uniform(5)))


@program
def conv():
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, (3, 5), padding=(1, 2), groups=8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3, dilation=2, groups=2),
        nn.Conv2d(6, 12, 3, groups=6),
        nn.Hardswish(),
        nn.Conv2d(12, 4, 1),
    )
    return delegated(layers, (uniform(1, 3, 24, 20),), (uniform(1, 3, 24, 20),))


@program
def conv_transpose():
    layers = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 8, (2, 3), stride=(2, 1), groups=2, bias=False),
    )
    return delegated(layers, (uniform(1, 4, 5, 6),))


@program
def conv1d():
    return delegated(nn.Sequential(nn.Conv1d(3, 6, 5, stride=2, padding=2), nn.ReLU(), nn.Conv1d(6, 2, 1)),
                     (uniform(2, 3, 11),))  # fmt: skip


@program
def batch_norm():
    layer = nn.BatchNorm2d(4)
    layer.running_mean.uniform_(-1, 1)
    layer.running_var.uniform_(0.5, 2)
    return delegated(layer, (uniform(2, 4, 3, 5),))


@program
def pool():
    def forward(x):
        return (
            F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True), F.max_pool2d(x, 2, 1, dilation=2),
            F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x.mean((2, 3), keepdim=True),
        )  # fmt: skip

    return delegated(Function(forward), (uniform(2, 3, 8, 10),))


@program
def maxima():
    def forward(x):
        values, positions = x.max(2, keepdim=True)
        return values, positions, x.max(3, keepdim=True)[0]

    return delegated(Function(forward), (uniform(2, 3, 4, 5),))


@program
def products():
    class Products(nn.Module):
        def __init__(self):
            super().__init__()
            self.with_bias, self.without_bias = nn.Linear(6, 5), nn.Linear(5, 7, bias=False)
            self.matrix, self.bias = nn.Parameter(uniform(7, 4)), nn.Parameter(uniform(4))

        def forward(self, x, a, b):
            x = self.without_bias(F.relu(self.with_bias(x)))
            return x, torch.mm(x[0], self.matrix), torch.addmm(self.bias, x[1], self.matrix), torch.bmm(a, b)

    return delegated(Products(), (uniform(2, 3, 6), uniform(2, 3, 4), uniform(2, 4, 5)))


@program
def joins():
    def forward(x, y):
        parts = [x, y, x * 2, y * 3, x + 1, y - 1, x + y]
        return [torch.cat(parts[:count], 1) for count in (2, 3, 4, 5, 7)]

    return delegated(Function(forward), (uniform(2, 3), uniform(2, 3)))


@program
def shapes():
    def forward(x):
        return (
            F.pad(x, (1, 2, 0, 3), value=0.5), x[:, 1:3], x[..., 2:], x.permute(2, 0, 1) * 2, x.view(4, 15) + 1,
            (x + 1).unsqueeze(-1), F.softmax(x, -1),
        )  # fmt: skip

    return delegated(Function(forward), (uniform(3, 4, 5),))


@program
def resize():
    class Resize(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(3, 4, 1)

        def forward(self, x):
            x = self.layer(x)
            half_pixels = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            return half_pixels, F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True)

    return delegated(Resize(), (uniform(1, 3, 4, 5),))


@program
def prelu():
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(4, init=0.3))
    layers[1].weight.data.uniform_(-1, 1)
    return delegated(layers, (uniform(1, 3, 6, 5),))


@program
def residual():
    """What the program around the delegate computes itself is between two parts of it."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.classify = nn.Linear(4, 3)

        def forward(self, x):
            x = F.relu(x + self.second(F.relu(self.first(x))))
            x = torch.cumsum(x, 2)
            return self.classify(x.mean((2, 3)))

    return delegated(Residual(), (uniform(1, 4, 6, 6),))


@program
def half():
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    return delegated(layers.half(), (uniform(1, 3, 6, 6).half(),), tolerance=4e-3)


@program
def bfloat16():
    partitioner = XnnpackPartitioner(enable_bf16=True)
    layers = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)).bfloat16()
    return delegated(layers, (uniform(2, 6).bfloat16(),), partitioner=partitioner, tolerance=3e-2)


@program
def dynamic():
    layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(-1))
    dynamic = ({0: Dim("batch", min=1, max=8)},)
    return delegated(layers, *[(uniform(n, 6),) for n in (3, 1, 8)], dynamic=dynamic)


@program
def quantized():
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    model, inputs = nn.Linear(6, 4).eval(), (uniform(2, 6),)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    prepared(*inputs)
    return Program(convert_pt2e(prepared), [inputs], partitioners=[XnnpackPartitioner()], tolerance=3e-2)


def lower(built):
    (model,) = built.methods.values()
    exported = torch.export.export(model, built.calls[0][1], dynamic_shapes=built.dynamic)
    lowered = to_edge_transform_and_lower(
        exported, partitioner=built.partitioners, compile_config=EdgeCompileConfig(_check_ir_validity=False)
    ).to_executorch()
    return lowered, bytes(lowered.buffer)


if __name__ == "__main__":
    make.PROGRAMS, make.lower = PROGRAMS, lower
    make.main(f"{make.VERSION}-xnnpack")
