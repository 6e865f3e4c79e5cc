//! Both halves of a backend, through the public interface.

mod device;
mod operators;
mod partition;
mod quantization;
