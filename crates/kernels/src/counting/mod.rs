//! Counting: distinct elements, histograms, the most frequent element, sums of segments.

use rushlight_runtime::OpGroup;

pub mod bincount;
pub mod histogram;
mod key;
pub mod mode;
pub mod nonzero_static;
pub mod segment_reduce;
pub mod unique;

/// The groups of this folder, all of operators beyond core ATen.
pub const ATEN: &[OpGroup] =
    &[bincount::OPS, histogram::OPS, mode::OPS, nonzero_static::OPS, segment_reduce::OPS, unique::OPS];
