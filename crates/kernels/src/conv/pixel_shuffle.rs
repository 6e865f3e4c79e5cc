//! Moving elements between channels and space: `pixel_shuffle` and `pixel_unshuffle`.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result};

use super::window::Planes;
use crate::support::shape::{Dims, numel};

/// `pixel_shuffle.out(Tensor self, int upscale_factor, *, Tensor(a!) out)`
pub const PIXEL_SHUFFLE_OUT: Op = Op::new("aten::pixel_shuffle.out", 3, |cx| shuffle(cx, true));
/// `pixel_unshuffle.out(Tensor self, int downscale_factor, *, Tensor(a!) out)`
pub const PIXEL_UNSHUFFLE_OUT: Op = Op::new("aten::pixel_unshuffle.out", 3, |cx| shuffle(cx, false));

pub const OPS: OpGroup = &[PIXEL_SHUFFLE_OUT, PIXEL_UNSHUFFLE_OUT];

fn shuffle(cx: &KernelContext<'_>, up: bool) -> Result<()> {
    let (input, factor, mut out) = (cx.tensor(0)?, cx.int(1)?, cx.out(2)?);
    let rank = input.rank();
    if rank < 3 {
        return Err(Error::from(Detail::Rank { expected: "at least 3", got: rank }).arg(0));
    }
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(2));
    }
    let Some(r) = u16::try_from(factor).ok().map(usize::from).filter(|&r| r > 0) else {
        let (what, expected) = ("factor", "1 to 65535");
        return Err(Error::from(Detail::Value { what, expected, got: factor }).arg(1));
    };
    let mut sizes = Dims::from_slice(input.sizes())?;
    let (channels, height, width) = (rank - 3, rank - 2, rank - 1);
    let square = r.saturating_mul(r);
    let divisible = if up { sizes[channels] % square == 0 } else { sizes[height] % r == 0 && sizes[width] % r == 0 };
    if !divisible {
        return Err(Error::invalid("height or width is not a multiple of the factor, or channels of its square").arg(0));
    }
    let scale = |size: &mut usize, factor: usize, grow: bool| {
        *size = if grow { size.saturating_mul(factor) } else { *size / factor };
    };
    scale(&mut sizes[channels], square, !up);
    scale(&mut sizes[height], r, up);
    scale(&mut sizes[width], r, up);
    out.resize(&sizes).map_err(|e| e.arg(2))?;
    // `Planes` describes channels, height and width. The leading dimensions are one loop over `batches`.
    let (from, to) = (Planes::of(&input, 2), Planes::new(out.sizes(), out.strides(), 2));
    let leading = Dims::from_slice(&input.sizes()[..channels])?;
    let batches = numel(&leading)?;
    let (from_strides, to_strides) =
        (Dims::from_slice(&input.strides()[..channels])?, Dims::from_slice(&out.strides()[..channels])?);
    // Element (c * r * r + i * r + j, y, x) of the tensor with small planes is element (c, y * r + i, x * r + j) of the one
    // with large planes.
    let (small, large) = if up { (from, to) } else { (to, from) };
    dispatch_size!(input.dtype(), N => {
        let (values, places) = (input.bytes().as_chunks::<N>().0, out.bytes_mut().as_chunks_mut::<N>().0);
        for batch in 0..batches {
            let (mut rest, mut from_base, mut to_base) = (batch, 0, 0);
            for dim in (0..leading.len()).rev() {
                from_base += rest % leading[dim] * from_strides[dim];
                to_base += rest % leading[dim] * to_strides[dim];
                rest /= leading[dim];
            }
            for channel in 0..small.channels {
                let (c, i, j) = (channel / square, channel % square / r, channel % r);
                for y in 0..small.space[1] {
                    let in_small = channel * small.channel_stride + y * small.strides[1];
                    let in_large = c * large.channel_stride + (y * r + i) * large.strides[1] + j * large.strides[2];
                    let (in_small, in_large) = ((in_small, small.strides[2]), (in_large, r * large.strides[2]));
                    let (source, target) = if up { (in_small, in_large) } else { (in_large, in_small) };
                    let values = values.get(from_base + source.0..).unwrap_or_default();
                    let places = places.get_mut(to_base + target.0..).unwrap_or_default();
                    let values = values.iter().step_by(source.1.max(1));
                    let places = places.iter_mut().step_by(target.1.max(1));
                    places.zip(values).take(small.space[2]).for_each(|(place, value)| *place = *value);
                }
            }
        }
        Ok(())
    })
}
