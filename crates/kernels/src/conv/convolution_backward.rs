//! `convolution_backward`: the gradients of input, weight and bias.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, Tensor, TensorMut};

use super::convolution::Parameters;
use super::staged::{Geometry, convolve};
use super::window::{Planes, WindowDim, expect_sizes};
use crate::support::runs::{Accumulator, runs};

/// `convolution_backward.out(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride,
/// SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask,
/// *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2)`
pub const CONVOLUTION_BACKWARD_OUT: Op =
    Op::new("aten::convolution_backward.out", 14, convolution_backward).outs(3).temp(temp_bytes);

pub const OPS: OpGroup = &[CONVOLUTION_BACKWARD_OUT];

fn convolution_backward(cx: &KernelContext<'_>) -> Result<()> {
    let (grad, input, weight) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let g = Parameters::read(cx, 4, weight.rank())?.geometry(&input, &weight).map_err(|e| e.arg(1))?;
    expect_sizes(grad.sizes(), &g.output_sizes(input.rank())?).map_err(|e| e.arg(0))?;
    for (argument, got) in [(0, grad.dtype()), (2, weight.dtype())] {
        if got != input.dtype() {
            return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got }).arg(argument));
        }
    }
    let &[for_input, for_weight, for_bias] = cx.bools(10)? else {
        return Err(Error::invalid("output_mask must have three values").arg(10));
    };
    let dims = input.rank() - 2;
    let output = |argument: usize, sizes: &[usize]| {
        let mut out = cx.out(argument)?;
        if out.dtype() != input.dtype() {
            let got = out.dtype();
            return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got }).arg(argument));
        }
        out.resize(sizes).map_err(|e| e.arg(argument))?;
        Ok(out)
    };
    accumulate!(input.dtype(), A => {
        if for_input {
            let mut out = output(11, input.sizes())?;
            convolve::<A>(cx, &toward_input(&g), dims, grad, weight, None, &mut out)?;
        }
        if for_weight {
            weight_gradient::<A>(&g, dims, grad, input, &mut output(12, weight.sizes())?)?;
        }
        if for_bias {
            bias_gradient::<A>(dims, grad, &mut output(13, &[grad.size(1)])?)?;
        }
        Ok(())
    })
}

fn temp_bytes(cx: &KernelContext<'_>) -> Result<usize> {
    let (input, weight) = (cx.tensor(1)?, cx.tensor(2)?);
    let g = Parameters::read(cx, 4, weight.rank())?.geometry(&input, &weight).map_err(|e| e.arg(1))?;
    toward_input(&g).temp_bytes(input.dtype())
}

/// The convolution that takes the output's gradient to the input's: the other kind, with the same weight.
fn toward_input(g: &Geometry) -> Geometry {
    Geometry {
        in_channels: g.out_channels,
        out_channels: g.in_channels,
        input: g.output,
        output: g.input,
        transposed: !g.transposed,
        ..*g
    }
}

/// Each weight's gradient is the sum of products of elements that it connects.
fn weight_gradient<A: Accumulator>(
    g: &Geometry,
    dims: usize,
    grad: Tensor<'_>,
    input: Tensor<'_>,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    const CHUNK: usize = 64;
    let load = runs::<A>(input.dtype())?.load;
    let store = runs::<A>(out.dtype())?.store;
    // Element i of the first is connected to element i * stride - padding + tap * dilation of the second.
    let (first, second) = if g.transposed { (input, grad) } else { (grad, input) };
    let (from, onto) = (Planes::of(&first, dims), Planes::of(&second, dims));
    let per_group = if g.transposed { g.in_channels } else { g.out_channels };
    let weights = Planes::new(out.sizes(), out.strides(), dims);
    let windows: [WindowDim; 3] = core::array::from_fn(|dim| WindowDim {
        size: onto.space[dim],
        kernel: g.kernel[dim],
        stride: g.stride[dim],
        padding: g.padding[dim],
        dilation: g.dilation[dim],
    });
    let [depth, row, column] = &windows;
    let (mut a, mut b) = ([A::ZERO; CHUNK], [A::ZERO; CHUNK]);
    for i in 0..weights.batch {
        for j in 0..weights.channels {
            let other = i / per_group.max(1) * weights.channels + j;
            for tap in 0..g.kernel.iter().product() {
                let x_tap = tap % g.kernel[2];
                let (z_tap, y_tap) = (tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1]);
                let columns = column.windows(x_tap, from.space[2]);
                let mut sum = A::ZERO;
                for n in 0..g.batch {
                    for z in depth.windows(z_tap, from.space[0]) {
                        for y in row.windows(y_tap, from.space[1]) {
                            let start = from.plane(n, i) + from.row(z, y);
                            let other =
                                onto.plane(n, other) + onto.row(depth.position(z, z_tap), row.position(y, y_tap));
                            for x in columns.clone().step_by(CHUNK) {
                                let count = CHUNK.min(columns.end - x);
                                let (a, b) = (&mut a[..count], &mut b[..count]);
                                load(&first, start + x * from.strides[2], from.strides[2], a)?;
                                let x = column.position(x, x_tap);
                                load(&second, other + x * onto.strides[2], g.stride[2] * onto.strides[2], b)?;
                                sum = a.iter().zip(&*b).fold(sum, |sum, (a, b)| sum.add(a.mul(*b)));
                            }
                        }
                    }
                }
                let place = weights.plane(i, j) + weights.row(z_tap, y_tap) + x_tap * weights.strides[2];
                store(out, place, 1, &[sum])?;
            }
        }
    }
    Ok(())
}

fn bias_gradient<A: Accumulator>(dims: usize, grad: Tensor<'_>, out: &mut TensorMut<'_>) -> Result<()> {
    const CHUNK: usize = 64;
    let (load, store) = (runs::<A>(grad.dtype())?.load, runs::<A>(out.dtype())?.store);
    let from = Planes::of(&grad, dims);
    let mut buffer = [A::ZERO; CHUNK];
    for channel in 0..from.channels {
        let mut sum = A::ZERO;
        for n in 0..from.batch {
            for row in 0..from.space[0] * from.space[1] {
                let start = from.plane(n, channel) + from.row(row / from.space[1], row % from.space[1]);
                for x in (0..from.space[2]).step_by(CHUNK) {
                    let values = &mut buffer[..CHUNK.min(from.space[2] - x)];
                    load(&grad, start + x * from.strides[2], from.strides[2], values)?;
                    sum = values.iter().fold(sum, |sum, value| sum.add(*value));
                }
            }
        }
        store(out, channel, 1, &[sum])?;
    }
    Ok(())
}
