//! Scales and zero points of tensors, and which elements share them.

use rushlight_runtime::{Detail, Error, KernelContext, Result, ScalarType, Tensor};

use crate::support::shape::{Walk, normalize_dim, numel};

/// The groups of elements that share a scale and a zero point.
#[derive(Clone, Copy)]
pub(super) enum Granularity {
    /// All of them.
    Tensor,
    /// Those with the same index in this dimension.
    Axis(usize),
    /// Those that differ in the last dimension only.
    Token,
}

impl Granularity {
    /// The dimension that argument `index` names.
    pub(super) fn axis(cx: &KernelContext<'_>, index: usize, tensor: &Tensor<'_>) -> Result<Self> {
        normalize_dim(cx.int(index)?, tensor.rank()).map(Self::Axis).map_err(|e| e.arg(index))
    }

    /// Number of scales that a tensor of these sizes needs.
    fn count(self, sizes: &[usize]) -> Result<usize> {
        match (self, sizes.split_last()) {
            (Self::Tensor, _) => Ok(1),
            (Self::Axis(axis), _) => Ok(sizes.get(axis).copied().unwrap_or(1)),
            (Self::Token, Some((_, tokens))) => numel(tokens),
            (Self::Token, None) => Err(Error::from(Detail::Rank { expected: "at least 1", got: 0 }).arg(0)),
        }
    }

    /// The length of the rows whose elements have a group each, in the order of the groups, if the memory of both
    /// tensors consists of such rows.
    pub(super) fn columns(self, input: &Tensor<'_>, out_strides: &[usize]) -> Option<usize> {
        let Self::Axis(axis) = self else { return None };
        let columns = stride(input, axis) == 1 && input.size(axis) > 1 && input.strides() == out_strides;
        columns.then(|| input.size(axis))
    }

    /// Calls `visit(group, input offset, output offset, length)` for runs of elements that follow each other in the
    /// memory of both tensors and share a scale. The tensors have the same sizes.
    pub(super) fn each_run(
        self,
        input: &Tensor<'_>,
        out_strides: &[usize],
        mut visit: impl FnMut(usize, usize, usize, usize),
    ) -> Result<()> {
        let numel = input.numel();
        if numel == 0 {
            return Ok(());
        }
        let same_layout = input.strides() == out_strides;
        match self {
            Self::Tensor if same_layout => visit(0, 0, 0, numel),
            Self::Axis(axis) if same_layout => {
                let (size, length) = (input.size(axis).max(1), stride(input, axis));
                let mut group = 0;
                for start in (0..numel).step_by(length) {
                    visit(group, start, start, length);
                    group = if group + 1 == size { 0 } else { group + 1 };
                }
            }
            Self::Token if same_layout && input.is_contiguous() => {
                let length = input.sizes().last().copied().unwrap_or(1);
                for (group, start) in (0..numel).step_by(length).enumerate() {
                    visit(group, start, start, length);
                }
            }
            _ => {
                let last = input.sizes().last().copied().unwrap_or(1);
                let mut walk = Walk::new(input.sizes(), [input.strides(), out_strides])?;
                for position in 0..numel {
                    let group = match self {
                        Self::Tensor => 0,
                        Self::Axis(axis) => walk.index().get(axis).copied().unwrap_or(0),
                        Self::Token => position / last,
                    };
                    visit(group, walk.offsets[0], walk.offsets[1], 1);
                    walk.next();
                }
            }
        }
        Ok(())
    }
}

fn stride(tensor: &Tensor<'_>, dim: usize) -> usize {
    tensor.strides().get(dim).copied().unwrap_or(1)
}

/// A scale and a zero point for each group of elements.
pub(super) struct QParams<'a> {
    scales: Scales<'a>,
    zero_points: ZeroPoints<'a>,
}

enum Scales<'a> {
    One(f64),
    Double(&'a [f64]),
    Float(&'a [f32]),
}

enum ZeroPoints<'a> {
    One(i32),
    Long(&'a [i64]),
    Int(&'a [i32]),
    Char(&'a [i8]),
}

impl<'a> QParams<'a> {
    /// From a float in argument 1 and an int in argument 2.
    pub(super) fn scalars(cx: &KernelContext<'_>) -> Result<Self> {
        Ok(Self { scales: Scales::One(cx.double(1)?), zero_points: ZeroPoints::One(cx.int(2)? as i32) })
    }

    /// From a tensor in argument 1 and a tensor or `None` in argument 2, which hold one value for each group.
    pub(super) fn tensors(cx: &'a KernelContext<'_>, sizes: &[usize], granularity: Granularity) -> Result<Self> {
        let count = granularity.count(sizes)?;
        let scales = cx.tensor(1)?;
        check_list(&scales, count).map_err(|e| e.arg(1))?;
        let scales = match scales.dtype() {
            ScalarType::Double => Scales::Double(scales.as_slice()?),
            ScalarType::Float => Scales::Float(scales.as_slice()?),
            got => return Err(Error::from(Detail::Dtype { expected: "f64 or f32", got }).arg(1)),
        };
        let zero_points = match cx.optional_tensor(2)? {
            None => ZeroPoints::One(0),
            Some(list) => {
                check_list(&list, count).map_err(|e| e.arg(2))?;
                match list.dtype() {
                    ScalarType::Long => ZeroPoints::Long(list.as_slice()?),
                    ScalarType::Int => ZeroPoints::Int(list.as_slice()?),
                    ScalarType::Char => ZeroPoints::Char(list.as_slice()?),
                    got => return Err(Error::from(Detail::Dtype { expected: "i64, i32 or i8", got }).arg(2)),
                }
            }
        };
        Ok(Self { scales, zero_points })
    }

    /// Scale and zero point of a group. The caller's groups are those that the lists were checked for.
    #[inline]
    pub(super) fn get(&self, group: usize) -> (f64, i32) {
        let scale = match self.scales {
            Scales::One(scale) => scale,
            Scales::Double(scales) => scales[group],
            Scales::Float(scales) => f64::from(scales[group]),
        };
        let zero_point = match self.zero_points {
            ZeroPoints::One(zero_point) => zero_point,
            ZeroPoints::Long(zero_points) => zero_points[group] as i32,
            ZeroPoints::Int(zero_points) => zero_points[group],
            ZeroPoints::Char(zero_points) => i32::from(zero_points[group]),
        };
        (scale, zero_point)
    }
}

fn check_list(list: &Tensor<'_>, count: usize) -> Result<()> {
    if list.numel() != count {
        return Err(
            Detail::Count { what: "number of scales or zero points", expected: count, got: list.numel() }.into()
        );
    }
    contiguous(list)
}

/// Fails unless the memory order of the tensor is its logical order.
pub(super) fn contiguous(tensor: &Tensor<'_>) -> Result<()> {
    if tensor.is_contiguous() { Ok(()) } else { Err(Error::invalid("the tensor must be contiguous")) }
}

/// Fails unless the optional dtype in argument `index` is `dtype`.
pub(super) fn check_dtype(cx: &KernelContext<'_>, index: usize, dtype: ScalarType) -> Result<()> {
    match cx.optional_int(index)? {
        Some(code) if code != i64::from(dtype.code()) => {
            let expected = "the dtype of the tensor that it describes";
            Err(Error::from(Detail::Value { what: "dtype", expected, got: code }).arg(index))
        }
        _ => Ok(()),
    }
}
