"""A few of the random programs that `cargo xtask test random-programs` compares with eager, of fixed seeds."""

import pathlib
import sys

import pytest
import rushlight
import torch

TOOLS = pathlib.Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def tools(monkeypatch):
    """The folder of the programs' source is on the path; its modules are forgotten afterwards, as other folders have such names."""
    monkeypatch.syspath_prepend(str(TOOLS))
    yield pytest.importorskip("random_programs")
    for name in ("random_programs", "random_runs", "random_operators"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("rare", [False, True])
def test_random_programs_give_what_eager_gives(tools, rare):
    tally = tools.Tally()
    tally.check([tools.Program(seed, rare) for seed in range(12)])
    # Apart from each other, too, where a size varies.
    for seed in (1, 23):
        tally.check([tools.Program(seed, rare)])
    assert not tally.failures
    assert all(tally.counts[mode] >= 8 for mode in tools.MODES), tally.counts


def test_a_program_that_differs_is_found_among_others(tools, monkeypatch):
    def is_usual(program):
        values = [program.values[name] for name in program.outputs]
        return values and all(value.dtype == torch.float32 and value.numel() and value.abs().max() < 9 for value in values)

    programs = [tools.Program(seed) for seed in range(8)]
    wrong = next(program.seed for program in programs if is_usual(program))
    case = sys.modules["random_runs"].Case
    right = case.want
    monkeypatch.setattr(
        case, "want", lambda self, name: [value + 1 for value in right(self, name)] if self.program.seed == wrong else right(self, name)
    )
    tally = tools.Tally(["reference"])
    tally.check(programs)
    assert {seed for seed, _, _ in tally.failures} == {wrong}


def refused(module, *inputs):
    with pytest.raises(rushlight.Error) as caught:
        rushlight.compile(torch.export.export(module, inputs))
    return str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint16, torch.uint32, torch.uint64, torch.complex64])
def test_types_that_no_kernel_takes_are_refused_by_the_compiler(dtype):
    class Sine(torch.nn.Module):
        def forward(self, x):
            return torch.sin(x * 1)

    if dtype == torch.float8_e4m3fn:
        class Sine(torch.nn.Module):  # noqa: F811
            def forward(self, x):
                return torch.ne(x, 0)

    text = refused(Sine(), torch.ones(2, 3).to(dtype))
    # The operator, the type, the line of Python and what to do.
    assert "no kernel of `aten::" in text and "got " in text and __file__.rsplit("/", 1)[-1] in text and "convert" in text


class Empty(torch.nn.Module):
    def forward(self, x):
        return x.index_select(0, torch.zeros(0, dtype=torch.int64)) * 2, x.relu()


class OfNumber(torch.nn.Module):
    def forward(self, x):
        return x.sum().movedim(0, 0), x.sum().mT


class NoDims(torch.nn.Module):
    def forward(self, x):
        return torch.all(x, dim=(), keepdim=True), torch.any(x, dim=()).float() + 1, torch.all(x, dim=None)


class OfNone(torch.nn.Module):
    def forward(self, x):
        return torch.logsumexp(x[:, :0], 1), torch.logsumexp(x[:0], 1)


class NormOfNone(torch.nn.Module):
    def forward(self, x):
        functional, none, no_batch = torch.nn.functional, x.reshape(1, 3, 4, 1)[:, :0], x.reshape(3, 2, 2)[:0]
        return (
            functional.instance_norm(none), functional.layer_norm(none, [0, 4, 1]),
            functional.batch_norm(none, torch.zeros(0), torch.ones(0)), functional.normalize(none), functional.rms_norm(x[:0], [4]),
            functional.instance_norm(no_batch), functional.group_norm(no_batch, 2), functional.layer_norm(x[:0], [4]),
        )


class PoolOfNone(torch.nn.Module):
    def forward(self, x):
        functional, image = torch.nn.functional, x.reshape(1, 3, 4, 1)
        return (
            functional.adaptive_avg_pool2d(image[:, :, :0], 1), functional.adaptive_avg_pool1d(image[0, :, :0].mT, 1),
            functional.adaptive_avg_pool3d(image[..., None, :0], 1), functional.adaptive_avg_pool2d(image[:0], 2),
            functional.adaptive_avg_pool2d(image[:, :0], 2),
        )


class MatrixNormOfNone(torch.nn.Module):
    def forward(self, x):
        norm = torch.linalg.matrix_norm
        return (
            norm(x[:, :0], 2), norm(x[:0], "nuc"), norm(x[:, :0], 1), norm(x[:0], float("inf")), norm(x[:, :0]),
            norm(x.reshape(3, 2, 2)[:0], 2), torch.linalg.pinv(x[:, :0]), torch.linalg.matrix_rank(x[:, :0]),
            torch.linalg.svdvals(x[:0]),
        )


class ConvolveNone(torch.nn.Module):
    def forward(self, x):
        functional, image, weight = torch.nn.functional, x.reshape(1, 3, 4, 1)[:0], torch.ones(3, 2, 2, 2)
        empty = image[..., :0]
        return (
            functional.conv_transpose2d(empty, weight), functional.conv_transpose2d(empty, weight, stride=2),
            functional.conv_transpose2d(empty, weight, None, 2, 1, 1, 1, 2), functional.conv_transpose2d(image, weight, padding=1),
            functional.conv_transpose1d(image[..., 0, :0], weight[..., 0]), functional.conv2d(empty, torch.ones(2, 3, 1, 1), padding=1),
        )


class FillWithTruth(torch.nn.Module):
    """Numbers that fill truth values are 1 or 0."""

    def forward(self, x):
        truth = x > 0
        shape = [x.shape[0], 2]
        return (
            torch.log1p(torch.nn.functional.pad(truth, [1, 1], value=2.0)), torch.nn.functional.pad(truth, [0, 1], value=0.5),
            torch.full(shape, 3.0, dtype=torch.bool).float() + x[:, :2], torch.full_like(truth, -2) * x, truth.masked_fill(x < 0, 2) * x,
            torch.full_like(truth, 0.25) & truth, truth.float() + torch.scalar_tensor(5, dtype=torch.bool),
            torch.nn.functional.pad(truth, [1, 0], value=4) | torch.nn.functional.pad(truth, [0, 1], value=-1),
        )


class RootsOfInfinity(torch.nn.Module):
    def forward(self, x):
        ends = torch.stack([x / 0, -x.abs() / 0, x * 0, -x.abs() * 0])
        return tuple(function(ends, power) for function in (torch.pow, torch.float_power) for power in (0.5, -0.5, -1, 2, 3))


class PolesAndPowersOfE(torch.nn.Module):
    def forward(self, x):
        nan, one = x[0] * float("nan"), x[:1, :1, None]
        return (
            torch.special.zeta(nan, torch.tensor([0.0, -1.0, -2.0, 1.0])), torch.special.zeta(x.abs() + 1, nan),
            torch.linalg.matrix_exp(one - float("inf")), torch.linalg.matrix_exp(one * 3), torch.linalg.matrix_exp(one + float("inf")),
        )


class ScaledIntegers(torch.nn.Module):
    """PyTorch records other types for these than it computes."""

    def forward(self, x):
        whole, half = (x * 4).int(), (x.abs() + 1).half()
        return (
            torch.ldexp(whole, half), torch.ldexp(x > 0, half.bfloat16()) + 1, torch.ldexp(half, whole), torch.ldexp(x, whole),
        )


class AreaOfSmallIntegers(torch.nn.Module):
    def forward(self, x):
        heights = (x * 100).to(torch.uint8)
        return (
            torch.trapezoid(heights), torch.trapezoid(heights, dx=0.3, dim=0), torch.trapezoid(heights[:, :1]), torch.trapezoid(x, dx=2),
            torch.cumulative_trapezoid(heights), torch.trapezoid(heights, torch.tensor([0.0, 1.0, 3.0, 4.0])),
        )


def loaded_in_all_ways(module, x):
    """Loads a module with the reference operators, lowered at load, and compiled for the CPU backend."""
    exported = torch.export.export(module, (x,))
    portable = rushlight.compile(exported).buffer
    return (
        rushlight.load(portable, lower="off"),
        rushlight.load(portable, lower="cpu"),
        rushlight.load(rushlight.compile(exported, backend="cpu").buffer),
    )


FOUND = [
    Empty(), OfNumber(), NoDims(), OfNone(), NormOfNone(), PoolOfNone(), MatrixNormOfNone(), ConvolveNone(), FillWithTruth(),
    AreaOfSmallIntegers(), RootsOfInfinity(), PolesAndPowersOfE(), ScaledIntegers(),
]


@pytest.mark.parametrize("module", FOUND)
def test_what_random_programs_found(module):
    x = torch.rand(3, 4) > 0.5 if isinstance(module, NoDims) else torch.randn(3, 4)
    for loaded in loaded_in_all_ways(module, x):
        for got, want in zip(loaded(x), module(x), strict=True):
            torch.testing.assert_close(got, want, equal_nan=True)


def test_stacks_of_sizes_that_are_equal_only_by_a_guard():
    class Stack(torch.nn.Module):
        def forward(self, x):
            resized = torch.nn.functional.interpolate(x, scale_factor=1.3, mode="linear", recompute_scale_factor=True)
            return torch.stack([x, resized], 1)

    shapes = ({2: torch.export.Dim.AUTO(max=8)},)
    exported = torch.export.export(Stack(), (torch.randn(2, 5, 3),), dynamic_shapes=shapes)
    loaded = rushlight.load(rushlight.compile(exported, backend="cpu").buffer)
    for size in (3, 2):
        x = torch.randn(2, 5, size)
        torch.testing.assert_close(loaded(x), Stack()(x))
    with pytest.raises(rushlight.Error):
        loaded(torch.randn(2, 5, 4))


# What an empty list of dimensions means is the operator's own: none, or all.
LISTS = ["sum", "mean", "amax", "amin", "any", "all", "var", "std", "logsumexp", "nansum", "nanmean"]


class Reduced(torch.nn.Module):
    def __init__(self, name, dims, keepdim):
        super().__init__()
        self.name, self.dims, self.keepdim = name, dims, keepdim

    def forward(self, x):
        return getattr(torch, self.name)(x, dim=self.dims, keepdim=self.keepdim)


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_dimensions(name):
    for dtype in (torch.float32, torch.bool):
        for dims in ((), (0,), (-1, 0), (0, 1, 2)):
            for keepdim in (False, True):
                module, x = Reduced(name, dims, keepdim), (torch.rand(2, 3, 2) > 0.5).to(dtype)
                try:
                    want = module(x)
                except RuntimeError:
                    continue
                for loaded in loaded_in_all_ways(module, x):
                    torch.testing.assert_close(loaded(x), want, msg=lambda m, c=(name, dtype, dims, keepdim): f"{c}: {m}")
