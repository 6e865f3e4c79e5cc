"""How programs are put together: nested arguments, shared and unused weights, constants, aliases, custom operators."""

from collections import OrderedDict, namedtuple

import torch
from registry import Model, Module, model, uniform
from torch import nn
from torch.utils import _pytree as pytree

Box = namedtuple("Box", ["corner", "size"])
pytree._register_namedtuple(Box, serialized_type_name="rushlight.Box")


@model
def nested_inputs():
    """Named tuples, dictionaries, lists and None in arguments and results."""

    class Nested(nn.Module):
        def forward(self, box, options, parts, missing):
            total = options["weights"]["a"] * box.corner + options["weights"]["b"] * box.size
            assert missing is None
            moved = Box(box.corner + total, box.size * parts[0])
            return OrderedDict(moved=moved, parts=[*parts, total], deep={"x": ({"y": total.sum()},)}), (parts[1][0],)

    def call():
        weights = {"weights": {"a": uniform(2), "b": uniform(1)}}
        return Box(uniform(2), uniform(2)), weights, [uniform(1), (uniform(3))], None

    return Model(Nested(), [call(), call()])


@model
def tied_weights():
    """An embedding whose transpose is the head, a layer used twice, and a view of a weight as a buffer."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.layer = nn.Embedding(30, 8), nn.Linear(8, 8)
            self.head = nn.Linear(8, 30, bias=False)
            self.head.weight = self.embedding.weight
            self.register_buffer("rows", self.embedding.weight.detach()[5:9])
            self.register_buffer("turned", self.embedding.weight.detach().t())

        def forward(self, words):
            x = self.layer(self.layer(self.embedding(words)).tanh())
            return self.head(x), x @ self.rows.t(), x @ self.turned

    return Model(Tied(), [(torch.randint(0, 30, (2, 5)),), (torch.randint(0, 30, (2, 5)),)])


@model
def constants():
    """Buffers that are not saved, tensors in the source, unused weights, and results that depend on no input."""

    class Constants(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused, self.scale = nn.Linear(4, 4), nn.Parameter(torch.tensor(0.5))
            self.register_buffer("offsets", torch.arange(4.0), persistent=False)
            self.plain = torch.tensor([1, 0, 2, 3])

        def forward(self, x):
            fixed = torch.tensor([[0.5, -1.0], [2.0, 1.0]])
            turned = (x + self.offsets)[:, self.plain] * self.scale
            return turned, fixed @ fixed, self.offsets * 2, self.scale, self.plain

    return Model(Constants(), [(uniform(3, 4),), (uniform(3, 4),)])


@model
def aliases():
    """Results that are inputs, views of inputs, each other, and views of one another."""

    def alias(x, y):
        total = x + y
        return x, total, total, total.view(-1), x.t(), y[0], total[1:].transpose(0, 1), x.detach(), y.expand(2, 3, 4)

    return Model(Module(alias), [(uniform(3, 4), uniform(3, 4)), (uniform(3, 4), uniform(3, 4))])


@model
def empties():
    """Tensors without elements and without dimensions, as arguments and between operators."""

    def join(scalar, empty, row):
        rest = row[4:]
        return (
            scalar * 2, empty.sum(), torch.cat([row, rest, empty[0]]) if empty.shape[0] else torch.cat([row, rest]),
            rest,
            row[1], row.sum() + scalar, empty.t() @ torch.ones(0, 2), scalar.expand(2, 2), rest.reshape(0, 1, 3),
        )

    return Model(Module(join), [(uniform(), torch.zeros(0, 3), uniform(4)) for _ in range(2)])


@model
def mixed_precision():
    """A network in bfloat16 between layers in float32, and one in float16."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 16)
            self.middle = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)).to(torch.bfloat16)
            self.last = nn.Linear(16, 4).to(torch.float16)

        def forward(self, x):
            y = self.middle(self.first(x).to(torch.bfloat16))
            return self.last(y.to(torch.float16)).float(), y.softmax(-1), y.float().mean()

    return Model(Mixed(), [(uniform(3, 8),), (uniform(3, 8),)], tolerance=2e-2)


@torch.library.custom_op("rushlight_demo::cube", mutates_args=())
def cube(x: torch.Tensor, scale: float) -> torch.Tensor:
    return scale * x**3


@cube.register_fake
def _(x, scale):
    return torch.empty_like(x)


@model
def custom_operator():
    """An operator that no runtime has a kernel for."""
    network = Module(lambda x: cube(x + 1, 0.5).sum(0))
    return Model(network, [(uniform(2, 3),)], beyond_wheel=True, unsupported="rushlight_demo::cube")


@model
def three_methods():
    """Methods that share a body, with other heads."""
    body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    widths = {"classify": 3, "embed": 8, "score": 1}
    methods = {name: nn.Sequential(body, nn.Linear(8, width)) for name, width in widths.items()}
    return Model(methods, [(name, (uniform(2, 6),)) for name in methods])


@model
def guarded():
    """Assertions on values, and conversions that change nothing."""

    def guard(x, n):
        count = n.item()
        torch._check(count >= 1)
        torch._check(count <= 4)
        y = torch.zeros(4).narrow(0, 0, 2) + x[:2]
        return y.to(torch.float32), y.contiguous().detach() * count, x.to("cpu"), torch.full((2,), count)

    return Model(Module(guard), [(uniform(4), torch.tensor(3)), (uniform(4), torch.tensor(1))])
