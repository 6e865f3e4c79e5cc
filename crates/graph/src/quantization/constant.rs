//! Weights that are integers, seen as the numbers that they stand for.

use std::sync::Arc;

use rushlight_format::ScalarType;

use crate::Error;
use crate::{Arg, Computed, Constant, ConstantData, Granularity, Node, Quantization, TensorType, ValueId};

use super::parameters::{PerTensor, blocks, integer, is_dequantize};

/// The content of a constant of `f32` that is computed from integers when it is read.
#[derive(Debug)]
pub struct QuantizedConstant {
    /// Their type says what they stand for.
    pub integers: Constant,
}

impl QuantizedConstant {
    /// What the integers stand for.
    pub fn quantization(&self) -> Option<&Quantization> {
        self.integers.ty.quantization.as_deref()
    }

    /// The integers in row-major order.
    ///
    /// # Errors
    /// What reading them finds, and types that are no integers of 8, 16 or 32 bits.
    pub fn read(&self) -> Result<Vec<i32>, Error> {
        let bytes = self.integers.read()?;
        integers(self.integers.ty.dtype, &bytes)
            .ok_or_else(|| Error::invalid(format!("`{}` has no integers", self.integers.name)))
    }
}

fn integers(dtype: ScalarType, bytes: &[u8]) -> Option<Vec<i32>> {
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
            let number = (i64::from(integer) - i64::from(*zero)) as f32 * scale;
            to.extend_from_slice(&number.to_le_bytes());
        }
        Ok(())
    }

    fn quantized(&self) -> Option<&QuantizedConstant> {
        Some(self)
    }
}

/// Which scale each element has.
enum Groups<'a> {
    One,
    /// Elements inside of the axis, and its size.
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

/// The constant that a node makes of constant integers, if it is one that dequantizes, with parameters that make sense.
/// `constant` finds the constant that a value is.
pub fn folded<'c>(
    node: &Node,
    result: &Constant,
    constant: impl Fn(ValueId) -> Option<&'c Constant>,
) -> Option<Constant> {
    let of = |name: &str| node.arg(name).and_then(Arg::as_value).and_then(&constant);
    let integers = of("input")?;
    let quantization = if is_dequantize(node.op.name()) {
        let PerTensor { scale, zero_point, range, .. } = PerTensor::of(node)?;
        Quantization {
            granularity: Granularity::Tensor,
            scales: vec![scale],
            zero_points: vec![i32::try_from(zero_point).ok()?],
            range: (i32::try_from(range.0).ok()?, i32::try_from(range.1).ok()?),
        }
    } else {
        let (granularity, groups) = granularity(node, integers)?;
        let scales = of("scales").or_else(|| of("scale"))?;
        let zero_points = node.arg("zero_points").or_else(|| node.arg("zero_point"));
        let scales = numbers(scales)?;
        let zero_points = match zero_points {
            Some(Arg::Value(value)) => numbers(constant(*value)?)?,
            _ => vec![0.0; scales.len()],
        };
        if scales.len() != groups || zero_points.len() != groups {
            return None;
        }
        let is_scale = |scale: &f64| (*scale as f32).is_finite() && *scale as f32 > 0.0;
        if !scales.iter().all(is_scale) || zero_points.iter().any(|zero| zero.abs() > 65536.0) {
            return None;
        }
        let bound = |name: &str| i32::try_from(integer(node, name)?).ok();
        let natural = match integers.ty.dtype {
            ScalarType::Byte => (0, 255),
            _ => (-128, 127),
        };
        Quantization {
            granularity,
            scales: scales.into_iter().map(|scale| scale as f32).collect(),
            zero_points: zero_points.into_iter().map(|zero| zero as i32).collect(),
            range: (bound("quant_min").unwrap_or(natural.0), bound("quant_max").unwrap_or(natural.1)),
        }
    };
    if result.ty.dtype != ScalarType::Float || self::integers(integers.ty.dtype, &[]).is_none() {
        return None;
    }
    let ty = TensorType { quantization: Some(Arc::new(quantization)), ..integers.ty.clone() };
    let quantized = QuantizedConstant { integers: Constant { ty, ..integers.clone() } };
    Some(Constant { data: ConstantData::Computed(Arc::new(quantized)), name: integers.name.clone(), ..result.clone() })
}

/// Which elements share a scale where a node dequantizes, and how many scales that makes.
fn granularity(node: &Node, integers: &Constant) -> Option<(Granularity, usize)> {
    let sizes = integers.sizes().ok()?;
    let is_known = matches!(
        node.op.name(),
        "quantized_decomposed::dequantize_per_channel"
            | "quantized_decomposed::dequantize_per_channel_group"
            | "torchao::dequantize_affine"
    );
    let static_sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
    let blocks = blocks(node, &static_sizes).ok().flatten().filter(|_| is_known)?;
    let blocks: Vec<usize> = blocks.into_iter().map(|block| usize::try_from(block).ok()).collect::<Option<_>>()?;
    let divides = |(size, block): (&usize, &usize)| *block > 0 && size.is_multiple_of(*block);
    if !sizes.iter().zip(&blocks).all(divides) {
        return None;
    }
    let groups = sizes.iter().zip(&blocks).map(|(size, block)| size / block).product();
    let cut: Vec<usize> = (0..sizes.len()).filter(|dim| blocks[*dim] != sizes[*dim]).collect();
    let granularity = match cut[..] {
        [] => Granularity::Tensor,
        [axis] if blocks[axis] == 1 => Granularity::Channel { axis: u8::try_from(axis).ok()? },
        _ => {
            Granularity::Block { shape: blocks.iter().map(|block| u32::try_from(*block).ok()).collect::<Option<_>>()? }
        }
    };
    Some((granularity, groups))
}

/// The elements of a small constant of numbers.
pub(super) fn numbers(constant: &Constant) -> Option<Vec<f64>> {
    let bytes = constant.read().ok()?;
    Some(match constant.ty.dtype {
        ScalarType::Float => bytes.as_chunks().0.iter().map(|x| f64::from(f32::from_le_bytes(*x))).collect(),
        ScalarType::Double => bytes.as_chunks().0.iter().map(|x| f64::from_le_bytes(*x)).collect(),
        ScalarType::Long => bytes.as_chunks().0.iter().map(|x| i64::from_le_bytes(*x) as f64).collect(),
        dtype => integers(dtype, &bytes)?.into_iter().map(f64::from).collect(),
    })
}

/// A constant of quantized integers with its dimensions in another order; `None` of others.
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
            let strides = crate::row_major_strides(&counts);
            let pick = |list: &[usize]| dims.iter().map(|dim| list.get(*dim).copied()).collect::<Option<Vec<_>>>();
            let (counts, strides) = (pick(&counts)?, pick(&strides)?);
            *shape = dims.iter().map(|dim| shape.get(*dim).copied()).collect::<Option<Vec<_>>>()?;
            // Each group of the new order is one of the old one.
            let old = |index: usize| {
                let (mut rest, mut at) = (index, 0);
                for (count, stride) in counts.iter().zip(&strides).rev() {
                    at += rest % count * stride;
                    rest /= count;
                }
                at
            };
            let order: Vec<usize> = (0..counts.iter().product()).map(old).collect();
            let picked = |at: &usize| Some((*quantization.scales.get(*at)?, *quantization.zero_points.get(*at)?));
            let parameters: Vec<(f32, i32)> = order.iter().map(picked).collect::<Option<_>>()?;
            (quantization.scales, quantization.zero_points) = parameters.into_iter().unzip();
        }
    }
    integers.ty.quantization = Some(Arc::new(quantization));
    let data = ConstantData::Computed(Arc::new(QuantizedConstant { integers }));
    Some(Constant { data, name: constant.name.clone(), ..result.clone() })
}
