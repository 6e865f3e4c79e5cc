//! Python's slices.

use rushlight_runtime::{Detail, Result};

/// The positions `start`, `start + step`, … of a dimension, all inside of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceRange {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) step: usize,
}

impl SliceRange {
    /// `[start:end:step]` of a dimension with `size` positions: negative ends count from the end, and both are
    /// clamped into the dimension.
    pub(crate) fn new(size: usize, start: Option<i64>, end: Option<i64>, step: i64) -> Result<Self> {
        let Some(step) = usize::try_from(step).ok().filter(|&step| step > 0) else {
            return Err(Detail::Value { what: "slice step", expected: "more than 0", got: step }.into());
        };
        let clamp = |end: i64| {
            let end = if end < 0 { end.saturating_add(size as i64) } else { end };
            end.clamp(0, size as i64) as usize
        };
        let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(i64::MAX)));
        Ok(Self { start, len: end.saturating_sub(start).div_ceil(step), step })
    }
}

/// An index into a dimension with `size` positions; negative ones count from the end.
pub(crate) fn normalize_index(index: i64, size: usize) -> Result<usize> {
    let wrapped = if index < 0 { index.wrapping_add(size as i64) } else { index };
    if wrapped < 0 || wrapped.cast_unsigned() >= size as u64 {
        return Err(Detail::Index { index, size }.into());
    }
    Ok(wrapped as usize)
}
