"""Decompositions and solvers of linear algebra.

Factors whose signs or phases are free are not compared by value: the test puts the matrix together again.
"""

import itertools

import torch

from .values import F32, F64, Values

SHAPES = ((3, 3), (1, 1), (2, 4, 4), (2, 1, 5, 5), (0, 3, 3), (2, 0, 0), (7, 7))
RECTANGLES = ((5, 3), (3, 5), (2, 4, 2), (1, 4), (4, 1), (2, 3, 6), (0, 3), (3, 0), (17, 4))


def regular(v, shape, dtype):
    """Matrices far from singular: a diagonal that dominates half of the time."""
    a = v.tensor(shape, dtype)
    return a + torch.eye(shape[-1], dtype=dtype) * (6 if v.uniform() < 0.5 else 1)


def definite(v, shape, dtype):
    a = v.tensor(shape, dtype, -2, 2)
    return a @ a.mT + torch.eye(shape[-1], dtype=dtype)


def symmetric(v, shape, dtype):
    a = v.tensor(shape, dtype)
    return a + a.mT


def rounding(dtype, factor=1):
    """What a matrix that is not well conditioned makes of rounding errors."""
    return (2e-5 * factor, 2e-5 * factor) if dtype == F32 else (2e-13 * factor, 2e-13 * factor)


def by_elimination(cases):
    v = Values("lu")
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    for dtype in (F32, F64):
        tol = rounding(dtype)
        for shape in SHAPES:
            a = regular(v, shape, dtype)
            cases.call("aten::linalg_lu_factor_ex.out", a, _tol=tol, _name="square")
            cases.call("aten::linalg_inv_ex.inverse", a, _tol=tol, _name="square")
            cases.call("aten::_linalg_det.result", a, _tol=rounding(dtype, 4), _unspecified=[1, 2], _name="square")
            cases.call("aten::_linalg_slogdet.sign", a, _tol=tol, _unspecified=[2, 3], _name="square")
            lu, pivots, _ = torch.linalg.lu_factor_ex(a)
            for columns, left in itertools.product((1, 3), (True, False)):
                n = shape[-1]
                b = v.tensor((*shape[:-2], *((n, columns) if left else (columns, n))), dtype)
                # The factors are of the matrix or of its transpose, as it suits.
                cases.call("aten::_linalg_solve_ex.result", a, b, left=left, _tol=tol, _unspecified=[1, 2], _name=f"left-{left}".lower())
                for adjoint in (False, True):
                    cases.call("aten::linalg_lu_solve.out", lu, pivots, b, left=left, adjoint=adjoint, _tol=tol, _name=f"left-{left}".lower())
            cases.call("aten::_linalg_solve_ex.result", a, v.tensor(shape[:-1], dtype), _tol=tol, _unspecified=[1, 2], _name="vector")
            cases.call("aten::lu_unpack.out", lu, pivots, _tol=tol, _name="square")
            cases.call("aten::lu_unpack.out", lu, pivots, True, False, _tol=tol, _name="no-pivots")
            cases.call("aten::lu_unpack.out", lu, pivots, False, True, _tol=tol, _name="no-data")
        for shape in RECTANGLES:
            a = v.tensor(shape, dtype)
            cases.call("aten::linalg_lu_factor_ex.out", a, _tol=tol, _name="rectangle")
            lu, pivots, _ = torch.linalg.lu_factor_ex(a)
            cases.call("aten::lu_unpack.out", lu, pivots, _tol=tol, _name="rectangle")
        a, b = regular(v, (3, 3), dtype), v.tensor((2, 3, 2), dtype)
        cases.call("aten::_linalg_solve_ex.result", a, b, _tol=tol, _unspecified=[1, 2], _name="broadcast")
        cases.call("aten::_linalg_solve_ex.result", regular(v, (2, 3, 3), dtype), b[0], _tol=tol, _unspecified=[1, 2], _name="broadcast")
        cases.call("aten::_linalg_solve_ex.result", regular(v, (2, 3, 3), dtype), v.tensor((3,), dtype), _tol=tol, _unspecified=[1, 2], _name="one-vector")
        cases.call("aten::_linalg_det.result", singular.to(dtype), _unspecified=[1, 2], _name="singular")
        cases.call("aten::_linalg_slogdet.sign", singular.to(dtype), _unspecified=[2, 3], _name="singular")
        cases.call("aten::linalg_inv_ex.inverse", singular.to(dtype), _unspecified=[0], _name="singular")
        cases.call("aten::linalg_lu_factor_ex.out", singular.to(dtype), _name="singular")


def triangles(cases):
    v = Values("triangles")
    for dtype in (F32, F64):
        for shape, upper, left, unit in itertools.product(((3, 3), (2, 4, 4), (1, 1)), (False, True), (False, True), (False, True)):
            n = shape[-1]
            a = v.tensor(shape, dtype, -1, 1) + 3 * torch.eye(n, dtype=dtype)
            b = v.tensor((*shape[:-2], *((n, 2) if left else (2, n))), dtype)
            cases.call("aten::linalg_solve_triangular.out", a, b, upper=upper, left=left, unitriangular=unit, _tol=rounding(dtype), _name="triangle")
        for shape, upper in itertools.product(SHAPES, (False, True)):
            cases.call("aten::linalg_cholesky_ex.L", definite(v, shape, dtype), upper=upper, _tol=rounding(dtype), _name="definite")
        indefinite = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=dtype)
        cases.call("aten::linalg_cholesky_ex.L", indefinite, _unspecified=[0], _name="indefinite")


def reflections(cases):
    v = Values("qr")
    for dtype, shape in itertools.product((F32, F64), RECTANGLES + SHAPES):
        a = v.tensor(shape, dtype)
        tol = rounding(dtype)
        cases.call("aten::geqrf.a", a, _tol=tol, _name="reflections")
        packed, tau = torch.geqrf(a)
        if shape[-2] >= shape[-1]:
            cases.call("aten::linalg_householder_product.out", packed, tau, _tol=tol, _name="reflections")


def by_rotations(cases):
    v = Values("jacobi")
    for dtype in (F32, F64):
        for shape in RECTANGLES + SHAPES:
            for full, vectors in ((False, True), (True, True), (False, False)):
                cases.call("aten::_linalg_svd.U", v.tensor(shape, dtype), full, vectors, _check="svd", _name="singular")
        low = v.tensor((5, 2), dtype) @ v.tensor((2, 4), dtype)
        for a in (low, torch.zeros(3, 4, dtype=dtype), torch.eye(4, dtype=dtype), torch.ones(4, 3, dtype=dtype)):
            cases.call("aten::_linalg_svd.U", a, True, True, _check="svd", _name="low-rank")
        for shape in SHAPES:
            a = symmetric(v, shape, dtype)
            for triangle, vectors in itertools.product("LU", (True, False)):
                cases.call("aten::_linalg_eigh.eigenvalues", a, triangle, vectors, _check="eigh", _name="symmetric")
            cases.call("aten::linalg_eig.out", v.tensor(shape, dtype), _check="eig", _name="general")
        for a in (torch.eye(3), torch.zeros(2, 2), torch.tensor([[0.0, 1.0], [-1.0, 0.0]]), torch.tensor([[2.0, 1.0], [0.0, 2.0]]), torch.eye(4).roll(1, 0)):
            cases.call("aten::linalg_eig.out", a.to(dtype), _check="eig", _name="special")
            cases.call("aten::_linalg_eigh.eigenvalues", (a + a.mT).to(dtype), "L", True, _check="eigh", _name="special")


def exponentials(cases):
    v = Values("exponential")
    for dtype in (F32, F64):
        for shape, scale in itertools.product(SHAPES, (0.01, 1, 4)):
            # Large exponentials have large rounding errors on both sides.
            cases.call("aten::linalg_matrix_exp.out", v.tensor(shape, dtype, -1, 1) * scale, _tol=rounding(dtype, 20), _name="exponential")


def generate(cases):
    by_elimination(cases)
    triangles(cases)
    reflections(cases)
    by_rotations(cases)
    exponentials(cases)
