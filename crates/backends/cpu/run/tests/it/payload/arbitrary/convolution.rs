//! Convolutions.

use rushlight_cpu_payload::{Convolution, ConvolutionKind, Step, TensorId, Window, Winograd};
use rushlight_engine::pack;
use rushlight_engine::{Conv2d, Conv3d, ConvTranspose2d};
use rushlight_format::ScalarType;

use super::Maker;

impl Maker<'_, '_> {
    /// The window of a convolution, with equal padding before and after.
    pub(super) fn window<const D: usize>(&mut self, largest: [u64; 4]) -> Window<D> {
        let mut sizes = |largest| core::array::from_fn(|_| self.source.size(largest) as u32);
        let [kernel, stride, dilation, padding]: [[u32; D]; 4] = largest.map(&mut sizes);
        Window { kernel, stride, dilation, padding: padding.map(|size| [size - size.min(1); 2]) }
    }

    pub(super) fn image_of(&mut self, channels: u64) -> [u64; 4] {
        [self.source.size(2), self.source.size(9), self.source.size(12), channels]
    }

    /// The tensor that a convolution reads.
    pub(super) fn image(&mut self, dims: &[u64], is_int8: bool) -> TensorId {
        if is_int8 { self.bytes(dims) } else { self.floats(dims) }
    }

    /// Numbers of input and output channels that `groups` divides.
    pub(super) fn channels(&mut self, groups: u64) -> (u64, u64) {
        (groups * self.source.size(9), groups * self.source.size(9))
    }

    pub(super) fn direct(&mut self, is_int8: bool) -> Step {
        let groups = if self.source.once_in(3) { self.source.size(3).max(1) } else { 1 };
        let (in_c, out_c) = self.channels(groups);
        let (window, x) = (self.window([4, 4, 3, 4]), self.image_of(in_c));
        let conv = conv2d(&window, groups, x, out_c);
        let y = [x[0], conv.out_h() as u64, conv.out_w() as u64, out_c];
        let (x, groups) = (self.image(&x, is_int8), groups as u32);
        if is_int8 {
            let w = self.blob(ScalarType::Char, pack::conv2d_i8_len(&conv).unwrap_or(0) as u64);
            let epilogue = self.int8_epilogue(out_c, out_c, 1, &y);
            let kind = ConvolutionKind::Int8Direct { window, groups, epilogue };
            return Step::Convolution(Convolution { x, w, y: self.any_output(&y), kind });
        }
        let (w, format) = self.weights(pack::conv2d_f32_len(&conv));
        let kind = ConvolutionKind::Direct { window, groups, format, epilogue: self.epilogue(out_c, &y) };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }

    pub(super) fn depthwise(&mut self, is_int8: bool) -> Step {
        let channels = self.source.size(40);
        let (window, x) = (self.window([4, 4, 3, 4]), self.image_of(channels));
        let conv = conv2d(&window, channels.max(1), x, channels);
        let y = [x[0], conv.out_h() as u64, conv.out_w() as u64, channels];
        let x = self.image(&x, is_int8);
        if is_int8 {
            let w = self.blob(ScalarType::Char, pack::depthwise2d_i8_len(&conv).unwrap_or(0) as u64);
            let kind =
                ConvolutionKind::Int8Depthwise { window, epilogue: self.int8_epilogue(channels, channels, 1, &y) };
            return Step::Convolution(Convolution { x, w, y: self.any_output(&y), kind });
        }
        let w = self.blob(ScalarType::Float, (conv.kernel[0] * conv.kernel[1] * conv.in_c) as u64);
        let kind = ConvolutionKind::Depthwise { window, epilogue: self.epilogue(channels, &y) };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }

    pub(super) fn transposed(&mut self, is_int8: bool) -> Step {
        let groups = if self.source.once_in(3) { self.source.size(3).max(1) } else { 1 };
        let (in_c, out_c) = self.channels(groups);
        let (window, x): (Window<2>, _) = (self.window([4, 4, 3, 4]), self.image_of(in_c));
        let output_padding = [(); 2].map(|()| self.source.below(2) as u32);
        let [batch, in_h, in_w, in_c] = x.map(|size| size as usize);
        let conv = ConvTranspose2d {
            batch,
            in_h,
            in_w,
            in_c,
            out_c: out_c as usize,
            kernel: usizes(window.kernel),
            stride: usizes(window.stride),
            padding: window.padding.map(usizes),
            output_padding: usizes(output_padding),
            dilation: usizes(window.dilation),
            groups: groups as usize,
            in_stride: in_c,
            out_stride: out_c as usize,
        };
        let y = [x[0], conv.out_h() as u64, conv.out_w() as u64, out_c];
        let (x, groups) = (self.image(&x, is_int8), groups as u32);
        if is_int8 {
            let phases = window.stride.iter().map(|size| u64::from(*size)).product::<u64>();
            let w = self.blob(ScalarType::Char, pack::conv_transpose2d_i8_len(&conv).unwrap_or(0) as u64);
            let epilogue = self.int8_epilogue(out_c, phases * out_c, 1, &y);
            let kind = ConvolutionKind::Int8Transposed { window, output_padding, groups, epilogue };
            return Step::Convolution(Convolution { x, w, y: self.any_output(&y), kind });
        }
        let (w, format) = self.weights(pack::conv_transpose2d_f32_len(&conv));
        let epilogue = self.epilogue(out_c, &y);
        let kind = ConvolutionKind::Transposed { window, output_padding, groups, format, epilogue };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }

    pub(super) fn winograd(&mut self) -> Step {
        let (in_c, out_c) = (16 + self.source.size(9), 16 + self.source.size(9));
        let padding = [(); 2].map(|()| [self.source.below(3) as u32, self.source.below(3) as u32]);
        let x = self.image_of(in_c);
        let conv = conv2d(&Window { kernel: [3; 2], stride: [1; 2], padding, dilation: [1; 2] }, 1, x, out_c);
        let y = [x[0], conv.out_h() as u64, conv.out_w() as u64, out_c];
        let tile = self.source.one_of(&[Winograd::F2, Winograd::F4]);
        self.scratch(conv.out_h().div_ceil(2).max(4) * conv.out_w().div_ceil(2).max(4) * 40 * (in_c + out_c) as usize);
        let x = self.floats(&x);
        let w = self.blob(ScalarType::Float, pack::winograd_f32_len(tile, &conv).unwrap_or(0) as u64);
        let kind = ConvolutionKind::Winograd { tile, padding, epilogue: self.epilogue(out_c, &y) };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }

    pub(super) fn volume(&mut self, is_int8: bool) -> Step {
        let groups = self.source.size(2).max(1);
        let (in_c, out_c) = (groups * self.source.size(5), groups * self.source.size(20));
        let window: Window<3> = self.window([3, 3, 2, 3]);
        let (batch, size) = (self.source.size(2), [(); 3].map(|()| self.source.size(6)));
        let conv = Conv3d {
            batch: batch as usize,
            in_size: size.map(|size| size as usize),
            in_c: in_c as usize,
            out_c: out_c as usize,
            kernel: usizes(window.kernel),
            stride: usizes(window.stride),
            padding: window.padding.map(usizes),
            dilation: usizes(window.dilation),
            groups: groups as usize,
            in_stride: in_c as usize,
            out_stride: out_c as usize,
        };
        let [d, h, w] = conv.out_size().map(|size| size as u64);
        let y = [batch, d, h, w, out_c];
        let (x, groups) = (self.image(&[batch, size[0], size[1], size[2], in_c], is_int8), groups as u32);
        if is_int8 {
            let w = self.blob(ScalarType::Char, pack::conv3d_i8_len(&conv).unwrap_or(0) as u64);
            let kind =
                ConvolutionKind::Int8Direct3d { window, groups, epilogue: self.int8_epilogue(out_c, out_c, 1, &y) };
            return Step::Convolution(Convolution { x, w, y: self.any_output(&y), kind });
        }
        let (w, format) = self.weights(pack::conv3d_f32_len(&conv));
        let kind = ConvolutionKind::Direct3d { window, groups, format, epilogue: self.epilogue(out_c, &y) };
        Step::Convolution(Convolution { x, w, y: self.output(&y), kind })
    }
}

fn usizes<const D: usize>(sizes: [u32; D]) -> [usize; D] {
    sizes.map(|size| size as usize)
}

/// The shape of a convolution of an image `[N, H, W, C]`.
fn conv2d(window: &Window<2>, groups: u64, x: [u64; 4], out_c: u64) -> Conv2d {
    Conv2d {
        // The sizes of outputs are divided by the stride.
        stride: usizes(window.stride).map(|size| size.max(1)),
        padding: window.padding.map(usizes),
        dilation: usizes(window.dilation),
        groups: groups as usize,
        ..Conv2d::new(x.map(|size| size as usize), out_c as usize, usizes(window.kernel))
    }
}
