//! The `rushlight` command, started as users start it. One binary, which links once; each file is a module.

mod bindings;
mod cache;
mod command;
mod errors;
mod generated;
mod hwbench;
mod limits;
mod llm;
mod llm_serve;
mod llm_serve_guards;
mod llm_tokenizer;
mod names;
mod op_paths;
mod outputs;
mod quantize;
mod stdout;
