//! Loops over tensors element by element, for any mix of element types, layouts and broadcasts.
//!
//! A kernel is a loop over slices of a compute type ([`map`], [`zip`], [`zip3`] make one from a closure). If all tensors
//! have that type and one layout it runs once over the whole memory; else tile by tile. They are told the
//! types in which PyTorch computes: inputs and results take their precision or wrap to their width where the compute
//! type is wider. Outputs have their final size, and the cast to their type is checked, when these functions are called.

use rushlight_runtime::{KernelContext, Result, ScalarType, Tensor, TensorMut};

use crate::support::promote::check_cast;
use crate::support::shape::broadcast;
use crate::support::tile::{Compute, Cursor, Operand, Sink};

/// Runs `body` with `C` as the compute type of `dtype`, restricted to a family: `REAL` (every real type), `FLOAT`,
/// `INT` (integers and bool) or `COMPLEX`.
macro_rules! compute {
    (REAL, $dtype:expr, $C:ident => $body:expr) => {
        compute!(@ $dtype, "bool, an integer or floating type", $C => $body, [I32 = i32, I64 = i64, F32 = f32, F64 = f64])
    };
    (FLOAT, $dtype:expr, $C:ident => $body:expr) => {
        compute!(@ $dtype, "a floating type", $C => $body, [F32 = f32, F64 = f64])
    };
    (INT, $dtype:expr, $C:ident => $body:expr) => {
        compute!(@ $dtype, "bool or an integer type", $C => $body, [I32 = i32, I64 = i64])
    };
    (COMPLEX, $dtype:expr, $C:ident => $body:expr) => {
        compute!(@ $dtype, "a complex type", $C => $body,
            [C32 = rushlight_runtime::Complex<f32>, C64 = rushlight_runtime::Complex<f64>])
    };
    (@ $dtype:expr, $expected:literal, $C:ident => $body:expr, [$($variant:ident = $t:ty),*]) => {
        match $crate::support::tile::ComputeType::of($dtype)? {
            $($crate::support::tile::ComputeType::$variant => {
                #[allow(dead_code, reason = "some bodies do not name the type")]
                type $C = $t;
                $body
            })*
            #[allow(unreachable_patterns, reason = "a family may be every compute type")]
            _ => Err($crate::support::tile::unsupported($expected, $dtype)),
        }
    };
}

/// A kernel of one input from a function of one element.
#[inline(always)]
pub(crate) fn map<A: Copy, R>(f: impl Fn(A) -> R) -> impl Fn(&[A], &mut [R]) {
    move |a, out| {
        for (out, &a) in out.iter_mut().zip(a) {
            *out = f(a);
        }
    }
}

/// A kernel of two inputs from a function of two elements.
#[inline(always)]
pub(crate) fn zip<A: Copy, B: Copy, R>(f: impl Fn(A, B) -> R) -> impl Fn(&[A], &[B], &mut [R]) {
    move |a, b, out| {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = f(a, b);
        }
    }
}

/// A kernel of three inputs from a function of three elements.
#[inline(always)]
pub(crate) fn zip3<A: Copy, B: Copy, D: Copy, R>(f: impl Fn(A, B, D) -> R) -> impl Fn(&[A], &[B], &[D], &mut [R]) {
    move |a, b, d, out| {
        for (((out, &a), &b), &d) in out.iter_mut().zip(a).zip(b).zip(d) {
            *out = f(a, b, d);
        }
    }
}

/// Takes the output at position `index`, with the sizes of `a`, for results of type `from`.
#[inline(always)]
pub(crate) fn out_like<'c>(
    cx: &'c KernelContext<'_>,
    index: usize,
    a: &Tensor<'_>,
    from: ScalarType,
) -> Result<TensorMut<'c>> {
    let mut out = cx.out(index)?;
    if from != out.dtype() || !same(a.sizes(), out.sizes()) {
        prepare(&mut out, index, a.sizes(), from)?;
    }
    Ok(out)
}

/// Takes the output at position `index`, with the sizes that `a` and `b` broadcast to, for results of type `from`.
#[inline(always)]
pub(crate) fn out_broadcast<'c>(
    cx: &'c KernelContext<'_>,
    index: usize,
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    from: ScalarType,
) -> Result<TensorMut<'c>> {
    let mut out = cx.out(index)?;
    ready_broadcast(&mut out, index, a, b, from)?;
    Ok(out)
}

/// Gives the output the sizes that `a` and `b` broadcast to, for results of type `from`.
#[inline(always)]
pub(crate) fn ready_broadcast(
    out: &mut TensorMut<'_>,
    index: usize,
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    from: ScalarType,
) -> Result<()> {
    if from != out.dtype() || !same(a.sizes(), out.sizes()) || !same(b.sizes(), out.sizes()) {
        prepare_broadcast(out, index, a.sizes(), b.sizes(), from)?;
    }
    Ok(())
}

#[inline(never)]
fn prepare_broadcast(out: &mut TensorMut<'_>, index: usize, a: &[usize], b: &[usize], from: ScalarType) -> Result<()> {
    prepare(out, index, &broadcast(a, b)?, from)
}

#[inline(never)]
fn prepare(out: &mut TensorMut<'_>, index: usize, sizes: &[usize], from: ScalarType) -> Result<()> {
    check_cast(from, out.dtype()).and_then(|()| out.resize(sizes)).map_err(|e| e.arg(index))
}

/// Equality of the short slices that sizes and dim orders are, without a call.
#[inline(always)]
fn same<T: PartialEq>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x == y)
}

/// `out = kernel(a)`; `types` are those in which PyTorch takes `a` and gives results.
#[inline]
pub(crate) fn unary<A: Compute, R: Compute>(
    a: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    types: (ScalarType, ScalarType),
    kernel: &dyn Fn(&[A], &mut [R]),
) -> Result<()> {
    if a.dtype() == A::DTYPE && out.dtype() == R::DTYPE && types == (A::DTYPE, R::DTYPE) && a.has_layout_of(out) {
        kernel(a.as_slice()?, out.as_mut_slice()?);
        return Ok(());
    }
    unary_tiles(a, out, types, kernel)
}

#[inline(never)]
fn unary_tiles<A: Compute, R: Compute>(
    a: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    types: (ScalarType, ScalarType),
    kernel: &dyn Fn(&[A], &mut [R]),
) -> Result<()> {
    let mut cursor = Cursor::NOWHERE;
    let mut a = Operand::<A>::new(a, types.0, out, &mut cursor)?;
    let sink = Sink::<R>::new(types.1, out)?;
    let (mut room_a, mut room) = (None, None);
    tiles(out.numel(), A::TILE.min(R::TILE), |at, len| {
        let a = a.next(&mut room_a, len);
        sink.write(out, &mut room, (at, len), |out| kernel(a, out))
    })
}

/// `out = kernel(a, b)`; `types` are those in which PyTorch takes `a` and `b` and gives results.
#[inline]
pub(crate) fn binary<A: Compute, B: Compute, R: Compute>(
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    types: (ScalarType, ScalarType, ScalarType),
    kernel: &dyn Fn(&[A], &[B], &mut [R]),
) -> Result<()> {
    if a.dtype() == A::DTYPE
        && b.dtype() == B::DTYPE
        && out.dtype() == R::DTYPE
        && types == (A::DTYPE, B::DTYPE, R::DTYPE)
        && a.has_layout_of(out)
        && b.has_layout_of(out)
    {
        kernel(a.as_slice()?, b.as_slice()?, out.as_mut_slice()?);
        return Ok(());
    }
    binary_tiles(a, b, out, types, kernel)
}

/// `out = f(a, b)` for arguments 0 and 1 that are `f32` tensors of the output's layout, which is what programs do most;
/// false, and nothing is done, for others.
#[inline(always)]
pub(crate) fn plain(cx: &KernelContext<'_>, out: usize, f: impl Fn(f32, f32) -> f32) -> bool {
    let Some((a, b, out)) = cx.alike(0, 1, out) else { return false };
    zip(f)(a, b, out);
    true
}

/// `out = kernel(a, b)` for tensors of one-byte integers that all have type `common` and one layout, whose sums and
/// products wrap to the same bits with and without a sign. False, and nothing is done, for others.
#[inline(never)]
pub(crate) fn bytes(
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    common: ScalarType,
    kernel: &dyn Fn(&[u8], &[u8], &mut [u8]),
) -> bool {
    let fits = matches!(common, ScalarType::Byte | ScalarType::Char)
        && [a.dtype(), b.dtype(), out.dtype()] == [common; 3]
        && a.has_layout_of(out)
        && b.has_layout_of(out);
    if fits {
        kernel(a.bytes(), b.bytes(), out.bytes_mut());
    }
    fits
}

#[inline(never)]
fn binary_tiles<A: Compute, B: Compute, R: Compute>(
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    types: (ScalarType, ScalarType, ScalarType),
    kernel: &dyn Fn(&[A], &[B], &mut [R]),
) -> Result<()> {
    let [mut cursor_a, mut cursor_b] = [const { Cursor::NOWHERE }; 2];
    let mut a = Operand::<A>::new(a, types.0, out, &mut cursor_a)?;
    let mut b = Operand::<B>::new(b, types.1, out, &mut cursor_b)?;
    let sink = Sink::<R>::new(types.2, out)?;
    let (mut room_a, mut room_b, mut room) = (None, None, None);
    tiles(out.numel(), A::TILE.min(B::TILE).min(R::TILE), |at, len| {
        let (a, b) = (a.next(&mut room_a, len), b.next(&mut room_b, len));
        sink.write(out, &mut room, (at, len), |out| kernel(a, b, out))
    })
}

/// `out = kernel(a, b, c)`; `types` are those in which PyTorch takes `a`, and `b`, `c` and the results.
#[inline]
pub(crate) fn ternary<A: Compute, B: Compute>(
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    c: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    types: (ScalarType, ScalarType),
    kernel: &dyn Fn(&[A], &[B], &[B], &mut [B]),
) -> Result<()> {
    if a.dtype() == A::DTYPE
        && b.dtype() == B::DTYPE
        && c.dtype() == B::DTYPE
        && out.dtype() == B::DTYPE
        && types == (A::DTYPE, B::DTYPE)
        && a.has_layout_of(out)
        && b.has_layout_of(out)
        && c.has_layout_of(out)
    {
        kernel(a.as_slice()?, b.as_slice()?, c.as_slice()?, out.as_mut_slice()?);
        return Ok(());
    }
    ternary_tiles(a, b, c, out, types, kernel)
}

#[inline(never)]
fn ternary_tiles<A: Compute, B: Compute>(
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    c: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    types: (ScalarType, ScalarType),
    kernel: &dyn Fn(&[A], &[B], &[B], &mut [B]),
) -> Result<()> {
    let [mut cursor_a, mut cursor_b, mut cursor_c] = [const { Cursor::NOWHERE }; 3];
    let mut a = Operand::<A>::new(a, types.0, out, &mut cursor_a)?;
    let mut b = Operand::<B>::new(b, types.1, out, &mut cursor_b)?;
    let mut c = Operand::<B>::new(c, types.1, out, &mut cursor_c)?;
    let sink = Sink::<B>::new(types.1, out)?;
    let (mut room_a, mut room_b, mut room_c, mut room) = (None, None, None, None);
    tiles(out.numel(), A::TILE.min(B::TILE), |at, len| {
        let (a, b, c) = (a.next(&mut room_a, len), b.next(&mut room_b, len), c.next(&mut room_c, len));
        sink.write(out, &mut room, (at, len), |out| kernel(a, b, c, out))
    })
}

/// Calls `each` with the start and length of every tile.
#[inline(always)]
pub(crate) fn tiles(numel: usize, tile: usize, mut each: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
    let mut at = 0;
    while at < numel {
        let len = tile.min(numel - at);
        each(at, len)?;
        at += len;
    }
    Ok(())
}
