//! Packed weights in the types that they may have.
#![allow(unsafe_code)]

mod integers;

use alloc::vec::Vec;

use crate::Half;
use crate::arch::{Job, LANES, Simd};
use crate::error::{Error, at_least};

pub use integers::Integers;

/// What a function of [`pack`](crate::pack) made, as it is or rounded to 16 bits by [`pack::halves`](crate::pack::halves).
///
/// Sums are in f32. Products widen weights of 16 bits on the way, except where the processor multiplies pairs of bf16
/// ([`Isa::Avx512Bf16`](crate::Isa::Avx512Bf16)): there the left side is rounded to bf16 too, unless it has fewer than four
/// rows.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a> {
    F32(&'a [f32]),
    Half(Half, &'a [u16]),
    /// Of matrix products alone.
    Integers(Integers<'a>),
}

impl<'a> From<&'a [f32]> for Weights<'a> {
    fn from(weights: &'a [f32]) -> Self {
        Self::F32(weights)
    }
}

impl<'a> From<&'a Vec<f32>> for Weights<'a> {
    fn from(weights: &'a Vec<f32>) -> Self {
        Self::F32(weights)
    }
}

impl Weights<'_> {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(weights) => weights.len(),
            Self::Half(_, weights) => weights.len(),
            Self::Integers(integers) => integers.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `at`, which is at most their number, and the others. Integers are not divided.
    pub(crate) fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::F32(weights) => {
                let (first, others) = weights.split_at(at);
                (Self::F32(first), Self::F32(others))
            }
            Self::Half(half, weights) => {
                let (first, others) = weights.split_at(at);
                (Self::Half(half, first), Self::Half(half, others))
            }
            Self::Integers(_) => (self, self),
        }
    }

    /// That they are at least `expected` numbers, in panels of `rows` if they are integers. `None`: they may not be.
    pub(crate) fn check(&self, expected: usize, rows: Option<usize>) -> Result<(), Error> {
        let what = "packed weights";
        if let Self::Integers(integers) = self
            && rows != Some(integers.rows())
        {
            return Err(Error::Mismatch { what, expected: rows.unwrap_or(0), got: integers.rows() });
        }
        at_least(what, self.len(), expected)
    }
}

/// Packed weights of one type, a line of 16 at a time.
pub(crate) trait Lines: Copy {
    /// The line from `at` on, which is a multiple of 16.
    ///
    /// # Safety
    /// There are as many weights.
    unsafe fn line<S: Simd>(self, s: S, at: usize) -> S::V;

    /// The two lines from `at` on, which is a multiple of 32: panels have an even number of lines.
    ///
    /// # Safety
    /// There are as many weights.
    #[inline(always)]
    unsafe fn two<S: Simd>(self, s: S, at: usize) -> [S::V; 2] {
        // SAFETY: the caller vouches for both.
        [unsafe { self.line(s, at) }, unsafe { self.line(s, at + LANES) }]
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Floats(pub(crate) *const f32);

impl Lines for Floats {
    #[inline(always)]
    unsafe fn line<S: Simd>(self, s: S, at: usize) -> S::V {
        // SAFETY: the caller vouches for 16 floats.
        unsafe { s.load(self.0.wrapping_add(at)) }
    }
}

/// [`Half::F16`]
#[derive(Clone, Copy)]
pub(crate) struct F16(pub(crate) *const u16);

impl Lines for F16 {
    #[inline(always)]
    unsafe fn line<S: Simd>(self, s: S, at: usize) -> S::V {
        // SAFETY: the caller vouches for 16 numbers.
        unsafe { s.widen_f16(self.0.wrapping_add(at)) }
    }
}

/// [`Half::Bf16`]: lines in pairs.
#[derive(Clone, Copy)]
pub(crate) struct Bf16(pub(crate) *const u16);

impl Lines for Bf16 {
    #[inline(always)]
    unsafe fn line<S: Simd>(self, s: S, at: usize) -> S::V {
        let pair = at / (2 * LANES) * (2 * LANES);
        // SAFETY: panels have whole pairs.
        let lines = unsafe { s.widen_pairs(self.0.wrapping_add(pair)) };
        lines[usize::from(at > pair)]
    }

    #[inline(always)]
    unsafe fn two<S: Simd>(self, s: S, at: usize) -> [S::V; 2] {
        debug_assert!(at.is_multiple_of(2 * LANES), "the first line of a pair");
        // SAFETY: the caller vouches for two lines.
        unsafe { s.widen_pairs(self.0.wrapping_add(at)) }
    }
}

/// Writes `lines` lines of weights that are no floats as floats, from `first` on, which is a multiple of 16.
pub(crate) struct Widen<'a> {
    pub(crate) packed: Weights<'a>,
    pub(crate) first: usize,
    pub(crate) lines: usize,
    /// As many floats.
    pub(crate) to: *mut f32,
}

impl Widen<'_> {
    /// # Safety
    /// The weights are there, and as many floats are writable.
    pub(crate) unsafe fn run<S: Simd>(self, s: S) {
        s.vectorize(self);
    }

    #[inline(always)]
    fn lines<S: Simd>(&self, s: S, lines: impl Lines) {
        let to = |line: usize| self.to.wrapping_add(line * LANES);
        let single = self.lines.min(self.first / LANES % 2);
        let last = self.lines - (self.lines - single) % 2;
        for line in (single..last).step_by(2) {
            // SAFETY: `run` asks for the weights.
            let [one, other] = unsafe { lines.two(s, self.first + line * LANES) };
            // SAFETY: `run` asks for as many floats.
            unsafe { s.store(to(line), one) };
            // SAFETY: likewise.
            unsafe { s.store(to(line + 1), other) };
        }
        for line in (0..single).chain(last..self.lines) {
            // SAFETY: `run` asks for the weights.
            let v = unsafe { lines.line(s, self.first + line * LANES) };
            // SAFETY: `run` asks for as many floats.
            unsafe { s.store(to(line), v) };
        }
    }
}

impl Job for Widen<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.packed {
            // They are read where they are.
            Weights::F32(_) => {}
            Weights::Half(Half::F16, packed) => self.lines(s, F16(packed.as_ptr())),
            Weights::Half(Half::Bf16, packed) => self.lines(s, Bf16(packed.as_ptr())),
            // SAFETY: `run` asks for all of it.
            Weights::Integers(integers) => unsafe {
                integers::widen(s, &integers, self.first, self.lines, self.to);
            },
        }
    }
}
