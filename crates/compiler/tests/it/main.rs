//! Passes and whole compilations: programs that are emitted, planned and printed. One binary, which links once; each file is a module.
//!
//! `bounds` and `hostile` are binaries of their own: their allocators set a limit for the whole process.

mod composites;
mod emit;
mod filetests;
mod importers;
mod memory_plans;
mod text;
