//! Tools around a module that the command line and the tests share: array files, profiles, generated inputs,
//! a program's description as JSON, drawings of its memory and its graph.
#![forbid(unsafe_code)]

pub mod breakdown;
pub mod compare;
pub mod describe;
pub mod graph;
pub mod images;
pub mod inputs;
mod markup;
pub mod memory;
pub mod npy;
pub mod numbers;
pub mod profile;
pub mod quantization;
pub mod samples;
pub mod steps;
pub mod trace;
pub mod units;
