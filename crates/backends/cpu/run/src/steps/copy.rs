//! Strided copies.

use rushlight_cpu_payload::{Buffer, Copy, Half};
use rushlight_engine::{CopyElement, Engine};
use rushlight_runtime::Result;

use super::RunStep;
use crate::bf16_choice::Choice;
use crate::error::{Unfit, of_engine};
use crate::memory::{MovedMut, StepContext};

impl RunStep for Copy {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (shapes, rank) = (cx.shapes, self.sizes.len());
        let lists = [shapes.present(&self.sizes)?, shapes.present(&self.x_strides)?, shapes.present(&self.y_strides)?];
        let [sizes, x_strides, y_strides] = lists.each_ref().map(|list| list.get(..rank).unwrap_or_default());
        let (x_offset, y_offset) = (shapes.size(self.x_offset)?, shapes.size(self.y_offset)?);
        let copy = rushlight_engine::Copy { sizes, x_offset, x_strides, y_offset, y_strides };
        let memory = cx.memory;
        let (y, reader) = cx.split_moved(self.y)?;
        let copied = match y {
            MovedMut::Floats(y) => fill_and_copy(engine, &copy, self.fill, reader.floats(self.x)?, y),
            MovedMut::Half(y, half) => {
                let fill = self.fill.map(|value| match half {
                    Half::F16 => half::f16::from_f32(value).to_bits(),
                    Half::Bf16 => half::bf16::from_f32(value).to_bits(),
                });
                fill_and_copy(engine, &copy, fill, reader.half_bits(self.x, half)?, y)
            }
            MovedMut::Bytes(y) => {
                let fill = self.fill.map(|value| value as u8);
                fill_and_copy(engine, &copy, fill, reader.quantized(self.x)?, y)
            }
        };
        copied.map_err(|error| match (error, memory.buffer(self.y)) {
            // The end depends on positions that the caller gives.
            (rushlight_engine::Error::Mismatch { what: "y", expected: end, .. }, Some(Buffer::State(_))) => {
                Unfit::BeyondState { end }.into()
            }
            (error, _) => of_engine(error),
        })
    }

    /// A copy that only GEMMs read may be rounded, and then so may what it copies.
    fn restrict_bf16(&self, choice: &mut Choice<'_>) -> bool {
        let read = !choice.is_for_gemms(self.y) && choice.read(self.x);
        read | choice.both(self.x, self.y)
    }
}

/// Copies elements into a tensor. Fills it first if the step has a fill value.
fn fill_and_copy<T: CopyElement>(
    engine: &Engine,
    copy: &rushlight_engine::Copy<'_>,
    fill: Option<T>,
    x: &[T],
    y: &mut [T],
) -> core::result::Result<(), rushlight_engine::Error> {
    if let Some(value) = fill {
        rushlight_engine::fill(engine, y, value)?;
    }
    rushlight_engine::copy(engine, copy, x, y)
}
