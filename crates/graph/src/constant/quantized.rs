//! Quantized constants: integers, with the scales and zero points that map them to real numbers.

use std::sync::Arc;

use bytemuck::Pod;
use rushlight_format::ScalarType;

use crate::{Error, Granularity, Parameters, Quantization};

use super::{Computed, Constant, row_major_strides};

/// Content of an `f32` constant that is dequantized when it is read.
#[derive(Debug)]
pub struct QuantizedConstant {
    /// Their type has the scales and zero points.
    pub integers: Constant,
    /// Numbers that are added to the scaled integers, one for each scale, if there are any.
    pub minima: Option<Parameters<f32>>,
}

impl QuantizedConstant {
    /// Scales and zero points of the integers.
    pub fn quantization(&self) -> Option<&Quantization> {
        self.integers.ty.quantization.as_deref()
    }

    /// The integers in row-major order.
    ///
    /// # Errors
    /// Those of [`Constant::read`], and `InvalidProgram` for types other than integers of 8, 16 or 32 bits.
    pub fn read(&self) -> Result<Vec<i32>, Error> {
        let bytes = self.integers.read()?;
        integers(self.integers.ty.dtype, &bytes)
            .ok_or_else(|| Error::invalid(format!("`{}` has no integers", self.integers.name)))
    }
}

/// The elements of an integer tensor; `None` for other types.
pub(crate) fn integers(dtype: ScalarType, bytes: &[u8]) -> Option<Vec<i32>> {
    Some(match dtype {
        ScalarType::Char => bytes.iter().map(|byte| i32::from(byte.cast_signed())).collect(),
        ScalarType::Byte => bytes.iter().map(|byte| i32::from(*byte)).collect(),
        ScalarType::Short => bytes.as_chunks().0.iter().map(|bytes| i32::from(i16::from_le_bytes(*bytes))).collect(),
        ScalarType::UInt16 => bytes.as_chunks().0.iter().map(|bytes| i32::from(u16::from_le_bytes(*bytes))).collect(),
        ScalarType::Int => bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect(),
        _ => return None,
    })
}

impl Computed for QuantizedConstant {
    fn compute(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        let without = || Error::invalid(format!("`{}` has no quantization", self.integers.name));
        let quantization = self.quantization().ok_or_else(without)?;
        let sizes = self.integers.sizes()?;
        let group = Groups::new(&quantization.granularity, &sizes).ok_or_else(without)?;
        to.clear();
        for (index, integer) in self.read()?.into_iter().enumerate() {
            let at = group.of(index);
            let parameters = quantization.scales.get(at).zip(quantization.zero_points.get(at));
            let (scale, zero) = parameters.ok_or_else(without)?;
            let mut number = (i64::from(integer) - i64::from(zero)) as f32 * scale;
            if let Some(minima) = &self.minima {
                number += minima.get(at).ok_or_else(without)?;
            }
            to.extend_from_slice(&number.to_le_bytes());
        }
        Ok(())
    }

    fn quantized(&self) -> Option<&QuantizedConstant> {
        Some(self)
    }
}

/// Maps elements to the index of their scale.
enum Groups<'a> {
    One,
    /// Number of elements per index of the axis, and the axis' size.
    Axis(usize, usize),
    /// The sizes of the tensor and of its blocks.
    Blocks(&'a [usize], &'a [u32]),
}

impl<'a> Groups<'a> {
    fn new(granularity: &'a Granularity, sizes: &'a [usize]) -> Option<Self> {
        match granularity {
            Granularity::Tensor => Some(Self::One),
            Granularity::Channel { axis } => {
                let axis = usize::from(*axis);
                let inner: usize = sizes.get(axis + 1..)?.iter().product();
                Some(Self::Axis(inner.max(1), *sizes.get(axis)?))
            }
            Granularity::Block { shape } => (shape.len() == sizes.len()).then_some(Self::Blocks(sizes, shape)),
        }
    }

    fn of(&self, index: usize) -> usize {
        match self {
            Self::One => 0,
            Self::Axis(inner, size) => index / inner % size,
            Self::Blocks(sizes, blocks) => {
                let (mut rest, mut at, mut stride) = (index, 0, 1);
                for (size, block) in sizes.iter().zip(*blocks).rev() {
                    at += rest % size / *block as usize * stride;
                    stride *= size / *block as usize;
                    rest /= size;
                }
                at
            }
        }
    }
}

impl QuantizedConstant {
    /// The constant with its dimensions in another order; `None` if it does not have these dimensions.
    pub(super) fn in_order(&self, dims: &[usize]) -> Option<Self> {
        let mut integers = self.integers.permuted(dims)?;
        let mut quantization = self.quantization()?.clone();
        let mut minima = self.minima.clone();
        match &mut quantization.granularity {
            Granularity::Tensor => {}
            Granularity::Channel { axis } => {
                *axis = u8::try_from(dims.iter().position(|dim| *dim == usize::from(*axis))?).ok()?;
            }
            Granularity::Block { shape } => {
                let sizes = self.integers.sizes().ok()?;
                let counts: Vec<usize> =
                    sizes.iter().zip(&*shape).map(|(size, block)| size / *block as usize).collect();
                *shape = dims.iter().map(|dim| shape.get(*dim).copied()).collect::<Option<Vec<_>>>()?;
                quantization.scales = turned(&quantization.scales, &counts, dims)?;
                quantization.zero_points = turned(&quantization.zero_points, &counts, dims)?;
                minima = match minima {
                    Some(minima) => Some(turned(&minima, &counts, dims)?),
                    None => None,
                };
            }
        }
        integers.ty.quantization = Some(Arc::new(quantization));
        Some(Self { integers, minima })
    }
}

/// Numbers of groups, of which there are `counts`, with the dimensions in another order.
fn turned<T: Pod + Send + Sync>(numbers: &Parameters<T>, counts: &[usize], dims: &[usize]) -> Option<Parameters<T>> {
    if let ([1, 0], &[rows, columns]) = (dims, counts)
        && let Some(turned) = numbers.transposed([rows, columns])
    {
        return Some(turned);
    }
    let strides = row_major_strides(counts);
    let pick = |list: &[usize]| dims.iter().map(|dim| list.get(*dim).copied()).collect::<Option<Vec<_>>>();
    let (counts, strides) = (pick(counts)?, pick(&strides)?);
    // Each group of the new order is one of the old one.
    let old = |index: usize| {
        let (mut rest, mut at) = (index, 0);
        for (count, stride) in counts.iter().zip(&strides).rev() {
            at += rest % count * stride;
            rest /= count;
        }
        at
    };
    (0..counts.iter().product()).map(|index| numbers.get(old(index))).collect::<Option<Vec<T>>>().map(Into::into)
}
