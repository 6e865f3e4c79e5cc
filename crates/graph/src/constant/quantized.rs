//! Quantized constants: integers, with the scales and zero points that map them to real numbers.

use std::sync::Arc;

use rushlight_format::ScalarType;

use crate::{Error, Granularity, Parameters, Quantization};

use super::{Computed, Constant, ConstantData, row_major_strides};

/// Content of an `f32` constant that is dequantized when it is read.
#[derive(Debug)]
pub struct QuantizedConstant {
    /// Their type has the scales and zero points.
    pub integers: Constant,
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
            let number = (i64::from(integer) - i64::from(zero)) as f32 * scale;
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

/// Permutes the dimensions of a quantized constant; `None` for other constants.
pub fn permuted(constant: &Constant, result: &Constant, dims: &[usize]) -> Option<Constant> {
    let ConstantData::Computed(computed) = &constant.data else { return None };
    let quantized = computed.quantized()?;
    let mut integers = quantized.integers.permuted(dims)?;
    let mut quantization = quantized.quantization()?.clone();
    match &mut quantization.granularity {
        Granularity::Tensor => {}
        Granularity::Channel { axis } => {
            *axis = u8::try_from(dims.iter().position(|dim| *dim == usize::from(*axis))?).ok()?;
        }
        Granularity::Block { shape } => {
            let sizes = quantized.integers.sizes().ok()?;
            let counts: Vec<usize> = sizes.iter().zip(&*shape).map(|(size, block)| size / *block as usize).collect();
            *shape = dims.iter().map(|dim| shape.get(*dim).copied()).collect::<Option<Vec<_>>>()?;
            let (scales, zeros) = (&quantization.scales, &quantization.zero_points);
            let turned = match (dims, counts.as_slice()) {
                ([1, 0], &[rows, columns]) => scales.transposed([rows, columns]).zip(zeros.transposed([rows, columns])),
                _ => None,
            };
            (quantization.scales, quantization.zero_points) = match turned {
                Some(turned) => turned,
                None => picked(scales, zeros, &counts, dims)?,
            };
        }
    }
    integers.ty.quantization = Some(Arc::new(quantization));
    let data = ConstantData::Computed(Arc::new(QuantizedConstant { integers }));
    Some(Constant { data, name: constant.name.clone(), ..result.clone() })
}

/// Scales and zero points with the dimensions of their groups, of which there are `counts`, in another order.
fn picked(
    scales: &Parameters<f32>,
    zero_points: &Parameters<i32>,
    counts: &[usize],
    dims: &[usize],
) -> Option<(Parameters<f32>, Parameters<i32>)> {
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
    let parameters = (0..counts.iter().product()).map(old).map(|at| Some((scales.get(at)?, zero_points.get(at)?)));
    let (scales, zero_points): (Vec<f32>, Vec<i32>) = parameters.collect::<Option<Vec<_>>>()?.into_iter().unzip();
    Some((scales.into(), zero_points.into()))
}
