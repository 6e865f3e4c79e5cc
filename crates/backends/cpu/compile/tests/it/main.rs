//! Claims and payloads of the ahead-of-time half. One binary, which links once; each file is a module.

mod bytes;
mod filetests;
