//! The nodes of the delegate's graph.

use crate::flatbuf::{Table, Vector};
use crate::schema::Field;

use super::schema::*;

/// A node: its operation, its inputs and its outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node<'a> {
    pub operation: Operation<'a>,
    pub flags: NodeFlags,
    pub debug_handle: u32,
    /// Bounds that the output is clamped to.
    pub output_min_max: Option<(f32, f32)>,
    tag: u8,
}

/// Flag bits of a node; their meaning depends on the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFlags(pub u32);

/// The operator of a node. Fields named after values are ids of [`TensorValue`](super::TensorValue)s.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operation<'a> {
    Unary {
        unary: Unary,
        input: u32,
        output: u32,
    },
    Binary {
        binary: Binary,
        inputs: [u32; 2],
        output: u32,
    },
    Elu {
        alpha: f32,
        input: u32,
        output: u32,
    },
    LeakyRelu {
        negative_slope: f32,
        input: u32,
        output: u32,
    },
    /// The filter is `[output channels, input channels]`, or transposed with [`NodeFlags::TRANSPOSE`].
    FullyConnected {
        input: u32,
        filter: u32,
        bias: Option<u32>,
        output: u32,
    },
    Convolution(Convolution),
    Pooling(Pooling),
    /// The maximum of each window and its position in the window. Windows do not overlap.
    ArgMaxPooling {
        padding: Padding,
        window: [u32; 2],
        input: u32,
        value: u32,
        index: u32,
    },
    /// Absent inputs are `None`.
    Concatenate {
        axis: u32,
        inputs: [Option<u32>; 5],
        output: u32,
    },
    /// A size of 0 is inferred from the number of elements.
    Reshape {
        shape: Vector<'a, u32>,
        input: u32,
        output: u32,
    },
    Transpose {
        perm: Vector<'a, u32>,
        input: u32,
        output: u32,
    },
    Slice {
        offsets: Vector<'a, u32>,
        sizes: Vector<'a, u32>,
        input: u32,
        output: u32,
    },
    Pad {
        before: Vector<'a, u32>,
        after: Vector<'a, u32>,
        value: f32,
        input: u32,
        output: u32,
    },
    ResizeBilinear {
        size: [u32; 2],
        input: u32,
        output: u32,
    },
    /// No runtime executes it.
    Attention {
        output: u32,
    },
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Abs,
    Ceiling,
    Clamp,
    Convert,
    Copy,
    Cos,
    Exp,
    Floor,
    Gelu,
    GlobalAveragePooling,
    Hardswish,
    Log,
    Negate,
    ReciprocalSquareRoot,
    Sigmoid,
    Sin,
    Softmax,
    Square,
    SquareRoot,
    Tanh,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    BatchMatrixMultiply,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    PRelu,
    Subtract,
}

/// A convolution of images with the layout batch, height, width, channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    pub kind: ConvolutionKind,
    pub padding: Padding,
    pub stride: [u32; 2],
    pub dilation: [u32; 2],
    /// Output padding of a transposed convolution.
    pub adjustment: [u32; 2],
    pub groups: u32,
    pub input: u32,
    pub filter: u32,
    pub bias: Option<u32>,
    pub output: u32,
}

/// The kind of a convolution's filter. Sizes are in the order of its dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionKind {
    /// `[output channels, height, width, input channels of a group]`.
    Standard,
    /// `[1, height, width, output channels]`; each group is one input channel.
    Depthwise,
    /// `[output channels, height, width, input channels of a group]`.
    Transposed,
}

/// Pooling of images with the layout batch, height, width, channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    pub kind: PoolingKind,
    pub padding: Padding,
    pub window: [u32; 2],
    pub stride: [u32; 2],
    pub dilation: [u32; 2],
    pub input: u32,
    pub output: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingKind {
    /// The mean of the elements inside the image, without padding.
    Average,
    Max,
}

/// Rows and columns around an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    pub top: u32,
    pub right: u32,
    pub bottom: u32,
    pub left: u32,
}

/// The id of an absent value, such as a bias.
const NO_VALUE: u32 = u32::MAX;

/// Names of the nodes in the schema, by tag.
const NAMES: [&str; 48] = [
    "NONE",
    "XNNAdd",
    "XNNFullyConnected",
    "XNNSoftmax",
    "XNNSigmoid",
    "XNNStaticTranspose",
    "XNNClamp",
    "XNNConv2d",
    "XNNDiv",
    "XNNStaticResizeBilinear2D",
    "XNNStaticConstantPad",
    "XNNAvgPooling2d",
    "XNNMinimum",
    "XNNDepthwiseConv2d",
    "XNNMaxPooling2d",
    "XNNMultiply",
    "XNNSubtract",
    "XNNFloor",
    "XNNConvert",
    "XNNGlobalAvgPooling2d",
    "XNNStaticReshape",
    "XNNArgMaxPooling2d",
    "XNNSquareRoot",
    "XNNCeiling",
    "XNNHardswish",
    "XNNLeakyReLU",
    "XNNMaximum",
    "XNNNegate",
    "XNNSquare",
    "XNNELU",
    "XNNAbs",
    "XNNPReLU",
    "XNNConcatenate2",
    "XNNConcatenate3",
    "XNNConcatenate4",
    "XNNStaticSlice",
    "XNNScaledDotProductAttention",
    "XNNBatchMatrixMultiply",
    "XNNConcatenate5",
    "XNNConvTranspose2d",
    "XNNReciprocalSquareRoot",
    "XNNLog",
    "XNNGelu",
    "XNNTanh",
    "XNNExp",
    "XNNSin",
    "XNNCopy",
    "XNNCos",
];

impl NodeFlags {
    /// The right-hand matrix is transposed.
    pub const TRANSPOSE: u32 = 1;
    /// The corner pixels of both images are aligned.
    pub const ALIGN_CORNERS: u32 = 8;
    /// The output keeps the rank of the input.
    pub const KEEP_DIMS: u32 = 0x40;

    /// True if a flag is set.
    pub const fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

impl<'a> Node<'a> {
    pub(super) fn decode(table: Table<'_, 'a>) -> Option<Self> {
        let tag = table.scalar(NODE_TYPE, 0u8);
        let union = table.required_table(NODE_UNION)?;
        let Some((operation, flags)) = Operation::decode(tag, union) else {
            table.unknown(NODE_TYPE, tag);
            return None;
        };
        let bounds = table.table(NODE_MIN_MAX);
        Some(Self {
            operation,
            flags: NodeFlags(union.scalar(flags, 0)),
            debug_handle: table.scalar(NODE_DEBUG_HANDLE, 0),
            output_min_max: bounds.map(|bounds| (bounds.scalar(OUTPUT_MIN, 0.0), bounds.scalar(OUTPUT_MAX, 0.0))),
            tag,
        })
    }

    /// The name in the schema.
    pub fn name(&self) -> &'static str {
        NAMES.get(usize::from(self.tag)).copied().unwrap_or_default()
    }
}

impl<'a> Operation<'a> {
    /// The operation, and the field with its flags; `None` for a tag that the schema does not define.
    fn decode(tag: u8, table: Table<'_, 'a>) -> Option<(Self, Field)> {
        let id = |field| table.scalar::<u32>(field, 0);
        let optional = |field| Some(id(field)).filter(|id| *id != NO_VALUE);
        let unary =
            |unary| Some((Self::Unary { unary, input: id(UNARY_INPUT), output: id(UNARY_OUTPUT) }, UNARY_FLAGS));
        let binary = |binary| {
            let inputs = [id(BINARY_INPUT1), id(BINARY_INPUT2)];
            Some((Self::Binary { binary, inputs, output: id(BINARY_OUTPUT) }, BINARY_FLAGS))
        };
        let parameter = || table.scalar::<f32>(PARAMETRIC_PARAMETER, 0.0);
        let concatenate = |count: usize| {
            let mut inputs = [CAT_INPUT1, CAT_INPUT2, CAT_INPUT3, CAT_INPUT4, CAT_INPUT5].map(|field| Some(id(field)));
            inputs.iter_mut().skip(count).for_each(|input| *input = None);
            Some((Self::Concatenate { axis: id(CAT_AXIS), inputs, output: id(CAT_OUTPUT) }, CAT_FLAGS))
        };
        let convolution = |kind| Some((Self::Convolution(Convolution::decode(kind, table)), CONV_FLAGS));
        let pooling = |kind| Some((Self::Pooling(Pooling::decode(kind, table)), POOL_FLAGS));
        match tag {
            1 => binary(Binary::Add),
            2 => Some((
                Self::FullyConnected {
                    input: id(FULLY_INPUT),
                    filter: id(FULLY_FILTER),
                    bias: optional(FULLY_BIAS),
                    output: id(FULLY_OUTPUT),
                },
                FULLY_FLAGS,
            )),
            3 => unary(Unary::Softmax),
            4 => unary(Unary::Sigmoid),
            5 => Some((
                Self::Transpose { perm: table.vector(SHAPE_DIMS), input: id(SHAPE_INPUT), output: id(SHAPE_OUTPUT) },
                SHAPE_FLAGS,
            )),
            6 => unary(Unary::Clamp),
            7 => convolution(ConvolutionKind::Standard),
            8 => binary(Binary::Divide),
            9 => Some((
                Self::ResizeBilinear {
                    size: [id(RESIZE_HEIGHT), id(RESIZE_WIDTH)],
                    input: id(RESIZE_INPUT),
                    output: id(RESIZE_OUTPUT),
                },
                RESIZE_FLAGS,
            )),
            10 => Some((
                Self::Pad {
                    before: table.vector(PAD_BEFORE),
                    after: table.vector(PAD_AFTER),
                    value: table.scalar(PAD_VALUE, 0.0),
                    input: id(PAD_INPUT),
                    output: id(PAD_OUTPUT),
                },
                PAD_FLAGS,
            )),
            11 => pooling(PoolingKind::Average),
            12 => binary(Binary::Minimum),
            13 => convolution(ConvolutionKind::Depthwise),
            14 => pooling(PoolingKind::Max),
            15 => binary(Binary::Multiply),
            16 => binary(Binary::Subtract),
            17 => unary(Unary::Floor),
            18 => unary(Unary::Convert),
            19 => unary(Unary::GlobalAveragePooling),
            20 => Some((
                Self::Reshape { shape: table.vector(SHAPE_DIMS), input: id(SHAPE_INPUT), output: id(SHAPE_OUTPUT) },
                SHAPE_FLAGS,
            )),
            21 => Some((
                Self::ArgMaxPooling {
                    padding: Padding {
                        top: id(ARG_MAX_PADDING_TOP),
                        right: id(ARG_MAX_PADDING_RIGHT),
                        bottom: id(ARG_MAX_PADDING_BOTTOM),
                        left: id(ARG_MAX_PADDING_LEFT),
                    },
                    window: [id(ARG_MAX_HEIGHT), id(ARG_MAX_WIDTH)],
                    input: id(ARG_MAX_INPUT),
                    value: id(ARG_MAX_VALUE),
                    index: id(ARG_MAX_INDEX),
                },
                ARG_MAX_FLAGS,
            )),
            22 => unary(Unary::SquareRoot),
            23 => unary(Unary::Ceiling),
            24 => unary(Unary::Hardswish),
            25 => Some((
                Self::LeakyRelu {
                    negative_slope: parameter(),
                    input: id(PARAMETRIC_INPUT),
                    output: id(PARAMETRIC_OUTPUT),
                },
                PARAMETRIC_FLAGS,
            )),
            26 => binary(Binary::Maximum),
            27 => unary(Unary::Negate),
            28 => unary(Unary::Square),
            29 => Some((
                Self::Elu { alpha: parameter(), input: id(PARAMETRIC_INPUT), output: id(PARAMETRIC_OUTPUT) },
                PARAMETRIC_FLAGS,
            )),
            30 => unary(Unary::Abs),
            31 => binary(Binary::PRelu),
            32 => concatenate(2),
            33 => concatenate(3),
            34 => concatenate(4),
            35 => Some((
                Self::Slice {
                    offsets: table.vector(SLICE_OFFSETS),
                    sizes: table.vector(SLICE_SIZES),
                    input: id(SLICE_INPUT),
                    output: id(SLICE_OUTPUT),
                },
                SLICE_FLAGS,
            )),
            36 => Some((Self::Attention { output: id(ATTENTION_OUTPUT) }, ATTENTION_FLAGS)),
            37 => binary(Binary::BatchMatrixMultiply),
            38 => concatenate(5),
            39 => convolution(ConvolutionKind::Transposed),
            40 => unary(Unary::ReciprocalSquareRoot),
            41 => unary(Unary::Log),
            42 => unary(Unary::Gelu),
            43 => unary(Unary::Tanh),
            44 => unary(Unary::Exp),
            45 => unary(Unary::Sin),
            46 => unary(Unary::Copy),
            47 => unary(Unary::Cos),
            _ => None,
        }
    }

    /// Bytes of its vectors.
    pub(super) fn variable_bytes(&self) -> usize {
        match self {
            Self::Reshape { shape: vector, .. } | Self::Transpose { perm: vector, .. } => vector.as_bytes().len(),
            Self::Slice { offsets: one, sizes: other, .. } | Self::Pad { before: one, after: other, .. } => {
                one.as_bytes().len() + other.as_bytes().len()
            }
            _ => 0,
        }
    }
}

impl Convolution {
    fn decode(kind: ConvolutionKind, table: Table<'_, '_>) -> Self {
        let number = |field| table.scalar::<u32>(field, 0);
        Self {
            kind,
            padding: Padding {
                top: number(CONV_PADDING_TOP),
                right: number(CONV_PADDING_RIGHT),
                bottom: number(CONV_PADDING_BOTTOM),
                left: number(CONV_PADDING_LEFT),
            },
            stride: [number(CONV_STRIDE_HEIGHT), number(CONV_STRIDE_WIDTH)],
            dilation: [number(CONV_DILATION_HEIGHT), number(CONV_DILATION_WIDTH)],
            adjustment: [number(CONV_ADJUSTMENT_HEIGHT), number(CONV_ADJUSTMENT_WIDTH)],
            groups: number(CONV_GROUPS),
            input: number(CONV_INPUT),
            filter: number(CONV_FILTER),
            bias: Some(number(CONV_BIAS)).filter(|id| *id != NO_VALUE),
            output: number(CONV_OUTPUT),
        }
    }
}

impl Pooling {
    fn decode(kind: PoolingKind, table: Table<'_, '_>) -> Self {
        let number = |field| table.scalar::<u32>(field, 0);
        Self {
            kind,
            padding: Padding {
                top: number(POOL_PADDING_TOP),
                right: number(POOL_PADDING_RIGHT),
                bottom: number(POOL_PADDING_BOTTOM),
                left: number(POOL_PADDING_LEFT),
            },
            window: [number(POOL_HEIGHT), number(POOL_WIDTH)],
            stride: [number(POOL_STRIDE_HEIGHT), number(POOL_STRIDE_WIDTH)],
            dilation: [number(POOL_DILATION_HEIGHT), number(POOL_DILATION_WIDTH)],
            input: number(POOL_INPUT),
            output: number(POOL_OUTPUT),
        }
    }
}

impl Padding {
    /// True if all sides are 0.
    pub const fn is_empty(self) -> bool {
        self.top == 0 && self.right == 0 && self.bottom == 0 && self.left == 0
    }

    /// Rows and columns on either side, if opposite sides are equal.
    pub fn symmetric(self) -> Option<[u32; 2]> {
        (self.top == self.bottom && self.left == self.right).then_some([self.top, self.left])
    }
}
