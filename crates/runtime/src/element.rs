//! The Rust types of tensor elements.

use half::{bf16, f16};
use rushlight_format::ScalarType;

/// One byte of a `Bool` tensor. Any non-zero byte is true, so every byte from a file is a valid value.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool8(pub u8);

impl Bool8 {
    #[inline(always)]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool8 {
    #[inline(always)]
    fn from(value: bool) -> Self {
        Self(value as u8)
    }
}

impl From<Bool8> for bool {
    #[inline(always)]
    fn from(value: Bool8) -> Self {
        value.get()
    }
}

impl PartialEq for Bool8 {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl core::fmt::Debug for Bool8 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.get().fmt(f)
    }
}

/// A complex number, real part first, as PyTorch stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    pub re: T,
    pub im: T,
}

mod sealed {
    pub trait Sealed {}
}

/// A type whose slices can view a tensor's bytes: plain data, every bit pattern valid, no padding.
///
/// Sealed, because the tensor accessors rely on those properties.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The scalar type of tensors that hold this element.
    const DTYPE: ScalarType;
}

macro_rules! elements {
    ($($t:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: ScalarType = ScalarType::$dtype;
        }
    )*};
}

elements! {
    u8 => Byte, i8 => Char, i16 => Short, i32 => Int, i64 => Long,
    f16 => Half, bf16 => BFloat16, f32 => Float, f64 => Double, Bool8 => Bool,
    u16 => UInt16, u32 => UInt32, u64 => UInt64,
    Complex<f16> => ComplexHalf, Complex<f32> => ComplexFloat, Complex<f64> => ComplexDouble,
}
