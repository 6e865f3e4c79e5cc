//! Numbers as kernels find and leave them: floats, or bf16 that stand for them.
//!
//! Where processors multiply pairs of bf16, what one product gives and the next one takes is as well rounded when it is stored:
//! half as much memory is written and read.
#![allow(unsafe_code)]

use core::marker::PhantomData;

use crate::arch::{Job, LANES, Level, Simd};
use crate::error::Error;
use crate::{Engine, Isa};

/// Numbers that are read.
#[derive(Debug, Clone, Copy)]
pub enum Numbers<'a> {
    F32(&'a [f32]),
    /// Where [`Engine::takes_bf16`] says so.
    Bf16(&'a [u16]),
}

/// Numbers that are written.
#[derive(Debug)]
pub enum NumbersMut<'a> {
    F32(&'a mut [f32]),
    /// As in [`Numbers`].
    Bf16(&'a mut [u16]),
}

impl<'a, T: AsRef<[f32]> + ?Sized> From<&'a T> for Numbers<'a> {
    fn from(floats: &'a T) -> Self {
        Self::F32(floats.as_ref())
    }
}

impl<'a, T: AsMut<[f32]> + ?Sized> From<&'a mut T> for NumbersMut<'a> {
    fn from(floats: &'a mut T) -> Self {
        Self::F32(floats.as_mut())
    }
}

impl Numbers<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(floats) => floats.len(),
            Self::Bf16(halves) => halves.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_bf16(&self) -> bool {
        matches!(self, Self::Bf16(_))
    }

    pub(crate) fn place(&self) -> Readable {
        match self {
            Self::F32(floats) => Readable::floats(floats.as_ptr()),
            Self::Bf16(halves) => Readable { at: halves.as_ptr().cast(), is_bf16: true },
        }
    }
}

impl NumbersMut<'_> {
    /// The same to be read.
    fn as_numbers(&self) -> Numbers<'_> {
        match self {
            Self::F32(floats) => Numbers::F32(floats),
            Self::Bf16(halves) => Numbers::Bf16(halves),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.as_numbers().len()
    }

    pub fn is_empty(&self) -> bool {
        self.as_numbers().is_empty()
    }

    pub(crate) fn is_bf16(&self) -> bool {
        self.as_numbers().is_bf16()
    }

    pub(crate) fn place(&mut self) -> Writable {
        match self {
            Self::F32(floats) => Writable::floats(floats.as_mut_ptr()),
            Self::Bf16(halves) => Writable { at: halves.as_mut_ptr().cast(), is_bf16: true },
        }
    }
}

impl Engine {
    /// Whether products, attention and depthwise convolutions take and give bf16: the processor multiplies pairs of them.
    pub fn takes_bf16(&self) -> bool {
        self.isa() == Isa::Avx512Bf16
    }

    /// That there are no bf16 where the processor does not take them.
    pub(crate) fn check_numbers(&self, any_bf16: bool) -> Result<(), Error> {
        if any_bf16 && !self.takes_bf16() { Err(Error::Unavailable(Isa::Avx512Bf16)) } else { Ok(()) }
    }
}

/// A type of [`Numbers`], in memory that is known to be of it.
pub(crate) trait Number: Copy + Send + Sync {
    const IS_BF16: bool;

    /// The first `n` numbers, at most 16, and zeros.
    ///
    /// # Safety
    /// `n` numbers are readable at `from`; the processor takes them.
    unsafe fn load<S: Simd>(s: S, from: *const Self, n: usize) -> S::V;

    /// # Safety
    /// `n` numbers, at most 16, are writable at `to`; the processor takes them.
    unsafe fn store<S: Simd>(s: S, to: *mut Self, n: usize, v: S::V);

    /// The bits of as many numbers as 32 bits have, of which there may be fewer.
    fn bits(numbers: &[Self]) -> f32;
}

impl Number for f32 {
    const IS_BF16: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const f32, n: usize) -> S::V {
        if n == LANES {
            // SAFETY: the caller vouches for 16 floats.
            unsafe { s.load(from) }
        } else {
            // SAFETY: the caller vouches for `n` floats.
            unsafe { s.load_part(from, n) }
        }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, to: *mut f32, n: usize, v: S::V) {
        if n == LANES {
            // SAFETY: the caller vouches for 16 floats.
            unsafe { s.store(to, v) };
        } else {
            // SAFETY: the caller vouches for `n` floats.
            unsafe { s.store_part(to, n, v) };
        }
    }

    #[inline(always)]
    fn bits(numbers: &[f32]) -> f32 {
        numbers.first().copied().unwrap_or(0.0)
    }
}

/// A job whose memory holds `T`.
struct On<T, J>(J, PhantomData<T>);

impl<T: Number, J: Job<Out = ()>> Job for On<T, J> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        on::<T, S, J>(s, self.0);
    }
}

/// Runs a job on numbers of this type, which the processor takes.
#[inline(always)]
pub(crate) fn on<T: Number, S: Simd, J: Job<Out = ()>>(s: S, job: J) {
    if const { !T::IS_BF16 } {
        s.vectorize(job);
    } else if const { S::MAY_DOT }
        && let Some(dots) = s.dots()
    {
        dots.vectorize(job);
    }
}

impl Level {
    /// Runs a job on numbers of this type, which the processor takes.
    pub(crate) fn run_on<T: Number, J: Job<Out = ()>>(self, job: J) {
        self.run(On::<T, J>(job, PhantomData));
    }
}

/// The bits of a bf16.
impl Number for u16 {
    const IS_BF16: bool = true;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const u16, n: usize) -> S::V {
        // SAFETY: the caller vouches for `n` numbers.
        unsafe { s.widen_bf16(from, n) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, to: *mut u16, n: usize, v: S::V) {
        // SAFETY: the caller vouches for `n` numbers.
        unsafe { s.store_bf16(to, n, v) };
    }

    #[inline(always)]
    fn bits(numbers: &[u16]) -> f32 {
        let number = |at: usize| numbers.get(at).copied().map_or(0, u32::from);
        f32::from_bits(number(1) << 16 | number(0))
    }
}

/// Where numbers are read, or nowhere.
#[derive(Clone, Copy)]
pub(crate) struct Readable {
    at: *const u8,
    is_bf16: bool,
}

/// Where numbers are written.
#[derive(Clone, Copy)]
pub(crate) struct Writable {
    at: *mut u8,
    is_bf16: bool,
}

/// Bytes of so many numbers, which are bf16 only where `S` takes them.
#[inline(always)]
fn bytes<S: Simd>(n: usize, is_bf16: bool) -> usize {
    n.wrapping_mul(if S::TAKES_BF16 && is_bf16 { size_of::<u16>() } else { size_of::<f32>() })
}

impl Readable {
    pub(crate) const NOWHERE: Readable = Readable::floats(core::ptr::null());

    pub(crate) const fn floats(at: *const f32) -> Self {
        Self { at: at.cast(), is_bf16: false }
    }

    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.at.is_null()
    }

    #[inline(always)]
    pub(crate) fn is_bf16(self) -> bool {
        self.is_bf16
    }

    /// So many numbers further on.
    #[inline(always)]
    pub(crate) fn plus<S: Simd>(self, _: S, n: usize) -> Self {
        Self { at: self.at.wrapping_add(bytes::<S>(n, self.is_bf16)), ..self }
    }

    /// Floats, unless they are bf16.
    #[inline(always)]
    pub(crate) fn as_floats(self) -> *const f32 {
        self.at.cast()
    }

    /// Bf16, unless they are floats.
    #[inline(always)]
    pub(crate) fn as_bf16(self) -> *const u16 {
        self.at.cast()
    }

    #[inline(always)]
    pub(crate) fn prefetch<S: Simd>(self, s: S) {
        s.prefetch(self.at.cast());
    }

    /// The first `n` numbers, at most 16, and zeros.
    ///
    /// # Safety
    /// `n` numbers are readable; those of bf16 only where `S` takes them.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd>(self, s: S, n: usize) -> S::V {
        if const { S::TAKES_BF16 } && self.is_bf16 {
            // SAFETY: the caller vouches for the numbers.
            unsafe { <u16 as Number>::load(s, self.at.cast(), n) }
        } else {
            // SAFETY: likewise.
            unsafe { <f32 as Number>::load(s, self.at.cast(), n) }
        }
    }
}

impl Writable {
    pub(crate) const fn floats(at: *mut f32) -> Self {
        Self { at: at.cast(), is_bf16: false }
    }

    #[inline(always)]
    pub(crate) fn is_bf16(self) -> bool {
        self.is_bf16
    }

    /// So many numbers further on.
    #[inline(always)]
    pub(crate) fn plus<S: Simd>(self, _: S, n: usize) -> Self {
        Self { at: self.at.wrapping_add(bytes::<S>(n, self.is_bf16)), ..self }
    }

    /// Floats, unless they are bf16.
    #[inline(always)]
    pub(crate) fn as_floats(self) -> *mut f32 {
        self.at.cast()
    }

    /// Bf16, unless they are floats.
    #[inline(always)]
    pub(crate) fn as_bf16(self) -> *mut u16 {
        self.at.cast()
    }

    /// # Safety
    /// `n` numbers, at most 16, are writable; those of bf16 only where `S` takes them.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd>(self, s: S, n: usize, v: S::V) {
        if const { S::TAKES_BF16 } && self.is_bf16 {
            // SAFETY: the caller vouches for the numbers.
            unsafe { <u16 as Number>::store(s, self.at.cast(), n, v) };
        } else {
            // SAFETY: likewise.
            unsafe { <f32 as Number>::store(s, self.at.cast(), n, v) };
        }
    }
}
