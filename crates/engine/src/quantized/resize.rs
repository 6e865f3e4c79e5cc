//! Feature maps of bytes in another size.

use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least};
use crate::split::Output;
use crate::{Engine, Resize, ResizeMode};

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
    let elements = resize.check(x.len())?;
    at_least("y", y.len(), elements)?;
    if elements == 0 {
        return Ok(());
    }
    let line = resize.out_w * resize.channels;
    let y = Output::new(y);
    engine.for_ranges(resize.batch * resize.out_h, LEAST.div_ceil(line), |lines| {
        // SAFETY: ranges of lines are disjoint.
        let y = unsafe { y.slice(lines.start * line..lines.end * line) };
        engine.level.run(Lines { resize, x, from, y, to: Levels::of(to), first: lines.start });
    });
    Ok(())
}

/// Lines of the output.
struct Lines<'a> {
    resize: &'a Resize,
    x: &'a [u8],
    from: Affine,
    y: &'a mut [u8],
    to: Levels,
    /// The first line, among those of all images.
    first: usize,
}

impl Job for Lines<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let &Resize { in_h, in_w, channels, out_h, out_w, mode, .. } = self.resize;
        let (zero, scale) = (s.splat(f32::from(self.from.zero)), s.splat(self.from.scale));
        for (line, y) in self.y.chunks_exact_mut(out_w * channels).enumerate() {
            let (image, out_y) = ((self.first + line) / out_h, (self.first + line) % out_h);
            let [top, bottom] = self.resize.sources(0, out_y);
            let x = &self.x[image * in_h * in_w * channels..];
            for (out_x, y) in y.chunks_exact_mut(channels).enumerate() {
                let [left, right] = self.resize.sources(1, out_x);
                let pixel = |y: usize, w: usize| &x[(y * in_w + w) * channels..][..channels];
                if mode == ResizeMode::Nearest {
                    y.copy_from_slice(pixel(top.0, left.0));
                    continue;
                }
                let corners = [(top, left), (top, right), (bottom, left), (bottom, right)];
                let pixels = corners.map(|(vertical, horizontal)| pixel(vertical.0, horizontal.0));
                let [top, bottom, left, right] = [top, bottom, left, right].map(|(_, weight)| s.splat(weight));
                for (i, y) in y.chunks_mut(LANES).enumerate() {
                    let mut read = [top; 4];
                    for (v, pixel) in read.iter_mut().zip(&pixels) {
                        // SAFETY: a pixel has as many channels as the one that is written.
                        *v = s.floats(unsafe { s.load_bytes(pixel[i * LANES..].as_ptr(), y.len()) });
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
    }
}
