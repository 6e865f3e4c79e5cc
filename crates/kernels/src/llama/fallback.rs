//! The identity that stands for operators without a kernel in demonstrations.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result};

/// `llama::fallback.out(Tensor input, *, Tensor(a!) out) -> Tensor(a!)`: a copy.
pub const FALLBACK_OUT: Op = Op::new("llama::fallback.out", 2, fallback);

pub const OPS: &[Op] = &[FALLBACK_OUT];

fn fallback(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let mut out = cx.out(1)?;
    out.resize(input.sizes()).map_err(|e| e.arg(1))?;
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(1));
    }
    if out.strides() != input.strides() {
        return Err(Error::invalid("the output must have the memory order of the input").arg(1));
    }
    out.bytes_mut().copy_from_slice(input.bytes());
    Ok(())
}
