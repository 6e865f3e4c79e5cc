//! Panics that bindings to other languages stop.

use std::any::Any;

use crate::{Code, Error};

/// The message of a panic that [`catch_unwind`](std::panic::catch_unwind) stopped.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked")
}

/// The error for a panic that [`catch_unwind`](std::panic::catch_unwind) stopped. It has the code `Internal`.
pub fn panic_error(panic: &(dyn Any + Send)) -> Error {
    Error::new(Code::Internal, format!("a defect of the library: {}", panic_message(panic)))
        .help("report it, with the program and the line of the library that standard error has".to_owned())
}
