//! Run-time halves of backends.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use rushlight::Scalar;
use rushlight::runtime::{self, Backend, Delegate, DelegateContext, DelegateHandle, InitContext, Interrupts};

use super::kernel::{Scratch, new_sizes, read, written};
use super::status::take;
use super::value::{rl_string, rl_tensor, rl_value};
use super::{Growing, Result, guard, guard_or, null, rl_status, set, text};
use crate::callback;

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

/// The arguments of one call of a delegate. They live until `rl_backend.execute` returns, and belong to its thread.
pub struct rl_delegate_context<'a, 'm> {
    context: &'a DelegateContext<'m>,
    interrupts: Interrupts<'a>,
    lent: Scratch,
}

type Init = unsafe extern "C" fn(
    context: *const rl_init_context<'_, '_, '_>,
    user_data: *mut c_void,
    delegate: *mut *mut c_void,
    num_outputs: *mut usize,
) -> *mut rl_status;
type Execute = unsafe extern "C" fn(
    delegate: *mut c_void,
    context: *mut rl_delegate_context<'_, '_>,
    user_data: *mut c_void,
) -> *mut rl_status;
type Destroy = unsafe extern "C" fn(delegate: *mut c_void, user_data: *mut c_void);

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

/// Reads the inputs of a call and writes its outputs.
pub type rl_execute_fn = Option<
    unsafe extern "C" fn(
        delegate: *mut c_void,
        context: *mut rl_delegate_context<'_, '_>,
        user_data: *mut c_void,
    ) -> *mut rl_status,
>;

/// Frees a delegate, on any thread.
pub type rl_destroy_fn = Option<unsafe extern "C" fn(delegate: *mut c_void, user_data: *mut c_void)>;

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
    /// Passed to the functions. The rules for an operator's `user_data` hold.
    pub user_data: *mut c_void,
}

// SAFETY: integers, pointers, and functions that may be NULL.
unsafe impl Growing for rl_backend {}

/// A backend that is written in C.
pub struct CustomBackend {
    name: String,
    functions: Arc<Functions>,
}

struct Functions {
    init: Init,
    execute: Execute,
    destroy: Option<Destroy>,
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
}

// SAFETY: the header says that another thread may use a delegate at each call.
unsafe impl Send for CustomDelegate {}

impl CustomBackend {
    /// # Safety
    /// The name is NULL or a string.
    pub unsafe fn of(backend: &rl_backend) -> Result<Self> {
        // SAFETY: as the caller promises.
        let name = unsafe { text(backend.name, "backend->name") }?.to_owned();
        let functions = Functions {
            init: backend.init.ok_or_else(|| null("backend->init"))?,
            execute: backend.execute.ok_or_else(|| null("backend->execute"))?,
            destroy: backend.destroy,
            user_data: backend.user_data,
        };
        Ok(Self { name, functions: Arc::new(functions) })
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
        // SAFETY: NULL, or a status that the function gave away.
        unsafe { take(status) }.map_err(callback::failed)?;
        Ok(DelegateHandle::Boxed(Box::new(CustomDelegate { functions, delegate, outputs })))
    }
}

impl Delegate for CustomDelegate {
    fn num_outputs(&self) -> usize {
        self.outputs
    }

    fn execute_until(&mut self, context: &DelegateContext<'_>, interrupts: Interrupts<'_>) -> runtime::Result<()> {
        let mut handed = rl_delegate_context { context, interrupts, lent: Scratch::default() };
        // SAFETY: the caller's function, with arguments that live for the call.
        let status = unsafe { (self.functions.execute)(self.delegate, &raw mut handed, self.functions.user_data) };
        // SAFETY: NULL, or a status that the function gave away.
        unsafe { take(status) }.map_err(callback::failed)
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

/// Returns the number of inputs; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_num_inputs(context: *const rl_delegate_context<'_, '_>) -> usize {
    guard_or(0, || {
        // SAFETY: NULL or the context of this call.
        unsafe { context.as_ref() }.map_or(0, |context| context.context.num_inputs())
    })
}

/// Reads an input: a tensor or a number. Memory that the value points at lives until the delegate returns, and must not
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_input(
    context: *mut rl_delegate_context<'_, '_>,
    index: usize,
    value: *mut rl_value,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call, which no other function uses now.
        let context = unsafe { context.as_mut() }.ok_or_else(|| null("context"))?;
        let input = match context.context.input_scalar(index) {
            Ok(Scalar::Int(value)) => rl_value::int(value),
            Ok(Scalar::Double(value)) => rl_value::double(value),
            Ok(Scalar::Bool(value)) => rl_value::bool(value),
            Err(_) => read(&context.context.input(index)?, &mut context.lent),
        };
        // SAFETY: the caller's variable.
        unsafe { set(value, "value", input) }
    })
}

/// Sets the sizes of an output and returns its memory for writing, once in a call, as `rl_kernel_output` does. Outputs
/// are counted from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_output(
    context: *mut rl_delegate_context<'_, '_>,
    index: usize,
    sizes: *const i64,
    rank: usize,
    tensor: *mut rl_tensor,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call, which no other function uses now.
        let context = unsafe { context.as_mut() }.ok_or_else(|| null("context"))?;
        // SAFETY: as the caller promises.
        let sizes = unsafe { new_sizes(sizes, rank) }?;
        let written = written(context.context.output(index)?, sizes, &mut context.lent)?;
        // SAFETY: the caller's variable.
        unsafe { set(tensor, "tensor", written) }
    })
}

/// Checks, between steps of a long call, whether the call must end: its interrupt is set, or its time limit is reached.
/// If so, the delegate returns the status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_delegate_check(context: *const rl_delegate_context<'_, '_>) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or the context of this call.
        let context = unsafe { context.as_ref() }.ok_or_else(|| null("context"))?;
        Ok(context.interrupts.check(0, 1)?)
    })
}
