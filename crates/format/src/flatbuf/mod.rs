//! Flatbuffers, read and written without generated code.
//!
//! A schema is a handful of [`Field`] constants. Every read is bounds-checked, and a table carries
//! its vtable and body as slices, so that a field costs two comparisons.

#[cfg(feature = "alloc")]
#[expect(clippy::indexing_slicing, reason = "the builder indexes what it has just laid out")]
mod builder;
mod reader;
mod vector;

#[cfg(feature = "alloc")]
pub(crate) use builder::{Builder, Offset};
pub(crate) use reader::{Context, Table, TableList};
pub use vector::{Element, Vector, VectorIter};

#[cfg(all(test, feature = "alloc"))]
mod tests;
