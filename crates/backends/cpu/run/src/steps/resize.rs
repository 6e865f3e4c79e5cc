//! Resizing of images.

use rushlight_cpu_payload::Resize;
use rushlight_engine::{Engine, QuantOut};
use rushlight_runtime::Result;

use super::RunStep;
use crate::memory::{NOT_QUANTIZED, StepContext, done};

impl RunStep for Resize {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader, _) = cx.split_quant_out(self.y)?;
        let ([batch, in_h, in_w, channels], [_, out_h, out_w, _]) = (reader.image(self.x)?, reader.image(self.y)?);
        let Self { mode, align_corners, scales, .. } = *self;
        let resize =
            rushlight_engine::Resize { batch, in_h, in_w, channels, out_h, out_w, mode, align_corners, scales };
        done(match y {
            QuantOut::Floats(y) => rushlight_engine::resize(engine, &resize, reader.floats(self.x)?, y),
            QuantOut::Bytes(y, to) => {
                let from = reader.affine(self.x).ok_or(NOT_QUANTIZED)?;
                rushlight_engine::resize_u8(engine, &resize, reader.quantized(self.x)?, from, y, to)
            }
        })
    }
}
