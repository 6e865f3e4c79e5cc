//! States of delegates that are written in C.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::task::Poll;

use rushlight::Code;
use rushlight::runtime::{self, Detail, HeapBlock, StableBytes, State};

use super::status::called;
use super::{Growing, Result, elements, guard_or, null, optional_text, options, rl_status};
use crate::status::Status;

/// A state of a delegate, which outlives a call and belongs to one session.
#[repr(C)]
pub struct rl_state_info {
    /// Delegates of one backend with the same key, in any method of a program, share the state. It lives until the
    /// function returns.
    pub key: *const c_char,
    /// Maximum bytes of the state, for memory limits. Delegates of one backend with the same key declare the same.
    pub bytes: usize,
}

/// Describes state `index` of a delegate when the method is loaded. Returns false after the last.
pub type rl_state_describe_fn = Option<
    unsafe extern "C" fn(delegate: *mut c_void, index: usize, user_data: *mut c_void, info: *mut rl_state_info) -> bool,
>;

/// Makes state `index` for one session, with its first content.
pub type rl_state_create_fn = Option<
    unsafe extern "C" fn(
        delegate: *mut c_void,
        index: usize,
        user_data: *mut c_void,
        state: *mut *mut c_void,
    ) -> *mut rl_status,
>;

/// Frees a state, on any thread. It may be called after `rl_backend.destroy` has freed the delegate that made the state.
pub type rl_state_destroy_fn = Option<unsafe extern "C" fn(state: *mut c_void, user_data: *mut c_void)>;

/// Resets a state to its first content.
pub type rl_state_clear_fn = Option<unsafe extern "C" fn(state: *mut c_void, user_data: *mut c_void) -> *mut rl_status>;

/// Forgets everything from position `length` on, in a state that grows by positions, such as a KV cache.
pub type rl_state_rewind_fn =
    Option<unsafe extern "C" fn(state: *mut c_void, length: usize, user_data: *mut c_void) -> *mut rl_status>;

/// Makes a copy of a state that changes independently.
pub type rl_state_fork_fn =
    Option<unsafe extern "C" fn(state: *mut c_void, user_data: *mut c_void, copy: *mut *mut c_void) -> *mut rl_status>;

/// Receives bytes, which live until it returns.
pub type rl_write_fn = Option<unsafe extern "C" fn(data: *const c_void, size: usize, write_data: *mut c_void)>;

/// Writes a state by any number of calls of `write`, to which `write_data` is passed.
pub type rl_state_save_fn = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        write: rl_write_fn,
        write_data: *mut c_void,
        user_data: *mut c_void,
    ) -> *mut rl_status,
>;

/// Sets a state to a saved one. The bytes are untrusted. After an error, the state is as before.
pub type rl_state_restore_fn = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        data: *const c_void,
        size: usize,
        user_data: *mut c_void,
    ) -> *mut rl_status,
>;

/// The functions of a backend's states. If `create` is NULL, the library allocates `rl_state_info.bytes` bytes for each
/// state, aligned to 64 and set to zero. It also clears, copies, saves and restores them; it does not support `rewind`. If
/// `create` is set, it makes the states. An operation whose function is NULL is then not supported. `destroy` may be NULL
/// if there is nothing to free.
#[repr(C)]
pub struct rl_state_functions {
    /// `sizeof(rl_state_functions)`.
    pub struct_size: usize,
    pub describe: rl_state_describe_fn,
    pub create: rl_state_create_fn,
    pub destroy: rl_state_destroy_fn,
    pub clear: rl_state_clear_fn,
    pub rewind: rl_state_rewind_fn,
    pub fork: rl_state_fork_fn,
    pub save: rl_state_save_fn,
    pub restore: rl_state_restore_fn,
}

// SAFETY: an integer, and functions that may be NULL.
unsafe impl Growing for rl_state_functions {}

/// Maximum number of states of one delegate, which ends a `describe` that never returns false.
const MAX_STATES: usize = 4096;

/// The functions of a backend's states.
pub struct States {
    functions: rl_state_functions,
    user_data: *mut c_void,
}

// SAFETY: the header says that any thread that loads or runs a module may use the functions and their data.
unsafe impl Send for States {}
// SAFETY: as above.
unsafe impl Sync for States {}

impl States {
    /// Reads the functions; `None` for NULL.
    ///
    /// # Safety
    /// The functions are NULL or as their description says.
    pub unsafe fn of(functions: *const rl_state_functions, user_data: *mut c_void) -> Result<Option<Arc<Self>>> {
        if functions.is_null() {
            return Ok(None);
        }
        // SAFETY: a structure that says its size.
        let functions: rl_state_functions = unsafe { options(functions, "backend->states") }?;
        if functions.describe.is_none() {
            return Err(null("backend->states->describe"));
        }
        Ok(Some(Arc::new(Self { functions, user_data })))
    }

    /// Returns the keys of a delegate's states, with their maximum bytes.
    ///
    /// # Safety
    /// The delegate is one that the backend made.
    pub unsafe fn described(&self, delegate: *mut c_void) -> Result<Vec<(String, usize)>> {
        let mut states = Vec::new();
        let Some(describe) = self.functions.describe else { return Ok(states) };
        loop {
            let mut info = rl_state_info { key: ptr::null(), bytes: 0 };
            // SAFETY: the caller's function, with variables of this frame.
            if !unsafe { describe(delegate, states.len(), self.user_data, &raw mut info) } {
                return Ok(states);
            }
            // SAFETY: NULL or a string, as the function's description says.
            let key = unsafe { optional_text(info.key, "info->key") }?.ok_or_else(|| null("info->key"))?;
            states.push((key.to_owned(), info.bytes));
            if states.len() > MAX_STATES {
                return Err(Status::invalid(format!("a delegate has more than {MAX_STATES} states")));
            }
        }
    }
}

/// The state of one session.
pub struct CustomState {
    states: Arc<States>,
    content: Content,
}

enum Content {
    Bytes(HeapBlock),
    /// The address that `create` gave.
    Object(*mut c_void),
}

// SAFETY: the header says that any thread may use the functions and what they made.
unsafe impl Send for CustomState {}

impl CustomState {
    /// Makes state `index` of a delegate, of at most `bytes` bytes.
    ///
    /// # Safety
    /// The delegate is one that the backend made.
    pub unsafe fn new(
        states: &Arc<States>,
        delegate: *mut c_void,
        index: usize,
        bytes: usize,
    ) -> runtime::Result<Self> {
        let content = match states.functions.create {
            None => Content::Bytes(HeapBlock::new(bytes)?),
            Some(create) => {
                let mut state = ptr::null_mut();
                // SAFETY: the caller's function, with a variable of this frame.
                called(unsafe { create(delegate, index, states.user_data, &raw mut state) })?;
                Content::Object(state)
            }
        };
        Ok(Self { states: states.clone(), content })
    }

    /// The address for `rl_delegate_state`.
    pub fn address(&mut self) -> *mut c_void {
        match &mut self.content {
            Content::Bytes(block) => block.bytes_mut().as_mut_ptr().cast(),
            Content::Object(state) => *state,
        }
    }
}

fn unsupported() -> runtime::Error {
    runtime::Error::new(Code::NotImplemented, Detail::Text("the backend cannot do this with its state"))
}

impl State for CustomState {
    fn clear(&mut self) -> runtime::Result<()> {
        match &mut self.content {
            Content::Bytes(block) => {
                block.bytes_mut().fill(0);
                Ok(())
            }
            Content::Object(state) => {
                let state = *state;
                let clear = self.states.functions.clear.ok_or_else(unsupported)?;
                // SAFETY: the caller's function, with a state that it made.
                called(unsafe { clear(state, self.states.user_data) })
            }
        }
    }

    fn rewind(&mut self, len: usize) -> runtime::Result<()> {
        let Content::Object(state) = self.content else { return Err(unsupported()) };
        let rewind = self.states.functions.rewind.ok_or_else(unsupported)?;
        // SAFETY: the caller's function, with a state that it made.
        called(unsafe { rewind(state, len, self.states.user_data) })
    }

    fn fork(&self) -> runtime::Result<Box<dyn State>> {
        let content = match &self.content {
            Content::Bytes(block) => {
                let mut copy = HeapBlock::new(block.bytes().len())?;
                copy.bytes_mut().copy_from_slice(block.bytes());
                Content::Bytes(copy)
            }
            Content::Object(state) => {
                let fork = self.states.functions.fork.ok_or_else(unsupported)?;
                let mut copy = ptr::null_mut();
                // SAFETY: the caller's function, with a state that it made and a variable of this frame.
                called(unsafe { fork(*state, self.states.user_data, &raw mut copy) })?;
                Content::Object(copy)
            }
        };
        Ok(Box::new(Self { states: self.states.clone(), content }))
    }

    fn save(&mut self, to: &mut Vec<u8>) -> runtime::Result<Poll<()>> {
        match &self.content {
            Content::Bytes(block) => to.extend(block.bytes()),
            Content::Object(state) => {
                let save = self.states.functions.save.ok_or_else(unsupported)?;
                let mut saved: Vec<u8> = Vec::new();
                let to_saved = (&raw mut saved).cast();
                // SAFETY: the caller's function, with a state that it made. `append` gets the vector of this frame.
                called(unsafe { save(*state, Some(append), to_saved, self.states.user_data) })?;
                to.append(&mut saved);
            }
        }
        Ok(Poll::Ready(()))
    }

    fn restore(&mut self, from: &[u8]) -> runtime::Result<()> {
        match &mut self.content {
            Content::Bytes(block) => {
                let to = block.bytes_mut();
                if to.len() != from.len() {
                    let text = "a saved state of another size";
                    return Err(runtime::Error::new(Code::InvalidExternalData, Detail::Text(text)));
                }
                to.copy_from_slice(from);
                Ok(())
            }
            Content::Object(state) => {
                let state = *state;
                let restore = self.states.functions.restore.ok_or_else(unsupported)?;
                // SAFETY: the caller's function, with a state that it made and bytes that live for the call.
                called(unsafe { restore(state, from.as_ptr().cast(), from.len(), self.states.user_data) })
            }
        }
    }
}

/// Appends bytes to the vector that `write_data` points at.
unsafe extern "C" fn append(data: *const c_void, size: usize, write_data: *mut c_void) {
    guard_or((), || {
        // SAFETY: the vector of the `save` that is running, or NULL.
        let to = unsafe { write_data.cast::<Vec<u8>>().as_mut() };
        // SAFETY: NULL, or bytes that live for the call.
        if let (Some(to), Ok(data)) = (to, unsafe { elements(data.cast::<u8>(), size, "data") }) {
            to.extend(data);
        }
    });
}

impl Drop for CustomState {
    fn drop(&mut self) {
        if let (Content::Object(state), Some(destroy)) = (&self.content, self.states.functions.destroy) {
            // SAFETY: the caller's function, with a state that it made and that is not used again.
            unsafe { destroy(*state, self.states.user_data) }
        }
    }
}
