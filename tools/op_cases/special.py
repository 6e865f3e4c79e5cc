"""Special functions. Results below `f64` are those of PyTorch in `f64`, rounded.

Of some functions PyTorch has fewer digits than `f32` holds, or than `f64` does: their results are those of mpmath.
"""

import math

import mpmath
import torch

from .values import BF16, BOOL, F16, F32, F64, I32, I64, SHAPES, U8, Values, channels_last

DOMAIN = {
    "lgamma": (-6, 30), "digamma": (-6, 30), "i0": (-20, 20), "special_i0e": (-50, 50), "special_i1": (-20, 20), "special_i1e": (-50, 50),
    "erfc": (-5, 9), "special_erfcx": (-5, 60), "special_ndtri": (0, 1), "special_log_ndtr": (-40, 8), "special_bessel_j0": (-60, 60), "special_bessel_j1": (-60, 60),
    "special_bessel_y0": (0.1, 60), "special_bessel_y1": (0.1, 60), "special_modified_bessel_i0": (-20, 20), "special_modified_bessel_i1": (-20, 20),
    "special_modified_bessel_k0": (0.01, 40), "special_modified_bessel_k1": (0.01, 40), "special_scaled_modified_bessel_k0": (0.01, 90),
    "special_scaled_modified_bessel_k1": (0.01, 90), "special_spherical_bessel_j0": (-20, 20), "special_airy_ai": (-30, 12),
}  # fmt: skip
POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h "
    "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t "
    "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
).split()
# PyTorch is off by 2e-6 (Airy), 8e-7 (Bessel, near 5), 5e-10 (igamma of 20 to 200) and 1e-11 (trigamma).
ORACLES = {
    "special_airy_ai": mpmath.airyai,
    "special_bessel_j0": lambda x: mpmath.besselj(0, x),
    "special_bessel_j1": lambda x: mpmath.besselj(1, x),
    "special_bessel_y0": lambda x: mpmath.bessely(0, x) if x else -mpmath.inf,
    "special_bessel_y1": lambda x: mpmath.bessely(1, x) if x else -mpmath.inf,
    "igamma": lambda a, x: mpmath.gammainc(a, 0, x, regularized=True),
    "igammac": lambda a, x: mpmath.gammainc(a, x, regularized=True),
    "polygamma": mpmath.psi,
}
# Both sides sum or approximate in f64, to some units in the last place of what the terms add up to.
WIDE = (5e-13, 5e-14)


def one(cases, op, *args, dtype, name, **options):
    """In f64 PyTorch's own result; else its result in f64, as that in the dtype itself has errors of its own."""
    short = op.partition("::")[2].removesuffix(".out")
    if short in ORACLES and (name != "special" or "bessel" in short):
        cases.call(op, *args, _expect=lambda bound: precise(ORACLES[short], bound, dtype), _tol=WIDE if dtype == F64 else None, _name=name, **options)
    elif dtype == F64:
        cases.call(op, *args, _tol=WIDE, _name=name, **options)
    elif dtype.is_floating_point:
        cases.call(op, *args, _as=F64, _name=name, **options)
    else:
        cases.call(op, *args, _expect=lambda bound: in_double(op, bound), _name=name, **options)


def precise(function, bound, dtype):
    """The results of mpmath, in the dtype that PyTorch's have."""
    values = [v for v in bound.values() if v is not None]
    tensors = torch.broadcast_tensors(*[v for v in values if isinstance(v, torch.Tensor)])
    numbers = [v for v in values if not isinstance(v, torch.Tensor)]
    with mpmath.workdps(40):
        results = [float("nan") if any(map(math.isnan, row)) else float(function(*numbers, *map(mpmath.mpf, row))) for row in zip(*[t.double().flatten().tolist() for t in tensors])]
    result = torch.tensor(results, dtype=F64).reshape(tensors[0].shape)
    return result.to(dtype if dtype.is_floating_point else F32)


def in_double(op, bound):
    """The result of integers, by way of f64."""
    from . import schema

    wide = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in bound.items()}
    return schema.operator(op).functional(**wide).float()


def functions(cases):
    for name, (low, high) in DOMAIN.items():
        op = f"aten::{name}.out"
        v = Values(op)
        for dtype in (F32, F64, F16, BF16, I64, I32, U8, BOOL):
            one(cases, op, v.tensor((13,), dtype, low, high), dtype=dtype, name="tail")
            one(cases, op, v.tensor((2, 3), dtype, low, high), dtype=dtype, name="rank2")
        for shape in SHAPES:
            one(cases, op, v.tensor(shape, F32, low, high), dtype=F32, name=f"rank{len(shape)}")
        one(cases, op, channels_last(v.tensor((2, 3, 2, 2), F32, low, high)), dtype=F32, name="channels-last")
        for dtype in (F32, F64):
            one(cases, op, v.tensor((103,), dtype, low, high), dtype=dtype, name="long")
            one(cases, op, v.tensor((20,), dtype, 0.0, 1.0), dtype=dtype, name="unit")
        special = [0.0, 1.0, 0.5, 2.0, 10.0, float("nan")]
        if name in ("lgamma", "digamma", "erfc", "special_erfcx", "special_log_ndtr", "special_i0e", "special_i1e"):
            special += [float("inf"), -1.0, -2.0, -0.5]
        for dtype in (F32, F64):
            one(cases, op, torch.tensor(special, dtype=dtype), dtype=dtype, name="special")


def of_two(cases):
    v = Values("special of two")
    for dtype in (F32, F64):
        for name in ("igamma", "igammac"):
            op = f"aten::{name}.out"
            for high in (2, 8, 40, 300):
                one(cases, op, v.tensor((3, 5), dtype, 0.1, high), v.tensor((5,), dtype, 0.1, high), dtype=dtype, name=f"to{high}")
            one(cases, op, torch.tensor([0.0, 0.0, 1.0, 2.0, -1.0, float("inf"), 3.0], dtype=dtype), torch.tensor([0.0, 1.0, 0.0, float("inf"), 1.0, 2.0, float("nan")], dtype=dtype), dtype=dtype, name="special")
        op = "aten::special_zeta.out"
        one(cases, op, v.tensor((3, 5), dtype, 1.1, 12), v.tensor((5,), dtype, 0.1, 12), dtype=dtype, name="positive")
        one(cases, op, torch.tensor([1.0, 0.5, 2.0, 3.0, 2.0], dtype=dtype), torch.tensor([2.0, 2.0, 0.0, -1.0, -2.5], dtype=dtype), dtype=dtype, name="special")
        for n in (0, 1, 2, 3, 5):
            op = "aten::polygamma.out"
            one(cases, op, n, v.tensor((17,), dtype, 0.1, 20), dtype=dtype, name=f"order{n}")
        for name in POLYNOMIALS:
            op = f"aten::special_{name}.out"
            one(cases, op, v.tensor((3, 7), dtype, -1, 1), v.tensor((7,), I64, 0, 9).to(dtype), dtype=dtype, name="inside")
            one(cases, op, v.tensor((9,), dtype, -3, 3), v.tensor((9,), I64, 0, 6).to(dtype), dtype=dtype, name="outside")
            one(cases, op, torch.tensor([1.0, -1.0, 0.0, 0.5, 0.25], dtype=dtype), torch.tensor([3.0, 4.0, 5.0, -1.0, 2.7], dtype=dtype), dtype=dtype, name="special")


def generate(cases):
    functions(cases)
    of_two(cases)
