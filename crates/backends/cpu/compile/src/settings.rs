//! Settings of a compilation.

use crate::precision::Precision;
use crate::weights::Keys;

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
