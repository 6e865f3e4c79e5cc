"""Methods that share state: in every order of calls, and wherever they run, they see what modules with common buffers see."""

import itertools

import pytest
import rushlight
import torch
from torch import nn

# All orders of three calls, and some longer ones.
ORDERS = [*(order for order in itertools.product("abc", repeat=3) if len(set(order)) > 1), *map(tuple, ("abcab", "cbabc", "bacca"))]


class Shared(nn.Module):
    def __init__(self, **buffers):
        super().__init__()
        for name, value in buffers.items():
            self.register_buffer(name, value)


class First(Shared):
    """Has a buffer of its own beside the common one, and intermediate results of another size than the others'."""

    def forward(self, x):
        self.acc.add_(x)
        self.own.mul_(0.5).add_(x.sum())
        return torch.cat([self.acc, self.own]).exp().sum(), self.own + x[0]


class Second(Shared):
    def forward(self, x):
        self.acc.add_(x.flip(0) * 2)
        wide = torch.outer(self.acc, x)
        return (wide @ wide).relu().sum(0) + self.acc


class Third(Shared):
    """Reads a buffer that only another method writes, and counts in integers."""

    def forward(self, x):
        self.count.add_(1)
        return self.acc * self.count, self.count * 1, (x * 3).sum()


def buffers(initial):
    start = torch.arange(4.0) if initial else torch.zeros(4)
    own = torch.full((3,), -2.0 if initial else 0.0)
    return {"acc": start, "own": own, "count": torch.tensor([7 if initial else 0])}


def modules(initial):
    made = buffers(initial)
    pick = lambda *names: {name: made[name] for name in names}  # noqa: E731
    return {"a": First(**pick("acc", "own")), "b": Second(**pick("acc")), "c": Third(**pick("acc", "count"))}


def inputs(at):
    return torch.tensor([1.0, -2.0, 0.5, 3.0]) / (at + 1)


def compiled(initial, backend):
    exported = {name: torch.export.export(module, (inputs(0),)) for name, module in modules(initial).items()}
    return rushlight.compile(exported, share_state=True, backend=backend, progress=False).buffer


def ways(initial):
    portable, cpu = compiled(initial, None), compiled(initial, "cpu")
    return {"portable": (portable, "off"), "lowered": (portable, "cpu"), "compiled": (cpu, "off")}


@pytest.mark.parametrize("initial", [False, True])
def test_all_orders_of_calls_see_what_eager_sees(initial):
    programs = ways(initial)
    for order in ORDERS:
        eager = modules(initial)
        expected = [eager[name](inputs(at)) for at, name in enumerate(order)]
        for way, (program, lower) in programs.items():
            loaded = rushlight.load(program, lower=lower)
            for at, name in enumerate(order):
                got = loaded.run(name, inputs(at))
                want = expected[at]
                want = list(want) if isinstance(want, tuple) else [want]
                got = list(got) if isinstance(got, (tuple, list)) else [got]
                for ours, theirs in zip(got, want, strict=True):
                    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, msg=lambda m, w=way, o=order: f"{w} {o}: {m}")


def test_different_initial_values_are_refused():
    exported = {name: torch.export.export(modules(initial)[name], (inputs(0),)) for name, initial in (("a", True), ("b", False))}
    with pytest.raises(rushlight.Error, match="disagree on the initial value of buffer `acc`"):
        rushlight.compile(exported, share_state=True)
    # Apart they are buffers of their own.
    rushlight.compile(exported)


def test_what_executorch_is_given_is_in_one_arena():
    """States do not lie where methods keep intermediate results, which ExecuTorch's shared arenas write over."""
    runtime = pytest.importorskip("executorch.runtime")
    program = runtime.Runtime.get().load_program(compiled(False, None))
    assert program.method_names == {"a", "b", "c"}
    eager = modules(False)
    got = program.load_method("a").execute([inputs(0)])
    torch.testing.assert_close(got[0], eager["a"](inputs(0))[0])
