//! Distances between rows: `_cdist_forward` between two sets, `_pdist_forward` within one.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor};

use super::gemm::{Layout, MatrixOperand};
use crate::support::number::Number;
use crate::support::real::Real;
use crate::support::runs::runs;
use crate::support::shape::{Walk, broadcast, broadcast_strides};

/// `_cdist_forward.out(Tensor x1, Tensor x2, float p, int? compute_mode, *, Tensor(a!) out)`
pub const CDIST_FORWARD_OUT: Op = Op::new("aten::_cdist_forward.out", 5, cdist_forward);
/// `_pdist_forward.out(Tensor self, float p=2., *, Tensor(a!) out)`
pub const PDIST_FORWARD_OUT: Op = Op::new("aten::_pdist_forward.out", 3, pdist_forward);

pub const OPS: OpGroup = &[CDIST_FORWARD_OUT, PDIST_FORWARD_OUT];

/// Runs `body` with `A` as the accumulator of a floating type.
macro_rules! accumulate_float {
    ($dtype:expr, $A:ident => $body:expr) => {
        match $dtype {
            rushlight_runtime::ScalarType::Double => {
                type $A = f64;
                $body
            }
            rushlight_runtime::ScalarType::Float
            | rushlight_runtime::ScalarType::Half
            | rushlight_runtime::ScalarType::BFloat16 => {
                type $A = f32;
                $body
            }
            got => Err(Detail::Dtype { expected: "f16, bf16, f32 or f64", got }.into()),
        }
    };
}

fn cdist_forward(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, p, mut out) = (cx.tensor(0)?, cx.tensor(1)?, norm(cx, 2)?, cx.out(4)?);
    if let Some(mode) = cx.optional_int(3)?
        && !(0..=2).contains(&mode)
    {
        return Err(Error::from(Detail::Value { what: "compute_mode", expected: "0, 1 or 2", got: mode }).arg(3));
    }
    for (argument, got) in [(1, b.dtype()), (4, out.dtype())] {
        if got != a.dtype() {
            return Err(Error::from(Detail::Dtype { expected: a.dtype().name(), got }).arg(argument));
        }
    }
    let (rows, columns, length) = (matrix(&a, 0)?, matrix(&b, 1)?, a.size(a.rank() - 1));
    if b.size(b.rank() - 1) != length {
        let (dim, expected, got) = (b.rank() - 1, length, b.size(b.rank() - 1));
        return Err(Error::from(Detail::Size { dim, expected, got }).arg(1));
    }
    let (a_batch, b_batch) = (&a.sizes()[..a.rank() - 2], &b.sizes()[..b.rank() - 2]);
    let batch = broadcast(a_batch, b_batch).map_err(|e| e.arg(1))?;
    let mut sizes = batch;
    sizes.push(rows)?;
    sizes.push(columns)?;
    out.resize(&sizes).map_err(|e| e.arg(4))?;
    if out.numel() == 0 {
        return Ok(());
    }
    let a_strides = broadcast_strides(a_batch, &a.strides()[..a.rank() - 2], &batch)?;
    let b_strides = broadcast_strides(b_batch, &b.strides()[..b.rank() - 2], &batch)?;
    let (out_batch, out_matrix) = out.strides().split_at(out.rank() - 2);
    let &[row, col] = out_matrix else { return Ok(()) };
    let mut walk = Walk::new(&batch, [&a_strides, &b_strides, out_batch])?;
    let layout = |tensor: &Tensor<'_>, offset: usize| {
        let mut last = tensor.strides().iter().rev();
        let col = last.next().copied().unwrap_or(0);
        Layout { offset, row: last.next().copied().unwrap_or(0), col }
    };
    accumulate_float!(a.dtype(), A => {
        let store = runs::<A>(a.dtype())?.store;
        loop {
            let [a_offset, b_offset, out_offset] = walk.offsets;
            let x = MatrixOperand::<A>::new(a, layout(&a, a_offset))?;
            let y = MatrixOperand::<A>::new(b, layout(&b, b_offset))?;
            let mut buffers = [[A::ZERO; CHUNK]; 2];
            for i in 0..rows {
                for j in (0..columns).step_by(CHUNK) {
                    let mut distances = [A::ZERO; CHUNK];
                    let distances = &mut distances[..CHUNK.min(columns - j)];
                    for (j, value) in (j..).zip(distances.iter_mut()) {
                        *value = distance((&x, i), (&y, j), length, p, &mut buffers)?;
                    }
                    store(&mut out, out_offset + i * row + j * col, col, distances)?;
                }
            }
            if !walk.next() {
                return Ok(());
            }
        }
    })
}

fn pdist_forward(cx: &KernelContext<'_>) -> Result<()> {
    let (input, p, mut out) = (cx.tensor(0)?, norm(cx, 1)?, cx.out(2)?);
    let &[rows, length] = input.sizes() else {
        return Err(Error::from(Detail::Rank { expected: "2", got: input.rank() }).arg(0));
    };
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(2));
    }
    let pairs = if rows % 2 == 0 { (rows / 2).checked_mul(rows.saturating_sub(1)) } else { rows.checked_mul(rows / 2) };
    let pairs = pairs.ok_or_else(|| Error::invalid("the number of pairs overflows").arg(0))?;
    out.resize(&[pairs]).map_err(|e| e.arg(2))?;
    let &[row, col] = input.strides() else { return Ok(()) };
    accumulate_float!(input.dtype(), A => {
        let store = runs::<A>(input.dtype())?.store;
        let x = MatrixOperand::<A>::new(input, Layout { offset: 0, row, col })?;
        let (mut place, mut buffers) = (0, [[A::ZERO; CHUNK]; 2]);
        for i in 0..rows {
            for j in (i + 1..rows).step_by(CHUNK) {
                let mut distances = [A::ZERO; CHUNK];
                let distances = &mut distances[..CHUNK.min(rows - j)];
                for (j, value) in (j..).zip(distances.iter_mut()) {
                    *value = distance((&x, i), (&x, j), length, p, &mut buffers)?;
                }
                store(&mut out, place, 1, distances)?;
                place += distances.len();
            }
        }
        Ok(())
    })
}

/// Number of rows; fails below rank 2.
fn matrix(tensor: &Tensor<'_>, argument: usize) -> Result<usize> {
    match tensor.sizes() {
        [.., rows, _] => Ok(*rows),
        _ => Err(Error::from(Detail::Rank { expected: "at least 2", got: tensor.rank() }).arg(argument)),
    }
}

/// The norm that is the distance.
#[derive(Clone, Copy)]
enum Norm {
    /// Differing elements.
    Zero,
    One,
    Two,
    Infinity,
    P(f64),
}

fn norm(cx: &KernelContext<'_>, argument: usize) -> Result<Norm> {
    let p = cx.double(argument)?;
    match p {
        0.0 => Ok(Norm::Zero),
        1.0 => Ok(Norm::One),
        2.0 => Ok(Norm::Two),
        f64::INFINITY => Ok(Norm::Infinity),
        p if p > 0.0 => Ok(Norm::P(p)),
        got => Err(Error::from(Detail::Number { what: "p", expected: "at least 0", got }).arg(argument)),
    }
}

/// Distances that are written at once, and elements of rows that are read at once.
const CHUNK: usize = 64;

/// Sums that are kept side by side.
const LANES: usize = 8;

/// Between row `i` of `x` and row `j` of `y`. The buffers hold what does not lie in memory as it is needed.
#[inline(always)]
fn distance<A: Real>(
    (x, i): (&MatrixOperand<'_, A>, usize),
    (y, j): (&MatrixOperand<'_, A>, usize),
    length: usize,
    norm: Norm,
    [a, b]: &mut [[A; CHUNK]; 2],
) -> Result<A> {
    if let (Norm::Two, Some(a), Some(b)) = (norm, x.row_in_place(i, length), y.row_in_place(j, length)) {
        return Ok(squares(a, b).sqrt());
    }
    let mut lanes = [A::ZERO; LANES];
    for k in (0..length).step_by(CHUNK) {
        let count = CHUNK.min(length - k);
        let (a, b) = (x.run(i, k, &mut a[..count])?, y.run(j, k, &mut b[..count])?);
        match norm {
            Norm::Zero => add(&mut lanes, a, b, |sum, d| sum.add(if d == A::ZERO { A::ZERO } else { A::ONE })),
            Norm::One => add(&mut lanes, a, b, |sum, d| sum.add(d.abs())),
            Norm::Two => add(&mut lanes, a, b, |sum, d| sum.add(d.mul(d))),
            Norm::Infinity => add(&mut lanes, a, b, larger),
            Norm::P(p) => add(&mut lanes, a, b, |sum, d| sum.add(d.abs().powf(A::from_f64(p)))),
        }
    }
    // Halves are folded together, so that the steps do not wait for each other.
    for half in [LANES / 2, LANES / 4, LANES / 8] {
        let (low, high) = lanes.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            *low = if matches!(norm, Norm::Infinity) { larger(*low, *high) } else { low.add(*high) };
        }
    }
    let total = lanes[0];
    Ok(match norm {
        Norm::Two => total.sqrt(),
        Norm::P(p) => total.powf(A::from_f64(1.0 / p)),
        _ => total,
    })
}

/// The sum of the squared differences.
#[inline(never)]
fn squares<A: Real>(a: &[A], b: &[A]) -> A {
    let mut lanes = [A::ZERO; LANES];
    add(&mut lanes, a, b, |sum, d| sum.add(d.mul(d)));
    let [a, b, c, d, e, f, g, h] = lanes;
    let [a, b, c, d] = [a.add(e), b.add(f), c.add(g), d.add(h)];
    a.add(c).add(b.add(d))
}

/// The larger magnitude; NaN if there is one.
#[inline(always)]
fn larger<A: Real>(largest: A, difference: A) -> A {
    let magnitude = difference.abs();
    if magnitude > largest || Number::is_nan(magnitude) { magnitude } else { largest }
}

#[inline(always)]
fn add<A: Real, const N: usize>(lanes: &mut [A; N], a: &[A], b: &[A], combine: impl Fn(A, A) -> A) {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<N>(), b.as_chunks::<N>());
    for (a, b) in a.iter().zip(b) {
        for l in 0..N {
            lanes[l] = combine(lanes[l], a[l].sub(b[l]));
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane = combine(*lane, a.sub(*b));
    }
}
