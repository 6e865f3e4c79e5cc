"""Programs with control flow, and with dynamic shapes that the program computes with.

torch.while_loop is absent: the wheel's emitter rejects it.
"""

import torch
from registry import Model, Module, model, uniform
from torch import nn
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch.export import Dim


@model
def cond():
    """Two branches of several outputs, chosen by a computed truth value; one contains a layer with weights."""

    class Cond(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x, y):
            def large(x, y):
                return self.layer(x) + y, x.sum(dim=1)

            def small(x, y):
                return x * y - 1, (x - y).amax(dim=1)

            first, second = torch.cond(x.abs().mean() > y.abs().mean(), large, small, (x, y))
            return first.relu(), second

    x, y = uniform(3, 6), uniform(3, 6)
    return Model(Cond(), [(3 * x, y), (x, 3 * y), (3 * x, y)])


@model
def cond_nested():
    def inner(x):
        return torch.cond(x[0, 0] > 5, lambda x: x * 10, lambda x: x + 100, (x,))

    def outer(x):
        return torch.cond(x.sum() > 0, inner, lambda x: -x, (x,))

    start = torch.ones(2, 2)
    return Model(Module(outer), [(start,), (10 * start,), (-start,)])


@model
def map_rows():
    """A body over the leading dimension, with another tensor that every round sees."""

    class Rows(nn.Module):
        def forward(self, xs, y):
            return map_(lambda x, y: (x @ y).softmax(-1) + x.sum(), xs, y)

    return Model(Rows(), [(uniform(5, 3, 4), uniform(4, 4)), (uniform(5, 3, 4), uniform(4, 4))])


@model
def map_layers():
    """A map between two layers. Its result must not be viewed directly, which the wheel's emitter cannot express."""

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, xs):
            scaled = map_(lambda x, factor: torch.tanh(x) * factor, self.before(xs), torch.full((6,), 0.5))
            return self.after(scaled + 0.1).cumsum(0)

    return Model(Layers(), [(uniform(4, 3, 4),), (uniform(4, 3, 4),)])


@model
def scan_recurrence():
    """A decaying sum along the leading dimension: the carry and every step's value."""

    class Recurrence(nn.Module):
        def forward(self, xs, start):
            def step(carry, x):
                carry = 0.5 * carry + x
                return carry, torch.sin(carry)

            return scan(step, start, xs)

    return Model(Recurrence(), [(uniform(6, 3), uniform(3)), (uniform(6, 3), uniform(3))])


@model
def dynamic_batch():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

        def forward(self, x):
            features = self.conv(x).relu().mean(dim=(2, 3))
            return self.head(features), features.reshape(-1)

    batch = Dim("batch", min=1, max=6)
    return Model(Network(), [(uniform(n, 1, 8, 8),) for n in (3, 1, 6, 2)], dynamic=({0: batch},))


@model
def dynamic_picture():
    """A fully convolutional network on pictures of any height and width, upsampled back to their size."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 2, 1)

        def forward(self, x):
            y = self.up(self.down(x).relu())
            return nn.functional.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)

    height, width = Dim("height", min=4, max=40), Dim("width", min=4, max=40)
    calls = [(uniform(1, 3, *size),) for size in ((16, 24), (40, 40), (5, 4))]
    return Model(Network(), calls, dynamic=({2: height, 3: width},))


@model
def dynamic_arithmetic():
    """Sizes that are computed: slices, repeats, ranges and views of them, and a size as an output."""

    def arithmetic(x):
        n = x.shape[0]
        rest = x[: n - 1]
        ramp = torch.arange(n, dtype=torch.float32)
        return torch.cat([rest, x * ramp[:, None]]).view(-1, 2, 2), ramp + n, n * 2 + 1, torch.full((n, 2), 7)

    rows = Dim("rows", min=3, max=20)
    return Model(Module(arithmetic), [(uniform(n, 4),) for n in (5, 20, 3)], dynamic=(({0: rows},),))


@model
def dynamic_two():
    """Two inputs that share a dimension, and two more that are free."""
    rows, inner, columns = Dim("rows", min=1, max=5), Dim("inner", min=1, max=9), Dim("columns", min=1, max=7)
    calls = [(uniform(m, k), uniform(k, n)) for m, k, n in ((3, 4, 5), (5, 9, 7), (1, 1, 1))]
    product = Module(lambda a, b: (a @ b + 1).transpose(0, 1))
    return Model(product, calls, dynamic=(({0: rows, 1: inner}, {0: inner, 1: columns}),))
