//! Integration tests of the int8 kernels.

mod golden;
mod limits;
