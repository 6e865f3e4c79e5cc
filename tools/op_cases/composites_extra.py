"""Composite operators beyond core ATen: linear algebra, inverse transforms, special functions, counting, slopes, margins."""

import itertools

import torch

from .composites import collect, record
from .linalg import definite, regular, symmetric
from .values import BOOL, C64, F16, F32, F64, I32, I64, U8, Values

PER_OPERATOR = 40
COMPOSITES = True

NAMES = """
    combinations dequantize.self det embedding_renorm fft_hfft fft_hfft2 fft_hfftn fft_ihfft fft_ihfft2 fft_ihfftn gradient.array
    gradient.scalararray gradient.scalarint gradient.scalarrayarray gradient.scalarrayint gradient.tensorarray gradient.tensorarrayint
    grid_sampler histogram.bin_ct histogram.bins_tensor histogramdd inverse istft lcm linalg_cholesky linalg_cond linalg_det
    linalg_inv linalg_lu linalg_matrix_norm linalg_matrix_norm.str_ord linalg_matrix_power linalg_matrix_rank linalg_pinv
    linalg_qr linalg_slogdet linalg_solve linalg_solve_ex linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander logdet
    matrix_exp multi_margin_loss multilabel_margin_loss mvlgamma nanmedian nanmedian.dim nanquantile nanquantile.scalar ormqr renorm
    slogdet special_digamma special_gammainc special_gammaincc special_gammaln special_i0 special_polygamma special_psi vander
""".split()

SOURCES = """
    combinations det fft.hfft fft.hfft2 fft.hfftn fft.ihfft fft.ihfft2 fft.ihfftn gradient histogram histogramdd istft lcm linalg.det
    linalg.slogdet linalg.tensorinv linalg.tensorsolve linalg.vander logdet mvlgamma.mvlgamma_p_1 mvlgamma.mvlgamma_p_3 nanmedian
    nanquantile nn.functional.grid_sample nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss renorm vander
""".split()


def generate(cases):
    names = [f"aten::{name}" for name in NAMES]
    collect(cases, SOURCES, names, (F32, F64, I64), numel=200, per_dtype=4)
    # Matrices of complex numbers have no kernels.
    collect(cases, [name for name in SOURCES if name.startswith("fft.")] + ["istft"], names, (C64,), numel=200, per_dtype=4)
    v = Values("composites_extra")

    def call(name, *args, **kwargs):
        return record(cases, f"aten::{name}", *args, **kwargs)

    for part in (equations, factors, singular, transforms, functions, choices, slopes, histograms, losses, quantization, conversions, without_elements):
        part(v, call)


def equations(v, call):
    for dtype, shape in itertools.product((F32, F64), ((3, 3), (2, 4, 4), (1, 1))):
        n = shape[-1]
        a, s = regular(v, shape, dtype), definite(v, shape, dtype)
        b = v.tensor((*shape[:-1], 2), dtype)
        for name in ("linalg_inv", "inverse", "linalg_det", "det", "linalg_slogdet", "slogdet", "logdet", "linalg_lu", "matrix_exp"):
            call(name, a * (0.25 if name == "matrix_exp" else 1))
        call("linalg_solve", a, b)
        call("linalg_solve", a, b.mT.contiguous(), left=False)
        call("linalg_solve_ex", a, b)
        call("linalg_solve", a, b[..., 0].contiguous())
        for upper, transpose, unit in itertools.product((False, True), (False, True), (False, True)):
            t = v.tensor(shape, dtype, -1, 1) + 3 * torch.eye(n, dtype=dtype)
            call("triangular_solve", b, t, upper, transpose, unit)
        for upper in (False, True):
            call("linalg_cholesky", s, upper=upper)
            factor = torch.linalg.cholesky(s, upper=upper)
            call("cholesky_solve", b, factor, upper)
            call("cholesky_inverse", factor, upper)
        lu, pivots = torch.linalg.lu_factor(a)
        call("lu_solve", b, lu, pivots)
        call("linalg_lu_factor", a)
        for power in (-1, -2, -5, 3):
            call("linalg_matrix_power", a, power)
        for p in (None, 1, -1, 2, -2, float("inf"), "fro", "nuc"):
            call("linalg_cond.p_str" if isinstance(p, str) else "linalg_cond", a, p)
    call("linalg_tensorinv", regular(v, (6, 6), F32).reshape(2, 3, 6), 2)
    call("linalg_tensorinv", regular(v, (6, 6), F32).reshape(6, 3, 2), 1)
    call("linalg_tensorsolve", regular(v, (6, 6), F32).reshape(2, 3, 6), v.tensor((2, 3)))
    call("linalg_tensorsolve", regular(v, (6, 6), F32).reshape(6, 2, 3).movedim(0, 1).contiguous(), v.tensor((2, 3)), [1])


def factors(v, call):
    for dtype, shape in itertools.product((F32, F64), ((3, 3), (5, 3), (2, 3, 5), (4, 1))):
        a = v.tensor(shape, dtype)
        for mode in ("reduced", "complete", "r"):
            call("linalg_qr", a, mode)
        packed, tau = torch.geqrf(a)
        if shape[-2] >= shape[-1]:
            call("orgqr", packed, tau)
            for left, transpose in itertools.product((True, False), (True, False)):
                other = v.tensor((*shape[:-2], *((shape[-2], 2) if left else (2, shape[-2]))), dtype)
                call("ormqr", packed, tau, other, left, transpose)
        for increasing in (False, True):
            x = v.tensor((4,), dtype)
            call("vander", x, 3, increasing)
            call("vander", x, None, increasing)
        call("linalg_vander", v.tensor((2, 3), dtype))
        call("linalg_vander", v.tensor((2, 3), dtype), N=5)
    call("vander", v.tensor((4,), I64, -3, 3))


def singular(v, call):
    for dtype, shape in itertools.product((F32, F64), ((3, 3), (5, 3), (2, 3, 5))):
        a = v.tensor(shape, dtype)
        low = v.tensor((*shape[:-1], 2), dtype, -2, 2) @ v.tensor((*shape[:-2], 2, shape[-1]), dtype, -2, 2)
        call("linalg_svdvals", a)
        for x in (a, low):
            call("linalg_pinv.atol_rtol_float", x)
            call("linalg_pinv.atol_rtol_float", x, atol=0.1)
            call("linalg_pinv.atol_rtol_float", x, rtol=1e-3)
            call("linalg_pinv.atol_rtol_tensor", x, rtol=torch.tensor(1e-3, dtype=dtype))
            call("linalg_pinv.rcond_tensor", x, torch.full(shape[:-2], 1e-3, dtype=dtype))
            call("linalg_pinv", x, 1e-3)
            call("pinverse", x, 1e-3)
            call("linalg_matrix_rank.atol_rtol_float", x, rtol=1e-3)
            call("linalg_matrix_rank.atol_rtol_tensor", x, atol=torch.tensor(1e-2, dtype=dtype))
            call("linalg_matrix_rank", x, 1e-2)
            call("linalg_matrix_rank.tol_tensor", x, torch.full(shape[:-2], 1e-2, dtype=dtype))
        call("linalg_matrix_rank.atol_rtol_tensor", a)
        for order in (2, -2):
            for keepdim in (False, True):
                call("linalg_matrix_norm", a, order, (-2, -1), keepdim)
            call("linalg_norm", a.reshape(shape[-2:] if len(shape) == 2 else (6, 5)), order)
        call("linalg_matrix_norm.str_ord", a, "nuc")
        call("linalg_matrix_norm.str_ord", a, "nuc", (-1, -2), True)
        call("nuclear_norm", a.reshape(-1, shape[-1]))
        call("nuclear_norm.dim", a, (-2, -1), True)
    call("linalg_matrix_norm", v.tensor((3, 2, 4)), 2, (0, 2))
    for shape in ((3, 3), (2, 4, 4)):
        s = symmetric(v, shape, F32)
        for triangle in "LU":
            call("linalg_eigvalsh", s, triangle)
        call("linalg_pinv.atol_rtol_float", s, hermitian=True)
        call("linalg_matrix_rank.atol_rtol_float", s, hermitian=True)


def transforms(v, call):
    real, complex_ = v.tensor((3, 8)), v.tensor((3, 8), C64)
    for norm in (None, "ortho", "forward", "backward"):
        for n, dim in itertools.product((None, 6, 8, 11), (-1, 0)):
            call("fft_hfft", complex_, n, dim, norm)
            call("fft_ihfft", real, n, dim, norm)
        call("fft_hfft2", complex_, None, (-2, -1), norm)
        call("fft_ihfft2", real, (4, 5), (-2, -1), norm)
        call("fft_hfftn", complex_, None, None, norm)
        call("fft_ihfftn", real, None, None, norm)
    call("fft_hfft", real)
    for n_fft, hop, length, window, center in ((16, 4, None, torch.hann_window(16), True), (16, None, None, None, True), (12, 3, 8, torch.hamming_window(8), True), (16, 4, None, torch.hamming_window(16), False), (15, 5, None, torch.hamming_window(15), True)):
        signal = v.tensor((2, 60))
        for normalized, onesided in itertools.product((False, True), (True, False)):
            arguments = (n_fft, hop, length, window, center)
            s = torch.stft(signal, *arguments, normalized=normalized, onesided=onesided, return_complex=True)
            for wanted in (None, 50, 80):
                call("istft", s, *arguments, normalized, onesided, wanted)
            call("istft", s[0], *arguments, normalized, None)
    double = torch.stft(v.tensor((40,), F64), 8, 2, window=torch.hann_window(8, dtype=F64), return_complex=True)
    call("istft", double, 8, 2, None, torch.hann_window(8, dtype=F64))
    for length in (0, 1, 2, 9, 16):
        call("kaiser_window", length)
        call("kaiser_window.periodic", length, False)
        call("kaiser_window.beta", length, True, 8.5)
        call("kaiser_window.beta", length, False, 3.0, dtype=F64)


def functions(v, call):
    x = v.tensor((3, 4), F32, 0.5, 9)
    for name in ("special_gammaln", "special_digamma", "special_psi", "special_i0"):
        call(name, x)
        call(name, v.tensor((4,), I64, 1, 9))
    for name in ("special_gammainc", "special_gammaincc"):
        call(name, x, v.tensor((4,), F32, 0.5, 9))
    call("special_polygamma", 2, x)
    for p in (1, 2, 4):
        call("mvlgamma", x + 3, p)
        call("special_multigammaln", x.double() + 3, p)
    call("special_zeta.other_scalar", x + 1, 2.5)
    call("special_zeta.self_scalar", 3, x)
    for name in ("chebyshev_polynomial_t", "chebyshev_polynomial_u", "hermite_polynomial_h", "laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_w"):
        for n in (0, 1, 4):
            call(f"special_{name}.n_scalar", v.tensor((5,), F32, -1, 1), n)
        call(f"special_{name}.x_scalar", 0.25, v.tensor((5,), F32, 0, 5).round())
        call(f"special_{name}.n_scalar", v.tensor((3,), I64, -1, 1), 3)
    for dtype in (I32, I64):
        call("lcm", v.tensor((3, 4), dtype, -30, 30), v.tensor((4,), dtype, -30, 30))
        call("lcm", torch.tensor([0, 0, 4], dtype=dtype), torch.tensor([0, 3, 6], dtype=dtype))
    for p in (1, 2, 0.5, float("inf")):
        for dim in (0, 1, -1):
            call("renorm", v.tensor((3, 4)), p, dim, 2.5)
    call("renorm", v.tensor((3, 4), F16), 2, 0, 2.5)
    for p in (1.0, 2.0):
        call("embedding_renorm", v.tensor((6, 3)), torch.tensor([[1, 1], [4, 0]]), 2.0, p)
    for steps in (0, 1, 2, 5, 8):
        for start, end, which in ((torch.tensor(1.0), torch.tensor(-2.5), "Tensor_Tensor"), (torch.tensor(1), 4, "Tensor_Scalar"), (0.5, torch.tensor(3.0), "Scalar_Tensor")):
            call(f"linspace.{which}", start, end, steps)
            call(f"logspace.{which}", start, end, steps)
            call(f"logspace.{which}", start, end, steps, 2.0)
        call("linspace.Tensor_Tensor", torch.tensor(0.0), torch.tensor(9.0), steps, dtype=F64)
    mask = v.tensor((3, 5), torch.bool)
    mask[1] = True
    for dim in (0, 1, None):
        call("_masked_softmax", v.tensor((3, 5)), mask, dim, 2)
    call("_masked_softmax", v.tensor((2, 3, 4, 4)), v.tensor((2, 4), torch.bool), None, 1)
    call("_masked_softmax", v.tensor((2, 3, 4, 4)), v.tensor((4, 4), torch.bool), -1, 0)


def choices(v, call):
    for r, repeated in itertools.product((0, 1, 2, 3, 6), (False, True)):
        call("combinations", v.tensor((5,)), r, repeated)
    x = v.tensor((3, 6))
    x[0, 2] = x[1, 1] = x[1, 4] = float("nan")
    x[2] = float("nan")
    call("nanmedian", x)
    call("nanmedian", v.tensor((5,), I64))
    for dim, keepdim in itertools.product((0, 1, -1), (False, True)):
        call("nanmedian.dim", x, dim, keepdim, _unspecified=[1])
        for interpolation in ("linear", "lower", "higher", "midpoint", "nearest"):
            call("nanquantile.scalar", x, 0.3, dim, keepdim, interpolation=interpolation)
        call("nanquantile", x, torch.tensor([0.2, 0.5, 1.0]), dim, keepdim)
    call("nanquantile.scalar", x, 0.6)
    for mode, padding, align in itertools.product((0, 1), (0, 1, 2), (False, True)):
        call("grid_sampler", v.tensor((1, 2, 3, 4, 2)), v.tensor((1, 2, 2, 3, 3), F32, -1.5, 1.5), mode, padding, align)


def slopes(v, call):
    x = v.tensor((4, 5))
    for order in (1, 2):
        call("gradient.scalarint", x, edge_order=order)
        call("gradient.scalarint", x, spacing=2.0, dim=1, edge_order=order)
        call("gradient.array", x, dim=[1, 0], edge_order=order)
        call("gradient.scalararray", x, spacing=0.5, dim=[0, 1], edge_order=order)
        call("gradient.scalarrayint", x, spacing=[0.5], dim=0, edge_order=order)
        call("gradient.scalarrayarray", x, spacing=[0.5, 3.0], dim=[0, 1], edge_order=order)
        points = [torch.tensor([0.0, 1.0, 1.5, 4.0]), torch.tensor([0.0, 2.0, 3.0, 7.0, 7.5])]
        call("gradient.tensorarray", x, spacing=points, dim=[0, 1], edge_order=order)
        call("gradient.tensorarrayint", x, spacing=points[1:], dim=1, edge_order=order)
    call("gradient.scalarint", v.tensor((6,), F64))


def histograms(v, call):
    x = v.tensor((6, 4))
    for density, weight in itertools.product((False, True), (None, v.tensor((6, 4), F32, 0, 2))):
        call("histogram.bin_ct", x, 5, weight=weight, density=density)
        call("histogram.bin_ct", x, 4, range=[-2.0, 3.0], weight=weight, density=density)
        call("histogram.bins_tensor", x, torch.tensor([-3.0, -1.0, 0.5, 2.0]), weight=weight, density=density)
    call("histogram.bin_ct", torch.full((3,), 2.0), 4)
    points = v.tensor((20, 2))
    for density in (False, True):
        call("histogramdd", points, [3, 4], density=density)
        call("histogramdd", points, [3, 2], [-2.0, 2.0, -1.0, 3.0], density=density)
        call("histogramdd.int_bins", points, 3, density=density)
        call("histogramdd.TensorList_bins", points, [torch.tensor([-2.0, 0.0, 3.0]), torch.tensor([-1.0, 1.0])], density=density)


def losses(v, call):
    x, target = v.tensor((3, 5)), torch.tensor([1, 0, 4])
    for p, margin, weight, reduction in itertools.product((1, 2), (1.0, 0.25), (None, v.tensor((5,), F32, 0, 2)), (0, 1, 2)):
        call("multi_margin_loss", x, target, p, margin, weight, reduction)
    labels = torch.tensor([[1, 0, -1, 2, 2], [3, -1, 0, 0, 0], [0, 1, 2, 3, 4]])
    for reduction in (0, 1, 2):
        call("multi_margin_loss", x[0], target[0], 1, 1.0, None, reduction)
        call("multilabel_margin_loss", x, labels, reduction)
        call("multilabel_margin_loss", x[0], labels[0], reduction)


def quantization(v, call):
    x = v.tensor((3, 5))
    scale, zero = torch.tensor([0.0625]), torch.tensor([3], dtype=I32)
    for on in (0, 1):
        call("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", x, scale, zero, torch.tensor([on]), -8, 31)
    call("fake_quantize_per_tensor_affine_cachemask", x, 0.0625, 3, -8, 31)
    call("fake_quantize_per_channel_affine_cachemask", x, v.tensor((3,), F32, 0.125, 0.5), torch.tensor([0, 3, -2], dtype=I32), 0, -8, 15)
    for dtype in (F32, F16, F64):
        call("dequantize.self", v.tensor((3,), dtype))


def conversions(v, call):
    for dtype, other in ((BOOL, I64), (F32, I64), (I64, F32), (U8, F64), (F16, F32)):
        x = v.tensor((3, 4), dtype)
        call("diagonal_scatter", x, v.tensor((3,), other, 0, 3))
        call("as_strided_scatter", x, v.tensor((2, 2), other, 0, 3), (2, 2), (4, 1), 1)


def without_elements(v, call):
    for dtype, shape in itertools.product((F32, F64), ((0, 2), (2, 0), (0, 0), (3, 0, 2), (0, 3, 2))):
        a = torch.empty(shape, dtype=dtype)
        for name in ("linalg_pinv.atol_rtol_float", "pinverse", "linalg_matrix_rank.atol_rtol_tensor", "linalg_svdvals", "linalg_lu"):
            call(name, a)
        call("linalg_matrix_rank", a, 1e-2)
        for order in (1, 2, float("inf")):
            call("linalg_matrix_norm", a, order)
        for order in ("fro", "nuc"):
            call("linalg_matrix_norm.str_ord", a, order)
        for mode in ("reduced", "complete", "r"):
            call("linalg_qr", a, mode)
        call("linalg_vander", a)
    for dtype, shape in itertools.product((F32, F64), ((0, 0), (3, 0, 0), (0, 2, 2))):
        a = torch.empty(shape, dtype=dtype)
        for name in ("linalg_inv", "linalg_det", "linalg_slogdet", "logdet", "matrix_exp", "linalg_cholesky", "linalg_eigvalsh"):
            call(name, a)
        for p in (None, 1, 2, -2, "fro"):
            call("linalg_cond.p_str" if isinstance(p, str) else "linalg_cond", a, p)
        for power in (-1, 0, 3):
            call("linalg_matrix_power", a, power)
        call("linalg_pinv.atol_rtol_float", a, hermitian=True)
        call("linalg_solve", a, torch.empty((*shape[:-1], 2), dtype=dtype))
    for shape in ((0,), (0, 3), (2, 0)):
        for dtype in (F32, F16, F64):
            call("nanmedian", torch.empty(shape, dtype=dtype))
            call("median", torch.empty(shape, dtype=dtype))
        for name, dims in itertools.product(("logsumexp", "special_logsumexp"), ([0], [-1], [0, -1])):
            call(name, torch.empty(shape), dims)
            call(name, torch.empty(shape), dims, True)
        for dim in (0, -1):
            call("_safe_softmax", torch.empty(shape), dim)
    q, k, w = v.tensor((1, 2, 4)), torch.empty(1, 0, 4), torch.empty(1, 0, 3)
    for mask in (None, torch.empty(2, 0), torch.empty((2, 0), dtype=BOOL)):
        call("scaled_dot_product_attention", q, k, w, mask)
