//! Both halves of a backend, through the public interface.

mod device;
mod partition;
