//! Limits against which the entries of a plan are checked while a program is parsed.

use crate::error::ErrorKind;
use crate::flatbuf::{Table, Vector};
use crate::schema::Field;

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
}

/// An index field below `limit`. On the wire it is a signed number.
#[inline]
pub(crate) fn index(table: Table<'_, '_>, field: Field, limit: Option<usize>) -> u32 {
    let value = table.scalar(field, 0u32);
    if let Some(limit) = limit
        && value as usize >= limit
    {
        out_of_range(table, field, value, limit);
    }
    value
}

/// A list of value indices.
#[inline]
pub(crate) fn indices<'a>(table: Table<'_, 'a>, field: Field, scope: Option<&Scope<'_, 'a>>) -> Vector<'a, u32> {
    let list = table.required_vector::<u32>(field);
    table.spend(4 * list.len());
    if let Some(scope) = scope
        && let Some(index) = list.iter().find(|index| *index as usize >= scope.num_values)
    {
        out_of_range(table, field, index, scope.num_values);
    }
    list
}

#[cold]
#[inline(never)]
pub(crate) fn out_of_range(table: Table<'_, '_>, field: Field, value: u32, limit: usize) {
    match i64::from(value as i32) {
        value if value < 0 => table.report(field, ErrorKind::Negative { value }),
        _ => table.out_of_range(field, u64::from(value), limit),
    }
}
