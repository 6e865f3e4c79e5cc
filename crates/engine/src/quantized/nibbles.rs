//! Two 4-bit integers in a byte: an even element in the low half, the next one in the high half.

use crate::error::{Error, at_least};

/// Packs integers of 0 to 15, an even number of them.
///
/// # Errors
/// If `y` is shorter than half of `x`.
pub fn pack_nibbles(x: &[u8], y: &mut [u8]) -> Result<(), Error> {
    at_least("y", y.len(), x.len().div_ceil(2))?;
    for (pair, y) in x.as_chunks::<2>().0.iter().zip(y) {
        *y = (pair[0] & 15) | pair[1] << 4;
    }
    Ok(())
}

/// Unpacks integers of 0 to 15.
///
/// # Errors
/// If `y` is shorter than twice `x`.
pub fn unpack_nibbles(x: &[u8], y: &mut [u8]) -> Result<(), Error> {
    at_least("y", y.len(), 2 * x.len())?;
    for (x, pair) in x.iter().zip(y.as_chunks_mut::<2>().0) {
        *pair = [x & 15, x >> 4];
    }
    Ok(())
}
