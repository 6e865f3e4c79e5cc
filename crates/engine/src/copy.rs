//! Copies between strided views, and fills.

use crate::Engine;
use crate::elementwise::{MAX_DIMS, reach};
use crate::error::{Error, at_least, size};

/// Which elements to copy: for every index `i` below `sizes`, `y[y_offset + sum of i * y_strides]` becomes
/// `x[x_offset + sum of i * x_strides]`. Transposes, slices, concatenations and expansions are of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy<'a> {
    pub sizes: &'a [usize],
    pub x_offset: usize,
    pub x_strides: &'a [usize],
    pub y_offset: usize,
    pub y_strides: &'a [usize],
}

/// Copies. Where several elements of `x` go to one of `y`, the last index wins.
///
/// # Errors
/// When a slice is too short, the numbers of dimensions differ, or there are more than [`MAX_DIMS`].
pub fn copy(engine: &Engine, copy: &Copy, x: &[f32], y: &mut [f32]) -> Result<(), Error> {
    let &Copy { sizes, x_offset, x_strides, y_offset, y_strides } = copy;
    if sizes.len() > MAX_DIMS {
        return Err(Error::Index { what: "dimension", index: sizes.len() as i64 - 1, size: MAX_DIMS });
    }
    at_least("strides", x_strides.len(), sizes.len())?;
    at_least("strides", y_strides.len(), sizes.len())?;
    let elements = size("sizes", sizes)?;
    if elements == 0 {
        return Ok(());
    }
    let end =
        |what, strides, offset: usize| reach(what, sizes, strides)?.checked_add(offset).ok_or(Error::Size { what });
    at_least("x", x.len(), end("x strides", x_strides, x_offset)?)?;
    at_least("y", y.len(), end("y strides", y_strides, y_offset)?)?;
    let _ = engine;
    for i in 0..elements {
        let (mut rest, mut from, mut to) = (i, x_offset, y_offset);
        for (d, &size) in sizes.iter().enumerate().rev() {
            from += rest % size * x_strides[d];
            to += rest % size * y_strides[d];
            rest /= size;
        }
        y[to] = x[from];
    }
    Ok(())
}

/// Sets every element of `y`.
///
/// # Errors
/// None yet.
pub fn fill(engine: &Engine, y: &mut [f32], value: f32) -> Result<(), Error> {
    let _ = engine;
    y.fill(value);
    Ok(())
}
