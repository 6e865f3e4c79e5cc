//! Payloads of ExecuTorch's XNNPACK delegate: a graph of nodes, and their constants.
//!
//! Constants have lain in three places: in the flatbuffer, in a region of the payload after it, and in the program's
//! named data. All three are read.

mod node;
mod schema;

use super::header::read_header;
use crate::error::FormatError;
use crate::flatbuf::{Context, Table, TableList, Vector};
use crate::header::check_identifier;
use crate::schema::{BUFFER_STORAGE, Field};

pub use node::{
    Binary, Convolution, ConvolutionKind, Node, NodeFlags, Operation, Padding, Pooling, PoolingKind, Unary,
};
use schema::*;

pub(super) use schema::NAMES as SCHEMA;

/// A payload. [`parse`](Self::parse) has checked all of it; this is a view of its bytes and cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    buf: &'a [u8],
    nodes: TableList,
    values: TableList,
    constants: XnnpackConstants<'a>,
}

/// The list of the payload's constants.
#[derive(Clone, Copy, Debug)]
enum XnnpackConstants<'a> {
    /// In the flatbuffer: payloads without a header.
    Inline(TableList),
    /// Offsets in a region of the payload, or keys of named data.
    Listed { list: TableList, region: &'a [u8] },
}

/// The bytes of a constant, or where to find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstantData<'a> {
    Bytes(&'a [u8]),
    /// In the program's named data under this key.
    Named(&'a str),
}

/// A tensor of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorValue<'a> {
    /// The id by which nodes refer to it.
    pub id: u32,
    pub datatype: Datatype,
    /// Sizes, in the order in which the dimensions lie in memory. Of tensors that are no constants these are the largest.
    pub dims: Vector<'a, u32>,
    /// The constant that it is; see [`Payload::constant`].
    pub constant: Option<u32>,
    /// The argument of the delegate call that is this input.
    pub input: Option<u32>,
    /// The argument of the delegate call that is this output.
    pub output: Option<u32>,
    /// Quantization of its integers, if it has any.
    pub quantization: Option<Quantization<'a>>,
    /// True if it holds numbers that are quantized when they are used.
    pub is_quantized_later: bool,
}

/// Quantization: an integer `q` represents `(q - zero_point) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Quantization<'a> {
    PerTensor {
        scale: f32,
        zero_point: i32,
    },
    /// A scale for each index of a dimension.
    PerChannel {
        scales: Scales<'a>,
        dim: i32,
    },
    /// Chosen when it runs, for each index of the dimensions before the last `dims`: 1 for rows, 3 for images.
    PerToken {
        dims: i32,
    },
    /// A scale for each `group` elements of a row.
    PerGroup {
        scales: Scales<'a>,
        group: i32,
    },
}

/// The storage of scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scales<'a> {
    Here(Vector<'a, f32>),
    /// In the constant of this index: `f32`, or bf16 of groups.
    Constant(u32),
}

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Datatype {
    Invalid,
    Fp32,
    Fp16,
    Qint8,
    Quint8,
    Qint32,
    Qcint8,
    Qcint32,
    Qcint4,
    Qdint8,
    Qbint4,
    Qpint8,
    Int32,
    Pfp32,
    Bf16,
}

const MAGIC: [u8; 4] = *b"XH00";
/// The serializer writes the second and the runtime's own schema has the first; the tables are the same.
const IDENTIFIERS: [[u8; 4]; 2] = [*b"XN00", *b"XN01"];

const EXTERNAL_INPUT: u32 = 1;
const EXTERNAL_OUTPUT: u32 = 2;

impl<'a> Payload<'a> {
    /// Parses a payload and checks all of it but the constants in named data. `payload` needs no alignment.
    ///
    /// # Errors
    /// The first fault found. See [`ErrorKind`](crate::ErrorKind).
    pub fn parse(payload: &'a [u8]) -> Result<Self, FormatError> {
        let header = Context::new(payload);
        let parts = header.explain(read_header(&header, MAGIC))?;
        let ctx = Context::new(parts.flatbuffer);
        ctx.explain(Self::decode(&ctx, parts.constants))
    }

    fn decode(ctx: &Context<'a>, region: Option<&'a [u8]>) -> Option<Self> {
        let identifier = ctx.number::<u32>(4, GRAPH_ROOT).to_le_bytes();
        if !IDENTIFIERS.contains(&identifier) {
            check_identifier(ctx, IDENTIFIERS[1]);
        }
        let root = ctx.root(GRAPH_ROOT)?;
        let constants = match region {
            None => XnnpackConstants::Inline(root.tables(GRAPH_CONSTANT_BUFFER)),
            Some(region) => XnnpackConstants::Listed { list: root.tables(GRAPH_CONSTANT_DATA), region },
        };
        let payload =
            Self { buf: ctx.buf(), nodes: root.tables(GRAPH_NODES), values: root.tables(GRAPH_VALUES), constants };
        payload.check(ctx);
        Some(payload)
    }

    /// The nodes in the order in which they run.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let payload = *self;
        (0..self.nodes.len()).filter_map(move |index| payload.nodes.entry(payload.buf, index, Node::decode).flatten())
    }

    /// The tensors that nodes refer to.
    pub fn values(&self) -> impl Iterator<Item = TensorValue<'a>> + use<'a> {
        let payload = *self;
        (0..self.values.len())
            .filter_map(move |index| payload.values.entry(payload.buf, index, TensorValue::decode).flatten())
    }

    /// The data of a constant, possibly with padding after it.
    pub fn constant(&self, index: u32) -> Option<ConstantData<'a>> {
        let index = index as usize;
        match self.constants {
            XnnpackConstants::Inline(list) => {
                list.entry(self.buf, index, |table| ConstantData::Bytes(table.vector::<u8>(BUFFER_STORAGE).as_bytes()))
            }
            XnnpackConstants::Listed { list, region } => {
                list.entry(self.buf, index, |table| constant_data(table, region)).flatten()
            }
        }
    }

    fn check(&self, ctx: &Context<'a>) {
        let num_constants = match self.constants {
            XnnpackConstants::Inline(list) => {
                ctx.each(list, GRAPH_CONSTANT_BUFFER, |table| {
                    table.spend(16);
                    table.vector::<u8>(BUFFER_STORAGE);
                });
                list.len()
            }
            XnnpackConstants::Listed { list, region } => {
                let mut index = 0;
                ctx.each(list, GRAPH_CONSTANT_DATA, |table| {
                    table.spend(16);
                    // The first stands for tensors that are no constants.
                    if constant_data(table, region).is_none() && index > 0 {
                        table.out_of_range(CONSTANT_OFFSET, table.scalar(CONSTANT_OFFSET, 0), region.len());
                    }
                    index += 1;
                });
                list.len()
            }
        };
        ctx.each(self.values, GRAPH_VALUES, |table| {
            let Some(value) = TensorValue::decode(table) else { return };
            table.spend(16 + value.dims.as_bytes().len());
            if let Some(constant) = value.constant
                && constant as usize >= num_constants
            {
                table.out_of_range(TENSOR_CONSTANT, u64::from(constant), num_constants);
            }
            match value.quantization {
                Some(
                    Quantization::PerChannel { scales: Scales::Constant(constant), .. }
                    | Quantization::PerGroup { scales: Scales::Constant(constant), .. },
                ) if constant as usize >= num_constants => {
                    table.out_of_range(CHANNEL_BUFFER, u64::from(constant), num_constants);
                }
                Some(
                    Quantization::PerChannel { scales: Scales::Here(scales), .. }
                    | Quantization::PerGroup { scales: Scales::Here(scales), .. },
                ) => table.spend(scales.as_bytes().len()),
                _ => {}
            }
        });
        ctx.each(self.nodes, GRAPH_NODES, |table| {
            table.spend(16 + Node::decode(table).map_or(0, |node| node.operation.variable_bytes()));
        });
    }
}

impl<'a> TensorValue<'a> {
    fn decode(table: Table<'_, 'a>) -> Option<Self> {
        let union = table.required_table(VALUE_UNION)?;
        let (tensor, quantization) = match table.scalar(VALUE_TYPE, 0u8) {
            1 => (union, None),
            2 => {
                let has_params = union.scalar(QUANTIZED_TYPE, 0u8) != 0;
                let params = if has_params { Some(Quantization::decode(union)?) } else { None };
                (union.required_table(QUANTIZED_TENSOR)?, params)
            }
            tag => {
                table.unknown(VALUE_TYPE, tag);
                return None;
            }
        };
        let datatype = datatype(tensor, TENSOR_DATATYPE)?;
        let quantized_later = datatype_or_invalid(tensor)?;
        let flags: u32 = tensor.scalar(TENSOR_FLAGS, 0);
        if flags & !(EXTERNAL_INPUT | EXTERNAL_OUTPUT) != 0 {
            tensor.out_of_range(TENSOR_FLAGS, u64::from(flags), (EXTERNAL_INPUT | EXTERNAL_OUTPUT) as usize);
            return None;
        }
        let external_id: u32 = tensor.scalar(TENSOR_EXTERNAL_ID, 0);
        let constant: u32 = tensor.scalar(TENSOR_CONSTANT, 0);
        Some(Self {
            id: tensor.scalar(TENSOR_ID, 0),
            datatype,
            dims: tensor.vector(TENSOR_DIMS),
            constant: (constant != 0).then_some(constant),
            input: (flags & EXTERNAL_INPUT != 0).then_some(external_id),
            output: (flags & EXTERNAL_OUTPUT != 0).then_some(external_id),
            quantization,
            is_quantized_later: quantized_later,
        })
    }
}

impl Quantization<'_> {
    /// The parameters of a quantized tensor; `None` if they are damaged.
    fn decode<'a>(tensor: Table<'_, 'a>) -> Option<Quantization<'a>> {
        let params = tensor.required_table(QUANTIZED_PARAMS)?;
        let scales = |buffer| match params.scalar(buffer, 0u32) {
            0 => Scales::Here(params.vector(CHANNEL_SCALES)),
            constant => Scales::Constant(constant),
        };
        Some(match tensor.scalar(QUANTIZED_TYPE, 0u8) {
            1 => Quantization::PerChannel { scales: scales(CHANNEL_BUFFER), dim: params.scalar(CHANNEL_DIM, 0) },
            2 => Quantization::PerTensor {
                scale: params.scalar(PER_TENSOR_SCALE, 0.0),
                zero_point: params.scalar(PER_TENSOR_ZERO, 0),
            },
            3 => Quantization::PerToken { dims: params.scalar(TOKEN_DIMS, 0) },
            4 => Quantization::PerGroup { scales: scales(GROUP_BUFFER), group: params.scalar(GROUP_SIZE, 0) },
            tag => {
                tensor.unknown(QUANTIZED_TYPE, tag);
                return None;
            }
        })
    }
}

impl Datatype {
    const ALL: [(Self, &'static str); 15] = [
        (Self::Invalid, "invalid"),
        (Self::Fp32, "fp32"),
        (Self::Fp16, "fp16"),
        (Self::Qint8, "qint8"),
        (Self::Quint8, "quint8"),
        (Self::Qint32, "qint32"),
        (Self::Qcint8, "qcint8"),
        (Self::Qcint32, "qcint32"),
        (Self::Qcint4, "qcint4"),
        (Self::Qdint8, "qdint8"),
        (Self::Qbint4, "qbint4"),
        (Self::Qpint8, "qpint8"),
        (Self::Int32, "int32"),
        (Self::Pfp32, "pfp32"),
        (Self::Bf16, "bf16"),
    ];

    /// The name in the schema.
    pub fn name(self) -> &'static str {
        Self::ALL.get(self as usize).map_or("", |(_, name)| name)
    }
}

fn datatype(tensor: Table<'_, '_>, field: Field) -> Option<Datatype> {
    let code: i16 = tensor.scalar(field, 0);
    let known = usize::try_from(code).ok().and_then(|code| Datatype::ALL.get(code));
    if known.is_none() {
        tensor.out_of_range(field, u64::from(code as u16), Datatype::ALL.len());
    }
    known.map(|(datatype, _)| *datatype)
}

/// True if an input is quantized before use, which the first releases wrote so.
fn datatype_or_invalid(tensor: Table<'_, '_>) -> Option<bool> {
    Some(datatype(tensor, TENSOR_DQ_DATATYPE)? != Datatype::Invalid)
}

fn constant_data<'a>(table: Table<'_, 'a>, region: &'a [u8]) -> Option<ConstantData<'a>> {
    if let Some(key) = table.string(CONSTANT_KEY) {
        return Some(ConstantData::Named(key));
    }
    let start = usize::try_from(table.scalar::<u64>(CONSTANT_OFFSET, 0)).ok()?;
    let len = usize::try_from(table.scalar::<u64>(CONSTANT_SIZE, 0)).ok()?;
    region.get(start..start.checked_add(len)?).map(ConstantData::Bytes)
}
