//! The element types of tensors, with ExecuTorch's (and c10's) numeric codes.

/// Element type of a tensor. The discriminants are the codes in `.pte` files and `c10::ScalarType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ScalarType {
    Byte = 0,
    Char = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Half = 5,
    Float = 6,
    Double = 7,
    ComplexHalf = 8,
    ComplexFloat = 9,
    ComplexDouble = 10,
    Bool = 11,
    QInt8 = 12,
    QUInt8 = 13,
    QInt32 = 14,
    BFloat16 = 15,
    QUInt4x2 = 16,
    QUInt2x4 = 17,
    Bits1x8 = 18,
    Bits2x4 = 19,
    Bits4x2 = 20,
    Bits8 = 21,
    Bits16 = 22,
    Float8E5M2 = 23,
    Float8E4M3Fn = 24,
    Float8E5M2Fnuz = 25,
    Float8E4M3Fnuz = 26,
    UInt16 = 27,
    UInt32 = 28,
    UInt64 = 29,
}

impl ScalarType {
    /// Every type, indexed by its code.
    pub const ALL: [Self; 30] = [
        Self::Byte,
        Self::Char,
        Self::Short,
        Self::Int,
        Self::Long,
        Self::Half,
        Self::Float,
        Self::Double,
        Self::ComplexHalf,
        Self::ComplexFloat,
        Self::ComplexDouble,
        Self::Bool,
        Self::QInt8,
        Self::QUInt8,
        Self::QInt32,
        Self::BFloat16,
        Self::QUInt4x2,
        Self::QUInt2x4,
        Self::Bits1x8,
        Self::Bits2x4,
        Self::Bits4x2,
        Self::Bits8,
        Self::Bits16,
        Self::Float8E5M2,
        Self::Float8E4M3Fn,
        Self::Float8E5M2Fnuz,
        Self::Float8E4M3Fnuz,
        Self::UInt16,
        Self::UInt32,
        Self::UInt64,
    ];

    /// The type with this code, if there is one.
    #[expect(clippy::indexing_slicing, reason = "in range, and `get` is not const")]
    pub const fn from_code(code: u8) -> Option<Self> {
        if (code as usize) < Self::ALL.len() { Some(Self::ALL[code as usize]) } else { None }
    }

    /// The numeric code, as stored in files.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type's code and number of bits in DLPack (`DLDataType`), if it has the type.
    pub const fn dlpack(self) -> Option<(u8, u8)> {
        // The codes of `DLDataTypeCode`: int, unsigned, float, bfloat, complex, bool.
        Some(match self {
            Self::Char => (0, 8),
            Self::Short => (0, 16),
            Self::Int => (0, 32),
            Self::Long => (0, 64),
            Self::Byte => (1, 8),
            Self::UInt16 => (1, 16),
            Self::UInt32 => (1, 32),
            Self::UInt64 => (1, 64),
            Self::Half => (2, 16),
            Self::Float => (2, 32),
            Self::Double => (2, 64),
            Self::BFloat16 => (4, 16),
            Self::ComplexHalf => (5, 32),
            Self::ComplexFloat => (5, 64),
            Self::ComplexDouble => (5, 128),
            Self::Bool => (6, 8),
            _ => return None,
        })
    }

    /// The type with this code and number of bits in DLPack, if there is one.
    pub fn from_dlpack(code: u8, bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.dlpack() == Some((code, bits)))
    }

    /// Bytes of one element. Packed sub-byte types count one byte, as ExecuTorch does.
    #[expect(clippy::indexing_slicing, reason = "in range, and `get` is not const")]
    pub const fn size(self) -> usize {
        Self::SIZES[self as usize] as usize
    }

    /// A table of bytes: the code of a `match` would be four times as large.
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    const SIZES: [u8; Self::ALL.len()] = {
        let mut sizes = [0; Self::ALL.len()];
        let mut code = 0;
        while code < sizes.len() {
            sizes[code] = Self::ALL[code].bytes();
            code += 1;
        }
        sizes
    };

    const fn bytes(self) -> u8 {
        match self {
            Self::Byte
            | Self::Char
            | Self::Bool
            | Self::QInt8
            | Self::QUInt8
            | Self::QUInt4x2
            | Self::QUInt2x4
            | Self::Bits1x8
            | Self::Bits2x4
            | Self::Bits4x2
            | Self::Bits8
            | Self::Float8E5M2
            | Self::Float8E4M3Fn
            | Self::Float8E5M2Fnuz
            | Self::Float8E4M3Fnuz => 1,
            Self::Short | Self::Half | Self::BFloat16 | Self::Bits16 | Self::UInt16 => 2,
            Self::Int | Self::Float | Self::QInt32 | Self::UInt32 | Self::ComplexHalf => 4,
            Self::Long | Self::Double | Self::UInt64 | Self::ComplexFloat => 8,
            Self::ComplexDouble => 16,
        }
    }

    /// The name in PyTorch and NumPy: `float32`, `int64`, `bfloat16`, `bool`. Types that these do not have keep the short one.
    pub const fn long_name(self) -> &'static str {
        match self {
            Self::Byte => "uint8",
            Self::Char => "int8",
            Self::Short => "int16",
            Self::Int => "int32",
            Self::Long => "int64",
            Self::Half => "float16",
            Self::Float => "float32",
            Self::Double => "float64",
            Self::Bool => "bool",
            Self::BFloat16 => "bfloat16",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
            Self::ComplexHalf => "complex32",
            Self::ComplexFloat => "complex64",
            Self::ComplexDouble => "complex128",
            other => other.name(),
        }
    }

    /// Short lower-case name as used in messages and tables: `f32`, `i64`, `bf16`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Byte => "u8",
            Self::Char => "i8",
            Self::Short => "i16",
            Self::Int => "i32",
            Self::Long => "i64",
            Self::Half => "f16",
            Self::Float => "f32",
            Self::Double => "f64",
            Self::ComplexHalf => "c32",
            Self::ComplexFloat => "c64",
            Self::ComplexDouble => "c128",
            Self::Bool => "bool",
            Self::QInt8 => "qint8",
            Self::QUInt8 => "quint8",
            Self::QInt32 => "qint32",
            Self::BFloat16 => "bf16",
            Self::QUInt4x2 => "quint4x2",
            Self::QUInt2x4 => "quint2x4",
            Self::Bits1x8 => "bits1x8",
            Self::Bits2x4 => "bits2x4",
            Self::Bits4x2 => "bits4x2",
            Self::Bits8 => "bits8",
            Self::Bits16 => "bits16",
            Self::Float8E5M2 => "f8e5m2",
            Self::Float8E4M3Fn => "f8e4m3fn",
            Self::Float8E5M2Fnuz => "f8e5m2fnuz",
            Self::Float8E4M3Fnuz => "f8e4m3fnuz",
            Self::UInt16 => "u16",
            Self::UInt32 => "u32",
            Self::UInt64 => "u64",
        }
    }

    pub const fn is_floating(self) -> bool {
        matches!(self, Self::Half | Self::Float | Self::Double | Self::BFloat16)
    }

    pub const fn is_complex(self) -> bool {
        matches!(self, Self::ComplexHalf | Self::ComplexFloat | Self::ComplexDouble)
    }

    /// True for the integer types and, if `include_bool`, for `Bool`.
    pub const fn is_integral(self, include_bool: bool) -> bool {
        match self {
            Self::Byte
            | Self::Char
            | Self::Short
            | Self::Int
            | Self::Long
            | Self::UInt16
            | Self::UInt32
            | Self::UInt64 => true,
            Self::Bool => include_bool,
            _ => false,
        }
    }
}

impl core::fmt::Display for ScalarType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_dlpack_come_back() {
        let known = ScalarType::ALL.into_iter().filter_map(|dtype| Some((dtype, dtype.dlpack()?)));
        let mut count = 0;
        for (dtype, (code, bits)) in known {
            assert_eq!(ScalarType::from_dlpack(code, bits), Some(dtype));
            assert_eq!(usize::from(bits), 8 * dtype.size());
            count += 1;
        }
        assert_eq!(count, 16);
        assert_eq!(ScalarType::from_dlpack(3, 64), None);
    }
}
