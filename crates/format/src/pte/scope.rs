//! What the entries of a plan are checked against while a program is parsed.

use crate::budget::Budget;
use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::{Field, Table, Vector};

use super::program::Program;

/// The plan being checked. Decoding with a scope checks; decoding without one trusts that this was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'p, 'a> {
    pub program: &'p Program<'a>,
    pub num_values: usize,
    pub num_operators: usize,
    pub num_delegates: usize,
    pub num_instructions: usize,
    /// By memory id; entry 0 is a dummy.
    pub buffer_sizes: Vector<'a, i64>,
    pub budget: &'p Budget,
}

/// An index field below `limit`. On the wire it is a signed number.
#[cfg_attr(not(target_os = "none"), inline(always))]
pub(crate) fn index(table: Table<'_>, field: &'static Field, limit: Option<usize>) -> Result<u32, FormatError> {
    let value = table.scalar(field, 0u32)?;
    match limit {
        Some(limit) if value as usize >= limit => Err(out_of_range(table.position(), field, value, limit)),
        _ => Ok(value),
    }
}

/// A list of value indices.
#[cfg_attr(not(target_os = "none"), inline(always))]
pub(crate) fn indices<'a>(
    table: Table<'a>,
    field: &'static Field,
    scope: Option<&Scope<'_, 'a>>,
) -> Result<Vector<'a, u32>, FormatError> {
    let list = table.required_vector::<u32>(field)?;
    if let Some(scope) = scope {
        scope.budget.spend(table.position(), 4 * list.len())?;
        if let Some(index) = list.iter().find(|index| *index as usize >= scope.num_values) {
            return Err(out_of_range(table.position(), field, index, scope.num_values));
        }
    }
    Ok(list)
}

#[cold]
#[inline(never)]
pub(crate) fn out_of_range(position: u64, field: &'static Field, value: u32, limit: usize) -> FormatError {
    let kind = match i64::from(value as i32) {
        value if value < 0 => ErrorKind::Negative { value },
        _ => ErrorKind::OutOfRange { value: u64::from(value), limit: limit as u64 },
    };
    field.error(kind, position)
}
