"""Makes `tests/archives/`: small archives of several versions of torch and torchao, with what PyTorch computes.

    python tools/archive_samples.py                        all that this Python's torch and torchao can write
    python tools/archive_samples.py recurrent infinities   some of them

An archive is named after what it shows and the version that wrote it; beside it stands the recorded call. Run with the Python
of `tools/requirements.txt`, and with others, such as

    python3.11 -m venv old; old/bin/pip install torch==2.6.0 torchao==0.8.0 'numpy<2.3'

The inputs are `sin(0), sin(1), …` in row-major order, counted on from input to input.
"""

import collections
import io
import json
import math
import re
import sys
import warnings
from pathlib import Path

import torch
from torch import nn

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "archives"
SIZE_LIMIT = 40_000
SAMPLES = {}


def sample(since="torch", tolerance=1e-5, decomposed=False):
    """Registers a function that returns a module and the shapes of its inputs. `decomposed` saves it after `run_decompositions`."""

    def register(make):
        SAMPLES[make.__name__] = make, since, tolerance, decomposed
        return make

    return register


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 2, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(4, 2)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        z, n = self.gru(y)
        return z, h, c.tanh(), n, torch.cat([h[0], h[-1]], -1), h.transpose(0, 1).flatten(1)


@sample()
def recurrent():
    """States for which torch up to 2.11 records a dimension too many, and what is computed from them."""
    return Recurrent(), [(2, 3, 3)]


class Infinities(nn.Module):
    def forward(self, x):
        mask = torch.ones(3, 3, dtype=torch.bool).tril()
        scores = (x @ x.T).masked_fill(~mask, float("-inf"))
        return scores, scores.softmax(-1), torch.full((2,), float("inf")) * x[0, 0].abs(), torch.full((2,), float("nan"))


@sample()
def infinities():
    """Numbers that torch 2.6 writes bare."""
    return Infinities(), [(3, 4)]


class Attributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.linear.weight.tag = "tagged"
        self.linear.bias.history = collections.Counter("abc")

    def forward(self, x):
        return self.linear(x)


@sample()
def attributes():
    """Parameters with attributes of Python's own, which torch up to 2.8 pickles with them."""
    return Attributes(), [(2, 3)]


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.conv = nn.Linear(6, 4), nn.Conv2d(1, 2, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            z = self.conv(x[None, None]).relu()
            with torch.autocast("cpu", enabled=False):
                exact = x @ x.T
        return y.float(), z.float(), exact, y.softmax(-1).float()


@sample(tolerance=2e-2)
def autocast():
    """A region whose operators convert what they are given."""
    return Autocast(), [(4, 6)]


class Powers(nn.Module):
    def forward(self, x):
        power = (x > 0) ** True
        return power.float() * x, (~power).float()


@sample()
def powers():
    """Truth values to the power of one, which are recorded as integers."""
    return Powers(), [(4, 6)]


class Checks(nn.Module):
    def forward(self, x):
        torch.ops.aten._print("a line that a program does not print")
        square = x @ x.mT + 4 * torch.eye(4)
        lu, pivots = torch.linalg.lu_factor(square)
        return torch.linalg.inv(square), torch.linalg.solve(square, x), torch.linalg.cholesky(square), lu, pivots * 1.0


@sample(decomposed=True)
def checks():
    """Checks of linear algebra and a printed line, which tokens order from torch 2.15 on."""
    return Checks(), [(2, 4, 3)]


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 16, bias=False), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(self.first(x).relu())


def quantized(*names, **options):
    from torchao import quantization
    from torchao.utils import unwrap_tensor_subclass

    model = Quantized().eval()
    config = next(getattr(quantization, name) for name in names if hasattr(quantization, name))
    quantization.quantize_(model, config(**options))
    return unwrap_tensor_subclass(model) or model, [(3, 32)]


@sample("torchao")
def int8_dynamic():
    """Rows of inputs and channels of weights in int8."""
    return quantized("Int8DynamicActivationInt8WeightConfig", "int8_dynamic_activation_int8_weight")


# A row's scale in double precision, as old versions have it, rounds an element now and then to another integer.
@sample("torchao", tolerance=5e-3)
def int4_groups():
    """Rows of inputs in int8 and groups of weights in int4."""
    if hasattr(__import__("torchao").quantization, "Int8DynamicActivationIntxWeightConfig"):
        from torchao.quantization.granularity import PerGroup

        options = {"weight_dtype": torch.int4, "weight_granularity": PerGroup(16)}
        return quantized("Int8DynamicActivationIntxWeightConfig", **options)
    return quantized("int8_dynamic_activation_int4_weight", group_size=16)


@sample("torchao")
def int8_weights():
    """Weights alone in int8."""
    return quantized("Int8WeightOnlyConfig", "int8_weight_only")


def inputs(shapes):
    tensors, start = [], 0
    for shape in shapes:
        count = int(torch.Size(shape).numel())
        tensors.append(torch.sin(torch.arange(start, start + count, dtype=torch.float32)).reshape(shape))
        start += count
    return tuple(tensors)


def recorded(tensor):
    numbers = [x if math.isfinite(x) else str(x) for x in tensor.detach().float().flatten().tolist()]
    return {"shape": list(tensor.shape), "values": numbers}


def strip(program):
    """Leaves the folders of this machine out of stack traces."""
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            for key in ("from_node", "stack_trace", "source_fn_stack", "nn_module_stack", "torch_fn"):
                node.meta.pop(key, None)


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, (make, package, tolerance, decomposed) in SAMPLES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        try:
            version = ".".join(__import__(package).__version__.split("+")[0].split(".")[:2])
        except ImportError:
            continue
        torch.manual_seed(1)
        torch._dynamo.reset()
        model, shapes = make()
        model = model.eval()
        arguments = inputs(shapes)
        with torch.no_grad():
            program = torch.export.export(model, arguments)
            program = program.run_decompositions() if decomposed else program
            results = model(*arguments)
        strip(program)
        file = io.BytesIO()
        torch.export.save(program, file)
        data = file.getvalue()
        assert len(data) <= SIZE_LIMIT, f"{name} has {len(data)} bytes"
        for pattern in (rb"/home/", rb"/root/", rb"site-packages"):
            assert not re.search(pattern, data), f"{name} names folders of this machine"
        stem = f"{name}_{package}_{version}"
        (FOLDER / f"{stem}.pt2").write_bytes(data)
        results = results if isinstance(results, tuple) else (results,)
        call = {"tolerance": tolerance, "inputs": list(map(recorded, arguments)), "outputs": list(map(recorded, results))}
        (FOLDER / f"{stem}.json").write_text(json.dumps(call) + "\n")
        print(f"{stem:32} {len(data):6} bytes")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
