//! The facade on files: loading, lowering, caching, quantizing and limits. One binary, which links once; each
//! file is a module.

mod bad_files;
mod cache;
mod cache_hostile;
mod external_weights;
mod lowering;
mod methods;
mod names;
mod outputs;
mod quantize;
mod same_numbers;
mod shared_state;
mod time_limit;
mod tokenizer;
