//! Operators that reduce or scan dimensions: sums, extrema, arg-extrema, variance, cumulative sums, sorting,
//! histograms.

use rushlight_runtime::OpGroup;

pub mod any;
pub mod arg_extremum;
pub mod cumsum;
pub mod extremum;
pub mod histc;
pub mod sort;
pub mod sum;
pub mod var;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] =
    &[any::OPS, arg_extremum::OPS, cumsum::OPS, extremum::OPS, sort::TOPK_OPS, sum::OPS, var::OPS];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] = &[sort::SORT_OPS, histc::OPS];
