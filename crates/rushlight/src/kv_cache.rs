//! How KV caches are stored.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// How the KV caches of a program are stored: [`Compiler::kv_cache`](crate::Compiler::kv_cache).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvCache {
    /// As the program has them.
    #[default]
    F32,
    /// Integers of 8 bits, with a scale and a zero point for each row: the keys or values of one head at one position. They are
    /// chosen when the row is written, as ExecuTorch's quantized caches choose them.
    Int8,
}

impl KvCache {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::F32, Self::Int8];

    /// The name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
        }
    }
}

impl FromStr for KvCache {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            Error::invalid("KV caches are not stored so")
                .expected(Self::ALL.map(Self::name).join(" or "))
                .got(format!("`{name}`"))
        })
    }
}

impl fmt::Display for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
