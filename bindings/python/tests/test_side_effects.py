"""Operators that check, promise, print or do something else, as exported, and after `run_decompositions`, which orders them by tokens."""

import pytest
import rushlight
import torch
from torch import nn
from torch._library.effects import EffectType

torch.manual_seed(0)
FORMS = {
    "exported": lambda program: program,
    "resolved": lambda program: program.run_decompositions({}),
    "decomposed": lambda program: program.run_decompositions(),
}
BACKENDS = [None, "cpu"]


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def compiled(function, args, form, backend=None, **options):
    with torch.no_grad():
        return rushlight.compile(FORMS[form](torch.export.export(Function(function), args, **options)), backend=backend)


def agree(program, function, *args):
    expected, got = function(*args), program(*args)
    expected, got = (leaves if isinstance(leaves, (tuple, list)) else [leaves] for leaves in (expected, got))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def without_gradients(x):
    with torch.no_grad():
        y = torch.linalg.inv(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.linalg.inv(y)


def with_own_check(x):
    """Asks for the information itself, beside the check."""
    inverse, info = torch.linalg.inv_ex(x)
    return inverse, info, torch.linalg.inv(x), torch.linalg.cholesky(x @ x.mT)


LINALG = {
    "inv": torch.linalg.inv,
    "inverse": torch.inverse,
    "solve": lambda x: torch.linalg.solve(x, x.mT + 1),
    "solve_left": lambda x: torch.linalg.solve(x, x.mT + 1, left=False),
    "cholesky": lambda x: torch.linalg.cholesky(x.mT @ x),
    "cholesky_upper": lambda x: torch.linalg.cholesky(x.mT @ x, upper=True),
    "lu_factor": lambda x: torch.linalg.lu_factor(x)[0],
    "lu_factor_pivots": lambda x: torch.linalg.lu_factor(x)[1],
    "matrix_power": lambda x: torch.linalg.matrix_power(x, -2),
    "tensorinv": lambda x: torch.linalg.tensorinv(x[0].reshape(2, 2, 4)),
    "tensorsolve": lambda x: torch.linalg.tensorsolve(x[0].reshape(2, 2, 4), x[1, 0].reshape(2, 2)),
    "without_gradients": without_gradients,
    "with_own_check": with_own_check,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra_checks_its_matrices(name, form):
    function = LINALG[name]
    x = torch.randn(3, 4, 4) + 4 * torch.eye(4)
    singular = x.clone()
    singular[:, :, 1] = 0
    for backend in BACKENDS:
        program = compiled(function, (x,), form, backend)
        agree(program, function, x)
        with pytest.raises(RuntimeError):
            function(singular)
        with pytest.raises(rushlight.Error, match="singular|not positive definite"):
            program(singular)
        agree(program, function, x)


@pytest.mark.parametrize("form", FORMS)
def test_checks_are_kept_beside_sizes_that_vary(form):
    def function(x, y):
        torch._check(x.shape[0] == y.shape[0])
        return torch.linalg.solve(x, y)

    batch = torch.export.Dim("batch", min=1, max=8)
    x, y = torch.randn(3, 4, 4) + 4 * torch.eye(4), torch.randn(3, 4, 2)
    program = compiled(function, (x, y), form, dynamic_shapes={"args": ({0: batch}, {0: batch})})
    for count in (1, 3, 8):
        agree(program, function, torch.randn(count, 4, 4) + 4 * torch.eye(4), torch.randn(count, 4, 2))
    with pytest.raises(rushlight.Error):
        program(x, y[:2])


def prints(x):
    torch.ops.aten._print("no line of a program")
    return x * 2


def prints_numbers(x):
    torch._higher_order_ops.print("no line of a program: {}", x)
    return x * 2


def asserts(x):
    torch._assert_async(x.sum() < 1e9)
    torch.ops.aten._assert_async.msg(x.sum() < 1e9, "too much")
    count = x.argmax().item()
    torch._check(count >= 0)
    torch._check(count < 12)
    return x.flatten()[count] * 2


def records(x):
    with torch.profiler.record_function("a region"):
        return x * 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", [prints, prints_numbers, asserts, records], ids=lambda function: function.__name__)
def test_lines_assertions_and_regions_are_left_out(function, form, capfd):
    x = torch.randn(3, 4)
    program = compiled(function, (x,), form)
    expected = function(x)
    capfd.readouterr()
    torch.testing.assert_close(program(x), expected)
    assert capfd.readouterr().out == ""


@torch.library.custom_op("rushlight_effects::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@noisy.register_fake
def _(x):
    return torch.empty_like(x)


noisy.register_effect(EffectType.ORDERED)


def test_other_effects_are_refused():
    x = torch.randn(3, 4)
    with pytest.raises(rushlight.Error, match="(?s)`rushlight_effects::noisy` has side effects.*tokens") as caught:
        compiled(lambda x: noisy(x) * 2, (x,), "decomposed")
    assert caught.value.code_name == "NotSupported" and caught.value.hint and "test_side_effects.py" in caught.value.site
    # Without tokens it is an operator like others.
    rushlight.register_op("rushlight_effects::noisy", lambda x: torch.from_dlpack(x) + 1)
    agree(compiled(lambda x: noisy(x) * 2, (x,), "exported"), lambda x: (x + 1) * 2, x)
