//! Work whose recursion is as deep as somebody else's input is nested.

use std::thread;

/// The system gives those bytes alone that are used.
const STACK: usize = 256 << 20;

/// Runs a function on a thread with a large stack.
///
/// # Errors
/// A message if no thread can be started or the function panics.
pub(crate) fn run<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, String> {
    if cfg!(target_family = "wasm") {
        // There is one thread, and beyond its stack it is stopped by the machine.
        return Ok(f());
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, f);
        let thread = thread.map_err(|error| format!("there is no thread for it: {error}"))?;
        thread.join().map_err(|_| "it cannot be computed".to_owned())
    })
}
