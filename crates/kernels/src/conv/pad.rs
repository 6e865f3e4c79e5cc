//! Padding with a constant, by reflection, and by replication of the border.

use half::f16;
use rushlight_runtime::{
    Complex, Detail, Element, Error, IntList, KernelContext, Op, OpGroup, Result, Scalar, ScalarType, Tensor, TensorMut,
};

use super::window::Planes;
use crate::support::number::Number;
use crate::support::shape::{Dims, Walk};

/// `constant_pad_nd.out(Tensor self, SymInt[] pad, Scalar value=0, *, Tensor(a!) out)`
pub const CONSTANT_PAD_ND_OUT: Op = Op::new("aten::constant_pad_nd.out", 4, constant_pad_nd);
/// `reflection_pad1d.out(Tensor self, SymInt[2] padding, *, Tensor(a!) out)`
pub const REFLECTION_PAD1D_OUT: Op = Op::new("aten::reflection_pad1d.out", 3, |cx| border_pad(cx, 1, Border::Reflect));
/// `reflection_pad2d.out(Tensor self, SymInt[4] padding, *, Tensor(a!) out)`
pub const REFLECTION_PAD2D_OUT: Op = Op::new("aten::reflection_pad2d.out", 3, |cx| border_pad(cx, 2, Border::Reflect));
/// `reflection_pad3d.out(Tensor self, SymInt[6] padding, *, Tensor(a!) out)`
pub const REFLECTION_PAD3D_OUT: Op = Op::new("aten::reflection_pad3d.out", 3, |cx| border_pad(cx, 3, Border::Reflect));
/// `replication_pad1d.out(Tensor self, SymInt[2] padding, *, Tensor(a!) out)`
pub const REPLICATION_PAD1D_OUT: Op =
    Op::new("aten::replication_pad1d.out", 3, |cx| border_pad(cx, 1, Border::Replicate));
/// `replication_pad2d.out(Tensor self, SymInt[4] padding, *, Tensor(a!) out)`
pub const REPLICATION_PAD2D_OUT: Op =
    Op::new("aten::replication_pad2d.out", 3, |cx| border_pad(cx, 2, Border::Replicate));
/// `replication_pad3d.out(Tensor self, SymInt[6] padding, *, Tensor(a!) out)`
pub const REPLICATION_PAD3D_OUT: Op =
    Op::new("aten::replication_pad3d.out", 3, |cx| border_pad(cx, 3, Border::Replicate));

pub const OPS: OpGroup = &[
    CONSTANT_PAD_ND_OUT,
    REFLECTION_PAD1D_OUT,
    REFLECTION_PAD2D_OUT,
    REFLECTION_PAD3D_OUT,
    REPLICATION_PAD1D_OUT,
    REPLICATION_PAD2D_OUT,
    REPLICATION_PAD3D_OUT,
];

/// Returns the padding before and after a dimension. The list begins with the last dimension. Negative padding crops.
fn padding_of(list: &IntList<'_>, dim: usize, rank: usize) -> (i64, i64) {
    let at = 2 * (rank - 1 - dim);
    (list.get(at).unwrap_or(0), list.get(at + 1).unwrap_or(0))
}

/// Returns the size of a padded dimension. Fails if it is less than `min`.
fn padded(size: usize, (before, after): (i64, i64), min: i64) -> Result<usize> {
    let total = i64::try_from(size).ok().and_then(|n| n.checked_add(before)?.checked_add(after));
    match total.filter(|&n| n >= min && before.saturating_add(size as i64) >= 0) {
        Some(n) => usize::try_from(n).map_err(|_| Error::invalid("the padded size does not fit into memory").arg(1)),
        None => Err(Error::invalid("the padding crops a whole dimension, or the padded size overflows").arg(1)),
    }
}

fn constant_pad_nd(cx: &KernelContext<'_>) -> Result<()> {
    let (input, pad, value, mut out) = (cx.tensor(0)?, cx.ints(1)?, cx.scalar(2)?, cx.out(3)?);
    let rank = input.rank();
    if pad.len() % 2 != 0 || pad.len() / 2 > rank {
        return Err(Error::from(Detail::Count { what: "padding values", expected: 2 * rank, got: pad.len() }).arg(1));
    }
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(3));
    }
    let mut sizes = Dims::from_slice(input.sizes())?;
    for (dim, size) in sizes.iter_mut().enumerate() {
        *size = padded(*size, padding_of(&pad, dim, rank), 0)?;
    }
    out.resize(&sizes).map_err(|e| e.arg(3))?;
    fill(&mut out, value)?;
    // The box of the input that is copied. Its dimensions are in the order of the output's memory, outermost first.
    let (mut kept, mut from, mut to) = (Dims::EMPTY, Dims::EMPTY, Dims::EMPTY);
    let (mut source, mut target) = (0, 0);
    for &dim in out.dim_order() {
        let dim = usize::from(dim);
        let (before, after) = padding_of(&pad, dim, rank);
        let cropped = |n: i64| n.min(0).unsigned_abs() as usize;
        let size = input.size(dim).saturating_sub(cropped(before)).saturating_sub(cropped(after));
        if size == 0 {
            return Ok(());
        }
        kept.push(size)?;
        from.push(input.strides().get(dim).copied().unwrap_or(0))?;
        to.push(out.strides().get(dim).copied().unwrap_or(0))?;
        source += cropped(before) * from[from.len() - 1];
        target += before.max(0) as usize * to[to.len() - 1];
    }
    dispatch_size!(input.dtype(), N => copy_box::<N>(&input, &mut out, &kept, (&from, source), (&to, target)))
}

fn fill(out: &mut TensorMut<'_>, value: Scalar) -> Result<()> {
    match out.dtype() {
        ScalarType::ComplexHalf => fill_complex::<f16>(out, value),
        ScalarType::ComplexFloat => fill_complex::<f32>(out, value),
        ScalarType::ComplexDouble => fill_complex::<f64>(out, value),
        dtype => dispatch!(REALHBBF16, dtype, T => {
            out.as_mut_slice::<T>()?.fill(T::from_scalar(value));
            Ok(())
        }),
    }
}

fn fill_complex<T: Number>(out: &mut TensorMut<'_>, value: Scalar) -> Result<()>
where
    Complex<T>: Element,
{
    out.as_mut_slice::<Complex<T>>()?.fill(Complex { re: T::from_scalar(value), im: T::ZERO });
    Ok(())
}

/// Copies a box of elements between tensors.
fn copy_box<const N: usize>(
    input: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    sizes: &[usize],
    (from, source): (&[usize], usize),
    (to, target): (&[usize], usize),
) -> Result<()> {
    let (values, places) = (input.bytes().as_chunks::<N>().0, out.bytes_mut().as_chunks_mut::<N>().0);
    let (Some((&run, sizes)), Some((&from_step, from)), Some((&to_step, to))) =
        (sizes.split_last(), from.split_last(), to.split_last())
    else {
        places.iter_mut().zip(values).for_each(|(place, value)| *place = *value);
        return Ok(());
    };
    let mut walk = Walk::new(sizes, [from, to])?;
    loop {
        let [a, b] = walk.offsets;
        let values = values.get(source + a..).unwrap_or_default();
        let places = places.get_mut(target + b..).unwrap_or_default();
        if from_step == 1 && to_step == 1 {
            places.iter_mut().zip(values).take(run).for_each(|(place, value)| *place = *value);
        } else {
            let values = values.iter().step_by(from_step.max(1));
            places.iter_mut().step_by(to_step.max(1)).zip(values).take(run).for_each(|(place, value)| *place = *value);
        }
        if !walk.next() {
            return Ok(());
        }
    }
}

/// Content of the padding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Border {
    /// The input, mirrored at its first and last element.
    Reflect,
    /// The first and the last element.
    Replicate,
}

impl Border {
    /// Maps a position to the input position that it copies. Position 0 is the first element of the input; the padding before it
    /// has negative positions.
    fn position(self, position: i64, size: i64) -> i64 {
        let mirrored = position.abs();
        match self {
            Self::Replicate => position.clamp(0, size - 1),
            Self::Reflect if mirrored < size => mirrored,
            Self::Reflect => 2 * (size - 1) - mirrored,
        }
    }
}

fn border_pad(cx: &KernelContext<'_>, dims: usize, border: Border) -> Result<()> {
    let (input, pad, mut out) = (cx.tensor(0)?, cx.ints(1)?, cx.out(2)?);
    let rank = input.rank();
    if rank != dims + 1 && rank != dims + 2 {
        let expected = ["2 or 3", "3 or 4", "4 or 5"].get(dims - 1).copied().unwrap_or("another");
        return Err(Error::from(Detail::Rank { expected, got: rank }).arg(0));
    }
    if pad.len() != 2 * dims {
        let (what, expected) = ("padding values", 2 * dims);
        return Err(Error::from(Detail::Count { what, expected, got: pad.len() }).arg(1));
    }
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(2));
    }
    let mut sizes = Dims::from_slice(input.sizes())?;
    let mut before = [0i64; 3];
    for dim in rank - dims..rank {
        let size = sizes[dim] as i64;
        let padding = padding_of(&pad, dim, rank);
        if sizes[dim] == 0 {
            return Err(Error::from(Detail::Size { dim, expected: 1, got: 0 }).arg(0));
        }
        if border == Border::Reflect && (padding.0 >= size || padding.1 >= size) {
            return Err(Error::invalid("reflection padding must be less than the size of its dimension").arg(1));
        }
        before[3 + dim - rank] = padding.0;
        sizes[dim] = padded(sizes[dim], padding, 1)?;
    }
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    dispatch_size!(input.dtype(), N => fill_border::<N>(&input, &mut out, dims, before, border));
    Ok(())
}

fn fill_border<const N: usize>(
    input: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    dims: usize,
    before: [i64; 3],
    border: Border,
) {
    let from = Planes::of(input, dims);
    let to = Planes::new(out.sizes(), out.strides(), dims);
    let (values, places) = (input.bytes().as_chunks::<N>().0, out.bytes_mut().as_chunks_mut::<N>().0);
    let source = |position: usize, dim: usize| {
        let position = border.position(position as i64 - before[dim], from.space[dim] as i64);
        usize::try_from(position).unwrap_or(0).min(from.space[dim] - 1)
    };
    let [depth, height, width] = to.space;
    let (from_step, to_step) = (from.strides[2], to.strides[2]);
    // Columns `first..end` are not padding: they copy the input from column `shift` on.
    let first = (before[2].max(0) as usize).min(width);
    let shift = before[2].min(0).unsigned_abs() as usize;
    let end = (first + from.space[2].saturating_sub(shift)).min(width);
    for n in 0..to.batch {
        for channel in 0..to.channels {
            for row in 0..depth * height {
                let (z, y) = (row / height, row % height);
                let source_row = from.plane(n, channel) + from.row(source(z, 0), source(y, 1));
                let target = to.plane(n, channel) + to.row(z, y);
                for x in (0..first).chain(end..width) {
                    places[target + x * to_step] = values[source_row + source(x, 2) * from_step];
                }
                let values = values.get(source_row + shift * from_step..).unwrap_or_default();
                let places = places.get_mut(target + first * to_step..).unwrap_or_default();
                let run = end - first;
                if from_step == 1 && to_step == 1 {
                    places.iter_mut().zip(values).take(run).for_each(|(place, value)| *place = *value);
                } else {
                    let values = values.iter().step_by(from_step.max(1));
                    let places = places.iter_mut().step_by(to_step.max(1));
                    places.zip(values).take(run).for_each(|(place, value)| *place = *value);
                }
            }
        }
    }
}
