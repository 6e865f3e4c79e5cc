//! Resizing of quantized images.

use crate::arch::{LANES, Simd};
use crate::error::Error;
use crate::resize::Blend;
use crate::{Engine, Resize};

use super::epilogue::{Affine, U8Quantizer};

/// Minimum bytes of a task.
const MIN_TASK_BYTES: usize = 16 << 10;

/// Resizes a quantized image, with PyTorch's coordinates. Nearest copies bytes; bilinear dequantizes, interpolates in
/// f32 without fused multiply-add, and requantizes.
///
/// # Errors
/// If a slice is too short, or the input is empty and the output is not.
pub fn resize_u8(
    engine: &Engine,
    resize: &Resize,
    x: &[u8],
    from: Affine,
    y: &mut [u8],
    to: Affine,
) -> Result<(), Error> {
    resize.run(engine, x, y, MIN_TASK_BYTES, BlendU8 { from, to: U8Quantizer::of(to) })
}

/// Bilinear interpolation of u8.
#[derive(Clone, Copy)]
struct BlendU8 {
    from: Affine,
    to: U8Quantizer,
}

impl Blend<u8> for BlendU8 {
    #[inline(always)]
    fn blend<S: Simd>(
        self,
        s: S,
        corners: [&[u8]; 4],
        [top, bottom]: [S::V; 2],
        [left, right]: [S::V; 2],
        y: &mut [u8],
    ) {
        let (zero, scale) = (s.splat(f32::from(self.from.zero_point)), s.splat(self.from.scale));
        for (i, y) in y.chunks_mut(LANES).enumerate() {
            let mut read = [top; 4];
            for (v, corner) in read.iter_mut().zip(&corners) {
                // SAFETY: the corners have the channels of `y`.
                *v = s.i32_to_f32(unsafe { s.load_u8(corner[i * LANES..].as_ptr(), y.len()) });
            }
            let [a, b, c, d] = read;
            let upper = s.add(s.mul(left, a), s.mul(right, b));
            let lower = s.add(s.mul(left, c), s.mul(right, d));
            let byte = s.add(s.mul(top, upper), s.mul(bottom, lower));
            let value = s.mul(s.sub(byte, zero), scale);
            // SAFETY: `y` has `len` bytes.
            unsafe { s.store_as_u8(y.as_mut_ptr(), y.len(), self.to.round(s, value)) };
        }
    }
}
