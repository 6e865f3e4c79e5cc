//! The memory of tensors: arena, constants, and what the caller lends.

use rushlight_cpu_payload::{
    self as payload, Buffer, CpuProgram, FloatFormat, Half, KeyValueFormat, Size, TensorId, half_of,
};
use rushlight_engine::pack::QuantizedMatrix;
use rushlight_engine::{
    Affine, Data, DataMut, Error as EngineError, FloatSlice, FloatSliceMut, HalfRows, KeyValueSlice, NibbleRows,
    QuantOut, QuantizedRows, QuantizedWeights, Weights,
};
use rushlight_format::ScalarType;
use rushlight_runtime::{Code, DelegateContext, Detail, Element, Error, Result, TensorMut};

use crate::error::{Unfit, of_engine};
use crate::isolated::{Isolated, Reads};
use crate::shapes::{Shapes, product};
use crate::weights::Blob;

const NOT_WRITABLE: Unfit = Unfit::Place("the result is neither in the arena nor in an output");
const NOT_READABLE: Unfit = Unfit::Place("an operand is in no memory");
const NOT_IN_ARENA: Unfit = Unfit::Place("a tensor of fewer than 32 bits is neither in the arena nor in a state");
const NO_STATE: Unfit = Unfit::Place("a tensor is in a state that the session does not have");
const NO_OUTPUT: Unfit = Unfit::Place("a converted result is not in an output, or written by another step meanwhile");
pub(crate) const NOT_QUANTIZED: Unfit = Unfit::Part("a tensor is not quantized, as the step needs it");
const NOT_HALF: Unfit = Unfit::Part("a copy between floats of 16 and of other bits");
const NOT_CONSTANT: Unfit = Unfit::Place("weights of fewer than 32 bits are not among the constants");
const NOT_PACKED: Unfit = Unfit::Part("packed integers begin with another layout than the step's");
const ARENA: Unfit = Unfit::Place("the result overlaps what the step reads, or is not inside the arena");

/// Alignment of the arena in floats: a cache line.
const ALIGNMENT: usize = 16;

/// The memory of intermediate results.
pub(crate) struct Arena {
    pub(crate) floats: Vec<f32>,
    pub(crate) start: usize,
}

impl Arena {
    pub fn new(len: u64) -> Result<Self> {
        let floats = zeros(len.saturating_add(ALIGNMENT as u64))?;
        let start = floats.as_ptr().align_offset(ALIGNMENT * size_of::<f32>()).min(ALIGNMENT);
        Ok(Self { floats, start })
    }

    /// An arena of the same size.
    pub fn another(&self) -> Result<Self> {
        Self::new(self.floats.len().saturating_sub(ALIGNMENT) as u64)
    }
}

/// Allocates `len` zeros.
///
/// # Errors
/// When memory does not hold them.
pub(crate) fn zeros(len: u64) -> Result<Vec<f32>> {
    let too_large = || Error::new(Code::MemoryAllocationFailed, Detail::Text("not enough memory for the CPU backend"));
    let len = usize::try_from(len).map_err(|_| too_large())?;
    // Nothing is written: the system gives zeros, page by page, when they are first used.
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| too_large())
}

/// The buffer and element type of a tensor.
struct TensorLocation {
    buffer: u32,
    dtype: ScalarType,
    /// Of quantized tensors.
    affine: Option<Affine>,
}

/// Converts a quantization to the engine's, which has its scale at hand.
pub(crate) fn affine(affine: payload::Affine) -> Affine {
    Affine { scale: affine.scale(), zero_point: affine.zero, min: affine.min, max: affine.max }
}

/// Returns the quantization of a tensor of a program; `None` if it is not quantized.
pub(crate) fn affine_of(program: &CpuProgram, tensor: TensorId) -> Option<Affine> {
    program.tensors.get(tensor as usize)?.affine.map(affine)
}

/// Everything besides the arena: constants, and where tensors are.
pub(crate) struct Memory<'m> {
    buffers: Vec<Buffer>,
    tensors: Vec<TensorLocation>,
    outputs: Vec<Vec<Size>>,
    /// The number of elements of each state.
    states: Vec<usize>,
    pub(crate) blobs: Vec<Blob<'m>>,
    pub(crate) inline_floats: Vec<f32>,
}

impl TensorLocation {
    fn new(tensor: &payload::Tensor) -> Self {
        Self { buffer: tensor.buffer, dtype: tensor.dtype, affine: tensor.affine.map(affine) }
    }
}

impl<'m> Memory<'m> {
    pub fn new(program: CpuProgram, blobs: Vec<Blob<'m>>) -> Self {
        Self {
            buffers: program.buffers,
            tensors: program.tensors.iter().map(TensorLocation::new).collect(),
            outputs: program.output_sizes,
            states: program.states.iter().map(|state| usize::try_from(state.len).unwrap_or(usize::MAX)).collect(),
            blobs,
            inline_floats: program.inline_floats,
        }
    }

    pub fn buffer(&self, tensor: TensorId) -> Option<Buffer> {
        self.buffers.get(self.tensors.get(tensor as usize)?.buffer as usize).copied()
    }

    /// The format of a tensor of 16-bit floats.
    pub fn half(&self, tensor: TensorId) -> Option<Half> {
        half_of(self.dtype(tensor)?)
    }

    /// True for intermediate results and states that are stored as bf16.
    pub fn is_bf16(&self, tensor: TensorId) -> bool {
        self.dtype(tensor) == Some(ScalarType::BFloat16)
    }

    pub fn dtype(&self, tensor: TensorId) -> Option<ScalarType> {
        Some(self.tensors.get(tensor as usize)?.dtype)
    }

    /// Returns the quantization of a tensor; `None` if it is not quantized.
    pub fn affine(&self, tensor: TensorId) -> Option<Affine> {
        self.tensors.get(tensor as usize)?.affine
    }

    /// Returns the number of elements of a tensor's buffer, if it is known before a call.
    pub fn capacity(&self, tensor: usize) -> Option<usize> {
        let floats = match self.buffer(tensor as TensorId)? {
            Buffer::Arena { len, .. } | Buffer::Inline { len, .. } => usize::try_from(len).ok()?,
            Buffer::Blob(index) => self.blobs.get(index as usize)?.floats().len(),
            Buffer::State(index) => self.states.get(index as usize).copied()?,
            Buffer::Input(_) | Buffer::Output(_) => return None,
        };
        let each = match self.tensors.get(tensor)?.dtype {
            ScalarType::Byte | ScalarType::Char => 4,
            ScalarType::Half | ScalarType::BFloat16 => 2,
            _ => 1,
        };
        floats.checked_mul(each)
    }

    /// Resizes the outputs of a call to their present sizes, and borrows them.
    pub fn outputs<'c>(
        &self,
        context: &'c DelegateContext<'_>,
        shapes: &Shapes,
        outputs: &mut [Option<TensorMut<'c>>],
    ) -> Result<()> {
        for ((index, sizes), slot) in self.outputs.iter().enumerate().zip(outputs) {
            let mut output = context.output(index)?;
            let mut wanted = [0; rushlight_runtime::MAX_RANK];
            for (size, wanted) in sizes.iter().zip(&mut wanted) {
                *wanted = shapes.size(*size)?;
            }
            let wanted = wanted.get(..sizes.len()).ok_or(Unfit::Rank { expected: "at most 16", got: sizes.len() })?;
            // Does nothing where they are the same.
            output.resize(wanted)?;
            *slot = Some(output);
        }
        Ok(())
    }
}

/// A tensor that elements are moved to, as they are.
pub(crate) enum MovedMut<'a> {
    Floats(&'a mut [f32]),
    Half(&'a mut [u16], Half),
    Bytes(&'a mut [u8]),
}

/// The memory and the sizes that a step runs on.
pub(crate) struct StepContext<'s, 'o, 'c, 'm> {
    pub context: &'s DelegateContext<'c>,
    pub memory: &'s Memory<'m>,
    pub shapes: &'s Shapes,
    pub arena: &'s mut Arena,
    /// The states of the session.
    pub states: &'s mut [Vec<f32>],
    pub outputs: &'s mut [Option<TensorMut<'o>>],
    /// Scratch memory of the engine.
    pub scratch: &'s mut [f32],
    pub isolated: Isolated,
}

/// The tensors that a step may read while it writes one.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'s, 'o, 'c, 'm> {
    context: &'s DelegateContext<'c>,
    memory: &'s Memory<'m>,
    pub shapes: &'s Shapes,
    /// The arena before what is written, and after it.
    before: &'s [f32],
    after: &'s [f32],
    after_start: usize,
    outputs: Outputs<'s, 'o>,
    states: StateFloats<'s>,
    copies: &'s Reads,
}

/// The states before one that is written, and those after it; all of them are before where none is written.
#[derive(Clone, Copy)]
struct StateFloats<'s> {
    before: &'s [Vec<f32>],
    after: &'s [Vec<f32>],
}

impl<'s> StateFloats<'s> {
    fn all(states: &'s [Vec<f32>]) -> Self {
        Self { before: states, after: &[] }
    }

    /// Returns the elements of a state that is not being written.
    fn floats(self, index: usize) -> Option<&'s [f32]> {
        let state = match index.checked_sub(self.before.len()) {
            None => self.before.get(index),
            Some(behind) => self.after.get(behind.checked_sub(1)?),
        };
        state.map(Vec::as_slice)
    }
}

/// The outputs before one that is written, and those after it; all of them are before where none is written.
#[derive(Clone, Copy)]
struct Outputs<'s, 'o> {
    before: &'s [Option<TensorMut<'o>>],
    after: &'s [Option<TensorMut<'o>>],
}

impl<'s> Outputs<'s, '_> {
    /// Returns the elements of an f32 output that is not being written.
    fn floats(self, index: usize) -> Option<&'s [f32]> {
        let output = match index.checked_sub(self.before.len()) {
            None => self.before.get(index),
            Some(behind) => self.after.get(behind.checked_sub(1)?),
        };
        output?.as_ref()?.as_tensor().as_slice().ok()
    }
}

impl<'o, 'c, 'm> StepContext<'_, 'o, 'c, 'm> {
    /// Splits memory into an f32 tensor that is written, and everything that may be read meanwhile.
    pub fn split(&mut self, written: TensorId) -> Result<(&mut [f32], Reader<'_, 'o, 'c, 'm>)> {
        self.split_with_scratch(written).map(|(output, reader, _)| (output, reader))
    }

    /// As [`split`](Self::split), with scratch memory.
    pub fn split_with_scratch(
        &mut self,
        written: TensorId,
    ) -> Result<(&mut [f32], Reader<'_, 'o, 'c, 'm>, &mut [f32])> {
        let (offset, len) = self.shapes.span(written);
        match self.memory.buffer(written) {
            Some(Buffer::Output(_)) => return self.split_output(written),
            Some(Buffer::State(index)) => return self.split_state(written, index),
            _ => {}
        }
        let StepContext { context, memory, shapes, arena, states, scratch, outputs, isolated } = self;
        let Isolated { reads: copies, written: copy } = isolated;
        let (context, memory, shapes) = (*context, *memory, *shapes);
        let outputs = Outputs { before: outputs, after: &[] };
        let floats = arena.floats.get_mut(arena.start..).ok_or(ARENA)?;
        match memory.buffer(written) {
            Some(Buffer::Arena { offset: start, .. }) => {
                let start = (start as usize).checked_add(offset).ok_or(ARENA)?;
                let (before, rest) = floats.split_at_mut_checked(start).ok_or(ARENA)?;
                let (output, after) = rest.split_at_mut_checked(len).ok_or(ARENA)?;
                let after_start = start + len;
                let output = copy.instead_of(written, output);
                let states = StateFloats::all(states);
                let reader = Reader { context, memory, shapes, before, after, after_start, outputs, states, copies };
                Ok((output, reader, scratch))
            }
            _ => Err(NOT_WRITABLE.into()),
        }
    }

    /// As [`split_with_scratch`](Self::split_with_scratch), of a tensor in a state.
    fn split_state<T: bytemuck::Pod>(
        &mut self,
        written: TensorId,
        index: u32,
    ) -> Result<(&mut [T], Reader<'_, 'o, 'c, 'm>, &mut [f32])> {
        let (offset, len) = self.shapes.span(written);
        let StepContext { context, memory, shapes, arena, states, scratch, outputs, isolated } = self;
        let (context, memory, shapes, copies) = (*context, *memory, *shapes, &isolated.reads);
        let outputs = Outputs { before: outputs, after: &[] };
        let floats = arena.floats.get(arena.start..).ok_or(ARENA)?;
        let (before, rest) = states.split_at_mut_checked(index as usize).ok_or(NO_STATE)?;
        let (state, after) = rest.split_first_mut().ok_or(NO_STATE)?;
        let state: &mut [T] = bytemuck::cast_slice_mut(state);
        let end = offset.checked_add(len).ok_or(Unfit::Overflow)?;
        let beyond = Unfit::BeyondState { end };
        let output = state.get_mut(offset..end).ok_or(beyond)?;
        let states = StateFloats { before, after };
        let after_start = floats.len();
        let reader =
            Reader { context, memory, shapes, before: floats, after: &[], after_start, outputs, states, copies };
        Ok((output, reader, scratch))
    }

    /// As [`split_with_scratch`](Self::split_with_scratch), of an f32 or quantized tensor.
    pub fn split_quant_out(&mut self, written: TensorId) -> Result<(QuantOut<'_>, Reader<'_, 'o, 'c, 'm>, &mut [f32])> {
        match self.memory.affine(written) {
            Some(affine) => {
                let (y, reader, scratch) = self.split_narrow(written)?;
                Ok((QuantOut::Bytes(y, affine), reader, scratch))
            }
            None => self.split_with_scratch(written).map(|(y, reader, scratch)| (y.into(), reader, scratch)),
        }
    }

    /// As [`split_with_scratch`](Self::split_with_scratch), of an f32 or bf16 tensor.
    pub fn split_float_slice(
        &mut self,
        written: TensorId,
    ) -> Result<(FloatSliceMut<'_>, Reader<'_, 'o, 'c, 'm>, &mut [f32])> {
        if self.memory.is_bf16(written) {
            let (y, reader, scratch) = self.split_narrow(written)?;
            Ok((FloatSliceMut::Bf16(y), reader, scratch))
        } else {
            self.split_with_scratch(written).map(|(y, reader, scratch)| (FloatSliceMut::F32(y), reader, scratch))
        }
    }

    /// As [`split_with_scratch`](Self::split_with_scratch), of a tensor of any type that steps compute.
    pub fn split_data(&mut self, written: TensorId) -> Result<(DataMut<'_>, Reader<'_, 'o, 'c, 'm>)> {
        if self.memory.is_bf16(written) {
            self.split_narrow(written).map(|(y, reader, _)| (DataMut::Bf16(y), reader))
        } else {
            self.split_quant_out(written).map(|(y, reader, _)| (y.into(), reader))
        }
    }

    /// As [`split`](Self::split), of a tensor whose elements are moved as they are.
    pub fn split_moved(&mut self, written: TensorId) -> Result<(MovedMut<'_>, Reader<'_, 'o, 'c, 'm>)> {
        if let Some(half) = self.memory.half(written) {
            return self.split_narrow(written).map(|(y, reader, _)| (MovedMut::Half(y, half), reader));
        }
        self.split_quant_out(written).map(|(y, reader, _)| match y {
            QuantOut::Floats(y) => (MovedMut::Floats(y), reader),
            QuantOut::Bytes(y, _) => (MovedMut::Bytes(y), reader),
        })
    }

    /// As [`split_with_scratch`](Self::split_with_scratch), of a tensor in the arena or a state whose elements have fewer than 32
    /// bits.
    pub fn split_narrow<T: bytemuck::Pod>(
        &mut self,
        written: TensorId,
    ) -> Result<(&mut [T], Reader<'_, 'o, 'c, 'm>, &mut [f32])> {
        if let Some(Buffer::State(index)) = self.memory.buffer(written) {
            return self.split_state(written, index);
        }
        let each = size_of::<f32>() / size_of::<T>();
        let (offset, len) = self.shapes.span(written);
        let StepContext { context, memory, shapes, arena, states, scratch, outputs, isolated } = self;
        let Isolated { reads: copies, written: copy } = isolated;
        let (context, memory, shapes) = (*context, *memory, *shapes);
        let outputs = Outputs { before: outputs, after: &[] };
        let floats = arena.floats.get_mut(arena.start..).ok_or(ARENA)?;
        let Some(Buffer::Arena { offset: start, .. }) = memory.buffer(written) else { return Err(NOT_IN_ARENA.into()) };
        // The floats that the elements touch: no other tensor has parts of them.
        let first = (start as usize).checked_add(offset / each).ok_or(ARENA)?;
        let touched = (offset % each + len).div_ceil(each);
        let (before, rest) = floats.split_at_mut_checked(first).ok_or(ARENA)?;
        let (output, after) = rest.split_at_mut_checked(touched).ok_or(ARENA)?;
        let elements: &mut [T] = bytemuck::cast_slice_mut(output);
        let output = elements.get_mut(offset % each..offset % each + len).ok_or(ARENA)?;
        let output = copy.instead_of(written, output);
        let (after_start, states) = (first + touched, StateFloats::all(states));
        let reader = Reader { context, memory, shapes, before, after, after_start, outputs, states, copies };
        Ok((output, reader, scratch))
    }

    /// As [`split_quant_out`](Self::split_quant_out), of a quantized tensor.
    pub fn split_quantized(&mut self, written: TensorId) -> Result<(&mut [u8], Reader<'_, 'o, 'c, 'm>)> {
        match self.split_quant_out(written)? {
            (QuantOut::Bytes(bytes, _), reader, _) => Ok((bytes, reader)),
            _ => Err(NOT_QUANTIZED.into()),
        }
    }

    /// As [`split_with_scratch`](Self::split_with_scratch), of a tensor in an output of any type.
    pub fn split_output<T: Element>(
        &mut self,
        written: TensorId,
    ) -> Result<(&mut [T], Reader<'_, 'o, 'c, 'm>, &mut [f32])> {
        let (offset, len) = self.shapes.span(written);
        let StepContext { context, memory, shapes, arena, states, outputs, scratch, isolated } = self;
        let copies = &isolated.reads;
        let (context, memory, shapes) = (*context, *memory, *shapes);
        let floats = arena.floats.get(arena.start..).ok_or(ARENA)?;
        let Some(Buffer::Output(index)) = memory.buffer(written) else { return Err(NO_OUTPUT.into()) };
        let (before, rest) = outputs.split_at_mut_checked(index as usize).ok_or(NO_OUTPUT)?;
        let (output, after) = rest.split_first_mut().ok_or(NO_OUTPUT)?;
        let (output, outputs) = (output.as_mut().ok_or(NO_OUTPUT)?, Outputs { before, after });
        let end = offset.checked_add(len).ok_or(Unfit::Overflow)?;
        let output = output.as_mut_slice::<T>()?;
        let beyond = Unfit::Beyond { end, len: output.len() };
        let output = output.get_mut(offset..end).ok_or(beyond)?;
        let (after_start, states) = (floats.len(), StateFloats::all(states));
        let reader =
            Reader { context, memory, shapes, before: floats, after: &[], after_start, outputs, states, copies };
        Ok((output, reader, scratch))
    }
}

impl<'s> Reader<'s, '_, '_, '_> {
    /// Returns an f32 tensor.
    #[inline]
    pub fn floats(&self, tensor: TensorId) -> Result<&'s [f32]> {
        self.find_floats(tensor).ok_or_else(|| self.no_floats(tensor))
    }

    /// Returns an f32 tensor, in registers, which a [`Result`] does not fit.
    fn find_floats(&self, tensor: TensorId) -> Option<&'s [f32]> {
        if let Some(copy) = self.copies.get(tensor) {
            return Some(copy);
        }
        let (offset, len) = self.shapes.span(tensor);
        let (floats, start) = match self.memory.buffer(tensor)? {
            Buffer::Arena { offset: start, .. } => {
                let start = start as usize;
                match start.checked_sub(self.after_start) {
                    Some(start) => (self.after, start),
                    None => (self.before, start),
                }
            }
            Buffer::Blob(index) => (self.memory.blobs.get(index as usize)?.floats(), 0),
            Buffer::Inline { offset: start, .. } => (self.memory.inline_floats.as_slice(), start as usize),
            Buffer::Input(index) => (self.context.input(index as usize).ok()?.as_slice().ok()?, 0),
            Buffer::Output(index) => (self.outputs.floats(index as usize)?, 0),
            Buffer::State(index) => (self.states.floats(index as usize)?, 0),
        };
        let start = start.checked_add(offset)?;
        floats.get(start..start.checked_add(len)?)
    }

    /// Returns the reason why there is no f32 tensor.
    #[cold]
    fn no_floats(&self, tensor: TensorId) -> Error {
        match self.memory.buffer(tensor) {
            None => NOT_READABLE.into(),
            Some(Buffer::Input(_)) => self.input::<f32>(tensor).err().unwrap_or_else(|| self.beyond(tensor).into()),
            Some(_) => self.beyond(tensor).into(),
        }
    }

    /// Returns the quantization of a tensor; `None` if it is not quantized.
    pub fn affine(&self, tensor: TensorId) -> Option<Affine> {
        self.memory.affine(tensor)
    }

    /// Returns a quantized tensor.
    pub fn quantized(&self, tensor: TensorId) -> Result<&'s [u8]> {
        if self.affine(tensor).is_none() { Err(NOT_QUANTIZED.into()) } else { self.narrow(tensor) }
    }

    /// Returns an f32 or bf16 tensor.
    #[inline]
    pub fn float_slice(&self, tensor: TensorId) -> Result<FloatSlice<'s>> {
        if self.memory.is_bf16(tensor) {
            self.narrow(tensor).map(FloatSlice::Bf16)
        } else {
            self.floats(tensor).map(FloatSlice::F32)
        }
    }

    /// Returns a tensor of 16-bit floats of a format.
    pub fn half_bits(&self, tensor: TensorId, half: Half) -> Result<&'s [u16]> {
        if self.memory.half(tensor) == Some(half) { self.narrow(tensor) } else { Err(NOT_HALF.into()) }
    }

    /// Returns a tensor in the arena or a state whose elements have fewer than 32 bits.
    pub fn narrow<T: bytemuck::Pod>(&self, tensor: TensorId) -> Result<&'s [T]> {
        if let Some(copy) = self.copies.get(tensor) {
            return Ok(copy);
        }
        let (offset, len) = self.shapes.span(tensor);
        let (floats, start) = match self.memory.buffer(tensor) {
            Some(Buffer::Arena { offset: start, .. }) => match (start as usize).checked_sub(self.after_start) {
                Some(start) => (self.after, start),
                None => (self.before, start as usize),
            },
            Some(Buffer::State(index)) => (self.states.floats(index as usize).ok_or(NO_STATE)?, 0),
            _ => return Err(NOT_IN_ARENA.into()),
        };
        let elements: &[T] = bytemuck::cast_slice(floats.get(start..).ok_or_else(|| self.beyond(tensor))?);
        elements.get(offset..offset.checked_add(len).ok_or(Unfit::Overflow)?).ok_or_else(|| self.beyond(tensor).into())
    }

    /// Returns a tensor of any type that steps compute.
    #[inline(always)]
    pub fn data(&self, tensor: TensorId) -> Result<Data<'s>> {
        if let Some(affine) = self.affine(tensor) {
            return self.quantized(tensor).map(|bytes| Data::Bytes(bytes, affine));
        }
        self.float_slice(tensor).map(|numbers| match numbers {
            FloatSlice::F32(floats) => Data::Floats(floats),
            FloatSlice::Bf16(bits) => Data::Bf16(bits),
        })
    }

    /// Returns the packed weights of an int8 GEMM or convolution.
    pub fn int8_weights(&self, tensor: TensorId) -> Result<&'s [i8]> {
        self.constant(tensor)
    }

    /// Returns packed weights whose scales are among them.
    pub fn packed_bytes(&self, tensor: TensorId) -> Result<&'s [u8]> {
        self.constant(tensor)
    }

    /// Returns a packed weight-only quantized matrix.
    pub fn quantized_weights(&self, tensor: TensorId, matrix: &QuantizedMatrix) -> Result<QuantizedWeights<'s>> {
        QuantizedWeights::new(self.packed_bytes(tensor)?, matrix).ok_or_else(|| NOT_PACKED.into())
    }

    /// Returns packed panels of floats.
    pub fn weights(&self, tensor: TensorId, format: FloatFormat) -> Result<Weights<'s>> {
        match format {
            FloatFormat::F32 => self.floats(tensor).map(Weights::F32),
            FloatFormat::Half(half) => self.constant(tensor).map(|weights| Weights::Half(half, weights)),
        }
    }

    /// Returns a constant whose elements have fewer than 32 bits.
    fn constant<T: bytemuck::Pod>(&self, tensor: TensorId) -> Result<&'s [T]> {
        if let Some(copy) = self.copies.get(tensor) {
            return Ok(copy);
        }
        let floats = match self.memory.buffer(tensor) {
            Some(Buffer::Blob(index)) => self.memory.blobs.get(index as usize).map(Blob::floats),
            Some(Buffer::Inline { offset, len }) => {
                let start = offset as usize;
                self.memory.inline_floats.get(start..start.saturating_add(len as usize))
            }
            _ => None,
        };
        let elements: &[T] = bytemuck::cast_slice(floats.ok_or(NOT_CONSTANT)?);
        let (offset, len) = self.shapes.span(tensor);
        elements.get(offset..offset.checked_add(len).ok_or(Unfit::Overflow)?).ok_or_else(|| self.beyond(tensor).into())
    }

    /// Returns a tensor in an input of any type.
    pub fn input<T: Element>(&self, tensor: TensorId) -> Result<&'s [T]> {
        match self.memory.buffer(tensor) {
            Some(Buffer::Input(index)) => {
                let elements = self.context.input(index as usize)?.as_slice::<T>()?;
                let (offset, len) = self.shapes.span(tensor);
                let end = offset.checked_add(len).ok_or(Unfit::Overflow)?;
                elements.get(offset..end).ok_or_else(|| self.beyond(tensor).into())
            }
            _ => Err(Unfit::Place("a tensor that is converted or has indices is not an input").into()),
        }
    }

    /// Describes a tensor that reaches beyond its memory.
    #[cold]
    fn beyond(&self, tensor: TensorId) -> Unfit {
        let (offset, len) = self.shapes.span(tensor);
        let memory = match self.memory.buffer(tensor) {
            Some(Buffer::Input(index)) => self.context.input(index as usize).map_or(0, |input| input.numel()),
            Some(Buffer::Output(index)) => self.outputs.floats(index as usize).map_or(0, <[f32]>::len),
            _ => self.memory.capacity(tensor as usize).unwrap_or(0),
        };
        Unfit::Beyond { end: offset.saturating_add(len), len: memory }
    }

    pub fn optional(&self, tensor: Option<TensorId>) -> Result<Option<&'s [f32]>> {
        tensor.map(|tensor| self.floats(tensor)).transpose()
    }

    pub fn dims(&self, tensor: TensorId) -> &'s [usize] {
        self.shapes.dims(tensor)
    }

    /// Returns the number of rows of a tensor, whose last dimension are the columns, and the number of columns.
    pub fn matrix(&self, tensor: TensorId) -> Result<[usize; 2]> {
        let (columns, rows) = self.dims(tensor).split_last().map_or((1, &[][..]), |(last, others)| (*last, others));
        Ok([product(Some(rows))?, columns])
    }

    /// Returns the sizes of a tensor of four dimensions, such as an image `[N, H, W, C]`.
    pub fn image(&self, tensor: TensorId) -> Result<[usize; 4]> {
        let dims = self.dims(tensor);
        dims.try_into().map_err(|_| Unfit::Rank { expected: "4", got: dims.len() }.into())
    }

    /// Returns the sizes of a volume `[N, D, H, W, C]`.
    pub fn volume(&self, tensor: TensorId) -> Result<[usize; 5]> {
        let dims = self.dims(tensor);
        dims.try_into().map_err(|_| Unfit::Rank { expected: "5", got: dims.len() }.into())
    }

    /// Returns the element type of a tensor.
    pub fn dtype(&self, tensor: TensorId) -> Option<ScalarType> {
        self.memory.dtype(tensor)
    }

    /// Returns the buffer of a tensor.
    pub fn buffer(&self, tensor: TensorId) -> Option<Buffer> {
        self.memory.buffer(tensor)
    }

    /// Returns the keys and values of a step.
    pub fn key_values(&self, step: &payload::Attention) -> Result<[KeyValueSlice<'s>; 2]> {
        let Some([of_keys, of_values]) = step.format.qparams() else {
            return Ok([self.key_value_floats(step.q, step.k)?, self.key_value_floats(step.q, step.v)?]);
        };
        let quantized = |tensor, payload::RowQparams { scales, zeros }| -> Result<KeyValueSlice<'s>> {
            let (bytes, scales, zeros) = (self.quantized(tensor)?, self.floats(scales)?, self.quantized(zeros)?);
            Ok(match step.format {
                KeyValueFormat::Int4(_) => KeyValueSlice::Nibbles(NibbleRows { bytes, scales, zeros }),
                _ => KeyValueSlice::Quantized(QuantizedRows { bytes, scales, zeros }),
            })
        };
        Ok([quantized(step.k, of_keys)?, quantized(step.v, of_values)?])
    }

    /// Returns keys or values of floats: of the type of the queries, or of 16 bits.
    fn key_value_floats(&self, queries: TensorId, tensor: TensorId) -> Result<KeyValueSlice<'s>> {
        match self.memory.half(tensor) {
            Some(half) if !self.memory.is_bf16(queries) => {
                Ok(KeyValueSlice::Half(HalfRows { half, bits: self.narrow(tensor)? }))
            }
            _ => self.float_slice(tensor).map(KeyValueSlice::Floats),
        }
    }
}

/// Gives the engine's errors their place.
pub(crate) fn done(result: core::result::Result<(), EngineError>) -> Result<()> {
    result.map_err(of_engine)
}
