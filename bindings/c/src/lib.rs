//! The C ABI of Rushlight, on which other languages stand.
//!
//! Each function of `include/rushlight.h`, which cbindgen makes of the comments in `ffi`, converts its arguments, calls the facade and
//! maps errors. `ffi` has the types and functions that C sees, and all of the unsafe code; the other files are safe.
//!
//! A panic becomes a status with the code `RL_INTERNAL`.

mod callback;
mod ffi;
mod status;
mod tracer;
