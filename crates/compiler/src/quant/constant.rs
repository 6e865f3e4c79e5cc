//! Weights that are integers, seen as the numbers that they stand for.

use std::sync::Arc;

use rushlight_format::ScalarType;

use crate::error::Error;
use crate::graph::{Arg, Computed, Constant, ConstantData, Granularity, Node, Quantization, TensorType, ValueId};

use super::parameters::{PerTensor, is_dequantize};

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
enum Groups {
    One,
    /// Elements inside of the axis, and its size.
    Axis(usize, usize),
}

impl Groups {
    fn new(granularity: &Granularity, sizes: &[usize]) -> Option<Self> {
        match granularity {
            Granularity::Tensor => Some(Self::One),
            Granularity::Channel { axis } => {
                let axis = usize::from(*axis);
                let inner: usize = sizes.get(axis + 1..)?.iter().product();
                Some(Self::Axis(inner.max(1), *sizes.get(axis)?))
            }
            Granularity::Block { .. } => None,
        }
    }

    fn of(&self, index: usize) -> usize {
        match self {
            Self::One => 0,
            Self::Axis(inner, size) => index / inner % size,
        }
    }
}

/// The constant that a node makes of constant integers, if it is one that dequantizes, with parameters that make sense.
/// `constant` finds the constant that a value is.
pub(crate) fn folded<'c>(
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
    } else if node.op.name() == "quantized_decomposed::dequantize_per_channel" {
        let int = |name: &str| match node.arg(name)? {
            Arg::Int(expr) => expr.as_int(),
            _ => None,
        };
        let rank = integers.ty.rank() as i64;
        let axis = int("axis")?;
        let axis = u8::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        let scales = numbers(of("scales")?)?;
        let zero_points = match node.arg("zero_points") {
            Some(Arg::Value(value)) => numbers(constant(*value)?)?,
            _ => vec![0.0; scales.len()],
        };
        let size = *integers.sizes().ok()?.get(usize::from(axis))?;
        if scales.len() != size || zero_points.len() != size {
            return None;
        }
        let range = (i32::try_from(int("quant_min")?).ok()?, i32::try_from(int("quant_max")?).ok()?);
        let is_scale = |scale: &f64| (*scale as f32).is_finite() && *scale as f32 > 0.0;
        if !scales.iter().all(is_scale) || zero_points.iter().any(|zero| zero.abs() > 65536.0) {
            return None;
        }
        Quantization {
            granularity: Granularity::Channel { axis },
            scales: scales.into_iter().map(|scale| scale as f32).collect(),
            zero_points: zero_points.into_iter().map(|zero| zero as i32).collect(),
            range,
        }
    } else {
        return None;
    };
    if result.ty.dtype != ScalarType::Float || self::integers(integers.ty.dtype, &[]).is_none() {
        return None;
    }
    let ty = TensorType { quantization: Some(Arc::new(quantization)), ..integers.ty.clone() };
    let quantized = QuantizedConstant { integers: Constant { ty, ..integers.clone() } };
    Some(Constant { data: ConstantData::Computed(Arc::new(quantized)), name: integers.name.clone(), ..result.clone() })
}

/// The elements of a small constant of numbers.
fn numbers(constant: &Constant) -> Option<Vec<f64>> {
    let bytes = constant.read().ok()?;
    Some(match constant.ty.dtype {
        ScalarType::Float => bytes.as_chunks().0.iter().map(|x| f64::from(f32::from_le_bytes(*x))).collect(),
        ScalarType::Double => bytes.as_chunks().0.iter().map(|x| f64::from_le_bytes(*x)).collect(),
        ScalarType::Long => bytes.as_chunks().0.iter().map(|x| i64::from_le_bytes(*x) as f64).collect(),
        dtype => integers(dtype, &bytes)?.into_iter().map(f64::from).collect(),
    })
}

/// A constant of quantized integers with its dimensions in another order; `None` of others.
pub(crate) fn permuted(constant: &Constant, result: &Constant, dims: &[usize]) -> Option<Constant> {
    let ConstantData::Computed(computed) = &constant.data else { return None };
    let quantized = computed.quantized()?;
    let mut integers = quantized.integers.permuted(dims)?;
    let mut quantization = quantized.quantization()?.clone();
    match &mut quantization.granularity {
        Granularity::Tensor => {}
        Granularity::Channel { axis } => {
            *axis = u8::try_from(dims.iter().position(|dim| *dim == usize::from(*axis))?).ok()?;
        }
        Granularity::Block { .. } => return None,
    }
    integers.ty.quantization = Some(Arc::new(quantization));
    let data = ConstantData::Computed(Arc::new(QuantizedConstant { integers }));
    Some(Constant { data, name: constant.name.clone(), ..result.clone() })
}
