//! The `quantized_decomposed` operators.

use rushlight_runtime::OpGroup;

/// The groups of this folder.
pub const GROUPS: &[OpGroup] = &[];
