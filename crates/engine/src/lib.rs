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
//! Results do not depend on the number of threads, bit for bit: tasks are blocks of the output, and one task computes each
//! sum. Int8 results are the same on every instruction set. F32 results differ by rounding, because some instruction sets
//! have no fused multiply-add.
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
//!
//! # Decisions
//!
//! - **A vector is 16 lanes everywhere.** That is a panel of packed weights: one register of AVX-512, two of AVX2, four of NEON,
//!   SSE2 or WebAssembly. Each kernel is written once, over the trait `Simd`, and compiled for every instruction set where it is
//!   dispatched (`arch`). All of a kernel must be inlined into the function that enables the instructions. Kernels therefore avoid
//!   closures with several call sites, which may not be inlined. Long chains of dependent operations are written over
//!   `Arithmetic`, a part of `Simd` that groups of vectors implement, too (`arch/interleaved.rs`): groups of four with AVX-512.
//! - **Kernels are instantiated in this crate alone.** A public function that takes `impl Into<...>` converts, and calls one that
//!   is not generic (`..._impl`). Otherwise its callers' crates would compile the kernels of all instruction sets again.
//! - **One packed layout per type**, whatever the machine: `[N/16][K][16]`, with K made even by a row of zeros. [`pack`] is the
//!   contract with the compiler.
//! - **Convolution is an indirect GEMM.** Every GEMM reads its left side through a buffer with a pointer for each row and kernel
//!   position. The same driver (`igemm`) serves 1x1, k x k, grouped, dilated and three-dimensional convolutions, and each phase of
//!   a transposed one. No im2col copy of the input is made.
//! - **Sums never depend on threads.** Tasks are blocks of the output; each sum is accumulated in the order of K. Tasks are as
//!   equal as tiles allow, with the same number for each thread (`partition.rs`, `parallel.rs`), so that all threads end together.
//! - **Attention of few queries streams the cache.** Keys and values are read in place, in blocks of all heads that stay in the L2
//!   cache. The next block is prefetched in the order of memory; going head by head, each key would be on another page. Tasks are
//!   parts of the keys, merged in order (`attention/split.rs`). The shape alone determines their number.
//! - **16-bit weights are widened where they are read.** A macrokernel writes its block of a panel to the L1 cache as f32, once for
//!   all of its tiles. GEMV, for fewer than four rows, widens as it goes. Accumulators are f32, so that results are those of
//!   rounded weights and nothing else.
//! - **bf16 dot products are the exception** (`Simd::WithBf16`). The left side is rounded and copied, 64 KB at a time, and the
//!   tiles are the same over pairs (`igemm/narrow_weights.rs`). bf16 weights are therefore stored as `[N/16][K/2][16][2]`. There,
//!   GEMM, attention, depthwise convolutions, pooling and a few others also read and write bf16 (`FloatSlice`). A left side of bf16
//!   is read in place, all of K at once. A kernel row over an image of three channels may have an odd number of elements: image
//!   rows are then rounded into strips, where the last element is stored twice, and each copy has half of the weight
//!   (`conv/kernel_rows.rs`).
//! - **Int8 GEMM is exact, and so is its epilogue** (`quantized/`). Accumulators are `i32`. Scales, bounds and rounding are applied
//!   operation by operation in f32, never fused, so that all instruction sets give the same bytes. Functions with exponentials are
//!   a table that portable code makes when a program is loaded: 256 bytes, or the 256 values that a softmax accumulates. Weights
//!   are packed as `[N/16][K/4][16][4]`, because an int8 dot product reads four rows of K. Instruction sets without it use dot
//!   products of 16-bit pairs, which are exact, too. Accumulators that are only scaled and bounded are converted to bytes in the
//!   registers of the tile, four vectors at a time. Other epilogues read a copy in the L1 cache (`quantized/epilogue.rs`).
//! - **Arm multiplies by element.** A register holds 4 floats or 16 bytes of a row, each of which an instruction multiplies by a
//!   register of weights; f32 sums stay in the order of K (`Simd::multiply_f32`, `multiply_int8`). `sdot` and `smull` take signed
//!   bytes: 128 is subtracted from the left side, and 128 times the column sums is part of the initial accumulators. With I8MM, a
//!   panel that many rows read is rearranged for `usmmla`. Without DotProd, pairs of products are added in i16, where two of -128
//!   and -128 do not fit: weights of -128 take a slower loop. Few rows multiply groups of 4- and 8-bit weights unsigned, and the
//!   weights' bias times the sum of the row is subtracted. Many rows multiply groups that are unpacked to signed bytes, once for each
//!   panel (`arch/group_rows.rs`). Depthwise convolutions interleave the rows of a column to quads, 16 channels at a time
//!   (`arch/depthwise_rows.rs`). LLVM reorders long blocks of code until their operands do not fit in registers:
//!   `neon_instructions::in_order` and `opaque` keep the order (`arch/neon_int8.rs`, `neon_groupwise.rs`, `neon_depthwise.rs`).
//!   The instructions of kernels are counted in an emulator, against `xtask/src/counts/kernels.txt`.
//! - **Weight-only quantization has one layout** (`pack/quantized.rs`): integers of 4, 6 or 8 bits in groups of rows, with zero
//!   points or minima. Scales are f32, f16, or a byte times an f16 unit that 256 rows share, as in llama.cpp's K types.
//!   Where 16-bit dot products are faster than f32 (`Simd::HAS_I16_DOT`), rows are rounded to 16-bit integers with one scale for
//!   each 256 elements, and dot products are those of integers (`gemm/int16/`). For 12 rows and more, weights are unpacked to the
//!   L1 cache; for fewer, in registers. With VNNI, 4-bit weights are multiplied by the low and the high bytes of rows
//!   (`gemm/int16/gemv.rs`). All three give a row the same result. On other processors, GEMM widens the weights like 16-bit ones.
//!   GEMV there multiplies the integers and scales the sum of each group; the sum of the left side accounts for the minimum.
//! - **AMX multiplies one group at a time.** A tile has 64 elements of K and most groups 32. The left side of two groups is
//!   multiplied by the weights of one, with zeros for the other (`arch/amx.rs`). The sums of each group leave the tiles to be
//!   scaled as elsewhere, which gives the same bits. A software pipeline keeps the matmuls of the next groups in flight
//!   (`quantized/groupwise_amx.rs`). 16-bit rows are split into low and high bytes, whose i32 results are combined
//!   (`gemm/int16/amx.rs`). With weights of 4 bits in groups of 32, both bytes are exact in tiles of bf16, which add them in one
//!   f32 tile (`gemm/int16/amx_bf16.rs`). The system call that permits tiles is made when the instruction set is first detected.
//! - **An embedding's table is a quantized matrix, too.** Its rows are the columns of the matrix, as in a weight-only linear layer,
//!   so that tied weights are stored once (`weights/quantized.rs`).
//! - **Winograd's algorithm is the caller's choice**, because its weights are packed differently and its error is larger.
//! - **The engine measures itself** ([`hwbench`]): the machine's limits of computing and reading, for the profile, and the time of
//!   each variant of each kernel beside the chosen one, for `rushlight hwbench`.
//! - **A job does not wait for workers that are late.** The caller closes the gate of the job when no task is left. A worker that
//!   wakes afterwards does not enter, and the caller waits only for those inside (`pool/gate.rs`, whose interleavings `loom/` tries).
//!   Threads are the system's, or the embedder lends them (`pool/lent.rs`). The child of a `fork` has no workers. Its first job
//!   starts a new pool (`pool/fork.rs`) and joins none of the parent's threads.
#![cfg_attr(not(feature = "std"), no_std)]
#![warn(clippy::large_stack_frames)]

extern crate alloc;

mod arch;
mod attention;
mod conv;
mod convert;
mod copy;
mod delta_rule;
mod element;
mod elementwise;
mod engine;
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
mod quantization_error;
mod quantized;
mod reduce;
mod resize;
mod slice_ops;
mod softmax;
mod task_memory;
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
pub use engine::Engine;
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
    SoftmaxTable, ZeroPointRule, avg_pool2d_u8, choose_qparams, conv_transpose2d_u8, conv2d_u8, conv3d_u8,
    depthwise2d_u8, depthwise2d_u8_takes, gemm_u8, gemm_u8_groupwise, lookup, max_pool2d_u8, mean_u8, pack_nibbles,
    quantize_rows, resize_u8, softmax_u8, unpack_nibbles,
};
pub use reduce::{Reduction, reduce};
pub use resize::{Resize, ResizeMode, resize};
pub use softmax::softmax;
pub use top_k::top_k;
pub use weights::{QuantizedWeights, Weights};
