//! Softmax over the last dimension.

use rushlight_engine_mcu::{Softmax, softmax as softmax_rows};
use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

use super::params::{check_alike, int_in, int8, int8_mut, mismatch, zero_point};
use crate::support::shape::normalize_dim;

/// `cortex_m::softmax.out(Tensor input, int dim, int input_zero_point, int output_zero_point, int input_multiplier,
/// int input_shift, int diff_min, *, Tensor(a!) out) -> Tensor(a!)`
///
/// `dim` is the innermost dimension in memory. The output has the scale 1/256 and the zero point -128.
pub const SOFTMAX_OUT: Op = Op::new("cortex_m::softmax.out", 8, softmax);

pub const OPS: &[Op] = &[SOFTMAX_OUT];

fn softmax(cx: &KernelContext<'_>) -> Result<()> {
    let x = cx.tensor(0)?;
    let dim = normalize_dim(cx.int(1)?, x.rank()).map_err(|e| e.arg(1))?;
    let output_zero_point = zero_point(cx, 3)?;
    if output_zero_point != -128 {
        let detail = Detail::Value { what: "output zero point", expected: "-128", got: i64::from(output_zero_point) };
        return Err(Error::from(detail).arg(3));
    }
    let multiplier = int_in(cx, 4, (0, i32::MAX), "multiplier", "an i32 that is not negative")?;
    let shift = int_in(cx, 5, (0, 30), "shift", "0 to 30")? as u32;
    let diff_min = int_in(cx, 6, (i32::MIN, 0), "diff_min", "an i32 that is not positive")?;
    let mut out = cx.out(7)?;
    out.resize(x.sizes()).map_err(|e| e.arg(7))?;
    // Neighbours along the dimension are neighbours in memory.
    if x.size(dim) != 1 && x.strides().get(dim) != Some(&1) {
        return Err(Error::invalid("the dimension must be the innermost one in memory").arg(1));
    }
    check_alike(&out, &x, 7)?;
    let row = x.size(dim);
    let params = Softmax { row, multiplier, shift, diff_min };
    softmax_rows(&params, int8(&x, 0)?, int8_mut(&mut out, 7)?).map_err(mismatch)
}
