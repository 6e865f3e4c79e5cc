//! Sessions: independent states over a module's weights.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};
use std::task::Poll;

use rushlight::Session;

use super::module::rl_module;
use super::state::rl_write_fn;
use super::{Result, elements, free, guard, hand_out, locked, null, reference, rl_status};
use crate::callback;

/// State of one user of a module, such as a KV cache. Code and weights stay in the module. Threads: as a module.
pub struct rl_session(Mutex<Session>);

impl rl_session {
    /// The session, for this call alone.
    pub fn lock(&self) -> Result<MutexGuard<'_, Session>> {
        locked(&self.0, "session")
    }
}

/// Makes a session over a module's weights. Loads all methods.
///
/// Errors: `RL_NOT_SUPPORTED` for a program that keeps its state in its own memory rather than in a backend's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_new(module: *mut rl_module, session: *mut *mut rl_session) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live module.
        let module = unsafe { reference(module, "module") }?;
        let make = || {
            callback::forget();
            let made = module.lock()?.module.session().map_err(callback::explained)?;
            Ok(rl_session(Mutex::new(made)))
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(session, "session", make) }
    })
}

/// Resets all states to their initial values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_clear(session: *mut rl_session) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live session.
        let session = unsafe { reference(session, "session") }?;
        callback::forget();
        session.lock()?.clear().map_err(callback::explained)
    })
}

/// Forgets everything from position `length` on, if the backends support it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_rewind(session: *mut rl_session, length: usize) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live session.
        let session = unsafe { reference(session, "session") }?;
        callback::forget();
        session.lock()?.rewind(length).map_err(callback::explained)
    })
}

/// Makes a session that begins with the same state and continues independently.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_fork(session: *mut rl_session, fork: *mut *mut rl_session) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live session.
        let session = unsafe { reference(session, "session") }?;
        let make = || {
            callback::forget();
            Ok(rl_session(Mutex::new(session.lock()?.fork().map_err(callback::explained)?)))
        };
        // SAFETY: NULL or the caller's variable.
        unsafe { hand_out(fork, "fork", make) }
    })
}

/// Passes all states to `write`, in bytes that `rl_session_restore` reads. Backends may not support it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_save(
    session: *mut rl_session,
    write: rl_write_fn,
    write_data: *mut c_void,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live session.
        let session = unsafe { reference(session, "session") }?;
        let write = write.ok_or_else(|| null("write"))?;
        let mut session = session.lock()?;
        callback::forget();
        let bytes = loop {
            // Pending while a device copies a state to the host.
            match session.save().map_err(callback::explained)? {
                Poll::Ready(bytes) => break bytes,
                Poll::Pending => std::thread::yield_now(),
            }
        };
        // SAFETY: the caller's function, with bytes that live for the call.
        unsafe { write(bytes.as_ptr().cast(), bytes.len(), write_data) };
        Ok(())
    })
}

/// Sets all states to saved ones, of a session of the same program. The bytes are untrusted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_restore(
    session: *mut rl_session,
    data: *const c_void,
    size: usize,
) -> *mut rl_status {
    guard(|| {
        // SAFETY: NULL or a live session.
        let session = unsafe { reference(session, "session") }?;
        // SAFETY: NULL, or bytes of the caller's.
        let bytes = unsafe { elements(data.cast::<u8>(), size, "data") }?;
        callback::forget();
        session.lock()?.restore(bytes).map_err(callback::explained)
    })
}

/// Frees a session, before or after its module. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_free(session: *mut rl_session) {
    // SAFETY: NULL or a session that the caller does not use again.
    unsafe { free(session) }
}
