//! Execution plans: the methods of a program.

use crate::budget::Budget;
use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::{Table, Tables, Vector};

use super::instruction::Instruction;
use super::program::Program;
use super::schema::*;
use super::scope::{Scope, indices};
use super::tensor::{Device, decode_device};
use super::value::Value;

/// One method of a program. All of it was checked by [`Program::parse`], so that its accessors return
/// plain values; an index past the end is the only thing that a caller can get wrong.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    name: &'a str,
    values: Tables<'a>,
    inputs: Vector<'a, u32>,
    outputs: Vector<'a, u32>,
    instructions: Tables<'a>,
    stacktrace: Tables<'a>,
    operators: Tables<'a>,
    delegates: Tables<'a>,
    buffer_sizes: Vector<'a, i64>,
    buffer_devices: Tables<'a>,
    encoding: Option<Table<'a>>,
}

/// The operator that a kernel call names, such as `aten::add` and `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorName<'a> {
    pub name: &'a str,
    /// Empty for the default overload.
    pub overload: &'a str,
}

/// A part of a method that a backend runs.
#[derive(Clone, Copy, Debug)]
pub struct DelegateSpec<'a> {
    /// Name of the backend.
    pub id: &'a str,
    /// Its payload: [`Program::delegate_data`].
    pub data: DelegateDataRef,
    compile_specs: Tables<'a>,
}

/// Where a delegate's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DelegateDataRef {
    /// Index of the program's inline delegate data.
    Inline(u32),
    /// Index of a segment.
    Segment(u32),
}

/// An option that was given to the backend when it compiled the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileSpec<'a> {
    pub key: &'a str,
    pub value: &'a [u8],
}

/// A line of the Python stack at which an instruction's node was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub filename: &'a str,
    pub lineno: i32,
    /// Name of the function.
    pub name: &'a str,
    /// The line's source text.
    pub context: &'a str,
}

impl<'a> Plan<'a> {
    /// Name of the method, `forward` most often.
    pub fn name(&self) -> &'a str {
        self.name
    }

    pub fn num_values(&self) -> usize {
        self.values.len()
    }

    /// Value `index`; `None` past the end.
    #[inline]
    pub fn value(&self, index: usize) -> Value<'a> {
        self.values.get(index).and_then(|table| Value::decode(table, None)).unwrap_or(Value::None)
    }

    /// All values in order, in one quick pass.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Value<'a>> + use<'a> {
        self.values.iter().map(|table| table.and_then(|table| Value::decode(table, None)).unwrap_or(Value::None))
    }

    /// Indices of the values that the caller provides.
    pub fn inputs(&self) -> Vector<'a, u32> {
        self.inputs
    }

    /// Indices of the values that the method returns.
    pub fn outputs(&self) -> Vector<'a, u32> {
        self.outputs
    }

    pub fn num_instructions(&self) -> usize {
        self.instructions.len()
    }

    /// Instruction `index`, if there are so many.
    #[inline]
    pub fn instruction(&self, index: usize) -> Option<Instruction<'a>> {
        self.instructions.get(index).and_then(|table| Instruction::decode(table, None)).ok()
    }

    /// All instructions in order.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction<'a>> + use<'a> {
        self.instructions.iter().filter_map(|table| Instruction::decode(table.ok()?, None).ok())
    }

    /// Whether the exporter kept stack traces.
    pub fn has_stacktrace(&self) -> bool {
        self.stacktrace.len() > 0
    }

    /// The Python stack of an instruction, innermost call last. Empty unless the exporter kept it.
    pub fn frames(&self, instruction: usize) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        let frames = self.stacktrace.get(instruction).and_then(|list| list.tables(&FRAME_LIST_ITEMS));
        frames.into_iter().flat_map(Tables::iter).filter_map(|frame| frame.and_then(Frame::decode).ok())
    }

    pub fn num_operators(&self) -> usize {
        self.operators.len()
    }

    /// Operator `index`, if there are so many.
    pub fn operator(&self, index: usize) -> Option<OperatorName<'a>> {
        self.operators.get(index).and_then(OperatorName::decode).ok()
    }

    pub fn num_delegates(&self) -> usize {
        self.delegates.len()
    }

    /// Delegate `index`, if there are so many.
    pub fn delegate(&self, index: usize) -> Option<DelegateSpec<'a>> {
        self.delegates.get(index).and_then(DelegateSpec::decode).ok()
    }

    /// One more than the largest memory id, or 0. Id 0 stands for no buffer.
    pub fn num_buffers(&self) -> usize {
        self.buffer_sizes.len()
    }

    /// Bytes of the planned buffer with this memory id; 0 for id 0 and past the end.
    pub fn buffer_size(&self, memory_id: u32) -> u64 {
        match memory_id {
            0 => 0,
            id => self.buffer_sizes.get(id as usize).map_or(0, i64::unsigned_abs),
        }
    }

    /// The device whose memory the planned buffer is in.
    pub fn buffer_device(&self, memory_id: u32) -> Device {
        self.buffer_devices
            .iter()
            .filter_map(|table| decode_buffer_device(table.ok()?).ok())
            .find(|(id, _)| *id == memory_id)
            .map_or(Device::default(), |(_, device)| device)
    }

    /// How the caller's nested inputs map to the flat list, as pytree text; empty if not recorded.
    pub fn input_encoding(&self) -> &'a str {
        self.encoding.and_then(|table| table.string(&CONTAINER_INPUT).ok()?).unwrap_or("")
    }

    /// How the flat outputs map to the nested ones, as pytree text; empty if not recorded.
    pub fn output_encoding(&self) -> &'a str {
        self.encoding.and_then(|table| table.string(&CONTAINER_OUTPUT).ok()?).unwrap_or("")
    }

    /// Reads the lists of a plan, not yet their entries.
    pub(crate) fn decode(table: Table<'a>) -> Result<Self, FormatError> {
        let values = table.tables(&PLAN_VALUES)?;
        let chains = table.tables(&PLAN_CHAINS)?;
        let chain = match chains.len() {
            0 => None,
            1 => Some(chains.get(0)?),
            _ => return Err(table.error(&PLAN_CHAINS, ErrorKind::Unsupported { what: "more than one chain" })),
        };
        let empty = Tables::empty(&CHAIN_INSTRUCTIONS);
        let (instructions, stacktrace) = match chain {
            Some(chain) => (chain.tables(&CHAIN_INSTRUCTIONS)?, chain.tables(&CHAIN_STACKTRACE)?),
            None => (empty, empty),
        };
        Ok(Self {
            name: table.required_string(&PLAN_NAME)?,
            inputs: table.required_vector(&PLAN_INPUTS)?,
            outputs: table.required_vector(&PLAN_OUTPUTS)?,
            values,
            instructions,
            stacktrace,
            operators: table.tables(&PLAN_OPERATORS)?,
            delegates: table.tables(&PLAN_DELEGATES)?,
            buffer_sizes: table.vector(&PLAN_BUFFER_SIZES)?.unwrap_or_default(),
            buffer_devices: table.tables(&PLAN_BUFFER_DEVICE)?,
            encoding: table.table(&PLAN_CONTAINER)?,
        })
    }

    /// Decodes every entry of the plan once and checks it against the plan, which `table` holds, and its program.
    pub(crate) fn check(&self, table: Table<'a>, program: &Program<'a>, budget: &Budget) -> Result<(), FormatError> {
        let scope = Scope {
            program,
            num_values: self.values.len(),
            num_operators: self.operators.len(),
            num_delegates: self.delegates.len(),
            num_instructions: self.instructions.len(),
            buffer_sizes: self.buffer_sizes,
            budget,
        };
        indices(table, &PLAN_INPUTS, Some(&scope))?;
        indices(table, &PLAN_OUTPUTS, Some(&scope))?;
        budget.spend(table.position(), 8 * self.buffer_sizes.len())?;
        if let Some((id, size)) = self.buffer_sizes.iter().enumerate().find(|(_, size)| *size < 0) {
            return Err(table.error(&PLAN_BUFFER_SIZES, ErrorKind::Negative { value: size }).at_index(id));
        }
        for (i, table) in self.values.iter().enumerate() {
            check_entry(table, budget, |table| Value::decode(table, Some(&scope)).map(drop))
                .map_err(|error| error.at_index(i))?;
        }
        for (i, table) in self.instructions.iter().enumerate() {
            check_entry(table, budget, |table| Instruction::decode(table, Some(&scope)).map(drop))
                .map_err(|error| error.at_index(i))?;
        }
        self.check_names(program, budget)
    }

    /// Checks operators, delegates, devices, encodings and stack traces.
    fn check_names(&self, program: &Program<'a>, budget: &Budget) -> Result<(), FormatError> {
        for (i, table) in self.operators.iter().enumerate() {
            let operator = table.and_then(OperatorName::decode).map_err(|error| error.at_index(i))?;
            budget.spend(self.operators.position(), 16 + operator.name.len() + operator.overload.len())?;
        }
        for (i, table) in self.delegates.iter().enumerate() {
            let delegate = table.and_then(DelegateSpec::decode).map_err(|error| error.at_index(i))?;
            if program.delegate_data(delegate.data).is_none() {
                let (DelegateDataRef::Inline(index) | DelegateDataRef::Segment(index)) = delegate.data;
                let limit = program.num_delegate_data(delegate.data) as u64;
                let kind = ErrorKind::OutOfRange { value: u64::from(index), limit };
                return Err(PAYLOAD_INDEX.error(kind, self.delegates.position()).at_index(i));
            }
            budget.spend(self.delegates.position(), 16 + delegate.id.len())?;
            for (k, spec) in delegate.compile_specs.iter().enumerate() {
                let spec = spec.and_then(CompileSpec::decode).map_err(|error| error.at_index(k))?;
                budget.spend(self.delegates.position(), 16 + spec.key.len())?;
            }
        }
        for (i, table) in self.buffer_devices.iter().enumerate() {
            table.and_then(decode_buffer_device).map_err(|error| error.at_index(i))?;
        }
        for (i, list) in self.stacktrace.iter().enumerate() {
            for frame in list.and_then(|list| list.tables(&FRAME_LIST_ITEMS)).map_err(|error| error.at_index(i))?.iter()
            {
                let frame = frame.and_then(Frame::decode).map_err(|error| error.at_index(i))?;
                let text = frame.filename.len() + frame.name.len() + frame.context.len();
                budget.spend(self.stacktrace.position(), 16 + text)?;
            }
            budget.spend(self.stacktrace.position(), 16)?;
        }
        if let Some(table) = self.encoding {
            for field in [&CONTAINER_INPUT, &CONTAINER_OUTPUT] {
                budget.spend(table.position(), table.string(field)?.map_or(0, str::len))?;
            }
        }
        Ok(())
    }
}

impl<'a> OperatorName<'a> {
    fn decode(table: Table<'a>) -> Result<Self, FormatError> {
        Ok(Self {
            name: table.required_string(&OPERATOR_NAME)?,
            overload: table.string(&OPERATOR_OVERLOAD)?.unwrap_or(""),
        })
    }
}

impl<'a> DelegateSpec<'a> {
    pub fn compile_specs(&self) -> impl Iterator<Item = CompileSpec<'a>> + use<'a> {
        self.compile_specs.iter().filter_map(|table| table.and_then(CompileSpec::decode).ok())
    }

    fn decode(table: Table<'a>) -> Result<Self, FormatError> {
        let processed = table.required_table(&DELEGATE_PROCESSED)?;
        let index = processed.scalar(&PAYLOAD_INDEX, 0u32)?;
        let data = match processed.scalar(&PAYLOAD_LOCATION, 0u8)? {
            0 => DelegateDataRef::Inline(index),
            1 => DelegateDataRef::Segment(index),
            tag => return Err(processed.error(&PAYLOAD_LOCATION, ErrorKind::UnknownTag { tag: u32::from(tag) })),
        };
        Ok(Self {
            id: table.required_string(&DELEGATE_ID)?,
            data,
            compile_specs: table.tables(&DELEGATE_COMPILE_SPECS)?,
        })
    }
}

impl<'a> CompileSpec<'a> {
    fn decode(table: Table<'a>) -> Result<Self, FormatError> {
        Ok(Self {
            key: table.required_string(&SPEC_KEY)?,
            value: table.vector::<u8>(&SPEC_VALUE)?.unwrap_or_default().as_bytes(),
        })
    }
}

impl<'a> Frame<'a> {
    fn decode(table: Table<'a>) -> Result<Self, FormatError> {
        Ok(Self {
            filename: table.string(&FRAME_FILENAME)?.unwrap_or(""),
            lineno: table.scalar(&FRAME_LINENO, 0)?,
            name: table.string(&FRAME_NAME)?.unwrap_or(""),
            context: table.string(&FRAME_CONTEXT)?.unwrap_or(""),
        })
    }
}

/// Pays for a table of a list and checks it.
#[cfg_attr(not(target_os = "none"), inline(always))]
fn check_entry<'a>(
    table: Result<Table<'a>, FormatError>,
    budget: &Budget,
    check: impl FnOnce(Table<'a>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let table = table?;
    budget.spend(table.position(), 16)?;
    check(table)
}

fn decode_buffer_device(table: Table<'_>) -> Result<(u32, Device), FormatError> {
    Ok((table.scalar(&BUFFER_DEVICE_ID, 0u32)?, decode_device(table, &BUFFER_DEVICE_TYPE, &BUFFER_DEVICE_INDEX)?))
}
