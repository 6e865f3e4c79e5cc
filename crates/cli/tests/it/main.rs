//! Tests of the `rushlight` command, which is started as users start it. Each file is a module of one test binary, because
//! linking several takes longer.

mod advice;
mod bindings;
mod cache;
mod command;
mod errors;
mod generated;
mod hwbench;
mod limits;
mod llm;
mod llm_advice;
mod llm_saved;
mod llm_serve;
mod llm_serve_guards;
mod llm_tokenizer;
mod names;
mod new;
mod op_paths;
mod outputs;
mod quantize;
mod stdout;
