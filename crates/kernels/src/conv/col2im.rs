//! `col2im`: adds the columns of sliding windows back into an image.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor, TensorMut};

use super::window::{Planes, WindowDim, required_space};
use crate::support::number::{Arithmetic, Number};
use crate::support::shape::Dims;

/// `col2im.out(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride,
/// *, Tensor(a!) out)`
pub const COL2IM_OUT: Op = Op::new("aten::col2im.out", 7, col2im);

pub const OPS: OpGroup = &[COL2IM_OUT];

fn col2im(cx: &KernelContext<'_>) -> Result<()> {
    let (input, mut out) = (cx.tensor(0)?, cx.out(6)?);
    let rank = input.rank();
    if rank != 2 && rank != 3 {
        return Err(Error::from(Detail::Rank { expected: "2 or 3", got: rank }).arg(0));
    }
    if out.dtype() != input.dtype() {
        return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got: out.dtype() }).arg(6));
    }
    let size = required_space(cx, 1, "output_size", 2, 1, 1)?;
    let kernel = required_space(cx, 2, "kernel_size", 2, 1, 1)?;
    let dilation = required_space(cx, 3, "dilation", 2, 1, 1)?;
    let padding = required_space(cx, 4, "padding", 2, 0, 0)?;
    let stride = required_space(cx, 5, "stride", 2, 1, 1)?;
    let window = |dim: usize| WindowDim {
        size: size[dim],
        kernel: kernel[dim],
        stride: stride[dim],
        padding: padding[dim],
        dilation: dilation[dim],
    };
    let (rows, columns) = (window(1), window(2));
    let counts = [rows.count(false)?, columns.count(false)?];
    let (taps, expected) = (kernel[1].saturating_mul(kernel[2]), counts[0].saturating_mul(counts[1]));
    let (planes, blocks) = (input.size(rank - 2), input.size(rank - 1));
    if blocks != expected {
        return Err(Error::from(Detail::Size { dim: rank - 1, expected, got: blocks }).arg(0));
    }
    if planes % taps != 0 || planes == 0 {
        return Err(Error::from(Detail::Size { dim: rank - 2, expected: taps, got: planes }).arg(0));
    }
    let mut sizes = Dims::from_slice(&input.sizes()[..rank - 2])?;
    for size in [planes / taps, size[1], size[2]] {
        sizes.push(size)?;
    }
    out.resize(&sizes).map_err(|e| e.arg(6))?;
    if input.numel() == 0 {
        return Ok(());
    }
    dispatch!(REALHBBF16, input.dtype(), T => add_columns::<T>(&input, &mut out, [rows, columns], counts))
}

fn add_columns<T: Number>(
    input: &Tensor<'_>,
    out: &mut TensorMut<'_>,
    [rows, columns]: [WindowDim; 2],
    [_, width]: [usize; 2],
) -> Result<()> {
    let from = Planes::of(input, 1);
    let to = Planes::new(out.sizes(), out.strides(), 2);
    let (values, target) = (input.as_slice::<T>()?, out.as_mut_slice::<T>()?);
    target.fill(T::ZERO);
    let taps = rows.kernel * columns.kernel;
    for n in 0..to.batch {
        for plane in 0..from.channels {
            let (channel, tap) = (plane / taps, plane % taps);
            let (y_tap, x_tap) = (tap / columns.kernel, tap % columns.kernel);
            for y in rows.windows(y_tap, from.space[2] / width) {
                let line = to.plane(n, channel) + to.row(0, rows.position(y, y_tap));
                for x in columns.windows(x_tap, width) {
                    let value = values[from.plane(n, plane) + (y * width + x) * from.strides[2]];
                    let place = &mut target[line + columns.position(x, x_tap) * to.strides[2]];
                    *place = T::from_acc(place.to_acc().add(value.to_acc()));
                }
            }
        }
    }
    Ok(())
}
