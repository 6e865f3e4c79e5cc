//! The steps of a CPU program.

use alloc::vec::Vec;

use rushlight_engine::{Half, Instruction, PoolKind, Reduction, ResizeMode, ZeroPointRule};
use rushlight_format::ScalarType;

use super::{Convolution, Matmul, QuantizedFormat, Size, TensorId};

/// A step: reads tensors and writes one.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Matmul(Matmul),
    Experts(Experts),
    /// The largest `k` elements of each row, the last dimension of `x`. `y` is `[2, rows, k]`: values, then their
    /// positions.
    TopK {
        x: TensorId,
        y: TensorId,
    },
    /// Elements of rows, the last dimension of `x`: `y` has the elements at the positions in the same row of `index`,
    /// which are integers stored as f32.
    GatherElements {
        x: TensorId,
        index: TensorId,
        y: TensorId,
    },
    Convolution(Convolution),
    Elementwise(Elementwise),
    Pooling(Pooling),
    Reduce(Reduce),
    /// Softmax or log-softmax of the last dimension in f32, or softmax from u8 to u8.
    Softmax {
        x: TensorId,
        y: TensorId,
        log: bool,
    },
    Normalization(Normalization),
    Copy(Copy),
    Gather(Gather),
    Scatter(Scatter),
    Attention(Attention),
    DeltaRule(DeltaRule),
    Resize(Resize),
    Convert(Convert),
    ChooseQparams(ChooseQparams),
    QuantizeRows(QuantizeRows),
    /// Packs two 4-bit integers of `x` into a byte of `y`; the even element goes to the low half.
    PackNibbles {
        x: TensorId,
        y: TensorId,
    },
    /// Unpacks them again.
    UnpackNibbles {
        x: TensorId,
        y: TensorId,
    },
}

/// GEMM of rows with the matrices of the experts that each row has chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// `b` has the columns of all experts, one expert after the other, and each has as many as `y`. The kind is
    /// `Packed`, `WeightOnly`, `Groupwise`, or `Int8` with dynamically quantized rows. It has no residual and no bias,
    /// and its per-column data covers the columns of all experts.
    pub matmul: Matmul,
    /// The expert of each row: integers below `count`, stored as f32.
    pub index: TensorId,
    /// Number of experts.
    pub count: u32,
}

/// Chooses a scale and a zero point for each row, the last dimension of `x`, or for the whole tensor. `y` is `[2,
/// rows]` or `[2, 1]`: scales, then zero points. With [`ZeroPointRule::Inverse`] it is `[3, rows]` or `[3, 1]`, with
/// the factors of values last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChooseQparams {
    pub x: TensorId,
    pub y: TensorId,
    pub rule: ZeroPointRule,
    /// True if all rows share one scale and zero point.
    pub per_tensor: bool,
    /// Smallest and largest quantized value.
    pub range: [u8; 2],
}

/// Quantizes rows of `x` to u8 with the scales and zero points in `qparams`, as [`ChooseQparams`] writes them, and with
/// the factors if there are any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizeRows {
    pub x: TensorId,
    pub qparams: TensorId,
    pub y: TensorId,
    /// Smallest and largest quantized value.
    pub range: [u8; 2],
}

/// Executes instructions for each element and stores the result of the last one. The operands have the rank of `y`;
/// each size is that of `y` or one. [`Operand::Tensor`](rushlight_engine::Operand::Tensor) is a position in `operands`.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    pub operands: Vec<TensorId>,
    pub y: TensorId,
    pub instructions: Vec<Instruction>,
}

/// A register of an elementwise step, below [`REGISTERS`](super::REGISTERS).
pub type Register = u8;

/// Max or average pooling of images `[N, H, W, C]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pooling {
    pub kind: PoolKind,
    pub x: TensorId,
    pub y: TensorId,
    pub kernel: [u32; 2],
    pub stride: [u32; 2],
    /// Padding before and after, of height and width.
    pub padding: [[u32; 2]; 2],
    pub dilation: [u32; 2],
}

/// Reduces the dimensions `first..first + count` of `x`, which is `[outer, reduced, inner]`, to `[outer, inner]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduce {
    pub op: Reduction,
    pub x: TensorId,
    pub y: TensorId,
    pub first: u32,
    pub count: u32,
}

/// Layer normalization of the last `dims` dimensions, or RMS normalization if not `centered`. The result is multiplied
/// by `weight`, and `bias` is added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    pub x: TensorId,
    pub y: TensorId,
    pub weight: Option<TensorId>,
    pub bias: Option<TensorId>,
    pub dims: u32,
    pub eps: f32,
    pub centered: bool,
}

/// Copies elements: `y[y_offset + i * y_strides] = x[x_offset + i * x_strides]` for every index `i` below `sizes`, with
/// both buffers seen as one dimension. Transposes, slices, concatenations and expansions are copies.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    pub x: TensorId,
    pub y: TensorId,
    pub sizes: Vec<Size>,
    pub x_offset: Size,
    pub x_strides: Vec<Size>,
    pub y_offset: Size,
    pub y_strides: Vec<Size>,
    /// Fills `y` first, if given; a byte if `y` is quantized.
    pub fill: Option<f32>,
}

/// Copies slices to indexed places: `y[y_offset + indices[t] * y_step + i * y_strides] = x[x_offset + t * x_step + i *
/// x_strides]` for every index `i` below `sizes` and every `t`, in this order, with both buffers seen as one dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Scatter {
    pub x: TensorId,
    pub y: TensorId,
    /// Integers stored as f32, from `-dim_size` to below `dim_size`. Negative ones count from the end.
    pub indices: TensorId,
    /// The size of the dimension of `y` that the indices select from.
    pub dim_size: Size,
    /// The sizes of one slice.
    pub sizes: Vec<Size>,
    pub x_offset: Size,
    pub x_step: Size,
    pub x_strides: Vec<Size>,
    pub y_offset: Size,
    pub y_step: Size,
    pub y_strides: Vec<Size>,
}

/// Rows of a table `[rows, width]`, selected by indices: i32 or i64 of an input, or integers stored as f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gather {
    pub table: TensorId,
    pub format: TableFormat,
    pub indices: TensorId,
    pub y: TensorId,
}

/// The elements of the table of a [`Gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    F32,
    /// A packed matrix whose columns are the `rows` rows of the table.
    Quantized {
        format: QuantizedFormat,
        rows: u32,
    },
}

/// `softmax(q k' * scale + mask) v`, with `q` of `[batch, heads, M, D]`, `k` and `v` of `[batch, groups, N, D]`, and
/// `y` as `q`. Each has its own strides, so that heads need not be outermost in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub q: TensorId,
    pub k: TensorId,
    pub v: TensorId,
    /// Added to the scores, `[batch or 1, heads or 1, M or 1, N]`.
    pub mask: Option<TensorId>,
    pub format: KeyValueFormat,
    pub y: TensorId,
    pub batch: Size,
    pub heads: Size,
    pub groups: Size,
    /// `M`.
    pub rows: Size,
    /// `N`.
    pub keys: Size,
    /// `D` of queries and keys.
    pub depth: Size,
    /// `D` of values and results.
    pub value_depth: Size,
    pub scale: f32,
    /// The position of the first query among the keys, if each query reads only the keys up to its own position.
    pub causal: Option<Size>,
    /// Strides of batches, heads and rows, for `q`, `k`, `v` and `y`.
    pub strides: [[Size; 3]; 4],
}

/// The gated delta rule for each token and head: `S = decay S; S = S + k (beta (v - k' S)); y = q' S`. `S` is the
/// head's state. All tensors are dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaRule {
    /// `[batch, tokens, heads, K]`.
    pub q: TensorId,
    /// `[batch, tokens, groups, K]`.
    pub k: TensorId,
    /// `[batch, tokens, groups, V]`.
    pub v: TensorId,
    /// `[batch, tokens, groups]`, or `[batch, tokens, groups, K]`.
    pub decay: TensorId,
    /// `[batch, tokens, groups]`.
    pub beta: TensorId,
    /// The states before the step, `[batch, groups, K, V]`.
    pub state: TensorId,
    /// Results `[batch, tokens, heads, V]`, then the states after the step.
    pub y: TensorId,
}

impl DeltaRule {
    pub(crate) fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        [self.q, self.k, self.v, self.decay, self.beta, self.state].into_iter().for_each(visit);
    }
}

/// The element format of keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyValueFormat {
    /// f32, f16 or bf16, the same for both.
    #[default]
    Floats,
    /// u8, quantized by rows, with the parameters of keys and of values.
    Int8([RowQparams; 2]),
    /// Two 4-bit integers per byte. Strides count integers. A row has a scale and a zero point for each group, as in
    /// [`NibbleRows`](rushlight_engine::NibbleRows).
    Int4([RowQparams; 2]),
}

impl KeyValueFormat {
    /// Scales and zero points of keys and of values, if they are quantized.
    pub const fn qparams(self) -> Option<[RowQparams; 2]> {
        match self {
            Self::Floats => None,
            Self::Int8(qparams) | Self::Int4(qparams) => Some(qparams),
        }
    }
}

/// Scales (f32) and zero points (u8) for each row of a u8 tensor: a byte stands for `(byte - zero) * scale`. A row of
/// size `D` that begins at element `n` of the tensor has element `n / D` of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowQparams {
    pub scales: TensorId,
    pub zeros: TensorId,
}

/// Converts between the element type of an input or output and the type that steps compute with: f32, or u8 for 8-bit
/// integers.
///
/// Integers of 64 bits are positions. An input beyond [`MAX_POSITION`](super::MAX_POSITION) is an error.
/// Booleans become 1 and 0, and every value except zero becomes true. Floats are rounded to the nearest 16-bit float,
/// ties to even.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convert {
    pub x: TensorId,
    pub y: TensorId,
    pub element: ConvertedType,
    pub direction: Direction,
}

/// An element type of inputs and outputs that no step computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertedType {
    Half(Half),
    Bool,
    /// Stored with a bias of 128.
    Int8,
    Uint8,
    Int64,
}

/// The side of a [`Convert`] that is the caller's tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `x` is an input.
    Enter,
    /// `y` is an output.
    Leave,
}

/// Resizes an image `[N, H, W, C]`, in f32 or from u8 to u8. The nearest mode copies bytes as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    pub x: TensorId,
    pub y: TensorId,
    pub mode: ResizeMode,
    pub align_corners: bool,
    /// Ratios of output size to input size, if the caller gave a factor.
    pub scales: [Option<f32>; 2],
}

/// The 16-bit floating-point format of a type; `None` for other types.
pub const fn half_of(dtype: ScalarType) -> Option<Half> {
    match dtype {
        ScalarType::Half => Some(Half::F16),
        ScalarType::BFloat16 => Some(Half::Bf16),
        _ => None,
    }
}

impl ConvertedType {
    /// Returns the type that converts this element type; `None` if steps compute with it, or if no type converts it.
    pub const fn of(dtype: ScalarType) -> Option<Self> {
        Some(match dtype {
            ScalarType::Half => Self::Half(Half::F16),
            ScalarType::BFloat16 => Self::Half(Half::Bf16),
            ScalarType::Bool => Self::Bool,
            ScalarType::Char => Self::Int8,
            ScalarType::Byte => Self::Uint8,
            ScalarType::Long => Self::Int64,
            _ => return None,
        })
    }

    /// Returns the element type of the caller's tensor.
    pub const fn dtype(self) -> ScalarType {
        match self {
            Self::Half(Half::F16) => ScalarType::Half,
            Self::Half(Half::Bf16) => ScalarType::BFloat16,
            Self::Bool => ScalarType::Bool,
            Self::Int8 => ScalarType::Char,
            Self::Uint8 => ScalarType::Byte,
            Self::Int64 => ScalarType::Long,
        }
    }

    /// True if the tensor that steps compute with is quantized.
    pub const fn is_quantized(self) -> bool {
        matches!(self, Self::Int8 | Self::Uint8)
    }
}

impl Step {
    /// Returns the tensor that is written.
    pub fn output(&self) -> TensorId {
        match self {
            Self::Matmul(step) => step.y,
            Self::Experts(step) => step.matmul.y,
            Self::TopK { y, .. } | Self::GatherElements { y, .. } => *y,
            Self::Convolution(step) => step.y,
            Self::Elementwise(step) => step.y,
            Self::Pooling(step) => step.y,
            Self::Reduce(step) => step.y,
            Self::Softmax { y, .. } => *y,
            Self::Normalization(step) => step.y,
            Self::Copy(step) => step.y,
            Self::Gather(step) => step.y,
            Self::Scatter(step) => step.y,
            Self::Attention(step) => step.y,
            Self::DeltaRule(step) => step.y,
            Self::Resize(step) => step.y,
            Self::Convert(step) => step.y,
            Self::ChooseQparams(step) => step.y,
            Self::QuantizeRows(step) => step.y,
            Self::PackNibbles { y, .. } | Self::UnpackNibbles { y, .. } => *y,
        }
    }

    /// Visits the tensors that are read.
    pub fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        match self {
            Self::Matmul(step) => step.for_each_input(visit),
            Self::Experts(step) => {
                step.matmul.for_each_input(visit);
                visit(step.index);
            }
            Self::GatherElements { x, index, .. } => {
                visit(*x);
                visit(*index);
            }
            Self::Convolution(step) => step.for_each_input(visit),
            Self::DeltaRule(step) => step.for_each_input(visit),
            Self::Elementwise(step) => step.operands.iter().for_each(|operand| visit(*operand)),
            Self::TopK { x, .. }
            | Self::PackNibbles { x, .. }
            | Self::UnpackNibbles { x, .. }
            | Self::Pooling(Pooling { x, .. })
            | Self::Reduce(Reduce { x, .. })
            | Self::Softmax { x, .. }
            | Self::Copy(Copy { x, .. })
            | Self::Resize(Resize { x, .. })
            | Self::Convert(Convert { x, .. })
            | Self::ChooseQparams(ChooseQparams { x, .. }) => visit(*x),
            Self::QuantizeRows(step) => {
                visit(step.x);
                visit(step.qparams);
            }
            Self::Normalization(step) => {
                visit(step.x);
                step.weight.into_iter().chain(step.bias).for_each(visit);
            }
            Self::Gather(step) => {
                visit(step.table);
                visit(step.indices);
            }
            Self::Scatter(step) => {
                visit(step.x);
                visit(step.indices);
            }
            Self::Attention(step) => {
                [step.q, step.k, step.v].into_iter().chain(step.mask).for_each(&mut *visit);
                for RowQparams { scales, zeros } in step.format.qparams().into_iter().flatten() {
                    visit(scales);
                    visit(zeros);
                }
            }
        }
    }

    /// Returns the kind of the step, for profiles.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Matmul(_) => "matmul",
            Self::Experts(_) => "experts",
            Self::TopK { .. } => "top k",
            Self::GatherElements { .. } => "gather elements",
            Self::Convolution(step) => step.kind.name(),
            Self::Elementwise(_) => "elementwise",
            Self::Pooling(_) => "pooling",
            Self::Reduce(_) => "reduction",
            Self::Softmax { .. } => "softmax",
            Self::Normalization(_) => "normalization",
            Self::Copy(_) => "copy",
            Self::Gather(_) => "gather",
            Self::Scatter(_) => "scatter",
            Self::Attention(_) => "attention",
            Self::DeltaRule(_) => "delta rule",
            Self::Resize(_) => "resize",
            Self::Convert(_) => "convert",
            Self::ChooseQparams(_) => "choose qparams",
            Self::QuantizeRows(_) => "quantize rows",
            Self::PackNibbles { .. } => "pack nibbles",
            Self::UnpackNibbles { .. } => "unpack nibbles",
        }
    }
}
