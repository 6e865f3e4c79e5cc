//! Element types of activations: f32 or bf16.
//!
//! With bf16 dot products, a GEMM rounds its inputs to bf16 anyway. Storing an intermediate result as bf16 then loses
//! nothing for the next GEMM and halves the memory traffic.
#![allow(unsafe_code)]

use core::marker::PhantomData;

use crate::arch::{Dispatch, Kernel, LANES, Simd};
use crate::error::Error;
use crate::{Engine, Isa};

/// Input elements: a slice of f32 or of bf16 bit patterns.
#[derive(Debug, Clone, Copy)]
pub enum FloatSlice<'a> {
    F32(&'a [f32]),
    /// Supported where [`Engine::supports_bf16`] returns true.
    Bf16(&'a [u16]),
}

/// Output elements: a slice of f32 or of bf16 bit patterns.
#[derive(Debug)]
pub enum FloatSliceMut<'a> {
    F32(&'a mut [f32]),
    /// Supported where [`Engine::supports_bf16`] returns true.
    Bf16(&'a mut [u16]),
}

impl<'a, T: AsRef<[f32]> + ?Sized> From<&'a T> for FloatSlice<'a> {
    fn from(floats: &'a T) -> Self {
        Self::F32(floats.as_ref())
    }
}

impl<'a, T: AsMut<[f32]> + ?Sized> From<&'a mut T> for FloatSliceMut<'a> {
    fn from(floats: &'a mut T) -> Self {
        Self::F32(floats.as_mut())
    }
}

impl FloatSlice<'_> {
    /// The elements after the first `count`.
    pub(crate) fn after(self, count: usize) -> Self {
        match self {
            Self::F32(floats) => Self::F32(floats.get(count..).unwrap_or_default()),
            Self::Bf16(bits) => Self::Bf16(bits.get(count..).unwrap_or_default()),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(floats) => floats.len(),
            Self::Bf16(bits) => bits.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_bf16(&self) -> bool {
        matches!(self, Self::Bf16(_))
    }

    pub(crate) fn as_ptr(&self) -> ElementPtr {
        match self {
            Self::F32(floats) => ElementPtr::f32(floats.as_ptr()),
            Self::Bf16(bits) => ElementPtr { at: bits.as_ptr().cast(), is_bf16: true },
        }
    }
}

impl FloatSliceMut<'_> {
    /// Reborrows as input elements.
    fn reborrow(&self) -> FloatSlice<'_> {
        match self {
            Self::F32(floats) => FloatSlice::F32(floats),
            Self::Bf16(bits) => FloatSlice::Bf16(bits),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.reborrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.reborrow().is_empty()
    }

    pub(crate) fn is_bf16(&self) -> bool {
        self.reborrow().is_bf16()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> ElementPtrMut {
        match self {
            Self::F32(floats) => ElementPtrMut::f32(floats.as_mut_ptr()),
            Self::Bf16(bits) => ElementPtrMut { at: bits.as_mut_ptr().cast(), is_bf16: true },
        }
    }
}

impl Engine {
    /// Returns true if GEMMs, attention, depthwise convolutions and other kernels accept bf16 activations: the
    /// processor has bf16 dot products.
    pub fn supports_bf16(&self) -> bool {
        matches!(self.isa(), Isa::Avx512Bf16 | Isa::Amx)
    }

    /// Rejects bf16 elements where the processor does not support them.
    pub(crate) fn check_bf16_support(&self, any_bf16: bool) -> Result<(), Error> {
        if any_bf16 && !self.supports_bf16() { Err(Error::Unavailable(Isa::Avx512Bf16)) } else { Ok(()) }
    }
}

/// An element type of [`FloatSlice`], for code that is monomorphized over it.
pub(crate) trait Element: Copy + Send + Sync {
    const IS_BF16: bool;

    /// Loads the first `n` elements (at most 16) and zeroes the other lanes.
    ///
    /// # Safety
    /// `n` elements are readable at `from`; the processor supports the type.
    unsafe fn load<S: Simd>(s: S, from: *const Self, n: usize) -> S::V;

    /// Stores the first `n` elements (at most 16).
    ///
    /// # Safety
    /// `n` elements are writable at `to`; the processor supports the type.
    unsafe fn store<S: Simd>(s: S, to: *mut Self, n: usize, v: S::V);

    /// Packs one f32 or two bf16 into 32 bits; missing elements are zero.
    fn bits(elements: &[Self]) -> f32;
}

impl Element for f32 {
    const IS_BF16: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const f32, n: usize) -> S::V {
        if n == LANES {
            // SAFETY: the caller guarantees 16 floats.
            unsafe { s.load(from) }
        } else {
            // SAFETY: the caller guarantees `n` floats.
            unsafe { s.load_partial(from, n) }
        }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, to: *mut f32, n: usize, v: S::V) {
        if n == LANES {
            // SAFETY: the caller guarantees 16 floats.
            unsafe { s.store(to, v) };
        } else {
            // SAFETY: the caller guarantees `n` floats.
            unsafe { s.store_partial(to, n, v) };
        }
    }

    #[inline(always)]
    fn bits(elements: &[f32]) -> f32 {
        elements.first().copied().unwrap_or(0.0)
    }
}

/// A kernel on elements of type `T`.
struct ForElement<T, K>(K, PhantomData<T>);

impl<T: Element, K: Kernel<Out = ()>> Kernel for ForElement<T, K> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        run_for_element::<T, S, K>(s, self.0);
    }
}

/// Runs a kernel on elements of type `T`, with the bf16 token if it needs one. Does nothing if the processor does not
/// support the type.
#[inline(always)]
pub(crate) fn run_for_element<T: Element, S: Simd, K: Kernel<Out = ()>>(s: S, kernel: K) {
    if const { !T::IS_BF16 } {
        s.vectorize(kernel);
    } else if const { S::MAY_HAVE_BF16 }
        && let Some(bf16) = s.with_bf16()
    {
        bf16.vectorize(kernel);
    }
}

impl Dispatch {
    /// Runs a kernel on elements of type `T`, which the processor supports.
    pub(crate) fn run_for<T: Element, K: Kernel<Out = ()>>(self, kernel: K) {
        self.run(ForElement::<T, K>(kernel, PhantomData));
    }
}

/// bf16 bit patterns.
impl Element for u16 {
    const IS_BF16: bool = true;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const u16, n: usize) -> S::V {
        // SAFETY: the caller guarantees `n` elements.
        unsafe { s.load_bf16(from, n) }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, to: *mut u16, n: usize, v: S::V) {
        // SAFETY: the caller guarantees `n` elements.
        unsafe { s.store_bf16(to, n, v) };
    }

    #[inline(always)]
    fn bits(elements: &[u16]) -> f32 {
        let element = |at: usize| elements.get(at).copied().map_or(0, u32::from);
        f32::from_bits(element(1) << 16 | element(0))
    }
}

/// Pointer to input elements of either type; may be null.
#[derive(Clone, Copy)]
pub(crate) struct ElementPtr {
    at: *const u8,
    is_bf16: bool,
}

/// Pointer to output elements of either type.
#[derive(Clone, Copy)]
pub(crate) struct ElementPtrMut {
    at: *mut u8,
    is_bf16: bool,
}

/// Size of `n` elements in bytes; they can be bf16 only where `S` supports it.
#[inline(always)]
fn bytes<S: Simd>(n: usize, is_bf16: bool) -> usize {
    n.wrapping_mul(if S::HAS_BF16 && is_bf16 { size_of::<u16>() } else { size_of::<f32>() })
}

impl ElementPtr {
    pub(crate) const NULL: ElementPtr = ElementPtr::f32(core::ptr::null());

    pub(crate) const fn f32(at: *const f32) -> Self {
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

    /// Advances by `n` elements.
    #[inline(always)]
    pub(crate) fn add<S: Simd>(self, _: S, n: usize) -> Self {
        Self { at: self.at.wrapping_add(bytes::<S>(n, self.is_bf16)), ..self }
    }

    /// Casts to f32; valid if the elements are f32.
    #[inline(always)]
    pub(crate) fn as_f32(self) -> *const f32 {
        self.at.cast()
    }

    /// Casts to bf16; valid if the elements are bf16.
    #[inline(always)]
    pub(crate) fn as_bf16(self) -> *const u16 {
        self.at.cast()
    }

    #[inline(always)]
    pub(crate) fn prefetch<S: Simd>(self, s: S) {
        s.prefetch(self.at.cast());
    }

    /// Loads the first `n` elements (at most 16) and zeroes the other lanes.
    ///
    /// # Safety
    /// `n` elements are readable, and are bf16 only where `S` supports it.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd>(self, s: S, n: usize) -> S::V {
        if const { S::HAS_BF16 } && self.is_bf16 {
            // SAFETY: the caller guarantees the elements.
            unsafe { <u16 as Element>::load(s, self.at.cast(), n) }
        } else {
            // SAFETY: likewise.
            unsafe { <f32 as Element>::load(s, self.at.cast(), n) }
        }
    }
}

impl ElementPtrMut {
    pub(crate) const fn f32(at: *mut f32) -> Self {
        Self { at: at.cast(), is_bf16: false }
    }

    #[inline(always)]
    pub(crate) fn is_bf16(self) -> bool {
        self.is_bf16
    }

    /// Advances by `n` elements.
    #[inline(always)]
    pub(crate) fn add<S: Simd>(self, _: S, n: usize) -> Self {
        Self { at: self.at.wrapping_add(bytes::<S>(n, self.is_bf16)), ..self }
    }

    /// Casts to f32; valid if the elements are f32.
    #[inline(always)]
    pub(crate) fn as_f32(self) -> *mut f32 {
        self.at.cast()
    }

    /// Casts to bf16; valid if the elements are bf16.
    #[inline(always)]
    pub(crate) fn as_bf16(self) -> *mut u16 {
        self.at.cast()
    }

    /// Stores the first `n` elements (at most 16).
    ///
    /// # Safety
    /// `n` elements are writable, and are bf16 only where `S` supports it.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd>(self, s: S, n: usize, v: S::V) {
        if const { S::HAS_BF16 } && self.is_bf16 {
            // SAFETY: the caller guarantees the elements.
            unsafe { <u16 as Element>::store(s, self.at.cast(), n, v) };
        } else {
            // SAFETY: likewise.
            unsafe { <f32 as Element>::store(s, self.at.cast(), n, v) };
        }
    }
}
