//! Matrices concatenated along their rows as one constant, each of which is read where it is.

use std::ops::Range;
use std::sync::Arc;

use rushlight_format::ScalarType;

use rushlight_graph::{Computed, Constant, ConstantData, Error, TensorType};

/// Matrices of the same number of columns.
pub(super) struct Stacked {
    parts: Vec<Constant>,
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
        Ok(Constant { name, ty, data: ConstantData::Computed(Arc::new(Self { parts })) })
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
        let (mut parts, mut first) = (Vec::new(), 0);
        for part in &self.parts {
            let end = first + *part.sizes().ok()?.first()?;
            let own = rows.start.max(first)..rows.end.min(end);
            if !own.is_empty() {
                parts.push(part.rows(own.start - first..own.end - first)?);
            }
            first = end;
        }
        (rows.end <= first).then(|| -> Arc<dyn Computed> { Arc::new(Self { parts }) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensors::{Encoding, Tensor};
    use super::*;

    /// Three matrices of 5 rows of 2: floats in memory, and numbers that are decoded when they are read.
    fn matrices(encoding: Encoding) -> Vec<Constant> {
        let matrix = |index: usize| {
            let numbers = (10 * index..10 * (index + 1)).map(|number| number as f32);
            let bytes: Vec<u8> = match encoding {
                Encoding::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
                _ => numbers.flat_map(|number| half::bf16::from_f32(number).to_le_bytes()).collect(),
            };
            Tensor::new(format!("{index}"), vec![5, 2], encoding, bytes.into()).unwrap().constant()
        };
        (0..3).map(matrix).collect()
    }

    #[test]
    fn rows_may_be_those_of_several_matrices() {
        for encoding in [Encoding::F32, Encoding::Bf16] {
            let stacked = Stacked::constant("all".to_owned(), matrices(encoding), [5, 2]).unwrap();
            assert_eq!(stacked.floats().unwrap(), (0..30).map(|number| number as f32).collect::<Vec<_>>());
            for start in 0..15 {
                for end in start + 1..=15 {
                    let expected: Vec<f32> = (2 * start..2 * end).map(|number| number as f32).collect();
                    let rows = stacked.rows(start..end).unwrap();
                    assert_eq!(rows.floats().unwrap(), expected, "{start}..{end}");
                    let mut seen = Vec::new();
                    rows.for_floats(&mut |floats| seen.extend_from_slice(floats)).unwrap();
                    assert_eq!(seen, expected, "{start}..{end}");
                }
            }
            assert!(stacked.rows(10..16).is_none());
        }
    }
}
