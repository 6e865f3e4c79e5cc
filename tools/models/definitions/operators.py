"""Models that exist for the operators in them: selection, indexing, shaping, reductions, special functions."""

import torch
from registry import Model, Module, model, uniform
from torch import nn


@model
def selection():
    """Sorting and picking, as in post-processing of detections."""

    def pick(boxes, scores):
        ordered, order = scores.sort(descending=True)
        best, which = scores.topk(3)
        corners = boxes.gather(0, order[:, None].expand(-1, 4))
        kept = torch.where(ordered[:, None] > 0.2, corners, torch.zeros(()))
        sides = (kept[:, 2:] - kept[:, :2]).clamp(min=0)
        return kept, sides.prod(dim=1), best, which, scores.cumsum(0), scores.argmin(), boxes.max(dim=1)

    calls = [(uniform(6, 4), torch.rand(6)), (uniform(6, 4), torch.rand(6))]
    return Model(Module(pick), calls)


@model
def indexing():
    """Writing and reading by index tensors and masks, out of place."""

    def index(x, rows, values):
        put = torch.index_put(x, (rows,), values, accumulate=True)
        scattered = x.scatter(1, (rows[:, None] + torch.arange(3)) % 5, values[:, :3])
        added = x.scatter_add(0, rows[:, None].expand(-1, 5), values)
        return put, scattered, added, x[rows, rows % 5], x[:, [0, 2, 4]], x.index_select(1, rows), x[1:4:2, -3:]

    rows = torch.tensor([3, 0, 3, 1])
    return Model(Module(index), [(uniform(4, 5), rows, uniform(4, 5)), (uniform(4, 5), rows.flip(0), uniform(4, 5))])


@model
def shaping():
    """Views, permutations, concatenations, padding, rolling and repeating of a 4-d tensor."""

    def shape(x):
        padded = nn.functional.pad(x, (1, 2, 0, 1), value=0.5)
        circled = nn.functional.pad(x, (1, 1, 1, 1), mode="circular")
        first, second = x.split([1, 2], dim=1)
        stacked = torch.stack([first, second[:, :1]], dim=-1)
        tiles = x.permute(0, 2, 3, 1).reshape(2, -1, 3).repeat(1, 2, 1)
        return padded, circled, stacked.squeeze(1), tiles, x.roll((1, -1), (2, 3)), x.flip(1), x.unbind(1), x.tril()

    return Model(Module(shape), [(uniform(2, 3, 4, 5),), (uniform(2, 3, 4, 5),)])


@model
def reductions():
    """Sums, means, variances, norms and extrema over one, several and all dimensions."""

    def reduce(x):
        return (
            x.sum(dim=(0, 2)), x.mean(), x.var(dim=1), x.std(dim=-1, correction=0, keepdim=True),
            x.norm(dim=1), x.amax(dim=(1, 2)), x.amin(), x.prod(dim=2), x.logsumexp(dim=1), x.argmax(dim=1),
            *x.min(dim=2),
        )

    return Model(Module(reduce), [(uniform(3, 5, 4),), (10 * uniform(3, 5, 4),)])


@model
def functions():
    """Elementary functions chained so that each sees values of its domain."""

    def chain(x, y):
        positive = x.abs() + 0.1
        angle = torch.atan2(x, y)
        return (
            torch.exp(x) + torch.expm1(y), torch.log(positive) + torch.log1p(positive) + torch.log2(positive),
            angle.sin() * angle.cos() + angle.tan().clamp(-5, 5), torch.asin(x) + torch.acos(y), torch.erf(x) + x.sinh(),
            positive.rsqrt() + positive.sqrt() + positive.reciprocal(), positive.pow(y), (5 * x).round() + (5 * y).floor(),
            x.sign() + y.trunc() + (3 * x).ceil(), torch.fmod(5 * x, positive), torch.remainder(5 * x, positive),
            torch.maximum(x, y) + torch.minimum(x, y), positive.log10() + torch.atanh(0.9 * x),
        )

    return Model(Module(chain), [(uniform(3, 7), uniform(3, 7)), (uniform(3, 7), uniform(3, 7))])


@model
def activations():
    class Activations(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([
                nn.ReLU(), nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU(), nn.Mish(), nn.ELU(), nn.CELU(), nn.SELU(),
                nn.LeakyReLU(0.2), nn.PReLU(), nn.Softplus(), nn.Softsign(), nn.Hardswish(), nn.Hardsigmoid(),
                nn.Hardtanh(), nn.LogSigmoid(), nn.Tanhshrink(), nn.GLU(dim=-1), nn.Softmin(dim=-1), nn.LogSoftmax(dim=-1),
            ])

        def forward(self, x):
            return [part(x) for part in self.parts]

    return Model(Activations(), [(4 * uniform(3, 8),), (4 * uniform(3, 8),)])


@model
def broadcasting():
    """Operands of every rank from 0 to 5, of mixed types, and empty ones."""

    def mix(scalar, row, matrix, deep, whole, empty):
        return (
            scalar + row, row * matrix, matrix - deep, deep / (whole + 0.5), whole + scalar,
            empty + row, torch.cat([empty, matrix]), empty.sum(), torch.where(whole > 0, deep, scalar),
        )

    def call():
        whole = torch.randint(0, 5, (3, 4))
        return uniform(), uniform(4), uniform(3, 4), uniform(2, 1, 2, 3, 4), whole, torch.empty(0, 4)

    return Model(Module(mix), [call(), call()])


@model
def normalizations():
    class Normalise(nn.Module):
        def __init__(self):
            super().__init__()
            self.group, self.instance = nn.GroupNorm(2, 6), nn.InstanceNorm2d(6, affine=True)
            self.layer, self.response = nn.LayerNorm([4, 5]), nn.LocalResponseNorm(3)
            self.batch = nn.BatchNorm2d(6)

        def forward(self, x):
            unit = nn.functional.normalize(x, dim=1)
            return self.group(x), self.instance(x), self.layer(x), self.response(x), self.batch(x), unit

    return Model(Normalise(), [(uniform(2, 6, 4, 5),), (3 * uniform(2, 6, 4, 5),)])


@model
def pooling():
    class Pool(nn.Module):
        def forward(self, x):
            functional = nn.functional
            values, places = functional.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)
            return (
                values, places, functional.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False),
                functional.adaptive_avg_pool2d(x, (3, 2)), functional.max_pool2d(x, 2, ceil_mode=True, dilation=2),
                functional.avg_pool2d(x, 3, ceil_mode=True, divisor_override=5), functional.avg_pool1d(x[0], 4),
            )

    return Model(Pool(), [(uniform(2, 3, 9, 7),), (uniform(2, 3, 9, 7),)])


@model
def distances():
    """Pairwise distances, outer products, batched products and a determinant-free solve by Newton's iteration."""

    def geometry(a, b):
        inverse = b.transpose(1, 2) / (b.norm(dim=(1, 2), keepdim=True) ** 2)
        for _ in range(4):
            inverse = 2 * inverse - inverse @ b @ inverse
        flat = a.flatten(1)
        crossed = torch.einsum("bij,bkj->bik", a, b)
        return torch.cdist(flat, flat), torch.outer(a[0, 0], a[1, 1]), torch.bmm(a, b), inverse, crossed

    return Model(Module(geometry), [(uniform(3, 4, 4), torch.eye(4) + 0.2 * uniform(3, 4, 4)) for _ in range(2)])
