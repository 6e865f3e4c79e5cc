//! Readers of programs: each turns one file format into the graph.

pub mod pt2;
pub mod pte;
