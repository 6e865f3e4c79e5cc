//! Binding of tensors to constants, to planned buffers and to the caller's memory.
#![allow(unsafe_code)]

use core::ptr::NonNull;

use crate::fault::{Checked, Fault, Report};
use crate::tensor::TensorState;

use super::planned::PlannedBuffer;

/// Binds a tensor to its constant data.
pub(crate) fn bind_constant(tensor: &TensorState<'_>, data: &[u8], report: &mut Report) -> Checked<()> {
    if data.len() < tensor.bound {
        return Err(report.fault(Fault::ConstantData, tensor.bound, data.len()));
    }
    let start = aligned(tensor, NonNull::from(data).cast(), tensor.bound, Fault::UnalignedProgram, report)?;
    // SAFETY: aligned, long enough, and borrowed for as long as the method; never written, because the load-time check
    // refuses instructions that write a tensor whose access is `ReadOnly`.
    unsafe { tensor.bind(start, tensor.bound) };
    Ok(())
}

/// Binds a tensor to its range of a planned buffer, and copies its initial values if it has any.
pub(crate) fn bind_planned(
    tensor: &TensorState<'_>,
    buffer: &PlannedBuffer,
    offset: u64,
    initial: Option<&[u8]>,
    report: &mut Report,
) -> Checked<()> {
    let bound = tensor.bound;
    let offset = usize::try_from(offset).ok().filter(|o| o.checked_add(bound).is_some_and(|end| end <= buffer.len));
    let Some(offset) = offset else {
        return Err(report.plain(Fault::BeyondBuffer));
    };
    // SAFETY: `offset <= buffer.len`, and the buffer is one allocation of that length.
    let start = unsafe { buffer.start.add(offset) };
    let start = aligned(tensor, start, bound, Fault::UnalignedBuffer, report)?;
    if let Some(initial) = initial {
        if initial.len() < bound {
            return Err(report.fault(Fault::InitialData, bound, initial.len()));
        }
        // SAFETY: `bound` bytes from `start` are inside the planned buffer (checked above) and inside `initial`; the
        // planned buffer is borrowed exclusively, or its busy flag is held during load, so nothing else refers to it.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(initial).cast(), bound) };
    }
    // SAFETY: aligned; inside the planned buffer, which the method borrows or shares for its whole life.
    unsafe { tensor.bind(start, bound) };
    Ok(())
}

/// Binds a tensor to the caller's memory until it is unbound.
///
/// # Safety
/// `data` stays valid, and is not used otherwise, until the tensor is unbound or bound again. It is writable if an
/// instruction writes the tensor.
pub(crate) unsafe fn bind_borrowed(
    tensor: &TensorState<'_>,
    data: NonNull<u8>,
    len: usize,
    report: &mut Report,
) -> Checked<()> {
    let data = aligned(tensor, data, len, Fault::UnalignedData, report)?;
    // SAFETY: as above, and aligned.
    unsafe { tensor.bind(data, len) };
    Ok(())
}

/// Returns `start` if it is aligned for the tensor's elements; for an empty tensor, returns any aligned address.
fn aligned(
    tensor: &TensorState<'_>,
    start: NonNull<u8>,
    room: usize,
    fault: Fault,
    report: &mut Report,
) -> Checked<NonNull<u8>> {
    if room == 0 {
        return Ok(NonNull::<u128>::dangling().cast());
    }
    // Complex numbers have the alignment of their parts.
    let size = tensor.dtype.size();
    let needed = if tensor.dtype.is_complex() { size / 2 } else { size };
    if start.addr().get() & (needed - 1) != 0 {
        return Err(report.fault(fault, needed, 0));
    }
    Ok(start)
}
