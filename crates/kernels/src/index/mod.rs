//! Operators that read or write elements at positions which other tensors hold.

use rushlight_runtime::OpGroup;

pub mod advanced;
pub mod embedding_bag;
pub mod gather;
mod indexing;
pub mod mask;
mod rows;
pub mod scatter_reduce;
pub mod select;

/// The groups of this folder that ExecuTorch has in its portable set.
pub const PORTABLE: &[OpGroup] = &[advanced::OPS, select::OPS, gather::OPS, scatter_reduce::OPS, mask::OPS];

/// The groups of this folder with core ATen operators that ExecuTorch has no kernel for.
pub const CORE_ATEN: &[OpGroup] = &[scatter_reduce::CORE_ATEN_OPS, embedding_bag::CORE_ATEN_OPS];
