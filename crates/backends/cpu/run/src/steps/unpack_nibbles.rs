//! Unpacking of 4-bit integers.

use rushlight_cpu_payload::UnpackNibbles;
use rushlight_engine::Engine;
use rushlight_runtime::Result;

use super::RunStep;
use crate::memory::{StepContext, done};

impl RunStep for UnpackNibbles {
    fn run(&self, _: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (y, reader) = cx.split_quantized(self.y)?;
        done(rushlight_engine::unpack_nibbles(reader.quantized(self.x)?, y))
    }
}
