"""Linear algebra that has no kernel is refused when a program is compiled, with the operator, the type and the line of Python."""

import pytest
import rushlight
import torch
from torch import nn

OF_ONE = (
    "inv inv_ex cholesky cholesky_ex lu lu_factor lu_factor_ex det slogdet qr svd svdvals eigh eigvalsh eig eigvals matrix_exp pinv "
    "matrix_rank cond ldl_factor ldl_factor_ex"
).split()
OF_TWO = ["solve", "solve_ex"]


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def refused(function, *args):
    with torch.no_grad():
        exported = torch.export.export(Function(function), args)
    with pytest.raises(rushlight.Error) as caught:
        rushlight.compile(exported)
    error = caught.value
    assert error.code_name in ("NotSupported", "OperatorMissing") and "test_linalg.py" in error.site, error
    return str(error)


@pytest.mark.parametrize("name", OF_ONE + OF_TWO)
def test_complex_matrices_are_refused(name):
    matrix = torch.randn(3, 3, dtype=torch.complex64)
    hermitian = matrix @ matrix.mH + torch.eye(3)
    text = refused(getattr(torch.linalg, name), *([hermitian] * (2 if name in OF_TWO else 1)))
    assert "c64" in text or name.startswith("ldl"), text


@pytest.mark.parametrize("name", ["ldl_factor", "ldl_factor_ex"])
def test_operators_without_a_kernel_are_named(name):
    assert "ldl_factor" in refused(lambda x: getattr(torch.linalg, name)(x)[0], torch.eye(3))
