//! CPU kernels for neural networks, over plain slices and for every instruction set.
//!
//! Kernels: [`gemm()`] with packed f32, f16, bf16 and quantized weights and a fused [`Epilogue`] (bias, residual,
//! activation), batched [`matmul`], convolutions ([`conv2d`], [`conv3d`], [`depthwise2d`], [`conv_transpose2d`],
//! [`conv2d_winograd`]), [`attention()`], fused [`elementwise()`] programs, [`softmax()`], [`normalize()`], [`pool2d`],
//! [`resize()`], [`reduce()`], [`gather()`] and strided [`copy()`], and int8 versions of most of them (names that end in
//! `_u8`).
//!
//! An [`Engine`] is an instruction set, detected at run time, and a thread [`Pool`]. Every function takes one, validates
//! the sizes of its slices, and neither allocates nor locks; the caller provides scratch memory. Images are channels-last
//! (NHWC). Weights are packed ahead of time by [`pack`], in a layout that all instruction sets share.
//!
//! Results do not depend on the number of threads, bit for bit: tasks are blocks of the output, and each sum is computed by one of them. Int8 results are
//! the same on every instruction set; f32 results differ by rounding, because not all have fused multiply-add.
//!
//! The crate knows nothing of graphs, tensors or files.
//!
//! # Example
//!
//! A linear layer with ReLU, `y = relu(x W^T + bias)`:
//!
//! ```
//! use rushlight_engine::{Activation, Engine, Epilogue, Gemm, gemm, pack};
//!
//! let (m, n, k) = (2, 2, 3);
//! let weight = [1.0, 0.0, -1.0, 0.5, 0.5, 0.5]; // [n, k]
//! let packed = pack::matrix_f32(k, n, |row, column| weight[column * k + row]);
//!
//! let engine = Engine::new(1);
//! let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; // [m, k]
//! let bias = [1.0, -1.0];
//! let epilogue = Epilogue { bias: Some(&bias), activation: Activation::RELU, ..Epilogue::default() };
//! let mut y = [0.0; 4]; // [m, n]
//! gemm(&engine, &Gemm::new(m, n, k), &x, &packed, &mut y, &epilogue)?;
//! assert_eq!(y, [0.0, 2.0, 0.0, 6.5]);
//! # Ok::<(), rushlight_engine::Error>(())
//! ```
//!
//! # Features
//!
//! `std` (default): threads and run-time detection of instruction sets. Without it the crate is `no_std` with `alloc`,
//! runs on the calling thread, and uses the instruction sets of the compilation target. `wide-scalar` is for tests.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod arch;
mod attention;
mod conv;
mod convert;
mod copy;
mod delta_rule;
mod element;
mod elementwise;
mod epilogue;
mod error;
mod finite_range;
mod float16;
mod gather;
mod gather_elements;
mod gemm;
#[cfg(feature = "std")]
pub mod hwbench;
mod igemm;
mod normalize;
pub mod pack;
mod parallel;
#[cfg(feature = "std")]
mod parallel_map;
mod partition;
mod pool;
mod pooling;
#[cfg(feature = "std")]
pub mod profile;
mod quantization_error;
mod quantized;
mod reduce;
mod resize;
mod slice_ops;
mod softmax;
mod top_k;
mod weights;

pub use arch::Isa;
pub use attention::{
    Attention, AttentionInputs, HalfRows, KeyValueSlice, MaskStrides, NibbleRows, QuantizedRows, Strides, attention,
    attention_scratch, attention_supports_bf16_input, attention_supports_bf16_output,
};
pub use conv::{
    Conv2d, Conv3d, ConvTranspose2d, Winograd, WinogradWeights, conv_transpose2d, conv2d, conv2d_winograd,
    conv2d_winograd_scratch, conv3d, depthwise2d,
};
pub use convert::{narrow, widen};
pub use copy::{Copy, CopyElement, copy, fill};
pub use delta_rule::{DeltaRule, DeltaRuleInputs, delta_rule};
pub use element::{FloatSlice, FloatSliceMut};
pub use elementwise::{
    Binary, Data, DataMut, Instruction, MAX_DIMS, Operand, REGISTERS, Source, Unary, elementwise, elementwise_portable,
};
pub use epilogue::{Activation, Epilogue, Residual};
pub use error::Error;
pub use finite_range::{FiniteRange, finite_range};
pub use float16::Half;
pub use gather::{Indices, Table, gather};
pub use gather_elements::gather_elements;
pub use gemm::{Gemm, MIN_GEMM_ROWS, Matmul, gemm, gemm_scratch, gemm_with_scratch, matmul, matmul_scratch};
pub use igemm::{gemm_supports_bf16_input, gemm_supports_bf16_output, gemm_supports_bf16_residual};
pub use normalize::{Normalization, normalize};
#[cfg(feature = "std")]
pub use parallel_map::{on_threads_of, parallel_map};
#[cfg(feature = "std")]
pub use pool::fork_generation;
#[cfg(all(feature = "std", target_os = "unknown", target_feature = "atomics"))]
pub use pool::{LentThread, lose_lent_thread};
pub use pool::{MAX_THREADS, Pool};
pub use pooling::{AveragePool, Pool2d, PoolKind, pool2d};
pub use quantization_error::quantization_errors;
pub use quantized::{
    Affine, DynamicQuantization, GroupwiseEpilogue, MAX_QUANT_K, QuantEpilogue, QuantOut, QuantResidual, RowQparams,
    SoftmaxTable, ZeroPointRule, avg_pool2d_u8, choose_qparams, conv_transpose2d_u8, conv2d_u8, depthwise2d_u8,
    gemm_u8, gemm_u8_groupwise, lookup, max_pool2d_u8, mean_u8, pack_nibbles, quantize_rows, resize_u8, softmax_u8,
    unpack_nibbles,
};
pub use reduce::{Reduction, reduce};
pub use resize::{Resize, ResizeMode, resize};
pub use softmax::softmax;
pub use top_k::top_k;
pub use weights::{QuantizedWeights, Weights};

use arch::Dispatch;

/// Execution context of every function of this crate: an instruction set and a thread pool.
#[derive(Debug)]
pub struct Engine {
    dispatch: Dispatch,
    pool: Pool,
}

impl Engine {
    /// Creates an engine with the strongest instruction set of this machine and `threads` threads, including the caller
    /// (0 counts as 1).
    pub fn new(threads: usize) -> Self {
        Self { dispatch: Dispatch::best(), pool: Pool::new(threads) }
    }

    /// Creates an engine with a given instruction set, for tests and comparisons.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if this machine does not support it.
    pub fn with_isa(isa: Isa, threads: usize) -> Result<Self, Error> {
        let dispatch = Dispatch::of(isa).ok_or(Error::Unavailable(isa))?;
        Ok(Self { dispatch, pool: Pool::new(threads) })
    }

    /// Creates an engine with the register tile of AVX-512 in portable code, so that its control flow is tested on every
    /// machine.
    #[cfg(feature = "wide-scalar")]
    pub fn wide_scalar(threads: usize) -> Self {
        Self { dispatch: Dispatch::WideScalar(arch::WideScalar::new()), pool: Pool::new(threads) }
    }

    /// Returns true if both sides of a GEMM with bf16 weights are rounded to bf16: where bf16 is supported, and by the portable
    /// register tile of AVX-512.
    pub fn rounds_to_bf16(&self) -> bool {
        #[cfg(feature = "wide-scalar")]
        if matches!(self.dispatch, Dispatch::WideScalar(_)) {
            return true;
        }
        self.supports_bf16()
    }

    /// Instruction set of the kernels.
    pub fn isa(&self) -> Isa {
        self.dispatch.isa()
    }

    /// The thread pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Number of threads, including the caller.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }
}
