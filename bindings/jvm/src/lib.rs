//! The native half of the Java and Kotlin bindings: convert, call, map errors. What a model is and how it runs is the business of the
//! `rushlight` crate; `java/` has what programs import, and is the only caller of what is exported here.
//!
//! `ffi` has the functions that Java declares, and all of the unsafe code; the other files are safe. A panic becomes an
//! `ExecutorchRuntimeException` with the code `INTERNAL`.

#[cfg(target_os = "android")]
extern crate unwinding as _;

#[cfg(feature = "llm")]
mod answer;
mod error;
mod ffi;
mod frame;
mod interrupt;
mod meta;
