"""What a whole model of the tests is: its methods, the calls to record, and how the wheel lowers it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig
from torch import nn

MODELS: dict[str, "Entry"] = {}


@dataclass
class Model:
    """One program.

    `methods` is a module, which becomes `forward`, or a dict of them by method name. A call is a tuple of arguments
    for `forward`, or (method name, arguments); the first call of a method is also its export example. `dynamic` is
    torch.export's `dynamic_shapes`, per method when there are several. `quantize` turns an exported module into a
    quantized one, given the calibration calls. `strict` exports by following the bytecode, which finds state that
    other objects than modules hold. `gradients` leaves the weights trainable during the export, as they are unless one
    says otherwise: regions without gradients then become operators that wrap a graph. `beyond_core` allows operators that are not core ATen. `beyond_wheel` says
    that the wheel's compiler fails, or leaves operators that have no kernel, so that there is no program to record.
    `unsupported` is in the name of an operator without any kernel, which an error has to name. `tolerance` is relative to each output's scale (tools/cases.py).
    """

    methods: nn.Module | dict[str, nn.Module]
    calls: list
    tolerance: float = 1e-4
    dynamic: object = None
    constants: dict = field(default_factory=dict)
    config: Callable[[], ExecutorchBackendConfig] = ExecutorchBackendConfig
    quantize: Callable | None = None
    strict: bool = False
    gradients: bool = False
    beyond_core: bool = False
    beyond_wheel: bool = False
    unsupported: str | None = None

    def __post_init__(self):
        if isinstance(self.methods, nn.Module):
            self.methods = {"forward": self.methods}
            self.dynamic = {"forward": self.dynamic}
        self.dynamic = self.dynamic or {}
        self.calls = [call if isinstance(call[0], str) else ("forward", call) for call in self.calls]


@dataclass
class Entry:
    """A registered model: `build` makes it, under a fixed seed; `source` is the file that defines it.

    `family` is that of a model of the zoo; `row` is what the definition says of this model alone, in a file of many.
    """

    name: str
    build: Callable[[], Model]
    source: Path
    bench: bool = False
    family: str | None = None
    row: str | None = None


def model(build=None, *, bench=False, name=None, family=None, row=None):
    """Registers the function that builds a model, under its name.

    `bench` models are for timing, not for tests; those of a `family` are the zoo, which has a test run of its own.
    """

    def register(build):
        entry = Entry(name or build.__name__, build, Path(inspect.getsourcefile(build)), bench, family, row)
        if entry.name in MODELS:
            raise ValueError(f"two models are called {entry.name}")
        MODELS[entry.name] = entry
        return build

    return register(build) if build else register


def uniform(*shape, dtype=torch.float32):
    """Values spread evenly over -1..1."""
    return (torch.rand(shape) * 2 - 1).to(dtype)


def image(side, batch=1):
    """A batch of normally distributed images, as preprocessing leaves them."""
    return torch.randn(batch, 3, side, side)


def tokens(vocabulary, *shape):
    return torch.randint(0, vocabulary, shape)


class Module(nn.Module):
    """A module around a function of its inputs, for models without weights."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)
