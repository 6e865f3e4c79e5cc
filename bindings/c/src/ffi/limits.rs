//! Peak rates of the devices of backends.

use std::ffi::c_char;

use rushlight::Code;

use super::module::rl_module;
use super::value::rl_string;
use super::{guard, reference, rl_status, set_sized, text};
use crate::status::Status;

/// The device of a backend, with which profiles compare the times of steps.
#[repr(C)]
pub struct rl_device_limits {
    /// `sizeof(rl_device_limits)`.
    pub struct_size: usize,
    /// The device and its settings; empty if the backend does not tell. It lives until the next call of
    /// `rl_module_limits`.
    pub device: rl_string,
    /// f32 additions and multiplications per second.
    pub flop_rate: f64,
    /// Bytes read from memory per second.
    pub byte_rate: f64,
}

/// Measures the peak rates of the device of a backend, by its name in programs. It takes about a fifth of a second for the
/// CPU.
///
/// Errors: `RL_NOT_SUPPORTED` if the backend measures nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_module_limits(
    module: *mut rl_module,
    backend: *const c_char,
    limits: *mut rl_device_limits,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL, or as their descriptions say.
        let (module, backend) = unsafe { (reference(module, "module")?, text(backend, "backend")?) };
        let mut inner = module.lock()?;
        let measured = inner.module.measure_limits(backend)?.ok_or_else(|| {
            Status::new(Code::NotSupported, format!("the backend `{backend}` cannot measure its device"))
        })?;
        let (flop_rate, byte_rate) = (measured.limits.flop_rate, measured.limits.byte_rate);
        inner.device = measured.device;
        let device = rl_string::of(&inner.device);
        let described = |struct_size| rl_device_limits { struct_size, device, flop_rate, byte_rate };
        // SAFETY: NULL or a variable of the size that its first field says.
        unsafe { set_sized(limits, "limits", described) }
    })
}
