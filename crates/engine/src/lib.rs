//! Level 0. Fast math over slices, for every instruction set: matrix products and convolutions with their fused tails,
//! attention, elementwise programs, softmax and norms, pooling, reductions, and copies of all kinds.
//!
//! It knows nothing of graphs, tensors or files. An [`Engine`] is an instruction set and a [`Pool`] of threads; every
//! function takes one, checks the sizes of its slices, and neither allocates nor locks. Scratch memory is lent by the
//! caller. Feature maps have channels last (NHWC). Weights are packed ahead of time by [`pack`], in one layout that every
//! instruction set reads.
//!
//! Results do not depend on the number of threads, bit for bit: work is split over outputs, never over sums. Between
//! instruction sets they differ by rounding, because scalar code has no fused multiply-add.
#![cfg_attr(not(feature = "std"), no_std)]
#![allow(clippy::self_named_module_files, reason = "its modules are being moved to `mod.rs`")]

extern crate alloc;

mod arch;
mod attention;
mod conv;
mod convert;
mod copy;
mod cut;
mod elementwise;
mod error;
mod extent;
mod fold;
mod gather;
mod gemm;
#[cfg(feature = "std")]
pub mod hwbench;
mod isa;
mod normalise;
mod numbers;
pub mod pack;
mod pool;
mod pooling;
mod product;
mod quantized;
mod reduce;
mod resize;
mod rounding;
mod softmax;
mod split;
mod tail;
#[cfg(test)]
mod tests;
mod weights;

pub use attention::{Attention, MaskStrides, Strides, attends_bf16, attends_to_bf16, attention, attention_scratch};
pub use conv::{
    Conv2d, Conv3d, ConvTranspose2d, Winograd, conv_transpose2d, conv2d, conv2d_winograd, conv2d_winograd_scratch,
    conv3d, depthwise2d,
};
pub use convert::{Half, narrow, widen};
pub use copy::{Copy, Movable, copy, fill};
pub use elementwise::{Binary, Data, DataMut, Instruction, MAX_DIMS, Operand, REGISTERS, Source, Unary, elementwise};
pub use error::Error;
pub use extent::{Extent, extent};
pub use gather::{Indices, Table, gather};
pub use gemm::{FEW_ROWS, Gemm, Matmul, gemm, matmul, matmul_scratch};
pub use isa::Isa;
pub use normalise::{Normalise, normalise};
pub use numbers::{Numbers, NumbersMut};
#[cfg(feature = "std")]
pub use pool::fork_generation;
pub use pool::{MAX_THREADS, Pool};
pub use pooling::{Mean, Pool2d, pool2d};
pub use product::{gives_bf16, takes_bf16, takes_bf16_residual};
pub use quantized::{
    Affine, Choice, DynamicRows, GroupTail, MAX_QUANT_K, QuantOut, QuantResidual, QuantTail, RowScales, SoftmaxTable,
    choose_rows, conv_transpose2d_u8, conv2d_u8, depthwise2d_u8, gemm_groups, gemm_u8, lookup, max_pool2d_u8,
    mean_pool2d_u8, mean_u8, quantize_rows, resize_u8, softmax_u8,
};
pub use reduce::{Fold, reduce};
pub use resize::{Resize, ResizeMode, resize};
pub use rounding::{Grid, rounding_error};
pub use softmax::softmax;
pub use tail::{Activation, Residual, Tail};
pub use weights::{Integers, Weights};

use arch::Level;

/// An instruction set and a pool of threads: what every function of this crate computes with.
#[derive(Debug)]
pub struct Engine {
    level: Level,
    pool: Pool,
}

impl Engine {
    #[cfg(test)]
    pub(crate) fn with_level(level: Level, threads: usize) -> Self {
        Self { level, pool: Pool::new(threads) }
    }

    /// The best instruction set of this machine and `threads` threads, the caller's among them (0 counts as 1).
    pub fn new(threads: usize) -> Self {
        Self { level: Level::best(), pool: Pool::new(threads) }
    }

    /// A given instruction set, for tests and comparisons.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where this machine does not have it.
    pub fn with_isa(isa: Isa, threads: usize) -> Result<Self, Error> {
        let level = Level::of(isa).ok_or(Error::Unavailable(isa))?;
        Ok(Self { level, pool: Pool::new(threads) })
    }

    pub fn isa(&self) -> Isa {
        self.level.isa()
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How many threads take part, the caller's among them.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}
