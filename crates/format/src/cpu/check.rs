//! What must hold of a CPU program before anything trusts it.

use alloc::vec;
use alloc::vec::Vec;

use crate::error::ErrorKind;

use crate::scalar_type::ScalarType;

use super::{
    Affine, Buffer, CpuProgram, Elementwise, Instruction, MAX_OPERANDS, Operand, PayloadError, REGISTERS, Resize,
    RoundRows, RowScales, Size, SizeOp, Step, Tensor,
};

type Result<T = ()> = core::result::Result<T, PayloadError>;

/// Checks a program.
pub(super) fn check(program: &CpuProgram) -> Result {
    sizes(program)?;
    buffers(program)?;
    for (index, tensor) in program.tensors.iter().enumerate() {
        check_tensor(program, tensor).map_err(|error| error.at("tensor", index))?;
    }
    tensors_of_the_caller(program)?;
    let mut written = vec![false; program.buffers.len()];
    for (flag, buffer) in written.iter_mut().zip(&program.buffers) {
        *flag = !matches!(buffer, Buffer::Output(_) | Buffer::Arena { .. });
    }
    below(program.names.len(), program.steps.len() + 1)?;
    for (index, step) in program.steps.iter().enumerate() {
        check_step(program, step, &mut written).map_err(|error| error.at("step", index))?;
    }
    Ok(())
}

fn below(value: usize, limit: usize) -> Result {
    if value < limit {
        return Ok(());
    }
    Err(PayloadError::new(ErrorKind::OutOfRange { value: value as u64, limit: limit as u64 }))
}

fn sizes(program: &CpuProgram) -> Result {
    for (index, op) in program.sizes.iter().enumerate() {
        match *op {
            SizeOp::Fixed(_) => {}
            SizeOp::Input { input, .. } => below(input as usize, program.inputs.len())?,
            SizeOp::Add(a, b)
            | SizeOp::Mul(a, b)
            | SizeOp::FloorDiv(a, b)
            | SizeOp::Mod(a, b)
            | SizeOp::Max(a, b)
            | SizeOp::Min(a, b) => below(a.max(b) as usize, index)?,
        }
    }
    let all = program.output_sizes.iter().flatten();
    all.into_iter().try_for_each(|size| check_size(program, *size))?;
    below(program.output_sizes.len(), program.outputs.len() + 1)?;
    below(program.outputs.len(), program.output_sizes.len() + 1)
}

fn check_size(program: &CpuProgram, size: Size) -> Result {
    match size {
        Size::Fixed(value) => below(usize::try_from(value).unwrap_or(usize::MAX), isize::MAX as usize),
        Size::Computed(index) => below(index as usize, program.sizes.len()),
    }
}

fn buffers(program: &CpuProgram) -> Result {
    for floats in [program.arena, program.scratch] {
        below(usize::try_from(floats).unwrap_or(usize::MAX), isize::MAX as usize / 8)?;
    }
    for (index, buffer) in program.buffers.iter().enumerate() {
        let within = |offset: u64, len: u64, limit: u64| match offset.checked_add(len) {
            Some(end) if end <= limit => Ok(()),
            end => Err(PayloadError::new(ErrorKind::OutOfRange { value: end.unwrap_or(u64::MAX), limit })),
        };
        let result = match *buffer {
            Buffer::Input(position) => below(position as usize, program.inputs.len()),
            Buffer::Output(position) => below(position as usize, program.outputs.len()),
            Buffer::Blob(blob) => below(blob as usize, program.blobs.len()),
            Buffer::Arena { offset, len } => within(offset, len, program.arena),
            Buffer::Small { offset, len } => within(offset, len, program.small.len() as u64),
        };
        result.map_err(|error| error.at("buffer", index))?;
    }
    Ok(())
}

fn check_tensor(program: &CpuProgram, tensor: &Tensor) -> Result {
    below(tensor.buffer as usize, program.buffers.len())?;
    below(tensor.dims.len(), crate::MAX_RANK + 1)?;
    check_size(program, tensor.offset)?;
    tensor.dims.iter().try_for_each(|size| check_size(program, *size))?;
    let fixed = |size: &Size| match size {
        Size::Fixed(value) => Some(*value),
        Size::Computed(_) => None,
    };
    if let Some(affine) = tensor.affine {
        check_affine(affine)?;
    }
    let buffer = program.buffers.get(tensor.buffer as usize);
    let is_bytes = matches!(tensor.dtype, ScalarType::Byte) && matches!(buffer, Some(Buffer::Arena { .. }));
    if is_bytes != tensor.affine.is_some() {
        return Err(PayloadError::new(ErrorKind::Conflict));
    }
    let len = match buffer {
        // So many floats have room for four times as many bytes.
        Some(Buffer::Arena { len, .. }) if is_bytes => len.saturating_mul(4),
        Some(Buffer::Small { len, .. }) if matches!(tensor.dtype, ScalarType::Char | ScalarType::Byte) => {
            len.saturating_mul(4)
        }
        Some(Buffer::Arena { len, .. } | Buffer::Small { len, .. }) => *len,
        _ => return Ok(()),
    };
    let dims: Option<Vec<u64>> = tensor.dims.iter().map(fixed).collect();
    if let (Some(offset), Some(dims)) = (fixed(&tensor.offset), dims) {
        let count = dims.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
        let end = count.and_then(|count| count.checked_add(offset));
        if end.is_none_or(|end| end > len) {
            let kind = ErrorKind::OutOfRange { value: end.unwrap_or(u64::MAX), limit: len };
            return Err(PayloadError::new(kind));
        }
    }
    Ok(())
}

/// A scale is a number above zero, and so is its reciprocal.
fn check_affine(affine: Affine) -> Result {
    let scale = affine.scale();
    let is_scale = |scale: f32| scale.is_finite() && scale > 0.0;
    if !is_scale(scale) || !is_scale(1.0 / scale) || affine.min > affine.max {
        return Err(PayloadError::new(ErrorKind::Conflict));
    }
    Ok(())
}

/// Inputs and outputs lie in the caller's memory, each in its own, from the start.
fn tensors_of_the_caller(program: &CpuProgram) -> Result {
    let sides = [(&program.inputs, true), (&program.outputs, false)];
    for (ids, is_input) in sides {
        for (position, id) in ids.iter().enumerate() {
            below(*id as usize, program.tensors.len())?;
            let buffer =
                program.tensors.get(*id as usize).and_then(|tensor| program.buffers.get(tensor.buffer as usize));
            let found = match buffer {
                Some(Buffer::Input(index)) if is_input => *index as usize == position,
                Some(Buffer::Output(index)) if !is_input => *index as usize == position,
                _ => false,
            };
            if !found {
                return Err(
                    PayloadError::new(ErrorKind::Missing).at(if is_input { "input" } else { "output" }, position)
                );
            }
        }
    }
    Ok(())
}

fn check_step(program: &CpuProgram, step: &Step, written: &mut [bool]) -> Result {
    let mut result = Ok(());
    let mut read = |id: u32| {
        let checked = below(id as usize, program.tensors.len()).and_then(|()| {
            let buffer = program.tensors.get(id as usize).map_or(usize::MAX, |tensor| tensor.buffer as usize);
            let is_written = written.get(buffer).copied().unwrap_or(false);
            if is_written { Ok(()) } else { Err(PayloadError::new(ErrorKind::Missing)) }
        });
        if result.is_ok() {
            result = checked;
        }
    };
    step.for_each_input(&mut read);
    result?;
    let output = step.output() as usize;
    below(output, program.tensors.len())?;
    let buffer = program.tensors.get(output).map_or(usize::MAX, |tensor| tensor.buffer as usize);
    match program.buffers.get(buffer) {
        Some(Buffer::Output(_) | Buffer::Arena { .. }) => {}
        _ => return Err(PayloadError::new(ErrorKind::Conflict)),
    }
    if let Some(flag) = written.get_mut(buffer) {
        *flag = true;
    }
    let tail = match step {
        Step::Matmul(step) => Some(&step.tail),
        Step::Convolution(step) => Some(&step.tail),
        _ => None,
    };
    if let Some(inner) = tail.and_then(|tail| tail.integers.as_ref()).and_then(|integers| integers.inner) {
        check_affine(inner.affine)?;
    }
    let is_bytes = |id: u32| program.tensors.get(id as usize).is_some_and(|tensor| tensor.affine.is_some());
    match step {
        Step::Softmax { x, y, log } if is_bytes(*x) != is_bytes(*y) || (*log && is_bytes(*x)) => {
            Err(PayloadError::new(ErrorKind::Conflict))
        }
        Step::Resize(Resize { x, y, .. }) if is_bytes(*x) != is_bytes(*y) => {
            Err(PayloadError::new(ErrorKind::Conflict))
        }
        Step::Elementwise(step) => elementwise(step),
        Step::RowScales(RowScales { range, .. }) | Step::RoundRows(RoundRows { range, .. }) if range[0] >= range[1] => {
            Err(PayloadError::new(ErrorKind::Conflict))
        }
        Step::Convolution(step) => {
            let rank = step.kernel.len();
            let lens = [step.stride.len(), step.padding.len(), step.dilation.len()];
            let added = step.output_padding.as_ref().map_or(rank, Vec::len);
            if !(1..=3).contains(&rank) || lens != [rank; 3] || added != rank || step.groups == 0 {
                return Err(PayloadError::new(ErrorKind::Missing));
            }
            let zeros = [&step.kernel, &step.stride, &step.dilation].into_iter().flatten().any(|size| *size == 0);
            if zeros { Err(PayloadError::new(ErrorKind::OutOfRange { value: 0, limit: 1 })) } else { Ok(()) }
        }
        Step::Copy(step) => {
            let rank = step.sizes.len();
            below(rank, crate::MAX_RANK + 1)?;
            if step.x_strides.len() != rank || step.y_strides.len() != rank {
                return Err(PayloadError::new(ErrorKind::Missing));
            }
            let numbers = step.sizes.iter().chain(&step.x_strides).chain(&step.y_strides);
            numbers.chain([&step.x_offset, &step.y_offset]).try_for_each(|size| check_size(program, *size))
        }
        Step::Attention(step) => {
            let sizes = [step.batch, step.heads, step.groups, step.rows, step.keys, step.depth, step.value_depth];
            let mut all = sizes.into_iter().chain(step.strides.into_iter().flatten());
            all.try_for_each(|size| check_size(program, size))
        }
        _ => Ok(()),
    }
}

/// Registers are written before they are read.
fn elementwise(step: &Elementwise) -> Result {
    let mut written = [false; REGISTERS as usize];
    below(step.operands.len(), MAX_OPERANDS + 1)?;
    if step.instructions.is_empty() {
        return Err(PayloadError::new(ErrorKind::Missing));
    }
    for instruction in &step.instructions {
        let (to, reads): (u8, &[Operand]) = match instruction {
            Instruction::Unary { to, x, .. } | Instruction::Activate { to, x, .. } => (*to, &[*x]),
            Instruction::Binary { to, a, b, .. } => (*to, &[*a, *b]),
            Instruction::Select { to, condition, a, b } => (*to, &[*condition, *a, *b]),
        };
        for operand in reads {
            match *operand {
                Operand::Register(register) => {
                    below(register as usize, written.len())?;
                    if !written.get(register as usize).copied().unwrap_or(false) {
                        return Err(PayloadError::new(ErrorKind::Missing));
                    }
                }
                Operand::Tensor(index) => below(index as usize, step.operands.len())?,
                Operand::Number(_) => {}
            }
        }
        below(to as usize, written.len())?;
        if let Some(flag) = written.get_mut(to as usize) {
            *flag = true;
        }
    }
    Ok(())
}
