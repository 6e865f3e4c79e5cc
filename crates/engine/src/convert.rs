//! Floats of 16 bits and of 32.
#![allow(unsafe_code)]

use crate::Engine;
use crate::arch::{Job, Simd};
use crate::error::{Error, at_least};
use crate::split::Output;

/// A format of 16 bits, whose numbers are given by their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// IEEE 754's binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
}

/// `y[i]` is the number `x[i]`, which is exact.
///
/// # Errors
/// When `y` is shorter than `x`.
pub fn widen(engine: &Engine, half: Half, x: &[u16], y: &mut [f32]) -> Result<(), Error> {
    at_least("y", y.len(), x.len())?;
    let y = Output::new(y);
    engine.for_ranges(x.len(), LEAST, |range| {
        // SAFETY: ranges are disjoint.
        let y = unsafe { y.slice(range.clone()) };
        engine.level.run(Widen { half, x: &x[range], y });
    });
    Ok(())
}

/// `y[i]` is the number nearest to `x[i]`, of two that are as near the even one; infinity beyond the greatest.
///
/// # Errors
/// When `y` is shorter than `x`.
pub fn narrow(engine: &Engine, half: Half, x: &[f32], y: &mut [u16]) -> Result<(), Error> {
    at_least("y", y.len(), x.len())?;
    let y = Output::new(y);
    engine.for_ranges(x.len(), LEAST, |range| {
        // SAFETY: ranges are disjoint.
        let y = unsafe { y.slice(range.clone()) };
        engine.level.run(Narrow { half, x: &x[range], y });
    });
    Ok(())
}

/// Elements for which a task is worth handing over.
const LEAST: usize = 32 << 10;

struct Widen<'a> {
    half: Half,
    x: &'a [u16],
    y: &'a mut [f32],
}

impl Job for Widen<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // Loops over one operation each, which compilers turn into vectors.
        match self.half {
            Half::F16 => self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y = from_f16(*x)),
            Half::Bf16 => self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y = from_bf16(*x)),
        }
    }
}

struct Narrow<'a> {
    half: Half,
    x: &'a [f32],
    y: &'a mut [u16],
}

impl Job for Narrow<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self.half {
            Half::F16 => self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y = to_f16(*x)),
            Half::Bf16 => self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y = to_bf16(*x)),
        }
    }
}

/// The bits of infinity, which are above those of all numbers.
const INFINITY: u32 = 255 << 23;

#[inline(always)]
pub(crate) fn from_f16(x: u16) -> f32 {
    let (sign, magnitude) = (u32::from(x & 0x8000) << 16, u32::from(x & 0x7fff));
    // Exponents of the two formats are 112 apart, which a product brings together: also where there is no leading one.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    let special = if magnitude >= 0x7c00 { INFINITY } else { 0 };
    f32::from_bits(scaled.to_bits() | special | sign)
}

#[inline(always)]
pub(crate) fn to_f16(x: f32) -> u16 {
    let (sign, magnitude) = ((x.to_bits() >> 16) as u16 & 0x8000, x.to_bits() & 0x7fff_ffff);
    // Added to one half, what is below the least normal number of 16 bits has its bits where they belong.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let finite = if magnitude < 113 << 23 { small } else { normal };
    let large = if magnitude > INFINITY { 0x7e00 } else { 0x7c00 };
    sign | if magnitude >= 143 << 23 { large } else { finite as u16 }
}

#[inline(always)]
pub(crate) fn from_bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if bits & 0x7fff_ffff > INFINITY { (bits >> 16) as u16 | 0x40 } else { rounded }
}
