//! A program of ExecuTorch's on the runtime alone, and delegates on a simulated device. One binary, which links once; each file is a module.

#[cfg(feature = "alloc")]
mod delegates;
mod run;
