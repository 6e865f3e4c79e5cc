//! Storage formats of KV caches.

use std::fmt;
use std::str::FromStr;

use rushlight_compiler::passes::CacheFormat;

use crate::error::Error;

/// The storage format of a program's KV caches: [`Compiler::kv_cache`](crate::Compiler::kv_cache).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvCache {
    /// The program's own format.
    #[default]
    F32,
    /// Half the memory, and 11 bits of precision. Values beyond 65504 become infinite.
    F16,
    /// Half the memory, and 8 bits of precision in the range of f32.
    Bf16,
    /// Integers of 8 bits, with a scale and a zero point for each row: the keys or values of one head at one position.
    /// They are chosen when the row is written, as in ExecuTorch's quantized caches.
    Int8,
    /// Integers of 4 bits, with a scale and a zero point for each group of 32 elements of a row.
    Int4,
}

impl KvCache {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Int8, Self::Int4];

    /// Returns the name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// Returns the format of caches; `None` for the program's own.
    pub(crate) const fn format(self) -> Option<CacheFormat> {
        match self {
            Self::F32 => None,
            Self::F16 => Some(CacheFormat::F16),
            Self::Bf16 => Some(CacheFormat::Bf16),
            Self::Int8 => Some(CacheFormat::Int8),
            Self::Int4 => Some(CacheFormat::Int4),
        }
    }
}

impl FromStr for KvCache {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            Error::invalid("KV caches are not stored so")
                .expected(Self::ALL.map(Self::name).join(", "))
                .got(format!("`{name}`"))
        })
    }
}

impl fmt::Display for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
