"""Makes `tests/shapes/`: exported programs with dynamic shapes, and which sizes PyTorch takes for them.

    python tools/shape_guards.py

For each program, `calls.json` has shapes of inputs and, where `ExportedProgram.module()` takes them, the outputs; what it
refuses must be refused too. The inputs are `sin(0), sin(1), …` in row-major order, counted on from input to input. Run with
the Python of `tools/requirements.txt`.
"""

import itertools
import json
import warnings

import torch
import traces
from torch import nn
from torch.export import Dim

FOLDER = traces.ROOT / "tests" / "shapes"
SIZE_LIMIT = 40_000
CASES = {}


def case(*shapes, tries, dims=None):
    """Registers the forward of a module, exported with inputs of these shapes. `tries` are the shapes to call it with."""

    def register(forward):
        CASES[forward.__name__] = forward, shapes, dims, tries
        return forward

    return register


def each(*shapes):
    """All combinations of sizes: `each((range(3), 8))` gives the shapes (0, 8), (1, 8) and (2, 8)."""
    sizes = [[s if not isinstance(s, int) else [s] for s in shape] for shape in shapes]
    return [list(call) for call in itertools.product(*(itertools.product(*shape) for shape in sizes))]


def b(low=None, high=8):
    return Dim("b", min=low, max=high)


WEIGHTS = torch.sin(torch.arange(8.0))
MATRIX = torch.sin(torch.arange(24.0)).reshape(3, 8)
KERNEL = torch.sin(torch.arange(54.0)).reshape(2, 3, 3, 3)


@case((4, 8), dims=({0: b()},), tries=each((range(10), [1, 7, 8, 9])) + [[(8,)], [(1, 3, 8)]])
def scaled(x):
    return x * WEIGHTS


@case((4, 8), dims=({0: b(2)},), tries=each((range(10), 8)))
def at_least_two(x):
    return x * WEIGHTS


@case((4, 8), dims=({0: b(3)},), tries=each((range(10), 8)))
def at_least_three(x):
    return x.softmax(-1)


@case((5, 8), dims=({0: b(5, 5 + 1)},), tries=each((range(3, 9), 8)))
def five_or_six(x):
    return x + 1


@case((4, 4), dims=({0: Dim.AUTO(max=8), 1: Dim.AUTO(max=8)},), tries=each((range(10), range(10))))
def square(x):
    return x + x.T


@case((4, 8), (4, 8), dims=({0: Dim.AUTO(max=8)}, {0: Dim.AUTO(max=8)}), tries=each((range(5), 8), (range(5), [1, 8])))
def of_equal_sizes(x, y):
    return x * y


n = Dim("n", max=8)


@case((4, 2), (8, 2), dims=({0: n}, {0: 2 * n}), tries=each((range(10), 2), (range(19), 2)))
def twice_as_many(x, y):
    return torch.cat([x, x]) + y


@case((8, 2), (4, 2), dims=({0: 2 * n}, {0: n}), tries=each((range(10), 2), (range(6), 2)))
def half_as_many(x, y):
    return x[::2] + y


@case((4, 2), (5, 2), dims=({0: n}, {0: n + 1}), tries=each((range(10), 2), (range(11), 2)))
def one_more(x, y):
    return x + y[1:]


@case((4, 8), dims=({0: Dim.AUTO(max=16)},), tries=each((range(18), [4, 8])))
def in_pairs(x):
    return x.view(-1, 2, 8).sum(1)


@case((8, 3), dims=({0: 4 * n},), tries=each((range(34), 3)))
def in_fours(x):
    return x.reshape(-1, 12)


@case((9, 2), dims=({0: 2 * n + 1},), tries=each((range(19), 2)))
def odd(x):
    return x[1:].reshape(-1, 4)


@case((7, 2), dims=({0: 2 * Dim("m", min=2, max=8) - 1},), tries=each((range(19), 2)))
def one_less_than_even(x):
    return torch.cat([x, x[:1]]).reshape(-1, 4)


@case((2, 3, 8, 10), dims=({0: b(1, 2), 2: Dim("h", min=4, max=12), 3: Dim("w", min=4, max=12)},),
      tries=each((range(4), 3, [1, 3, 4, 5, 11, 12, 13], [3, 4, 9, 12, 13])) + each((1, [1, 2, 4], 8, 8)))
def convolved(x):
    return nn.functional.conv2d(x, KERNEL, stride=2, padding=1)


@case((2, 5, 8), dims=({0: b(1, 4), 1: Dim("t", min=1, max=6)},), tries=each((range(6), range(8), [1, 8])))
def projected(x):
    return (x @ MATRIX.T).relu()


@case((6, 8), dims=({0: Dim.AUTO(max=8)},), tries=each((range(10), 8)))
def first_five(x):
    return x[:5] * 2


@case((2, 6), (2, 4), dims=({1: Dim("p", max=8)}, {1: Dim("q", max=8)}), tries=each(([1, 2], range(10)), ([1, 2, 3], range(10))))
def joined(x, y):
    return torch.cat([x, y], 1)


@case((4, 8), (4, 8), dims=({"first": {0: n}, "more": [{0: n}]},), tries=each(([1, 3, 4, 9], [1, 8]), ([1, 3, 4], 8)))
def of_containers(d):
    return d["first"] - d["more"][0]


@case((4, 8), dims=({0: Dim.AUTO(min=3, max=8)},), tries=each((range(10), [1, 8])))
def bounded_auto(x):
    return x.mean(0) + x


# What follows has conditions or numbers that are more than integer arithmetic on sizes. The sizes tried are within the bounds
# and beyond them.
VARYING = ({1: Dim.AUTO(min=2, max=24)},)
ROWS = each((2, [1, 3, 4, 5, 8, 9, 12, 16, 24, 25]))
IMAGE = ({2: Dim.AUTO(min=2, max=24), 3: Dim.AUTO(min=2, max=24)},)
IMAGES = [[(1, 2, *size)] for size in ((8, 8), (6, 10), (4, 5), (9, 7), (16, 12), (24, 3), (26, 8))]


@case((2, 8), dims=VARYING, tries=ROWS)
def sliced_in_half(x):
    return x[:, : int(x.shape[1] * 0.5)] * 2


@case((2, 8), dims=VARYING, tries=ROWS)
def padded_with_half(x):
    return nn.functional.pad(x, (1, 1), value=x.shape[1] / 2)


@case((1, 2, 4, 8), dims=({2: Dim.AUTO(min=2, max=12)},), tries=each((1, 2, range(2, 14), 8)))
def attention_scaled(x):
    return nn.functional.scaled_dot_product_attention(x, x, x, scale=1 / x.shape[2])


@case((4, 8), dims=({0: Dim.AUTO(min=2, max=12)},), tries=each((range(2, 14), 8)))
def normalized_with_eps(x):
    return nn.functional.layer_norm(x, (8,), eps=1 / x.shape[0])


@case((2, 8), dims=VARYING, tries=ROWS)
def branch_of_half(x):
    return x * 2 if x.shape[1] / 2 > 3 else x * 3


@case((2, 8), dims=VARYING, tries=ROWS)
def branch_of_rounded(x):
    return x * 2 if round(x.shape[1] / 3) == 3 or x.shape[1] == 16 else x * 3


@case((2, 8), dims=VARYING, tries=ROWS)
def branch_of_power(x):
    return x * 2 if x.shape[1] ** 0.5 > 2.1 and abs(x.shape[1] - 9) < 4 else x * 3


@case((2, 8), dims=VARYING, tries=ROWS)
def multiplied_by_numbers(x):
    n = x.shape[1]
    return x * (1 / n) + n / 2 - x / (n / 3) + (x % (n / 4)) - n / 5 * x.abs() ** (n / 20)


@case((2, 8), dims=VARYING, tries=ROWS)
def activated_by_numbers(x):
    n, f = x.shape[1], nn.functional
    sums = [f.softplus(x, beta=n / 4), f.celu(x, n / 3), f.leaky_relu(x, 1 / n), f.threshold(x, 1 / n, n / 2)]
    sums += [f.hardtanh(x, -n / 9, n / 9), f.softshrink(x, 1 / n), torch.nan_to_num(x / 0.0 * 0.0, nan=n / 2)]
    return torch.stack(sums)


@case((2, 8), dims=VARYING, tries=ROWS)
def lost_by_numbers(x):
    n, f, y = x.shape[1], nn.functional, x.cos()
    losses = [f.smooth_l1_loss(x, y, beta=n / 6), f.huber_loss(x, y, delta=n / 9), f.hinge_embedding_loss(x, y.sign(), margin=n / 3)]
    losses += [f.cosine_similarity(x, y, eps=1 / n).sum(), f.pairwise_distance(x, y, eps=1 / n).sum(), f.rms_norm(x[:, :2], (2,), eps=1 / n).sum()]
    return torch.stack(losses)


@case((2, 8), dims=VARYING, tries=ROWS)
def filled_with_numbers(x):
    n = x.shape[1]
    rows = [x.masked_fill(x > 0, n / 2), torch.where(x > 0, x, n / 3), torch.full_like(x, n / 7), x.index_fill(0, torch.tensor([1]), n / 9)]
    return torch.cat([torch.cat(rows).flatten(), torch.linspace(n / 3, n, 7), torch.arange(0, n, 1.0), torch.arange(0, n, 0.5)])


@case((1, 2, 8, 8), dims=IMAGE, tries=IMAGES)
def resized_by_factors(x):
    f = nn.functional.interpolate
    modes = [("nearest", 0.5), ("bilinear", 0.5), ("bilinear", 1.7), ("bicubic", 1.3), ("nearest-exact", 0.7), ("area", 0.5)]
    return torch.cat([f(x, scale_factor=factor, mode=mode).flatten() for mode, factor in modes])


@case((1, 2, 8, 8), dims=IMAGE, tries=IMAGES)
def resized_to_fixed(x):
    f = nn.functional.interpolate
    return torch.cat([f(x, size=(7, 5), mode=mode) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")])


@case((2, 8), dims=VARYING, tries=ROWS)
def branches_with_sizes(x):
    n = x.shape[1]
    halves = torch.cond(x.sum() > 0, lambda x: x * x.shape[1] * 0.5, lambda x: x + x.shape[1] / 2, (x,))
    return torch.cond((n > 6) & (n < 12) | (n == 4), lambda y: y * 2, lambda y: y + 1, (halves,))


def arguments(name, tensors):
    if name == "of_containers":
        first, second = tensors
        return ({"first": first, "more": [second]},)
    return tuple(tensors)


def inputs(shapes):
    tensors, start = [], 0
    for shape in shapes:
        count = int(torch.Size(shape).numel())
        tensors.append(torch.sin(torch.arange(start, start + count, dtype=torch.float32)).reshape(shape))
        start += count
    return tensors


def main():
    FOLDER.mkdir(exist_ok=True)
    recorded = {}
    for name, (forward, shapes, dims, tries) in CASES.items():
        module = type("Model", (nn.Module,), {"forward": lambda self, *args, f=forward: f(*args)})
        # The names of arguments are those of the function, as guards use them.
        variables = forward.__code__.co_varnames[: forward.__code__.co_argcount]
        source = f"def call(self, {', '.join(variables)}):\n    return f({', '.join(variables)})"
        scope = {"f": forward}
        exec(source, scope)
        module.forward = scope["call"]
        program = torch.export.export(module(), arguments(name, inputs(shapes)), dynamic_shapes=dims)
        called, calls = program.module(), []
        for call in tries:
            try:
                result = called(*arguments(name, inputs(call))).contiguous()
            except Exception:
                calls.append({"shapes": call})
                continue
            numbers = [round(number, 6) for number in result.flatten().tolist()]
            calls.append({"shapes": call, "output": list(result.shape), "sum": sum(numbers)})
        data = traces.archive(program, name)
        assert len(data) <= SIZE_LIMIT, f"{name} has {len(data)} bytes"
        (FOLDER / f"{name}.pt2").write_bytes(data)
        taken = sum("output" in call for call in calls)
        assert 0 < taken < len(calls), name
        print(f"{name:16} {len(data):6} bytes, {taken} of {len(calls)} calls are taken")
        recorded[name] = calls
    rows = (f'"{name}": [\n' + ",\n".join(json.dumps(call) for call in calls) + "\n]" for name, calls in recorded.items())
    (FOLDER / "calls.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
