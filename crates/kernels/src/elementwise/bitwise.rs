//! Bitwise operators and shifts.

use rushlight_runtime::{Bool8, KernelContext, Op, Result, ScalarType};

use crate::support::elementwise::{binary, map, out_broadcast, out_like, unary, zip};
use crate::support::promote;
use crate::support::tile::scalar_as;

/// `bitwise_not.out(Tensor self, *, Tensor(a!) out)`: logical for bool.
pub const BITWISE_NOT_OUT: Op = Op::new("aten::bitwise_not.out", 2, bitwise_not_out);

/// `$zip` makes a kernel of `$f`, which takes two values and the number of bits that the common type has, and whether it is signed.
macro_rules! bitwise {
    ($OUT:ident, $SCALAR_OUT:ident, $tensor:ident, $scalar:ident, $out:literal, $scalar_out:literal, $zip:ident($f:path)) => {
        #[doc = concat!("`", $out, "(Tensor self, Tensor other, *, Tensor(a!) out)`.")]
        pub const $OUT: Op = Op::new(concat!("aten::", $out), 3, $tensor);
        #[doc = concat!("`", $scalar_out, "(Tensor self, Scalar other, *, Tensor(a!) out)`.")]
        pub const $SCALAR_OUT: Op = Op::new(concat!("aten::", $scalar_out), 3, $scalar);

        fn $tensor(cx: &KernelContext<'_>) -> Result<()> {
            let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
            let common = promote::tensors(&a, &b)?;
            let mut out = out_broadcast(cx, 2, &a, &b, common)?;
            let width = width(common);
            compute!(INT, common, C => {
                binary(&a, &b, &mut out, (common, common, common), &$zip(move |x: C, y: C| $f(x, y, width)))
            })
        }

        fn $scalar(cx: &KernelContext<'_>) -> Result<()> {
            let (a, b) = (cx.tensor(0)?, cx.scalar(1)?);
            let common = promote::tensor_scalar(&a, b)?;
            let mut out = out_like(cx, 2, &a, common)?;
            let width = width(common);
            compute!(INT, common, C => {
                let b = scalar_as::<C>(b, common);
                unary(&a, &mut out, (common, common), &map(move |x: C| $f(x, b, width)))
            })
        }
    };
}

bitwise!(
    BITWISE_AND_TENSOR_OUT,
    BITWISE_AND_SCALAR_OUT,
    bitwise_and_tensor_out,
    bitwise_and_scalar_out,
    "bitwise_and.Tensor_out",
    "bitwise_and.Scalar_out",
    zip(Bits::and)
);
bitwise!(
    BITWISE_OR_TENSOR_OUT,
    BITWISE_OR_SCALAR_OUT,
    bitwise_or_tensor_out,
    bitwise_or_scalar_out,
    "bitwise_or.Tensor_out",
    "bitwise_or.Scalar_out",
    zip(Bits::or)
);
bitwise!(
    BITWISE_XOR_TENSOR_OUT,
    BITWISE_XOR_SCALAR_OUT,
    bitwise_xor_tensor_out,
    bitwise_xor_scalar_out,
    "bitwise_xor.Tensor_out",
    "bitwise_xor.Scalar_out",
    zip(Bits::xor)
);
bitwise!(
    BITWISE_LEFT_SHIFT_TENSOR_OUT,
    BITWISE_LEFT_SHIFT_TENSOR_SCALAR_OUT,
    bitwise_left_shift_tensor_out,
    bitwise_left_shift_tensor_scalar_out,
    "bitwise_left_shift.Tensor_out",
    "bitwise_left_shift.Tensor_Scalar_out",
    zip(Bits::left)
);
bitwise!(
    BITWISE_RIGHT_SHIFT_TENSOR_OUT,
    BITWISE_RIGHT_SHIFT_TENSOR_SCALAR_OUT,
    bitwise_right_shift_tensor_out,
    bitwise_right_shift_tensor_scalar_out,
    "bitwise_right_shift.Tensor_out",
    "bitwise_right_shift.Tensor_Scalar_out",
    zip_right(Bits::right)
);

pub const OPS: &[Op] = &[
    BITWISE_AND_TENSOR_OUT,
    BITWISE_AND_SCALAR_OUT,
    BITWISE_OR_TENSOR_OUT,
    BITWISE_OR_SCALAR_OUT,
    BITWISE_XOR_TENSOR_OUT,
    BITWISE_XOR_SCALAR_OUT,
    BITWISE_LEFT_SHIFT_TENSOR_OUT,
    BITWISE_LEFT_SHIFT_TENSOR_SCALAR_OUT,
    BITWISE_RIGHT_SHIFT_TENSOR_OUT,
    BITWISE_RIGHT_SHIFT_TENSOR_SCALAR_OUT,
    BITWISE_NOT_OUT,
];

fn bitwise_not_out(cx: &KernelContext<'_>) -> Result<()> {
    let a = cx.tensor(0)?;
    let dtype = a.dtype();
    let mut out = out_like(cx, 1, &a, dtype)?;
    if dtype == ScalarType::Bool {
        return unary(&a, &mut out, (dtype, dtype), &map(|x: Bool8| Bool8::from(!x.get())));
    }
    compute!(INT, dtype, C => unary(&a, &mut out, (dtype, dtype), &map(move |x: C| !x)))
}

/// Bits of a type, and whether it has a sign.
#[derive(Clone, Copy)]
struct Width {
    bits: u8,
    signed: bool,
}

fn width(dtype: ScalarType) -> Width {
    Width { bits: dtype.size() as u8 * 8, signed: !matches!(dtype, ScalarType::Byte | ScalarType::Bool) }
}

trait Bits: Sized {
    fn and(self, other: Self, width: Width) -> Self;
    fn or(self, other: Self, width: Width) -> Self;
    fn xor(self, other: Self, width: Width) -> Self;
    /// Zero for counts that are negative or at least the width.
    fn left(self, count: Self, width: Width) -> Self;
    /// Negative counts and those beyond the width leave the sign.
    fn right(self, count: Self, width: Width) -> Self;
    /// For counts that are [short](Self::is_short).
    fn right_short(self, count: Self) -> Self;
    /// True if a count is less than the width of `Self`.
    fn is_short(&self) -> bool;
}

/// A kernel from [`Bits::right`], which is only called for counts that are not short.
#[inline(always)]
fn zip_right<C: Bits + Copy>(right: impl Fn(C, C) -> C) -> impl Fn(&[C], &[C], &mut [C]) {
    // Without vectors: those of x86-64 shift all their elements by one count, and taking them apart takes longer.
    move |a, counts, out| {
        let shift = |a: C, count: C| if count.is_short() { a.right_short(count) } else { unlikely(&right, a, count) };
        let ((a, a_rest), (counts, counts_rest)) = (a.as_chunks::<4>(), counts.as_chunks::<4>());
        let (out, out_rest) = out.as_chunks_mut::<4>();
        for ((out, a), counts) in out.iter_mut().zip(a).zip(counts) {
            for i in 0..4 {
                out[i] = shift(a[i], counts[i]);
            }
        }
        for ((out, &a), &count) in out_rest.iter_mut().zip(a_rest).zip(counts_rest) {
            *out = shift(a, count);
        }
    }
}

/// A call that stays one.
#[cold]
#[inline(never)]
fn unlikely<C>(f: impl Fn(C, C) -> C, a: C, b: C) -> C {
    f(a, b)
}

macro_rules! bits {
    ($t:ty) => {
        impl Bits for $t {
            #[inline(always)]
            fn and(self, other: Self, _: Width) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self, _: Width) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self, _: Width) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn left(self, count: Self, width: Width) -> Self {
                if count < 0 || count >= <$t>::from(width.bits) { 0 } else { self.wrapping_shl(count as u32) }
            }
            #[inline(always)]
            fn right(self, count: Self, width: Width) -> Self {
                let max_shift = <$t>::from(width.bits) - <$t>::from(width.signed);
                let max_shift = max_shift.min(<$t>::BITS as $t - 1);
                self.wrapping_shr((if count < 0 || count > max_shift { max_shift } else { count }) as u32)
            }
            #[inline(always)]
            fn right_short(self, count: Self) -> Self {
                self.wrapping_shr(count as u32)
            }
            #[inline(always)]
            fn is_short(&self) -> bool {
                (0..<$t>::from(<$t>::BITS as u8)).contains(self)
            }
        }
    };
}

bits!(i32);
bits!(i64);
