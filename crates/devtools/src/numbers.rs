//! Elements as numbers of one kind.

use rushlight::runtime::{Bool8, Element};
use rushlight::{ScalarType, Tensor};

/// The elements as doubles; empty for types that are not numbers. The largest 64-bit integers are rounded.
pub fn doubles(tensor: &Tensor) -> Vec<f64> {
    fn of<T: Element>(tensor: &Tensor, to: impl Fn(T) -> f64) -> Vec<f64> {
        tensor.as_slice::<T>().unwrap_or_default().iter().map(|&v| to(v)).collect()
    }
    match tensor.dtype() {
        ScalarType::Float => of::<f32>(tensor, f64::from),
        ScalarType::Double => of::<f64>(tensor, |v| v),
        ScalarType::Half => of::<rushlight::f16>(tensor, f64::from),
        ScalarType::BFloat16 => of::<rushlight::bf16>(tensor, f64::from),
        ScalarType::Bool => of::<Bool8>(tensor, |v| f64::from(u8::from(v.get()))),
        ScalarType::Byte => of::<u8>(tensor, f64::from),
        ScalarType::Char => of::<i8>(tensor, f64::from),
        ScalarType::Short => of::<i16>(tensor, f64::from),
        ScalarType::Int => of::<i32>(tensor, f64::from),
        ScalarType::Long => of::<i64>(tensor, |v| v as f64),
        _ => Vec::new(),
    }
}
