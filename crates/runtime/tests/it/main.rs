//! A program of ExecuTorch's on the runtime alone. One binary, which links once; each file is a module.

mod run;
