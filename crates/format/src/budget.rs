//! A bound on the work of a parse.

use core::cell::Cell;

use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::Field;

/// Bounds the work of a parse. Flatbuffers may share tables and strings, so that a small file can
/// describe a huge program; one that is read many times over is refused.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Cell<u64>,
}

const BUDGET: Field = Field::new(0, "file", "size");

impl Budget {
    /// Writers share strings and vtables, which a small factor covers.
    const FACTOR: u64 = 16;

    pub fn new(file_len: usize) -> Self {
        Self { left: Cell::new((file_len as u64).saturating_mul(Self::FACTOR)) }
    }

    /// Pays for having read `bytes` at byte `position`.
    #[cfg_attr(not(target_os = "none"), inline(always))]
    pub fn spend(&self, position: u64, bytes: usize) -> Result<(), FormatError> {
        match self.left.get().checked_sub(bytes as u64) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(BUDGET.error(ErrorKind::TooComplex, position)),
        }
    }
}
