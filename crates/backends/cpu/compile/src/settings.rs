//! Settings of a compilation.

use crate::precision::Precision;

/// Settings of a lowering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The number of threads that pack weights.
    pub threads: usize,
    pub keys: Keys,
    /// True if large weights are packed again when they are written, rather than kept until then.
    pub packs_late: bool,
    pub precision: Precision,
}

/// The source of the names of packed weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Their content: what is the same is stored once, and the same program is the same file. All bytes are read for it.
    #[default]
    Content,
    /// Their address, for a program with one method that is run at once and never written.
    Place,
}
