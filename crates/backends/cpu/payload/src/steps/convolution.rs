//! Convolutions.

use alloc::vec::Vec;

use rushlight_engine::{Conv2d, Conv3d, ConvTranspose2d, Winograd, pack};
use rushlight_format::ScalarType;

use crate::codec::{Codec, Reader, structure, union};
use crate::error::Nonzero;
use crate::tensors::{Tensors, elements};
use crate::work::product;
use crate::{Epilogue, FloatFormat, Int8Epilogue, PayloadError, Sizes, StepKind, TensorId, Work};

/// A convolution of images `[N, H, W, C]` or volumes `[N, D, H, W, C]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Convolution {
    pub x: TensorId,
    pub w: TensorId,
    pub y: TensorId,
    pub kind: ConvolutionKind,
}

/// The algorithm of a [`Convolution`], its geometry and its arithmetic.
///
/// Packed panels are one matrix `[taps x C / groups, K / groups]` for each group; those of a transposed convolution are
/// packed by phase. Depthwise convolutions have one filter for each channel, `[taps, C]`, and as many outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConvolutionKind {
    Direct {
        window: Window<2>,
        groups: u32,
        format: FloatFormat,
        epilogue: Epilogue,
    },
    Direct3d {
        window: Window<3>,
        groups: u32,
        format: FloatFormat,
        epilogue: Epilogue,
    },
    /// f32 alone.
    Depthwise {
        window: Window<2>,
        epilogue: Epilogue,
    },
    Transposed {
        window: Window<2>,
        output_padding: [u32; 2],
        groups: u32,
        format: FloatFormat,
        epilogue: Epilogue,
    },
    /// 3x3 with stride 1, by transformed f32 weights.
    Winograd {
        tile: Winograd,
        padding: [[u32; 2]; 2],
        epilogue: Epilogue,
    },
    /// u8 x i8. If the left side is dynamically quantized, it is so per tensor.
    Int8Direct {
        window: Window<2>,
        groups: u32,
        epilogue: Int8Epilogue,
    },
    Int8Depthwise {
        window: Window<2>,
        epilogue: Int8Epilogue,
    },
    /// Each phase of the output has offsets of its own.
    Int8Transposed {
        window: Window<2>,
        output_padding: [u32; 2],
        groups: u32,
        epilogue: Int8Epilogue,
    },
    /// Like `Int8Direct`.
    Int8Direct3d {
        window: Window<3>,
        groups: u32,
        epilogue: Int8Epilogue,
    },
}

/// The window of a convolution over `D` spatial dimensions, the outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<const D: usize> {
    pub kernel: [u32; D],
    pub stride: [u32; D],
    /// Zeros before and after.
    pub padding: [[u32; 2]; D],
    pub dilation: [u32; D],
}

structure! { Convolution { x, w, y, kind } }

union! {
    ConvolutionKind {
        0 Direct { window, groups, format, epilogue }, 1 Direct3d { window, groups, format, epilogue },
        2 Depthwise { window, epilogue }, 3 Transposed { window, output_padding, groups, format, epilogue },
        4 Winograd { tile, padding, epilogue }, 5 Int8Direct { window, groups, epilogue },
        6 Int8Depthwise { window, epilogue }, 7 Int8Transposed { window, output_padding, groups, epilogue },
        8 Int8Direct3d { window, groups, epilogue }
    }
    Winograd { 0 F2, 1 F4 }
}

impl<const D: usize> Codec for Window<D> {
    fn put(&self, out: &mut Vec<u8>) {
        let Self { kernel, stride, padding, dilation } = self;
        kernel.put(out);
        stride.put(out);
        padding.put(out);
        dilation.put(out);
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, PayloadError> {
        let (kernel, stride) = (Codec::get(reader)?, Codec::get(reader)?);
        Ok(Self { kernel, stride, padding: Codec::get(reader)?, dilation: Codec::get(reader)? })
    }
}

impl StepKind for Convolution {
    fn name(&self) -> &'static str {
        match self.kind {
            ConvolutionKind::Depthwise { .. } | ConvolutionKind::Int8Depthwise { .. } => "depthwise convolution",
            ConvolutionKind::Transposed { .. } | ConvolutionKind::Int8Transposed { .. } => "transposed convolution",
            ConvolutionKind::Direct { .. }
            | ConvolutionKind::Direct3d { .. }
            | ConvolutionKind::Winograd { .. }
            | ConvolutionKind::Int8Direct { .. }
            | ConvolutionKind::Int8Direct3d { .. } => "convolution",
        }
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        let Self { x, w, kind, .. } = self;
        visit(*x);
        visit(*w);
        match kind {
            ConvolutionKind::Direct { epilogue, .. }
            | ConvolutionKind::Direct3d { epilogue, .. }
            | ConvolutionKind::Depthwise { epilogue, .. }
            | ConvolutionKind::Transposed { epilogue, .. }
            | ConvolutionKind::Winograd { epilogue, .. } => epilogue.for_each_input(visit),
            ConvolutionKind::Int8Direct { epilogue, .. }
            | ConvolutionKind::Int8Depthwise { epilogue, .. }
            | ConvolutionKind::Int8Transposed { epilogue, .. }
            | ConvolutionKind::Int8Direct3d { epilogue, .. } => epilogue.for_each_input(visit),
        }
    }

    fn check(&self, tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let Self { x, w, y, kind } = *self;
        if let Some(groups) = kind.groups() {
            Nonzero::Groups.check(&[groups])?;
        }
        let channels = tensors.last_size(x).zip(tensors.last_size(y));
        let direct = |window: &Window<2>, groups: u32, len: fn(&Conv2d) -> Option<usize>| {
            channels.map(|channels| elements(len(&conv2d(window, groups, channels))))
        };
        let volume = |window: &Window<3>, groups: u32, len: fn(&Conv3d) -> Option<usize>| {
            channels.map(|channels| elements(len(&conv3d(window, groups, channels))))
        };
        let transposed = |window: &Window<2>, groups: u32, len: fn(&ConvTranspose2d) -> Option<usize>| {
            channels.map(|channels| elements(len(&conv_transpose2d(window, groups, channels))))
        };
        let inputs = |visit: &mut dyn FnMut(TensorId)| self.for_each_input(visit);
        let float = |format: FloatFormat, len| {
            tensors.floats(inputs, &[], Some(y))?;
            tensors.weights(w, format.dtype(), len)
        };
        let int8 = |epilogue: &Int8Epilogue, len| {
            epilogue.check(tensors, inputs, x)?;
            tensors.weights(w, ScalarType::Char, len)
        };
        match kind {
            ConvolutionKind::Direct { window, groups, format, .. } => {
                check_window(&window)?;
                float(format, direct(&window, groups, pack::conv2d_f32_len))
            }
            ConvolutionKind::Direct3d { window, groups, format, .. } => {
                check_window(&window)?;
                float(format, volume(&window, groups, pack::conv3d_f32_len))
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
            ConvolutionKind::Int8Direct3d { window, groups, epilogue } => {
                check_window(&window)?;
                int8(&epilogue, volume(&window, groups, pack::conv3d_i8_len))
            }
        }
    }

    /// `y max(1, taps C / groups)` operations. The limit is `y max(1, w)`: the weights have a row for each tap and channel.
    /// A transposed int8 convolution has phases besides, each with offsets of its own.
    fn work(&self, sizes: &dyn Sizes) -> Option<Work> {
        let Self { x, w, y, kind } = self;
        let (y, weights, channels) = (sizes.elements(*y), sizes.elements(*w), sizes.last(*x));
        // Windows of no channels have no taps to look at.
        let depth = kind.groups().map_or(1, |groups| channels / u128::from(groups.max(1)));
        let taps = if channels == 0 { 0 } else { product(kind.kernel().iter().map(|size| u64::from(*size))) };
        let window = taps.saturating_mul(depth);
        let (mut operations, mut limit) = (y.saturating_mul(window.max(1)), y.saturating_mul(weights.max(1)));
        if let ConvolutionKind::Int8Transposed { window, epilogue, .. } = kind {
            let phases = product(window.stride.map(u64::from));
            operations = operations.saturating_add(if y == 0 { 0 } else { phases });
            limit = limit.saturating_add(sizes.elements(epilogue.offsets()));
        }
        Some(Work { operations, limit })
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        let Self { x, y, kind, .. } = self;
        let taps: f64 = kind.kernel().iter().map(|&size| f64::from(size)).product();
        let of_group =
            |tensor: TensorId| kind.groups().map_or(1.0, |groups| sizes.last(tensor) as f64 / f64::from(groups.max(1)));
        if matches!(kind, ConvolutionKind::Transposed { .. } | ConvolutionKind::Int8Transposed { .. }) {
            2.0 * sizes.elements(*x) as f64 * taps * of_group(*y)
        } else {
            2.0 * sizes.elements(*y) as f64 * taps * of_group(*x)
        }
    }
}

impl ConvolutionKind {
    /// Returns the sizes of the kernel.
    pub const fn kernel(&self) -> &[u32] {
        match self {
            Self::Direct { window, .. }
            | Self::Depthwise { window, .. }
            | Self::Transposed { window, .. }
            | Self::Int8Direct { window, .. }
            | Self::Int8Depthwise { window, .. }
            | Self::Int8Transposed { window, .. } => &window.kernel,
            Self::Direct3d { window, .. } | Self::Int8Direct3d { window, .. } => &window.kernel,
            Self::Winograd { .. } => &[3, 3],
        }
    }

    /// Returns the number of groups; `None` if each channel is one.
    pub const fn groups(&self) -> Option<u32> {
        match self {
            Self::Direct { groups, .. }
            | Self::Direct3d { groups, .. }
            | Self::Transposed { groups, .. }
            | Self::Int8Direct { groups, .. }
            | Self::Int8Transposed { groups, .. }
            | Self::Int8Direct3d { groups, .. } => Some(*groups),
            Self::Winograd { .. } => Some(1),
            Self::Depthwise { .. } | Self::Int8Depthwise { .. } => None,
        }
    }
}

fn check_window<const D: usize>(window: &Window<D>) -> Result<(), PayloadError> {
    Nonzero::Kernel.check(&window.kernel)?;
    Nonzero::Stride.check(&window.stride)?;
    Nonzero::Dilation.check(&window.dilation)
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

#[cfg(test)]
impl crate::examples::Examples for Convolution {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        use crate::examples::{AFTER, BEFORE, BF16, DYNAMIC, F16, STATIC};

        let step = |kind| Convolution { x: 1, w: 2, y: 3, kind };
        let window = Window { kernel: [2, 3], stride: [1, 2], padding: [[0, 1], [4, 5]], dilation: [6, 7] };
        let volume = Window { kernel: [1, 2, 3], stride: [4, 5, 6], padding: [[1, 0]; 3], dilation: [7, 8, 9] };
        let (output_padding, groups, padding) = ([1, 0], 200, [[1, 2], [3, 4]]);
        [
            (
                step(ConvolutionKind::Direct { window, groups, format: F16, epilogue: BEFORE }),
                "010102030002030102000104050607c80101000104010005020000003f",
            ),
            (
                step(ConvolutionKind::Direct3d { window: volume, groups, format: FloatFormat::F32, epilogue: AFTER }),
                "0101020301010203040506010001000100070809c801000104010106020000003f",
            ),
            (
                step(ConvolutionKind::Depthwise { window, epilogue: BEFORE }),
                "0101020302020301020001040506070104010005020000003f",
            ),
            (
                step(ConvolutionKind::Transposed { window, output_padding, groups, format: BF16, epilogue: AFTER }),
                "0101020303020301020001040506070100c80101010104010106020000003f",
            ),
            (
                step(ConvolutionKind::Winograd { tile: Winograd::F2, padding, epilogue: AFTER }),
                "010102030400010203040104010106020000003f",
            ),
            (
                step(ConvolutionKind::Winograd { tile: Winograd::F4, padding, epilogue: BEFORE }),
                "010102030401010203040104010005020000003f",
            ),
            (
                step(ConvolutionKind::Int8Direct { window, groups, epilogue: STATIC }),
                "010102030502030102000104050607c801000102010401020000003f808080f8030301fe010303",
            ),
            (
                step(ConvolutionKind::Int8Depthwise { window, epilogue: DYNAMIC }),
                "010102030602030102000104050607010701020000",
            ),
            (
                step(ConvolutionKind::Int8Transposed { window, output_padding, groups, epilogue: DYNAMIC }),
                "0101020307020301020001040506070100c801010701020000",
            ),
            (
                step(ConvolutionKind::Int8Direct3d { window: volume, groups, epilogue: DYNAMIC }),
                "0101020308010203040506010001000100070809c801010701020000",
            ),
        ]
    }
}
