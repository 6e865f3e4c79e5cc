//! Scratch memory of CMSIS-NN's kernels, as its functions `*_get_buffer_size` compute it. The kernels do not check its size.

use crate::target::Isa;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScratchBytes(pub i64);

/// The sizes of a convolution that determine its scratch memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution {
    /// `[N, C, H, W]`.
    pub input: [i64; 4],
    pub output: [i64; 4],
    pub kernel: [i64; 2],
    /// Number of input channels of a group.
    pub depth: i64,
    pub stride: [i64; 2],
    pub padding: [i64; 2],
    pub dilation: [i64; 2],
}

impl ScratchBytes {
    pub const NONE: Self = Self(0);

    pub fn of_convolution(isa: Isa, c: &Convolution) -> Self {
        let [kernel_height, kernel_width] = c.kernel;
        let is_pointwise = c.kernel == [1, 1] && c.padding == [0, 0] && c.dilation == [1, 1];
        if is_pointwise && c.depth == c.input[1] {
            return Self::NONE;
        }
        let taps = kernel_height * kernel_width * c.input[1];
        // MVE's kernel for images of height 1 copies a row with its padding.
        let is_row = c.input[2] == 1 && kernel_height == 1 && c.dilation == [1, 1] && c.depth == c.input[1];
        if isa == Isa::Mve && is_row && (c.stride[1] * c.input[1]) % 4 == 0 {
            return Self((c.input[3] + 2 * c.padding[1]) * c.input[1]).max(Self(64 * round_up(taps, 16) / 16));
        }
        match isa {
            Isa::Mve => Self(64 * round_up(taps, 16) / 16),
            Isa::Scalar | Isa::Dsp => Self(4 * round_up(taps, 4)),
        }
    }

    pub fn of_depthwise(isa: Isa, c: &Convolution) -> Self {
        let [kernel_height, kernel_width] = c.kernel;
        let (channels, taps) = (c.input[1], kernel_height * kernel_width);
        let has_multiplier = c.output[1] != channels;
        match isa {
            // MVE's kernel computes a convolution with transposed weights.
            Isa::Mve if has_multiplier && channels == 1 => Self(Self::of_convolution(isa, c).0 + c.output[1] * taps),
            _ if has_multiplier || c.dilation != [1, 1] => Self::NONE,
            Isa::Scalar => Self::NONE,
            Isa::Dsp if c.kernel == [3, 3] && c.padding.iter().all(|padding| *padding <= 1) => Self::NONE,
            Isa::Dsp => Self(2 * channels * taps),
            Isa::Mve => Self(4 * 124 * taps),
        }
    }

    /// The sizes of the scratch memory for accumulators, and for reversed weights.
    pub fn of_transposed(isa: Isa, c: &Convolution) -> [Self; 2] {
        let ([kernel_height, kernel_width], [_, depth, _, width]) = (c.kernel, c.input);
        let is_reversed = depth > 16 && c.stride.iter().all(|stride| *stride <= 2);
        let rows = kernel_height.max(c.stride[0]) * ((width - 1) * c.stride[1] + kernel_width.max(c.stride[1]));
        let scattered = 4 * rows * c.output[1];
        if !is_reversed {
            return [Self(scattered), Self::NONE];
        }
        // CMSIS-NN then computes a convolution with padding, never a pointwise one.
        let padded = Convolution { depth, padding: [1, 1], ..*c };
        [
            Self(Self::of_convolution(isa, &padded).0.max(scattered)),
            Self(depth * kernel_height * kernel_width * c.output[1]),
        ]
    }

    pub const fn of_average(isa: Isa, channels: i64) -> Self {
        match isa {
            Isa::Dsp => Self(4 * channels),
            Isa::Scalar | Isa::Mve => Self::NONE,
        }
    }

    /// The size for a batched matmul with `outputs` columns.
    pub const fn of_matmul(isa: Isa, outputs: i64) -> Self {
        match isa {
            Isa::Mve => Self(4 * outputs),
            Isa::Scalar | Isa::Dsp => Self::NONE,
        }
    }

    fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

fn round_up(number: i64, unit: i64) -> i64 {
    (number + unit - 1) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONVOLUTION: Convolution = Convolution {
        input: [1, 16, 12, 9],
        output: [1, 16, 12, 9],
        kernel: [3, 3],
        depth: 16,
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
    };

    #[test]
    fn sizes_equal_those_of_cmsis_nn() {
        let of = |isa, c: Convolution| ScratchBytes::of_convolution(isa, &c).0;
        assert_eq!([Isa::Scalar, Isa::Dsp, Isa::Mve].map(|isa| of(isa, CONVOLUTION)), [576, 576, 576]);
        let odd = Convolution { input: [1, 3, 12, 9], depth: 3, ..CONVOLUTION };
        assert_eq!([Isa::Dsp, Isa::Mve].map(|isa| of(isa, odd)), [112, 128]);
        let point = Convolution { kernel: [1, 1], padding: [0, 0], ..CONVOLUTION };
        assert_eq!(of(Isa::Mve, point), 0);
        let depthwise = |isa, c: Convolution| ScratchBytes::of_depthwise(isa, &c).0;
        assert_eq!([Isa::Scalar, Isa::Dsp, Isa::Mve].map(|isa| depthwise(isa, CONVOLUTION)), [0, 0, 4464]);
        assert_eq!(depthwise(Isa::Dsp, Convolution { padding: [2, 2], ..CONVOLUTION }), 288);
        let first = Convolution { input: [1, 1, 12, 9], depth: 1, ..CONVOLUTION };
        assert_eq!([Isa::Dsp, Isa::Mve].map(|isa| depthwise(isa, first)), [0, 64 + 144]);
        let grouped = Convolution { depth: 8, ..point };
        assert_eq!([Isa::Dsp, Isa::Mve].map(|isa| of(isa, grouped)), [64, 64]);
        // 32 channels to 1, 2x2, stride 2, as `arm_transpose_conv_s8_get_buffer_size` has it for the reversed convolution.
        let transposed = Convolution {
            input: [1, 32, 4, 4],
            output: [1, 1, 8, 8],
            kernel: [2, 2],
            depth: 1,
            stride: [2, 2],
            padding: [0, 0],
            dilation: [1, 1],
        };
        assert_eq!(ScratchBytes::of_transposed(Isa::Dsp, &transposed)[0].0, 512);
    }
}
