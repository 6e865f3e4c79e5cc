//! Shared code of the fuzz targets: all stages of a program, archives that are built entry by entry, and mutators that know the
//! structure of their input.

pub mod archive;
pub mod json;
pub mod mutators;
pub mod run;

pub use run::language_model;
