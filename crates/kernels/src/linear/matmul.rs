//! `mm`, `bmm` and other matmuls of two or three dimensions.

use half::f16;
use rushlight_runtime::{
    Complex, Detail, Element, Error, KernelContext, MAX_RANK, Op, OpGroup, Result, ScalarType, Tensor, TensorMut,
};

use super::gemm::{Addend, GemmShape, Layout, MatrixOperand, gemm};
use crate::support::number::{Arithmetic, Number};
use crate::support::runs::Accumulator;
use crate::support::shape::{broadcast_strides, numel};

/// `mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out)`
pub const MM_OUT: Op = Op::new("aten::mm.out", 3, mm_out);
/// `bmm.out(Tensor self, Tensor mat2, *, Tensor(a!) out)`
pub const BMM_OUT: Op = Op::new("aten::bmm.out", 3, bmm_out);
/// `addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out)`
pub const ADDMM_OUT: Op = Op::new("aten::addmm.out", 6, addmm_out);
/// `linear.out(Tensor input, Tensor weight, Tensor? bias=None, *, Tensor(a!) out)`
pub const LINEAR_OUT: Op = Op::new("aten::linear.out", 4, linear_out);

pub const PORTABLE: OpGroup = &[MM_OUT, BMM_OUT, ADDMM_OUT];
pub const OPTIMIZED: OpGroup = &[LINEAR_OUT];

fn mm_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(2)?);
    let shape = matrices(a, b, [0, 1])?;
    same_dtype(&a, &[(1, b.dtype()), (2, out.dtype())])?;
    out.resize(&[shape.m, shape.n]).map_err(|e| e.arg(2))?;
    let layout = layout(out.strides(), 0);
    accumulate!(a.dtype(), A => {
        let (a, b) = (MatrixOperand::new(a, self::layout(a.strides(), 0))?, MatrixOperand::new(b, self::layout(b.strides(), 0))?);
        gemm(shape, A::ONE, a, b, Addend::None, &mut out, layout)
    })
}

fn addmm_out(cx: &KernelContext<'_>) -> Result<()> {
    let (bias, a, b) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let (beta, alpha, mut out) = (cx.scalar(3)?, cx.scalar(4)?, cx.out(5)?);
    let shape = matrices(a, b, [1, 2])?;
    same_dtype(&bias, &[(1, a.dtype()), (2, b.dtype()), (5, out.dtype())])?;
    out.resize(&[shape.m, shape.n]).map_err(|e| e.arg(5))?;
    let stretched = broadcast_strides(bias.sizes(), bias.strides(), out.sizes()).map_err(|e| e.arg(0))?;
    let layout = layout(out.strides(), 0);
    accumulate!(a.dtype(), A => {
        let (alpha, beta) = (A::from_scalar(alpha), A::from_scalar(beta));
        let addend = if beta == A::ZERO {
            Addend::None
        } else {
            Addend::Matrix(beta, MatrixOperand::new(bias, self::layout(&stretched, 0))?)
        };
        let (a, b) = (MatrixOperand::new(a, self::layout(a.strides(), 0))?, MatrixOperand::new(b, self::layout(b.strides(), 0))?);
        gemm(shape, alpha, a, b, addend, &mut out, layout)
    })
}

fn bmm_out(cx: &KernelContext<'_>) -> Result<()> {
    let (a, b, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.out(2)?);
    let ([batch, m, k], [b_batch, b_k, n]) = (sizes(a, "3", 0)?, sizes(b, "3", 1)?);
    same_dtype(&a, &[(1, b.dtype()), (2, out.dtype())])?;
    for (dim, expected, got) in [(0, batch, b_batch), (1, k, b_k)] {
        if expected != got {
            return Err(Error::from(Detail::Size { dim, expected, got }).arg(1));
        }
    }
    out.resize(&[batch, m, n]).map_err(|e| e.arg(2))?;
    let shape = GemmShape { m, k, n };
    match a.dtype() {
        ScalarType::ComplexFloat => return complex_bmm::<f32>(batch, shape, a, b, &mut out),
        ScalarType::ComplexDouble => return complex_bmm::<f64>(batch, shape, a, b, &mut out),
        ScalarType::ComplexHalf => return complex_bmm::<f16>(batch, shape, a, b, &mut out),
        _ => {}
    }
    let [a_layout, b_layout, out_layout] = [a.strides(), b.strides(), out.strides()].map(batched);
    accumulate!(a.dtype(), A => {
        for i in 0..batch {
            let (a, b) = (MatrixOperand::new(a, a_layout(i))?, MatrixOperand::new(b, b_layout(i))?);
            gemm(shape, A::ONE, a, b, Addend::None, &mut out, out_layout(i))?;
        }
        Ok(())
    })
}

fn linear_out(cx: &KernelContext<'_>) -> Result<()> {
    let (input, weight, bias, mut out) = (cx.tensor(0)?, cx.tensor(1)?, cx.optional_tensor(2)?, cx.out(3)?);
    let [n, k] = sizes(weight, "2", 1)?;
    let rank = input.rank();
    let Some((&features, leading)) = input.sizes().split_last() else {
        return Err(Error::from(Detail::Rank { expected: "at least 1", got: 0 }).arg(0));
    };
    same_dtype(&input, &[(1, weight.dtype()), (3, out.dtype())])?;
    if features != k {
        return Err(Error::from(Detail::Size { dim: rank - 1, expected: k, got: features }).arg(0));
    }
    let mut target = [0; MAX_RANK];
    let target = target.get_mut(..rank).ok_or(Detail::Rank { expected: "at most 16", got: rank })?;
    target.copy_from_slice(input.sizes());
    target[rank - 1] = n;
    out.resize(target).map_err(|e| e.arg(3))?;
    if let Some(bias) = &bias {
        same_dtype(&input, &[(2, bias.dtype())])?;
    }
    let m = numel(leading)?;
    let stretched = match &bias {
        Some(bias) => {
            let matrix = [m, n];
            Some(broadcast_strides(bias.sizes(), bias.strides(), &matrix).map_err(|e| e.arg(2))?)
        }
        None => None,
    };
    let (x, y) = (MatrixRows::of(input.sizes(), input.strides()), MatrixRows::of(out.sizes(), out.strides()));
    let w = layout(weight.strides(), 0);
    let w = Layout { offset: 0, row: w.col, col: w.row };
    accumulate!(input.dtype(), A => {
        let weight = MatrixOperand::<A>::new(weight, w)?;
        let whole = x.uniform && y.uniform;
        // Leading dimensions that do not lie evenly in memory are multiplied row by row.
        let (count, m) = if whole { (1, m) } else { (m, 1) };
        for i in 0..count {
            let (from, to) = (x.layout(i), y.layout(i));
            let addend = match (&bias, &stretched) {
                (Some(bias), Some(strides)) => {
                    let base = layout(strides, 0);
                    let offset = i * base.row;
                    Addend::Matrix(A::ONE, MatrixOperand::new(*bias, Layout { offset, ..base })?)
                }
                _ => Addend::None,
            };
            gemm(GemmShape { m, k, n }, A::ONE, MatrixOperand::new(input, from)?, weight, addend, &mut out, to)?;
        }
        Ok(())
    })
}

/// The leading dimensions of a tensor as the rows of a matrix.
struct MatrixRows {
    sizes: [usize; MAX_RANK],
    strides: [usize; MAX_RANK],
    leading: usize,
    /// The rows are equally far apart.
    uniform: bool,
    row: usize,
    col: usize,
}

impl MatrixRows {
    fn of(sizes: &[usize], strides: &[usize]) -> Self {
        let leading = sizes.len().saturating_sub(1);
        let mut rows = Self { sizes: [1; MAX_RANK], strides: [0; MAX_RANK], leading, uniform: true, row: 0, col: 1 };
        rows.col = strides.last().copied().unwrap_or(1);
        let mut expected = None;
        for i in (0..leading).rev() {
            (rows.sizes[i], rows.strides[i]) = (sizes[i], strides[i]);
            if sizes[i] == 1 {
                continue;
            }
            match expected {
                None => rows.row = strides[i],
                Some(stride) => rows.uniform &= stride == strides[i],
            }
            expected = Some(strides[i].wrapping_mul(sizes[i]));
        }
        rows
    }

    /// The matrix from row `i` on.
    fn layout(&self, i: usize) -> Layout {
        let (mut rest, mut offset) = (i, 0usize);
        for dim in (0..self.leading).rev() {
            offset += rest % self.sizes[dim].max(1) * self.strides[dim];
            rest /= self.sizes[dim].max(1);
        }
        Layout { offset, row: self.row, col: self.col }
    }
}

/// Checks two matrices that are multiplied, which are the given arguments.
fn matrices(a: Tensor<'_>, b: Tensor<'_>, arguments: [usize; 2]) -> Result<GemmShape> {
    let ([m, k], [expected, n]) = (sizes(a, "2", arguments[0])?, sizes(b, "2", arguments[1])?);
    if k != expected {
        return Err(Error::from(Detail::Size { dim: 0, expected: k, got: expected }).arg(arguments[1]));
    }
    Ok(GemmShape { m, k, n })
}

pub(super) fn sizes<const N: usize>(tensor: Tensor<'_>, rank: &'static str, argument: usize) -> Result<[usize; N]> {
    tensor
        .sizes()
        .try_into()
        .map_err(|_| Error::from(Detail::Rank { expected: rank, got: tensor.rank() }).arg(argument))
}

pub(super) fn same_dtype(tensor: &Tensor<'_>, others: &[(usize, ScalarType)]) -> Result<()> {
    for &(argument, got) in others {
        if got != tensor.dtype() {
            return Err(Error::from(Detail::Dtype { expected: tensor.dtype().name(), got }).arg(argument));
        }
    }
    Ok(())
}

/// The last two dimensions as a matrix; a missing dimension counts as stretched.
pub(super) fn layout(strides: &[usize], offset: usize) -> Layout {
    let mut last = strides.iter().rev().copied();
    let col = last.next().unwrap_or(0);
    Layout { offset, row: last.next().unwrap_or(0), col }
}

pub(super) fn batched(strides: &[usize]) -> impl Fn(usize) -> Layout + use<> {
    let (first, matrix) = (strides.first().copied().unwrap_or(0), layout(strides, 0));
    move |i| Layout { offset: i * first, ..matrix }
}

fn complex_bmm<T: Number>(
    batch: usize,
    shape: GemmShape,
    a: Tensor<'_>,
    b: Tensor<'_>,
    out: &mut TensorMut<'_>,
) -> Result<()>
where
    T::Acc: Accumulator,
    Complex<T>: Element,
{
    let [a_layout, b_layout, out_layout] = [a.strides(), b.strides(), out.strides()].map(batched);
    let (a, b, out) = (a.as_slice::<Complex<T>>()?, b.as_slice::<Complex<T>>()?, out.as_mut_slice::<Complex<T>>()?);
    let at = |layout: Layout, i: usize, j: usize| layout.offset + i * layout.row + j * layout.col;
    for q in 0..batch {
        for i in 0..shape.m {
            for j in 0..shape.n {
                let (mut re, mut im) = (<T::Acc as Number>::ZERO, <T::Acc as Number>::ZERO);
                for p in 0..shape.k {
                    let (x, y) = (a[at(a_layout(q), i, p)], b[at(b_layout(q), p, j)]);
                    let (xr, xi, yr, yi) = (x.re.to_acc(), x.im.to_acc(), y.re.to_acc(), y.im.to_acc());
                    re = re.add(xr.mul(yr).sub(xi.mul(yi)));
                    im = im.add(xr.mul(yi).add(xi.mul(yr)));
                }
                out[at(out_layout(q), i, j)] = Complex { re: T::from_acc(re), im: T::from_acc(im) };
            }
        }
    }
    Ok(())
}
