//! Files that ExecuTorch wrote, and files that are wrong. One binary, which links once; each file is a module.

mod corpus;
mod hostile;
mod mutations;
