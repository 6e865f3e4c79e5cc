//! Resizing of images.

use rushlight_engine::ResizeMode;

use crate::codec::{structure, union};
use crate::tensors::Tensors;
use crate::{PayloadError, Sizes, StepKind, TensorId};

/// Resizes an image `[N, H, W, C]`, in f32 or from u8 to u8. The nearest mode copies bytes as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    pub x: TensorId,
    pub y: TensorId,
    pub mode: ResizeMode,
    pub align_corners: bool,
    /// Ratios of output size to input size, if the caller gave a factor.
    pub scales: [Option<f32>; 2],
}

structure! { Resize { x, y, mode, align_corners, scales } }

union! { ResizeMode { 0 Nearest, 1 Bilinear } }

impl StepKind for Resize {
    fn name(&self) -> &'static str {
        "resize"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        visit(self.x);
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        tensors.quantized(self.y, tensors.is_quantized(self.x))
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        match self.mode {
            ResizeMode::Nearest => 0.0,
            ResizeMode::Bilinear => 6.0 * sizes.elements(self.y) as f64,
        }
    }
}

#[cfg(test)]
impl crate::examples::Examples for Resize {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        let step = |mode, scales| Resize { x: 1, y: 2, mode, align_corners: true, scales };
        [
            (step(ResizeMode::Nearest, [None; 2]), "0a010200010000"),
            (step(ResizeMode::Bilinear, [Some(0.5), Some(2.0)]), "0a01020101010000003f0100000040"),
        ]
    }
}
