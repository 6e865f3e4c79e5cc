"""Programs with control flow, and with dynamic shapes that the program computes with."""

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
    calls = [(uniform(m, k), uniform(k, n)) for m, k, n in ((3, 4, 5), (5, 9, 7), (1, 1, 2))]
    product = Module(lambda a, b: (a @ b + 1).transpose(0, 1))
    return Model(product, calls, dynamic=(({0: rows, 1: inner}, {0: inner, 1: columns}),))


@model
def while_loop():
    """Doubling until a bound is reached, with a layer in the body. The wheel's emitter rejects the operator."""

    class Doubling(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, count):
            def below(x, count):
                return (x.abs().sum() < 20) & (count < 12)

            def double(x, count):
                return self.layer(x).tanh() + 2 * x, count + 1

            return torch.while_loop(below, double, (x, count))

    calls = [(scale * uniform(3, 4), torch.tensor(0)) for scale in (1, 0.1, 5)]
    return Model(Doubling(), calls, beyond_wheel=True)


@model
def cond_on_size():
    """A branch that a size decides, and one that a number computed from values does.

    The wheel's plan puts the result of neg where its argument is.
    """

    def choose(x, limit):
        scaled = torch.cond(x.shape[0] > 4, lambda x: x / 2, lambda x: x * 2, (x,))
        chosen = torch.cond(limit.sum() > scaled.sum(), lambda x: (x + 1).relu(), lambda x: x.neg(), (scaled,))
        return chosen + scaled

    rows = Dim("rows", min=2, max=9)
    calls = [(uniform(n, 3), uniform(3)) for n in (3, 9, 5)]
    return Model(Module(choose), calls, dynamic=(({0: rows}, None),), beyond_wheel=True)


@model
def scan_layers():
    """A recurrent cell by scan, with its weights from outside the body, and several carried tensors."""

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.gates, self.head = nn.Linear(5 + 6, 12), nn.Linear(6, 2)

        def forward(self, xs, h, c):
            def step(carry, x):
                h, c = carry
                gate, update = self.gates(torch.cat([x, h], dim=-1)).chunk(2, dim=-1)
                c = gate.sigmoid() * c + (1 - gate.sigmoid()) * update.tanh()
                h = c.tanh()
                return (h, c.clone()), self.head(h)

            (h, c), steps = scan(step, (h, c), xs)
            return h, c, steps

    calls = [(uniform(4, 2, 5), uniform(2, 6), uniform(2, 6)) for _ in range(2)]
    return Model(Cell(), calls)


@model
def cond_in_map():
    """A branch in every round of a map."""

    def rounds(xs, bound):
        def one(x, bound):
            return torch.cond(x.sum() > bound.sum(), lambda x: x - 1, lambda x: x * x, (x,))

        return map_(one, xs, bound)

    return Model(Module(rounds), [(uniform(5, 3), uniform(1)), (uniform(5, 3), uniform(1))])


@model
def dynamic_derived():
    """A dimension that is a multiple of another, and one that the exporter finds out."""

    def pair(x, y, z):
        begin = z.reshape(-1)[: z.shape[0]]
        return x + y[::2], torch.cat([y, y]).view(-1, 2), z.softmax(-1), begin, x.new_zeros(x.shape[0] * 3)

    n = Dim("n", min=1, max=8)
    calls = [(uniform(n, 3), uniform(2 * n, 3), uniform(m, 4)) for n, m in ((3, 2), (8, 5), (2, 7))]
    return Model(Module(pair), calls, dynamic=(({0: n}, {0: 2 * n}, {0: Dim.DYNAMIC(max=16)}),))


@model
def dynamic_transformer():
    """Batch and time both free, through attention, normalisation and a head."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    network = nn.Sequential(nn.Linear(8, 16), layer, nn.LayerNorm(16), nn.Linear(16, 3))
    batch, time = Dim("batch", min=1, max=4), Dim("time", min=2, max=12)
    calls = [(uniform(*shape, 8),) for shape in ((2, 5), (4, 12), (1, 3))]
    return Model(network, calls, dynamic=({0: batch, 1: time},))


@model
def data_dependent():
    """Sizes that depend on values: the places of the true elements, bounded by the number of all."""

    def find(x):
        places = torch.nonzero(x > 0)
        count = places.shape[0]
        torch._check(count <= 12)
        return places * 2, x.masked_select(x < 0)

    return Model(Module(find), [(uniform(3, 4),), (uniform(3, 4),)], beyond_core=True)
