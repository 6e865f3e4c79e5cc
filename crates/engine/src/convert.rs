//! Conversions of slices between f32 and 16-bit floating-point formats.
#![allow(unsafe_code)]

use crate::Engine;
use crate::arch::{Kernel, Simd};
use crate::error::{Error, at_least};
use crate::float16::{Half, from_bf16, from_f16, to_bf16, to_f16};
use crate::parallel::SharedOutput;

/// Widens `x` to f32, exactly.
///
/// # Errors
/// When `y` is shorter than `x`.
pub fn widen(engine: &Engine, half: Half, x: &[u16], y: &mut [f32]) -> Result<(), Error> {
    at_least("y", y.len(), x.len())?;
    let y = SharedOutput::new(y);
    engine.parallel_for(x.len(), MIN_TASK_ELEMENTS, |range| {
        // SAFETY: ranges are disjoint.
        let y = unsafe { y.slice(range.clone()) };
        engine.dispatch.run(WidenSlice { half, x: &x[range], y });
    });
    Ok(())
}

/// Rounds `x` to a 16-bit format, to nearest, ties to even; overflows to infinity.
///
/// # Errors
/// When `y` is shorter than `x`.
pub fn narrow(engine: &Engine, half: Half, x: &[f32], y: &mut [u16]) -> Result<(), Error> {
    at_least("y", y.len(), x.len())?;
    let y = SharedOutput::new(y);
    engine.parallel_for(x.len(), MIN_TASK_ELEMENTS, |range| {
        // SAFETY: ranges are disjoint.
        let y = unsafe { y.slice(range.clone()) };
        engine.dispatch.run(NarrowSlice { half, x: &x[range], y });
    });
    Ok(())
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 32 << 10;

struct WidenSlice<'a> {
    half: Half,
    x: &'a [u16],
    y: &'a mut [f32],
}

impl Kernel for WidenSlice<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // Loops over a single operation, which the compiler vectorizes.
        match self.half {
            Half::F16 => self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y = from_f16(*x)),
            Half::Bf16 => self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y = from_bf16(*x)),
        }
    }
}

struct NarrowSlice<'a> {
    half: Half,
    x: &'a [f32],
    y: &'a mut [u16],
}

impl Kernel for NarrowSlice<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self.half {
            Half::F16 => self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y = to_f16(*x)),
            Half::Bf16 => self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y = to_bf16(*x)),
        }
    }
}
