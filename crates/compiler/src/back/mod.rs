//! The ahead-of-time halves of the backends that come with Rushlight.

pub mod cpu;
