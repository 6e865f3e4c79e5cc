//! Importers: readers of the payloads that other runtimes' delegates have in `.pte` programs, a folder per delegate.
//!
//! `format/payload` parses the bytes. An importer translates them to operators of the graph, so that they are compiled
//! with the program around them. [`IMPORTERS`] lists all; `front/pte` calls them, and knows none by name. A payload that
//! an importer refuses stays a delegate, with the reason.

mod importer;
mod vulkan;
mod xnnpack;

pub use importer::{Arguments, Axes, Importer, NamedData, Site, Written};

/// The importers of this compiler.
pub const IMPORTERS: &[Importer] = &[vulkan::IMPORTER, xnnpack::IMPORTER];
