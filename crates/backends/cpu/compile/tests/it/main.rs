//! What the ahead-of-time half makes of graphs. One binary, which links once; each file is a module.

mod filetests;
