//! Device memory: the buffers of a method's values.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::task::Poll;

use super::memory::DeviceId;
use crate::error::Result;
use crate::fault::Fault;

/// A buffer in the memory of a device. Its delegates downcast it to its own type.
///
/// The runtime allocates all buffers when a method is loaded ([`DeviceDelegate::allocate`](super::DeviceDelegate::allocate)). It copies between them and
/// the host only if a value is needed in the other memory.
pub trait DeviceBuffer: Any + Send {
    /// Bytes that the buffer holds. The runtime compares it with the requested size.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `data` to the beginning of the buffer, before anything that is submitted later. `data` is not valid after
    /// the call.
    fn write(&mut self, data: &[u8]) -> Result<()>;

    /// Copies the beginning of the buffer to `data`, after everything that was submitted. A slow device starts the copy
    /// and returns [`Poll::Pending`]. It is then called again, with the same length, until `data` holds the bytes.
    fn read(&mut self, data: &mut [u8]) -> Result<Poll<()>>;

    /// Abandons a read that was started, because its execution was dropped.
    fn cancel_read(&mut self) {}

    /// Waits until a pending read may continue. See [`DeviceDelegate::wait`](super::DeviceDelegate::wait).
    fn wait(&mut self) -> Result<()> {
        core::hint::spin_loop();
        Ok(())
    }
}

/// The device buffer of a delegate's argument.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Index among the tensors that delegates have in device memory.
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
    /// True if untracked accesses reach the host's memory too. It is then brought up to date after every step.
    pub(crate) is_pinned: bool,
    /// True if the data never changes, so that copies stay current across executions.
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
    /// The buffer of an argument in device memory. Fails if the argument is in another memory, or the buffer has
    /// another type.
    pub fn get<T: DeviceBuffer>(&self, argument: usize) -> Result<&T> {
        let place = self.places.get(argument).copied().flatten().ok_or(Fault::NoBuffer)?;
        let copy = self.values.get(place.value as usize).and_then(|value| value.copies.get(place.copy as usize));
        let buffer: &dyn Any = copy.ok_or(Fault::NoBuffer)?.buffer.as_ref();
        buffer.downcast_ref().ok_or_else(|| Fault::BufferType.into())
    }

    /// Like [`get`](Self::get), but exclusive.
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
