"""Programs that write in place: through views of temporaries, into their inputs, and into buffers."""

import torch
from registry import Model, Module, model, uniform
from torch import nn
from torch.nn import functional


def recording(*shape, count=4):
    return [(uniform(*shape),) for _ in range(count)]


@model
def written_views():
    """A temporary is written through slices, selections, transposes and reshapes of it, and views of views."""

    def write(x):
        y = x.clone()
        y[:, 0] = 1.5
        y[1:3].add_(2)
        y.t()[0].mul_(3)
        y.view(-1)[::4] = x.flatten()[:5]
        corner = y[2:, 2:]
        corner.copy_(corner * 2 - 1)
        y[0].view(2, 2)[1].sub_(x[1, :2])
        y.unsqueeze(0).transpose(1, 2)[0, 3, 1:4].neg_()
        return y, corner.sum(), y.diagonal().clone()

    return Model(Module(write), recording(5, 4, count=2))


@model
def written_masks():
    """The in-place forms of filling, scattering and indexing."""

    def write(x, rows, values):
        a, b, c = x.clone(), x * 1, torch.zeros_like(x)
        a[a > 0.5] = 0.25
        a.masked_fill_(a < -0.5, -0.25)
        b[rows] += values
        b.index_put_((rows, torch.tensor(1)), values[:, 0])
        c.scatter_(1, rows[None, :].expand(4, -1), values.T.contiguous()[:4])
        c.index_add_(0, rows, values).index_copy_(0, rows[:1], values[:1])
        c[:, -1].fill_(9).clamp_(max=8.5)
        c[0].zero_()
        return a, b, c.scatter_add_(0, rows[:1, None].expand(-1, 4), values[:1])

    calls = [(uniform(4, 4), torch.tensor(rows), uniform(3, 4)) for rows in ([0, 2, 3], [3, 1, 0])]
    return Model(Module(write), calls)


@model
def inplace_chain():
    """Arithmetic and activations that overwrite, on a branch that is read before and after."""

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            before = y.mean()
            y.mul_(2).add_(0.5).sub_(x[:, :1])
            z = functional.relu(self.norm(y), inplace=True)
            z += before
            functional.hardswish(z, inplace=True).div_(1.5)
            functional.leaky_relu_(y, 0.1)
            return y.sigmoid_(), functional.silu(z, inplace=True).tanh_(), before

    return Model(Chain(), recording(1, 3, 6, 6, count=2))


@model
def written_input():
    """The caller's tensor is written: it is an output in the exported program."""

    def write(x, y):
        x.add_(y)
        x[:, 0].zero_()
        return x * 2, y - 1

    return Model(Module(write), [(uniform(2, 3), uniform(2, 3)) for _ in range(2)])


class Stateful(nn.Module):
    def __init__(self, **buffers):
        super().__init__()
        for name, initial in buffers.items():
            self.register_buffer(name, initial)


@model
def shift_register():
    """A window over the last calls, by shifting a buffer into itself."""

    class Shift(Stateful):
        def forward(self, x):
            self.window.copy_(torch.cat([self.window[1:], x[None]]))
            return self.window.mean(0), self.window[-2:] + 0

    return Model(Shift(window=torch.zeros(4, 3)), recording(3, count=6))


@model
def buffer_slices():
    """Parts of buffers are written through views, and two buffers change places."""

    class Slices(Stateful):
        def forward(self, x):
            self.table[:, 1:3].add_(x[:, :2])
            self.table[0].copy_(x[0])
            self.table.view(-1)[-2:] = self.other.flatten()[:2] + 1
            kept = self.first.clone()
            self.first.copy_(self.second + x)
            self.second.copy_(kept)
            return self.table * 1, self.first - self.second

    shape = (3, 4)
    alike = {name: torch.zeros(shape) for name in ("table", "first", "second")}
    return Model(Slices(**alike, other=torch.zeros(2, 2)), recording(*shape, count=4))


@model
def running_statistics():
    """Batch normalisation that goes on learning its statistics."""

    class Running(Stateful):
        def forward(self, x):
            normal = functional.batch_norm(x, self.mean, self.spread, training=True, momentum=0.2)
            return normal, self.mean + 0, self.spread + 0

    network = Running(mean=torch.zeros(3), spread=torch.zeros(3))
    return Model(network, recording(4, 3, 5, count=3), beyond_wheel=True)


@model
def cache_at_position():
    """A cache is written from the position that the caller gives as a tensor, and read up to it."""

    class Cache(Stateful):
        def forward(self, key, position):
            start = position.item()
            torch._check(start >= 0)
            torch._check(start <= 6)
            self.keys.narrow(1, start, 2).copy_(key)
            seen = torch.arange(8) < start + 2
            return (self.keys * seen[None, :, None]).sum(1), self.keys + 0

    calls = [(uniform(2, 2, 3), torch.tensor(position)) for position in (0, 2, 4, 6)]
    return Model(Cache(keys=torch.zeros(2, 8, 3)), calls)


@model
def shared_state():
    """Three methods on the same cache: filling it, one step, and starting again.

    The wheel's program does not say which memory its methods share; a caller of ExecuTorch has to know and provide it.
    """

    class Prefill(nn.Module):
        def __init__(self, cache):
            super().__init__()
            self.cache = cache

        def forward(self, x):
            self.cache.history[:3].copy_(x)
            self.cache.count.copy_(torch.tensor(3))
            return self.cache.history.mean(0)

    class Step(nn.Module):
        def __init__(self, cache):
            super().__init__()
            self.cache = cache

        def forward(self, x):
            self.cache.history.index_copy_(0, self.cache.count.view(1), x[None])
            self.cache.count.add_(1)
            return self.cache.history.mean(0), self.cache.count + 0

    class Reset(nn.Module):
        def __init__(self, cache):
            super().__init__()
            self.cache = cache

        def forward(self):
            self.cache.history.zero_()
            self.cache.count.zero_()
            return self.cache.count + 0

    cache = Stateful(history=torch.zeros(8, 4), count=torch.tensor(0))
    methods = {"prefill": Prefill(cache), "step": Step(cache), "reset": Reset(cache)}
    calls = [("prefill", (uniform(3, 4),)), ("step", (uniform(4),)), ("step", (uniform(4),)), ("reset", ())]
    return Model(methods, [*calls, ("step", (uniform(4),)), *calls[:2]], beyond_wheel=True)
