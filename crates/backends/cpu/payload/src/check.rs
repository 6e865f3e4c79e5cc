//! Checks of a CPU program that anything else may rely on.

use alloc::vec;
use alloc::vec::Vec;

use rushlight_engine::{Instruction, Operand};
use rushlight_format::ScalarType;

use super::error::{Counted, List, Nonzero};
use super::work::{Fixed, Work};
use super::{
    Affine, Attention, Buffer, ChooseQparams, Convert, Copy, CpuProgram, Direction, Elementwise, MAX_OPERANDS,
    PayloadError, PayloadFault, PayloadSite, QuantizeRows, REGISTERS, Scatter, Size, SizeOp, Step, Tensor, half_of,
    types,
};

pub(super) type Result<T = ()> = core::result::Result<T, PayloadError>;

/// Checks a program.
pub(super) fn check(program: &CpuProgram) -> Result {
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
    at_most(Counted::Names, program.names.len(), program.steps.len())?;
    for (index, step) in program.steps.iter().enumerate() {
        check_step(program, step, &mut written).map_err(|error| error.at(PayloadSite::Step(index)))?;
    }
    Ok(())
}

/// Checks that a position is within a list.
pub(super) fn within(list: List, index: u32, len: usize) -> Result {
    if (index as usize) < len {
        return Ok(());
    }
    Err(PayloadError::new(PayloadFault::Index { list, index: index.into(), len: len as u64 }))
}

fn at_most(what: Counted, got: usize, limit: usize) -> Result {
    if got <= limit {
        return Ok(());
    }
    Err(PayloadError::new(PayloadFault::Count { what, got: got as u64, limit: limit as u64 }))
}

/// Checks that `size` elements of `bytes` bytes fit in this machine's address space.
fn fits(size: u64, bytes: usize) -> Result {
    let limit = isize::MAX as u64 / bytes as u64;
    if size < limit { Ok(()) } else { Err(PayloadError::new(PayloadFault::TooLarge { size, limit })) }
}

fn sizes(program: &CpuProgram) -> Result {
    for (index, op) in program.sizes.iter().enumerate() {
        match *op {
            SizeOp::Fixed(_) => {}
            SizeOp::Input { input, .. } | SizeOp::Element { input, .. } => {
                within(List::Inputs, input, program.inputs.len())
                    .map_err(|error| error.at(PayloadSite::Size(index)))?;
            }
            SizeOp::Add(a, b)
            | SizeOp::Mul(a, b)
            | SizeOp::FloorDiv(a, b)
            | SizeOp::Mod(a, b)
            | SizeOp::Max(a, b)
            | SizeOp::Min(a, b) => {
                within(List::Sizes, a.max(b), index).map_err(|error| error.at(PayloadSite::Size(index)))?;
            }
        }
    }
    let all = program.output_sizes.iter().flatten();
    all.into_iter().try_for_each(|size| check_size(program, *size))?;
    program
        .output_sizes
        .iter()
        .try_for_each(|sizes| at_most(Counted::Dimensions, sizes.len(), rushlight_format::MAX_RANK))?;
    at_most(Counted::OutputSizes, program.output_sizes.len(), program.outputs.len())?;
    at_most(Counted::OutputSizes, program.outputs.len(), program.output_sizes.len())
}

fn check_size(program: &CpuProgram, size: Size) -> Result {
    match size {
        Size::Fixed(value) => fits(value, 1),
        Size::Computed(index) => within(List::Sizes, index, program.sizes.len()),
    }
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
            Buffer::Input(position) => within(List::Inputs, position, program.inputs.len()),
            Buffer::Output(position) => within(List::Outputs, position, program.outputs.len()),
            Buffer::Blob(blob) => within(List::Blobs, blob, program.blobs.len()),
            Buffer::Arena { offset, len } => inside(offset, len, program.arena),
            Buffer::Inline { offset, len } => inside(offset, len, program.inline_floats.len() as u64),
            Buffer::State(state) => within(List::States, state, program.states.len()),
        };
        result.map_err(|error| error.at(PayloadSite::Buffer(index)))?;
    }
    Ok(())
}

fn check_tensor(program: &CpuProgram, tensor: &Tensor) -> Result {
    within(List::Buffers, tensor.buffer, program.buffers.len())?;
    at_most(Counted::Dimensions, tensor.dims.len(), rushlight_format::MAX_RANK)?;
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
    let dims: Option<Vec<u64>> = tensor.dims.iter().map(fixed).collect();
    if let (Some(offset), Some(dims)) = (fixed(&tensor.offset), dims) {
        let count = dims.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
        let end = count.and_then(|count| count.checked_add(offset));
        if end.is_none_or(|end| end > len) {
            return Err(PayloadError::new(PayloadFault::Beyond { end: end.unwrap_or(u64::MAX), len }));
        }
    }
    Ok(())
}

/// Checks that f16 and bf16 tensors in the arena or a state are only converted, moved, and read as keys and values.
fn check_half_tensors(program: &CpuProgram, step: &Step) -> Result {
    let half_of_tensor = |id: u32| {
        let tensor = program.tensors.get(id as usize)?;
        let buffer = program.buffers.get(tensor.buffer as usize)?;
        (half_of(tensor.dtype).is_some() && matches!(buffer, Buffer::Arena { .. } | Buffer::State(_)))
            .then_some(tensor.dtype)
    };
    let only = |expected: ScalarType, got: Option<ScalarType>| match got {
        Some(got) if got != expected => Err(PayloadError::new(PayloadFault::Dtype { expected, got })),
        _ => Ok(()),
    };
    match step {
        Step::Convert(Convert { x, y, direction, .. }) => {
            only(ScalarType::Float, half_of_tensor(if *direction == Direction::Enter { *y } else { *x }))
        }
        Step::Copy(Copy { x, y, .. }) | Step::Scatter(Scatter { x, y, .. }) if half_of_tensor(*y).is_some() => only(
            half_of_tensor(*y).unwrap_or(ScalarType::Float),
            program.tensors.get(*x as usize).map(|tensor| tensor.dtype),
        ),
        Step::Attention(Attention { q, k, v, mask, y, .. }) => {
            [Some(*q), *mask, Some(*y)]
                .into_iter()
                .flatten()
                .try_for_each(|id| only(ScalarType::Float, half_of_tensor(id)))?;
            let of = |id: u32| half_of_tensor(id).unwrap_or(ScalarType::Float);
            only(of(*k), Some(of(*v)))
        }
        _ => {
            let mut result = only(ScalarType::Float, half_of_tensor(step.output()));
            step.for_each_input(&mut |id| {
                if result.is_ok() {
                    result = only(ScalarType::Float, half_of_tensor(id));
                }
            });
            result
        }
    }
}

/// Checks that a scale and its reciprocal are finite and positive, and that `min <= max`.
pub(super) fn check_affine(affine: Affine) -> Result {
    let scale = affine.scale();
    let is_scale = |scale: f32| scale.is_finite() && scale > 0.0;
    if !is_scale(scale) || !is_scale(1.0 / scale) || affine.min > affine.max {
        return Err(PayloadError::new(PayloadFault::Affine));
    }
    Ok(())
}

/// Checks that each input and output tensor is in the caller's buffer of the same index.
fn io_tensors(program: &CpuProgram) -> Result {
    let sides = [(&program.inputs, true), (&program.outputs, false)];
    for (ids, is_input) in sides {
        for (position, id) in ids.iter().enumerate() {
            let site = if is_input { PayloadSite::Input(position) } else { PayloadSite::Output(position) };
            within(List::Tensors, *id, program.tensors.len()).map_err(|error| error.at(site))?;
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
        let checked = within(List::Tensors, id, program.tensors.len()).and_then(|()| {
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
    within(List::Tensors, output, program.tensors.len())?;
    let buffer = program.tensors.get(output as usize).map_or(usize::MAX, |tensor| tensor.buffer as usize);
    match program.buffers.get(buffer) {
        Some(Buffer::Output(_) | Buffer::Arena { .. } | Buffer::State(_)) => {}
        _ => return Err(PayloadError::new(PayloadFault::Constant { tensor: output })),
    }
    if let Some(flag) = written.get_mut(buffer) {
        *flag = true;
    }
    types::check(program, step)?;
    check_half_tensors(program, step)?;
    match step {
        Step::Elementwise(step) => elementwise(step)?,
        Step::ChooseQparams(ChooseQparams { range, .. }) | Step::QuantizeRows(QuantizeRows { range, .. })
            if range[0] >= range[1] =>
        {
            return Err(PayloadError::new(PayloadFault::Zero(Nonzero::Range)));
        }
        Step::Pooling(step) => {
            nonzero(Nonzero::Kernel, &step.kernel)?;
            nonzero(Nonzero::Stride, &step.stride)?;
            nonzero(Nonzero::Dilation, &step.dilation)?;
        }
        Step::Copy(step) => {
            let rank = step.sizes.len();
            at_most(Counted::Dimensions, rank, rushlight_format::MAX_RANK)?;
            same_rank(rank, [step.x_strides.len(), step.y_strides.len()])?;
            let numbers = step.sizes.iter().chain(&step.x_strides).chain(&step.y_strides);
            numbers.chain([&step.x_offset, &step.y_offset]).try_for_each(|size| check_size(program, *size))?;
        }
        Step::Scatter(step) => {
            let rank = step.sizes.len();
            at_most(Counted::Dimensions, rank, rushlight_format::MAX_RANK)?;
            same_rank(rank, [step.x_strides.len(), step.y_strides.len()])?;
            let numbers = step.sizes.iter().chain(&step.x_strides).chain(&step.y_strides);
            let others = [&step.dim_size, &step.x_offset, &step.x_step, &step.y_offset, &step.y_step];
            numbers.chain(others).try_for_each(|size| check_size(program, *size))?;
        }
        Step::Attention(step) => {
            let sizes = [step.batch, step.heads, step.groups, step.rows, step.keys, step.depth, step.value_depth];
            let mut all = sizes.into_iter().chain(step.causal).chain(step.strides.into_iter().flatten());
            all.try_for_each(|size| check_size(program, size))?;
        }
        _ => {}
    }
    let sizes = Fixed(program);
    if sizes.knows(step) { step.work(&sizes).check() } else { Ok(()) }
}

impl Work {
    /// Checks that the size is bounded.
    fn check(self) -> Result {
        if self.is_bounded() {
            return Ok(());
        }
        let [operations, limit] = self.saturated();
        Err(PayloadError::new(PayloadFault::Work { operations, limit }))
    }
}

pub(super) fn nonzero(what: Nonzero, sizes: &[u32]) -> Result {
    if sizes.contains(&0) { Err(PayloadError::new(PayloadFault::Zero(what))) } else { Ok(()) }
}

fn same_rank<const N: usize>(expected: usize, lens: [usize; N]) -> Result {
    match lens.into_iter().find(|len| *len != expected) {
        Some(got) => Err(PayloadError::new(PayloadFault::Ranks { expected, got })),
        None => Ok(()),
    }
}

/// Checks that registers are written before they are read.
fn elementwise(step: &Elementwise) -> Result {
    let mut written = [false; REGISTERS as usize];
    at_most(Counted::Operands, step.operands.len(), MAX_OPERANDS)?;
    if step.instructions.is_empty() {
        return Err(PayloadError::new(PayloadFault::NoInstructions));
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
                    within(List::Registers, register.into(), written.len())?;
                    if !written.get(register as usize).copied().unwrap_or(false) {
                        return Err(PayloadError::new(PayloadFault::Register { register }));
                    }
                }
                Operand::Tensor(index) => within(List::Operands, index.into(), step.operands.len())?,
                Operand::Constant(_) => {}
            }
        }
        within(List::Registers, to.into(), written.len())?;
        if let Some(flag) = written.get_mut(to as usize) {
            *flag = true;
        }
    }
    Ok(())
}
