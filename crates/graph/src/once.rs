//! Tables that are made on first use.

use std::sync::OnceLock;

/// Returns the value of a cell, and makes it outside of the cell if it is missing. Two threads may both make it, and one value
/// is kept. No thread waits for another, so that the child of a `fork` never waits for a thread that it does not have.
pub fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    match cell.get() {
        Some(value) => value,
        None => {
            let made = make();
            cell.get_or_init(|| made)
        }
    }
}
