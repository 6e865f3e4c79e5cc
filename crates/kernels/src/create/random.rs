//! Random tensors and dropout.
//!
//! The numbers are not those of PyTorch for the same seed; their distributions are. They are not for cryptography.

use half::{bf16, f16};
use rushlight_runtime::{Bool8, Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, TensorMut};

use super::fill::resize;
use crate::support::copy::{StridedCopy, same_dtype};
use crate::support::number::Number;
pub use crate::support::random::set_seed;
use crate::support::random::{NORMALS, Random};
use crate::support::shape::{Dims, Walk};

/// `aten::rand.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)`. Uniform on [0, 1).
pub const RAND_OUT: Op = Op::new("aten::rand.out", 2, rand);

/// `aten::randn.out(SymInt[] size, *, Tensor(a!) out) -> Tensor(a!)`. Standard normal.
pub const RANDN_OUT: Op = Op::new("aten::randn.out", 2, randn);

/// `aten::native_dropout.out(Tensor input, float p, bool? train, *, Tensor(a!) out0, Tensor(b!) out1) ->
/// (Tensor(a!), Tensor(b!))`. Keeps elements with probability `1 - p`, scaled by its inverse; `out1` is the mask.
pub const NATIVE_DROPOUT_OUT: Op = Op::new("aten::native_dropout.out", 5, native_dropout).outs(2);

/// `aten::randperm.out(SymInt n, *, Tensor(a!) out) -> Tensor(a!)`
pub const RANDPERM_OUT: Op = Op::new("aten::randperm.out", 2, |cx| randperm(cx, 1));

/// Random tensors.
pub const OPS: OpGroup = &[RAND_OUT, RANDN_OUT, NATIVE_DROPOUT_OUT];

/// Permutations, which ExecuTorch has no kernel for.
pub const CORE_ATEN_OPS: OpGroup = &[RANDPERM_OUT];

fn rand(cx: &KernelContext<'_>) -> Result<()> {
    let mut out = cx.out(1)?;
    resize(&mut out, cx.ints(0)?).map_err(|e| e.arg(1))?;
    let mut random = Random::next();
    // The 16-bit floats take as many bits as they can hold, so that none is rounded up to 1.
    match out.dtype() {
        ScalarType::Float => out.as_mut_slice()?.fill_with(|| random.single()),
        ScalarType::Double => out.as_mut_slice()?.fill_with(|| random.double()),
        ScalarType::Half => {
            out.as_mut_slice()?.fill_with(|| f16::from_f32((random.word() >> 21) as f32 / 2048.0));
        }
        ScalarType::BFloat16 => {
            out.as_mut_slice()?.fill_with(|| bf16::from_f32((random.word() >> 24) as f32 / 256.0));
        }
        got => return Err(Error::from(Detail::Dtype { expected: "f16, bf16, f32 or f64", got }).arg(1)),
    }
    Ok(())
}

fn randn(cx: &KernelContext<'_>) -> Result<()> {
    let mut out = cx.out(1)?;
    resize(&mut out, cx.ints(0)?).map_err(|e| e.arg(1))?;
    let mut random = Random::next();
    if out.dtype() == ScalarType::Double {
        for pair in out.as_mut_slice::<f64>()?.chunks_mut(2) {
            pair.copy_from_slice(&random.double_normals()[..pair.len()]);
        }
        return Ok(());
    }
    dispatch!(FLOATHBF16, out.dtype(), T => {
        for tile in out.as_mut_slice::<T>()?.chunks_mut(NORMALS) {
            tile.iter_mut().zip(random.normals()).for_each(|(x, normal)| *x = T::from_f32(normal));
        }
        Ok(())
    })
    .map_err(|e: Error| e.arg(1))
}

fn native_dropout(cx: &KernelContext<'_>) -> Result<()> {
    let (input, p, train) = (cx.tensor(0)?, cx.double(1)?, cx.optional_bool(2)?.unwrap_or(true));
    let (mut out, mut mask) = (cx.out(3)?, cx.out(4)?);
    if !(0.0..=1.0).contains(&p) {
        let expected = "a probability";
        return Err(Error::from(Detail::Number { what: "p", expected, got: p }).arg(1));
    }
    same_dtype(input.dtype(), &out, 3)?;
    // Eager PyTorch's mask of an empty tensor has the tensor's type.
    if input.numel() > 0 || mask.dtype() != input.dtype() {
        same_dtype(ScalarType::Bool, &mask, 4)?;
    }
    out.resize(input.sizes()).map_err(|e| e.arg(3))?;
    mask.resize(input.sizes()).map_err(|e| e.arg(4))?;
    StridedCopy::of(input.sizes(), out.strides(), input.strides()).run(&mut out, input)?;
    if !train || input.numel() == 0 {
        mask.bytes_mut().fill(1);
        return Ok(());
    }
    let threshold = (p * 4_294_967_296.0) as u64;
    let mut random = Random::next();
    mask.bytes_mut().fill_with(|| u8::from(u64::from(random.word()) >= threshold));
    let scale = if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
    dispatch!(FLOATHBF16, out.dtype(), T => drop_elements::<T>(&mut out, &mask, scale)).map_err(|e| e.arg(0))
}

/// Multiplies by the mask and the scale, so that NaN and infinity are kept.
fn drop_elements<T: Number>(out: &mut TensorMut<'_>, mask: &TensorMut<'_>, scale: f64) -> Result<()> {
    let kept = |x: T, keep: Bool8| T::from_f64(x.to_f64() * keep.to_f64() * scale);
    let (sizes, strides) = (Dims::from_slice(out.sizes())?, Dims::from_slice(out.strides())?);
    let (mask, mask_strides) = (mask.as_tensor().as_slice::<Bool8>()?, mask.strides());
    let out = out.as_mut_slice::<T>()?;
    if *strides == *mask_strides {
        out.iter_mut().zip(mask).for_each(|(x, &keep)| *x = kept(*x, keep));
        return Ok(());
    }
    let mut walk = Walk::new(&sizes, [&strides, mask_strides])?;
    for _ in 0..out.len() {
        let [at, flag] = walk.offsets;
        out[at] = kept(out[at], mask[flag]);
        walk.next();
    }
    Ok(())
}

fn randperm(cx: &KernelContext<'_>, out: usize) -> Result<()> {
    let (n, argument, mut out) = (cx.int(0)?, out, cx.out(out)?);
    let bad = Error::from(Detail::Value { what: "n", expected: "not negative", got: n }).arg(0);
    out.resize(&[usize::try_from(n).map_err(|_| bad)?]).map_err(|e| e.arg(argument))?;
    let mut random = Random::next();
    dispatch!(REALHBF16, out.dtype(), T => {
        let out = out.as_mut_slice::<T>()?;
        if T::from_i64(n - 1).to_i64() != n - 1 && n > 0 {
            let expected = "a count that the tensor's type can hold";
            return Err(Error::from(Detail::Value { what: "n", expected, got: n }).arg(0));
        }
        // The inside-out shuffle of Fisher and Yates.
        for i in 0..out.len() {
            let j = random.below(i as u64 + 1) as usize;
            out[i] = out[j];
            out[j] = T::from_i64(i as i64);
        }
        Ok(())
    })
    .map_err(|e: Error| e.arg(argument))
}
