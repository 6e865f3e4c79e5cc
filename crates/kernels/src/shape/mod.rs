//! Operators that move elements without looking at them: copies, views, concatenation, slicing, permutation.

use rushlight_runtime::OpGroup;

pub mod cat;
pub mod expand;
pub mod flip;
pub mod permute;
pub mod slice;
pub mod split;
pub mod strided;
pub mod tril;
pub mod view;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] =
    &[view::OPS, slice::OPS, split::OPS, cat::OPS, permute::OPS, expand::OPS, strided::OPS, flip::OPS, tril::OPS];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] = &[];
