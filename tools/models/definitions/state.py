"""Programs that keep state, have several methods, or have their weights or their inputs and outputs elsewhere."""

import torch
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from registry import Model, Module, model, uniform
from torch import nn


class Counter(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.register_buffer("total", start)
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.total.add_(x)
        self.calls.add_(1)
        return self.total * 2, self.calls.clone()


@model
def counter():
    """Buffers that start at zero, as the runtime gives them."""
    return Model(Counter(torch.zeros(4)), [(uniform(4),) for _ in range(4)])


@model
def counter_initial():
    """A buffer whose initial value is in the program, with its name."""

    def config():
        initial = InitializedMutableBufferPass(["total", "calls"])
        return ExecutorchBackendConfig(passes=[initial], emit_mutable_buffer_names=True)

    return Model(Counter(torch.tensor([1.0, 20.0, -3.0, 0.5])), [(uniform(4),) for _ in range(4)], config=config)


@model
def ring_buffer():
    """A history of which a call overwrites one row, at a position that the state holds."""

    class Ring(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("history", torch.zeros(4, 3))
            self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

        def forward(self, x):
            self.history.index_copy_(0, self.position, x[None])
            self.position.add_(1).remainder_(4)
            return self.history.mean(dim=0), self.history + 0

    return Model(Ring(), [(uniform(3),) for _ in range(6)])


@model
def encoder_decoder():
    """Two methods of one program, with constant methods of several kinds."""
    encode = nn.Sequential(nn.Linear(12, 6), nn.Tanh())
    decode = nn.Sequential(nn.Linear(6, 12), nn.Sigmoid())
    constants = {"get_width": 12, "get_scale": 0.25, "is_tied": False, "get_table": torch.arange(6).reshape(2, 3)}
    calls = [("encode", (uniform(2, 12),)), ("decode", (uniform(2, 6),)), ("encode", (uniform(2, 12),)), ("decode", (uniform(2, 6),))]
    return Model({"encode": encode, "decode": decode}, calls, constants=constants)


def perceptron():
    return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 5))


@model
def external_one():
    """All weights in weights.ptd."""
    calls = [(uniform(2, 20),) for _ in range(2)]
    return Model(perceptron(), calls, config=lambda: ExecutorchBackendConfig(external_constants=lambda node: "weights"))


@model
def external_two():
    """The weights of the first layer in body.ptd, those of the last in head.ptd, the others in the program."""

    def place(node):
        name = node.target if isinstance(node.target, str) else node.name
        return "body" if "p_0_" in name else "head" if "p_4_" in name else None

    calls = [(uniform(2, 20),) for _ in range(2)]
    return Model(perceptron(), calls, config=lambda: ExecutorchBackendConfig(external_constants=place))


def unplanned(inputs, outputs):
    planning = MemoryPlanningPass(alloc_graph_input=inputs, alloc_graph_output=outputs)
    return lambda: ExecutorchBackendConfig(memory_planning_pass=planning)


@model
def unplanned_inputs():
    return Model(perceptron(), [(uniform(2, 20),) for _ in range(2)], config=unplanned(False, True))


@model
def unplanned_outputs():
    return Model(perceptron(), [(uniform(2, 20),) for _ in range(2)], config=unplanned(True, False))


@model
def unplanned_both():
    calls = [(uniform(3, 5), uniform(3, 5)) for _ in range(2)]
    return Model(Module(lambda x, y: (x + y, x.exp() * y)), calls, config=unplanned(False, False))


@model
def nested_outputs():
    """Nested containers of tensors, None and Python scalars; an input and a constant are returned as they are."""

    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(4.0))

        def forward(self, pair, options):
            x, y = pair
            total = x + y * options["scale"]
            return {"sums": (total, [total.sum(), total.sum(0)]), "nothing": None, "number": 3, "ratio": 0.5,
                    "yes": True, "same": x, "table": self.table}

    def call():
        return [(uniform(2, 4), uniform(2, 4)), {"scale": uniform(4)}]

    return Model(Nested(), [tuple(call()), tuple(call())])


@model
def scalar_inputs():
    """Python scalars among the inputs, which the exporter fixes to their example values."""

    class Scalars(nn.Module):
        def forward(self, x, power: int, scale: float, flip: bool):
            y = x**power * scale
            return y.flip(0) if flip else y

    return Model(Scalars(), [(uniform(3, 2), 3, 0.5, True), (uniform(3, 2), 3, 0.5, True)])
