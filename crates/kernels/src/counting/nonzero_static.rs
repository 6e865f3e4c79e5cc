//! Indices of nonzero elements, with a fixed output size.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType};

use super::key::{Keys, offset_of};
use crate::support::shape::Dims;

/// `nonzero_static.out(Tensor self, *, SymInt size, int fill_value=-1, Tensor(a!) out)`: the indices of the first `size` nonzero
/// elements, and `fill_value` for missing ones.
pub const NONZERO_STATIC_OUT: Op = Op::new("aten::nonzero_static.out", 4, nonzero_static);

pub const OPS: OpGroup = &[NONZERO_STATIC_OUT];

fn nonzero_static(cx: &KernelContext<'_>) -> Result<()> {
    let (input, size, fill, mut out) = (cx.tensor(0)?, cx.int(1)?, cx.int(2)?, cx.out(3)?);
    let keys = Keys::new(&input).map_err(|e| e.arg(0))?;
    let Ok(size) = usize::try_from(size) else {
        return Err(Error::from(Detail::Value { what: "size", expected: "not negative", got: size }).arg(1));
    };
    if out.dtype() != ScalarType::Long {
        return Err(Error::from(Detail::ElementType { expected: ScalarType::Long, got: out.dtype() }).arg(3));
    }
    out.resize(&[size, input.rank()]).map_err(|e| e.arg(3))?;
    let strides = Dims::from_slice(out.strides())?;
    let places = out.as_mut_slice::<i64>()?;
    places.fill(fill);
    let zero = match input.dtype() {
        ScalarType::Byte | ScalarType::Bool => 0,
        dtype => 1u64 << (8 * dtype.size() - 1),
    };
    let is_set = |at: &usize| keys.at(offset_of(input.sizes(), input.strides(), *at)) != zero;
    for (row, at) in (0..input.numel()).filter(is_set).take(size).enumerate() {
        let mut rest = at;
        for dim in (0..input.rank()).rev() {
            let length = input.size(dim).max(1);
            if let Some(place) = places.get_mut(row * strides[0] + dim * strides[1]) {
                *place = (rest % length) as i64;
            }
            rest /= length;
        }
    }
    Ok(())
}
