//! Level 5. Tools around a module that the command line and the tests share: NumPy's array files.
#![forbid(unsafe_code)]

pub mod npy;
