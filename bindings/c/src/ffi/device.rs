//! Devices of backends that are written in C: memory of their own, and calls that complete later.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use rushlight::runtime::{self, DeviceBuffer, DeviceId, MemoryKind};

use super::delegate::rl_delegate_context;
use super::status::called;
use super::{Growing, Result, null, options, rl_status, text};

/// Returns the index of the device in whose memory a delegate expects or writes an argument; -1 for the host's memory.
/// Inputs come first, then outputs. It is called once for each argument when the method is loaded.
pub type rl_device_memory_fn =
    Option<unsafe extern "C" fn(delegate: *mut c_void, argument: usize, user_data: *mut c_void) -> i64>;

/// Makes a buffer of at least this many bytes for an argument in device memory, when the method is loaded.
pub type rl_device_allocate_fn = Option<
    unsafe extern "C" fn(
        delegate: *mut c_void,
        bytes: usize,
        user_data: *mut c_void,
        buffer: *mut *mut c_void,
    ) -> *mut rl_status,
>;

/// Frees a buffer, on any thread. It may be called after `rl_backend.destroy` has freed the delegate that allocated the
/// buffer.
pub type rl_device_free_fn = Option<unsafe extern "C" fn(buffer: *mut c_void, user_data: *mut c_void)>;

/// Copies `data` to the beginning of a buffer, before anything that is submitted later. `data` lives until it returns.
pub type rl_device_write_fn = Option<
    unsafe extern "C" fn(
        buffer: *mut c_void,
        data: *const c_void,
        size: usize,
        user_data: *mut c_void,
    ) -> *mut rl_status,
>;

/// Copies the beginning of a buffer to `data`, after everything that was submitted. A slow device starts the copy and
/// sets `*is_pending`; the function is then called again, with the same size, until `data` holds the bytes. `data` is
/// invalid after the call returns, also if it sets `*is_pending`: write to it only in the call that completes the copy.
pub type rl_device_read_fn = Option<
    unsafe extern "C" fn(
        buffer: *mut c_void,
        data: *mut c_void,
        size: usize,
        user_data: *mut c_void,
        is_pending: *mut bool,
    ) -> *mut rl_status,
>;

/// Continues a call that `rl_backend.execute` submitted. Sets `*is_pending` if it is not complete; the function is then
/// called again. Outputs in host memory are written here.
pub type rl_device_poll_fn = Option<
    unsafe extern "C" fn(
        delegate: *mut c_void,
        context: *mut rl_delegate_context<'_, '_, '_>,
        user_data: *mut c_void,
        is_pending: *mut bool,
    ) -> *mut rl_status,
>;

/// Waits until a pending call may continue. It may return early.
pub type rl_device_wait_fn =
    Option<unsafe extern "C" fn(delegate: *mut c_void, user_data: *mut c_void) -> *mut rl_status>;

/// Cancels a call that was submitted and is not complete.
pub type rl_device_cancel_fn = Option<unsafe extern "C" fn(delegate: *mut c_void, user_data: *mut c_void)>;

/// The device of a backend. `rl_backend.execute` then submits a call; `poll` completes it.
///
/// The library keeps values on the device between delegates that use one device, and copies them only where a value is
/// needed in the other memory.
#[repr(C)]
pub struct rl_device_functions {
    /// `sizeof(rl_device_functions)`.
    pub struct_size: usize,
    /// The API of the device. Backends with the same `kind` use each other's buffers where the index is the same. About
    /// its length is kept until the process ends.
    pub kind: *const c_char,
    pub memory: rl_device_memory_fn,
    pub allocate: rl_device_allocate_fn,
    /// May be NULL.
    pub free: rl_device_free_fn,
    pub write: rl_device_write_fn,
    pub read: rl_device_read_fn,
    /// May be NULL: a call is then complete when it was submitted.
    pub poll: rl_device_poll_fn,
    /// May be NULL.
    pub wait: rl_device_wait_fn,
    /// May be NULL.
    pub cancel: rl_device_cancel_fn,
}

// SAFETY: an integer, a pointer, and functions that may be NULL.
unsafe impl Growing for rl_device_functions {}

/// The device of a backend.
pub struct Device {
    kind: &'static str,
    functions: Functions,
    user_data: *mut c_void,
}

/// The functions, of which the required ones are there.
struct Functions {
    memory: unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> i64,
    allocate: unsafe extern "C" fn(*mut c_void, usize, *mut c_void, *mut *mut c_void) -> *mut rl_status,
    write: unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void) -> *mut rl_status,
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void, *mut bool) -> *mut rl_status,
    free: rl_device_free_fn,
    poll: rl_device_poll_fn,
    wait: rl_device_wait_fn,
    cancel: rl_device_cancel_fn,
}

// SAFETY: the header says that any thread that loads or runs a module may use the functions and their data.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Returns a name that lives until the process ends. Equal names are kept once.
fn interned(name: &str) -> &'static str {
    static KNOWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.iter().find(|known| **known == name) {
        return known;
    }
    let name: &'static str = String::leak(name.to_owned());
    known.push(name);
    name
}

fn polled(is_pending: bool) -> Poll<()> {
    if is_pending { Poll::Pending } else { Poll::Ready(()) }
}

impl Device {
    /// Reads the functions; `None` for NULL.
    ///
    /// # Safety
    /// The functions are NULL or as their description says.
    pub unsafe fn of(functions: *const rl_device_functions, user_data: *mut c_void) -> Result<Option<Arc<Self>>> {
        if functions.is_null() {
            return Ok(None);
        }
        // SAFETY: a structure that says its size.
        let given: rl_device_functions = unsafe { options(functions, "backend->device") }?;
        // SAFETY: as the caller promises.
        let kind = interned(unsafe { text(given.kind, "backend->device->kind") }?);
        let functions = Functions {
            memory: given.memory.ok_or_else(|| null("backend->device->memory"))?,
            allocate: given.allocate.ok_or_else(|| null("backend->device->allocate"))?,
            write: given.write.ok_or_else(|| null("backend->device->write"))?,
            read: given.read.ok_or_else(|| null("backend->device->read"))?,
            free: given.free,
            poll: given.poll,
            wait: given.wait,
            cancel: given.cancel,
        };
        Ok(Some(Arc::new(Self { kind, functions, user_data })))
    }

    /// Returns the memory of an argument.
    ///
    /// # Safety
    /// The delegate is one that the backend made; so for the other functions.
    pub unsafe fn memory(&self, delegate: *mut c_void, argument: usize) -> MemoryKind {
        // SAFETY: the caller's function, with a delegate that it made.
        let index = unsafe { (self.functions.memory)(delegate, argument, self.user_data) };
        let of_device = |index| MemoryKind::Device(DeviceId { kind: self.kind, index });
        u32::try_from(index).map_or(MemoryKind::Host, of_device)
    }

    /// Continues a call.
    ///
    /// # Safety
    /// As [`memory`](Self::memory).
    pub unsafe fn poll(
        &self,
        delegate: *mut c_void,
        mut context: rl_delegate_context<'_, '_, '_>,
    ) -> runtime::Result<Poll<()>> {
        let Some(poll) = self.functions.poll else { return Ok(Poll::Ready(())) };
        let mut is_pending = false;
        // SAFETY: the caller's function, with a delegate that it made and arguments that live for the call.
        called(unsafe { poll(delegate, &raw mut context, self.user_data, &raw mut is_pending) })?;
        Ok(polled(is_pending))
    }

    /// Waits until a pending call may continue.
    ///
    /// # Safety
    /// As [`memory`](Self::memory).
    pub unsafe fn wait(&self, delegate: *mut c_void) -> runtime::Result<()> {
        let Some(wait) = self.functions.wait else {
            std::thread::yield_now();
            return Ok(());
        };
        // SAFETY: the caller's function, with a delegate that it made.
        called(unsafe { wait(delegate, self.user_data) })
    }

    /// Cancels a call that is not complete.
    ///
    /// # Safety
    /// As [`memory`](Self::memory).
    pub unsafe fn cancel(&self, delegate: *mut c_void) {
        if let Some(cancel) = self.functions.cancel {
            // SAFETY: the caller's function, with a delegate that it made.
            unsafe { cancel(delegate, self.user_data) }
        }
    }
}

/// A buffer that a backend made.
pub struct CustomBuffer {
    device: Arc<Device>,
    buffer: *mut c_void,
    bytes: usize,
}

// SAFETY: the header says that any thread may use the functions and what they made.
unsafe impl Send for CustomBuffer {}

impl CustomBuffer {
    /// Makes a buffer of at least `bytes` bytes for a delegate.
    ///
    /// # Safety
    /// The delegate is one that the backend made.
    pub unsafe fn new(device: &Arc<Device>, delegate: *mut c_void, bytes: usize) -> runtime::Result<Self> {
        let mut buffer = ptr::null_mut();
        // SAFETY: the caller's function, with a delegate that it made and a variable of this frame.
        called(unsafe { (device.functions.allocate)(delegate, bytes, device.user_data, &raw mut buffer) })?;
        Ok(Self { device: device.clone(), buffer, bytes })
    }

    /// The address for `rl_delegate_buffer`.
    pub fn address(&self) -> *mut c_void {
        self.buffer
    }
}

impl DeviceBuffer for CustomBuffer {
    fn len(&self) -> usize {
        self.bytes
    }

    fn write(&mut self, data: &[u8]) -> runtime::Result<()> {
        let Device { functions, user_data, .. } = &*self.device;
        // SAFETY: the caller's function, with a buffer that it made and bytes that live for the call.
        called(unsafe { (functions.write)(self.buffer, data.as_ptr().cast(), data.len(), *user_data) })
    }

    fn read(&mut self, data: &mut [u8]) -> runtime::Result<Poll<()>> {
        let Device { functions, user_data, .. } = &*self.device;
        let mut is_pending = false;
        let (to, len) = (data.as_mut_ptr().cast(), data.len());
        // SAFETY: the caller's function, with a buffer that it made and memory that lives for the call.
        called(unsafe { (functions.read)(self.buffer, to, len, *user_data, &raw mut is_pending) })?;
        Ok(polled(is_pending))
    }

    fn wait(&mut self) -> runtime::Result<()> {
        std::thread::yield_now();
        Ok(())
    }
}

impl Drop for CustomBuffer {
    fn drop(&mut self) {
        if let Some(free) = self.device.functions.free {
            // SAFETY: the caller's function, with a buffer that it made and that is not used again.
            unsafe { free(self.buffer, self.device.user_data) }
        }
    }
}
