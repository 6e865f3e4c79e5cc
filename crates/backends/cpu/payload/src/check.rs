//! Checks of a CPU program that anything else may rely on.

use alloc::vec;
use alloc::vec::Vec;

use rushlight_format::ScalarType;

use crate::error::{Counted, List};
use crate::tensors::{Tensors, fits};
use crate::work::Work;
use crate::{Buffer, CpuProgram, PayloadError, PayloadFault, PayloadSite, SizeOp, Step, Tensor, half_of};

type Result<T = ()> = core::result::Result<T, PayloadError>;

impl CpuProgram {
    /// Reads a payload.
    ///
    /// # Errors
    /// For data that is truncated or damaged, an unknown version, and indices outside of their lists.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let program = Self::read(bytes)?;
        check(&program)?;
        Ok(program)
    }
}

/// Checks a program.
fn check(program: &CpuProgram) -> Result {
    sizes(program)?;
    for (state, declared) in program.states.iter().enumerate() {
        if program.states.iter().take(state).any(|other| other.key == declared.key) {
            return Err(PayloadError::new(PayloadFault::SameState { state }));
        }
    }
    buffers(program)?;
    for (index, tensor) in program.tensors.iter().enumerate() {
        check_tensor(program, tensor).map_err(|error| error.at(PayloadSite::Tensor(index)))?;
    }
    io_tensors(program)?;
    let mut written = vec![false; program.buffers.len()];
    for (flag, buffer) in written.iter_mut().zip(&program.buffers) {
        *flag = !matches!(buffer, Buffer::Output(_) | Buffer::Arena { .. });
    }
    Counted::Names.check(program.names.len(), program.steps.len())?;
    for (index, step) in program.steps.iter().enumerate() {
        check_step(program, step, &mut written).map_err(|error| error.at(PayloadSite::Step(index)))?;
    }
    Ok(())
}

fn tensors(program: &CpuProgram) -> Tensors<'_> {
    Tensors { tensors: &program.tensors, buffers: &program.buffers, sizes: program.sizes.len() }
}

fn sizes(program: &CpuProgram) -> Result {
    for (index, op) in program.sizes.iter().enumerate() {
        match *op {
            SizeOp::Fixed(_) => {}
            SizeOp::Input { input, .. } | SizeOp::Element { input, .. } => {
                List::Inputs.check(input, program.inputs.len()).map_err(|error| error.at(PayloadSite::Size(index)))?;
            }
            SizeOp::Add(a, b)
            | SizeOp::Mul(a, b)
            | SizeOp::FloorDiv(a, b)
            | SizeOp::Mod(a, b)
            | SizeOp::Max(a, b)
            | SizeOp::Min(a, b) => {
                List::Sizes.check(a.max(b), index).map_err(|error| error.at(PayloadSite::Size(index)))?;
            }
        }
    }
    let all = program.output_sizes.iter().flatten();
    all.into_iter().try_for_each(|size| tensors(program).check_size(*size))?;
    program
        .output_sizes
        .iter()
        .try_for_each(|sizes| Counted::Dimensions.check(sizes.len(), rushlight_format::MAX_RANK))?;
    Counted::OutputSizes.check(program.output_sizes.len(), program.outputs.len())?;
    Counted::OutputSizes.check(program.outputs.len(), program.output_sizes.len())
}

fn buffers(program: &CpuProgram) -> Result {
    for floats in [program.arena, program.scratch].into_iter().chain(program.states.iter().map(|state| state.len)) {
        // Sizes in bytes are computed with room to spare, twice those of f32.
        fits(floats, 8)?;
    }
    for (index, buffer) in program.buffers.iter().enumerate() {
        let inside = |offset: u64, len: u64, limit: u64| match offset.checked_add(len) {
            Some(end) if end <= limit => Ok(()),
            end => Err(PayloadError::new(PayloadFault::Beyond { end: end.unwrap_or(u64::MAX), len: limit })),
        };
        let result = match *buffer {
            Buffer::Input(position) => List::Inputs.check(position, program.inputs.len()),
            Buffer::Output(position) => List::Outputs.check(position, program.outputs.len()),
            Buffer::Blob(blob) => List::Blobs.check(blob, program.blobs.len()),
            Buffer::Arena { offset, len } => inside(offset, len, program.arena),
            Buffer::Inline { offset, len } => inside(offset, len, program.inline_floats.len() as u64),
            Buffer::State(state) => List::States.check(state, program.states.len()),
        };
        result.map_err(|error| error.at(PayloadSite::Buffer(index)))?;
    }
    Ok(())
}

fn check_tensor(program: &CpuProgram, tensor: &Tensor) -> Result {
    List::Buffers.check(tensor.buffer, program.buffers.len())?;
    Counted::Dimensions.check(tensor.dims.len(), rushlight_format::MAX_RANK)?;
    tensors(program).check_size(tensor.offset)?;
    tensor.dims.iter().try_for_each(|size| tensors(program).check_size(*size))?;
    if let Some(affine) = tensor.affine {
        affine.check()?;
    }
    let buffer = program.buffers.get(tensor.buffer as usize);
    let is_bytes =
        matches!(tensor.dtype, ScalarType::Byte) && matches!(buffer, Some(Buffer::Arena { .. } | Buffer::State(_)));
    if is_bytes != tensor.affine.is_some() {
        return Err(PayloadError::new(PayloadFault::Quantized { dtype: tensor.dtype }));
    }
    if let (Some(Buffer::State(_)), got) = (buffer, tensor.dtype)
        && !matches!(got, ScalarType::Float | ScalarType::Byte | ScalarType::Half | ScalarType::BFloat16)
    {
        return Err(PayloadError::new(PayloadFault::Dtype { expected: ScalarType::Float, got }));
    }
    let per_float = if is_bytes {
        4
    } else if half_of(tensor.dtype).is_some() {
        2
    } else {
        1
    };
    let len = match buffer {
        // `len` counts elements of f32: four bytes each.
        Some(Buffer::Inline { len, .. }) if matches!(tensor.dtype, ScalarType::Char | ScalarType::Byte) => {
            len.saturating_mul(4)
        }
        Some(Buffer::Arena { len, .. }) => len.saturating_mul(per_float),
        Some(Buffer::Inline { len, .. }) => *len,
        Some(Buffer::State(state)) => {
            let floats = program.states.get(*state as usize).map_or(0, |state| state.len);
            floats.saturating_mul(per_float)
        }
        _ => return Ok(()),
    };
    let dims: Option<Vec<u64>> = tensor.dims.iter().map(|size| size.fixed()).collect();
    if let (Some(offset), Some(dims)) = (tensor.offset.fixed(), dims) {
        let count = dims.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
        let end = count.and_then(|count| count.checked_add(offset));
        if end.is_none_or(|end| end > len) {
            return Err(PayloadError::new(PayloadFault::Beyond { end: end.unwrap_or(u64::MAX), len }));
        }
    }
    Ok(())
}

/// Checks that each input and output tensor is in the caller's buffer of the same index.
fn io_tensors(program: &CpuProgram) -> Result {
    let sides = [(&program.inputs, true), (&program.outputs, false)];
    for (ids, is_input) in sides {
        for (position, id) in ids.iter().enumerate() {
            let site = if is_input { PayloadSite::Input(position) } else { PayloadSite::Output(position) };
            List::Tensors.check(*id, program.tensors.len()).map_err(|error| error.at(site))?;
            let buffer =
                program.tensors.get(*id as usize).and_then(|tensor| program.buffers.get(tensor.buffer as usize));
            let found = match buffer {
                Some(Buffer::Input(index)) if is_input => *index as usize == position,
                Some(Buffer::Output(index)) if !is_input => *index as usize == position,
                _ => false,
            };
            if !found {
                return Err(PayloadError::new(PayloadFault::Memory).at(site));
            }
        }
    }
    Ok(())
}

fn check_step(program: &CpuProgram, step: &Step, written: &mut [bool]) -> Result {
    let mut result = Ok(());
    let mut read = |id: u32| {
        let checked = List::Tensors.check(id, program.tensors.len()).and_then(|()| {
            let buffer = program.tensors.get(id as usize).map_or(usize::MAX, |tensor| tensor.buffer as usize);
            let is_written = written.get(buffer).copied().unwrap_or(false);
            if is_written { Ok(()) } else { Err(PayloadError::new(PayloadFault::Unwritten { tensor: id })) }
        });
        if result.is_ok() {
            result = checked;
        }
    };
    step.for_each_input(&mut read);
    result?;
    let output = step.output();
    List::Tensors.check(output, program.tensors.len())?;
    let buffer = program.tensors.get(output as usize).map_or(usize::MAX, |tensor| tensor.buffer as usize);
    match program.buffers.get(buffer) {
        Some(Buffer::Output(_) | Buffer::Arena { .. } | Buffer::State(_)) => {}
        _ => return Err(PayloadError::new(PayloadFault::Constant { tensor: output })),
    }
    if let Some(flag) = written.get_mut(buffer) {
        *flag = true;
    }
    let (step, tensors) = (step.kind(), tensors(program));
    step.check(&tensors)?;
    step.check_halves(&tensors)?;
    let mut is_fixed = step.is_work_fixed() && tensors.is_fixed(output);
    step.for_each_input(&mut |id| is_fixed &= tensors.is_fixed(id));
    if is_fixed { step.work(&tensors).map_or(Ok(()), Work::check) } else { Ok(()) }
}
