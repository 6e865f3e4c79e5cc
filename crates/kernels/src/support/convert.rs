//! Copies of whole tensors into tensors of other types and layouts, and fills.

use rushlight_runtime::{Complex, Detail, Result, Scalar, ScalarType, Tensor, TensorMut, copy_bytes};

use crate::support::copy::StridedCopy;
use crate::support::elementwise::tiles;
use crate::support::shape::broadcast_strides;
use crate::support::tile::{Compute, ComputeType, Cursor, Operand};

/// Stores the elements of `src`, which broadcasts to the size of `out`, converted to its type.
///
/// Conversions are C++'s `static_cast`; complex numbers lose their imaginary part.
pub(crate) fn convert(src: &Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()> {
    if src.dtype() == out.dtype() {
        return rearrange(src, out);
    }
    // A conversion to `f32`, such as of `u8` images, loads elements straight into the output.
    if out.dtype() == ScalarType::Float && !src.dtype().is_complex() {
        let cursor = &mut Cursor::new(src.sizes(), src.strides(), out.sizes(), out.dim_order())?;
        f32::load(src.dtype())?(src, cursor, out.as_mut_slice()?);
        return Ok(());
    }
    match ComputeType::of(src.dtype())? {
        ComputeType::I32 => through::<i32>(src, out),
        ComputeType::I64 => through::<i64>(src, out),
        ComputeType::F32 => through::<f32>(src, out),
        ComputeType::F64 => through::<f64>(src, out),
        ComputeType::C32 => through::<Complex<f32>>(src, out),
        ComputeType::C64 => through::<Complex<f64>>(src, out),
    }
}

fn through<C: Compute>(src: &Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()> {
    if out.dtype().is_complex() && !src.dtype().is_complex() {
        return through_complex(src, out);
    }
    let store = C::store(out.dtype())?;
    let mut cursor = Cursor::NOWHERE;
    let mut src = Operand::<C>::new(src, src.dtype(), out, &mut cursor)?;
    let mut room = None;
    tiles(out.numel(), C::TILE, |at, len| store(src.next(&mut room, len), out, at))
}

fn through_complex(src: &Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()> {
    let store = Complex::<f64>::store(out.dtype())?;
    let mut cursor = Cursor::NOWHERE;
    let mut src = Operand::<Complex<f64>>::new(src, src.dtype(), out, &mut cursor)?;
    let mut room = None;
    tiles(out.numel(), Complex::<f64>::TILE, |at, len| store(src.next(&mut room, len), out, at))
}

/// Stores the elements of `src`, which has the type of `out` and broadcasts to its size.
fn rearrange(src: &Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()> {
    if src.has_layout_of(out) {
        copy_bytes(out.bytes_mut(), src.bytes());
        return Ok(());
    }
    let strides = broadcast_strides(src.sizes(), src.strides(), out.sizes())?;
    StridedCopy::of(out.sizes(), out.strides(), &strides).run(out, *src)
}

/// Stores one number in every element, converted to the type of `out`. Fails where PyTorch does: if the value is
/// beyond the range of that type.
pub(crate) fn fill(value: Scalar, out: &mut TensorMut<'_>) -> Result<()> {
    check_range(value, out.dtype())?;
    match ComputeType::of(out.dtype())? {
        ComputeType::I32 => fill_as::<i32>(value, out),
        ComputeType::I64 => fill_as::<i64>(value, out),
        ComputeType::F32 => fill_as::<f32>(value, out),
        ComputeType::F64 => fill_as::<f64>(value, out),
        ComputeType::C32 => fill_as::<Complex<f32>>(value, out),
        ComputeType::C64 => fill_as::<Complex<f64>>(value, out),
    }
}

fn fill_as<C: Compute>(value: Scalar, out: &mut TensorMut<'_>) -> Result<()> {
    // Non-zero numbers below one are true, although they are zero as an integer.
    let value = if out.dtype() == ScalarType::Bool { Scalar::Bool(value.to_bool()) } else { value };
    if let Ok(elements) = out.as_mut_slice::<C>() {
        elements.fill(C::from_scalar(value));
        return Ok(());
    }
    let mut tile = C::ZEROS;
    tile.as_mut().fill(C::from_scalar(value));
    let store = C::store(out.dtype())?;
    tiles(out.numel(), C::TILE, |at, len| store(tile.as_ref().get(..len).unwrap_or(&[]), out, at))
}

/// Fails if `value` is beyond the range of `dtype`. Negative numbers may wrap to unsigned ones.
pub(crate) fn check_range(value: Scalar, dtype: ScalarType) -> Result<()> {
    let (low, high, expected) = match dtype {
        ScalarType::Byte => (-255, 255, "a number that fits u8"),
        ScalarType::Char => (-128, 127, "a number that fits i8"),
        ScalarType::Short => (-32_768, 32_767, "a number that fits i16"),
        ScalarType::Int => (i64::from(i32::MIN), i64::from(i32::MAX), "a number that fits i32"),
        ScalarType::Long => (i64::MIN, i64::MAX, "a number that fits i64"),
        ScalarType::Half => return check_magnitude(value, 65504.0, "a number that fits f16"),
        ScalarType::Float | ScalarType::BFloat16 => {
            return check_magnitude(value, f64::from(f32::MAX), "a number that fits f32");
        }
        _ => return Ok(()),
    };
    match value {
        Scalar::Int(got) if got < low || got > high => Err(Detail::Value { what: "value", expected, got }.into()),
        Scalar::Double(got) if !(got > low as f64 - 1.0 && got < high as f64 + 1.0) => {
            Err(Detail::Number { what: "value", expected, got }.into())
        }
        _ => Ok(()),
    }
}

fn check_magnitude(value: Scalar, limit: f64, expected: &'static str) -> Result<()> {
    let got = value.to_f64();
    if got.is_finite() && got.abs() > limit {
        return Err(Detail::Number { what: "value", expected, got }.into());
    }
    Ok(())
}
