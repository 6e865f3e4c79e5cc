//! Payloads of ExecuTorch's Vulkan delegate, which its WebGPU runtime reads, too: calls of operators over numbered values.
//!
//! The calls have the names of PyTorch's operators, and all arguments of their schemas. Constants lie in a region of the
//! payload, or in the program's named data.

mod schema;

use super::header::read_header;
use crate::error::FormatError;
use crate::flatbuf::{Context, Table, TableList, Vector};
use crate::header::check_identifier;
use crate::scalar_type::ScalarType;
use crate::schema::Field;

use schema::*;

pub(super) use schema::NAMES as SCHEMA;

/// A payload. [`parse`](Self::parse) has checked all of it; this is a view of its bytes and cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    buf: &'a [u8],
    calls: TableList,
    values: TableList,
    constants: TableList,
    inputs: Vector<'a, u32>,
    outputs: Vector<'a, u32>,
    region: &'a [u8],
}

/// A call of an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    /// The number of the node that it was made from.
    pub id: u32,
    /// The name, such as `aten.add.Tensor`; that of a Python operator has no dot.
    pub name: &'a str,
    /// The values of its arguments in the order of the schema, and the values that it writes.
    pub args: Vector<'a, i32>,
}

/// A value that calls refer to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    Double(f64),
    Bool(bool),
    Tensor(TensorValue<'a>),
    IntList(Vector<'a, i64>),
    DoubleList(Vector<'a, f64>),
    BoolList(Vector<'a, bool>),
    /// Numbers of values.
    ValueList(Vector<'a, i32>),
    String(&'a str),
    /// An integer that an input or a call gives.
    SymInt,
}

/// A tensor of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorValue<'a> {
    /// The type that it has on the device. The program's own may have more bits.
    pub dtype: ScalarType,
    /// Sizes. Of tensors that are no constants these are the largest.
    pub dims: Vector<'a, u32>,
    /// The constant with its first elements; see [`Payload::constant`].
    pub constant: Option<u32>,
}

/// The bytes of a constant, or where to find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstantData<'a> {
    Bytes(&'a [u8]),
    /// In the program's named data under this key.
    Named(&'a str),
}

const MAGIC: [u8; 4] = *b"VH00";
const IDENTIFIER: [u8; 4] = *b"VK00";

/// The element types by their codes.
const DTYPES: [ScalarType; 8] = [
    ScalarType::Bool,
    ScalarType::Byte,
    ScalarType::Char,
    ScalarType::Int,
    ScalarType::Half,
    ScalarType::Float,
    ScalarType::Double,
    ScalarType::Long,
];

impl<'a> Payload<'a> {
    /// Parses a payload and checks all of it but the constants in named data. `payload` needs no alignment.
    ///
    /// # Errors
    /// The first fault found. See [`ErrorKind`](crate::ErrorKind).
    pub fn parse(payload: &'a [u8]) -> Result<Self, FormatError> {
        let header = Context::new(payload);
        let parts = header.explain(read_header(&header, MAGIC))?;
        let ctx = Context::new(parts.flatbuffer);
        // A writer that leaves out the size of the region means the rest of the payload.
        let region = match parts.constants {
            Some([]) => parts.rest,
            region => region.unwrap_or_default(),
        };
        ctx.explain(Self::decode(&ctx, region))
    }

    fn decode(ctx: &Context<'a>, region: &'a [u8]) -> Option<Self> {
        check_identifier(ctx, IDENTIFIER);
        let root = ctx.root(GRAPH_ROOT)?;
        let payload = Self {
            buf: ctx.buf(),
            calls: root.tables(GRAPH_CHAIN),
            values: root.tables(GRAPH_VALUES),
            constants: root.tables(GRAPH_CONSTANTS),
            inputs: root.vector(GRAPH_INPUTS),
            outputs: root.vector(GRAPH_OUTPUTS),
            region,
        };
        payload.check(ctx, root);
        Some(payload)
    }

    /// The calls in the order in which they run.
    pub fn calls(&self) -> impl Iterator<Item = Call<'a>> + use<'a> {
        let payload = *self;
        (0..self.calls.len()).filter_map(move |index| payload.calls.entry(payload.buf, index, Call::decode))
    }

    /// The value of a number.
    pub fn value(&self, id: u32) -> Option<Value<'a>> {
        self.values.entry(self.buf, id as usize, Value::decode).flatten()
    }

    /// The values that the arguments of the delegate's call give, in order.
    pub fn inputs(&self) -> Vector<'a, u32> {
        self.inputs
    }

    /// The values that are the results of the delegate's call, in order.
    pub fn outputs(&self) -> Vector<'a, u32> {
        self.outputs
    }

    /// The data of a constant.
    pub fn constant(&self, index: u32) -> Option<ConstantData<'a>> {
        self.constants.entry(self.buf, index as usize, |table| constant_data(table, self.region)).flatten()
    }

    fn check(&self, ctx: &Context<'a>, root: Table<'_, 'a>) {
        let count = self.values.len();
        for (field, ids) in [(GRAPH_INPUTS, self.inputs), (GRAPH_OUTPUTS, self.outputs)] {
            root.spend(ids.as_bytes().len());
            if let Some(id) = ids.iter().find(|id| *id as usize >= count) {
                root.out_of_range(field, u64::from(id), count);
            }
        }
        ctx.each(self.constants, GRAPH_CONSTANTS, |table| {
            table.spend(16);
            if constant_data(table, self.region).is_none() {
                table.out_of_range(BYTES_OFFSET, table.scalar(BYTES_OFFSET, 0), self.region.len());
            }
        });
        ctx.each(self.values, GRAPH_VALUES, |table| {
            let Some(value) = Value::decode(table) else { return };
            table.spend(16 + value.variable_bytes());
            match value {
                Value::Tensor(TensorValue { constant: Some(constant), .. })
                    if constant as usize >= self.constants.len() =>
                {
                    table.out_of_range(TENSOR_CONSTANT, u64::from(constant), self.constants.len());
                }
                Value::ValueList(ids) => check_ids(table, CONTENT, ids, count),
                _ => {}
            }
        });
        ctx.each(self.calls, GRAPH_CHAIN, |table| {
            let call = Call::decode(table);
            table.spend(16 + call.name.len() + call.args.as_bytes().len());
            check_ids(table, CALL_ARGS, call.args, count);
        });
    }
}

/// Reports numbers of values that do not exist.
fn check_ids(table: Table<'_, '_>, field: Field, ids: Vector<'_, i32>, count: usize) {
    if let Some(id) = ids.iter().find(|id| usize::try_from(*id).map_or(true, |id| id >= count)) {
        table.out_of_range(field, u64::from(id as u32), count);
    }
}

impl<'a> Call<'a> {
    fn decode(table: Table<'_, 'a>) -> Self {
        Self { id: table.scalar(CALL_ID, 0), name: table.required_string(CALL_NAME), args: table.vector(CALL_ARGS) }
    }
}

impl<'a> Value<'a> {
    fn decode(table: Table<'_, 'a>) -> Option<Self> {
        let tag = table.scalar(VALUE_TYPE, 0u8);
        if tag == 1 {
            return Some(Self::Null);
        }
        let content = table.required_table(VALUE_UNION)?;
        Some(match tag {
            2 => Self::Int(content.scalar(CONTENT, 0)),
            3 => Self::Double(content.scalar(CONTENT, 0.0)),
            4 => Self::Bool(content.scalar(CONTENT, false)),
            5 => Self::Tensor(TensorValue::decode(content)?),
            6 => Self::IntList(content.vector(CONTENT)),
            7 => Self::DoubleList(content.vector(CONTENT)),
            8 => Self::BoolList(content.vector(CONTENT)),
            9 => Self::ValueList(content.vector(CONTENT)),
            10 => Self::String(content.required_string(CONTENT)),
            11 => Self::SymInt,
            tag => {
                table.unknown(VALUE_TYPE, tag);
                return None;
            }
        })
    }

    /// Bytes of its list or text.
    fn variable_bytes(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.dims.as_bytes().len(),
            Self::IntList(items) => items.as_bytes().len(),
            Self::DoubleList(items) => items.as_bytes().len(),
            Self::BoolList(items) => items.as_bytes().len(),
            Self::ValueList(items) => items.as_bytes().len(),
            Self::String(text) => text.len(),
            Self::Null | Self::Int(_) | Self::Double(_) | Self::Bool(_) | Self::SymInt => 0,
        }
    }
}

impl<'a> TensorValue<'a> {
    fn decode(table: Table<'_, 'a>) -> Option<Self> {
        // Absent fields are 0 here: a tensor without a constant has -1.
        let code: i8 = table.scalar(TENSOR_DATATYPE, 0);
        let dtype = usize::try_from(code).ok().and_then(|code| DTYPES.get(code));
        if dtype.is_none() {
            table.out_of_range(TENSOR_DATATYPE, u64::from(code as u8), DTYPES.len());
        }
        let constant: i32 = table.scalar(TENSOR_CONSTANT, 0);
        Some(Self { dtype: *dtype?, dims: table.vector(TENSOR_DIMS), constant: u32::try_from(constant).ok() })
    }
}

fn constant_data<'a>(table: Table<'_, 'a>, region: &'a [u8]) -> Option<ConstantData<'a>> {
    if let Some(key) = table.string(BYTES_KEY).filter(|key| !key.is_empty()) {
        return Some(ConstantData::Named(key));
    }
    let start = usize::try_from(table.scalar::<u64>(BYTES_OFFSET, 0)).ok()?;
    let len = usize::try_from(table.scalar::<u64>(BYTES_LENGTH, 0)).ok()?;
    region.get(start..start.checked_add(len)?).map(ConstantData::Bytes)
}
