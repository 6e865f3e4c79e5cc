//! Conversions between the element types of inputs and outputs and those inside.

use half::slice::HalfFloatSliceExt;
use rushlight_cpu_payload::{Buffer, Convert, ConvertedType, Direction, Half, MAX_POSITION};
use rushlight_engine::Engine;
use rushlight_runtime::{Bool8, Detail, Element, Result};

use super::RunStep;
use crate::error::Unfit;
use crate::memory::{StepContext, done};

impl RunStep for Convert {
    fn run(&self, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
        match self.element {
            ConvertedType::Half(Half::F16) => sixteen::<half::f16>(Half::F16, self, engine, cx),
            ConvertedType::Half(Half::Bf16) => sixteen::<half::bf16>(Half::Bf16, self, engine, cx),
            ConvertedType::Bool => truth(self, cx),
            ConvertedType::Int8 => bytes::<i8>(self, cx, |x| x.cast_unsigned() ^ 0x80, |x| (x ^ 0x80).cast_signed()),
            ConvertedType::Uint8 => bytes::<u8>(self, cx, |x| x, |x| x),
            ConvertedType::Int64 => positions(self, cx),
        }
    }
}

fn sixteen<T: Element>(half: Half, step: &Convert, engine: &Engine, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()>
where
    [T]: HalfFloatSliceExt,
{
    match step.direction {
        Direction::Enter => {
            let (y, reader) = cx.split(step.y)?;
            let x = match reader.buffer(step.x) {
                Some(Buffer::Input(_)) => reader.input::<T>(step.x)?.reinterpret_cast(),
                _ => reader.narrow(step.x)?,
            };
            done(rushlight_engine::widen(engine, half, x, y))
        }
        Direction::Leave => {
            if let Some(Buffer::Output(_)) = cx.memory.buffer(step.y) {
                let (y, reader, _) = cx.split_output::<T>(step.y)?;
                return done(rushlight_engine::narrow(engine, half, reader.floats(step.x)?, y.reinterpret_cast_mut()));
            }
            let (y, reader, _) = cx.split_narrow(step.y)?;
            done(rushlight_engine::narrow(engine, half, reader.floats(step.x)?, y))
        }
    }
}

fn truth(step: &Convert, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    match step.direction {
        Direction::Enter => {
            let (y, reader) = cx.split(step.y)?;
            each(reader.input::<Bool8>(step.x)?, y, |x| f32::from(u8::from(x.get())))
        }
        Direction::Leave => {
            let (y, reader, _) = cx.split_output::<Bool8>(step.y)?;
            each(reader.floats(step.x)?, y, |x| Bool8::from(x != 0.0))
        }
    }
}

/// Positions, which are floats inside.
fn positions(step: &Convert, cx: &mut StepContext<'_, '_, '_, '_>) -> Result<()> {
    match step.direction {
        Direction::Enter => {
            let (y, reader) = cx.split(step.y)?;
            let x = reader.input::<i64>(step.x)?;
            if let Some(index) = x.iter().find(|x| x.unsigned_abs() > MAX_POSITION.unsigned_abs()) {
                return Err(Detail::Index { index: *index, size: MAX_POSITION as usize }.into());
            }
            each(x, y, |x| x as f32)
        }
        Direction::Leave => {
            let (y, reader, _) = cx.split_output::<i64>(step.y)?;
            each(reader.floats(step.x)?, y, |x| x as i64)
        }
    }
}

/// Integers of 8 bits, which are u8 inside.
fn bytes<T: Element>(
    step: &Convert,
    cx: &mut StepContext<'_, '_, '_, '_>,
    enter: fn(T) -> u8,
    leave: fn(u8) -> T,
) -> Result<()> {
    match step.direction {
        Direction::Enter => {
            let (y, reader) = cx.split_quantized(step.y)?;
            each(reader.input::<T>(step.x)?, y, enter)
        }
        Direction::Leave => {
            let (y, reader, _) = cx.split_output::<T>(step.y)?;
            each(reader.quantized(step.x)?, y, leave)
        }
    }
}

/// Converts elements one by one.
fn each<T: Copy, U>(x: &[T], y: &mut [U], convert: impl Fn(T) -> U) -> Result<()> {
    if x.len() != y.len() {
        return Err(Unfit::Count { what: "elements of the result", expected: x.len(), got: y.len() }.into());
    }
    y.iter_mut().zip(x).for_each(|(y, x)| *y = convert(*x));
    Ok(())
}
