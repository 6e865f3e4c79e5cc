//! Int8 kernels for microcontrollers, over plain slices: convolutions, linear layers, pooling, softmax, sums, copies.
//!
//! Level 0. Every kernel gives the bits of CMSIS-NN's int8 function of the same name, on every machine: no kernel uses
//! floating point, a heap or scratch memory. Images are channels-last (NHWC), convolution weights `[O, H, W, I]`, and
//! depthwise weights `[H, W, O]`.
//!
//! A quantized tensor stands for `(q - zero_point) * scale`. Kernels take the negated zero point of an input as its
//! `offset`, and the scales as one fixed-point [`Scale`], which the compiler computes.
//!
//! The crate knows nothing of graphs, tensors or files, and [`rushlight-engine`] is the one for larger machines.
//!
//! # Example
//!
//! A linear layer of two inputs and one output, `1 * 3 + 2 * 4 + 1 = 12`, scaled by a half:
//!
//! ```
//! use rushlight_engine_mcu::{Linear, Output, Scale, Scales, linear};
//!
//! let layer = Linear {
//!     inner: 2,
//!     outputs: 1,
//!     weight: &[3, 4],
//!     bias: Some(&[1]),
//!     scales: Scales::Tensor(Scale { multiplier: 1 << 30, shift: 0 }),
//!     input_offset: 0,
//!     weight_offset: 0,
//!     output: Output { offset: 0, min: i8::MIN, max: i8::MAX },
//! };
//! let mut out = [0];
//! linear(&layer, &[1, 2], &mut out)?;
//! assert_eq!(out, [6]);
//! # Ok::<(), rushlight_engine_mcu::Mismatch>(())
//! ```
//!
//! # Decisions
//!
//! - **One integer definition for all cores.** CMSIS-NN's scalar, DSP and MVE functions give the same bits, and so do these. Sums
//!   wrap in 32 bits. A multiplier that saturates in one of CMSIS-NN's variants alone (`i32::MIN` twice) wraps.
//! - **Padding is skipped, not stored.** CMSIS-NN fills padded positions with the zero point, whose product is zero. Windows that
//!   are cut at the border give the same sums, and need no column buffer.
//! - **Arguments are checked once a call.** A kernel returns [`Mismatch`] before it writes anything, if a slice is shorter than
//!   the shapes say, so that no index is out of bounds later. Results are defined for every other value of every argument.
//! - **A kernel is one function over one struct**, so that firmware links the kernels that its operators name, and no table.
//!
//! [`rushlight-engine`]: https://docs.rs/rushlight-engine
#![no_std]
#![forbid(unsafe_code)]

mod conv2d;
mod conv_transpose2d;
mod depthwise2d;
mod dot;
mod elementwise;
mod image;
mod layout;
mod linear;
mod pool2d;
mod requantize;
mod softmax;

pub use conv_transpose2d::{ConvTranspose2d, conv_transpose2d};
pub use conv2d::{Conv2d, conv2d};
pub use depthwise2d::{Depthwise2d, depthwise2d};
pub use elementwise::{Add, Mul, look_up};
pub use image::{Axis, Image, Window};
pub use layout::{pad, transpose};
pub use linear::{Linear, linear};
pub use pool2d::{Pool2d, avg_pool2d, max_pool2d};
pub use requantize::{Output, Scale, Scales};
pub use softmax::{Softmax, softmax};

/// A slice is shorter or longer than the shapes say, or a shape is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

impl Mismatch {
    /// Fails if `is_valid` is false.
    fn unless(is_valid: bool) -> Result<(), Self> {
        if is_valid { Ok(()) } else { Err(Self) }
    }
}
