//! Status objects.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use rushlight::runtime;

use super::{free, guard, guard_or};
use crate::callback;
use crate::status::Status;

/// Codes of errors. The numbers are ExecuTorch's for the same conditions.
#[repr(u32)]
#[allow(dead_code, reason = "for C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rl_code {
    /// Success: the code of a status that is NULL.
    RL_OK = 0x00,
    /// A defect of the library.
    RL_INTERNAL = 0x01,
    /// The object cannot be used now: another call uses it, or the call was interrupted.
    RL_INVALID_STATE = 0x02,
    /// The library, or this build of it, does not support this.
    RL_NOT_SUPPORTED = 0x10,
    RL_NOT_IMPLEMENTED = 0x11,
    /// An argument is wrong: NULL, of a wrong size or shape, or outside the range that the program was exported for.
    RL_INVALID_ARGUMENT = 0x12,
    /// A value has a wrong kind, or a tensor a wrong element type.
    RL_INVALID_TYPE = 0x13,
    /// The program needs operators that are neither built in nor registered; see `rl_status_missing_operator`.
    RL_OPERATOR_MISSING = 0x14,
    /// There is no file, method, backend or option of that name.
    RL_NOT_FOUND = 0x20,
    /// There is not enough memory, or the memory limit is reached.
    RL_MEMORY_ALLOCATION_FAILED = 0x21,
    /// A file cannot be read or written; see `rl_status_os_error`.
    RL_ACCESS_FAILED = 0x22,
    /// The file is damaged, or of another kind.
    RL_INVALID_PROGRAM = 0x23,
    /// A data file (.ptd) is damaged, or does not fit the program.
    RL_INVALID_EXTERNAL_DATA = 0x24,
    /// A limit is reached: the time limit, or a language model's context.
    RL_OUT_OF_RESOURCES = 0x25,
    /// This version of a backend cannot run the payload.
    RL_DELEGATE_INVALID_COMPATIBILITY = 0x30,
    RL_DELEGATE_MEMORY_ALLOCATION_FAILED = 0x31,
    RL_DELEGATE_INVALID_HANDLE = 0x32,
}

/// The error of a call: what failed and where, what was expected, what was given, and what to do.
///
/// Functions that can fail return a status, which is NULL on success. The caller frees it with `rl_status_free`.
/// Threads: a status never changes, so any number of threads may read it.
pub struct rl_status(Status);

impl From<Status> for rl_status {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

impl rl_status {
    pub fn into_raw(self) -> *mut Self {
        Box::into_raw(Box::new(self))
    }
}

/// Takes the status that a callback returned.
///
/// # Safety
/// `status` is NULL or a status that is not used again.
pub unsafe fn take(status: *mut rl_status) -> Result<(), Status> {
    if status.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller promises; all are made by `into_raw`.
    Err(unsafe { Box::from_raw(status) }.0)
}

/// Keeps the status of a function for the caller of the module.
pub fn called(status: *mut rl_status) -> runtime::Result<()> {
    // SAFETY: NULL, or a status that the function gave away.
    unsafe { take(status) }.map_err(callback::failed)
}

fn field(status: Option<&rl_status>, field: impl FnOnce(&Status) -> Option<&CString>) -> *const c_char {
    status.and_then(|status| field(&status.0)).map_or(ptr::null(), |text| text.as_ptr())
}

/// Returns the code of a status, an `rl_code`; `RL_OK` for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_code(status: *const rl_status) -> u32 {
    guard_or(rl_code::RL_INTERNAL as u32, || {
        // SAFETY: NULL or a live status.
        unsafe { status.as_ref() }.map_or(rl_code::RL_OK as u32, |status| status.0.code)
    })
}

/// Returns one line that says what failed. Like the other texts of a status, it is UTF-8, lives as long as the status,
/// and is NULL if the status is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_message(status: *const rl_status) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live status.
        field(unsafe { status.as_ref() }, |status| Some(&status.message))
    })
}

/// Returns the place of the failure, such as an input, or an instruction with its line of Python; NULL if it is not
/// known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_site(status: *const rl_status) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live status.
        field(unsafe { status.as_ref() }, |status| status.site.as_ref())
    })
}

/// Returns what was expected, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_expected(status: *const rl_status) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live status.
        field(unsafe { status.as_ref() }, |status| status.expected.as_ref())
    })
}

/// Returns what was given instead, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_got(status: *const rl_status) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live status.
        field(unsafe { status.as_ref() }, |status| status.got.as_ref())
    })
}

/// Returns what to do about it, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_hint(status: *const rl_status) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live status.
        field(unsafe { status.as_ref() }, |status| status.hint.as_ref())
    })
}

/// Returns the whole error in several lines, for people.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_text(status: *const rl_status) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live status.
        field(unsafe { status.as_ref() }, |status| Some(&status.text))
    })
}

/// Returns the full name of a missing operator, such as `my::nms.out`; NULL after the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_missing_operator(status: *const rl_status, index: usize) -> *const c_char {
    guard_or(ptr::null(), || {
        // SAFETY: NULL or a live status.
        field(unsafe { status.as_ref() }, |status| status.missing_operators.get(index))
    })
}

/// Returns the system's error number (`errno` on Unix) if a file could not be accessed; 0 for other errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_os_error(status: *const rl_status) -> i32 {
    guard_or(0, || {
        // SAFETY: NULL or a live status.
        unsafe { status.as_ref() }.map_or(0, |status| status.0.os_error)
    })
}

/// Makes a status for a callback to return. Copies the message. `code` is an `rl_code`; `RL_OK` counts as
/// `RL_INTERNAL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_new(code: u32, message: *const c_char) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a string.
        let message = if message.is_null() { c"" } else { unsafe { CStr::from_ptr(message) } };
        let code = if code == rl_code::RL_OK as u32 { rl_code::RL_INTERNAL as u32 } else { code };
        Err(Status::of_callback(code, message))
    })
}

/// Frees a status. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_status_free(status: *mut rl_status) {
    // SAFETY: NULL or a status that the caller does not use again.
    unsafe { free(status) }
}

/// Returns the version of the library, such as `0.1.0`. It may be newer than the header's.
#[unsafe(no_mangle)]
pub extern "C" fn rl_version() -> *const c_char {
    guard_or(ptr::null(), || {
        const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
        VERSION.as_ptr().cast()
    })
}
