//! Loops over pairs of int8 elements.

use rushlight_runtime::{KernelContext, Result};

use super::params::{int8, int8_mut};
use crate::support::shape::{Dims, Walk, broadcast, broadcast_strides};

/// Applies `f` to the elements of the tensors at arguments `a` and `b`, broadcast to one shape.
pub(super) fn binary(cx: &KernelContext<'_>, a: usize, b: usize, out: usize, f: impl Fn(i8, i8) -> i8) -> Result<()> {
    if let Some((x, y, z)) = cx.alike::<i8>(a, b, out) {
        for ((z, &x), &y) in z.iter_mut().zip(x).zip(y) {
            *z = f(x, y);
        }
        return Ok(());
    }
    let (x, y, mut target) = (cx.tensor(a)?, cx.tensor(b)?, cx.out(out)?);
    let sizes = broadcast(x.sizes(), y.sizes())?;
    target.resize(&sizes).map_err(|e| e.arg(out))?;
    let strides = Dims::from_slice(target.strides())?;
    let along =
        [broadcast_strides(x.sizes(), x.strides(), &sizes)?, broadcast_strides(y.sizes(), y.strides(), &sizes)?];
    let (x, y, z) = (int8(&x, a)?, int8(&y, b)?, int8_mut(&mut target, out)?);
    if z.is_empty() {
        return Ok(());
    }
    let mut walk = Walk::new(&sizes, [&along[0], &along[1], &strides])?;
    loop {
        let [i, j, k] = walk.offsets;
        z[k] = f(x[i], y[j]);
        if !walk.next() {
            return Ok(());
        }
    }
}
