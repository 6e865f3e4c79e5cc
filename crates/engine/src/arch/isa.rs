//! Names of instruction sets.

use core::fmt;

/// An instruction set that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Portable code, for targets that do not promise vectors, and for tests.
    Scalar,
    /// Baseline x86-64.
    Sse2,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// AVX2 with AVX-VNNI (int8 dot products).
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with VNNI (int8 dot products).
    Avx512Vnni,
    /// AVX-512 with VNNI and BF16 (bf16 dot products).
    Avx512Bf16,
    /// AVX-512 with VNNI, BF16, AMX-INT8 and AMX-BF16 (matmuls of tiles). Only on Linux with the feature `std`: looking for it asks the
    /// system, once, to let the process use tiles (`ARCH_REQ_XCOMP_PERM`).
    Amx,
    /// 64-bit Arm with Advanced SIMD.
    Neon,
    /// NEON with FEAT_DotProd (i8 x i8 dot products).
    NeonDot,
    /// NEON with FEAT_I8MM (u8 x i8 dot products).
    NeonI8mm,
    /// WebAssembly with `simd128`.
    Simd128,
    /// WebAssembly with `relaxed-simd`.
    RelaxedSimd,
}

impl Isa {
    /// All instruction sets: the portable one first, then by architecture from the weakest to the strongest.
    pub const ALL: &'static [Isa] = &[
        Isa::Scalar,
        Isa::Sse2,
        Isa::Avx2,
        Isa::AvxVnni,
        Isa::Avx512,
        Isa::Avx512Vnni,
        Isa::Avx512Bf16,
        Isa::Amx,
        Isa::Neon,
        Isa::NeonDot,
        Isa::NeonI8mm,
        Isa::Simd128,
        Isa::RelaxedSimd,
    ];

    /// Returns the strongest instruction set that this machine supports.
    pub fn detect() -> Isa {
        super::Dispatch::best().isa()
    }

    /// Returns all instruction sets that this machine supports.
    pub fn available() -> impl Iterator<Item = Isa> {
        Self::ALL.iter().copied().filter(|isa| isa.is_available())
    }

    /// Returns true if this machine supports the instruction set.
    pub fn is_available(self) -> bool {
        super::Dispatch::of(self).is_some()
    }

    /// Parses a [`name`](Self::name), ignoring case.
    pub fn from_name(name: &str) -> Option<Isa> {
        Self::ALL.iter().copied().find(|isa| isa.name().eq_ignore_ascii_case(name))
    }

    /// Returns the name: `scalar`, `sse2`, `avx2`, `avx-vnni`, `avx512`, `avx512-vnni`, `avx512-bf16`, `amx`, `neon`,
    /// `neon-dot`, `neon-i8mm`, `simd128` or `relaxed-simd`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Sse2 => "sse2",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avx-vnni",
            Isa::Avx512 => "avx512",
            Isa::Avx512Vnni => "avx512-vnni",
            Isa::Avx512Bf16 => "avx512-bf16",
            Isa::Amx => "amx",
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
