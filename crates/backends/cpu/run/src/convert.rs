//! The border between types outside and floats inside.

use half::slice::HalfFloatSliceExt;
use rushlight_cpu_payload::Convert;
use rushlight_engine::{Engine, Half};
use rushlight_format::ScalarType;
use rushlight_runtime::{Bool8, Element, Result};

use crate::error::Unfit;
use crate::memory::{Site, done};

/// Runs a conversion.
pub(crate) fn convert(step: &Convert, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    match step.dtype {
        ScalarType::Half => sixteen::<half::f16>(Half::F16, step, engine, site),
        ScalarType::BFloat16 => sixteen::<half::bf16>(Half::Bf16, step, engine, site),
        ScalarType::Bool => truth(step, site),
        ScalarType::Char => bytes::<i8>(step, site, |x| x.cast_unsigned() ^ 0x80, |x| (x ^ 0x80).cast_signed()),
        ScalarType::Byte => bytes::<u8>(step, site, |x| x, |x| x),
        got => Err(Unfit::Dtype { expected: "Half, BFloat16, Bool, Char or Byte", got }.into()),
    }
}

fn sixteen<T: Element>(half: Half, step: &Convert, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()>
where
    [T]: HalfFloatSliceExt,
{
    if step.enters {
        let (y, reader) = site.split(step.y)?;
        let x = reader.input::<T>(step.x)?.reinterpret_cast();
        return done(rushlight_engine::widen(engine, half, x, y));
    }
    let (y, reader, _) = site.split_output::<T>(step.y)?;
    done(rushlight_engine::narrow(engine, half, reader.floats(step.x)?, y.reinterpret_cast_mut()))
}

fn truth(step: &Convert, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    if step.enters {
        let (y, reader) = site.split(step.y)?;
        let x = reader.input::<Bool8>(step.x)?;
        if x.len() != y.len() {
            return Err(Unfit::Count { what: "elements of the result", expected: x.len(), got: y.len() }.into());
        }
        y.iter_mut().zip(x).for_each(|(y, x)| *y = f32::from(u8::from(x.get())));
        return Ok(());
    }
    let (y, reader, _) = site.split_output::<Bool8>(step.y)?;
    let x = reader.floats(step.x)?;
    if x.len() != y.len() {
        return Err(Unfit::Count { what: "elements of the result", expected: x.len(), got: y.len() }.into());
    }
    y.iter_mut().zip(x).for_each(|(y, x)| *y = Bool8::from(*x != 0.0));
    Ok(())
}

/// Integers of 8 bits, which are bytes inside.
fn bytes<T: Element>(
    step: &Convert,
    site: &mut Site<'_, '_, '_, '_>,
    enter: fn(T) -> u8,
    leave: fn(u8) -> T,
) -> Result<()> {
    if step.enters {
        let (y, reader) = site.split_bytes(step.y)?;
        let x = reader.input::<T>(step.x)?;
        if x.len() != y.len() {
            return Err(Unfit::Count { what: "elements of the result", expected: x.len(), got: y.len() }.into());
        }
        y.iter_mut().zip(x).for_each(|(y, x)| *y = enter(*x));
        return Ok(());
    }
    let (y, reader, _) = site.split_output::<T>(step.y)?;
    let x = reader.bytes(step.x)?;
    if x.len() != y.len() {
        return Err(Unfit::Count { what: "elements of the result", expected: x.len(), got: y.len() }.into());
    }
    y.iter_mut().zip(x).for_each(|(y, x)| *y = leave(*x));
    Ok(())
}
