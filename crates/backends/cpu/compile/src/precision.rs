//! The type of packed weights.

use rushlight_graph::Error;

use crate::error::error;

/// The type that weights of GEMMs and convolutions are rounded to. 16 bits save half of their memory and of the time that they
/// take to be read. Accumulators are `f32`, and so is everything else, except that processors with bf16 dot products (x86-64 with
/// AVX-512 BF16) also round what is multiplied with weights of that type, and what goes from one GEMM to the next, and take about
/// half of the time.
/// Weights that Winograd's algorithm transforms, which is not used with bf16, and those of depthwise convolutions stay `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    #[default]
    F32,
    /// 11 bits of mantissa, to 65504 in magnitude; greater weights are an error.
    F16,
    /// 8 bits of mantissa, and the range of `f32`.
    Bf16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// `f32`, `f16` or `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

impl std::str::FromStr for Precision {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|precision| precision.name() == name);
        known.ok_or_else(|| {
            error("no precision has this name").expected("`f32`, `f16` or `bf16`").got(format!("`{name}`"))
        })
    }
}
