//! Checks that the tensors of a step have the element types and sizes that its kind takes.

use rushlight_engine::{Conv2d, Conv3d, ConvTranspose2d, pack};
use rushlight_format::ScalarType;

use super::check::{Result, check_affine, nonzero};
use super::error::Nonzero;
use super::{
    Attention, Convert, Convolution, ConvolutionKind, CpuProgram, Direction, Experts, FloatFormat, Gather,
    Int8Epilogue, Matmul, MatmulKind, PayloadError, PayloadFault, Resize, Scatter, Size, Step, TableFormat, Tensor,
    TensorId, Window,
};

/// Checks a step whose tensors exist.
pub(super) fn check(program: &CpuProgram, step: &Step) -> Result {
    let types = Types(program);
    match step {
        Step::Matmul(step) => types.matmul(step, 1),
        Step::Experts(step) => types.experts(step),
        Step::TopK { x, y } => [*x, *y].into_iter().try_for_each(|tensor| types.dtype(tensor, ScalarType::Float)),
        Step::GatherElements { x, index, y } => {
            [*x, *index, *y].into_iter().try_for_each(|tensor| types.dtype(tensor, ScalarType::Float))
        }
        Step::DeltaRule(step) => {
            let mut result = types.dtype(step.y, ScalarType::Float);
            step.for_each_input(&mut |tensor| result = result.and_then(|()| types.dtype(tensor, ScalarType::Float)));
            result
        }
        Step::Convolution(step) => types.convolution(step),
        Step::Softmax { x, y, log } => {
            let is_quantized = types.is_quantized(*x);
            types.quantized(*y, is_quantized)?;
            if *log { types.quantized(*x, false) } else { Ok(()) }
        }
        Step::Resize(Resize { x, y, .. }) => types.quantized(*y, types.is_quantized(*x)),
        Step::Convert(step) => types.convert(step),
        Step::Gather(step) => types.gather(step),
        Step::Scatter(Scatter { x, y, indices, .. }) => {
            types.quantized(*x, types.is_quantized(*y))?;
            types.dtype(*indices, ScalarType::Float)
        }
        Step::ChooseQparams(step) => types.quantized(step.x, false).and_then(|()| types.quantized(step.y, false)),
        Step::QuantizeRows(step) => {
            types.quantized(step.x, false)?;
            types.quantized(step.qparams, false)?;
            types.quantized(step.y, true)
        }
        Step::PackNibbles { x, y } | Step::UnpackNibbles { x, y } => {
            [*x, *y].into_iter().try_for_each(|tensor| types.quantized(tensor, true))
        }
        Step::Attention(step) => types.attention(step),
        Step::Elementwise(_) | Step::Pooling(_) | Step::Reduce(_) | Step::Normalization(_) | Step::Copy(_) => Ok(()),
    }
}

/// The tensors of a program.
struct Types<'p>(&'p CpuProgram);

impl Types<'_> {
    fn tensor(&self, id: TensorId) -> Option<&Tensor> {
        self.0.tensors.get(id as usize)
    }

    fn is_quantized(&self, id: TensorId) -> bool {
        self.tensor(id).is_some_and(|tensor| tensor.affine.is_some())
    }

    /// Checks whether a tensor is quantized.
    fn quantized(&self, id: TensorId, expected: bool) -> Result {
        if self.is_quantized(id) == expected { Ok(()) } else { Err(PayloadError::new(PayloadFault::MixedTypes)) }
    }

    fn dtype(&self, id: TensorId, expected: ScalarType) -> Result {
        match self.tensor(id).map(|tensor| tensor.dtype) {
            Some(got) if got != expected => Err(PayloadError::new(PayloadFault::Dtype { expected, got })),
            _ => Ok(()),
        }
    }

    /// Returns the innermost size of a tensor if it is fixed; 1 without dimensions.
    fn last(&self, id: TensorId) -> Option<usize> {
        match self.tensor(id)?.dims.last() {
            Some(Size::Fixed(size)) => usize::try_from(*size).ok(),
            Some(Size::Computed(_)) => None,
            None => Some(1),
        }
    }

    /// Checks packed weights, which take `len` elements, if that is known before the inputs are.
    fn weights(&self, id: TensorId, dtype: ScalarType, len: Option<u64>) -> Result {
        self.dtype(id, dtype)?;
        let (Some(expected), Some(tensor)) = (len, self.tensor(id)) else { return Ok(()) };
        let fixed = |size: &Size| match size {
            Size::Fixed(size) => Some(*size),
            Size::Computed(_) => None,
        };
        let got = tensor.dims.iter().map(fixed).try_fold(1u64, |all, size| Some(all.saturating_mul(size?)));
        match got {
            Some(got) if got != expected => Err(PayloadError::new(PayloadFault::WeightSize { expected, got })),
            _ => Ok(()),
        }
    }

    /// Checks a GEMM of experts, whose columns are whole panels.
    fn experts(&self, step: &Experts) -> Result {
        let Experts { matmul, index, count } = step;
        nonzero(Nonzero::Experts, &[*count])?;
        self.dtype(*index, ScalarType::Float)?;
        self.quantized(matmul.y, false)?;
        let is_plain = match &matmul.kind {
            MatmulKind::Packed { epilogue, .. } | MatmulKind::WeightOnly { epilogue, .. } => {
                epilogue.bias.is_none() && epilogue.residual.is_none()
            }
            MatmulKind::Int8 { epilogue: Int8Epilogue::Dynamic { bias, .. } } => bias.is_none(),
            MatmulKind::Groupwise { epilogue, .. } => epilogue.bias.is_none(),
            MatmulKind::Int8 { .. } | MatmulKind::Dense { .. } => false,
        };
        if !is_plain || self.last(matmul.y).is_none_or(|columns| !columns.is_multiple_of(pack::PANEL)) {
            return Err(PayloadError::new(PayloadFault::Experts));
        }
        self.matmul(matmul, *count as usize)
    }

    /// Checks a GEMM; `experts` is the number of those whose columns `b` holds.
    fn matmul(&self, step: &Matmul, experts: usize) -> Result {
        let Matmul { a, b, y, kind } = *step;
        let all = |n: usize| n.saturating_mul(experts);
        let shape = self.last(a).zip(self.last(y).map(all));
        match kind {
            MatmulKind::Dense { .. } => self.floats(|visit| step.for_each_input(visit), &[], Some(y)),
            MatmulKind::Packed { format, .. } => {
                self.floats(|visit| step.for_each_input(visit), &[], Some(y))?;
                self.weights(b, format.dtype(), shape.map(|(k, n)| elements(pack::matrix_f32_len(k, n))))
            }
            MatmulKind::WeightOnly { format, .. } => {
                self.floats(|visit| step.for_each_input(visit), &[], Some(y))?;
                let len = shape.map(|(k, n)| elements(pack::quantized_len(&format.matrix(k, n))));
                self.weights(b, ScalarType::Byte, len)
            }
            MatmulKind::Int8 { epilogue } => {
                self.int8(|visit| step.for_each_input(visit), a, &epilogue)?;
                self.weights(b, ScalarType::Char, shape.map(|(k, n)| elements(pack::matrix_i8_len(k, n))))
            }
            MatmulKind::Groupwise { format, .. } => {
                self.floats(|visit| step.for_each_input(visit), &[a], Some(y))?;
                self.weights(b, ScalarType::Byte, shape.map(|(k, n)| elements(format.matrix(k, n).len())))
            }
        }
    }

    fn convolution(&self, step: &Convolution) -> Result {
        let Convolution { x, w, y, kind } = *step;
        if let Some(groups) = kind.groups() {
            nonzero(Nonzero::Groups, &[groups])?;
        }
        let channels = self.last(x).zip(self.last(y));
        let direct = |window: &Window<2>, groups: u32, len: fn(&Conv2d) -> Option<usize>| {
            channels.map(|channels| elements(len(&conv2d(window, groups, channels))))
        };
        let transposed = |window: &Window<2>, groups: u32, len: fn(&ConvTranspose2d) -> Option<usize>| {
            channels.map(|channels| elements(len(&conv_transpose2d(window, groups, channels))))
        };
        let float = |format: FloatFormat, len| {
            self.floats(|visit| step.for_each_input(visit), &[], Some(y))?;
            self.weights(w, format.dtype(), len)
        };
        let int8 = |epilogue: &Int8Epilogue, len| {
            self.int8(|visit| step.for_each_input(visit), x, epilogue)?;
            self.weights(w, ScalarType::Char, len)
        };
        match kind {
            ConvolutionKind::Direct { window, groups, format, .. } => {
                check_window(&window)?;
                float(format, direct(&window, groups, pack::conv2d_f32_len))
            }
            ConvolutionKind::Direct3d { window, groups, format, .. } => {
                check_window(&window)?;
                float(
                    format,
                    channels.map(|channels| elements(pack::conv3d_f32_len(&conv3d(&window, groups, channels)))),
                )
            }
            ConvolutionKind::Depthwise { window, .. } => {
                check_window(&window)?;
                let taps = window.kernel.iter().try_fold(1usize, |taps, size| taps.checked_mul(*size as usize));
                float(
                    FloatFormat::F32,
                    channels.map(|(in_c, _)| elements(taps.and_then(|taps| taps.checked_mul(in_c)))),
                )
            }
            ConvolutionKind::Transposed { window, groups, format, .. } => {
                check_window(&window)?;
                float(format, transposed(&window, groups, pack::conv_transpose2d_f32_len))
            }
            ConvolutionKind::Winograd { tile, .. } => {
                let conv = |(in_c, out_c)| Conv2d::new([1, 1, 1, in_c], out_c, [3, 3]);
                float(
                    FloatFormat::F32,
                    channels.map(|channels| elements(pack::winograd_f32_len(tile, &conv(channels)))),
                )
            }
            ConvolutionKind::Int8Direct { window, groups, epilogue } => {
                check_window(&window)?;
                int8(&epilogue, direct(&window, groups, pack::conv2d_i8_len))
            }
            ConvolutionKind::Int8Depthwise { window, epilogue } => {
                check_window(&window)?;
                int8(&epilogue, direct(&window, 1, pack::depthwise2d_i8_len))
            }
            ConvolutionKind::Int8Transposed { window, groups, epilogue, .. } => {
                check_window(&window)?;
                int8(&epilogue, transposed(&window, groups, pack::conv_transpose2d_i8_len))
            }
        }
    }

    /// Checks that no tensor of a step is quantized but these.
    fn floats(&self, inputs: impl Fn(&mut dyn FnMut(TensorId)), quantized: &[TensorId], y: Option<TensorId>) -> Result {
        let mut result = y.map_or(Ok(()), |y| self.quantized(y, false));
        inputs(&mut |id| {
            if result.is_ok() {
                result = self.quantized(id, quantized.contains(&id));
            }
        });
        result
    }

    /// Checks that the left side and the residual of an int8 kernel are quantized, and nothing else is. The result may be.
    fn int8(&self, inputs: impl Fn(&mut dyn FnMut(TensorId)), x: TensorId, epilogue: &Int8Epilogue) -> Result {
        match *epilogue {
            Int8Epilogue::Static { fake_quantize, residual, .. } => {
                fake_quantize.map_or(Ok(()), |fake_quantize| check_affine(fake_quantize.affine))?;
                self.floats(inputs, &[x, residual.unwrap_or(x)], None)
            }
            Int8Epilogue::Dynamic { .. } => self.floats(inputs, &[x], None),
        }
    }

    /// Checks that keys and values are quantized if they have scales, and that nothing else is.
    fn attention(&self, step: &Attention) -> Result {
        let Attention { q, k, v, mask, format, y, .. } = *step;
        let qparams = format.qparams();
        let is_quantized = qparams.is_some();
        let qparams = qparams.into_iter().flatten();
        let floats = [Some(q), Some(y), mask].into_iter().flatten().chain(qparams.clone().map(|rows| rows.scales));
        let bytes = qparams.map(|rows| rows.zeros);
        floats.into_iter().try_for_each(|tensor| self.quantized(tensor, false))?;
        bytes.into_iter().try_for_each(|tensor| self.quantized(tensor, true))?;
        [k, v].into_iter().try_for_each(|tensor| self.quantized(tensor, is_quantized))
    }

    fn convert(&self, step: &Convert) -> Result {
        let (outside, inside) = match step.direction {
            Direction::Enter => (step.x, step.y),
            Direction::Leave => (step.y, step.x),
        };
        self.dtype(outside, step.element.dtype())?;
        self.quantized(inside, step.element.is_quantized())
    }

    fn gather(&self, step: &Gather) -> Result {
        let Gather { table, format, indices, y } = *step;
        self.quantized(y, false)?;
        let is_index = |tensor: &Tensor| matches!(tensor.dtype, ScalarType::Int | ScalarType::Float);
        if !self.tensor(indices).is_some_and(is_index) {
            self.dtype(indices, ScalarType::Long)?;
        }
        match format {
            TableFormat::F32 => self.dtype(table, ScalarType::Float),
            TableFormat::Quantized { format, rows } => {
                let len = self.last(y).map(|width| elements(pack::quantized_len(&format.matrix(width, rows as usize))));
                self.weights(table, ScalarType::Byte, len)
            }
        }
    }
}

/// The number of elements of packed weights; no tensor has as many if it is beyond `usize`.
fn elements(len: Option<usize>) -> u64 {
    len.map_or(u64::MAX, |len| len as u64)
}

fn check_window<const D: usize>(window: &Window<D>) -> Result {
    nonzero(Nonzero::Kernel, &window.kernel)?;
    nonzero(Nonzero::Stride, &window.stride)?;
    nonzero(Nonzero::Dilation, &window.dilation)
}

fn usizes<const D: usize>(sizes: [u32; D]) -> [usize; D] {
    sizes.map(|size| size as usize)
}

/// A convolution as far as the size of its weights depends on it.
fn conv2d(window: &Window<2>, groups: u32, (in_c, out_c): (usize, usize)) -> Conv2d {
    Conv2d {
        dilation: usizes(window.dilation),
        groups: groups as usize,
        ..Conv2d::new([1, 1, 1, in_c], out_c, usizes(window.kernel))
    }
}

fn conv3d(window: &Window<3>, groups: u32, (in_c, out_c): (usize, usize)) -> Conv3d {
    Conv3d {
        batch: 1,
        in_size: [1; 3],
        in_c,
        out_c,
        kernel: usizes(window.kernel),
        stride: usizes(window.stride),
        padding: [[0; 2]; 3],
        dilation: usizes(window.dilation),
        groups: groups as usize,
        in_stride: in_c,
        out_stride: out_c,
    }
}

fn conv_transpose2d(window: &Window<2>, groups: u32, (in_c, out_c): (usize, usize)) -> ConvTranspose2d {
    ConvTranspose2d {
        batch: 1,
        in_h: 1,
        in_w: 1,
        in_c,
        out_c,
        kernel: usizes(window.kernel),
        stride: usizes(window.stride),
        padding: window.padding.map(usizes),
        output_padding: [0; 2],
        dilation: usizes(window.dilation),
        groups: groups as usize,
        in_stride: in_c,
        out_stride: out_c,
    }
}
