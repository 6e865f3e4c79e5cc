"""Makes the corpus of int8 programs that ExecuTorch lowers for Cortex-M, in `tests/corpus/<version>-cortex-m/`.

    python tools/corpus/make_cortex_m.py                       everything
    python tools/corpus/make_cortex_m.py --only cnn_m4,matmul  some of it
    python tools/corpus/make_cortex_m.py --large --out FOLDER  models of MLPerf Tiny that are too large for the repository

`<name>.pt2` is the quantized export of the programs `<name>_<cpu>.pte`, one for all CPUs.

Together they have every operator of the `cortex_m` dialect that its quantizer makes. Files are described in `make.py`, whose environment for
the newest generation this needs, with the package `tosa-tools`.

The recorded outputs are those of ExecuTorch's Python operators, on the lowered graph. Their average pooling and softmax compute in float, and
differ from CMSIS-NN's in the last bit of some results; `op_cases/cmsis_nn.py` computes these two in integers, as CMSIS-NN
defines them.
"""

import copy
import io
import sys

import torch
from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager  # isort: skip
from executorch.backends.cortex_m.edge_compile_config import cortex_m_edge_compile_config
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
from executorch.backends.cortex_m.target_config import CortexM, CortexMTargetConfig
from executorch.examples.models import mlperf_tiny
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes.quantize_io_pass import QuantizeInputs, QuantizeOutputs
from torch import nn
from torch.nn import functional as F
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import make  # isort: skip
from make import Program, uniform
from op_cases import cmsis_nn

PROGRAMS = {}
LARGE = {}


class Lowered(nn.Module):
    """A program in the edge dialect after the Cortex-M passes, which runs on the Python operators."""

    def __init__(self, manager):
        super().__init__()
        self.manager = manager
        # Emitting the program changes its graph.
        self.graph = copy.deepcopy(manager.exported_program()).module()

    def __deepcopy__(self, memo):
        return self

    def forward(self, *args):
        return Exact(self.graph).run(*args)


class Exact(torch.fx.Interpreter):
    def call_function(self, target, args, kwargs):
        name = str(target)
        if "cortex_m.softmax" in name:
            return cmsis_nn.softmax(*args, **kwargs)
        if "cortex_m.quantized_avg_pool2d" in name:
            return cmsis_nn.avg_pool2d(*args, **kwargs)
        return super().call_function(target, args, kwargs)


def archive(exported):
    """The bytes of an export, without the metadata of nodes."""
    for node in exported.graph.nodes:
        for key in ("custom", "from_node", "nn_module_stack", "source_fn_stack", "stack_trace", "torch_fn"):
            node.meta.pop(key, None)
    file = io.BytesIO()
    torch.export.save(exported, file)
    return file.getvalue()


def prepared(model, *calls, cpu, int8_io=False, name=None):
    """Quantizes with random calibration data and lowers for a CPU. With a name, keeps the quantized export."""
    model = model.eval()
    if any(x.dim() == 4 for x in calls[0]):
        model = model.to(memory_format=torch.channels_last)
        calls = [
            tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in call) for call in calls
        ]
    graph = prepare_pt2e(torch.export.export(model, calls[0]).module(check_guards=False), CortexMQuantizer())
    for call in calls:
        graph(*call)
    graph = convert_pt2e(graph)
    exported = torch.export.export(graph, calls[0])
    kept = (f"{name}.pt2", archive(copy.deepcopy(exported))) if name else None
    manager = to_edge(exported, compile_config=cortex_m_edge_compile_config())
    if int8_io:
        manager = manager.transform([QuantizeInputs(manager, [0]), QuantizeOutputs(manager, [0])])
    config = CortexMTargetConfig(cpu=cpu)
    manager._edge_programs["forward"] = CortexMPassManager(manager.exported_program(), target_config=config).transform()
    if int8_io:
        calls = [tuple(torch.randint(-128, 128, x.shape).to(torch.int8).contiguous(memory_format=torch.channels_last) for x in call) for call in calls]
    return Program(Lowered(manager), calls, tolerance=0, exported=kept)


def programs(table=None, **targets):
    """Registers a program for each of several CPUs, `name_cpu`."""

    def register(build):
        for suffix, cpu in (targets or {"m4": CortexM.M4, "m55": CortexM.M55}).items():
            def make_one(cpu=cpu):
                model, *calls = build()
                return prepared(model, *calls, cpu=cpu, name=build.__name__)

            (PROGRAMS if table is None else table)[f"{build.__name__}_{suffix}"] = make_one
        return build

    return register


def images(*shape, count=2):
    return [(uniform(*shape),) for _ in range(count)]


def normalized(model, *shape):
    """Gives batch norms the statistics of random inputs, without which random weights give constant outputs."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.momentum = None
    model.train()
    for _ in range(4):
        model(uniform(8, *shape[1:]))
    return model, *images(*shape)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Net(nn.Module):
    """Convolutions of every form, residual sum, pooling and a classifier."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 16, 3, padding=1, groups=8)
        self.grouped = nn.Conv2d(16, 12, 3, padding=1, groups=2, bias=False)
        self.point = nn.Conv2d(12, 12, 1)
        self.up = nn.ConvTranspose2d(12, 6, 3, stride=2, padding=1)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = F.relu(self.depthwise(x))
        x = F.relu(self.grouped(x))
        x = x + F.relu(self.point(x))
        x = F.max_pool2d(x, 2)
        x = self.up(x)
        x = F.avg_pool2d(x, 3)
        return self.head(x.mean((2, 3)))


@programs()
def dense():
    layer = nn.Linear(9, 5)

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)

    return Dense(), *[(uniform(3, 9),) for _ in range(2)]


@programs()
def cnn():
    return Net(), *images(1, 3, 16, 12)


def int8_io_m4():
    return prepared(Net(), *images(1, 3, 16, 12), cpu=CortexM.M4, int8_io=True)


PROGRAMS["int8_io_m4"] = int8_io_m4


def keywords_m4():
    """The program of `examples/cortex-m`: keyword spotting with random weights, from and to int8."""
    return prepared(*normalized(mlperf_tiny.DSCNNKWS(), 1, 1, 49, 10), cpu=CortexM.M4, int8_io=True)


PROGRAMS["keywords_m4"] = keywords_m4


@programs()
def ds_cnn():
    return normalized(mlperf_tiny.DSCNNKWS(), 1, 1, 49, 10)


@programs()
def attention():
    def forward(query, key, value):
        weights = torch.softmax(torch.bmm(query, key), -1)
        return torch.bmm(weights, value), torch.minimum(query, value), torch.maximum(query, value)

    inputs = [(2 * uniform(2, 5, 8), uniform(2, 8, 5), uniform(2, 5, 8)) for _ in range(2)]
    return Function(forward), *inputs


@programs(m4=CortexM.M4)
def elementwise():
    def forward(x, y):
        return x - y, x * y, x / (y * y + 1), torch.sigmoid(x), torch.tanh(y), F.silu(x), F.gelu(y)

    return Function(forward), *[(2 * uniform(2, 3, 7), uniform(2, 3, 7)) for _ in range(2)]


@programs(m4=CortexM.M4)
def shapes():
    def forward(x):
        return F.relu(x + x).permute(0, 2, 1), F.pad(x * x, (1, 2))

    return Function(forward), *images(2, 3, 7)


@programs()
def denoiser():
    """From a channels-last image to another, with a transposed convolution whose weights are reversed."""
    down, up = nn.Conv2d(3, 20, 3, stride=2, padding=1), nn.ConvTranspose2d(20, 3, 2, stride=2)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = down, up

        def forward(self, x):
            return self.up(F.relu(self.down(x)))

    return Denoiser(), *images(1, 3, 8, 6)


@programs(LARGE)
def resnet8():
    return normalized(mlperf_tiny.ResNet8(), 1, 3, 32, 32)


@programs(LARGE)
def mobilenet_v1_025():
    return normalized(mlperf_tiny.MobileNetV1025(), 1, 3, 96, 96)


@programs(LARGE)
def deep_autoencoder():
    return normalized(mlperf_tiny.DeepAutoEncoder(), 1, 640)


def lower(built):
    manager = built.methods["forward"].manager
    lowered = manager.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
    return lowered, bytes(lowered.buffer)


if __name__ == "__main__":
    if "--large" in sys.argv:
        sys.argv.remove("--large")
        PROGRAMS, make.SIZE_LIMIT = LARGE, 1_000_000
    make.PROGRAMS, make.lower = PROGRAMS, lower
    make.main(f"{make.VERSION}-cortex-m")
