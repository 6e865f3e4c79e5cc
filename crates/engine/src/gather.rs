//! Gather: rows of a table, selected by indices (embedding lookup).
#![allow(unsafe_code)]

use crate::error::{Error, at_least, size};
use crate::parallel::SharedOutput;
use crate::{Engine, QuantizedWeights};

/// Indices as `i32`, as `i64`, or as integers stored in `f32`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Indices<'a> {
    I32(&'a [i32]),
    I64(&'a [i64]),
    F32(&'a [f32]),
}

impl<'a> From<&'a [i32]> for Indices<'a> {
    fn from(indices: &'a [i32]) -> Self {
        Indices::I32(indices)
    }
}

impl<'a> From<&'a [i64]> for Indices<'a> {
    fn from(indices: &'a [i64]) -> Self {
        Indices::I64(indices)
    }
}

impl<'a> From<&'a [f32]> for Indices<'a> {
    fn from(indices: &'a [f32]) -> Self {
        Indices::F32(indices)
    }
}

impl Indices<'_> {
    pub fn len(&self) -> usize {
        match self {
            Indices::I32(indices) => indices.len(),
            Indices::I64(indices) => indices.len(),
            Indices::F32(indices) => indices.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, i: usize) -> i64 {
        match self {
            Indices::I32(indices) => indices[i].into(),
            Indices::I64(indices) => indices[i],
            Indices::F32(indices) => indices[i] as i64,
        }
    }
}

/// The table to gather from.
#[derive(Debug, Clone, Copy)]
pub enum Table<'a> {
    Floats(&'a [f32]),
    /// Weight-only quantized; the columns of the packed matrix are the rows of the table.
    Quantized(QuantizedWeights<'a>),
}

/// Copies row `indices[i]` of `table`, of `columns` elements, to row `i` of `y`.
///
/// # Errors
/// [`Error::Index`] for an index that is negative or out of range, in which case nothing is written; or if `y` is too
/// short.
pub fn gather<'a>(
    engine: &Engine,
    columns: usize,
    table: Table<'_>,
    indices: impl Into<Indices<'a>>,
    y: &mut [f32],
) -> Result<(), Error> {
    let indices = indices.into();
    at_least("y", y.len(), size("y", &[indices.len(), columns])?)?;
    if columns == 0 {
        return Ok(());
    }
    let rows = match table {
        Table::Floats(table) => table.len() / columns,
        Table::Quantized(table) => table.columns(),
    };
    for i in 0..indices.len() {
        let index = indices.get(i);
        if usize::try_from(index).is_ok_and(|index| index < rows) {
            continue;
        }
        return Err(Error::Index { what: "index", index, size: rows });
    }
    let y = SharedOutput::new(y);
    engine.parallel_for(indices.len(), MIN_TASK_ELEMENTS.div_ceil(columns), |range| {
        // SAFETY: ranges of rows are disjoint.
        let y = unsafe { y.slice(range.start * columns..range.end * columns) };
        for (i, y) in range.zip(y.chunks_exact_mut(columns)) {
            let row = indices.get(i) as usize;
            match table {
                Table::Floats(table) => y.copy_from_slice(&table[row * columns..][..columns]),
                Table::Quantized(table) => table.column(row, y),
            }
        }
    });
    Ok(())
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 16 << 10;
