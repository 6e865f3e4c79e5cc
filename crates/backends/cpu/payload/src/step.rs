//! What a CPU program does.

use alloc::vec::Vec;

use rushlight_format::ScalarType;

use super::{Affine, Size, TensorId};

/// One operation: reads tensors, and writes one.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Matmul(Matmul),
    Convolution(Convolution),
    Elementwise(Elementwise),
    Pooling(Pooling),
    Reduction(Reduction),
    /// Of the last dimension: of floats, or of bytes to bytes if it is no logarithm.
    Softmax {
        x: TensorId,
        y: TensorId,
        log: bool,
    },
    Normalisation(Normalisation),
    Copy(Copy),
    Gather(Gather),
    Attention(Attention),
    Resize(Resize),
    Convert(Convert),
    RowScales(RowScales),
    RoundRows(RoundRows),
}

/// `y = tail(a x b)`. The rows of `a` are all its dimensions but the last.
///
/// With a packed `b` there is one matrix, `[K, N]` in panels. Otherwise `a` is `[batch…, M, K]` and `b` is `[batch…, K, N]`, or
/// `[batch…, N, K]` if transposed, with as many batches, or with one. Whether groups of weights have four bits or
/// eight, and zeros or none, follows from how many bytes `b` has.
#[derive(Clone, Debug, PartialEq)]
pub struct Matmul {
    pub a: TensorId,
    pub b: TensorId,
    pub y: TensorId,
    pub packed: bool,
    pub transposed: bool,
    pub tail: Tail,
}

/// A convolution of pictures `[N, H, W, C]`, or of volumes `[N, D, H, W, C]` where `kernel` has three sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    pub x: TensorId,
    /// Packed panels, one matrix `[taps x C/groups, K/groups]` for each group; `[taps, C]` if depthwise.
    pub w: TensorId,
    pub y: TensorId,
    pub kernel: Vec<u32>,
    pub stride: Vec<u32>,
    /// Zeros before and after.
    pub padding: Vec<[u32; 2]>,
    pub dilation: Vec<u32>,
    pub groups: u32,
    /// One filter for each channel, with as many outputs.
    pub depthwise: bool,
    /// Of a transposed convolution, whose weights are packed by phase: what is added after the end of each dimension.
    pub output_padding: Option<Vec<u32>>,
    /// Whether the weights are transformed for Winograd's algorithm, and for which of its forms.
    pub winograd: Option<Winograd>,
    pub tail: Tail,
}

/// The size of the tiles of Winograd's algorithm for windows of 3x3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Winograd {
    /// Results of 2x2.
    F2,
    /// Results of 4x4.
    F4,
}

/// What a product does to its results before they are stored: `bias` is added, then `residual` before or after the
/// activation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tail {
    /// One number for each column.
    pub bias: Option<TensorId>,
    /// Of the shape of the result.
    pub residual: Option<TensorId>,
    /// Whether the residual is added to the activation's result.
    pub residual_last: bool,
    pub activation: Activation,
    /// Of a product of bytes, the residual of which is added before the activation.
    pub integers: Option<Integers>,
}

/// What a product of bytes needs: its sums are `i32`.
#[derive(Clone, Debug, PartialEq)]
pub struct Integers {
    /// What the sum of each column begins with, the bits of `i32`: its bias in units of the sum, less the zero of the
    /// left side times the sum of the column's weights; `[phases, columns]` of a transposed convolution. With `rows`,
    /// it is the sum of the column's weights alone; of weights in groups that of the numbers that they stand for, as
    /// `f32`.
    pub offsets: TensorId,
    /// The number that one unit of each column's sum stands for; not of weights in groups, which have their scales among them.
    pub scales: Option<TensorId>,
    /// What [`RowScales`] chose for the rows of the left side; of a convolution the same for all.
    pub rows: Option<TensorId>,
    pub inner: Option<Inner>,
}

/// The scale and the zero that each row of `x`, its last dimension, is rounded with: `y` is `[2, rows]`, or `[2, 1]` if
/// all rows have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScales {
    pub x: TensorId,
    pub y: TensorId,
    pub choice: Choice,
    /// Whether all rows have the same.
    pub is_shared: bool,
    /// The least and the greatest byte in use.
    pub range: [u8; 2],
}

/// How the scale and the zero of a row follow from its range, which zero is part of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// The zero from the lower end; the scale is `eps` at least.
    Lower { eps: f32 },
    /// The zero from the end of the range where rounding errs less.
    Nearer,
}

/// Rows of `x` as bytes, each with the scale and the zero of its own that are in `scales`, or with those of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundRows {
    pub x: TensorId,
    pub scales: TensorId,
    pub y: TensorId,
    /// The least and the greatest byte in use.
    pub range: [u8; 2],
}

/// What results are rounded to before the residual is added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inner {
    /// Before rounding.
    pub activation: Activation,
    pub affine: Affine,
}

/// A function of one number, with its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    #[default]
    None,
    /// Between two bounds; `NaN` stays.
    Clamp {
        min: f32,
        max: f32,
    },
    LeakyRelu {
        slope: f32,
    },
    /// `alpha * (exp(x) - 1)` of what is negative.
    Elu {
        alpha: f32,
    },
    HardSwish,
    HardSigmoid,
    Sigmoid,
    Silu,
    Tanh,
    Gelu,
    GeluTanh,
}

/// Instructions on tiles of elements, in registers; the last one's result is stored. The operands have the rank of `y`,
/// and its sizes or one.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    pub operands: Vec<TensorId>,
    pub y: TensorId,
    pub instructions: Vec<Instruction>,
}

/// A register of an elementwise step, below [`REGISTERS`](super::REGISTERS).
pub type Register = u8;

/// An operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    Register(Register),
    /// A tensor, by its position in [`Elementwise::operands`].
    Tensor(u8),
    Number(f32),
}

/// One instruction: `register = function(operands)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction {
    Unary {
        to: Register,
        function: Unary,
        x: Operand,
    },
    Binary {
        to: Register,
        function: Binary,
        a: Operand,
        b: Operand,
    },
    /// `a` where the condition is not zero, `b` elsewhere.
    Select {
        to: Register,
        condition: Operand,
        a: Operand,
        b: Operand,
    },
    Activate {
        to: Register,
        activation: Activation,
        x: Operand,
    },
}

/// Functions of one number. Truth is 1 and 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    Identity,
    Neg,
    Abs,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Square,
    Exp,
    Log,
    Sin,
    Cos,
    Tanh,
    Sigmoid,
    Erf,
    Floor,
    Ceil,
    Round,
    Trunc,
    Not,
    IsNan,
    Log1p,
    Expm1,
    /// To the nearest number of 16 bits, ties to even.
    RoundF16,
    RoundBf16,
}

/// Functions of two numbers. Truth is 1 and 0; `Max` and `Min` give `NaN` if either is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Pow,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
}

/// The greatest or the mean of windows of `[N, H, W, C]`. What lies outside does not count, unless `count_padding`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooling {
    pub kind: PoolingKind,
    pub x: TensorId,
    pub y: TensorId,
    pub kernel: [u32; 2],
    pub stride: [u32; 2],
    /// Before and after, of height and width.
    pub padding: [[u32; 2]; 2],
    pub dilation: [u32; 2],
    /// Of means: whether padding counts as zeros.
    pub count_padding: bool,
    /// Of means: what sums are divided by, if not by the number of elements.
    pub divisor: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingKind {
    Max,
    Mean,
}

/// A fold over the dimensions `first..first + count` of `x`. The tensor is `[outer, reduced, inner]`, and the result
/// `[outer, inner]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    pub function: Fold,
    pub x: TensorId,
    pub y: TensorId,
    pub first: u32,
    pub count: u32,
}

/// What a [`Reduction`] computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    Sum,
    Mean,
    Max,
    Min,
}

/// Rows of the last `dims` dimensions, with their mean taken out (`centred`) and divided by their root mean square; times
/// `weight`, plus `bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalisation {
    pub x: TensorId,
    pub y: TensorId,
    pub weight: Option<TensorId>,
    pub bias: Option<TensorId>,
    pub dims: u32,
    pub eps: f32,
    pub centred: bool,
}

/// Copies elements: `y[y_offset + i * y_strides] = x[x_offset + i * x_strides]` for every index `i` below `sizes`, as if
/// both buffers had one dimension. Transposes, slices, concatenations and expansions are of this kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    pub x: TensorId,
    pub y: TensorId,
    pub sizes: Vec<Size>,
    pub x_offset: Size,
    pub x_strides: Vec<Size>,
    pub y_offset: Size,
    pub y_strides: Vec<Size>,
    /// What the rest of `y` is filled with before, if anything; a byte where `y` has bytes.
    pub fill: Option<f32>,
}

/// Rows of a table `[rows, width]`, picked by integers. A table of bytes is a packed matrix of integers, whose columns are the
/// rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gather {
    pub table: TensorId,
    pub indices: TensorId,
    pub y: TensorId,
}

/// `softmax(q k' * scale + mask) v`, with `q` of `[batch, heads, M, D]`, `k` and `v` of `[batch, groups, N, D]`, and `y` as `q`. Each
/// is given by its strides, so that heads need not be outermost in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub q: TensorId,
    pub k: TensorId,
    pub v: TensorId,
    /// Added to the scores; of `[batch or 1, heads or 1, M or 1, N]`.
    pub mask: Option<TensorId>,
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
    /// Whether a query sees the keys up to its own position only.
    pub causal: bool,
    /// Of `q`, `k`, `v` and `y`: the distances of batches, heads and rows.
    pub strides: [[Size; 3]; 4],
}

/// The elements of an input as floats, or floats as those of an output. Truth is 1 and 0; what is not zero is true. Floats are
/// rounded to the nearest of 16 bits, ties to even. Integers of 8 bits are bytes inside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convert {
    pub x: TensorId,
    pub y: TensorId,
    /// The type outside.
    pub dtype: ScalarType,
    /// Whether `x` is an input of that type; otherwise `y` is an output of it.
    pub enters: bool,
}

/// A picture `[N, H, W, C]` in another size: of floats, or of bytes to bytes. The nearest bytes are moved as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    pub x: TensorId,
    pub y: TensorId,
    pub mode: ResizeMode,
    pub align_corners: bool,
    /// Output to input, where the caller gave a factor.
    pub scales: [Option<f32>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeMode {
    Nearest,
    Bilinear,
}

impl Step {
    /// The tensor that is written.
    pub fn output(&self) -> TensorId {
        match self {
            Self::Matmul(step) => step.y,
            Self::Convolution(step) => step.y,
            Self::Elementwise(step) => step.y,
            Self::Pooling(step) => step.y,
            Self::Reduction(step) => step.y,
            Self::Softmax { y, .. } => *y,
            Self::Normalisation(step) => step.y,
            Self::Copy(step) => step.y,
            Self::Gather(step) => step.y,
            Self::Attention(step) => step.y,
            Self::Resize(step) => step.y,
            Self::Convert(step) => step.y,
            Self::RowScales(step) => step.y,
            Self::RoundRows(step) => step.y,
        }
    }

    /// Visits the tensors that are read.
    pub fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        match self {
            Self::Matmul(Matmul { a, b, tail, .. }) => {
                visit(*a);
                visit(*b);
                tail.for_each_input(visit);
            }
            Self::Convolution(Convolution { x, w, tail, .. }) => {
                visit(*x);
                visit(*w);
                tail.for_each_input(visit);
            }
            Self::Elementwise(step) => step.operands.iter().for_each(|operand| visit(*operand)),
            Self::Pooling(Pooling { x, .. })
            | Self::Reduction(Reduction { x, .. })
            | Self::Softmax { x, .. }
            | Self::Copy(Copy { x, .. })
            | Self::Resize(Resize { x, .. })
            | Self::Convert(Convert { x, .. })
            | Self::RowScales(RowScales { x, .. }) => visit(*x),
            Self::RoundRows(step) => {
                visit(step.x);
                visit(step.scales);
            }
            Self::Normalisation(step) => {
                visit(step.x);
                step.weight.into_iter().chain(step.bias).for_each(visit);
            }
            Self::Gather(step) => {
                visit(step.table);
                visit(step.indices);
            }
            Self::Attention(step) => {
                [step.q, step.k, step.v].into_iter().chain(step.mask).for_each(visit);
            }
        }
    }

    /// What kind of step it is, for profiles.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Matmul(_) => "matmul",
            Self::Convolution(step) if step.depthwise => "depthwise convolution",
            Self::Convolution(step) if step.output_padding.is_some() => "transposed convolution",
            Self::Convolution(_) => "convolution",
            Self::Elementwise(_) => "elementwise",
            Self::Pooling(_) => "pooling",
            Self::Reduction(_) => "reduction",
            Self::Softmax { .. } => "softmax",
            Self::Normalisation(_) => "normalisation",
            Self::Copy(_) => "copy",
            Self::Gather(_) => "gather",
            Self::Attention(_) => "attention",
            Self::Resize(_) => "resize",
            Self::Convert(_) => "convert",
            Self::RowScales(_) => "scales of rows",
            Self::RoundRows(_) => "rounding of rows",
        }
    }
}

impl Tail {
    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        let of = |integers: &Integers| [Some(integers.offsets), integers.scales, integers.rows];
        let integers = self.integers.iter().flat_map(of).flatten();
        self.bias.into_iter().chain(self.residual).chain(integers).for_each(visit);
    }
}
