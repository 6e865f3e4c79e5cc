//! Matrices concatenated along their rows as one constant, each of which is read where it is.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rushlight_format::ScalarType;

use rushlight_graph::{
    Computed, Constant, ConstantData, Error, Parameters, Products, Quantization, QuantizedConstant, TensorType,
};

/// Concatenates `f32` matrices `[rows, columns]` along their rows to one constant, which reads each matrix where it is.
///
/// # Errors
/// `Unsupported` if there are more rows than a size can count.
pub fn stack_rows(name: String, parts: Vec<Constant>, [rows, columns]: [usize; 2]) -> Result<Constant, Error> {
    let all = rows.checked_mul(parts.len()).and_then(|all| i64::try_from(all).ok());
    let all = all.ok_or_else(|| Error::unsupported("more rows of experts than can be counted"))?;
    let ty = TensorType::of(ScalarType::Float, &[all, columns as i64]);
    Ok(Constant { name, ty, data: Stacked::data(parts) })
}

/// Matrices of the same number of columns.
#[derive(Default)]
struct Stacked {
    parts: Vec<Constant>,
    /// Their integers, if all have them in groups of the same form.
    quantized: OnceLock<Option<QuantizedConstant>>,
}

impl Stacked {
    fn data(parts: Vec<Constant>) -> ConstantData {
        ConstantData::Computed(Arc::new(Self { parts, ..Self::default() }))
    }

    /// The integers of all, one after the other.
    fn quantize(&self) -> Option<QuantizedConstant> {
        let parts: Vec<&QuantizedConstant> = self.parts.iter().map(Constant::quantized).collect::<Option<_>>()?;
        let first = parts.first()?;
        let [_, columns] = *first.integers.sizes().ok()?.as_slice() else { return None };
        let quantizations: Vec<&Quantization> = parts.iter().map(|part| part.quantization()).collect::<Option<_>>()?;
        let form = |part: &Quantization| (part.granularity.clone(), part.range);
        let (granularity, range) = form(quantizations.first()?);
        let dtype = first.integers.ty.dtype;
        let are_alike = quantizations.iter().all(|part| form(part) == (granularity.clone(), range))
            && parts.iter().all(|part| part.integers.ty.dtype == dtype);
        let has_zeros = quantizations.iter().any(|part| !part.zero_points.all(|zero| zero == 0));
        let minima: Vec<_> = parts.iter().filter_map(|part| part.minima.as_ref()).collect();
        if !are_alike || has_zeros || !(minima.is_empty() || minima.len() == parts.len()) {
            return None;
        }
        let scales = joined(&quantizations.iter().map(|part| &part.scales).collect::<Vec<_>>())?;
        let minima = if minima.is_empty() { None } else { Some(joined(&minima)?) };
        let rows = self.parts.iter().map(|part| part.sizes().ok()?.first().copied()).sum::<Option<usize>>()?;
        let zero_points = Parameters::same(0, scales.len());
        let quantization = Some(Arc::new(Quantization { granularity, scales, zero_points, range }));
        let ty = TensorType { quantization, ..TensorType::of(dtype, &[i64::try_from(rows).ok()?, columns as i64]) };
        let data = Self::data(parts.iter().map(|part| part.integers.clone()).collect());
        Some(QuantizedConstant { integers: Constant { name: first.integers.name.clone(), ty, data }, minima })
    }
}

/// The numbers of all, one after the other, if they are stored in the same form.
fn joined(all: &[&Parameters<f32>]) -> Option<Parameters<f32>> {
    if let Some(products) = all.iter().map(|numbers| numbers.as_products()).collect::<Option<Vec<_>>>() {
        let each = products.first()?.each;
        let factors = products.iter().flat_map(|products| products.factors.iter().copied()).collect();
        let units = products.iter().flat_map(|products| products.units.iter().copied()).collect();
        return products.iter().all(|products| products.each == each).then(|| Products { factors, units, each }.into());
    }
    let slices: Vec<_> = all.iter().map(|numbers| numbers.as_slice()).collect::<Option<_>>()?;
    Some(slices.concat().into())
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
        (rows.end <= first).then(|| -> Arc<dyn Computed> { Arc::new(Self { parts, ..Self::default() }) })
    }

    fn quantized(&self) -> Option<&QuantizedConstant> {
        self.quantized.get_or_init(|| self.quantize()).as_ref()
    }

    fn is_quantized(&self) -> bool {
        self.parts.iter().all(Constant::is_quantized)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::{Encoding, Tensor};

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
    fn blocks_of_several_matrices_are_those_of_one() {
        use crate::blocks::Block;
        use crate::tensors::Encoding;

        let matrix = |block: Block, first: usize| {
            let count = Encoding::Block(block).bytes(3 * 512).unwrap();
            // Scales are finite numbers.
            let bytes: Vec<u8> = (first..first + count).map(|at| (at * 37 % 61) as u8).collect();
            Tensor::new("w".to_owned(), vec![3, 512], Encoding::Block(block), bytes.into()).unwrap().constant()
        };
        for block in [Block::Q4_0, Block::Q4_1, Block::Q8_0, Block::Q4K, Block::Q6K] {
            let parts = vec![matrix(block, 0), matrix(block, 5)];
            let expected: Vec<f32> = parts.iter().flat_map(|part| part.floats().unwrap()).collect();
            let stacked = stack_rows("all".to_owned(), parts, [3, 512]).unwrap();
            assert!(stacked.is_quantized());
            for constant in [&stacked, &stacked.permuted(&[1, 0]).unwrap().permuted(&[1, 0]).unwrap()] {
                let quantized = constant.quantized().unwrap();
                assert_eq!(quantized.integers.sizes().unwrap(), [6, 512], "{block:?}");
                let mut floats = Vec::new();
                quantized.compute(&mut floats).unwrap();
                let floats: Vec<f32> = floats.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
                assert_eq!(floats, expected, "{block:?}");
            }
        }
        let other = vec![matrix(Block::Q4_0, 0), matrix(Block::Q8_0, 0)];
        let other = stack_rows("all".to_owned(), other, [3, 512]).unwrap();
        assert!(other.quantized().is_none());
        assert_eq!(other.floats().unwrap().len(), 6 * 512);
    }

    #[test]
    fn rows_may_be_those_of_several_matrices() {
        for encoding in [Encoding::F32, Encoding::Bf16] {
            let stacked = stack_rows("all".to_owned(), matrices(encoding), [5, 2]).unwrap();
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
