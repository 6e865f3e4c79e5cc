//! Elements of any type as unsigned numbers of the same order.

use rushlight_runtime::{Detail, Result, ScalarType, Tensor};

/// Reads elements as keys. Both zeros have one key; NaN has the maximum key.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    bytes: &'a [u8],
    dtype: ScalarType,
    width: usize,
}

impl<'a> Keys<'a> {
    pub(super) fn new(tensor: &Tensor<'a>) -> Result<Self> {
        use ScalarType::{BFloat16, Bool, Byte, Char, Double, Float, Half, Int, Long, Short};
        let dtype = tensor.dtype();
        match dtype {
            Byte | Char | Short | Int | Long | Half | BFloat16 | Float | Double | Bool => {
                Ok(Self { bytes: tensor.bytes(), dtype, width: dtype.size() })
            }
            got => Err(Detail::Dtype { expected: "bool, an integer or floating type", got }.into()),
        }
    }

    /// The key of the element at `offset`.
    pub(super) fn at(&self, offset: usize) -> u64 {
        let from = self.bytes.get(offset * self.width..).unwrap_or(&[]);
        let bits = from.iter().take(self.width).rev().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
        let top = 1u64 << (8 * self.width - 1);
        match self.dtype {
            ScalarType::Byte | ScalarType::Bool => bits,
            dtype if dtype.is_floating() => {
                if self.is_nan_bits(bits) {
                    return u64::MAX;
                }
                let magnitude = bits & (top - 1);
                // Negative numbers grow towards zero.
                if bits & top != 0 { top - magnitude } else { top + magnitude }
            }
            _ => bits ^ top,
        }
    }

    fn is_nan_bits(&self, bits: u64) -> bool {
        let (magnitude, infinity) = match self.dtype {
            ScalarType::Half => (bits & 0x7FFF, 0x7C00),
            ScalarType::BFloat16 => (bits & 0x7FFF, 0x7F80),
            ScalarType::Float => (bits & 0x7FFF_FFFF, 0x7F80_0000),
            _ => (bits & (u64::MAX >> 1), 0x7FF0_0000_0000_0000),
        };
        magnitude > infinity
    }

    /// True if the element is not a number. Keys of other elements are less.
    pub(super) const fn is_nan(key: u64) -> bool {
        key == u64::MAX
    }
}

/// The offset of the element with this number in row-major order.
pub(super) fn offset_of(sizes: &[usize], strides: &[usize], index: usize) -> usize {
    let mut rest = index;
    sizes.iter().zip(strides).rev().fold(0, |offset, (&size, &stride)| {
        let place = rest % size.max(1);
        rest /= size.max(1);
        offset + place * stride
    })
}
