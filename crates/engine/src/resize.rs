//! Nearest and bilinear resizing of images.
#![allow(unsafe_code)]

use crate::Engine;
use crate::arch::{Kernel, LANES, Simd};
use crate::error::{Error, at_least, positive, size};
use crate::parallel::SharedOutput;

/// Shape of a resize from `[batch, in_h, in_w, channels]` to `[batch, out_h, out_w, channels]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resize {
    pub batch: usize,
    pub in_h: usize,
    pub in_w: usize,
    pub channels: usize,
    pub out_h: usize,
    pub out_w: usize,
    pub mode: ResizeMode,
    /// Aligns the centers of the corner pixels instead of their corners. Bilinear only.
    pub align_corners: bool,
    /// Output size divided by input size, for height and width, if the caller specified a factor; otherwise computed
    /// from the sizes.
    pub scales: [Option<f32>; 2],
}

/// Interpolation mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResizeMode {
    /// The pixel at `floor(output position * scale)`, as PyTorch's `nearest`.
    Nearest,
    Bilinear,
}

/// Resizes an image, with PyTorch's coordinates.
///
/// # Errors
/// If a slice is too short, or the input is empty and the output is not.
pub fn resize(engine: &Engine, resize: &Resize, x: &[f32], y: &mut [f32]) -> Result<(), Error> {
    resize.run(engine, x, y, MIN_TASK_ELEMENTS, BlendF32)
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 8 << 10;

/// Bilinear interpolation in f32.
#[derive(Clone, Copy)]
struct BlendF32;

impl Blend<f32> for BlendF32 {
    #[inline(always)]
    fn blend<S: Simd>(
        self,
        s: S,
        corners: [&[f32]; 4],
        [top, bottom]: [S::V; 2],
        [left, right]: [S::V; 2],
        y: &mut [f32],
    ) {
        for (i, y) in y.chunks_mut(LANES).enumerate() {
            let mut pixels = [s.splat(0.0); 4];
            for (v, corner) in pixels.iter_mut().zip(&corners) {
                *v = s.load_slice(&corner[i * LANES..]);
            }
            let [upper_left, upper_right, lower_left, lower_right] = pixels;
            let upper = s.fma(right, upper_right, s.mul(left, upper_left));
            let lower = s.fma(right, lower_right, s.mul(left, lower_left));
            s.store_slice(y, s.fma(bottom, lower, s.mul(top, upper)));
        }
    }
}

/// Bilinear interpolation of pixels of an element type.
pub(crate) trait Blend<T>: Copy + Sync {
    /// Interpolates the channels of a pixel. `corners` are upper left, upper right, lower left and lower right; the
    /// weights are those of the upper and lower, and of the left and right ones.
    fn blend<S: Simd>(self, s: S, corners: [&[T]; 4], vertical: [S::V; 2], horizontal: [S::V; 2], y: &mut [T]);
}

/// A range of output rows.
struct ResizeRows<'a, T, B> {
    resize: &'a Resize,
    x: &'a [T],
    y: &'a mut [T],
    /// First output row, counted over all images.
    first: usize,
    blend: B,
}

impl<T: Copy, B: Blend<T>> Kernel for ResizeRows<'_, T, B> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let &Resize { in_h, in_w, channels, out_h, out_w, mode, .. } = self.resize;
        for (out_row, y) in self.y.chunks_exact_mut(out_w * channels).enumerate() {
            let (image, out_y) = ((self.first + out_row) / out_h, (self.first + out_row) % out_h);
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
                let corners = corners.map(|(vertical, horizontal)| pixel(vertical.0, horizontal.0));
                let vertical = [s.splat(top.1), s.splat(bottom.1)];
                let horizontal = [s.splat(left.1), s.splat(right.1)];
                self.blend.blend(s, corners, vertical, horizontal, y);
            }
        }
    }
}

impl Resize {
    /// Resizes the images, in tasks of at least `min_items` elements.
    pub(crate) fn run<T: Copy + Send + Sync>(
        &self,
        engine: &Engine,
        x: &[T],
        y: &mut [T],
        min_items: usize,
        blend: impl Blend<T>,
    ) -> Result<(), Error> {
        let elements = self.check(x.len())?;
        at_least("y", y.len(), elements)?;
        if elements == 0 {
            return Ok(());
        }
        let out_row = self.out_w * self.channels;
        let y = SharedOutput::new(y);
        engine.parallel_for(self.batch * self.out_h, min_items.div_ceil(out_row), |out_rows| {
            // SAFETY: ranges of rows are disjoint.
            let y = unsafe { y.slice(out_rows.start * out_row..out_rows.end * out_row) };
            engine.dispatch.run(ResizeRows { resize: self, x, y, first: out_rows.start, blend });
        });
        Ok(())
    }

    /// Checks that an input of `input` elements holds the image, and is not empty if the output is not. Returns the
    /// elements of the output.
    fn check(&self, input: usize) -> Result<usize, Error> {
        let &Self { batch, in_h, in_w, channels, out_h, out_w, .. } = self;
        at_least("x", input, size("x", &[batch, in_h, in_w, channels])?)?;
        let elements = size("y", &[batch, out_h, out_w, channels])?;
        if elements > 0 {
            positive("input height", in_h)?;
            positive("input width", in_w)?;
        }
        Ok(elements)
    }

    /// Returns the two source positions of an output position along an axis, with their weights.
    fn sources(&self, axis: usize, position: usize) -> [(usize, f32); 2] {
        let (input, output) = if axis == 0 { (self.in_h, self.out_h) } else { (self.in_w, self.out_w) };
        let scale = match self.scales[axis] {
            Some(scale) if scale > 0.0 => (1.0 / f64::from(scale)) as f32,
            _ => input as f32 / output as f32,
        };
        let last = input - 1;
        match self.mode {
            ResizeMode::Nearest => {
                // PyTorch checks these sizes first and ignores the factor.
                let source = if input == output {
                    position
                } else if output == 2 * input {
                    position / 2
                } else {
                    (position as f32 * scale) as usize
                };
                [(source.min(last), 1.0), (source.min(last), 0.0)]
            }
            // The weights are 0.5 and 0.5, not 1 and 0: an infinite pixel times 0 would be NaN.
            ResizeMode::Bilinear if input == output => [(position, 0.5), (position, 0.5)],
            ResizeMode::Bilinear => {
                let source = if self.align_corners {
                    let scale = if output > 1 { last as f32 / (output - 1) as f32 } else { 0.0 };
                    position as f32 * scale
                } else {
                    (scale * (position as f32 + 0.5) - 0.5).max(0.0)
                };
                let first = (source as usize).min(last);
                let second = (first + 1).min(last);
                let weight = if first == second { 0.5 } else { (source - first as f32).clamp(0.0, 1.0) };
                [(first, 1.0 - weight), (second, weight)]
            }
        }
    }
}
