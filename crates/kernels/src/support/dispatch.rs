//! Running one generic body for the element type that a tensor has at run time.
//!
//! `dispatch!(FAMILY, dtype, T => body)` evaluates `body`, a `Result`, with `T` as the Rust type of `dtype`, or fails
//! with `InvalidType`. The families carry ExecuTorch's names: REAL is `u8 i8 i16 i32 i64 f32 f64`, `H` adds `f16`,
//! `BF16` adds `bf16`, `B` adds `bool`; FLOAT is `f32 f64`; INT is `u8 i8 i16 i32 i64`.

macro_rules! dispatch_types {
    ($expected:literal, $dtype:expr, $T:ident => $body:expr, [$($variant:ident = $t:ty),* $(,)?]) => {
        match $dtype {
            $(rushlight_runtime::ScalarType::$variant => {
                #[allow(dead_code, reason = "some bodies do not name the type")]
                type $T = $t;
                $body
            })*
            got => Err(rushlight_runtime::Detail::Dtype { expected: $expected, got }.into()),
        }
    };
}

macro_rules! dispatch {
    (INT, $d:expr, $T:ident => $body:expr) => {
        dispatch_types!("u8, i8, i16, i32 or i64", $d, $T => $body,
            [Byte = u8, Char = i8, Short = i16, Int = i32, Long = i64])
    };
    (FLOAT, $d:expr, $T:ident => $body:expr) => {
        dispatch_types!("f32 or f64", $d, $T => $body, [Float = f32, Double = f64])
    };
    (FLOATHBF16, $d:expr, $T:ident => $body:expr) => {
        dispatch_types!("f16, bf16, f32 or f64", $d, $T => $body,
            [Float = f32, Double = f64, Half = half::f16, BFloat16 = half::bf16])
    };
    (REAL, $d:expr, $T:ident => $body:expr) => {
        dispatch_types!("an integer type, f32 or f64", $d, $T => $body,
            [Byte = u8, Char = i8, Short = i16, Int = i32, Long = i64, Float = f32, Double = f64])
    };
    (REALHBF16, $d:expr, $T:ident => $body:expr) => {
        dispatch_types!("an integer or floating type", $d, $T => $body,
            [Byte = u8, Char = i8, Short = i16, Int = i32, Long = i64, Float = f32, Double = f64,
             Half = half::f16, BFloat16 = half::bf16])
    };
    (REALHBBF16, $d:expr, $T:ident => $body:expr) => {
        dispatch_types!("bool, an integer or floating type", $d, $T => $body,
            [Byte = u8, Char = i8, Short = i16, Int = i32, Long = i64, Float = f32, Double = f64,
             Half = half::f16, BFloat16 = half::bf16, Bool = rushlight_runtime::Bool8])
    };
    (COMPLEXH, $d:expr, $T:ident => $body:expr) => {
        dispatch_types!("a complex type", $d, $T => $body,
            [ComplexHalf = rushlight_runtime::Complex<half::f16>, ComplexFloat = rushlight_runtime::Complex<f32>,
             ComplexDouble = rushlight_runtime::Complex<f64>])
    };
}

/// Operators that only move elements need their width, not their meaning: runs `body` with `N` as the bytes of one
/// element. `tensor.bytes().as_chunks::<N>().0` are the elements then.
macro_rules! dispatch_size {
    ($dtype:expr, $N:ident => $body:expr) => {
        dispatch_width!($dtype.size(), $N => $body)
    };
}

/// The same by the width itself: 1, 2, 4, 8 or 16 bytes.
macro_rules! dispatch_width {
    ($width:expr, $N:ident => $body:expr) => {
        match $width {
            1 => {
                const $N: usize = 1;
                $body
            }
            2 => {
                const $N: usize = 2;
                $body
            }
            4 => {
                const $N: usize = 4;
                $body
            }
            8 => {
                const $N: usize = 8;
                $body
            }
            _ => {
                const $N: usize = 16;
                $body
            }
        }
    };
}
