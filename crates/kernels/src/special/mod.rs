//! Special functions, element by element.
//!
//! All compute in `f64` and round once: to 16 bits, `f32` or `f64`. Integers give `f32`, as PyTorch's do. Where PyTorch approximates by
//! tables of polynomials, these sum series and integrals that converge to the last bits, so that a function is a few lines.

use rushlight_runtime::OpGroup;

pub mod bessel;
pub mod error_function;
mod function;
pub mod gamma;
pub mod polynomial;

/// The groups of this folder, all of operators beyond core ATen.
pub const ATEN: &[OpGroup] = &[bessel::OPS, error_function::OPS, gamma::OPS, polynomial::OPS];
