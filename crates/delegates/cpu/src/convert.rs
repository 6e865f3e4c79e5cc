//! The border between types outside and floats inside.

use half::slice::HalfFloatSliceExt;
use rushlight_engine::{Engine, Half};
use rushlight_format::ScalarType;
use rushlight_format::cpu::Convert;
use rushlight_runtime::{Bool8, Element, Result};

use crate::error::damaged;
use crate::memory::{Site, done};

/// Runs a conversion.
pub(crate) fn convert(step: &Convert, engine: &Engine, site: &mut Site<'_, '_, '_, '_>) -> Result<()> {
    match step.dtype {
        ScalarType::Half => sixteen::<half::f16>(Half::F16, step, engine, site),
        ScalarType::BFloat16 => sixteen::<half::bf16>(Half::Bf16, step, engine, site),
        ScalarType::Bool => truth(step, site),
        _ => Err(damaged()),
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
            return Err(damaged());
        }
        y.iter_mut().zip(x).for_each(|(y, x)| *y = f32::from(u8::from(x.get())));
        return Ok(());
    }
    let (y, reader, _) = site.split_output::<Bool8>(step.y)?;
    let x = reader.floats(step.x)?;
    if x.len() != y.len() {
        return Err(damaged());
    }
    y.iter_mut().zip(x).for_each(|(y, x)| *y = Bool8::from(*x != 0.0));
    Ok(())
}
