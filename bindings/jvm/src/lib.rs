//! The native half of the Java and Kotlin bindings: convert, call, map errors. Everything else belongs to the crate
//! `rushlight`. `java/` is the interface for programs, and the only caller of the exports here. `bindings/README.md` has the decisions.
//!
//! `ffi` has the functions that Java declares, and all of the unsafe code; the other files are safe. A panic becomes an
//! `ExecutorchRuntimeException` with the code `INTERNAL`.

#[cfg(target_os = "android")]
extern crate unwinding as _;

mod error;
mod ffi;
mod frame;
mod interrupt;
mod meta;
