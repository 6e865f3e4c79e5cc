//! The names of instruction sets.

use core::fmt;

/// An instruction set that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Portable code, for every target.
    Scalar,
    /// x86-64 as it always is.
    Sse2,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// The same with AVX-VNNI, products of four bytes.
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// The same with VNNI, products of four bytes.
    Avx512Vnni,
    /// The same with products of pairs of bf16, for weights of that type.
    Avx512Bf16,
    /// 64-bit Arm with Advanced SIMD.
    Neon,
    /// The same with DotProd, products of four bytes.
    NeonDot,
    /// The same with I8MM, whose products are of bytes without a sign too.
    NeonI8mm,
    /// WebAssembly with 128-bit vectors.
    Simd128,
    /// WebAssembly with 128-bit vectors and relaxed operations on them.
    RelaxedSimd,
}

impl Isa {
    /// All of them, the portable one first, within an architecture from the weakest to the strongest.
    pub const ALL: &'static [Isa] = &[
        Isa::Scalar,
        Isa::Sse2,
        Isa::Avx2,
        Isa::AvxVnni,
        Isa::Avx512,
        Isa::Avx512Vnni,
        Isa::Avx512Bf16,
        Isa::Neon,
        Isa::NeonDot,
        Isa::NeonI8mm,
        Isa::Simd128,
        Isa::RelaxedSimd,
    ];

    /// The best that this machine has.
    pub fn detect() -> Isa {
        crate::arch::Level::best().isa()
    }

    /// Those that this machine has.
    pub fn available() -> impl Iterator<Item = Isa> {
        Self::ALL.iter().copied().filter(|isa| isa.is_available())
    }

    pub fn is_available(self) -> bool {
        crate::arch::Level::of(self).is_some()
    }

    /// The instruction set of this [`name`](Self::name), in any case of letters.
    pub fn from_name(name: &str) -> Option<Isa> {
        Self::ALL.iter().copied().find(|isa| isa.name().eq_ignore_ascii_case(name))
    }

    /// `scalar`, `sse2`, `avx2`, `avx-vnni`, `avx512`, `avx512-vnni`, `avx512-bf16`, `neon`, `neon-dot`, `neon-i8mm`, `simd128` or `relaxed-simd`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Sse2 => "sse2",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avx-vnni",
            Isa::Avx512 => "avx512",
            Isa::Avx512Vnni => "avx512-vnni",
            Isa::Avx512Bf16 => "avx512-bf16",
            Isa::Neon => "neon",
            Isa::NeonDot => "neon-dot",
            Isa::NeonI8mm => "neon-i8mm",
            Isa::Simd128 => "simd128",
            Isa::RelaxedSimd => "relaxed-simd",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
