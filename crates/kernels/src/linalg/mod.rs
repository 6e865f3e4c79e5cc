//! Decompositions and solvers of linear algebra, for batches of small matrices of `f32` or `f64`.
//!
//! Each decomposition has a file. A matrix of any element type and layout is read into temporary memory as rows of `f64`. So there is one
//! copy of each algorithm, which rounds once, to the type of the output.

use rushlight_runtime::OpGroup;

mod batch;
pub mod cholesky;
pub mod eig;
pub mod eigh;
pub mod exponential;
pub mod lu;
pub mod qr;
pub mod svd;
pub mod triangular;

/// The groups of this folder, all of operators beyond core ATen.
pub const ATEN: &[OpGroup] =
    &[lu::OPS, triangular::OPS, cholesky::OPS, qr::OPS, svd::OPS, eigh::OPS, eig::OPS, exponential::OPS];
