//! Runtime dispatch: the instruction set that was chosen, and the entry into code compiled for it.
//!
//! Each instruction set adds a copy of all kernels. Scalar ones exist only where the target has no baseline SIMD; WebAssembly,
//! which cannot detect anything at run time, has those of the strongest instruction set that it is compiled for. With the feature
//! `wide-scalar` all of them exist, to be compared.

use super::isa::Isa;
#[cfg(any(not(baseline_simd), feature = "wide-scalar"))]
use super::scalar;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use super::wasm;
use super::{Kernel, Simd};
#[cfg(target_arch = "x86_64")]
use super::{amx::Amx, avx2, avx512, sse2};
#[cfg(target_arch = "aarch64")]
use super::{neon, neon_int8};

/// An instruction set that this machine supports, chosen at run time.
#[derive(Clone, Copy)]
pub(crate) enum Dispatch {
    #[cfg(any(not(baseline_simd), feature = "wide-scalar"))]
    Scalar(scalar::Scalar),
    /// The register tile of AVX-512 in portable code, so that its control flow is tested on every machine.
    #[cfg(feature = "wide-scalar")]
    WideScalar(scalar::WideScalar),
    #[cfg(target_arch = "x86_64")]
    Sse2(sse2::Sse2),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512<{ avx512::PLAIN }>),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon<{ neon_int8::PLAIN }>),
    #[cfg(all(target_feature = "simd128", any(not(target_feature = "relaxed-simd"), feature = "wide-scalar")))]
    Simd128(wasm::Wasm<false>),
    #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
    RelaxedSimd(wasm::Wasm<true>),
}

/// The instruction set that needs no check.
#[cfg(not(baseline_simd))]
const CERTAIN: Dispatch = Dispatch::Scalar(scalar::Scalar::new());
#[cfg(all(baseline_simd, target_arch = "x86_64"))]
const CERTAIN: Dispatch = Dispatch::Sse2(sse2::Sse2::BASELINE);
#[cfg(all(baseline_simd, target_arch = "aarch64"))]
const CERTAIN: Dispatch = Dispatch::Neon(neon::Neon::BASELINE);
#[cfg(all(target_feature = "simd128", not(target_feature = "relaxed-simd")))]
const CERTAIN: Dispatch = Dispatch::Simd128(wasm::Wasm::<false>::new());
#[cfg(target_feature = "relaxed-simd")]
const CERTAIN: Dispatch = Dispatch::RelaxedSimd(wasm::Wasm::<true>::new());

impl Dispatch {
    /// Returns the token of an instruction set; `None` if this machine does not support it.
    pub(crate) fn of(isa: Isa) -> Option<Dispatch> {
        match isa {
            #[cfg(any(not(baseline_simd), feature = "wide-scalar"))]
            Isa::Scalar => Some(Dispatch::Scalar(scalar::Scalar::new())),
            #[cfg(target_arch = "x86_64")]
            Isa::Sse2 => sse2::Sse2::new().map(Dispatch::Sse2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::Avx2::new().map(Dispatch::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => avx2::Avx2::with_vnni().map(Dispatch::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::Avx512::new().map(Dispatch::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => avx512::Avx512::with_vnni().map(Dispatch::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => avx512::Avx512::with_bf16().map(Dispatch::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => avx512::Avx512::with_amx().map(Dispatch::Avx512),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::Neon::new().map(Dispatch::Neon),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => neon::Neon::with_dotprod().map(Dispatch::Neon),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm => neon::Neon::with_i8mm().map(Dispatch::Neon),
            #[cfg(all(target_feature = "simd128", any(not(target_feature = "relaxed-simd"), feature = "wide-scalar")))]
            Isa::Simd128 => Some(Dispatch::Simd128(wasm::Wasm::<false>::new())),
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Isa::RelaxedSimd => Some(Dispatch::RelaxedSimd(wasm::Wasm::<true>::new())),
            _ => None,
        }
    }

    /// Returns the strongest instruction set that this machine supports.
    pub(crate) fn best() -> Dispatch {
        let found = Isa::ALL.iter().rev().find_map(|&isa| Dispatch::of(isa));
        found.unwrap_or(CERTAIN)
    }

    /// Returns the name, including the extension that the processor has.
    pub(crate) fn isa(self) -> Isa {
        match self {
            #[cfg(any(not(baseline_simd), feature = "wide-scalar"))]
            Dispatch::Scalar(_) => Isa::Scalar,
            #[cfg(feature = "wide-scalar")]
            Dispatch::WideScalar(_) => Isa::Scalar,
            #[cfg(target_arch = "x86_64")]
            Dispatch::Sse2(_) => Isa::Sse2,
            #[cfg(target_arch = "x86_64")]
            Dispatch::Avx2(simd) if simd.has_int8_dot() => Isa::AvxVnni,
            #[cfg(target_arch = "x86_64")]
            Dispatch::Avx2(_) => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Dispatch::Avx512(simd) if simd.amx().is_some() => Isa::Amx,
            #[cfg(target_arch = "x86_64")]
            Dispatch::Avx512(simd) if simd.with_bf16().is_some() => Isa::Avx512Bf16,
            #[cfg(target_arch = "x86_64")]
            Dispatch::Avx512(simd) if simd.has_int8_dot() => Isa::Avx512Vnni,
            #[cfg(target_arch = "x86_64")]
            Dispatch::Avx512(_) => Isa::Avx512,
            #[cfg(target_arch = "aarch64")]
            Dispatch::Neon(simd) if simd.has_i8mm() => Isa::NeonI8mm,
            #[cfg(target_arch = "aarch64")]
            Dispatch::Neon(simd) if simd.has_int8_dot() => Isa::NeonDot,
            #[cfg(target_arch = "aarch64")]
            Dispatch::Neon(_) => Isa::Neon,
            #[cfg(all(target_feature = "simd128", any(not(target_feature = "relaxed-simd"), feature = "wide-scalar")))]
            Dispatch::Simd128(_) => Isa::Simd128,
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Dispatch::RelaxedSimd(_) => Isa::RelaxedSimd,
        }
    }

    /// Runs a kernel in code compiled for this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self {
            #[cfg(any(not(baseline_simd), feature = "wide-scalar"))]
            Dispatch::Scalar(simd) => simd.vectorize(kernel),
            #[cfg(feature = "wide-scalar")]
            Dispatch::WideScalar(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Dispatch::Sse2(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Dispatch::Avx2(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Dispatch::Avx512(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "aarch64")]
            Dispatch::Neon(simd) => simd.vectorize(kernel),
            #[cfg(all(target_feature = "simd128", any(not(target_feature = "relaxed-simd"), feature = "wide-scalar")))]
            Dispatch::Simd128(simd) => simd.vectorize(kernel),
            #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
            Dispatch::RelaxedSimd(simd) => simd.vectorize(kernel),
        }
    }

    /// Like [`run`](Self::run), with a native [`dot_u8i8`](Simd::dot_u8i8) if the processor has one.
    #[inline]
    pub(crate) fn run_int8<K: Kernel>(self, kernel: K) -> K::Out {
        struct WithInt8Dot<K>(K);
        impl<K: Kernel> Kernel for WithInt8Dot<K> {
            type Out = K::Out;
            #[inline(always)]
            fn run<S: Simd>(self, s: S) -> K::Out {
                s.vectorize_int8(self.0)
            }
        }
        self.run(WithInt8Dot(kernel))
    }

    /// Returns the tokens of AVX-512 and AMX if the instruction set is [`Isa::Amx`].
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn amx(self) -> Option<(impl Simd, Amx)> {
        let Dispatch::Avx512(simd) = self else { return None };
        simd.amx().map(|amx| (simd, amx))
    }

    /// Rows (MR) and panels (NR / 16) of the largest f32 register tile.
    pub(crate) fn tile(self) -> (usize, usize) {
        struct Shape;
        impl Kernel for Shape {
            type Out = (usize, usize);
            #[inline(always)]
            fn run<S: Simd>(self, _: S) -> (usize, usize) {
                (S::MR, S::NR_PANELS)
            }
        }
        self.run(Shape)
    }
}

impl core::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.isa().fmt(f)
    }
}
