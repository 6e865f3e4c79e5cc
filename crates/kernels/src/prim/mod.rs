//! Operators on symbolic integers and other scalars, and `et_view`.

use rushlight_runtime::OpGroup;

pub mod arithmetic;
pub mod compare;
pub mod convert;
pub mod copy_index;
pub mod inspect;
pub mod view;

/// The groups of this folder.
pub const GROUPS: &[OpGroup] = &[arithmetic::OPS, compare::OPS, convert::OPS, inspect::OPS, view::OPS, copy_index::OPS];
