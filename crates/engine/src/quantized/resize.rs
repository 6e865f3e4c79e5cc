//! Feature maps of bytes in another size.

use crate::arch::{LANES, Simd};
use crate::error::Error;
use crate::resize::Blend;
use crate::{Engine, Resize};

use super::tail::{Affine, Levels};

/// Bytes for which a task is worth handing over.
const LEAST: usize = 16 << 10;

/// Resizes, with PyTorch's coordinates. The nearest pixels are moved as they are; other results are of bytes that stand
/// for something else perhaps, and are multiplied and added one by one in `f32`, not fused.
///
/// # Errors
/// When a slice is too short, or the input has no pixel and the output has.
pub fn resize_u8(
    engine: &Engine,
    resize: &Resize,
    x: &[u8],
    from: Affine,
    y: &mut [u8],
    to: Affine,
) -> Result<(), Error> {
    resize.run(engine, x, y, LEAST, Bytes { from, to: Levels::of(to) })
}

/// What bytes stand for, and what becomes of the results.
#[derive(Clone, Copy)]
struct Bytes {
    from: Affine,
    to: Levels,
}

impl Blend<u8> for Bytes {
    #[inline(always)]
    fn blend<S: Simd>(
        self,
        s: S,
        corners: [&[u8]; 4],
        [top, bottom]: [S::V; 2],
        [left, right]: [S::V; 2],
        y: &mut [u8],
    ) {
        let (zero, scale) = (s.splat(f32::from(self.from.zero)), s.splat(self.from.scale));
        for (i, y) in y.chunks_mut(LANES).enumerate() {
            let mut read = [top; 4];
            for (v, corner) in read.iter_mut().zip(&corners) {
                // SAFETY: a pixel has as many channels as the one that is written.
                *v = s.floats(unsafe { s.load_bytes(corner[i * LANES..].as_ptr(), y.len()) });
            }
            let [a, b, c, d] = read;
            let upper = s.add(s.mul(left, a), s.mul(right, b));
            let lower = s.add(s.mul(left, c), s.mul(right, d));
            let byte = s.add(s.mul(top, upper), s.mul(bottom, lower));
            let number = s.mul(s.sub(byte, zero), scale);
            // SAFETY: so many bytes are written.
            unsafe { s.store_bytes(y.as_mut_ptr(), y.len(), self.to.round(s, number)) };
        }
    }
}
