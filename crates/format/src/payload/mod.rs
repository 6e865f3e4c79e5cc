//! Readers of the payloads that other runtimes' delegates have in programs, a folder per delegate.
//!
//! Each reader checks a payload once, like the parsers of files, and is then a view of its bytes. The feature `payload`
//! has all of them; a runtime that only executes programs does without.

mod header;
pub mod vulkan;
pub mod xnnpack;

use crate::schema::Field;

/// The tables of each payload's schema: the field, the name of its table, and its own name.
pub(crate) const SCHEMAS: &[&[(Field, &str, &str)]] = &[header::NAMES, vulkan::SCHEMA, xnnpack::SCHEMA];
