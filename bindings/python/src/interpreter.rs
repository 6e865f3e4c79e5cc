//! Threads that are in Rust or called from there when the interpreter ends.
//!
//! When the main thread ends, daemon threads continue for a moment. The interpreter stops them when they next attach or, in the
//! middle of Python code, when they next take their turn. Until Python 3.13 it does so by unwinding the thread's stack, which
//! must not go through Rust. Such threads stay where they are instead: the process is about to end.

use std::thread;

use pyo3::prelude::*;

/// Runs `act` attached to the interpreter, or never, if that has ended.
pub fn attached<R>(act: impl FnOnce(Python<'_>) -> R) -> R {
    Python::try_attach(act).unwrap_or_else(|| stay())
}

/// Runs a closure that calls Python code, which may end the thread.
pub fn in_python<R, F: FnOnce() -> R>(act: F) -> R {
    let barrier = Barrier;
    // Through a pointer that the compiler does not see through: functions of C are declared not to unwind, and a call that
    // is known to end in one drops nothing when it does.
    let call: fn(F) -> R = |act| act();
    let result = std::hint::black_box(call)(act);
    std::mem::forget(barrier);
    result
}

/// Dropped only when the stack is unwound.
struct Barrier;

impl Drop for Barrier {
    fn drop(&mut self) {
        // Panics are caught further up.
        if !thread::panicking() {
            stay();
        }
    }
}

fn stay() -> ! {
    loop {
        thread::park();
    }
}
