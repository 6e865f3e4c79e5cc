//! Matrices one below the other as one constant, each of which is read where it is.

use std::ops::Range;
use std::sync::Arc;

use rushlight_format::ScalarType;

use rushlight_graph::{Computed, Constant, ConstantData, Error, TensorType};

/// Matrices of the same sizes.
pub(super) struct Stacked {
    parts: Vec<Constant>,
    /// Rows of each.
    rows: usize,
}

impl Stacked {
    /// The constant of all rows of matrices `[rows, columns]` of `f32`.
    ///
    /// # Errors
    /// `Unsupported` if there are more rows than a size can count.
    pub fn constant(name: String, parts: Vec<Constant>, [rows, columns]: [usize; 2]) -> Result<Constant, Error> {
        let all = rows.checked_mul(parts.len()).and_then(|all| i64::try_from(all).ok());
        let all = all.ok_or_else(|| Error::unsupported("more rows of experts than can be counted"))?;
        let ty = TensorType::of(ScalarType::Float, &[all, columns as i64]);
        Ok(Constant { name, ty, data: ConstantData::Computed(Arc::new(Self { parts, rows })) })
    }
}

impl Computed for Stacked {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        to.clear();
        for part in &self.parts {
            to.extend_from_slice(&part.read()?);
        }
        Ok(())
    }

    fn for_floats(&self, see: &mut dyn FnMut(&[f32])) -> Result<(), Error> {
        self.parts.iter().try_for_each(|part| part.for_floats(see))
    }

    fn rows(&self, rows: Range<usize>) -> Option<Arc<dyn Computed>> {
        let is_whole = |row: usize| row.is_multiple_of(self.rows);
        if is_whole(rows.start) && is_whole(rows.end) {
            let parts = self.parts.get(rows.start / self.rows..rows.end / self.rows)?.to_vec();
            return Some(Arc::new(Self { parts, rows: self.rows }));
        }
        // Of one matrix.
        let part = self.parts.get(rows.start / self.rows)?;
        let first = rows.start / self.rows * self.rows;
        match &part.data {
            ConstantData::Computed(computed) if rows.end <= first + self.rows => {
                computed.rows(rows.start - first..rows.end - first)
            }
            _ => None,
        }
    }
}
