//! Shared code of the fuzz targets: how a program is taken through all stages, archives that are built entry by entry, and
//! mutators that know the structure of what they change.

pub mod archive;
pub mod json;
pub mod mutators;
pub mod run;

pub use run::language_model;
