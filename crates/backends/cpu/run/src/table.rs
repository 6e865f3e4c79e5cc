//! Lookup tables of steps, which are computed when a program is loaded.

use rushlight_engine::SoftmaxTable;

/// The lookup table of a step over bytes.
pub(crate) enum Table {
    /// The result for each byte.
    Bytes(Box<[u8; 256]>),
    Softmax(Box<SoftmaxTable>),
}
