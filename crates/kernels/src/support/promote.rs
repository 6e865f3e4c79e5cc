//! Result types of operators with several inputs, by PyTorch's rules.

use rushlight_runtime::{Detail, Error, Result, Scalar, ScalarType, Tensor};

use ScalarType::{
    BFloat16, Bool, Byte, Char, ComplexDouble, ComplexFloat, ComplexHalf, Double, Float, Half, Int, Long, Short,
};

/// The smallest type that holds the values of both (`torch.promote_types`).
///
/// Types beyond bool, integers, floats and complex numbers only promote with themselves.
pub(crate) fn promote(a: ScalarType, b: ScalarType) -> Result<ScalarType> {
    if a == b {
        return Ok(a);
    }
    let (ra, rb) = (rank(a)?, rank(b)?);
    if a.is_complex() || b.is_complex() {
        return Ok(complex_of(promote(real_of(a), real_of(b))?));
    }
    Ok(match (a, b) {
        (Byte, Char) | (Char, Byte) => Short,
        (Half, BFloat16) | (BFloat16, Half) => Float,
        _ if ra >= rb => a,
        _ => b,
    })
}

/// Place in the chain of promotions, leaving out the two pairs that meet in a third type.
fn rank(dtype: ScalarType) -> Result<u8> {
    Ok(match dtype {
        Bool => 0,
        Byte | Char => 1,
        Short => 2,
        Int => 3,
        Long => 4,
        Half | BFloat16 | ComplexHalf => 5,
        Float | ComplexFloat => 6,
        Double | ComplexDouble => 7,
        got => return Err(Detail::Dtype { expected: "bool, an integer, floating or complex type", got }.into()),
    })
}

/// The type of the parts of a complex type; other types are their own.
pub(crate) fn real_of(dtype: ScalarType) -> ScalarType {
    match dtype {
        ComplexHalf => Half,
        ComplexFloat => Float,
        ComplexDouble => Double,
        other => other,
    }
}

fn complex_of(dtype: ScalarType) -> ScalarType {
    match dtype {
        Half => ComplexHalf,
        Double => ComplexDouble,
        _ => ComplexFloat,
    }
}

/// Collects the tensors of one call. Those with dimensions outrank rank-0 tensors, as these outrank numbers: a lower
/// category only widens the result if its kind (bool, integer, float, complex) is higher.
#[derive(Clone, Copy, Default)]
pub(crate) struct ResultType {
    dimensioned: Option<ScalarType>,
    rank0: Option<ScalarType>,
}

impl ResultType {
    pub(crate) fn tensor(mut self, tensor: &Tensor<'_>) -> Result<Self> {
        let slot = if tensor.rank() == 0 { &mut self.rank0 } else { &mut self.dimensioned };
        *slot = Some(match *slot {
            Some(dtype) => promote(dtype, tensor.dtype())?,
            None => tensor.dtype(),
        });
        Ok(self)
    }

    pub(crate) fn get(self) -> Result<ScalarType> {
        combine(self.dimensioned, self.rank0)?.ok_or(Error::invalid("there is no operand to take the type from"))
    }
}

fn combine(higher: Option<ScalarType>, lower: Option<ScalarType>) -> Result<Option<ScalarType>> {
    let (Some(high), Some(low)) = (higher, lower) else {
        return Ok(higher.or(lower));
    };
    Ok(Some(match (kind(high), kind(low)) {
        (Kind::Float, Kind::Complex) => complex_of(high),
        (a, b) if a >= b => high,
        _ => promote(high, low)?,
    }))
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Bool,
    Integer,
    Float,
    Complex,
}

fn kind(dtype: ScalarType) -> Kind {
    match dtype {
        Bool => Kind::Bool,
        d if d.is_floating() => Kind::Float,
        d if d.is_complex() => Kind::Complex,
        _ => Kind::Integer,
    }
}

/// The type that PyTorch gives a Python number: `i64`, `f32` (the default type) or `bool`.
pub(crate) fn scalar_type(value: Scalar) -> ScalarType {
    match value {
        Scalar::Int(_) => Long,
        Scalar::Double(_) => Float,
        Scalar::Bool(_) => Bool,
    }
}

/// Result type of two tensors.
#[inline(always)]
pub(crate) fn tensors(a: &Tensor<'_>, b: &Tensor<'_>) -> Result<ScalarType> {
    if a.dtype() == b.dtype() { Ok(a.dtype()) } else { different(a, b) }
}

#[inline(never)]
fn different(a: &Tensor<'_>, b: &Tensor<'_>) -> Result<ScalarType> {
    ResultType::default().tensor(a)?.tensor(b)?.get()
}

/// Result type of a tensor and a number.
pub(crate) fn tensor_scalar(a: &Tensor<'_>, b: Scalar) -> Result<ScalarType> {
    with_scalar(a.dtype(), b)
}

/// Result type of values of type `dtype` and a number.
pub(crate) fn with_scalar(dtype: ScalarType, value: Scalar) -> Result<ScalarType> {
    Ok(combine(Some(dtype), Some(scalar_type(value)))?.unwrap_or(dtype))
}

/// For functions with real results: integers and bool become `f32`.
pub(crate) fn to_float(dtype: ScalarType) -> ScalarType {
    if dtype.is_floating() || dtype.is_complex() { dtype } else { Float }
}

/// Fails unless results of type `from` may be stored as `to`: no complex to real, float to integer, or other to bool.
#[inline]
pub(crate) fn check_cast(from: ScalarType, to: ScalarType) -> Result<()> {
    if from == to {
        return Ok(());
    }
    let expected = match kind(from) {
        Kind::Complex => "a complex type",
        Kind::Float if !to.is_floating() && !to.is_complex() => "a floating type",
        Kind::Integer if to == Bool => "an integer or floating type",
        _ => return Ok(()),
    };
    if from.is_complex() && to.is_complex() {
        return Ok(());
    }
    Err(Detail::Dtype { expected, got: to }.into())
}
