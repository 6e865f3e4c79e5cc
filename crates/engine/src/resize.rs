//! Feature maps in another size.

use crate::Engine;
use crate::error::{Error, at_least, positive, size};

/// A feature map `[batch, in_h, in_w, channels]`, to `[batch, out_h, out_w, channels]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resize {
    pub batch: usize,
    pub in_h: usize,
    pub in_w: usize,
    pub channels: usize,
    pub out_h: usize,
    pub out_w: usize,
    pub mode: ResizeMode,
    /// Whether the centres of the corners' pixels meet, rather than their corners. Of bilinear alone.
    pub align_corners: bool,
    /// Output size by input size, of height and width, where the caller gave a factor. What the sizes make otherwise.
    pub scales: [Option<f32>; 2],
}

/// How pixels between pixels are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResizeMode {
    /// The pixel at `floor(output position * scale)`, as PyTorch's `nearest`.
    Nearest,
    Bilinear,
}

/// Resizes, with PyTorch's coordinates.
///
/// # Errors
/// When a slice is too short, or the input has no pixel and the output has.
pub fn resize(engine: &Engine, resize: &Resize, x: &[f32], y: &mut [f32]) -> Result<(), Error> {
    let &Resize { batch, in_h, in_w, channels, out_h, out_w, mode, .. } = resize;
    at_least("x", x.len(), size("x", &[batch, in_h, in_w, channels])?)?;
    let elements = size("y", &[batch, out_h, out_w, channels])?;
    at_least("y", y.len(), elements)?;
    if elements == 0 {
        return Ok(());
    }
    positive("input height", in_h)?;
    positive("input width", in_w)?;
    let _ = engine;
    let pixel = |image: usize, y: usize, x: usize| ((image * in_h + y) * in_w + x) * channels;
    for image in 0..batch {
        for oy in 0..out_h {
            let [top, bottom] = resize.sources(0, oy);
            for ox in 0..out_w {
                let [left, right] = resize.sources(1, ox);
                let y = &mut y[((image * out_h + oy) * out_w + ox) * channels..][..channels];
                if mode == ResizeMode::Nearest {
                    y.copy_from_slice(&x[pixel(image, top.0, left.0)..][..channels]);
                    continue;
                }
                for (c, y) in y.iter_mut().enumerate() {
                    let at = |y: usize, w: usize| x[pixel(image, y, w) + c];
                    let upper = left.1 * at(top.0, left.0) + right.1 * at(top.0, right.0);
                    let lower = left.1 * at(bottom.0, left.0) + right.1 * at(bottom.0, right.0);
                    *y = top.1 * upper + bottom.1 * lower;
                }
            }
        }
    }
    Ok(())
}

impl Resize {
    /// The two positions along an axis that make an output position, and their weights.
    fn sources(&self, axis: usize, position: usize) -> [(usize, f32); 2] {
        let (input, output) = if axis == 0 { (self.in_h, self.out_h) } else { (self.in_w, self.out_w) };
        let scale = match self.scales[axis] {
            Some(scale) if scale > 0.0 => (1.0 / f64::from(scale)) as f32,
            _ => input as f32 / output as f32,
        };
        let last = input - 1;
        match self.mode {
            ResizeMode::Nearest => {
                let source = if input == output { position } else { (position as f32 * scale) as usize };
                [(source.min(last), 1.0), (source.min(last), 0.0)]
            }
            ResizeMode::Bilinear if input == output => [(position, 1.0), (position, 0.0)],
            ResizeMode::Bilinear => {
                let source = if self.align_corners {
                    let scale = if output > 1 { last as f32 / (output - 1) as f32 } else { 0.0 };
                    position as f32 * scale
                } else {
                    (scale * (position as f32 + 0.5) - 0.5).max(0.0)
                };
                let first = (source as usize).min(last);
                let weight = (source - first as f32).clamp(0.0, 1.0);
                [(first, 1.0 - weight), ((first + 1).min(last), weight)]
            }
        }
    }
}
