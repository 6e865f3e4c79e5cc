//! The functions of `f32` and `f64` that `core` lacks, behind one name for both.

use crate::support::number::Number;
use crate::support::runs::Accumulator;

/// `f32` or `f64`.
pub(crate) trait Real: Accumulator + core::ops::Div<Output = Self> {
    fn floor(self) -> Self;
    /// To the nearest integer, halves to the even one.
    fn round(self) -> Self;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn powf(self, exponent: Self) -> Self;

    fn of(value: usize) -> Self {
        <Self as Number>::from_f64(value as f64)
    }

    /// The larger one; `other` if `self` is NaN.
    fn at_least(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    /// The smaller one; `other` if `self` is NaN.
    fn at_most(self, other: Self) -> Self {
        if self < other { self } else { other }
    }
}

macro_rules! real {
    ($t:ty, $floor:path, $round:path, $abs:path, $sqrt:path, $pow:path) => {
        impl Real for $t {
            #[inline(always)]
            fn floor(self) -> Self {
                $floor(self)
            }
            #[inline(always)]
            fn round(self) -> Self {
                $round(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $abs(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $sqrt(self)
            }
            fn powf(self, exponent: Self) -> Self {
                $pow(self, exponent)
            }
        }
    };
}

real!(f32, libm::floorf, libm::rintf, libm::fabsf, libm::sqrtf, libm::powf);
real!(f64, libm::floor, libm::rint, libm::fabs, libm::sqrt, libm::pow);
