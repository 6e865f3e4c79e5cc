"""Functions that few models call, each in a line: linear algebra, inverse transforms, counting, special functions and the rest.

Decompositions whose signs or phases are free are multiplied out. Samples of distributions are compared by no value: their cases are
in `op_cases`.
"""

import torch
from registry import Model, Module, model, uniform
from torch.nn import functional


def twice(function, make):
    """A model of a function, whose arguments `make` makes for each call."""
    return Model(Module(function), [make(), make()], beyond_core=True, beyond_wheel=True)


@model
def equations():
    """Solutions, inverses and determinants."""

    def solve(a, b):
        linalg, eye = torch.linalg, torch.eye(4)
        a = a + 4 * eye
        s = a @ a.mT + eye
        lower = linalg.cholesky(s)
        lu, pivots = linalg.lu_factor(a)
        return (
            linalg.inv(a), torch.inverse(a), *linalg.inv_ex(a), linalg.solve(a, b), linalg.solve(a, b.mT, left=False),
            *linalg.solve_ex(a, b), linalg.solve_triangular(a.triu(), b, upper=True), lower, *linalg.cholesky_ex(s),
            torch.cholesky_solve(b, lower), torch.cholesky_inverse(lower), linalg.det(a), torch.det(a), torch.logdet(s),
            *linalg.slogdet(a), *linalg.lu(a), linalg.lu_solve(lu, pivots, b), *torch.lu_unpack(lu, pivots),
            linalg.matrix_power(a, -2), linalg.matrix_exp(a * 0.1), linalg.tensorsolve(s[0].reshape(2, 2, 4), b[0, :, 0].reshape(2, 2)),
            linalg.tensorinv(a[0].reshape(2, 2, 4)),
        )

    return twice(solve, lambda: (uniform(2, 4, 4), uniform(2, 4, 3)))


@model
def decompositions():
    """Factors, singular values and eigenvalues."""

    def decompose(a):
        linalg = torch.linalg
        square = a[:, :3]
        symmetric = square + square.mT
        u, s, vh = linalg.svd(a, full_matrices=False)
        whole = linalg.svd(a)
        values, vectors = linalg.eigh(symmetric)
        general, columns = linalg.eig(square)
        # Eigenvectors have free phases: what they leave of A V - V D is compared, on the scale of 1.
        return (
            *linalg.qr(a), *linalg.qr(a, mode="complete"), (u * s[:, None]) @ vh, (whole[0][..., :3] * whole[1][:, None]) @ whole[2], s,
            linalg.svdvals(a), values, (vectors * values[:, None]) @ vectors.mT, linalg.eigvalsh(symmetric),
            1 + torch.view_as_real(square.to(torch.complex64) @ columns - columns * general[:, None]), linalg.eigvals(square).real.sum(-1),
            linalg.pinv(a), torch.pinverse(a[0]), linalg.matrix_rank(a), linalg.matrix_norm(a, 2), linalg.matrix_norm(a, "nuc"),
            linalg.cond(a), torch.vander(a[0, 0]), linalg.vander(a[0]), linalg.householder_product(*torch.geqrf(a)),
        )

    return twice(decompose, lambda: (uniform(2, 5, 3),))


@model
def inverse_transforms():
    """A spectrum back to a signal, and transforms of what is its own conjugate."""

    def transform(x):
        window = torch.hann_window(16)
        spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
        half = torch.complex(x[:, :9], x[:, 9:18])
        return (
            torch.istft(spectrum, 16, 4, window=window), torch.istft(spectrum, 16, 4, window=window, length=50),
            torch.fft.hfft(half), torch.fft.ihfft(x).abs(), torch.fft.hfft2(half), torch.fft.ihfft2(x).abs(),
            torch.fft.hfftn(half), torch.fft.ihfftn(x).abs(), x[:, :16] * torch.kaiser_window(16, True, 8.0),
        )

    return twice(transform, lambda: (uniform(2, 60),))


@model
def distinct_elements():
    """What is there, how often, and where."""

    def count(x, y):
        counts = torch.bincount(x, minlength=7)
        torch._check(counts.shape[0] <= 7)
        return (
            *torch.unique(x, return_inverse=True, return_counts=True), torch.unique(y, dim=0),
            *torch.unique_consecutive(x, return_inverse=True, return_counts=True), torch.unique_consecutive(y, dim=0), counts,
            torch.mode(y, 0).values, torch.nonzero_static(x, size=8), torch.histc(x.float(), 5, 0, 6),
            *torch.histogram(x.float(), 6), *torch.histogram(x.float(), torch.tensor([0.0, 1.5, 4.0])),
            torch.histogramdd(y.float(), bins=[2, 3]).hist, torch.segment_reduce(x.float(), "mean", lengths=torch.tensor([5, 15])),
        )

    return twice(count, lambda: (torch.randint(0, 6, (20,)), torch.randint(0, 2, (9, 2))))


@model
def special_functions():
    """Gamma, Bessel and error functions, and orthogonal polynomials."""

    def compute(x, y):
        special = torch.special
        of_one = (
            "gammaln digamma i0 i0e i1 i1e erfcx log_ndtr bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 "
            "modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai"
        ).split()
        polynomials = (
            "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h "
            "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t "
            "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
        ).split()
        x, y = x + 1.5, y + 1.5
        return (
            *(getattr(special, name)(x) for name in of_one), *(getattr(special, name)(x - 1.5, 3) for name in polynomials),
            torch.lgamma(x), special.psi(x), special.multigammaln(x + 3, 2), torch.polygamma(2, x), torch.igamma(x, y),
            torch.igammac(x, y), special.zeta(x + 1, y), special.ndtri(x / 4),
        )

    return twice(compute, lambda: (uniform(3, 4), uniform(3, 4)))


@model
def volumes():
    """Samples of volumes, and pools at places that are given."""

    def sample(x, grid, places):
        return (
            functional.grid_sample(x, grid, align_corners=False),
            functional.grid_sample(x, grid, "nearest", "reflection", align_corners=True),
            *functional.fractional_max_pool2d(x[0], 2, output_size=(3, 3), return_indices=True, _random_samples=places[..., :2].abs() * 0.9),
            *functional.fractional_max_pool3d(x, 2, output_size=(2, 3, 3), return_indices=True, _random_samples=places[:1, :2].abs() * 0.9),
        )

    return twice(sample, lambda: (uniform(1, 2, 4, 6, 6), uniform(1, 3, 3, 3, 3), uniform(2, 4, 3)))


@model
def slopes_and_margins():
    """Slopes, margins, choices, quantiles of numbers alone, and parts of numbers."""

    def compute(x, y, i, j):
        hole = torch.where(x > 0.8, float("nan"), x)
        return (
            *torch.gradient(x), *torch.gradient(x, spacing=(torch.tensor([0.0, 1.0, 3.0, 4.0, 7.0]),), dim=1),
            functional.multi_margin_loss(x, i[:3]), functional.multilabel_margin_loss(x, torch.tensor([[1, 0, -1, 2, 2], [3, -1, 0, 0, 0], [0, 1, 2, 3, 4]])),
            torch.nanmedian(hole), torch.nanmedian(hole, 1).values, torch.nanquantile(hole, 0.3, dim=1), *torch.frexp(x), torch.nextafter(x, y),
            torch.gcd(i, j), torch.lcm(i, j), torch.renorm(x, 2, 0, 1.0), torch.combinations(x[0], 2),
            torch.combinations(x[0], 3, with_replacement=True), *torch.tensor_split(x, torch.tensor([1, 3]), dim=1),
            functional.embedding(i, y.mT * 1.0, max_norm=1.0), torch.linspace(x[0, 0], y[0, 0], 5), torch.logspace(x[0, 0], y[0, 0], 5),
            torch._masked_softmax(x, y > 0, 1, 2),
        )

    return twice(compute, lambda: (uniform(3, 5), uniform(3, 5), torch.randint(0, 5, (6,)), torch.randint(0, 5, (6,))))
