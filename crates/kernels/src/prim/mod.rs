//! Operators on symbolic integers and other scalars, and `et_view`.

use rushlight_runtime::OpGroup;

/// The groups of this folder.
pub const GROUPS: &[OpGroup] = &[];
