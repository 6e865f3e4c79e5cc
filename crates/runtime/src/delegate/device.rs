//! Delegates that use device memory, or run while the host does something else.

use alloc::boxed::Box;
use core::task::Poll;

use super::buffer::DeviceBuffer;
use super::call::Call;
use super::memory::MemoryKind;
use crate::error::Result;
use crate::fault::Fault;

/// A delegate that uses the memory of a device, or completes a call after its submission.
///
/// A call is [`submit`](Self::submit) and then [`poll`](Self::poll) until that is ready. No thread is needed, and
/// nothing blocks, except [`execute`](crate::Method::execute): it makes the runtime [`wait`](Self::wait), and
/// [`submit`](crate::Method::submit) does not. `submit` and `poll` borrow host memory only until they return. Tensors
/// in host memory are read in `submit` and written in `poll`.
pub trait DeviceDelegate {
    /// The memory in which the delegate expects or writes argument `argument`. Inputs come first, then outputs. Asked
    /// once.
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

    /// Ready once the call is complete: outputs in host memory are written, and later submissions may use those on the
    /// device.
    fn poll(&mut self, call: &mut Call<'_, '_>) -> Result<Poll<()>> {
        let _ = call;
        Ok(Poll::Ready(()))
    }

    /// Waits until a pending call may continue. It may return early. It fails where waiting is impossible, as in a
    /// browser's main thread; programs submit and poll there.
    fn wait(&mut self) -> Result<()> {
        core::hint::spin_loop();
        Ok(())
    }

    /// Cancels a call that was submitted and is not complete. Its outputs are not read. States may be updated or not,
    /// as after any error.
    fn cancel(&mut self) {}
}
