//! Run-time halves of backends.

use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::task::Poll;

use rushlight::runtime::{
    self, Backend, Call, Delegate, DelegateContext, DelegateHandle, DeviceBuffer, DeviceDelegate, InitContext,
    Interrupts, Limits, MemoryKind, OptionSpec, OptionValue, State, StateInfo,
};

use super::delegate::rl_delegate_context;
use super::device::{CustomBuffer, Device, rl_device_functions};
use super::option::{declared, rl_option_spec};
use super::state::{CustomState, States, rl_state_functions};
use super::status::called;
use super::value::{rl_string, rl_value};
use super::{Growing, Result, guard, guard_or, null, optional_text, reference, rl_status, set, text};
use crate::callback;
use crate::status::Status;

/// Borrowed bytes. `data` is NULL if there are none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rl_bytes {
    pub data: *const c_void,
    pub size: usize,
}

impl rl_bytes {
    fn of(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self { data: ptr::null(), size: 0 }, |bytes| Self {
            data: bytes.as_ptr().cast(),
            size: bytes.len(),
        })
    }
}

/// Arguments of `rl_backend.init`. They live until that function returns.
pub struct rl_init_context<'a, 'c, 'm>(&'a InitContext<'c, 'm>);

type Init = unsafe extern "C" fn(
    context: *const rl_init_context<'_, '_, '_>,
    user_data: *mut c_void,
    delegate: *mut *mut c_void,
    num_outputs: *mut usize,
) -> *mut rl_status;
type Execute = unsafe extern "C" fn(
    delegate: *mut c_void,
    context: *mut rl_delegate_context<'_, '_, '_>,
    user_data: *mut c_void,
) -> *mut rl_status;
type Destroy = unsafe extern "C" fn(delegate: *mut c_void, user_data: *mut c_void);
type Measure = unsafe extern "C" fn(user_data: *mut c_void, flop_rate: *mut f64, byte_rate: *mut f64) -> bool;
type SetOption = unsafe extern "C" fn(
    delegate: *mut c_void,
    name: *const c_char,
    value: *const rl_value,
    user_data: *mut c_void,
) -> *mut rl_status;

/// Makes a delegate from a payload when a method is loaded, and returns the number of its outputs. Like the other
/// functions of a backend, it must not throw exceptions or jump out of the call, and cannot use the module that calls
/// it.
pub type rl_init_fn = Option<
    unsafe extern "C" fn(
        context: *const rl_init_context<'_, '_, '_>,
        user_data: *mut c_void,
        delegate: *mut *mut c_void,
        num_outputs: *mut usize,
    ) -> *mut rl_status,
>;

/// Reads the inputs of a call and writes its outputs. For a backend with a device, it submits the call.
pub type rl_execute_fn = Option<
    unsafe extern "C" fn(
        delegate: *mut c_void,
        context: *mut rl_delegate_context<'_, '_, '_>,
        user_data: *mut c_void,
    ) -> *mut rl_status,
>;

/// Frees a delegate, on any thread.
pub type rl_destroy_fn = Option<unsafe extern "C" fn(delegate: *mut c_void, user_data: *mut c_void)>;

/// Changes an option that the backend declares, after the method is loaded. The kind of the value is right.
pub type rl_set_option_fn = Option<
    unsafe extern "C" fn(
        delegate: *mut c_void,
        name: *const c_char,
        value: *const rl_value,
        user_data: *mut c_void,
    ) -> *mut rl_status,
>;

/// Measures the peak rates of a device, with which profiles compare steps: f32 additions and multiplications per second,
/// and bytes read from memory per second. Returns false if it cannot measure them.
pub type rl_limits_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, flop_rate: *mut f64, byte_rate: *mut f64) -> bool>;

/// The run-time half of a backend: makes a delegate from each part that its ahead-of-time half compiled. One thread at
/// a time uses a delegate. It may be another thread at each call.
#[repr(C)]
pub struct rl_backend {
    /// `sizeof(rl_backend)`.
    pub struct_size: usize,
    /// The backend's name in programs.
    pub name: *const c_char,
    pub init: rl_init_fn,
    pub execute: rl_execute_fn,
    /// May be NULL.
    pub destroy: rl_destroy_fn,
    /// Passed to the functions. It follows the rules of an operator's `user_data`. Sessions that have states of the backend
    /// use it, too.
    pub user_data: *mut c_void,
    /// `num_options` options that the backend declares. Others are errors. Their texts are kept until the process ends.
    pub options: *const rl_option_spec,
    pub num_options: usize,
    /// Changes options that are not `only_at_load`. NULL if there are none.
    pub set_option: rl_set_option_fn,
    /// The device and its settings as text, such as "npu, 4 cores". May be NULL.
    pub device_text: *const c_char,
    /// May be NULL.
    pub limits: rl_limits_fn,
    /// The functions of the delegates' states. NULL if they have none.
    pub states: *const rl_state_functions,
    /// The device whose memory the delegates use. NULL for a backend that uses the host's.
    pub device: *const rl_device_functions,
}

// SAFETY: integers, pointers, and functions that may be NULL.
unsafe impl Growing for rl_backend {}

/// A backend that is written in C.
pub struct CustomBackend {
    name: String,
    options: &'static [OptionSpec],
    device: Option<String>,
    functions: Arc<Functions>,
}

struct Functions {
    init: Init,
    execute: Execute,
    destroy: Option<Destroy>,
    set_option: Option<SetOption>,
    limits: Option<Measure>,
    states: Option<Arc<States>>,
    device: Option<Arc<Device>>,
    user_data: *mut c_void,
}

// SAFETY: the header says that any thread that loads or runs a module may use the functions and their data.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

struct CustomDelegate {
    functions: Arc<Functions>,
    delegate: *mut c_void,
    outputs: usize,
    /// The keys of the states, with their maximum bytes.
    states: Vec<(String, usize)>,
}

// SAFETY: the header says that another thread may use a delegate at each call.
unsafe impl Send for CustomDelegate {}

impl CustomBackend {
    /// # Safety
    /// Pointers are NULL, or as their description says.
    pub unsafe fn of(backend: &rl_backend) -> Result<Self> {
        // SAFETY: as the caller promises.
        let name = unsafe { text(backend.name, "backend->name") }?.to_owned();
        // SAFETY: as the caller promises.
        let device = unsafe { optional_text(backend.device_text, "backend->device_text") }?.map(str::to_owned);
        // SAFETY: as the caller promises.
        let options = unsafe { declared(backend.options, backend.num_options) }?;
        let functions = Functions {
            init: backend.init.ok_or_else(|| null("backend->init"))?,
            execute: backend.execute.ok_or_else(|| null("backend->execute"))?,
            destroy: backend.destroy,
            set_option: backend.set_option,
            limits: backend.limits,
            // SAFETY: as the caller promises.
            states: unsafe { States::of(backend.states, backend.user_data) }?,
            // SAFETY: as the caller promises.
            device: unsafe { Device::of(backend.device, backend.user_data) }?,
            user_data: backend.user_data,
        };
        Ok(Self { name, options, device, functions: Arc::new(functions) })
    }
}

fn option_to_c(value: OptionValue<'_>) -> rl_value {
    match value {
        OptionValue::Bool(value) => rl_value::bool(value),
        OptionValue::Int(value) => rl_value::int(value),
        OptionValue::String(value) => rl_value::string(value),
    }
}

impl Backend for CustomBackend {
    fn id(&self) -> &str {
        &self.name
    }

    fn init<'m>(&self, context: &mut InitContext<'_, 'm>) -> runtime::Result<DelegateHandle<'m>> {
        let (mut delegate, mut outputs) = (ptr::null_mut(), 0);
        let handed = rl_init_context(context);
        let functions = self.functions.clone();
        // SAFETY: the caller's function, with arguments that live for the call.
        let status =
            unsafe { (functions.init)(&raw const handed, functions.user_data, &raw mut delegate, &raw mut outputs) };
        called(status)?;
        let mut made = CustomDelegate { functions, delegate, outputs, states: Vec::new() };
        if let Some(states) = &made.functions.states {
            // SAFETY: the backend made the delegate.
            made.states = unsafe { states.described(delegate) }.map_err(callback::failed)?;
        }
        Ok(DelegateHandle::Boxed(Box::new(made)))
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    fn limits(&self) -> Option<Limits> {
        let measure = self.functions.limits?;
        let (mut flop_rate, mut byte_rate) = (0.0, 0.0);
        // SAFETY: the caller's function, with variables of this frame.
        let is_known = unsafe { measure(self.functions.user_data, &raw mut flop_rate, &raw mut byte_rate) };
        is_known.then_some(Limits { flop_rate, byte_rate })
    }
}

impl CustomDelegate {
    fn execute_with(&self, mut handed: rl_delegate_context<'_, '_, '_>) -> runtime::Result<()> {
        // SAFETY: the caller's function, with arguments that live for the call.
        called(unsafe { (self.functions.execute)(self.delegate, &raw mut handed, self.functions.user_data) })
    }

    fn device_functions(&self) -> runtime::Result<&Arc<Device>> {
        self.functions.device.as_ref().ok_or_else(|| callback::failed(null("backend->device")))
    }
}

impl Delegate for CustomDelegate {
    fn num_outputs(&self) -> usize {
        self.outputs
    }

    fn execute_until(&mut self, context: &DelegateContext<'_>, interrupts: Interrupts<'_>) -> runtime::Result<()> {
        self.execute_with(rl_delegate_context::plain(context, interrupts))
    }

    fn call(&mut self, call: &mut Call<'_, '_>) -> runtime::Result<()> {
        self.execute_with(rl_delegate_context::of(call))
    }

    fn device(&mut self) -> Option<&mut dyn DeviceDelegate> {
        if self.functions.device.is_some() { Some(self) } else { None }
    }

    fn state(&self, index: usize) -> Option<StateInfo<'_>> {
        let (key, bytes) = self.states.get(index)?;
        Some(StateInfo { key, bytes: *bytes })
    }

    fn new_state(&mut self, index: usize) -> runtime::Result<Box<dyn State>> {
        let Some((states, (_, bytes))) = self.functions.states.as_ref().zip(self.states.get(index)) else {
            return Err(callback::failed(Status::invalid(format!("the delegate has no state {index}"))));
        };
        // SAFETY: the backend made the delegate.
        Ok(Box::new(unsafe { CustomState::new(states, self.delegate, index, *bytes) }?))
    }

    fn set_option(&mut self, name: &str, value: OptionValue<'_>) -> runtime::Result<()> {
        let name = CString::new(name).map_err(|_| callback::failed(Status::invalid("a name with a NUL")));
        let (name, value) = (name?, option_to_c(value));
        let set = self.functions.set_option.ok_or_else(|| callback::failed(null("backend->set_option")))?;
        // SAFETY: the caller's function, with a delegate that it made and arguments that live for the call.
        called(unsafe { set(self.delegate, name.as_ptr(), &raw const value, self.functions.user_data) })
    }
}

impl DeviceDelegate for CustomDelegate {
    fn memory(&self, argument: usize) -> MemoryKind {
        // SAFETY: the backend made the delegate.
        self.functions
            .device
            .as_ref()
            .map_or(MemoryKind::Host, |device| unsafe { device.memory(self.delegate, argument) })
    }

    fn allocate(&mut self, bytes: usize) -> runtime::Result<Box<dyn DeviceBuffer>> {
        let device = self.device_functions()?;
        // SAFETY: the backend made the delegate.
        Ok(Box::new(unsafe { CustomBuffer::new(device, self.delegate, bytes) }?))
    }

    fn submit(&mut self, call: &mut Call<'_, '_>) -> runtime::Result<()> {
        self.execute_with(rl_delegate_context::of(call))
    }

    fn poll(&mut self, call: &mut Call<'_, '_>) -> runtime::Result<Poll<()>> {
        let device = self.device_functions()?;
        // SAFETY: the backend made the delegate.
        unsafe { device.poll(self.delegate, rl_delegate_context::of(call)) }
    }

    fn wait(&mut self) -> runtime::Result<()> {
        let device = self.device_functions()?;
        // SAFETY: the backend made the delegate.
        unsafe { device.wait(self.delegate) }
    }

    fn cancel(&mut self) {
        if let Some(device) = &self.functions.device {
            // SAFETY: the backend made the delegate.
            unsafe { device.cancel(self.delegate) }
        }
    }
}

impl Drop for CustomDelegate {
    fn drop(&mut self) {
        if let Some(destroy) = self.functions.destroy {
            // SAFETY: the caller's function, with a delegate that it made and that is not used again.
            unsafe { destroy(self.delegate, self.functions.user_data) }
        }
    }
}

/// Returns the name of the method that is loaded; empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_init_method(context: *const rl_init_context<'_, '_, '_>) -> rl_string {
    guard_or(rl_string::of(""), || {
        // SAFETY: NULL or the context of this call.
        rl_string::of(unsafe { context.as_ref() }.map_or("", |context| context.0.method))
    })
}

/// Returns the payload, which lives as long as the delegate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_init_payload(context: *const rl_init_context<'_, '_, '_>) -> rl_bytes {
    guard_or(rl_bytes::of(None), || {
        // SAFETY: NULL or the context of this call.
        rl_bytes::of(unsafe { context.as_ref() }.map(|context| context.0.payload))
    })
}

/// Returns the value of a compile spec that the ahead-of-time half received. It lives as long as the delegate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_init_compile_spec(
    context: *const rl_init_context<'_, '_, '_>,
    key: *const c_char,
) -> rl_bytes {
    guard_or(rl_bytes::of(None), || {
        // SAFETY: NULL, or the context of this call and a string.
        let (context, key) = unsafe { (context.as_ref(), text(key, "key")) };
        let (Some(context), Ok(key)) = (context, key) else { return rl_bytes::of(None) };
        rl_bytes::of(context.0.compile_specs().find(|spec| spec.key == key).map(|spec| spec.value))
    })
}

/// Returns named data of the program or its data files. It lives as long as the delegate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_init_named_data(
    context: *const rl_init_context<'_, '_, '_>,
    key: *const c_char,
) -> rl_bytes {
    guard_or(rl_bytes::of(None), || {
        // SAFETY: NULL, or the context of this call and a string.
        let (context, key) = unsafe { (context.as_ref(), text(key, "key")) };
        let (Some(context), Ok(key)) = (context, key) else { return rl_bytes::of(None) };
        rl_bytes::of(context.0.named_data(key))
    })
}

/// Reads an option that the backend declares: the value that the program was loaded with, or the default. A string lives
/// until `rl_backend.init` returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_init_option(
    context: *const rl_init_context<'_, '_, '_>,
    name: *const c_char,
    value: *mut rl_value,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call.
        let context = unsafe { reference(context, "context") }?;
        // SAFETY: NULL or a string.
        let name = unsafe { text(name, "name") }?;
        let undeclared = || Status::invalid(format!("the backend declares no option `{name}`"));
        let option = option_to_c(context.0.option(name).ok_or_else(undeclared)?);
        // SAFETY: the caller's variable.
        unsafe { set(value, "value", option) }
    })
}
