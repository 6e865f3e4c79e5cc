"""Models that arrange, pick, compare and create elements, beyond those of `operators`."""

import torch
from registry import Model, Module, model, uniform
from torch.nn import functional


@model
def arrangements():
    """Every way to split, join, repeat and turn."""

    def arrange(x, y):
        rows, columns = torch.meshgrid(x[0, :, 0], y[0, 0], indexing="ij")
        left, right = torch.broadcast_tensors(x[:, :1], y)
        return (
            *x.chunk(2, dim=1), *x.split(3, dim=1), *x.tensor_split(3, dim=2), *x.unbind(0), torch.stack([x, y], dim=1),
            torch.hstack([x, y]), torch.vstack([x, y]), torch.dstack([x, y]), torch.column_stack([x[0], y[0]]), rows,
            columns, left + right, x.narrow(1, 1, 2), x.movedim(0, -1), x.swapaxes(0, 2), x.unflatten(1, (2, 2)),
            x.flatten(1), x.tile(2, 1), x.repeat_interleave(2, dim=1), x.repeat(1, 2, 1), x[:1].expand(3, -1, -1),
            x.rot90(1, (1, 2)), x.flip((0, 2)), x.roll(2), x.roll((1, -1), (0, 2)), torch.block_diag(x[0], y[0]),
            torch.cartesian_prod(x[0, :2, 0], y[0, 0]), x.permute(2, 0, 1).contiguous(), x.reshape(-1), x.mT,
            torch.atleast_3d(x[0]), x.squeeze(0), x.unsqueeze(-1), x.select(1, 2), x[..., None, :], x[:, ::2, 1:-1],
        )

    return Model(Module(arrange), [(uniform(2, 4, 5), uniform(2, 4, 5)), (uniform(2, 4, 5), uniform(2, 4, 5))])


@model
def paddings():
    """Constant, reflected, replicated and circular borders of one to three dimensions, and cropping."""

    def pad(line, plane, space):
        pad = functional.pad
        return (
            pad(line, (2, 1)), pad(line, (1, 2), mode="reflect"), pad(line, (3, 1), mode="replicate"),
            pad(line, (2, 2), mode="circular"), pad(plane, (1, -1, 0, 2), value=3.0),
            pad(plane, (1, 2, 2, 1), mode="reflect"),
            pad(plane, (2, 0, 1, 3), mode="replicate"), pad(plane, (1, 1, 2, 0), mode="circular"),
            pad(space, (1, 0, 0, 1, 2, 1)), pad(space, (1, 1, 1, 1, 1, 1), mode="replicate"),
            pad(plane, (0, 0, 0, 0, 1, 1)),
        )

    calls = [(uniform(1, 2, 6), uniform(1, 2, 4, 5), uniform(1, 2, 3, 3, 4)) for _ in range(2)]
    return Model(Module(pad), calls)


@model
def scattering():
    """The gather and scatter family, out of place."""

    def scatter(x, where, values):
        line = where[0]
        return (
            x.gather(1, where), x.take_along_dim(where, dim=1), x.scatter(1, where, values), x.scatter(1, where, 2.5),
            x.scatter_add(1, where, values), x.scatter_reduce(1, where, values, "sum"),
            x.scatter_reduce(1, where, values, "amax", include_self=False), x.scatter_reduce(1, where, values, "mean"),
            x.index_select(1, line), x.index_add(1, line, values, alpha=0.5), x.index_copy(1, torch.arange(3), values),
            x.index_fill(1, line, -1.0), x.masked_fill(x > 0, 0.25), x.masked_scatter(x > 0.5, values.repeat(1, 2)),
            torch.index_put(x, (torch.arange(4), torch.arange(4)), values[:, 0]), x[:, line], x[where[:, 0] % 4, 1:],
            torch.select_scatter(x, values[:, 0], 1, 2), torch.slice_scatter(x, values, 1, 1, 4),
            torch.where(x > 0, x, -1.0),
        )

    def call():
        where = torch.stack([torch.randperm(5)[:3] for _ in range(4)])
        return uniform(4, 5), where, uniform(4, 3)

    return Model(Module(scatter), [call(), call()], beyond_core=True)


@model
def ordering():
    """Sorting along dimensions, up and down, and the first few."""

    def order(x):
        return (
            *x.sort(dim=0), *x.sort(dim=1, descending=True), x.argsort(dim=1), *x.topk(2, dim=0),
            *x.topk(3, largest=False), x.msort(), *x.max(dim=1), *x.min(dim=0, keepdim=True), x.argmax(),
            x.argmin(dim=1),
            x.amax((0, 1)), *x.aminmax(dim=1), x.cumsum(1), x.diff(dim=0), torch.trapezoid(x, dim=1),
            x.cumsum(0).flip(0),
        )

    return Model(Module(order), [(uniform(4, 6),), (uniform(4, 6),)], beyond_core=True)


@model
def statistics():
    """Means, deviations and counts over dimensions."""

    def count(x, flags):
        return (
            x.var(), x.var(dim=(0, 1), correction=0), x.std(dim=2, keepdim=True), *torch.var_mean(x, dim=1),
            *torch.std_mean(x, correction=0), x.nansum(0), x.nanmean(1), x.prod(), x.prod(dim=1, keepdim=True),
            flags.any(), flags.all(dim=1), flags.any(dim=0, keepdim=True), flags.sum(), flags.count_nonzero(dim=1),
            x.mean(dim=(0, 2), keepdim=True), x.sum(dtype=torch.float64), x.float().norm(p=1), x.softmax(0),
            x.log_softmax(-1),
            functional.softmin(x, 1),
        )

    def call():
        return uniform(3, 4, 5), torch.rand(3, 4) > 0.4

    return Model(Module(count), [call(), call()], beyond_core=True)


@model
def comparisons():
    """Comparing, choosing, rounding and combining two tensors, of floating-point numbers and integers."""

    def compare(x, y, i, j):
        return (
            x.eq(y), x.ne(0.5), x < y, x.ge(0), i > j, torch.logical_xor(x > 0, y > 0), ~(x > y), (x > 0) & (y > 0),
            x.clamp(y.abs().neg(), y.abs()), x.clamp(min=-0.3), x.clip(-0.2, 0.4), torch.where(i > 2, i, j),
            torch.isclose(x, x + 1e-9), torch.nan_to_num(x / (i - 2)), x.lerp(y, 0.3),
            torch.addcmul(x, y, y, value=0.5),
            torch.addcdiv(x, y, y.abs() + 1), x.sign() * y.abs(),
            torch.floor_divide(i, j), i // 2, torch.div(x, y.abs() + 0.1, rounding_mode="trunc"), x % 0.3, i % j, i**2,
            i & j, i | 5, i ^ j, ~i, torch.logaddexp(x, y),
            torch.rsub(x, y, alpha=2), x.square(), x.frac(), x.sgn(), x.isnan(), (x / 0).isinf(), x.isfinite(),
            torch.true_divide(i, j), x.absolute(), x.neg(), x.expm1(), x.sinc(), (x > 0).to(torch.uint8), i.float() * x,
        )

    def call():
        return uniform(3, 4), uniform(3, 4), torch.randint(0, 6, (3, 4)), torch.randint(1, 6, (3, 4))

    return Model(Module(compare), [call(), call()], beyond_core=True)


@model
def creation():
    """Tensors that the program makes: filled, counted, unit, like others, and constants of its source."""

    def create(x):
        table = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        return (
            torch.zeros(2, 3) + x, torch.ones_like(x) * 2, torch.full((2, 3), 0.5) - x, torch.arange(1, 7, 2) + x,
            torch.arange(0.0, 1.0, 0.25), torch.linspace(-1, 1, 5), torch.eye(3), x.new_zeros(2), x.new_full((2, 2), 7),
            torch.tril(torch.ones(3, 3)), table @ x.T, torch.tensor(3) * x, torch.scalar_tensor(1.5) + x,
            x.new_ones(1, 3) + x,
            torch.empty_like(x).fill_(2.0), torch.zeros(0, 3), torch.full_like(x, 3, dtype=torch.int64),
            torch.tril_indices(3, 3), torch.triu_indices(3, 4, 1), torch.hann_window(8), torch.logspace(0, 2, 3),
        )

    return Model(Module(create), [(uniform(2, 3),), (uniform(2, 3),)], beyond_wheel=True)


@model
def promotion():
    """Operands of several types, with Python numbers among them, and casts."""

    def promote(i, f, h, b, u):
        return (
            i + f, i * 2.5, i / 2, f + 2, h + f, h * 2, b + i, b * 1.5, u + i, u + 7, f > i, torch.cat([i, i * 2]),
            i.to(f.dtype),
            f.to(torch.int32), f.half(), f.double() + h, b.float(), f.bool(), torch.where(b, i, 0.5), i.sum(),
            b.sum(), u.float().mean(),
            h.to(torch.bfloat16).float(), f.type_as(h), torch.add(i, f, alpha=2), i.pow(2), 2.0**f, 1 / (f.abs() + 1),
            i.clamp(max=2.5),
        )

    def call():
        halves, flags = uniform(2, 3, dtype=torch.float16), torch.rand(2, 3) > 0.5
        small, bytes_ = torch.randint(-5, 5, (2, 3)), torch.randint(0, 255, (2, 3), dtype=torch.uint8)
        return small, 3 * uniform(2, 3), halves, flags, bytes_

    return Model(Module(promote), [call(), call()], tolerance=1e-3)


@model
def masks():
    """Masks of attention as models make them: causal, windowed, padded, and added up."""

    def mask(lengths, scores):
        time = scores.shape[-1]
        place = torch.arange(time)
        causal = place[None, :] <= place[:, None]
        near = (place[:, None] - place[None, :]).abs() < 3
        present = place[None] < lengths[:, None]
        allowed = causal[None] & near[None] & present[:, None]
        bias = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
        counted, total = present.cumsum(-1) * present, present.long().sum(-1)
        return (scores + bias).softmax(-1), counted, total, allowed.any(-1), torch.triu(scores, diagonal=1)

    calls = [(torch.tensor(lengths), uniform(3, 6, 6)) for lengths in ([6, 3, 1], [2, 6, 4])]
    return Model(Module(mask), calls)
