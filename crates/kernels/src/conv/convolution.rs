//! `convolution`: in one to three dimensions, grouped, dilated, transposed.

use rushlight_runtime::{Detail, Error, KernelContext, Op, OpGroup, Result, ScalarType, Tensor, TensorMut};

use super::staged::{self, Geometry, convolve};
use super::window::{Planes, Space, WindowDim, required_space};
use crate::linear::gemm::{Addend, GemmShape, Layout, MatrixOperand, gemm};
use crate::support::runs::{Accumulator, runs};
use crate::support::shape::Dims;

/// `convolution.out(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation,
/// bool transposed, SymInt[] output_padding, SymInt groups, *, Tensor(a!) out)`
pub const CONVOLUTION_OUT: Op = Op::new("aten::convolution.out", 10, convolution_out).temp(temp_bytes);

pub const OPS: OpGroup = &[CONVOLUTION_OUT];

const OUT: usize = 9;

fn convolution_out(cx: &KernelContext<'_>) -> Result<()> {
    let (input, weight, bias) = (cx.tensor(0)?, cx.tensor(1)?, cx.optional_tensor(2)?);
    let g = Parameters::read(cx, 3, weight.rank())?.geometry(&input, &weight).map_err(|e| e.arg(0))?;
    let mut out = cx.out(OUT)?;
    for (argument, got) in [(1, weight.dtype()), (OUT, out.dtype())] {
        if got != input.dtype() {
            return Err(Error::from(Detail::Dtype { expected: input.dtype().name(), got }).arg(argument));
        }
    }
    if let Some(bias) = &bias {
        let expected = g.out_channels * g.groups;
        if bias.rank() != 1 || bias.size(0) != expected {
            let got = bias.size(0);
            return Err(Error::from(Detail::Count { what: "elements of the bias", expected, got }).arg(2));
        }
    }
    out.resize(&g.output_sizes(input.rank())?).map_err(|e| e.arg(OUT))?;
    if out.numel() == 0 {
        return Ok(());
    }
    let dims = input.rank() - 2;
    accumulate!(input.dtype(), A => {
        if g.is_pointwise() {
            multiply_pixels::<A>(cx, &g, dims, input, weight, bias, &mut out)
        } else {
            convolve::<A>(cx, &g, dims, input, weight, bias, &mut out)
        }
    })
}

fn temp_bytes(cx: &KernelContext<'_>) -> Result<usize> {
    let (input, weight) = (cx.tensor(0)?, cx.tensor(1)?);
    let g = Parameters::read(cx, 3, weight.rank())?.geometry(&input, &weight).map_err(|e| e.arg(0))?;
    if g.is_pointwise() {
        return Ok(if cx.is_none(2) { 0 } else { weight.size(0) * size_of::<f64>() + 16 });
    }
    g.temp_bytes(input.dtype())
}

/// The arguments of a convolution that are not tensors.
pub(super) struct Parameters {
    stride: Space,
    padding: Space,
    dilation: Space,
    transposed: bool,
    output_padding: Space,
    groups: i64,
    /// Index of the stride among the arguments.
    first: usize,
}

impl Parameters {
    /// Reads stride, padding, dilation, transposed, output_padding and groups from argument `first` on.
    pub(super) fn read(cx: &KernelContext<'_>, first: usize, rank: usize) -> Result<Self> {
        let dims = rank.saturating_sub(2);
        if !(1..=3).contains(&dims) {
            return Err(Detail::Rank { expected: "3, 4 or 5 for the weight", got: rank }.into());
        }
        let transposed = cx.bool(first + 3)?;
        let output_padding =
            if transposed { required_space(cx, first + 4, "output_padding", dims, 0, 0)? } else { [0; 3] };
        Ok(Self {
            stride: required_space(cx, first, "stride", dims, 1, 1)?,
            padding: required_space(cx, first + 1, "padding", dims, 0, 0)?,
            dilation: required_space(cx, first + 2, "dilation", dims, 1, 1)?,
            transposed,
            output_padding,
            groups: cx.int(first + 5)?,
            first,
        })
    }

    /// Checks the input against the weight and computes the output's size.
    pub(super) fn geometry(&self, input: &Tensor<'_>, weight: &Tensor<'_>) -> Result<Geometry> {
        if input.rank() != weight.rank() {
            return Err(Detail::Rank { expected: "the rank of the weight", got: input.rank() }.into());
        }
        let dims = weight.rank() - 2;
        let (from, kernel) = (Planes::of(input, dims), Planes::of(weight, dims));
        let groups =
            usize::try_from(self.groups).ok().filter(|&groups| groups > 0 && weight.size(0).is_multiple_of(groups));
        let Some(groups) = groups else {
            let expected = "at least 1 and a divisor of the weight's channels";
            return Err(Error::from(Detail::Value { what: "groups", expected, got: self.groups }).arg(self.first + 5));
        };
        let (in_channels, out_channels) = if self.transposed {
            (weight.size(0) / groups, weight.size(1))
        } else {
            (weight.size(1), weight.size(0) / groups)
        };
        let expected = in_channels.saturating_mul(groups);
        if from.channels != expected {
            return Err(Detail::Size { dim: 1, expected, got: from.channels }.into());
        }
        let mut output = [1; 3];
        for dim in 0..3 {
            // With an empty batch, images may be empty, too.
            let least = from.batch.min(1);
            output[dim] = self.output_size(dim, from.space[dim], kernel.space[dim], least)?;
        }
        Ok(Geometry {
            batch: from.batch,
            groups,
            in_channels,
            out_channels,
            input: from.space,
            output,
            kernel: kernel.space,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
            transposed: self.transposed,
        })
    }

    /// The size of the result. For a transposed convolution, it and `size` are at least `least`.
    fn output_size(&self, dim: usize, size: usize, kernel: usize, least: usize) -> Result<usize> {
        let (stride, padding, dilation) = (self.stride[dim], self.padding[dim], self.dilation[dim]);
        if !self.transposed {
            return WindowDim { size, kernel, stride, padding, dilation }.count(false);
        }
        let extra = self.output_padding[dim];
        if extra >= stride && extra >= dilation {
            let expected = "less than the stride or the dilation";
            return Err(Detail::Value { what: "output_padding", expected, got: extra as i64 }.into());
        }
        let grown = || {
            // The size without the spread of the input's first element, which an empty input does not have.
            let reach = kernel.checked_sub(1)?.checked_mul(dilation)?;
            let padded = size.checked_mul(stride)?.checked_add(reach)?.checked_add(extra)?.checked_add(1)?;
            let taken = padding.checked_mul(2)?.checked_add(stride)?;
            padded.checked_sub(taken).filter(|&n| n >= least && size >= least && padded <= usize::MAX >> 2)
        };
        grown().ok_or_else(|| Error::invalid("the convolution has no output"))
    }
}

impl Geometry {
    pub(super) fn output_sizes(&self, rank: usize) -> Result<Dims> {
        let mut sizes = Dims::from_slice(&[self.batch, self.out_channels * self.groups])?;
        for &size in self.output.iter().skip(5usize.saturating_sub(rank)) {
            sizes.push(size)?;
        }
        Ok(sizes)
    }

    /// Maximum temporary memory of [`convolve`] for tensors of type `dtype`.
    pub(super) fn temp_bytes(&self, dtype: ScalarType) -> Result<usize> {
        accumulate!(dtype, A => staged::temp_bytes::<A>(self))
    }

    /// True for a kernel of one element, stride 1 and no padding: a matrix product over channels.
    fn is_pointwise(&self) -> bool {
        !self.transposed && self.kernel == [1; 3] && self.stride == [1; 3] && self.padding == [0; 3]
    }
}

/// The convolution of [`Geometry::is_pointwise`]: out[pixel] = weight @ input[pixel] + bias.
fn multiply_pixels<A: Accumulator>(
    cx: &KernelContext<'_>,
    g: &Geometry,
    dims: usize,
    input: Tensor<'_>,
    weight: Tensor<'_>,
    bias: Option<Tensor<'_>>,
    out: &mut TensorMut<'_>,
) -> Result<()> {
    let (from, to) = (Planes::of(&input, dims), Planes::new(out.sizes(), out.strides(), dims));
    let [depth, height, width] = g.output;
    // All pixels at once if they are evenly spaced, else row by row.
    let (rows, pixels, from_step, to_step) = match pixel_step(&from).zip(pixel_step(&to)) {
        Some((from_step, to_step)) => (1, depth * height * width, from_step, to_step),
        None => (depth * height, width, from.strides[2], to.strides[2]),
    };
    let biases = match bias {
        Some(bias) => {
            let values = cx.temp::<A>(g.groups * g.out_channels)?;
            (runs::<A>(bias.dtype())?.load)(&bias, 0, 1, values)?;
            Some(&*values)
        }
        None => None,
    };
    let (w_out, w_in) = match *weight.strides() {
        [w_out, w_in, ..] => (w_out, w_in),
        _ => (0, 0),
    };
    for row in 0..g.batch * g.groups * rows {
        let (n, group) = (row / rows / g.groups, row / rows % g.groups);
        let (z, y) = (row % rows / height, row % rows % height);
        let first = group * g.out_channels;
        let bias = biases.and_then(|values| values.get(first..first + g.out_channels));
        let source = from.plane(n, group * g.in_channels) + from.row(z, y);
        let target = to.plane(n, first) + to.row(z, y);
        let offset = first * w_out;
        // The columns of the product are the dimension that runs along the output's memory.
        if to_step == 1 {
            let a = MatrixOperand::new(weight, Layout { offset, row: w_out, col: w_in })?;
            let b = MatrixOperand::new(input, Layout { offset: source, row: from.channel_stride, col: from_step })?;
            let shape = GemmShape { m: g.out_channels, k: g.in_channels, n: pixels };
            let to = Layout { offset: target, row: to.channel_stride, col: 1 };
            gemm(shape, A::ONE, a, b, bias.map_or(Addend::None, Addend::Rows), out, to)?;
        } else {
            let a = MatrixOperand::new(input, Layout { offset: source, row: from_step, col: from.channel_stride })?;
            let b = MatrixOperand::new(weight, Layout { offset, row: w_in, col: w_out })?;
            let shape = GemmShape { m: pixels, k: g.in_channels, n: g.out_channels };
            let to = Layout { offset: target, row: to_step, col: to.channel_stride };
            gemm(shape, A::ONE, a, b, bias.map_or(Addend::None, Addend::Columns), out, to)?;
        }
    }
    Ok(())
}

/// Distance in memory between neighbouring pixels, if they are evenly spaced in logical order.
fn pixel_step(planes: &Planes) -> Option<usize> {
    let mut step = None;
    let mut expected = 0;
    for (&size, &stride) in planes.space.iter().zip(&planes.strides).rev() {
        if size == 1 {
            continue;
        }
        match step {
            None => step = Some(stride),
            Some(_) if stride != expected => return None,
            Some(_) => {}
        }
        expected = stride.checked_mul(size)?;
    }
    Some(step.unwrap_or(1))
}
