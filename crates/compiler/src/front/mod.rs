//! Readers of programs: each turns one file format into the graph.

pub mod payload;
#[cfg(feature = "pt2")]
pub mod pt2;
pub mod pte;

use rushlight_graph::Bytes;

/// Bytes of a file as a part of it that shares its memory.
fn part(file: &Bytes, bytes: &[u8]) -> Option<Bytes> {
    let start = (bytes.as_ptr() as usize).checked_sub(file.as_ptr() as usize)?;
    file.slice(start..start.checked_add(bytes.len())?)
}
