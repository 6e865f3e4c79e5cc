//! Panics that bindings to other languages stop.

use std::any::Any;

/// The message of a panic that [`catch_unwind`](std::panic::catch_unwind) stopped.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked")
}
