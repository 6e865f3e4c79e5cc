//! The suites: every operator case and every recorded program, by every way in which it can run. One binary, which links
//! once; each file is a module.
//!
//! `allocation`, `endurance`, `memory_limit`, `hostile` and `hostile_lift` are binaries of their own: their allocators count
//! or limit what the whole process allocates.

mod archives;
mod claims;
mod compile;
mod composites;
mod corpus;
mod cortex_m;
mod cortex_m_compile;
mod decoders;
mod delegated;
mod firmware;
mod hostile_cpu;
mod inference;
mod large;
mod lift;
mod llama;
mod lowered;
mod models;
mod operator_programs;
mod operators;
mod precision;
mod shapes;
mod states;
mod without_elements;
mod xnnpack;
mod zoo;
