//! GEMMs and convolutions: their kinds, the formats of their weights and their epilogues.
//!
//! A kind has exactly the parts that its kernel of the engine takes: whether accumulators are f32 or i32 decides the
//! epilogue, and the format of the weights is one that the kernel reads.

use rushlight_engine::pack::{Bits, GroupwiseMatrix, Offsets, QuantizedMatrix, ScaleFormat};
use rushlight_engine::{Activation, Half, Winograd};
use rushlight_format::ScalarType;

use super::{Affine, TensorId};

/// `y = epilogue(a b)`. The rows of `a` are all its dimensions but the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matmul {
    pub a: TensorId,
    pub b: TensorId,
    pub y: TensorId,
    pub kind: MatmulKind,
}

/// The right side of a [`Matmul`], and with it the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatmulKind {
    /// f32 matrices that are computed: `a` is `[batch…, M, K]`, `b` is `[batch…, K, N]`, or `[batch…, N, K]` if transposed,
    /// with as many batches or one.
    Dense { transposed: bool, epilogue: Epilogue },
    /// One matrix `[K, N]` in panels of floats.
    Packed { format: FloatFormat, epilogue: Epilogue },
    /// One matrix `[K, N]` of weight-only quantized integers.
    WeightOnly { format: QuantizedFormat, epilogue: Epilogue },
    /// u8 x i8: one matrix `[K, N]` in panels of i8, with the left side quantized.
    Int8 { epilogue: Int8Epilogue },
    /// u8 x i4 or u8 x i8 with a scale for each group of K. The left side is dynamically quantized, and the result is f32.
    Groupwise { format: GroupwiseFormat, epilogue: GroupwiseEpilogue },
}

/// A convolution of images `[N, H, W, C]` or volumes `[N, D, H, W, C]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convolution {
    pub x: TensorId,
    pub w: TensorId,
    pub y: TensorId,
    pub kind: ConvolutionKind,
}

/// The algorithm of a [`Convolution`], its geometry and its arithmetic.
///
/// Packed panels are one matrix `[taps x C / groups, K / groups]` for each group; those of a transposed convolution are
/// packed by phase. Depthwise convolutions have one filter for each channel, `[taps, C]`, and as many outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConvolutionKind {
    Direct {
        window: Window<2>,
        groups: u32,
        format: FloatFormat,
        epilogue: Epilogue,
    },
    Direct3d {
        window: Window<3>,
        groups: u32,
        format: FloatFormat,
        epilogue: Epilogue,
    },
    /// f32 alone.
    Depthwise {
        window: Window<2>,
        epilogue: Epilogue,
    },
    Transposed {
        window: Window<2>,
        output_padding: [u32; 2],
        groups: u32,
        format: FloatFormat,
        epilogue: Epilogue,
    },
    /// 3x3 with stride 1, by transformed f32 weights.
    Winograd {
        tile: Winograd,
        padding: [[u32; 2]; 2],
        epilogue: Epilogue,
    },
    /// u8 x i8. If the left side is dynamically quantized, it is so per tensor.
    Int8Direct {
        window: Window<2>,
        groups: u32,
        epilogue: Int8Epilogue,
    },
    Int8Depthwise {
        window: Window<2>,
        epilogue: Int8Epilogue,
    },
    /// Each phase of the output has offsets of its own.
    Int8Transposed {
        window: Window<2>,
        output_padding: [u32; 2],
        groups: u32,
        epilogue: Int8Epilogue,
    },
}

/// The window of a convolution over `D` spatial dimensions, the outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<const D: usize> {
    pub kernel: [u32; D],
    pub stride: [u32; D],
    /// Zeros before and after.
    pub padding: [[u32; 2]; D],
    pub dilation: [u32; D],
}

/// The element type of panels of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatFormat {
    F32,
    Half(Half),
}

/// The layout of a weight-only quantized matrix, which its packed bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedFormat {
    pub bits: Bits,
    pub offsets: Offsets,
    pub scales: ScaleFormat,
    /// Consecutive rows of K that share a scale.
    pub group: u32,
}

/// The layout of a group-wise quantized matrix, with a scale for every 32 rows of K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupwiseFormat {
    /// True for integers and zero points of four bits instead of eight.
    pub is_four_bits: bool,
    pub has_zeros: bool,
    /// True for f16 scales instead of f32.
    pub has_half_scales: bool,
}

/// The epilogue of f32 accumulators: the bias is added, then the residual before or after the activation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epilogue {
    /// One number for each column.
    pub bias: Option<TensorId>,
    pub residual: Option<Residual>,
    pub activation: Activation,
}

/// A tensor of the shape of the result that an epilogue adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    BeforeActivation(TensorId),
    AfterActivation(TensorId),
}

/// The epilogue of the i32 accumulators of int8 kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Int8Epilogue {
    /// The left side has the scale and zero point of its tensor. The result is f32, or requantized to u8.
    Static {
        /// The initial accumulators of each column, the bits of `i32`: the bias in units of the accumulator, less
        /// the left side's zero point times the sum of the column's weights. `[phases, columns]` of a transposed
        /// convolution.
        offsets: TensorId,
        /// The scale of each column's accumulators.
        scales: TensorId,
        /// f32, for columns whose bias does not fit among the offsets.
        bias: Option<TensorId>,
        fake_quantize: Option<FakeQuantize>,
        /// A quantized tensor of the shape of the result, which is added before the activation.
        residual: Option<TensorId>,
        activation: Activation,
    },
    /// The left side was dynamically quantized.
    Dynamic {
        /// The scales and zero points that [`ChooseQparams`](super::ChooseQparams) chose for the rows of the left side, or
        /// for all of it.
        qparams: TensorId,
        /// The sum of each column's weights, the bits of `i32`; `[phases, columns]` of a transposed convolution.
        sums: TensorId,
        /// The scale of each column's weights.
        scales: TensorId,
        bias: Option<TensorId>,
        activation: Activation,
    },
}

/// Quantizes to u8 and back, as a quantized network does between two operators that an epilogue fuses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FakeQuantize {
    /// Applied before.
    pub activation: Activation,
    pub affine: Affine,
}

/// The epilogue of a GEMM with group-wise quantized weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupwiseEpilogue {
    /// The scales and zero points that [`ChooseQparams`](super::ChooseQparams) chose for the rows of the left side.
    pub qparams: TensorId,
    /// The sum of each column's dequantized weights, as f32.
    pub sums: TensorId,
    pub bias: Option<TensorId>,
    pub activation: Activation,
}

impl FloatFormat {
    /// Returns the element type of tensors of this format.
    pub const fn dtype(self) -> ScalarType {
        match self {
            Self::F32 => ScalarType::Float,
            Self::Half(Half::F16) => ScalarType::Half,
            Self::Half(Half::Bf16) => ScalarType::BFloat16,
        }
    }
}

impl QuantizedFormat {
    /// Returns the `[k, n]` matrix of this format.
    pub const fn matrix(self, k: usize, n: usize) -> QuantizedMatrix {
        let Self { bits, offsets, scales, group } = self;
        QuantizedMatrix { k, n, bits, offsets, scales, group: group as usize }
    }
}

impl GroupwiseFormat {
    /// Returns the `[k, n]` matrix of this format.
    pub const fn matrix(self, k: usize, n: usize) -> GroupwiseMatrix {
        let Self { is_four_bits, has_zeros, has_half_scales } = self;
        GroupwiseMatrix { k, n, is_four_bits, has_zeros, has_half_scales }
    }
}

impl Residual {
    /// Returns the tensor that is added.
    pub const fn tensor(self) -> TensorId {
        match self {
            Self::BeforeActivation(tensor) | Self::AfterActivation(tensor) => tensor,
        }
    }
}

impl Matmul {
    pub(super) fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        let Self { a, b, kind, .. } = self;
        visit(*a);
        visit(*b);
        match kind {
            MatmulKind::Dense { epilogue, .. }
            | MatmulKind::Packed { epilogue, .. }
            | MatmulKind::WeightOnly { epilogue, .. } => epilogue.for_each_input(visit),
            MatmulKind::Int8 { epilogue } => epilogue.for_each_input(visit),
            MatmulKind::Groupwise { epilogue, .. } => epilogue.for_each_input(visit),
        }
    }
}

impl Convolution {
    pub(super) fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        let Self { x, w, kind, .. } = self;
        visit(*x);
        visit(*w);
        match kind {
            ConvolutionKind::Direct { epilogue, .. }
            | ConvolutionKind::Direct3d { epilogue, .. }
            | ConvolutionKind::Depthwise { epilogue, .. }
            | ConvolutionKind::Transposed { epilogue, .. }
            | ConvolutionKind::Winograd { epilogue, .. } => epilogue.for_each_input(visit),
            ConvolutionKind::Int8Direct { epilogue, .. }
            | ConvolutionKind::Int8Depthwise { epilogue, .. }
            | ConvolutionKind::Int8Transposed { epilogue, .. } => epilogue.for_each_input(visit),
        }
    }
}

impl ConvolutionKind {
    /// Returns what it is called in profiles.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Depthwise { .. } | Self::Int8Depthwise { .. } => "depthwise convolution",
            Self::Transposed { .. } | Self::Int8Transposed { .. } => "transposed convolution",
            Self::Direct { .. } | Self::Direct3d { .. } | Self::Winograd { .. } | Self::Int8Direct { .. } => {
                "convolution"
            }
        }
    }

    /// Returns the sizes of the kernel.
    pub const fn kernel(&self) -> &[u32] {
        match self {
            Self::Direct { window, .. }
            | Self::Depthwise { window, .. }
            | Self::Transposed { window, .. }
            | Self::Int8Direct { window, .. }
            | Self::Int8Depthwise { window, .. }
            | Self::Int8Transposed { window, .. } => &window.kernel,
            Self::Direct3d { window, .. } => &window.kernel,
            Self::Winograd { .. } => &[3, 3],
        }
    }

    /// Returns the number of groups; `None` if each channel is one.
    pub const fn groups(&self) -> Option<u32> {
        match self {
            Self::Direct { groups, .. }
            | Self::Direct3d { groups, .. }
            | Self::Transposed { groups, .. }
            | Self::Int8Direct { groups, .. }
            | Self::Int8Transposed { groups, .. } => Some(*groups),
            Self::Winograd { .. } => Some(1),
            Self::Depthwise { .. } | Self::Int8Depthwise { .. } => None,
        }
    }
}

impl Epilogue {
    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        self.bias.into_iter().chain(self.residual.map(Residual::tensor)).for_each(visit);
    }
}

impl Int8Epilogue {
    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        let read = match *self {
            Self::Static { offsets, scales, bias, residual, .. } => [Some(offsets), Some(scales), bias, residual],
            Self::Dynamic { qparams, sums, scales, bias, .. } => [Some(sums), Some(scales), bias, Some(qparams)],
        };
        read.into_iter().flatten().for_each(visit);
    }

    /// Returns the tensor with a number for each phase and column.
    pub(super) const fn offsets(&self) -> TensorId {
        match self {
            Self::Static { offsets, .. } => *offsets,
            Self::Dynamic { sums, .. } => *sums,
        }
    }
}

impl GroupwiseEpilogue {
    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.sums, self.qparams].into_iter().chain(self.bias).for_each(visit);
    }
}
