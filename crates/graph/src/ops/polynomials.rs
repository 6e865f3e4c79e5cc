//! Orthogonal polynomials, of an order for each element or for all.

use crate::operators::aten;

use super::inference::floating_arithmetic;
use super::special::of_tensors;
use super::{Definition, composite, kernel};

pub(crate) const OPS: &[Definition] = &[
    kernel(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_T, floating_arithmetic),
    composite(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_T_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_T)
    }),
    composite(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_T_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_T)
    }),
    kernel(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_U, floating_arithmetic),
    composite(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_U_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_U)
    }),
    composite(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_U_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_U)
    }),
    kernel(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_V, floating_arithmetic),
    composite(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_V_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_V)
    }),
    composite(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_V_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_V)
    }),
    kernel(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_W, floating_arithmetic),
    composite(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_W_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_W)
    }),
    composite(aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_W_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_CHEBYSHEV_POLYNOMIAL_W)
    }),
    kernel(aten::SPECIAL_HERMITE_POLYNOMIAL_H, floating_arithmetic),
    composite(aten::SPECIAL_HERMITE_POLYNOMIAL_H_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_HERMITE_POLYNOMIAL_H)
    }),
    composite(aten::SPECIAL_HERMITE_POLYNOMIAL_H_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_HERMITE_POLYNOMIAL_H)
    }),
    kernel(aten::SPECIAL_HERMITE_POLYNOMIAL_HE, floating_arithmetic),
    composite(aten::SPECIAL_HERMITE_POLYNOMIAL_HE_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_HERMITE_POLYNOMIAL_HE)
    }),
    composite(aten::SPECIAL_HERMITE_POLYNOMIAL_HE_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_HERMITE_POLYNOMIAL_HE)
    }),
    kernel(aten::SPECIAL_LAGUERRE_POLYNOMIAL_L, floating_arithmetic),
    composite(aten::SPECIAL_LAGUERRE_POLYNOMIAL_L_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_LAGUERRE_POLYNOMIAL_L)
    }),
    composite(aten::SPECIAL_LAGUERRE_POLYNOMIAL_L_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_LAGUERRE_POLYNOMIAL_L)
    }),
    kernel(aten::SPECIAL_LEGENDRE_POLYNOMIAL_P, floating_arithmetic),
    composite(aten::SPECIAL_LEGENDRE_POLYNOMIAL_P_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_LEGENDRE_POLYNOMIAL_P)
    }),
    composite(aten::SPECIAL_LEGENDRE_POLYNOMIAL_P_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_LEGENDRE_POLYNOMIAL_P)
    }),
    kernel(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_T, floating_arithmetic),
    composite(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_T_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_T)
    }),
    composite(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_T_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_T)
    }),
    kernel(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_U, floating_arithmetic),
    composite(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_U_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_U)
    }),
    composite(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_U_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_U)
    }),
    kernel(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_V, floating_arithmetic),
    composite(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_V_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_V)
    }),
    composite(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_V_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_V)
    }),
    kernel(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_W, floating_arithmetic),
    composite(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_W_N_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_W)
    }),
    composite(aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_W_X_SCALAR, floating_arithmetic, |b, o| {
        of_tensors(b, o, aten::SPECIAL_SHIFTED_CHEBYSHEV_POLYNOMIAL_W)
    }),
];
