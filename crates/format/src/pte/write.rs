//! Writing of programs.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::blob::Blob;
use crate::error::{ErrorKind, Feature, FormatError};
use crate::flatbuf::{Builder, Offset};
use crate::image::{Image, Piece, SEGMENT_ALIGNMENT, SegmentList, check_len};
use crate::schema::*;

use super::Device;
use super::header::{EXTENDED_MAGIC, IDENTIFIER};
use super::model::{
    DelegateModel, FrameModel, InstructionModel, PlanModel, ProgramModel, StorageModel, TensorModel, ValueModel,
};

/// Length of the extended header: its recorded value, and its padded size.
const HEADER_LEN: usize = 32;
/// Alignment of blobs inside the flatbuffer.
const INLINE_ALIGNMENT: usize = 16;

/// Options of the layout of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The placement of constants and delegate payloads.
    pub placement: Placement,
    /// Each segment starts at a multiple of this.
    pub segment_alignment: u64,
    /// Each constant starts at a multiple of this in its segment.
    pub constant_alignment: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In segments after the flatbuffer, which can be mapped and paged.
    Segments,
    /// In the flatbuffer, as in the oldest programs; the file then has no extended header.
    Inline,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { placement: Placement::Segments, segment_alignment: SEGMENT_ALIGNMENT, constant_alignment: 16 }
    }
}

impl ProgramModel<'_> {
    /// Lays the program out as a file. Equal models result in equal files.
    ///
    /// # Errors
    /// `Missing` for an external tensor without a name, `Unsupported` for inline placement of data that only segments
    /// can hold, `TooLarge` if the part outside of segments exceeds 2 GiB.
    pub fn write(&self, options: &WriteOptions) -> Result<Image<'_>, FormatError> {
        match options.placement {
            Placement::Segments => self.write_segments(options),
            Placement::Inline => self.write_inline(),
        }
    }

    /// The bytes of the file, with the default options.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.write(&WriteOptions::default())?.to_vec()
    }

    fn write_segments(&self, options: &WriteOptions) -> Result<Image<'_>, FormatError> {
        let mut builder = Builder::new(INLINE_ALIGNMENT);
        let mut segments = SegmentList::default();

        let (pieces, constants) = pool(&self.constants, options.constant_alignment);
        let constant_segment = segments.push(options.segment_alignment, pieces);
        let mutable = (self.mutable_data.len() > 1).then(|| {
            // Initial values are copied when a program is loaded, therefore they need no alignment.
            let (pieces, offsets) = pool(&self.mutable_data, 1);
            (segments.push(options.segment_alignment, pieces), offsets)
        });
        let mut blobs = BTreeMap::new();
        let mut payloads = Vec::new();
        for delegate in self.methods.iter().flat_map(|plan| &plan.delegates) {
            let data = delegate.data.as_ref();
            payloads.push(if data.is_empty() {
                Payload::Inline(0)
            } else {
                let alignment = options.segment_alignment;
                Payload::Segment(
                    *blobs.entry(data).or_insert_with(|| segments.push(alignment, [(0, Piece::Bytes(data))])),
                )
            });
        }
        let inline = if payloads.contains(&Payload::Inline(0)) { vec![inline_data(&mut builder, &[])] } else { vec![] };
        let mut blobs = BTreeMap::new();
        let mut named = Vec::new();
        for (key, data) in &self.named_data {
            let mut segment = || segments.push(options.segment_alignment, [(0, Piece::Blob(data))]);
            let segment = match data {
                Blob::Bytes(bytes) => *blobs.entry(bytes.as_ref()).or_insert_with(segment),
                Blob::Made(_) => segment(),
            };
            let key = builder.string(key);
            named.push(builder.table(&[(NAMED_KEY, key.into()), (NAMED_SEGMENT_INDEX, segment.into())]));
        }

        let root = Root {
            plans: plans(&mut builder, &self.methods, &payloads)?,
            constant_buffer: Vec::new(),
            delegate_data: inline,
            segments: segments.build(&mut builder),
            constant_segment: subsegments(&mut builder, constant_segment, &constants),
            mutable_data: mutable.map(|(segment, offsets)| subsegments(&mut builder, segment, &offsets)),
            named_data: named,
        };
        let root = root.build(&mut builder);
        if segments.size() == 0 {
            return finish(builder, root, &[]);
        }
        // The prefix is part of the flatbuffer. Its length is known, so that it can contain its own sizes.
        let mut header = [0; HEADER_LEN];
        let size = (builder.len() + 8 + HEADER_LEN).next_multiple_of(INLINE_ALIGNMENT) as u64;
        let base = size.next_multiple_of(options.segment_alignment.max(1));
        header[..4].copy_from_slice(&EXTENDED_MAGIC);
        header[4..8].copy_from_slice(&(HEADER_LEN as u32).to_le_bytes());
        header[8..16].copy_from_slice(&size.to_le_bytes());
        header[16..24].copy_from_slice(&base.to_le_bytes());
        header[24..32].copy_from_slice(&segments.size().to_le_bytes());
        check_len(size as usize, PROGRAM_ROOT)?;
        Ok(Image::new(builder.finish(root, IDENTIFIER, &header), base, &segments))
    }

    fn write_inline(&self) -> Result<Image<'_>, FormatError> {
        let only_segments = [
            (self.mutable_data.len() > 1, PROGRAM_MUTABLE_DATA_SEGMENTS),
            (!self.named_data.is_empty(), PROGRAM_NAMED_DATA),
        ];
        if let Some((_, field)) = only_segments.into_iter().find(|(present, _)| *present) {
            return Err(field.error(ErrorKind::Unsupported { what: Feature::DataWithoutSegments }, 0));
        }
        let mut builder = Builder::new(INLINE_ALIGNMENT);
        let mut constant_buffer = Vec::new();
        for data in &self.constants {
            let kind = ErrorKind::Unsupported { what: Feature::UnmadeData };
            let data = data.bytes().ok_or_else(|| BUFFER_STORAGE.error(kind, 0))?;
            let storage = builder.bytes(&data, INLINE_ALIGNMENT);
            constant_buffer.push(builder.table(&[(BUFFER_STORAGE, storage.into())]));
        }
        let mut blobs = BTreeMap::new();
        let mut delegate_data = Vec::new();
        let mut payloads = Vec::new();
        for delegate in self.methods.iter().flat_map(|plan| &plan.delegates) {
            let index = *blobs.entry(delegate.data.as_ref()).or_insert_with(|| {
                delegate_data.push(inline_data(&mut builder, &delegate.data));
                delegate_data.len() as u32 - 1
            });
            payloads.push(Payload::Inline(index));
        }
        let root = Root {
            plans: plans(&mut builder, &self.methods, &payloads)?,
            constant_buffer,
            delegate_data,
            segments: builder.offsets(&[]),
            constant_segment: subsegments(&mut builder, 0, &[]),
            mutable_data: None,
            named_data: Vec::new(),
        };
        let root = root.build(&mut builder);
        finish(builder, root, &[])
    }
}

/// The location of a delegate's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    Inline(u32),
    Segment(u32),
}

/// The children of the `Program` table.
struct Root {
    plans: Offset,
    constant_buffer: Vec<Offset>,
    delegate_data: Vec<Offset>,
    segments: Offset,
    constant_segment: Offset,
    mutable_data: Option<Offset>,
    named_data: Vec<Offset>,
}

impl Root {
    fn build(&self, builder: &mut Builder) -> Offset {
        let constant_buffer = builder.offsets(&self.constant_buffer);
        let delegate_data = builder.offsets(&self.delegate_data);
        let mutable_data = self.mutable_data.map(|data| builder.offsets(&[data]));
        let named_data = (!self.named_data.is_empty()).then(|| builder.offsets(&self.named_data));
        builder.table(&[
            (PROGRAM_VERSION, 0u32.into()),
            (PROGRAM_EXECUTION_PLAN, self.plans.into()),
            (PROGRAM_CONSTANT_BUFFER, constant_buffer.into()),
            (PROGRAM_BACKEND_DELEGATE_DATA, delegate_data.into()),
            (PROGRAM_SEGMENTS, self.segments.into()),
            (PROGRAM_CONSTANT_SEGMENT, self.constant_segment.into()),
            (PROGRAM_MUTABLE_DATA_SEGMENTS, mutable_data.into()),
            (PROGRAM_NAMED_DATA, named_data.into()),
        ])
    }
}

fn finish<'m>(builder: Builder, root: Offset, header: &[u8]) -> Result<Image<'m>, FormatError> {
    check_len(builder.len() + header.len() + 8, PROGRAM_ROOT)?;
    Ok(Image::new(builder.finish(root, IDENTIFIER, header), 0, &SegmentList::default()))
}

/// The pieces of a segment that holds a pool of data, and the offset of every entry.
fn pool<'m>(entries: &'m [Blob<'_>], alignment: u64) -> (Vec<(u64, Piece<'m>)>, Vec<u64>) {
    let (mut pieces, mut offsets, mut end) = (Vec::new(), Vec::new(), 0u64);
    for data in entries {
        let offset = end.next_multiple_of(alignment.max(1));
        offsets.push(offset);
        if data.size() > 0 {
            pieces.push((offset, Piece::Blob(data)));
            end = offset + data.size();
        }
    }
    // The offset of an entry without data after the last one with data must not exceed the segment.
    for offset in &mut offsets {
        *offset = (*offset).min(end);
    }
    (pieces, offsets)
}

fn subsegments(builder: &mut Builder, segment: u32, offsets: &[u64]) -> Offset {
    let offsets = builder.numbers(offsets.iter().map(|offset| offset.to_le_bytes()));
    builder.table(&[(SUBSEGMENT_SEGMENT_INDEX, segment.into()), (SUBSEGMENT_OFFSETS, offsets.into())])
}

fn inline_data(builder: &mut Builder, data: &[u8]) -> Offset {
    let data = builder.bytes(data, INLINE_ALIGNMENT);
    builder.table(&[(INLINE_DATA, data.into())])
}

/// The vector of methods; `payloads` are those of their delegates in order.
fn plans(builder: &mut Builder, methods: &[PlanModel<'_>], payloads: &[Payload]) -> Result<Offset, FormatError> {
    let mut payloads = payloads.iter().copied();
    let mut tables = Vec::new();
    for method in methods {
        tables.push(plan(builder, method, &mut payloads)?);
    }
    Ok(builder.offsets(&tables))
}

fn plan(
    builder: &mut Builder,
    model: &PlanModel<'_>,
    payloads: &mut impl Iterator<Item = Payload>,
) -> Result<Offset, FormatError> {
    let name = builder.string(&model.name);
    let input = builder.string(&model.input_encoding);
    let output = builder.string(&model.output_encoding);
    let container = builder.table(&[(CONTAINER_INPUT, input.into()), (CONTAINER_OUTPUT, output.into())]);

    let mut values = Vec::with_capacity(model.values.len());
    for (i, model) in model.values.iter().enumerate() {
        let offset = value(builder, model).map_err(|mut error| {
            error.index = Some(i as u32);
            error
        })?;
        values.push(offset);
    }
    let values = builder.offsets(&values);
    let inputs = indices(builder, &model.inputs);
    let outputs = indices(builder, &model.outputs);
    let chain = chain(builder, model);
    let chains = builder.offsets(&[chain]);

    let mut operators = Vec::with_capacity(model.operators.len());
    for operator in &model.operators {
        let name = builder.string(&operator.name);
        let overload = builder.string(&operator.overload);
        operators.push(builder.table(&[(OPERATOR_NAME, name.into()), (OPERATOR_OVERLOAD, overload.into())]));
    }
    let operators = builder.offsets(&operators);
    let delegates: Vec<Offset> =
        model.delegates.iter().zip(payloads).map(|(model, payload)| delegate(builder, model, payload)).collect();
    let delegates = builder.offsets(&delegates);

    let buffer_sizes = builder.numbers(model.buffer_sizes.iter().map(|size| size.to_le_bytes()));
    let devices: Vec<Offset> = model
        .buffer_devices
        .iter()
        .map(|(id, device)| {
            builder.table(&[
                (BUFFER_DEVICE_ID, (*id).into()),
                (BUFFER_DEVICE_TYPE, (device.kind as u8).into()),
                (BUFFER_DEVICE_INDEX, device.index.into()),
            ])
        })
        .collect();
    let devices = (!devices.is_empty()).then(|| builder.offsets(&devices));
    Ok(builder.table(&[
        (PLAN_NAME, name.into()),
        (PLAN_CONTAINER, container.into()),
        (PLAN_VALUES, values.into()),
        (PLAN_INPUTS, inputs.into()),
        (PLAN_OUTPUTS, outputs.into()),
        (PLAN_CHAINS, chains.into()),
        (PLAN_OPERATORS, operators.into()),
        (PLAN_DELEGATES, delegates.into()),
        (PLAN_BUFFER_SIZES, buffer_sizes.into()),
        (PLAN_BUFFER_DEVICE, devices.into()),
    ]))
}

fn chain(builder: &mut Builder, model: &PlanModel<'_>) -> Offset {
    let instructions: Vec<Offset> = model.instructions.iter().map(|model| instruction(builder, model)).collect();
    let instructions = builder.offsets(&instructions);
    let stacktrace: Vec<Offset> = model
        .stacktrace
        .iter()
        .map(|frames| {
            let frames: Vec<Offset> = frames.iter().map(|model| frame(builder, model)).collect();
            let items = builder.offsets(&frames);
            builder.table(&[(FRAME_LIST_ITEMS, items.into())])
        })
        .collect();
    let stacktrace = (!stacktrace.is_empty()).then(|| builder.offsets(&stacktrace));
    let none = indices(builder, &[]);
    builder.table(&[
        (CHAIN_INPUTS, none.into()),
        (CHAIN_OUTPUTS, none.into()),
        (CHAIN_INSTRUCTIONS, instructions.into()),
        (CHAIN_STACKTRACE, stacktrace.into()),
    ])
}

fn frame(builder: &mut Builder, model: &FrameModel) -> Offset {
    let filename = builder.string(&model.filename);
    let name = builder.string(&model.name);
    let context = builder.string(&model.context);
    builder.table(&[
        (FRAME_FILENAME, filename.into()),
        (FRAME_LINENO, model.lineno.into()),
        (FRAME_NAME, name.into()),
        (FRAME_CONTEXT, context.into()),
    ])
}

fn delegate(builder: &mut Builder, model: &DelegateModel<'_>, payload: Payload) -> Offset {
    let id = builder.string(&model.id);
    let (location, index) = match payload {
        Payload::Inline(index) => (0u8, index),
        Payload::Segment(index) => (1, index),
    };
    let processed = builder.table(&[(PAYLOAD_LOCATION, location.into()), (PAYLOAD_INDEX, index.into())]);
    let specs: Vec<Offset> = model
        .compile_specs
        .iter()
        .map(|(key, value)| {
            let key = builder.string(key);
            let value = builder.bytes(value, 4);
            builder.table(&[(SPEC_KEY, key.into()), (SPEC_VALUE, value.into())])
        })
        .collect();
    let specs = builder.offsets(&specs);
    builder.table(&[
        (DELEGATE_ID, id.into()),
        (DELEGATE_PROCESSED, processed.into()),
        (DELEGATE_COMPILE_SPECS, specs.into()),
    ])
}

fn instruction(builder: &mut Builder, model: &InstructionModel) -> Offset {
    let (tag, call) = match model {
        InstructionModel::Kernel { operator, args } => {
            let args = indices(builder, args);
            let fields = [(KERNEL_CALL_OP_INDEX, (*operator).into()), (KERNEL_CALL_ARGS, args.into())];
            (1u8, builder.table(&fields))
        }
        InstructionModel::Delegate { delegate, args } => {
            let args = indices(builder, args);
            let fields = [(DELEGATE_CALL_INDEX, (*delegate).into()), (DELEGATE_CALL_ARGS, args.into())];
            (2, builder.table(&fields))
        }
        InstructionModel::Move { from, to } => {
            (3, builder.table(&[(MOVE_FROM, (*from).into()), (MOVE_TO, (*to).into())]))
        }
        InstructionModel::JumpFalse { cond, destination } => {
            (4, builder.table(&[(JUMP_COND, (*cond).into()), (JUMP_DESTINATION, (*destination).into())]))
        }
        InstructionModel::Free { value } => (5, builder.table(&[(FREE_VALUE, (*value).into())])),
    };
    builder.table(&[(INSTRUCTION_ARGS_TYPE, tag.into()), (INSTRUCTION_ARGS, call.into())])
}

fn value(builder: &mut Builder, model: &ValueModel) -> Result<Offset, FormatError> {
    let (tag, value) = match model {
        ValueModel::None => (1u8, builder.table(&[])),
        ValueModel::Int(int) => (2, builder.table(&[(INT_VAL, (*int).into())])),
        ValueModel::Bool(bool) => (3, builder.table(&[(BOOL_VAL, (*bool).into())])),
        ValueModel::Double(double) => (4, builder.table(&[(DOUBLE_VAL, (*double).into())])),
        ValueModel::Tensor(model) => (5, tensor(builder, model)?),
        ValueModel::String(text) => {
            let text = builder.string(text);
            (6, builder.table(&[(STRING_VAL, text.into())]))
        }
        ValueModel::IntList(items) => (7, list(builder, items.iter().map(|item| u64::from(*item).to_le_bytes()))),
        ValueModel::DoubleList(items) => (8, list(builder, items.iter().map(|item| item.to_le_bytes()))),
        ValueModel::BoolList(items) => (9, list(builder, items.iter().map(|item| [u8::from(*item)]))),
        ValueModel::TensorList(items) => (10, list(builder, items.iter().map(|item| item.to_le_bytes()))),
        ValueModel::OptionalTensorList(items) => {
            (11, list(builder, items.iter().map(|item| item.unwrap_or(u32::MAX).to_le_bytes())))
        }
    };
    Ok(builder.table(&[(VALUE_TYPE, tag.into()), (VALUE_VALUE, value.into())]))
}

fn list<const N: usize>(builder: &mut Builder, items: impl DoubleEndedIterator<Item = [u8; N]>) -> Offset {
    let items = builder.numbers(items);
    builder.table(&[(LIST_ITEMS, items.into())])
}

fn indices(builder: &mut Builder, indices: &[u32]) -> Offset {
    builder.numbers(indices.iter().map(|index| index.to_le_bytes()))
}

fn tensor(builder: &mut Builder, model: &TensorModel) -> Result<Offset, FormatError> {
    let (index, allocation, external) = match model.storage {
        StorageModel::Constant { index } => (index, None, false),
        StorageModel::Planned { memory_id, offset } => (0, Some((memory_id, offset)), false),
        StorageModel::PlannedInit { memory_id, offset, index } => (index, Some((memory_id, offset)), false),
        StorageModel::Unplanned => (0, None, false),
        StorageModel::External => (0, None, true),
        StorageModel::ExternalPlanned { memory_id, offset } => (0, Some((memory_id, offset)), true),
    };
    if external && model.fully_qualified_name.is_none() {
        return Err(EXTRA_FULLY_QUALIFIED_NAME.error(ErrorKind::Missing, 0));
    }
    let sizes = builder.numbers(model.sizes.iter().map(|size| size.to_le_bytes()));
    let dim_order = builder.bytes(&model.dim_order, 4);
    let allocation = allocation.map(|(memory_id, offset)| {
        builder.table(&[
            (ALLOCATION_MEMORY_ID, memory_id.into()),
            (ALLOCATION_OFFSET_LOW, (offset as u32).into()),
            (ALLOCATION_OFFSET_HIGH, ((offset >> 32) as u32).into()),
        ])
    });
    let extra = (model.fully_qualified_name.is_some() || model.device != Device::default()).then(|| {
        let name = model.fully_qualified_name.as_ref().map(|name| builder.string(name));
        builder.table(&[
            (EXTRA_FULLY_QUALIFIED_NAME, name.into()),
            (EXTRA_LOCATION, u8::from(external).into()),
            (EXTRA_DEVICE_TYPE, (model.device.kind as u8).into()),
            (EXTRA_DEVICE_INDEX, model.device.index.into()),
        ])
    });
    Ok(builder.table(&[
        (TENSOR_SCALAR_TYPE, model.scalar_type.code().into()),
        (TENSOR_SIZES, sizes.into()),
        (TENSOR_DIM_ORDER, dim_order.into()),
        (TENSOR_REQUIRES_GRAD, model.requires_grad.into()),
        (TENSOR_DATA_BUFFER_IDX, index.into()),
        (TENSOR_ALLOCATION, allocation.into()),
        (TENSOR_SHAPE_DYNAMISM, (model.shape_dynamism as u8).into()),
        (TENSOR_EXTRA, extra.into()),
    ]))
}
