//! Group normalization: over groups of channels and all positions.

use rushlight_runtime::{Detail, Error, KernelContext, Op, Result, ScalarType, Tensor};

use crate::support::reduce::{DimSet, Nest};
use crate::support::shape::Dims;

use super::normalize::{check_floating, check_sizes, normalize_by_moments};

/// `native_group_norm.out(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group,
/// float eps, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2)`
///
/// The outputs are the normalized input, and the mean and the reciprocal standard deviation of each group, of size
/// [N, group]. Parameters and outputs may have any floating type.
pub const NATIVE_GROUP_NORM_OUT: Op = Op::new("aten::native_group_norm.out", 11, native_group_norm_out).outs(3);

pub const OPS: &[Op] = &[NATIVE_GROUP_NORM_OUT];

fn native_group_norm_out(cx: &KernelContext<'_>) -> Result<()> {
    let (input, weight, bias) = (cx.tensor(0)?, cx.optional_tensor(1)?, cx.optional_tensor(2)?);
    check_floating(input.dtype(), 0)?;
    let groups = Grouped::new(&input, [cx.int(3)?, cx.int(4)?, cx.int(5)?], 3, cx.int(6)?, 6)?;
    for (parameter, index) in [(&weight, 1), (&bias, 2)] {
        if let Some(parameter) = parameter {
            check_floating(parameter.dtype(), index)?;
            check_sizes(parameter, &[input.size(1)], index)?;
        }
    }
    let (mut out, mut mean, mut rstd) = (cx.out(8)?, cx.out(9)?, cx.out(10)?);
    out.resize(input.sizes()).map_err(|e| e.arg(8))?;
    mean.resize(&groups.sizes[..2]).map_err(|e| e.arg(9))?;
    rstd.resize(&groups.sizes[..2]).map_err(|e| e.arg(10))?;
    let nest = {
        let parameter = groups.parameter_strides();
        let (from, to) = (groups.strides(input.strides())?, groups.strides(out.strides())?);
        let strides = [&*from, &to, &parameter, &parameter, mean.strides(), rstd.strides()];
        Nest::new(&groups.sizes, strides, groups.reduced())?
    };
    let (parameters, eps, outs) = ([weight, bias], cx.double(7)?, [out, mean, rstd]);
    if input.dtype() == ScalarType::Double {
        normalize_by_moments::<f64>(&nest, &input, parameters, eps, outs)
    } else {
        normalize_by_moments::<f32>(&nest, &input, parameters, eps, outs)
    }
}

/// A tensor whose dimension 1 is split in two: the groups, and the channels of a group.
pub(super) struct Grouped {
    /// N, groups, channels of a group, then the input's other dimensions.
    pub(super) sizes: Dims,
}

impl Grouped {
    /// Checks N, C and HxW, the arguments from `first` on, and the number of groups, argument `index`.
    pub(super) fn new(input: &Tensor<'_>, sizes: [i64; 3], first: usize, groups: i64, index: usize) -> Result<Self> {
        let &[batch, channels, ref rest @ ..] = input.sizes() else {
            return Err(Error::from(Detail::Rank { expected: "at least 2", got: input.rank() }).arg(0));
        };
        let positions = rest.iter().fold(1usize, |n, &size| n.saturating_mul(size));
        for (i, (size, what)) in [batch, channels, positions].into_iter().zip(["N", "C", "HxW"]).enumerate() {
            // An empty input says nothing about the product of its positions.
            if usize::try_from(sizes[i]) != Ok(size) && !(i == 2 && input.numel() == 0) {
                let expected = "the size of the input";
                return Err(Error::from(Detail::Value { what, expected, got: sizes[i] }).arg(first + i));
            }
        }
        let count = usize::try_from(groups).ok().filter(|&n| n > 0 && channels % n == 0);
        let Some(count) = count else {
            let (what, expected) = ("group", "a divisor of the number of channels");
            return Err(Error::from(Detail::Value { what, expected, got: groups }).arg(index));
        };
        let mut sizes = Dims::from_slice(&[batch, count, channels / count])?;
        for &size in rest {
            sizes.push(size)?;
        }
        Ok(Self { sizes })
    }

    /// The strides of a tensor of the input's shape.
    pub(super) fn strides(&self, strides: &[usize]) -> Result<Dims> {
        let channel = strides.get(1).copied().unwrap_or(0);
        let mut result =
            Dims::from_slice(&[strides.first().copied().unwrap_or(0), channel.wrapping_mul(self.sizes[2])])?;
        for &stride in strides.iter().skip(1) {
            result.push(stride)?;
        }
        Ok(result)
    }

    /// The strides of a weight or a bias.
    pub(super) fn parameter_strides(&self) -> [usize; 3] {
        [0, self.sizes[2], 1]
    }

    /// The dimensions that are reduced.
    pub(super) fn reduced(&self) -> DimSet {
        DimSet::from(2, self.sizes.len())
    }
}
