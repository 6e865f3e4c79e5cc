//! Errors of callbacks.

use std::cell::RefCell;

use rushlight::runtime::{self, Code, Detail};

use crate::status::Status;

thread_local! {
    /// The error that the last callback on this thread returned, until the call that it failed reports it.
    static FAILED: RefCell<Option<Status>> = const { RefCell::new(None) };
}

/// Forgets what a callback returned before: an error that nobody reported, such as one while a program was lowered, is not the cause
/// of a later one.
pub fn forget() {
    drop(FAILED.take());
}

/// Keeps the error of a callback for whoever called the module.
pub fn failed(status: Status) -> runtime::Error {
    drop(FAILED.replace(Some(status)));
    runtime::Error::new(Code::Internal, Detail::Text("the function behind it failed"))
}

/// The error of a call. Its cause is the error that a callback returned on this thread.
pub fn explained(error: rushlight::Error) -> Status {
    let status = Status::from(error);
    match FAILED.take() {
        Some(cause) => status.caused_by(cause),
        None => status,
    }
}
