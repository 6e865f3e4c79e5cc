//! Arithmetic over element types with PyTorch's conversion rules.

use half::{bf16, f16};
use rushlight_runtime::{Bool8, Element, Scalar};

use crate::support::half_bits;

/// A real element type.
///
/// `Acc` is the type that sums and products over many elements use: `f32` for the 16-bit floats and `f32`, `f64` for
/// `f64`, `i64` for integers and bool, as PyTorch's CPU kernels do.
pub(crate) trait Number: Element + PartialEq + Default {
    type Acc: Number<Acc = Self::Acc> + Arithmetic;
    const ZERO: Self;
    const ONE: Self;
    const IS_FLOAT: bool;
    fn to_acc(self) -> Self::Acc;
    fn from_acc(value: Self::Acc) -> Self;
    fn to_f64(self) -> f64;
    /// C++'s `static_cast`: rounds to the nearest for floats; for integers truncates towards zero and keeps the low
    /// bits, NaN and values beyond `i64` become `i64::MIN` first, as on x86-64.
    fn from_f64(value: f64) -> Self;
    fn to_f32(self) -> f32;
    fn from_f32(value: f32) -> Self;
    fn to_i64(self) -> i64;
    /// Keeps the low bits, as C++ does.
    fn from_i64(value: i64) -> Self;
    fn is_nan(self) -> bool;

    fn from_scalar(value: Scalar) -> Self {
        match value {
            Scalar::Int(v) => Self::from_i64(v),
            Scalar::Double(v) => Self::from_f64(v),
            Scalar::Bool(v) => Self::from_i64(i64::from(v)),
        }
    }

    /// `static_cast` between element types, without a detour that loses bits.
    #[inline(always)]
    fn cast<U: Number>(self) -> U {
        if Self::IS_FLOAT {
            if size_of::<Self>() < 8 { U::from_f32(self.to_f32()) } else { U::from_f64(self.to_f64()) }
        } else if U::IS_FLOAT && size_of::<Self>() < 8 {
            // There are no vector conversions from 64-bit integers.
            if size_of::<U>() < 8 { U::from_f32(self.to_f32()) } else { U::from_f64(self.to_f64()) }
        } else {
            U::from_i64(self.to_i64())
        }
    }
}

/// The arithmetic of accumulators and other types that compute natively; integers wrap.
pub(crate) trait Arithmetic: Number + PartialOrd {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
}

pub(crate) fn f64_to_i64(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) { value as i64 } else { i64::MIN }
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Number for $t {
            type Acc = i64;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const IS_FLOAT: bool = false;
            #[inline(always)]
            fn to_acc(self) -> i64 { self as i64 }
            #[inline(always)]
            fn from_acc(value: i64) -> Self { value as Self }
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { f64_to_i64(value) as Self }
            #[inline(always)]
            fn to_f32(self) -> f32 { self as f32 }
            #[inline(always)]
            fn from_f32(value: f32) -> Self { f64_to_i64(f64::from(value)) as Self }
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { value as Self }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
        }
        impl Arithmetic for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
        }
    )*};
}

integer!(u8, i8, i16, i32, i64);

macro_rules! float {
    ($t:ty) => {
        impl Number for $t {
            type Acc = $t;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const IS_FLOAT: bool = true;
            #[inline(always)]
            fn to_acc(self) -> $t {
                self
            }
            #[inline(always)]
            fn from_acc(value: $t) -> Self {
                value
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as Self
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                value as Self
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                f64_to_i64(self as f64)
            }
            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as Self
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
        }
        impl Arithmetic for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
        }
    };
}

float!(f32);
float!(f64);

macro_rules! half_float {
    ($t:ty, $widen:path, $round:path) => {
        impl Number for $t {
            type Acc = f32;
            const ZERO: Self = <$t>::ZERO;
            const ONE: Self = <$t>::ONE;
            const IS_FLOAT: bool = true;
            #[inline(always)]
            fn to_acc(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn from_acc(value: f32) -> Self {
                $round(value)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from($widen(self))
            }
            /// Through `f32`, as PyTorch converts.
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                $round(value as f32)
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                $round(value)
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                f64_to_i64(f64::from($widen(self)))
            }
            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                $round(value as f32)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
        }
    };
}

half_float!(f16, half_bits::widen, half_bits::round);
half_float!(bf16, bf16::to_f32, bf16::from_f32);

impl Number for Bool8 {
    type Acc = i64;
    const ZERO: Self = Self(0);
    const ONE: Self = Self(1);
    const IS_FLOAT: bool = false;
    #[inline(always)]
    fn to_acc(self) -> i64 {
        i64::from(self.get())
    }
    #[inline(always)]
    fn from_acc(value: i64) -> Self {
        (value != 0).into()
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self.get()))
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        (value != 0.0).into()
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(u8::from(self.get()))
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        (value != 0.0).into()
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        i64::from(self.get())
    }
    #[inline(always)]
    fn from_i64(value: i64) -> Self {
        (value != 0).into()
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
}
