//! Copies to indexed places.

use rushlight_cpu_payload::Scatter;
use rushlight_engine::{CopyElement, Engine};
use rushlight_runtime::{Detail, Result};

use super::RunStep;
use crate::error::Unfit;
use crate::memory::{MovedMut, StepContext, done};

impl RunStep for Scatter {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        let (shapes, rank) = (cx.shapes, self.sizes.len());
        let lists = [shapes.present(&self.sizes)?, shapes.present(&self.x_strides)?, shapes.present(&self.y_strides)?];
        let [sizes, x_strides, y_strides] = lists.each_ref().map(|list| list.get(..rank).unwrap_or_default());
        let [x_offset, x_step, y_offset, y_step, dim_size] =
            [self.x_offset, self.x_step, self.y_offset, self.y_step, self.dim_size].map(|size| shapes.size(size));
        let (x_offset, x_step, y_offset, y_step, dim_size) = (x_offset?, x_step?, y_offset?, y_step?, dim_size?);
        let (y, reader) = cx.split_moved(self.y)?;
        let indices = reader.floats(self.indices)?;
        let place = |index: f32| {
            let index = index as i64;
            let from_start = if index < 0 { index.saturating_add(dim_size as i64) } else { index };
            usize::try_from(from_start).ok().filter(|place| *place < dim_size)
        };
        // Writes nothing if an index is out of range.
        if let Some(index) = indices.iter().find(|index| place(**index).is_none()) {
            return Err(Detail::Index { index: *index as i64, size: dim_size }.into());
        }
        let slices = indices.iter().filter_map(|index| place(*index)).enumerate().map(|(t, place)| {
            let at = |offset: usize, index: usize, step: usize| index.checked_mul(step)?.checked_add(offset);
            let (x_offset, y_offset) =
                at(x_offset, t, x_step).zip(at(y_offset, place, y_step)).ok_or(Unfit::Overflow)?;
            Ok(rushlight_engine::Copy { sizes, x_offset, x_strides, y_offset, y_strides })
        });
        match y {
            MovedMut::Floats(y) => copy_slices(engine, slices, reader.floats(self.x)?, y),
            MovedMut::Half(y, half) => copy_slices(engine, slices, reader.half_bits(self.x, half)?, y),
            MovedMut::Bytes(y) => copy_slices(engine, slices, reader.quantized(self.x)?, y),
        }
    }
}

fn copy_slices<'a, T: CopyElement>(
    engine: &Engine,
    mut slices: impl Iterator<Item = Result<rushlight_engine::Copy<'a>>>,
    x: &[T],
    y: &mut [T],
) -> Result<()> {
    slices.try_for_each(|slice| done(rushlight_engine::copy(engine, &slice?, x, y)))
}
