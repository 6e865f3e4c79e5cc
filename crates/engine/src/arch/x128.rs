//! Shared implementation of the instruction sets with 128-bit registers, where a vector is four registers.
//!
//! Safety of the macros rests on the token: `Simd` is implemented for a type whose values exist only where the target
//! supports the instructions.

/// Evaluates an expression for each of the four registers of a vector.
macro_rules! each_register {
    (|$i:ident| $operation:expr) => {{
        let register = |$i: usize| {
            // SAFETY: the token exists only where the target has the instructions; the caller guarantees the memory.
            unsafe { $operation }
        };
        [register(0), register(1), register(2), register(3)]
    }};
}
pub(super) use each_register;

/// Defines `Simd` methods register by register.
macro_rules! register_wise {
    ($($method:ident($($v:ident),+) => $operation:expr;)+) => {$(
        #[inline(always)]
        fn $method(self, $($v: Self::V),+) -> Self::V {
            each_register!(|i| {
                $(let $v = $v[i];)+
                $operation
            })
        }
    )+};
}
pub(super) use register_wise;

/// Defines `Simd::transpose8` as four 4 x 4 transposes, given the load, the transpose and the store of four floats.
macro_rules! transpose8_register_wise {
    ($load:path, $transpose4:path, $store:path) => {
        #[inline(always)]
        unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
            for (i, j) in [(0, 0), (0, 4), (4, 0), (4, 4)] {
                let from = from.wrapping_add(i * from_stride + j);
                let to = to.wrapping_add(j * to_stride + i);
                let rows = each_register!(|row| $load(from.wrapping_add(row * from_stride)));
                // SAFETY: the token exists only where the target has the instructions.
                let columns = unsafe { $transpose4(rows) };
                each_register!(|column| $store(to.wrapping_add(column * to_stride), columns[column]));
            }
        }
    };
}
pub(super) use transpose8_register_wise;

/// Defines the `Simd` methods that load and store u8, given the widening and the narrowing of 16 bytes.
#[cfg(not(target_arch = "aarch64"))]
macro_rules! u8_register_wise {
    ($widen:path, $narrow:path) => {
        #[inline(always)]
        unsafe fn load_u8(self, from: *const u8, n: usize) -> super::I32<Self> {
            if n < 16 {
                // SAFETY: the caller guarantees `n` bytes.
                return unsafe { super::load_u8_portable(self, from, n) };
            }
            // SAFETY: the caller guarantees 16 bytes, and the token exists only where the target has the instructions.
            super::I32(unsafe { $widen(from) })
        }

        #[inline(always)]
        unsafe fn store_as_u8(self, to: *mut u8, n: usize, v: Self::V) {
            let mut bytes = [0u8; 16];
            // SAFETY: the array has 16 bytes, and the token exists only where the target has the instructions.
            unsafe { $narrow(v, bytes.as_mut_ptr()) };
            if n >= 16 {
                // SAFETY: the caller guarantees 16 bytes.
                unsafe { to.cast::<[u8; 16]>().write_unaligned(bytes) };
            } else {
                // SAFETY: the caller guarantees `n` bytes.
                unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, n) };
            }
        }
    };
}
#[cfg(not(target_arch = "aarch64"))]
pub(super) use u8_register_wise;

/// Defines `Simd::unpack_nibbles`, given the extraction of the low and of the high nibbles of one register.
macro_rules! nibbles_register_wise {
    ($low:path, $high:path) => {
        #[inline(always)]
        fn unpack_nibbles(self, v: super::U8Quads<Self>) -> (super::I8Quads<Self>, super::I8Quads<Self>) {
            let v = v.0;
            (super::I8Quads(each_register!(|i| $low(v[i]))), super::I8Quads(each_register!(|i| $high(v[i]))))
        }
    };
}
pub(super) use nibbles_register_wise;
