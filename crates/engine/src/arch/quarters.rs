//! What instruction sets with registers of four floats share: a vector is four registers, its quarters.
//!
//! The safety of all of it rests on the token: `Simd` is implemented for a type whose values exist only where the target
//! has the instructions.

/// Applies an operation to all quarters.
macro_rules! quarters {
    (|$i:ident| $operation:expr) => {{
        let quarter = |$i: usize| {
            // SAFETY: the token exists only where the target has the instructions; for memory, the caller vouches.
            unsafe { $operation }
        };
        [quarter(0), quarter(1), quarter(2), quarter(3)]
    }};
}
pub(super) use quarters;

/// Methods of `Simd` from vectors to a vector, by what they do with each quarter.
macro_rules! by_quarters {
    ($($method:ident($($v:ident),+) => $operation:expr;)+) => {$(
        #[inline(always)]
        fn $method(self, $($v: Self::V),+) -> Self::V {
            quarters!(|i| {
                $(let $v = $v[i];)+
                $operation
            })
        }
    )+};
}
pub(super) use by_quarters;

/// `Simd::transpose8` as four blocks of 4 rows of 4, by how such a row is loaded and stored, and a block transposed.
macro_rules! transpose8_by_quarters {
    ($load:path, $transpose4:path, $store:path) => {
        #[inline(always)]
        unsafe fn transpose8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
            for (i, j) in [(0, 0), (0, 4), (4, 0), (4, 4)] {
                let from = from.wrapping_add(i * from_stride + j);
                let to = to.wrapping_add(j * to_stride + i);
                let rows = quarters!(|row| $load(from.wrapping_add(row * from_stride)));
                // SAFETY: the token exists only where the target has the instructions.
                let columns = unsafe { $transpose4(rows) };
                quarters!(|column| $store(to.wrapping_add(column * to_stride), columns[column]));
            }
        }
    };
}
pub(super) use transpose8_by_quarters;

/// The methods of `Simd` that load and store bytes, by how 16 of them are widened and narrowed.
macro_rules! bytes_by_quarters {
    ($widen:path, $narrow:path) => {
        #[inline(always)]
        unsafe fn load_bytes(self, from: *const u8, n: usize) -> Self::V {
            if n < 16 {
                // SAFETY: the caller vouches for `n` bytes.
                return unsafe { super::load_bytes_portably(self, from, n) };
            }
            // SAFETY: the caller vouches for 16 bytes, and the token exists only where the target has the instructions.
            unsafe { $widen(from) }
        }

        #[inline(always)]
        unsafe fn store_bytes(self, to: *mut u8, n: usize, v: Self::V) {
            let mut bytes = [0u8; 16];
            // SAFETY: the array has 16 bytes, and the token exists only where the target has the instructions.
            unsafe { $narrow(v, bytes.as_mut_ptr()) };
            if n >= 16 {
                // SAFETY: the caller vouches for 16 bytes.
                unsafe { to.cast::<[u8; 16]>().write_unaligned(bytes) };
            } else {
                // SAFETY: the caller vouches for `n` bytes.
                unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, n) };
            }
        }
    };
}
pub(super) use bytes_by_quarters;

/// `Simd::nibbles`, by how a quarter's low and high four bits become signed bytes.
macro_rules! nibbles_by_quarters {
    ($low:path, $high:path) => {
        #[inline(always)]
        fn nibbles(self, v: Self::V) -> (Self::V, Self::V) {
            (quarters!(|i| $low(v[i])), quarters!(|i| $high(v[i])))
        }
    };
}
pub(super) use nibbles_by_quarters;
