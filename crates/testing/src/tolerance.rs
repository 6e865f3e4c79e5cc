//! The tolerance of each operator's results, with the reason. Every tolerance of the operator suite is a row here.

use rushlight_format::ScalarType;

/// The maximum difference between a result and the expected value. Epsilon is the distance from 1 to the next number,
/// in the precision that the operator computes in: the output's, or that of its widest input if that is lower. A
/// rounding is half of epsilon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// The same bits; any NaN for a NaN.
    Exact,
    /// At most this many representable values apart.
    Ulp(u64),
    /// At most this many times epsilon, relative and absolute; or one representable value.
    Close { rel: f64, abs: f64 },
    /// At most this many times epsilon, scaled by the largest sum of magnitudes that an element accumulates (`mag` of
    /// the case); or one representable value.
    Accumulated(f64),
}

/// A row of the table, by operator. The first row that matches is used.
struct Row {
    /// Operator names without namespace and overload.
    names: &'static [&'static str],
    /// For f32 and f64 results, complex ones included.
    wide: Tolerance,
    /// For f16 and bf16 results.
    half: Tolerance,
    #[allow(dead_code, reason = "the reason is for the reader of the table")]
    why: &'static str,
}

use Tolerance::{Accumulated, Close, Exact, Ulp};

const ROWS: &[Row] = &[
    Row {
        names: &[
            "exp", "expm1", "log", "log10", "log1p", "log2", "sin", "cos", "tanh", "sigmoid", "erf", "sinh", "cosh",
        ],
        wide: Ulp(2),
        half: Ulp(1),
        why: "each side errs by up to 1 unit in the last place",
    },
    Row {
        names: &["tan", "acos", "asin", "atan", "atan2", "acosh", "asinh", "atanh", "pow"],
        wide: Ulp(4),
        half: Ulp(1),
        why: "compositions of the functions above, or of PyTorch's",
    },
    Row {
        names: &["gelu", "elu"],
        wide: Close { rel: 8.0, abs: 2.0 },
        half: Close { rel: 2.0, abs: 0.001 },
        why: "1 + erf and exp - 1 cancel for negative arguments",
    },
    Row {
        names: &["logit"],
        wide: Close { rel: 8.0, abs: 8.0 },
        half: Close { rel: 2.0, abs: 4.0 },
        why: "PyTorch rounds the quotient to the tensor's type, and the logarithm of what is near 1 cancels",
    },
    Row {
        names: &["rsqrt", "reciprocal", "sqrt", "div", "glu", "leaky_relu"],
        wide: Ulp(2),
        half: Ulp(1),
        why: "one or two roundings",
    },
    Row {
        names: &["abs"],
        wide: Ulp(2),
        half: Ulp(1),
        why: "the absolute value of a complex number is a square root of a sum; of a real one it is exact",
    },
    Row {
        names: &["add", "sub", "rsub", "mul", "addcmul", "fmod", "remainder", "floor_divide"],
        wide: Ulp(1),
        half: Ulp(1),
        why: "a product with alpha may be fused with the sum",
    },
    Row {
        names: &[
            "sum",
            "mean",
            "cumsum",
            "mm",
            "bmm",
            "addmm",
            "linear",
            "convolution",
            "convolution_backward",
            "avg_pool2d",
            "avg_pool1d",
            "avg_pool3d",
            "adaptive_avg_pool1d",
            "_adaptive_avg_pool2d",
            "_adaptive_avg_pool3d",
            "_adaptive_avg_pool2d_backward",
            "avg_pool2d_backward",
            "scatter_add",
            "scatter_reduce",
            "index_put",
            "index_put_",
            "col2im",
            "embedding_dense_backward",
            "max_pool2d_with_indices_backward",
            "upsample_bilinear2d",
            "_upsample_bilinear2d_aa",
            "grid_sampler_2d",
            "grid_sampler_3d",
            "bincount",
            "_histogramdd_from_bin_tensors",
        ],
        wide: Accumulated(2.0),
        half: Accumulated(1.0),
        why: "sums are associated differently; half types accumulate in float32 and round once, PyTorch at times twice",
    },
    Row {
        names: &["mixed_mm", "mixed_linear"],
        wide: Close { rel: 16.0, abs: 16.0 },
        half: Close { rel: 2.0, abs: 2.0 },
        why: "sums are associated differently",
    },
    Row {
        names: &["prod"],
        wide: Close { rel: 16.0, abs: 0.0 },
        half: Close { rel: 4.0, abs: 0.0 },
        why: "a rounding for each factor",
    },
    Row {
        names: &["_softmax", "_log_softmax", "var", "var_mean", "_cdist_forward", "_pdist_forward", "_embedding_bag"],
        wide: Close { rel: 16.0, abs: 8.0 },
        half: Close { rel: 2.0, abs: 2.0 },
        why: "sums in another order, then exponentials, quotients or roots",
    },
    Row {
        names: &[
            "native_layer_norm",
            "native_group_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "native_layer_norm_backward",
            "native_group_norm_backward",
        ],
        wide: Close { rel: 16.0, abs: 64.0 },
        half: Close { rel: 2.0, abs: 2.0 },
        why: "PyTorch folds mean and deviation into one product and sum, which cancel; 16-bit types round the factors too",
    },
    Row {
        names: &["_fft_r2c", "_fft_c2r", "fast_hadamard_transform"],
        wide: Close { rel: 8.0, abs: 128.0 },
        half: Close { rel: 2.0, abs: 2.0 },
        why: "every output sums all inputs with cancellation",
    },
    Row {
        names: &["custom_sdpa", "sdpa_with_kv_cache", "custom_quantized_sdpa"],
        wide: Close { rel: 16.0, abs: 16.0 },
        half: Close { rel: 2.0, abs: 2.0 },
        why: "attention: softmax of sums, then sums",
    },
    Row {
        names: &["gated_delta_rule", "channelwise_gated_delta_rule", "quantized_moe_ffn"],
        wide: Close { rel: 64.0, abs: 64.0 },
        half: Close { rel: 2.0, abs: 2.0 },
        why: "recurrences over tokens, and products of products; ExecuTorch's tests allow 1e-3",
    },
    Row {
        names: &["choose_qparams", "choose_qparams_per_token_asymmetric"],
        wide: Close { rel: 2.0, abs: 0.0 },
        half: Close { rel: 2.0, abs: 0.0 },
        why: "the range is computed in float32 before the scale widens",
    },
    Row {
        names: &[
            "dequantize_per_tensor",
            "dequantize_per_channel",
            "dequantize_per_token",
            "embedding_byte",
            "embedding_2bit",
            "embedding_4bit",
        ],
        wide: Ulp(1),
        half: Ulp(2),
        why: "one product; the reference rounds the difference to half types first",
    },
    Row {
        names: &["segment_reduce"],
        wide: Close { rel: 8.0, abs: 8.0 },
        half: Close { rel: 8.0, abs: 8.0 },
        why: "PyTorch rounds each sum and product to the tensor's type",
    },
    Row {
        names: SPECIAL,
        wide: Ulp(2),
        half: Ulp(1),
        why: "computed in f64 here and there, and rounded; near poles and zeros the last bits of f64 show",
    },
    Row { names: &["arange"], wide: Ulp(1), half: Ulp(1), why: "a product and a sum, which may be fused" },
];

/// Functions that the reference operators compute in f64 for every type.
const SPECIAL: &[&str] = &[
    "lgamma",
    "digamma",
    "polygamma",
    "igamma",
    "igammac",
    "i0",
    "special_i0e",
    "special_i1",
    "special_i1e",
    "erfc",
    "special_erfcx",
    "special_ndtri",
    "special_log_ndtr",
    "special_zeta",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_bessel_y0",
    "special_bessel_y1",
    "special_modified_bessel_i0",
    "special_modified_bessel_i1",
    "special_modified_bessel_k0",
    "special_modified_bessel_k1",
    "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1",
    "special_spherical_bessel_j0",
    "special_airy_ai",
    "special_chebyshev_polynomial_t",
    "special_chebyshev_polynomial_u",
    "special_chebyshev_polynomial_v",
    "special_chebyshev_polynomial_w",
    "special_hermite_polynomial_h",
    "special_hermite_polynomial_he",
    "special_laguerre_polynomial_l",
    "special_legendre_polynomial_p",
    "special_shifted_chebyshev_polynomial_t",
    "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v",
    "special_shifted_chebyshev_polynomial_w",
];

/// The tolerance of an operator's result of this type.
pub fn of(op: &str, dtype: ScalarType) -> Tolerance {
    // Integers, booleans, and operators that only move, select or round elements.
    of_rows(ROWS, op, dtype).unwrap_or(Exact)
}

fn of_rows(rows: &[Row], op: &str, dtype: ScalarType) -> Option<Tolerance> {
    let name = op.split_once("::").map_or(op, |(_, rest)| rest);
    let name = name.split_once('.').map_or(name, |(name, _)| name);
    if op.starts_with("executorch_prim::") {
        return None;
    }
    let row = rows.iter().find(|row| row.names.contains(&name))?;
    match dtype {
        ScalarType::Half | ScalarType::BFloat16 => Some(row.half),
        dtype if dtype.is_floating() || dtype.is_complex() => Some(row.wide),
        _ => None,
    }
}

/// The tolerance of a result of the CPU backend. Without a row of its own, it is that of the reference operators.
pub fn lowered(op: &str, dtype: ScalarType) -> Tolerance {
    of_rows(LOWERED, op, dtype).unwrap_or_else(|| of(op, dtype))
}

/// Rows of the CPU backend.
const LOWERED: &[Row] = &[
    Row {
        names: &["avg_pool3d"],
        wide: Accumulated(4.0),
        half: Accumulated(2.0),
        why: "planes are averaged before volumes, so that means are rounded twice",
    },
    Row {
        names: &["exp"],
        wide: Close { rel: 2.0, abs: 1e-31 },
        half: Ulp(1),
        why: "the vectorised function gives zero where the result is below the least normal number",
    },
    Row {
        names: &["amin", "amax"],
        wide: Close { rel: 0.0, abs: 1e-38 },
        half: Close { rel: 0.0, abs: 1e-38 },
        why: "of zeros of both signs either may be the least or the greatest",
    },
];

/// The distance from 1 to the next number.
pub fn epsilon(dtype: ScalarType) -> f64 {
    match dtype {
        ScalarType::Half | ScalarType::ComplexHalf => f64::from(half::f16::EPSILON),
        ScalarType::BFloat16 => f64::from(half::bf16::EPSILON),
        ScalarType::Double | ScalarType::ComplexDouble => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    }
}
