//! Both halves of a back end, through the public interface.

mod device;
mod partition;
