//! The type of packed weights.

/// The type that weights of GEMMs and convolutions are rounded to; 16 bits halve their memory and the time to read it.
///
/// Accumulators are `f32`, and so are activations, with one exception: processors with bf16 dot products (x86-64 with
/// AVX-512 BF16) round the left-hand side of [`Bf16`](Self::Bf16) weights to bf16, and keep activations between GEMMs in bf16,
/// which takes about half of the time. Weights of depthwise convolutions and of Winograd's algorithm, which `Bf16` turns off,
/// stay `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    #[default]
    F32,
    /// 11 bits of mantissa, maximum magnitude 65504; larger weights are an error.
    F16,
    /// 8 bits of mantissa, the range of `f32`.
    Bf16,
}

impl Precision {
    /// The values of the option `precision`.
    pub(crate) const NAMES: &[&str] = &["f32", "f16", "bf16"];

    /// Returns the value of the option `precision`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Parses the value of the option `precision`.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [Self::F32, Self::F16, Self::Bf16].into_iter().find(|precision| precision.name() == name)
    }
}
