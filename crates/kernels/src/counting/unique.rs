//! Distinct elements or slices of a tensor, with their positions and counts.

use core::cmp::Ordering;

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use super::key::{Keys, offset_of};
use crate::support::shape::{Dims, normalize_dim, numel};

/// `_unique2.out(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False, *, Tensor(a!) out0,
/// Tensor(b!) out1, Tensor(c!) out2)`. The elements are sorted even without `sorted`.
pub const UNIQUE2_OUT: Op = Op::new("aten::_unique2.out", 7, unique2).outs(3).temp(temp);
/// `unique_dim.out(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False, *, Tensor(a!) out0,
/// Tensor(b!) out1, Tensor(c!) out2)`
pub const UNIQUE_DIM_OUT: Op = Op::new("aten::unique_dim.out", 8, unique_dim).outs(3).temp(temp);
/// `unique_consecutive.out(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None, *, Tensor(a!) out0,
/// Tensor(b!) out1, Tensor(c!) out2)`
pub const UNIQUE_CONSECUTIVE_OUT: Op =
    Op::new("aten::unique_consecutive.out", 7, unique_consecutive).outs(3).temp(temp);

pub const OPS: OpGroup = &[UNIQUE2_OUT, UNIQUE_DIM_OUT, UNIQUE_CONSECUTIVE_OUT];

/// Temporary memory: 8 bytes for each element.
fn temp(cx: &KernelContext<'_>) -> Result<usize> {
    Ok(cx.tensor(0)?.numel().saturating_mul(8).saturating_add(64))
}

fn unique2(cx: &KernelContext<'_>) -> Result<()> {
    let slices = Slices::new(cx.tensor(0)?, None)?;
    unique(cx, &slices, Wanted { sorted: true, inverse: cx.bool(2)?, counts: cx.bool(3)?, first: 4 })
}

fn unique_dim(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let dim = normalize_dim(cx.int(1)?, input.rank()).map_err(|e| e.arg(1))?;
    let slices = Slices::new(input, Some(dim))?;
    // PyTorch returns the inverse and the counts even if they are not requested.
    unique(cx, &slices, Wanted { sorted: true, inverse: true, counts: true, first: 5 })
}

fn unique_consecutive(cx: &KernelContext<'_>) -> Result<()> {
    let input = cx.tensor(0)?;
    let rank = input.rank();
    let dim = cx.optional_int(3)?.map(|dim| normalize_dim(dim, rank)).transpose().map_err(|e| e.arg(3))?;
    let slices = Slices::new(input, dim.filter(|_| rank > 0))?;
    let all = dim.is_some();
    unique(cx, &slices, Wanted { sorted: false, inverse: all || cx.bool(1)?, counts: all || cx.bool(2)?, first: 4 })
}

/// The elements of a tensor in row-major order, or its slices along a dimension.
struct Slices<'a> {
    input: Tensor<'a>,
    keys: Keys<'a>,
    dim: Option<usize>,
    count: usize,
    /// Elements of a slice, and the tensor's other sizes and strides.
    len: usize,
    sizes: Dims,
    strides: Dims,
}

impl<'a> Slices<'a> {
    fn new(input: Tensor<'a>, dim: Option<usize>) -> Result<Self> {
        let keys = Keys::new(&input).map_err(|e| e.arg(0))?;
        let (mut sizes, mut strides) = (Dims::EMPTY, Dims::EMPTY);
        for at in (0..input.rank()).filter(|at| dim.is_none() || dim != Some(*at)) {
            sizes.push(input.size(at))?;
            strides.push(input.strides().get(at).copied().unwrap_or(0))?;
        }
        let (count, len) = match dim {
            Some(dim) => (input.size(dim), numel(&sizes)?),
            None => (input.numel(), 1),
        };
        Ok(Self { input, keys, dim, count, len, sizes, strides })
    }

    /// Offset of element `inner` of a slice.
    fn offset(&self, slice: usize, inner: usize) -> usize {
        match self.dim {
            Some(dim) => slice * self.input.strides()[dim] + offset_of(&self.sizes, &self.strides, inner),
            None => offset_of(&self.sizes, &self.strides, slice),
        }
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let key = |slice: usize, inner: usize| self.keys.at(self.offset(slice, inner));
        let orders = (0..self.len).map(|inner| key(a, inner).cmp(&key(b, inner)));
        orders.fold(Ordering::Equal, Ordering::then)
    }

    /// True if they are equal. NaN is equal to nothing.
    fn equal(&self, a: usize, b: usize) -> bool {
        (0..self.len).all(|inner| {
            let key = self.keys.at(self.offset(a, inner));
            key == self.keys.at(self.offset(b, inner)) && !Keys::is_nan(key)
        })
    }
}

/// The requested outputs, and the position of the first.
#[derive(Clone, Copy)]
struct Wanted {
    sorted: bool,
    inverse: bool,
    counts: bool,
    first: usize,
}

fn unique(cx: &KernelContext<'_>, slices: &Slices<'_>, wanted: Wanted) -> Result<()> {
    let first = wanted.first;
    let order = cx.temp::<i64>(slices.count)?;
    order.iter_mut().enumerate().for_each(|(at, slot)| *slot = at as i64);
    if wanted.sorted {
        order.sort_unstable_by(|&a, &b| slices.compare(a as usize, b as usize).then(a.cmp(&b)));
    }
    let starts_new = |order: &[i64], at: usize| at == 0 || !slices.equal(order[at - 1] as usize, order[at] as usize);
    let found = (0..slices.count).filter(|&at| starts_new(order, at)).count();
    let (mut values, mut inverse, mut counts) = (cx.out(first)?, cx.out(first + 1)?, cx.out(first + 2)?);
    if values.dtype() != slices.input.dtype() {
        let expected = slices.input.dtype();
        return Err(Error::from(Detail::ElementType { expected, got: values.dtype() }).arg(first));
    }
    let mut sizes = Dims::EMPTY;
    match slices.dim {
        Some(dim) => {
            sizes = Dims::from_slice(slices.input.sizes())?;
            sizes[dim] = found;
        }
        None => sizes.push(found)?,
    }
    values.resize(&sizes).map_err(|e| e.arg(first))?;
    let places: &[usize] = if slices.dim.is_some() { &[slices.count] } else { slices.input.sizes() };
    let inverse = longs(&mut inverse, if wanted.inverse { places } else { &[0] }, first + 1)?;
    let counts = longs(&mut counts, &[if wanted.counts { found } else { 0 }], first + 2)?;
    let strides = Dims::from_slice(values.strides())?;
    let (own, step) = match slices.dim {
        Some(dim) => {
            let mut own = Dims::EMPTY;
            (0..strides.len()).filter(|&at| at != dim).try_for_each(|at| own.push(strides[at]))?;
            (own, strides[dim])
        }
        None => (Dims::EMPTY, 1),
    };
    let width = slices.input.dtype().size();
    let (from, to) = (slices.input.bytes(), values.bytes_mut());
    let mut number = 0;
    for at in 0..slices.count {
        let slice = order[at] as usize;
        if starts_new(order, at) {
            number += 1;
            for inner in 0..slices.len {
                let source = slices.offset(slice, inner) * width;
                let target = ((number - 1) * step + offset_of(&slices.sizes, &own, inner)) * width;
                let target = if slices.dim.is_some() { target } else { (number - 1) * width };
                if let (Some(to), Some(from)) = (to.get_mut(target..target + width), from.get(source..source + width)) {
                    to.copy_from_slice(from);
                }
            }
        }
        if wanted.inverse
            && let Some(place) = inverse.get_mut(slice)
        {
            *place = number as i64 - 1;
        }
        if wanted.counts
            && let Some(count) = counts.get_mut(number - 1)
        {
            *count += 1;
        }
    }
    Ok(())
}

/// An output of `i64` of these sizes, with zeros.
fn longs<'o>(out: &'o mut TensorMut<'_>, sizes: &[usize], argument: usize) -> Result<&'o mut [i64]> {
    if out.dtype() != ScalarType::Long {
        return Err(Error::from(Detail::ElementType { expected: ScalarType::Long, got: out.dtype() }).arg(argument));
    }
    out.resize(sizes).map_err(|e| e.arg(argument))?;
    if !out.is_contiguous() {
        return Err(Error::invalid("positions are written in row-major order").arg(argument));
    }
    let elements = out.as_mut_slice()?;
    elements.fill(0);
    Ok(elements)
}
