//! A large stack for functions that recurse as deep as untrusted input is nested.

use std::thread;

/// Size of the stack in bytes. The system allocates its pages when they are first used.
const STACK: usize = 256 << 20;

/// Runs a function on a thread with a large stack.
///
/// # Errors
/// A message if no thread can be started or the function panics.
pub(crate) fn run<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, String> {
    if cfg!(target_family = "wasm") {
        // WebAssembly has one thread. A stack overflow traps.
        return Ok(f());
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, f);
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        thread.join().map_err(|_| "the computation panicked".to_owned())
    })
}
