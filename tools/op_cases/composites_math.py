"""Composite operators of mathematics: arithmetic, activations, reductions, norms, creation, transforms, losses, quantization."""

import executorch.kernels.quantized  # noqa: F401
import torch
import torchao.quantization.pt2e.quantize_pt2e
import torchao.quantization.quant_primitives  # noqa: F401  all of these register operators

from .composites import collect, record
from .values import BF16, BOOL, C64, F16, F32, F64, I8, I16, I32, I64, U8, Values, specials

PER_OPERATOR = 40
COMPOSITES = True

NAMES = """
    __and__.Scalar __and__.Tensor __lshift__.Scalar __lshift__.Tensor __or__.Scalar __or__.Tensor __rshift__.Scalar
    __rshift__.Tensor __xor__.Scalar __xor__.Tensor _euclidean_dist _prelu_kernel _softmax _log_softmax _to_copy
    absolute addcdiv addcmul all all.dim all.dims aminmax angle arange.start arccos arccosh arcsin arcsinh arctan
    arctan2 arctanh argsort argsort.stable batch_norm binary_cross_entropy binary_cross_entropy_with_logits
    bitwise_and.Scalar_Tensor bitwise_left_shift.Scalar_Tensor bitwise_or.Scalar_Tensor
    bitwise_right_shift.Scalar_Tensor bitwise_xor.Scalar_Tensor cdist celu clamp_max clamp_max.Tensor clamp_min
    clamp_min.Tensor clip clip.Tensor clone complex conj conj_physical contiguous copysign.Scalar copysign.Tensor
    cosine_embedding_loss cosine_similarity count_nonzero count_nonzero.dim_IntList cross_entropy_loss cummax cummin
    cumprod cumulative_trapezoid.dx cumulative_trapezoid.x deg2rad diff dist divide.Scalar divide.Scalar_mode
    divide.Tensor divide.Tensor_mode erfc erfinv exp2 eye eye.m fft_fft fft_fft2 fft_fftn fft_fftshift fft_ifft
    fft_ifft2 fft_ifftn fft_ifftshift fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fix
    float_power.Scalar float_power.Tensor_Scalar float_power.Tensor_Tensor floor_divide.Scalar fmax fmin frac
    frobenius_norm.dim greater.Scalar greater.Tensor greater_equal.Scalar greater_equal.Tensor group_norm hardshrink
    hardsigmoid hardswish heaviside hinge_embedding_loss huber_loss hypot instance_norm isclose isfinite
    isin.Scalar_Tensor isin.Tensor_Scalar isin.Tensor_Tensor isneginf isposinf isreal kl_div kthvalue l1_loss
    layer_norm ldexp.Tensor lerp.Scalar lerp.Tensor less.Scalar less.Tensor less_equal.Scalar less_equal.Tensor
    linalg_matrix_norm linalg_matrix_norm.str_ord linalg_norm linalg_norm.ord_str linalg_vector_norm linspace
    log_sigmoid log_softmax.int logaddexp logaddexp2 logcumsumexp logspace logsumexp margin_ranking_loss max.other
    median median.dim min.other mish mse_loss msort multiply.Scalar multiply.Tensor nan_to_num nanmean nansum
    native_batch_norm negative new_full new_ones new_zeros nll_loss nll_loss2d nll_loss_nd norm.Scalar
    norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype not_equal.Scalar not_equal.Tensor ones_like
    pairwise_distance pdist poisson_nll_loss polar positive prelu quantile quantile.scalar rad2deg relu6
    remainder.Scalar_Tensor rms_norm round.decimals rsub.Tensor selu sgn signbit silu sinc smooth_l1_loss
    soft_margin_loss softmax.int softplus softshrink special_entr special_erf special_erfc special_erfinv special_exp2
    special_expit special_expm1 special_log1p special_log_softmax special_logit special_logsumexp special_ndtr
    special_round special_sinc special_softmax special_xlog1py special_xlogy square std std.correction std.dim
    std_mean std_mean.correction std_mean.dim stft stft.center subtract.Scalar subtract.Tensor sum threshold to.device
    to.dtype to.dtype_layout to.other trace trapezoid.dx trapezoid.x trapz.dx trapz.x tril_indices
    triplet_margin_loss triu_indices true_divide.Scalar true_divide.Tensor type_as var var_mean var_mean.dim
    view_as_complex where.Scalar where.ScalarOther where.ScalarSelf xlogy.Scalar_Other xlogy.Scalar_Self xlogy.Tensor
    zeros_like
""".split()

SOURCES = """
    __radd__ __rand__ __rdiv__ __rmod__ __rmul__ __ror__ __rpow__ __rsub__ __rxor__ abs acos acosh add addcdiv addcmul
    all aminmax angle any arange argsort asin asinh atan atan2 atanh bfloat16 bitwise_and bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor bool cdist clamp clamp_max clamp_min clone complex conj conj_physical contiguous
    copysign count_nonzero cummax cummin cumprod cumulative_trapezoid deg2rad diff dist div double erf erfc erfinv exp2
    expm1 eye fft.fft fft.fft2 fft.fftn fft.fftshift fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.irfft fft.irfft2
    fft.irfftn fft.rfft fft.rfft2 fft.rfftn float float_power floor_divide fmax fmin frac ge gt half heaviside hypot int
    isclose isfinite isin isneginf isposinf isreal kthvalue ldexp le lerp linalg.matrix_norm linalg.norm
    linalg.vector_norm linspace log1p log_softmax logaddexp logaddexp2 logcumsumexp logit logspace logsumexp long lt
    max median min msort mul nan_to_num nanmean nansum native_batch_norm ne neg new_full new_ones new_zeros
    nn.functional.batch_norm nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
    nn.functional.celu nn.functional.cosine_embedding_loss nn.functional.cosine_similarity nn.functional.cross_entropy
    nn.functional.elu nn.functional.gaussian_nll_loss nn.functional.group_norm nn.functional.hardshrink
    nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hinge_embedding_loss nn.functional.huber_loss
    nn.functional.instance_norm nn.functional.kl_div nn.functional.l1_loss nn.functional.layer_norm
    nn.functional.logsigmoid nn.functional.margin_ranking_loss nn.functional.mish nn.functional.mse_loss
    nn.functional.nll_loss nn.functional.normalize nn.functional.pairwise_distance nn.functional.pdist
    nn.functional.poisson_nll_loss nn.functional.prelu nn.functional.relu6 nn.functional.rms_norm nn.functional.selu
    nn.functional.silu nn.functional.smooth_l1_loss nn.functional.soft_margin_loss nn.functional.softmin
    nn.functional.softplus nn.functional.softshrink nn.functional.threshold nn.functional.triplet_margin_loss norm
    ones_like polar positive pow quantile rad2deg remainder round rsub sgn sigmoid signbit sinc softmax special.entr
    special.ndtr special.xlog1py square std std_mean stft sub sum to trace trapezoid trapz tril_indices triu_indices
    true_divide var var_mean view_as_complex where xlogy zeros_like
""".split()


# Operators whose samples have no single right result, one that only half precision explains, or inputs without meaning.
HAND_PICKED = ("batch_norm", "kthvalue", "median.dim", "cummax", "cummin", "linalg_matrix_norm.str_ord", "soft_margin_loss")

# Kernels have complex numbers for transforms and plain arithmetic only.
COMPLEX = [name for name in SOURCES if name.startswith("fft.")] + "angle clone conj conj_physical positive stft sum trace".split()


def generate(cases):
    names = [f"aten::{name}" for name in NAMES if name not in HAND_PICKED]
    collect(cases, SOURCES, names, (F32, I64, BOOL, F16), numel=150, per_dtype=4)
    collect(cases, COMPLEX, names, (C64,), numel=150, per_dtype=4)
    v = Values("composites_math")

    def call(name, *args, **kwargs):
        return record(cases, name if "::" in name else f"aten::{name}", *args, **kwargs)

    for part in (elementwise, activations, reductions, normalisations, creation, transforms, losses, quantization):
        part(v, call)


def elementwise(v, call):
    x, y = v.tensor((3, 4)), v.tensor((3, 4))
    i, j = v.tensor((3, 4), I32), v.tensor((4,), I32, 1, 6)
    special = specials(F32)
    for name in (
        *("absolute", "negative", "positive", "sgn", "signbit", "square", "fix", "frac", "arccos", "arccosh", "arcsin"),
        *("arcsinh", "arctan", "arctanh", "deg2rad", "rad2deg", "exp2", "special_exp2", "special_expm1"),
        *("special_log1p", "special_expit", "sinc", "special_sinc", "isfinite", "isposinf", "isneginf", "isreal"),
        *("nan_to_num", "special_erf", "erfc", "special_erfc", "special_ndtr", "special_entr", "log_sigmoid"),
        *("conj_physical", "conj", "angle", "clone", "_neg_view", "special_round"),
    ):
        for value in (x, special, i, v.tensor((5,), F16), v.tensor((5,), BF16)):
            call(name, value)
    for value in (v.tensor((40,), F32, -1, 1), v.tensor((9,), F64, -1, 1), torch.tensor([-1.0, 1.0, 0.0, 2.0])):
        call("erfinv", value)
        call("special_erfinv", value)
    for value in (x * 1000, v.tensor((7,), F16), v.tensor((7,), F64, -100, 100)):
        for decimals in (2, 0, -1):
            call("round.decimals", value, decimals=decimals)
    for arguments in ({}, {"nan": 1.5}, {"posinf": 2.0, "neginf": -3.0}):
        for dtype in (F32, F16, F64):
            call("nan_to_num", specials(dtype), **arguments)
    for name in ("subtract", "multiply", "divide", "true_divide", "greater", "less", "greater_equal", "less_equal", "not_equal"):
        for a, b in ((x, y), (x, v.tensor((4,))), (i, j), (i, x), (v.tensor((3, 1), F16), v.tensor((4,), F16)), (i, v.tensor(()))):
            call(f"{name}.Tensor", a, b)
        for a, b in ((x, 2), (i, 3), (i, 1.5), (v.tensor((3,), BF16), 0.25), (v.tensor((), I64), 2.5)):
            call(f"{name}.Scalar", a, b)
    for alpha in (1, 2, -0.5):
        call("subtract.Tensor", x, y, alpha=alpha)
        call("rsub.Tensor", x, y, alpha=alpha)
        call("_add_relu.Tensor", x, y, alpha=alpha)
    call("rsub.Tensor", i, j, alpha=3)
    for mode in (None, "floor", "trunc"):
        call("divide.Tensor_mode", i, j, rounding_mode=mode)
        call("divide.Scalar_mode", i, 3, rounding_mode=mode)
        call("divide.Scalar_mode", x, -0.75, rounding_mode=mode)
    for a, b in ((i, 3), (i, -2), (x, 0.75), (x, 2), (i, 0.5)):
        call("floor_divide.Scalar", a, b)
    for a, b in ((7, j), (-2.5, v.tensor((4,), F32, 1, 3)), (3.5, j)):
        call("remainder.Scalar_Tensor", a, b)
        call("float_power.Scalar", 2, b)
    call("float_power.Tensor_Scalar", i, 2)
    call("float_power.Tensor_Scalar", x.abs(), 0.5)
    call("float_power.Tensor_Tensor", x.abs(), j)
    with_nan = torch.tensor([1.0, float("nan"), -2.0, float("nan"), float("inf"), -float("inf")])
    other = torch.tensor([float("nan"), 2.0, -3.0, float("nan"), 1.0, -float("inf")])
    for name in ("fmax", "fmin", "max.other", "min.other", "hypot", "logaddexp", "logaddexp2", "copysign.Tensor", "heaviside", "xlogy.Tensor", "special_xlogy", "special_xlog1py", "isclose", "clamp_min.Tensor", "clamp_max.Tensor"):
        for a, b in ((x, y), (with_nan, other), (x, v.tensor((4,))), (i, j), (v.tensor((5,), F16), v.tensor((5,), F16)), (torch.zeros(4), torch.tensor([0.0, -0.0, 1.0, 2.0]))):
            call(name, a, b)
    call("isclose", x, x + 1e-3, 1e-2, 0.0)
    call("isclose", with_nan, with_nan, equal_nan=True)
    call("copysign.Scalar", x, -1.0)
    for name in ("xlogy.Scalar_Other", "special_xlogy.other_scalar", "special_xlog1py.other_scalar"):
        call(name, x, 2.5)
    for name in ("xlogy.Scalar_Self", "special_xlogy.self_scalar", "special_xlog1py.self_scalar"):
        call(name, 0.5, y.abs())
    call("ldexp.Tensor", x, j)
    for a, b in ((6, i), (True, v.tensor((3,), BOOL))):
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            call(f"{name}.Scalar_Tensor", a, b)
    for name in ("__and__", "__or__", "__xor__"):
        call(f"{name}.Tensor", i, j)
        call(f"{name}.Scalar", i, 5)
        call(f"{name}.Tensor", v.tensor((6,), BOOL), v.tensor((6,), BOOL))
    shifts = v.tensor((4,), I32, 0, 5)
    for name in ("__lshift__", "__rshift__"):
        call(f"{name}.Tensor", i, shifts)
        call(f"{name}.Scalar", i, 2)
    call("bitwise_left_shift.Scalar_Tensor", 3, shifts)
    call("bitwise_right_shift.Scalar_Tensor", 300, shifts)
    for low, high in ((-1, 1), (None, 0.5), (-0.5, None), (0, 2.5)):
        for value in (x, i, v.tensor((5,), F16)):
            call("clip", value, low, high)
    call("clip.Tensor", x, v.tensor((4,), F32, -2, 0), v.tensor((3, 1), F32, 0, 2))
    for value, bound in ((x, 0.5), (i, 2), (i, 0.5), (v.tensor((5,), BF16), -1)):
        call("clamp_min", value, bound)
        call("clamp_max", value, bound)
    condition = v.tensor((3, 4), BOOL)
    call("where.Scalar", condition, 1.5, 2)
    call("where.Scalar", condition, 1, 2)
    call("where.ScalarOther", condition, x, 2)
    call("where.ScalarOther", condition, i, 2.5)
    call("where.ScalarOther", condition, v.tensor((4,), F16), -1.5)
    call("where.ScalarSelf", condition, 0, i)
    call("where.ScalarSelf", v.tensor((4,), BOOL), float("-inf"), x)
    for weight in (0.25, 0.75, 1.5, -1.0):
        call("lerp.Scalar", x, y, weight)
        call("lerp.Scalar", v.tensor((5,), F16), v.tensor((5,), F16), weight)
    call("lerp.Tensor", x, y, v.tensor((4,), F32, 0, 1))
    for value in (1, 0.5, -2):
        call("addcmul", x, v.tensor((4,)), v.tensor((3, 1)), value=value)
        call("addcdiv", x, v.tensor((4,)), v.tensor((3, 1), F32, 1, 3), value=value)
    call("addcmul", i, i, j, value=2)
    call("addcmul", v.tensor((5,), BF16), v.tensor((5,), BF16), v.tensor((5,), BF16), value=0.5)
    elements, tests = v.tensor((3, 4), I64, 0, 6), v.tensor((5,), I64, 0, 6)
    for invert in (False, True):
        call("isin.Tensor_Tensor", elements, tests, invert=invert)
        call("isin.Tensor_Scalar", elements, 3, invert=invert)
        call("isin.Scalar_Tensor", 3, tests, invert=invert)
    for real in (x, v.tensor((2, 3), F64)):
        call("complex", real, real * 2)
        call("polar", real.abs(), real)
    call("view_as_complex", v.tensor((3, 4, 2)))
    for dtype in (F32, F16, I32, I64, BOOL, F64):
        call("to.dtype", x, dtype)
        call("to.dtype_layout", i, dtype=dtype)
        call("_to_copy", v.tensor((3,), BF16), dtype=dtype)
        call("type_as", x, v.tensor((2,), dtype))
        call("to.other", i, v.tensor((2,), dtype))
        call("quantized_decomposed::convert_element_type.no_fuse", x, dtype)
    call("contiguous", x.t())
    call("copy", x, v.tensor((4,), I32))


def activations(v, call):
    special = specials(F32)
    for name in ("relu6", "silu", "mish", "hardswish", "hardsigmoid", "softplus", "log_sigmoid", "celu", "selu", "hardshrink", "softshrink"):
        for value in (v.tensor((3, 5)), v.tensor((7,), F16), v.tensor((7,), BF16), v.tensor((4,), F64), v.tensor((6,), F32, -100, 100), special, v.tensor(())):
            call(name, value)
    for beta, threshold in ((2, 20), (0.5, 1), (3.0, 6.0)):
        call("softplus", v.tensor((9,), F32, -8, 8), beta, threshold)
    for alpha in (0.5, 2.0):
        call("celu", v.tensor((9,)), alpha)
    for value in (0.25, 0.0, 2.0):
        call("hardshrink", v.tensor((9,)), value)
        call("softshrink", v.tensor((9,)), value)
        call("threshold", v.tensor((9,)), value, -1.5)
        call("threshold", v.tensor((9,), I64), 3, 7)
    call("prelu", v.tensor((2, 3, 4)), v.tensor((3,)))
    call("prelu", v.tensor((2, 3, 4)), v.tensor((1,)))
    call("prelu", v.tensor((5,)), v.tensor((1,)))
    call("prelu", v.tensor((2, 3), F16), v.tensor((3,), F16))
    call("_prelu_kernel", v.tensor((2, 3)), v.tensor((1, 3)))
    call("rrelu", v.tensor((3, 4)), 0.1, 0.3, False)
    call("log_sigmoid_forward", v.tensor((3, 4)))
    x = v.tensor((2, 3, 5))
    for dim in (0, 1, -1):
        for name in ("softmax.int", "log_softmax.int", "special_softmax"):
            call(name, x, dim)
            call(name, v.tensor((3, 4), F16), min(dim, 1), F32)
            call(name, v.tensor((3, 4), I64), min(dim, 1), F32)
        call("special_log_softmax", x, dim)
    call("_softmax", x, 1, False)
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
        call(name, v.tensor((2, 3, 4)), 0.5, False)
        call(name, v.tensor((2, 3, 4)), 0.0, True)
    call("native_dropout", x, 0.5, False)


def reductions(v, call):
    x, i = v.tensor((2, 3, 4)), v.tensor((3, 4), I32)
    flags = v.tensor((3, 4), BOOL)
    for value in (x, i, flags, v.tensor((3, 4), U8, 0, 2), v.tensor((5,), F16), v.tensor(())):
        for name in ("all", "sum", "count_nonzero", "_aminmax", "median", "aminmax"):
            call(name, value)
        for keepdim in (False, True):
            call("all.dim", value, -1, keepdim)
            call("all.dims", value, None, keepdim)
            call("all.dims", value, [0], keepdim)
            call("all.dims", value, [], keepdim)
            call("aminmax", value, dim=-1, keepdim=keepdim)
            for distinct in (v.distinct((2, 3, 4)), v.distinct((3, 5), I32)):
                call("median.dim", distinct, 1, keepdim)
                call("kthvalue", distinct, 1, -1, keepdim)
    call("_is_all_true", flags)
    call("_is_any_true", flags)
    call("sum", i, dtype=F32)
    call("sum", x, dtype=F64)
    with_nan = torch.where(v.tensor((2, 3, 4)) > 2, torch.tensor(float("nan")), x)
    for dims in (None, [0], [1, -1]):
        for keepdim in (False, True):
            call("nansum", with_nan, dims, keepdim)
            call("nanmean", with_nan, dims, keepdim)
    call("median.dim", with_nan, 1)
    call("median", with_nan)
    for name in ("std", "var", "std_mean", "var_mean"):
        for value in (x, v.tensor((6,), F16), v.tensor((6,), F64)):
            for unbiased in (False, True):
                call(name, value, unbiased)
                call(f"{name}.dim", value, [-1], unbiased)
                call(f"{name}.dim", value, [0], unbiased, True)
    for name in ("std.correction", "std_mean.correction"):
        for correction in (0, 1, 2, 0.5):
            call(name, x, [1], correction=correction)
            call(name, x, None, correction=correction, keepdim=True)
    # Variances are beyond half precision, their roots are not.
    for name in ("std", "std_mean"):
        call(f"{name}.dim", torch.tensor([[300.0, -300.0, 20.0], [1e-4, -1e-4, 0.0]], dtype=F16), [1])
        call(f"{name}.correction", torch.tensor([3e4, -3e4, 1.0], dtype=F16), None, correction=1)
    extreme = torch.tensor([[1.0, 2.0, float("-inf")], [float("inf"), 1.0, 2.0], [float("-inf")] * 3, [1000.0, 1000.0, 999.0]])
    for name in ("logsumexp", "special_logsumexp"):
        for dims in ([0], [1], [0, 1]):
            call(name, extreme, dims)
            call(name, x, dims, True)
        call(name, i, [0])
    for p in (2, 1, 0, 3, 0.5, float("inf"), float("-inf")):
        for dims in (None, [1], [0, -1]):
            call("linalg_vector_norm", x, p, dims, True)
            call("linalg_vector_norm", x, p, dims)
        call("norm.Scalar", x, p)
        call("norm.ScalarOpt_dim", x, p, [1])
        call("norm.ScalarOpt_dim_dtype", v.tensor((3, 4), F16), p, [1], True, dtype=F32)
        call("linalg_norm", x, p, [1])
        call("dist", x, v.tensor((4,)), p)
    for p in (1, -1, float("inf"), float("-inf")):
        call("linalg_matrix_norm", x, p)
        call("linalg_matrix_norm", x, p, [0, 2], True)
        call("linalg_norm", v.tensor((3, 4)), p)
    call("linalg_norm", x)
    call("linalg_norm.ord_str", v.tensor((3, 4)), "fro")
    call("linalg_matrix_norm.str_ord", x, "fro", [0, 1])
    call("frobenius_norm.dim", x, [0, 1])
    for size in (1, 2, 5, 8, 9):
        row = v.tensor((3, size), F32, -2, 2)
        for name in ("cumprod", "cummax", "cummin", "logcumsumexp"):
            call(name, row, -1)
            call(name, row.t().contiguous(), 0)
    for name in ("cummax", "cummin"):
        call(name, torch.tensor([1.0, 3.0, float("nan"), 2.0, 5.0]), 0)
        call(name, torch.tensor([2, 2, 1, 2, 3, 3, 0]), 0)
    call("cumprod", v.tensor((2, 5), I32, -3, 3), 1)
    call("cumprod", v.tensor((2, 5), I32, -3, 3), 1, dtype=F32)
    for value in (v.distinct((3, 5)), v.distinct((3, 5), I64)):
        for dim in (0, -1):
            for descending in (False, True):
                call("argsort", value, dim, descending)
                call("argsort.stable", value, stable=True, dim=dim, descending=descending)
            call("kthvalue", value, 2, dim)
        call("msort", value)
    call("trace", v.tensor((3, 4)))
    for interpolation in ("linear", "lower", "higher", "midpoint", "nearest"):
        for q in (0.0, 0.3, 0.5, 1.0):
            call("quantile.scalar", v.distinct((3, 5)), q, 1, interpolation=interpolation)
        call("quantile", v.distinct((2, 3, 5)), torch.tensor([0.25, 0.7]), 1, interpolation=interpolation)
    for dim in (None, 0, 1, -1):
        for keepdim in (False, True):
            call("quantile", v.distinct((2, 3, 5)), torch.tensor([0.25, 0.5, 0.9]), dim, keepdim)
            call("quantile.scalar", with_nan, 0.4, dim, keepdim)
    for dim in (0, -1):
        call("diff", x, 1, dim)
        call("diff", x, 2, dim)
        call("trapezoid.dx", x, dx=0.5, dim=dim)
        call("trapezoid.x", x, v.distinct((x.shape[dim],)), dim=dim)
        call("cumulative_trapezoid.dx", x, dx=2, dim=dim)
    call("diff", flags, 1, 1)
    call("diff", v.tensor((5,)), 1, -1, v.tensor((1,)), v.tensor((2,)))


def normalisations(v, call):
    for shape in ((2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 2, 2)):
        for dtype in (F32, F64, F16):
            x = v.tensor(shape, dtype)
            parameters = [v.tensor((3,), dtype), v.tensor((3,), dtype), v.tensor((3,), dtype), v.tensor((3,), dtype, 0.5, 2)]
            call("batch_norm", x, *parameters, False, 0.1, 1e-5, False)
            call("batch_norm", x, None, None, *parameters[2:], False, 0.1, 1e-3, True)
            call("native_batch_norm", x, *parameters, False, 0.1, 1e-5)
            call("_native_batch_norm_legit_functional", x, *parameters, False, 0.1, 1e-5)
            if len(shape) > 2:
                call("_native_batch_norm_legit_functional", x, *parameters, True, 0.1, 1e-5)
                call("batch_norm", x, *parameters[:2], None, None, True, 0.1, 1e-5, False)
                call("instance_norm", x, *parameters[:2], None, None, True, 0.1, 1e-5, False)
                call("instance_norm", x, None, None, None, None, True, 0.1, 1e-5, False)
                call("instance_norm", x, *parameters, False, 0.1, 1e-5, False)
    for groups in (1, 2, 3, 6):
        call("group_norm", v.tensor((2, 6, 3)), groups, v.tensor((6,)), v.tensor((6,)))
        call("group_norm", v.tensor((2, 6, 3, 2)), groups)
    for sizes in ((4,), (3, 4)):
        call("layer_norm", v.tensor((2, 3, 4)), sizes, v.tensor(sizes), v.tensor(sizes))
        call("layer_norm", v.tensor((2, 3, 4), F16), sizes)
        for dtype in (F32, F16, BF16, F64):
            call("rms_norm", v.tensor((2, 3, 4), dtype), sizes, v.tensor(sizes, dtype), 1e-6)
            call("rms_norm", v.tensor((2, 3, 4), dtype), sizes)
    for dim in (0, 1, 2, -1):
        weight = v.tensor((3, 4, 2))
        call("_weight_norm", weight, torch.linalg.vector_norm(weight, dim=[d for d in range(3) if d != dim % 3], keepdim=True), dim)
        call("norm_except_dim", weight, 2, dim)
    weight = v.tensor((3, 4))
    call("_weight_norm_interface", weight, v.tensor((3, 1)), 0)
    for dim in (0, 1, -1):
        call("cosine_similarity", v.tensor((3, 4)), v.tensor((3, 4)), dim)
        call("cosine_similarity", v.tensor((3, 4), F16), v.tensor((1, 4), F16), dim)
    for p in (1.0, 2.0, 3.0, float("inf")):
        call("pairwise_distance", v.tensor((3, 4)), v.tensor((3, 4)), p)
        call("pairwise_distance", v.tensor((3, 4)), v.tensor((4,)), p, 1e-6, True)
        call("cdist", v.tensor((2, 3, 4)), v.tensor((2, 5, 4)), p)
        call("pdist", v.tensor((5, 4)), p)
    call("cdist", v.tensor((1, 3, 4)), v.tensor((2, 5, 4)))
    call("_euclidean_dist", v.tensor((3, 4)), v.tensor((5, 4)))


def creation(v, call):
    x = v.tensor((2, 3))
    for dtype in (None, F16, I32, BOOL):
        for name in ("zeros_like", "ones_like"):
            call(name, x, dtype=dtype)
            call(name, v.tensor((3,), I64), dtype=dtype)
        call("new_zeros", x, (3, 2), dtype=dtype)
        call("new_ones", x, (3, 2), dtype=dtype)
        call("new_full", x, (2, 2), 3, dtype=dtype)
        call("eye", 3, dtype=dtype)
        call("eye.m", 2, 4, dtype=dtype)
        call("arange.start", 2, 7, dtype=None if dtype is BOOL else dtype)
    call("zero", x)
    call("_dim_arange", x, 1)
    call("arange.start", 0.5, 3.2)
    for start, end, steps in ((0, 1, 5), (-2.5, 3.0, 7), (1, 1, 1), (3, -3, 4), (0, 10, 0), (0, 100, 33)):
        for dtype in (None, F64, I32):
            call("linspace", start, end, steps, dtype=dtype)
        call("logspace", start / 10, end / 10, steps)
    for rows, columns, offset in ((3, 3, 0), (3, 5, 1), (4, 2, -1), (2, 4, -2), (3, 3, 5)):
        call("tril_indices", rows, columns, offset)
        call("triu_indices", rows, columns, offset, dtype=I32)
    for name in ("hann_window", "hamming_window", "blackman_window", "bartlett_window"):
        for length in (1, 7, 8):
            call(name, length)
            call(f"{name}.periodic", length, False)
    for n in (1, 4, 7):
        call("fft_fftfreq", n, 0.5)
        call("fft_rfftfreq", n)


def transforms(v, call):
    real, complex_ = v.tensor((3, 8)), v.tensor((3, 8), C64)
    for norm in (None, "ortho", "forward", "backward"):
        for n in (None, 6, 8, 11):
            for dim in (-1, 0):
                call("fft_rfft", real, n, dim, norm)
                call("fft_irfft", complex_, n, dim, norm)
                call("fft_fft", complex_, n, dim, norm)
                call("fft_ifft", complex_, n, dim, norm)
                call("fft_fft", real, n, dim, norm)
        call("fft_rfft2", real, None, (-2, -1), norm)
        call("fft_irfft2", complex_, None, (-2, -1), norm)
        call("fft_fft2", complex_, (4, 5), (-2, -1), norm)
        call("fft_ifftn", complex_, None, None, norm)
    call("fft_ifft", real)
    call("fft_irfft", real)
    call("fft_rfft", v.tensor((5,), I64))
    call("_fft_c2c", complex_, (1,), 0, True)
    call("_fft_c2c", complex_, (0, 1), 2, False)
    for name in ("fft_fftshift", "fft_ifftshift"):
        call(name, real)
        call(name, v.tensor((3, 5)), (1,))
    signal = v.tensor((2, 40))
    for n_fft, hop, window in ((16, None, None), (16, 4, torch.hann_window(16)), (12, 5, torch.hann_window(8))):
        length = None if window is None else len(window)
        for complex_result in (False, True):
            call("stft.center", signal, n_fft, hop, length, window, True, "reflect", False, True, complex_result)
            call("stft.center", signal, n_fft, hop, length, window, False, "reflect", True, None, complex_result)
            call("stft", signal, n_fft, hop, length, window, False, None, complex_result)
    call("stft.center", signal[0], 16, 4, None, torch.hann_window(16), True, "constant", False, False, True)


def losses(v, call):
    x, y = v.tensor((3, 4)), v.tensor((3, 4))
    probability = v.tensor((3, 4), F32, 0, 1)
    sign = torch.where(v.tensor((3, 4)) > 0, 1.0, -1.0)
    for reduction in (0, 1, 2):
        call("soft_margin_loss", x, sign, reduction)
        for a, b in ((x, y), (v.tensor((5,), F16), v.tensor((5,), F16))):
            for name in ("mse_loss", "l1_loss"):
                call(name, a, b, reduction)
            for beta in (0.5, 1.0):
                call("smooth_l1_loss", a, b, reduction, beta)
                call("huber_loss", a, b, reduction, beta)
        call("smooth_l1_loss", x, y, reduction, 0.0)
        for log_target in (False, True):
            call("kl_div", x, x if log_target else probability, reduction, log_target=log_target)
        call("binary_cross_entropy", probability, v.tensor((3, 4), F32, 0, 1), None, reduction)
        call("binary_cross_entropy", probability.round(), probability, v.tensor((4,), F32, 0, 1), reduction)
        call("binary_cross_entropy_with_logits", x, probability, None, None, reduction)
        call("binary_cross_entropy_with_logits", x, probability, v.tensor((4,), F32, 0, 1), v.tensor((4,), F32, 0, 3), reduction)
        for full in (False, True):
            for log_input in (False, True):
                call("poisson_nll_loss", x if log_input else x.abs(), v.tensor((3, 4), F32, 0, 5), log_input, full, 1e-8, reduction)
        call("margin_ranking_loss", x, y, sign, 0.5, reduction)
        call("hinge_embedding_loss", x, sign, 1.0, reduction)
        call("cosine_embedding_loss", x, y, sign[:, 0], 0.1, reduction)
        for swap in (False, True):
            call("triplet_margin_loss", x, y, v.tensor((3, 4)), 1.0, 2.0, 1e-6, swap, reduction)
        target = v.index((3,), 4)
        ignored = target.clone()
        ignored[0] = -100
        for weight in (None, v.tensor((4,), F32, 0, 2)):
            for labels in (target, ignored):
                call("nll_loss", x, labels, weight, reduction)
                call("nll_loss_forward", x, labels, weight, reduction, -100)
                call("nll_loss_nd", x, labels, weight, reduction)
                for smoothing in (0.0, 0.2):
                    call("cross_entropy_loss", x, labels, weight, reduction, -100, smoothing)
            picture, labels = v.tensor((2, 4, 3, 2)), v.index((2, 3, 2), 4)
            call("nll_loss2d", picture, labels, weight, reduction)
            call("cross_entropy_loss", picture, labels, weight, reduction)
            call("cross_entropy_loss", x, torch.softmax(y, -1), weight, reduction, -100, 0.1)
        call("nll_loss", x[0], target[0], None, reduction)
        call("cross_entropy_loss", x[0], target[0], None, reduction)


def quantization(v, call):
    x = v.tensor((4, 8))
    for scale, zero_point in ((0.125, 3), (0.0625, 0)):
        call("fake_quantize_per_tensor_affine", x, scale, zero_point, -128, 127)
        call("fake_quantize_per_tensor_affine", x, scale, zero_point, 0, 15)
    scales, zero_points = torch.tensor([0.125, 0.25, 0.5, 0.0625]), torch.tensor([0, 1, -2, 3], dtype=I32)
    call("fake_quantize_per_channel_affine", x, scales, zero_points, 0, -128, 127)
    call("fake_quantize_per_channel_affine", v.tensor((2, 4, 3)), scales, zero_points, 1, -8, 7)
    call("fake_quantize_per_tensor_affine.tensor_qparams", x, scales[:1], zero_points[1:2], -128, 127)
    call("quantized_decomposed::fake_quant_per_channel", x, scales, zero_points, 0, -128, 127)
    call("quantized_decomposed::choose_qparams_symmetric.tensor", x, -127, 127, 1e-6, I8)
    groups = (v.tensor((4, 2), F32, 0.0625, 0.5), torch.zeros((4, 2), dtype=I32))
    call("quantized_decomposed::quantize_per_channel_group", x, *groups, -8, 7, I8, 4)
    q = v.tensor((4, 8), I8, -8, 7)
    call("quantized_decomposed::dequantize_per_channel_group", q, *groups, -8, 7, I8, 4, F32)
    for block in ((1, 8), (1, 4), (4, 8), (2, 2)):
        counts = (4 // block[0], 8 // block[1])
        scale = v.tensor(counts, F32, 0.0625, 0.5)
        zero_point = v.tensor(counts, I32, -3, 3)
        call("torchao::quantize_affine", x, block, scale, zero_point, I8, -8, 7)
        call("torchao::quantize_affine", x, block, scale, None, I8)
        call("torchao::dequantize_affine", q, block, scale, zero_point, I8, -8, 7)
        call("torchao::dequantize_affine", q, block, scale, None, I8, -8, 7, output_dtype=F32)
        for mapping in ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"):
            for bounds in ((-128, 127), (-8, 7)):
                for keepdim in (False, True):
                    call("torchao::choose_qparams_affine", x, mapping, block, I8, *bounds, 1e-6, F32, I8, keepdim)
        call("torchao::choose_qparams_affine", x, "ASYMMETRIC", block, U8)
    call("torchao::quantize_affine", v.tensor((2, 3, 8)), (1, 1, 8), v.tensor((2, 3), F32, 0.1, 0.5), v.tensor((2, 3), I16, -3, 3), I8, -128, 127)
