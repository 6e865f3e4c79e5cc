//! Strided runs of elements of any real type, read into accumulators and written back.
//!
//! Operators that do real arithmetic on each element use these to have one body for each accumulator type (`f32`,
//! `f64`, `i64`) instead of one for each element type. The conversion is called once a run, not once an element.

use half::{bf16, f16};
use rushlight_runtime::{Detail, Element, Error, Result, ScalarType, Tensor, TensorMut};

use crate::support::number::{Arithmetic, Number};

/// Reads `out.len()` elements of a tensor's memory, `step` apart, the first at `start`.
pub(crate) type Load<A> = fn(&Tensor<'_>, usize, usize, &mut [A]) -> Result<()>;

/// Writes `values` into a tensor's memory, `step` apart, the first at `start`.
pub(crate) type Store<A> = fn(&mut TensorMut<'_>, usize, usize, &[A]) -> Result<()>;

/// Conversion of elements of one type to accumulators and back.
#[derive(Clone, Copy)]
pub(crate) struct Runs<A> {
    pub(crate) load: Load<A>,
    pub(crate) store: Store<A>,
}

/// A type that sums are made in, with access to tensors of the element types that use it.
pub(crate) trait Accumulator: Arithmetic + Number<Acc = Self> {
    /// The access to tensors of type `dtype`, if `Self` is its accumulator.
    fn runs(dtype: ScalarType) -> Option<Runs<Self>>;

    /// Division by a count; integers truncate, and give 0 for a count of 0.
    fn divide(self, count: i64) -> Self;
}

impl Accumulator for f32 {
    fn runs(dtype: ScalarType) -> Option<Runs<Self>> {
        match dtype {
            ScalarType::Float => Some(of::<f32>()),
            ScalarType::Half => Some(of::<f16>()),
            ScalarType::BFloat16 => Some(of::<bf16>()),
            _ => None,
        }
    }

    #[inline(always)]
    fn divide(self, count: i64) -> Self {
        self / count as f32
    }
}

impl Accumulator for f64 {
    fn runs(dtype: ScalarType) -> Option<Runs<Self>> {
        (dtype == ScalarType::Double).then(of::<f64>)
    }

    #[inline(always)]
    fn divide(self, count: i64) -> Self {
        self / count as f64
    }
}

impl Accumulator for i64 {
    fn runs(dtype: ScalarType) -> Option<Runs<Self>> {
        match dtype {
            ScalarType::Byte => Some(of::<u8>()),
            ScalarType::Char => Some(of::<i8>()),
            ScalarType::Short => Some(of::<i16>()),
            ScalarType::Int => Some(of::<i32>()),
            ScalarType::Long => Some(of::<i64>()),
            _ => None,
        }
    }

    #[inline(always)]
    fn divide(self, count: i64) -> Self {
        self.checked_div(count).unwrap_or(0)
    }
}

const fn of<T: Number>() -> Runs<T::Acc> {
    Runs { load: load::<T>, store: store::<T> }
}

/// The access to tensors of type `dtype`, or an `InvalidType` error.
pub(crate) fn runs<A: Accumulator>(dtype: ScalarType) -> Result<Runs<A>> {
    A::runs(dtype).ok_or_else(|| Detail::Dtype { expected: A::DTYPE.name(), got: dtype }.into())
}

fn load<T: Number>(tensor: &Tensor<'_>, start: usize, step: usize, out: &mut [T::Acc]) -> Result<()> {
    let data = tensor.as_slice::<T>()?;
    if out.is_empty() {
        return Ok(());
    }
    let source = data.get(start..).filter(|data| reaches(data.len(), step, out.len())).ok_or_else(outside)?;
    match step {
        0 => out.fill(source[0].to_acc()),
        1 => out.iter_mut().zip(source).for_each(|(out, value)| *out = value.to_acc()),
        _ => out.iter_mut().zip(source.iter().step_by(step)).for_each(|(out, value)| *out = value.to_acc()),
    }
    Ok(())
}

fn store<T: Number>(tensor: &mut TensorMut<'_>, start: usize, step: usize, values: &[T::Acc]) -> Result<()> {
    let data = tensor.as_mut_slice::<T>()?;
    if values.is_empty() {
        return Ok(());
    }
    let target = data.get_mut(start..).filter(|data| reaches(data.len(), step, values.len())).ok_or_else(outside)?;
    if step <= 1 {
        target.iter_mut().zip(values).for_each(|(out, &value)| *out = T::from_acc(value));
    } else {
        target.iter_mut().step_by(step).zip(values).for_each(|(out, &value)| *out = T::from_acc(value));
    }
    Ok(())
}

/// True if `count` elements, `step` apart, lie within `len`.
fn reaches(len: usize, step: usize, count: usize) -> bool {
    count.checked_sub(1).and_then(|n| n.checked_mul(step)).is_some_and(|last| last < len)
}

#[cold]
fn outside() -> Error {
    Error::invalid("the sizes of the tensors do not fit together")
}

/// Runs `body` with `A` as the accumulator type of the real element type `dtype`.
macro_rules! accumulate {
    ($dtype:expr, $A:ident => $body:expr) => {
        match $dtype {
            rushlight_runtime::ScalarType::Float
            | rushlight_runtime::ScalarType::Half
            | rushlight_runtime::ScalarType::BFloat16 => {
                type $A = f32;
                $body
            }
            rushlight_runtime::ScalarType::Double => {
                type $A = f64;
                $body
            }
            rushlight_runtime::ScalarType::Byte
            | rushlight_runtime::ScalarType::Char
            | rushlight_runtime::ScalarType::Short
            | rushlight_runtime::ScalarType::Int
            | rushlight_runtime::ScalarType::Long => {
                type $A = i64;
                $body
            }
            got => Err(rushlight_runtime::Detail::Dtype { expected: "an integer or floating type", got }.into()),
        }
    };
}

/// As [`Element::DTYPE`], checked: the tensor's elements if they are accumulators themselves.
pub(crate) fn native<'a, A: Element>(tensor: &Tensor<'a>) -> Option<&'a [A]> {
    if tensor.dtype() == A::DTYPE { tensor.as_slice().ok() } else { None }
}
