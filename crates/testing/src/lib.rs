//! Development only. The operator cases with PyTorch's results, the tolerances that they are held to, and the runner
//! that takes each of them through a real one-operator program: written, parsed, loaded, executed.

pub mod cases;
pub mod compare;
pub mod composites;
mod elements;
pub mod mutations;
pub mod page;
pub mod program;
pub mod reconstruct;
pub mod recorded;
pub mod runner;
pub mod skips;
pub mod tolerance;
pub mod views;
pub mod zeros;
