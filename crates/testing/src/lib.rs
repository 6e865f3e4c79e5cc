//! Development only. The operator cases with PyTorch's results, the tolerances that they are held to, and the runner
//! that takes each of them through a real one-operator program.

pub mod cases;
