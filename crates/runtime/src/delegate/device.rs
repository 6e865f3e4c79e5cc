//! Memory that is not the host's, and delegates that work while the host does something else.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::task::Poll;

use super::call::Call;
use super::memory::{DeviceId, MemoryKind};
use crate::error::Result;
use crate::fault::Fault;

/// A buffer in the memory of a device, as its delegates know it: they get it back by its type.
///
/// The runtime asks for all buffers when a method is loaded ([`DeviceDelegate::allocate`]) and copies between them and the
/// host only where a value is needed in the other memory.
pub trait DeviceBuffer: Any + Send {
    /// Bytes that it holds. The runtime checks it against what it asked for.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `data` to the beginning of the buffer, before anything that is submitted later. `data` is gone afterwards.
    fn write(&mut self, data: &[u8]) -> Result<()>;

    /// Copies the beginning of the buffer to `data`, after everything that was submitted. A device that takes its time starts
    /// and returns [`Poll::Pending`]; it is called again, with the same length, until `data` holds the bytes.
    fn read(&mut self, data: &mut [u8]) -> Result<Poll<()>>;

    /// Forgets a read that was started: its execution was dropped.
    fn cancel_read(&mut self) {}

    /// Waits until a pending read may go on. See [`DeviceDelegate::wait`].
    fn wait(&mut self) -> Result<()> {
        core::hint::spin_loop();
        Ok(())
    }
}

/// A delegate that uses the memory of a device, or completes after it was submitted.
///
/// A call is [`submit`](Self::submit) and then [`poll`](Self::poll) until that is ready. No thread is needed, and nothing
/// blocks: only who [executes](crate::Method::execute) instead of [submitting](crate::Method::submit) makes the runtime
/// [`wait`](Self::wait). What `submit` and `poll` borrow of the host is gone when they return; tensors in host memory are read
/// in `submit` and written in `poll`.
pub trait DeviceDelegate {
    /// The memory in which argument `argument` is expected or given; inputs come first, then outputs. Asked once.
    fn memory(&self, argument: usize) -> MemoryKind {
        let _ = argument;
        MemoryKind::Host
    }

    /// Makes a buffer of at least this many bytes for an argument in device memory. Called while the method is loaded.
    fn allocate(&mut self, bytes: usize) -> Result<Box<dyn DeviceBuffer>> {
        let _ = bytes;
        Err(Fault::NoBuffers.into())
    }

    /// Starts a call.
    fn submit(&mut self, call: &mut Call<'_, '_>) -> Result<()>;

    /// Ready once the call is complete: outputs in host memory are written, those on the device may be used by what is
    /// submitted next.
    fn poll(&mut self, call: &mut Call<'_, '_>) -> Result<Poll<()>> {
        let _ = call;
        Ok(Poll::Ready(()))
    }

    /// Waits until a pending call may go on; returning early is no error. Where waiting is impossible, as in a browser's main
    /// thread, it is one, and programs submit and poll.
    fn wait(&mut self) -> Result<()> {
        core::hint::spin_loop();
        Ok(())
    }

    /// Abandons a call that was submitted and not completed. Its outputs are not looked at; states may have been updated or
    /// not, as after any error.
    fn cancel(&mut self) {}
}

/// The device buffer of a delegate's argument.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Index of the tensor among those that delegates have in device memory.
    pub(crate) value: u32,
    /// Index into [`PlacedValue::copies`].
    pub(crate) copy: u32,
}

/// A tensor that some delegate has in device memory.
pub(crate) struct PlacedValue {
    /// Index among the values of the method.
    pub(crate) value: u32,
    pub(crate) copies: Vec<DeviceCopy>,
    /// True if the host's memory holds the current data.
    pub(crate) host_is_current: bool,
    /// True if the host's memory is also reached in ways that are not tracked: it is current after every step.
    pub(crate) is_pinned: bool,
    /// True if the data never changes, so that copies stay current from one execution to the next.
    pub(crate) is_constant: bool,
}

/// The copy of a tensor on one device.
pub(crate) struct DeviceCopy {
    pub(crate) device: DeviceId,
    pub(crate) buffer: Box<dyn DeviceBuffer>,
    pub(crate) is_current: bool,
    /// True while a read is pending.
    pub(crate) is_reading: bool,
}

/// The device buffers of one delegate call, by the position of their argument.
pub struct CallBuffers<'c> {
    pub(crate) places: &'c [Option<Place>],
    pub(crate) values: &'c mut [PlacedValue],
}

impl CallBuffers<'_> {
    /// The buffer of an argument that is in device memory. Fails if it is in another memory, or has another type.
    pub fn get<T: DeviceBuffer>(&self, argument: usize) -> Result<&T> {
        let place = self.places.get(argument).copied().flatten().ok_or(Fault::NoBuffer)?;
        let copy = self.values.get(place.value as usize).and_then(|value| value.copies.get(place.copy as usize));
        let buffer: &dyn Any = copy.ok_or(Fault::NoBuffer)?.buffer.as_ref();
        buffer.downcast_ref().ok_or_else(|| Fault::BufferType.into())
    }

    /// As [`get`](Self::get), exclusively.
    pub fn get_mut<T: DeviceBuffer>(&mut self, argument: usize) -> Result<&mut T> {
        let place = self.places.get(argument).copied().flatten().ok_or(Fault::NoBuffer)?;
        let value = self.values.get_mut(place.value as usize);
        let copy = value.and_then(|value| value.copies.get_mut(place.copy as usize));
        let buffer: &mut dyn Any = copy.ok_or(Fault::NoBuffer)?.buffer.as_mut();
        buffer.downcast_mut().ok_or_else(|| Fault::BufferType.into())
    }
}

impl core::fmt::Debug for CallBuffers<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CallBuffers").field("arguments", &self.places.len()).finish_non_exhaustive()
    }
}
