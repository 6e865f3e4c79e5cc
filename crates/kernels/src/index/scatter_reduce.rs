//! Scatters that combine elements with the same index.

use rushlight_runtime::{Bool8, Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use super::gather::{IndexedDim, check_source};
use super::select::copy_input;
use crate::support::number::{Arithmetic, Number};
use crate::support::shape::Dims;

/// `aten::scatter_add.out(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out) -> Tensor(a!)`
pub const SCATTER_ADD_OUT: Op = Op::new("aten::scatter_add.out", 5, scatter_add).temp(sums_bytes);

/// `aten::scatter_reduce.two_out(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool
/// include_self=True, Tensor(a!) out) -> Tensor(a!)`
pub const SCATTER_REDUCE_TWO_OUT: Op =
    Op::new("aten::scatter_reduce.two_out", 7, scatter_reduce).temp(sums_and_counts_bytes);

/// Adding up.
pub const OPS: OpGroup = &[SCATTER_ADD_OUT];

/// Reductions that ExecuTorch has no kernel for.
pub const CORE_ATEN_OPS: OpGroup = &[SCATTER_REDUCE_TWO_OUT];

fn scatter_add(cx: &KernelContext<'_>) -> Result<()> {
    reduce(cx, Reduction::Sum, true, cx.out(4)?, 4)
}

fn scatter_reduce(cx: &KernelContext<'_>) -> Result<()> {
    let reduction = match cx.string(4)? {
        "sum" => Reduction::Sum,
        "prod" => Reduction::Product,
        "mean" => Reduction::Mean,
        "amax" => Reduction::Max,
        "amin" => Reduction::Min,
        _ => return Err(Error::invalid("reduce must be sum, prod, mean, amax or amin").arg(4)),
    };
    reduce(cx, reduction, cx.bool(5)?, cx.out(6)?, 6)
}

/// 16-bit floats are summed in `f32`, as PyTorch does.
fn sums_bytes(cx: &KernelContext<'_>) -> Result<usize> {
    let input = cx.tensor(0)?;
    let is_half = matches!(input.dtype(), ScalarType::Half | ScalarType::BFloat16);
    Ok(if is_half { input.numel().saturating_mul(4).saturating_add(16) } else { 0 })
}

/// A mean also counts the elements of each sum.
fn sums_and_counts_bytes(cx: &KernelContext<'_>) -> Result<usize> {
    let counts = if cx.string(4)? == "mean" { cx.tensor(0)?.numel().saturating_mul(4).saturating_add(16) } else { 0 };
    Ok(sums_bytes(cx)?.saturating_add(counts))
}

#[derive(Clone, Copy, PartialEq)]
enum Reduction {
    Sum,
    Product,
    Mean,
    Max,
    Min,
}

fn reduce(
    cx: &KernelContext<'_>,
    reduction: Reduction,
    include_self: bool,
    mut out: TensorMut<'_>,
    argument: usize,
) -> Result<()> {
    let (input, index, src) = (cx.tensor(0)?, cx.tensor(2)?, cx.tensor(3)?);
    copy_input(&mut out, input, argument)?;
    let strides = Dims::from_slice(out.strides())?;
    let along = IndexedDim::new(cx, input.sizes(), &strides)?;
    check_source(input.dtype(), &index, &src)?;
    let job = Job { reduction, include_self, along, index, src };
    match input.dtype() {
        ScalarType::Half => job.run_widened::<half::f16>(cx, &mut out),
        ScalarType::BFloat16 => job.run_widened::<half::bf16>(cx, &mut out),
        ScalarType::Bool => job.run::<Bool8, Bool8>(cx, out.as_mut_slice()?),
        dtype => dispatch!(REAL, dtype, T => job.run::<T, T>(cx, out.as_mut_slice()?)),
    }
}

struct Job<'a> {
    reduction: Reduction,
    include_self: bool,
    along: IndexedDim,
    index: Tensor<'a>,
    src: Tensor<'a>,
}

impl Job<'_> {
    /// Reduces in `f32` and rounds once.
    fn run_widened<T: Number<Acc = f32>>(&self, cx: &KernelContext<'_>, out: &mut TensorMut<'_>) -> Result<()> {
        let out = out.as_mut_slice::<T>()?;
        let sums = cx.temp::<f32>(out.len())?;
        sums.iter_mut().zip(&*out).for_each(|(sum, &x)| *sum = x.to_acc());
        self.run::<T, f32>(cx, sums)?;
        out.iter_mut().zip(&*sums).for_each(|(x, &sum)| *x = T::from_acc(sum));
        Ok(())
    }

    /// Reduces elements of type `T` into `A`s, which hold `self` at the start.
    fn run<T: Number<Acc = A::Acc>, A: Number>(&self, cx: &KernelContext<'_>, sums: &mut [A]) -> Result<()> {
        let src = self.src.as_slice::<T>()?;
        let strides = self.src.strides();
        if !self.include_self {
            let start = self.neutral::<A>();
            self.along.walk(&self.index, strides, |to, _| sums[to] = start)?;
        }
        match self.reduction {
            Reduction::Sum | Reduction::Mean => self.combine(sums, src, Arithmetic::add)?,
            Reduction::Product => self.combine(sums, src, Arithmetic::mul)?,
            Reduction::Max => self.combine(sums, src, |a, b| if b.is_nan() || a < b { b } else { a })?,
            Reduction::Min => self.combine(sums, src, |a, b| if b.is_nan() || b < a { b } else { a })?,
        }
        if self.reduction == Reduction::Mean {
            if T::DTYPE == ScalarType::Bool {
                let detail = Detail::Dtype { expected: "an integer or floating type", got: T::DTYPE };
                return Err(Error::from(detail).arg(0));
            }
            self.divide::<T, A>(cx, sums)?;
        }
        Ok(())
    }

    fn combine<T: Number<Acc = A::Acc>, A: Number>(
        &self,
        sums: &mut [A],
        src: &[T],
        op: impl Fn(A::Acc, A::Acc) -> A::Acc,
    ) -> Result<()> {
        self.along.walk(&self.index, self.src.strides(), |to, from| {
            sums[to] = A::from_acc(op(sums[to].to_acc(), src[from].to_acc()));
        })
    }

    /// Divides each sum by the number of elements in it; integers round down.
    fn divide<T: Number<Acc = A::Acc>, A: Number>(&self, cx: &KernelContext<'_>, sums: &mut [A]) -> Result<()> {
        let counts = cx.temp::<u32>(sums.len())?;
        self.count(counts)?;
        for (sum, &count) in sums.iter_mut().zip(&*counts) {
            let count = i64::from(count) + i64::from(self.include_self);
            if count > 1 {
                *sum = if A::IS_FLOAT {
                    A::from_f64(T::from_acc(sum.to_acc()).to_f64() / count as f64)
                } else {
                    A::from_i64(sum.to_i64().div_euclid(count))
                };
            }
        }
        Ok(())
    }

    fn count(&self, counts: &mut [u32]) -> Result<()> {
        self.along.walk(&self.index, self.src.strides(), |to, _| counts[to] = counts[to].saturating_add(1))
    }

    /// The value that leaves the other operand of the reduction as it is.
    fn neutral<A: Number>(&self) -> A {
        match self.reduction {
            Reduction::Sum | Reduction::Mean => A::ZERO,
            Reduction::Product => A::ONE,
            Reduction::Max if A::IS_FLOAT => A::from_f64(f64::NEG_INFINITY),
            Reduction::Min if A::IS_FLOAT => A::from_f64(f64::INFINITY),
            Reduction::Max => lowest(),
            Reduction::Min => highest(),
        }
    }
}

fn lowest<A: Number>() -> A {
    match A::DTYPE {
        ScalarType::Byte | ScalarType::Bool => A::ZERO,
        _ => A::from_i64(-1 << (8 * size_of::<A>() - 1).min(63)),
    }
}

fn highest<A: Number>() -> A {
    match A::DTYPE {
        ScalarType::Byte => A::from_i64(255),
        ScalarType::Bool => A::ONE,
        _ => A::from_i64(!(-1 << (8 * size_of::<A>() - 1).min(63))),
    }
}
