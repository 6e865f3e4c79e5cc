//! Execution plans: the methods of a program.

use crate::error::{ErrorKind, Feature};
use crate::flatbuf::{Context, Table, TableList, Vector};
use crate::schema::*;
use crate::shapes::{Damaged, Shapes};
#[cfg(feature = "alloc")]
use crate::signature::Signature;

use super::instruction::Instruction;
use super::program::Program;
use super::scope::{Scope, indices};
use super::tensor::{Device, decode_device};
use super::value::ValueSpec;

/// One method of a program. All of it was checked by [`Program::parse`], so that its accessors return
/// plain values; an index past the end is the only thing that a caller can get wrong.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    buf: &'a [u8],
    name: &'a str,
    values: TableList,
    inputs: Vector<'a, u32>,
    outputs: Vector<'a, u32>,
    instructions: TableList,
    stacktrace: TableList,
    operators: TableList,
    delegates: TableList,
    buffer_sizes: Vector<'a, i64>,
    buffer_devices: TableList,
    /// Position of the `ContainerMetadata` table, 0 if there is none.
    container: u32,
    /// The blob of size rules, of all methods.
    shapes: Option<&'a [u8]>,
    /// The blob of signatures, of all methods.
    #[cfg(feature = "alloc")]
    signatures: Option<&'a [u8]>,
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
    buf: &'a [u8],
    compile_specs: TableList,
}

/// The storage of a delegate's payload.
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
    pub fn value(&self, index: usize) -> ValueSpec<'a> {
        self.values.entry(self.buf, index, |table| ValueSpec::decode(table, None)).unwrap_or(ValueSpec::None)
    }

    /// All values in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = ValueSpec<'a>> + use<'a> {
        let plan = *self;
        (0..self.num_values()).map(move |index| plan.value(index))
    }

    /// Indices of the values that the caller provides.
    pub fn inputs(&self) -> Vector<'a, u32> {
        self.inputs
    }

    /// Returns the rules about the sizes of the inputs, if the program has any beyond the bounds of its tensors.
    ///
    /// # Errors
    /// The blob of rules is damaged.
    pub fn input_shapes(&self) -> Result<Option<Shapes<'a>>, Damaged> {
        self.shapes.map_or(Ok(None), |blob| Shapes::of(blob, self.name))
    }

    pub(super) fn with_blobs_of(self, program: &Program<'a>) -> Self {
        Self {
            shapes: program.shapes,
            #[cfg(feature = "alloc")]
            signatures: program.signatures,
            ..self
        }
    }

    /// Returns the names and nesting of the inputs and outputs, if the program has them. ExecuTorch's programs do not, nor do
    /// methods whose inputs or outputs were changed since the export.
    ///
    /// # Errors
    /// The blob of signatures is damaged.
    #[cfg(feature = "alloc")]
    pub fn signature(&self) -> Result<Option<Signature>, Damaged> {
        let Some(blob) = self.signatures else { return Ok(None) };
        let signature = Signature::of(blob, self.name)?;
        Ok(signature.filter(|signature| signature.fits(self.inputs.len(), self.outputs.len())))
    }

    /// Indices of the values that the method returns.
    pub fn outputs(&self) -> Vector<'a, u32> {
        self.outputs
    }

    pub fn num_instructions(&self) -> usize {
        self.instructions.len()
    }

    /// Instruction `index`; `None` past the last one.
    #[inline]
    pub fn instruction(&self, index: usize) -> Option<Instruction<'a>> {
        self.instructions.entry(self.buf, index, |table| Instruction::decode(table, None)).flatten()
    }

    /// All instructions in order.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction<'a>> + use<'a> {
        let plan = *self;
        (0..self.num_instructions()).filter_map(move |index| plan.instruction(index))
    }

    /// True if the exporter kept stack traces.
    pub fn has_stacktrace(&self) -> bool {
        self.stacktrace.len() > 0
    }

    /// The Python stack of an instruction, innermost call last. Empty unless the exporter kept it.
    pub fn frames(&self, instruction: usize) -> impl Iterator<Item = Frame<'a>> + use<'a> {
        let frames = self.stacktrace.entry(self.buf, instruction, |list| list.tables(FRAME_LIST_ITEMS));
        let (buf, frames) = (self.buf, frames.unwrap_or(TableList::EMPTY));
        (0..frames.len()).filter_map(move |index| frames.entry(buf, index, Frame::decode))
    }

    pub fn num_operators(&self) -> usize {
        self.operators.len()
    }

    /// Operator `index`; `None` past the last one.
    pub fn operator(&self, index: usize) -> Option<OperatorName<'a>> {
        self.operators.entry(self.buf, index, OperatorName::decode)
    }

    pub fn num_delegates(&self) -> usize {
        self.delegates.len()
    }

    /// Delegate `index`; `None` past the last one.
    pub fn delegate(&self, index: usize) -> Option<DelegateSpec<'a>> {
        self.delegates.entry(self.buf, index, DelegateSpec::decode).flatten()
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
        (0..self.buffer_devices.len())
            .filter_map(|index| self.buffer_devices.entry(self.buf, index, decode_buffer_device))
            .find(|(id, _)| *id == memory_id)
            .map_or(Device::default(), |(_, device)| device)
    }

    /// The mapping of the caller's nested inputs to the flat list, as pytree text; empty if not recorded.
    pub fn input_encoding(&self) -> &'a str {
        self.encoding(CONTAINER_INPUT)
    }

    /// The mapping of the flat outputs to the nested ones, as pytree text; empty if not recorded.
    pub fn output_encoding(&self) -> &'a str {
        self.encoding(CONTAINER_OUTPUT)
    }

    fn encoding(&self, field: Field) -> &'a str {
        if self.container == 0 {
            return "";
        }
        let ctx = Context::new(self.buf);
        let text = ctx.table(self.container, PLAN_CONTAINER).and_then(|table| table.string(field));
        text.unwrap_or("")
    }

    /// Reads the lists of a plan, not yet their entries.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub(crate) fn decode(table: Table<'_, 'a>) -> Self {
        let chains = table.tables(PLAN_CHAINS);
        let (mut instructions, mut stacktrace) = (TableList::EMPTY, TableList::EMPTY);
        if chains.len() > 1 {
            table.report(PLAN_CHAINS, ErrorKind::Unsupported { what: Feature::Chains });
        } else if chains.len() > 0
            && let Some(chain) = table.context().entry(chains, 0, PLAN_CHAINS)
        {
            (instructions, stacktrace) = (chain.tables(CHAIN_INSTRUCTIONS), chain.tables(CHAIN_STACKTRACE));
        }
        Self {
            buf: table.context().buf(),
            name: table.required_string(PLAN_NAME),
            values: table.tables(PLAN_VALUES),
            inputs: table.required_vector(PLAN_INPUTS),
            outputs: table.required_vector(PLAN_OUTPUTS),
            instructions,
            stacktrace,
            operators: table.tables(PLAN_OPERATORS),
            delegates: table.tables(PLAN_DELEGATES),
            buffer_sizes: table.vector(PLAN_BUFFER_SIZES),
            buffer_devices: table.tables(PLAN_BUFFER_DEVICE),
            container: table.table(PLAN_CONTAINER).map_or(0, |container| container.position()),
            shapes: None,
            #[cfg(feature = "alloc")]
            signatures: None,
        }
    }

    /// Decodes every entry of the plan once and checks it against the plan, which `table` holds, and its program.
    pub(crate) fn check(&self, table: Table<'_, 'a>, program: &Program<'a>) {
        let ctx = table.context();
        let scope = Scope {
            program,
            num_values: self.values.len(),
            num_operators: self.operators.len(),
            num_delegates: self.delegates.len(),
            num_instructions: self.instructions.len(),
            buffer_sizes: self.buffer_sizes,
        };
        if ctx.has_fault() {
            return;
        }
        table.spend(TABLE_COST + self.name.len() + 8 * self.buffer_sizes.len());
        indices(table, PLAN_INPUTS, Some(&scope));
        indices(table, PLAN_OUTPUTS, Some(&scope));
        if let Some((id, size)) = self.buffer_sizes.iter().enumerate().find(|(_, size)| *size < 0) {
            table.report(PLAN_BUFFER_SIZES, ErrorKind::Negative { value: size });
            ctx.at_index(id);
        }
        ctx.each(self.values, PLAN_VALUES, |table| {
            table.spend(TABLE_COST);
            ValueSpec::decode(table, Some(&scope));
        });
        ctx.each(self.instructions, CHAIN_INSTRUCTIONS, |table| {
            table.spend(TABLE_COST);
            Instruction::decode(table, Some(&scope));
        });
        ctx.each(self.operators, PLAN_OPERATORS, |table| {
            let name = table.required_string_len(OPERATOR_NAME);
            table.spend(TABLE_COST + name + table.string_len(OPERATOR_OVERLOAD));
        });
        ctx.each(self.delegates, PLAN_DELEGATES, |table| check_delegate(table, program));
        ctx.each(self.buffer_devices, PLAN_BUFFER_DEVICE, |table| {
            decode_buffer_device(table);
        });
        ctx.each(self.stacktrace, CHAIN_STACKTRACE, |list| {
            list.spend(TABLE_COST);
            ctx.each(list.tables(FRAME_LIST_ITEMS), FRAME_LIST_ITEMS, |table| {
                table.scalar(FRAME_LINENO, 0i32);
                let (file, name) = (table.string_len(FRAME_FILENAME), table.string_len(FRAME_NAME));
                table.spend(TABLE_COST + file + name + table.string_len(FRAME_CONTEXT));
            });
        });
        if let Some(container) = table.table(PLAN_CONTAINER) {
            for field in [CONTAINER_INPUT, CONTAINER_OUTPUT] {
                container.spend(container.string_len(field));
            }
        }
    }
}

/// Cost of reading a table without the data that it refers to.
const TABLE_COST: usize = 16;

fn check_delegate<'a>(table: Table<'_, 'a>, program: &Program<'a>) {
    let Some(delegate) = DelegateSpec::decode(table) else { return };
    if program.delegate_data(delegate.data).is_none() {
        let (DelegateDataRef::Inline(index) | DelegateDataRef::Segment(index)) = delegate.data;
        table.out_of_range(PAYLOAD_INDEX, u64::from(index), program.num_delegate_data(delegate.data));
    }
    table.spend(TABLE_COST + delegate.id.len());
    table.context().each(delegate.compile_specs, DELEGATE_COMPILE_SPECS, |table| {
        let spec = CompileSpec::decode(table);
        table.spend(TABLE_COST + spec.key.len());
    });
}

impl<'a> OperatorName<'a> {
    fn decode(table: Table<'_, 'a>) -> Self {
        Self { name: table.required_string(OPERATOR_NAME), overload: table.string(OPERATOR_OVERLOAD).unwrap_or("") }
    }
}

impl<'a> DelegateSpec<'a> {
    pub fn compile_specs(&self) -> impl Iterator<Item = CompileSpec<'a>> + use<'a> {
        let DelegateSpec { buf, compile_specs: list, .. } = *self;
        (0..list.len()).filter_map(move |index| list.entry(buf, index, CompileSpec::decode))
    }

    fn decode(table: Table<'_, 'a>) -> Option<Self> {
        let processed = table.required_table(DELEGATE_PROCESSED)?;
        let index = processed.scalar(PAYLOAD_INDEX, 0u32);
        let data = match processed.scalar(PAYLOAD_LOCATION, 0u8) {
            0 => DelegateDataRef::Inline(index),
            1 => DelegateDataRef::Segment(index),
            tag => {
                processed.unknown(PAYLOAD_LOCATION, tag);
                return None;
            }
        };
        Some(Self {
            id: table.required_string(DELEGATE_ID),
            data,
            buf: table.context().buf(),
            compile_specs: table.tables(DELEGATE_COMPILE_SPECS),
        })
    }
}

impl<'a> CompileSpec<'a> {
    fn decode(table: Table<'_, 'a>) -> Self {
        Self { key: table.required_string(SPEC_KEY), value: table.vector::<u8>(SPEC_VALUE).as_bytes() }
    }
}

impl<'a> Frame<'a> {
    fn decode(table: Table<'_, 'a>) -> Self {
        Self {
            filename: table.string(FRAME_FILENAME).unwrap_or(""),
            lineno: table.scalar(FRAME_LINENO, 0),
            name: table.string(FRAME_NAME).unwrap_or(""),
            context: table.string(FRAME_CONTEXT).unwrap_or(""),
        }
    }
}

fn decode_buffer_device(table: Table<'_, '_>) -> (u32, Device) {
    (table.scalar(BUFFER_DEVICE_ID, 0u32), decode_device(table, BUFFER_DEVICE_TYPE, BUFFER_DEVICE_INDEX))
}
