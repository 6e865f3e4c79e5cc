//! The epilogue of a GEMM or convolution: bias, residual and activation, applied while the results are in registers or
//! in the L1 cache.
#![allow(unsafe_code)]

mod activation;
mod apply;

pub use activation::Activation;
pub(crate) use apply::{Accumulator, ApplyEpilogue, VectorPosition};

use crate::arch::{Interleaved, Simd};
use crate::element::{Element, ElementPtr, ElementPtrMut};
use crate::error::{Error, at_least, span};
use crate::{Engine, FloatSlice};

/// Operations applied to each output element, in this order: add the bias; add the residual if `residual_first`; apply
/// the activation; add the residual otherwise.
///
/// The default does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Epilogue<'a> {
    /// One value per output column (channel).
    pub bias: Option<&'a [f32]>,
    /// A tensor of the output's shape to add.
    pub residual: Option<Residual<'a>>,
    /// Adds the residual before the activation instead of after it.
    pub residual_first: bool,
    pub activation: Activation,
}

/// A tensor of the output's shape whose rows (pixels) begin `stride` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Residual<'a> {
    pub data: FloatSlice<'a>,
    pub stride: usize,
}

impl Epilogue<'_> {
    /// Checks that bias and residual fit an output of `rows` rows and `columns` columns, and that the residual is f32,
    /// as most kernels require.
    pub(crate) fn check(&self, rows: usize, columns: usize) -> Result<(), Error> {
        self.check_sizes(rows, columns)?;
        match self.residual {
            Some(Residual { data: FloatSlice::Bf16(_), .. }) => Err(Error::Type { what: "residual" }),
            _ => Ok(()),
        }
    }

    /// Like [`check`](Self::check) for kernels that accept a bf16 residual where the engine supports bf16.
    pub(crate) fn check_any(&self, engine: &Engine, rows: usize, columns: usize) -> Result<(), Error> {
        engine.check_bf16_support(self.residual.is_some_and(|residual| residual.data.is_bf16()))?;
        self.check_sizes(rows, columns)
    }

    fn check_sizes(&self, rows: usize, columns: usize) -> Result<(), Error> {
        if let Some(bias) = self.bias {
            at_least("bias", bias.len(), columns)?;
        }
        if let Some(residual) = self.residual {
            at_least("residual", residual.data.len(), span("residual stride", rows, columns, residual.stride)?)?;
        }
        Ok(())
    }

    /// Converts to the form that kernels use.
    pub(crate) fn args(&self) -> EpilogueArgs {
        let (residual, residual_stride) = match self.residual {
            Some(residual) => (residual.data.as_ptr(), residual.stride),
            None => (ElementPtr::NULL, 0),
        };
        let bias = self.bias.map_or(core::ptr::null(), <[f32]>::as_ptr);
        let (min, max) = match self.activation {
            Activation::Clamp { min, max } => (min, max),
            _ => (f32::NEG_INFINITY, f32::INFINITY),
        };
        let after_residual = self.residual_first || self.residual.is_none() || self.activation == Activation::None;
        let is_hard_swish = self.activation == Activation::HardSwish;
        let is_fused = after_residual && self.activation.is_fusable();
        let (residual_first, activation) = (self.residual_first, self.activation);
        EpilogueArgs { bias, residual, residual_stride, residual_first, activation, is_fused, is_hard_swish, min, max }
    }
}

/// The epilogue of one kernel call; borrows its bias and residual as pointers.
#[derive(Clone, Copy)]
pub(crate) struct EpilogueArgs {
    /// Null if there is none.
    pub(crate) bias: *const f32,
    /// Null if there is none.
    pub(crate) residual: ElementPtr,
    pub(crate) residual_stride: usize,
    residual_first: bool,
    activation: Activation,
    /// True if everything after the bias is an optional residual followed by
    /// [`fused_activation`](Self::fused_activation), which kernels do in registers. Otherwise they store their sums and
    /// run [`ApplyEpilogue`] on them.
    pub(crate) is_fused: bool,
    pub(crate) is_hard_swish: bool,
    /// Bounds of a fused clamp, infinite without one.
    pub(crate) min: f32,
    pub(crate) max: f32,
}

// SAFETY: the pointers are to slices that are only read, and whose borrow lasts for the call that made the epilogue.
unsafe impl Sync for EpilogueArgs {}

impl EpilogueArgs {
    /// Applies the activation of a fused epilogue: clamp or hard-swish.
    #[inline(always)]
    pub(crate) fn fused_activation<S: Simd>(&self, s: S, x: S::V) -> S::V {
        if self.is_hard_swish {
            return Activation::HardSwish.apply(s, x);
        }
        s.min(s.splat(self.max), s.max(s.splat(self.min), x))
    }

    /// The epilogue of a block whose residual starts at `residual`, with `residual_stride` elements between rows.
    #[inline(always)]
    pub(crate) fn with_residual(&self, residual: ElementPtr, residual_stride: usize) -> Self {
        let residual = if self.residual.is_null() { self.residual } else { residual };
        Self { residual, residual_stride, ..*self }
    }
}

/// Accumulators of f32 and bf16 kernels, which start from the bias.
impl Accumulator for f32 {
    type Args = EpilogueArgs;
    type Out = ElementPtrMut;

    const IS_INTERLEAVED: bool = true;

    #[inline(always)]
    unsafe fn value<S: Simd>(s: S, _: &EpilogueArgs, from: *const f32, at: VectorPosition) -> S::V {
        // SAFETY: the caller guarantees `n` floats.
        unsafe { <f32 as Element>::load(s, from, at.n) }
    }

    #[inline(always)]
    fn has_residual(args: &EpilogueArgs) -> bool {
        !args.residual.is_null()
    }

    #[inline(always)]
    fn is_residual_first(args: &EpilogueArgs) -> bool {
        args.residual_first
    }

    #[inline(always)]
    unsafe fn residual<S: Simd>(s: S, args: &EpilogueArgs, at: VectorPosition) -> S::V {
        // SAFETY: the caller guarantees `n` elements.
        unsafe { args.residual.add(s, at.row * args.residual_stride + at.column).load(s, at.n) }
    }

    #[inline(always)]
    fn activate<S: Simd, const N: usize>(
        s: Interleaved<S, N>,
        args: &EpilogueArgs,
        out: ElementPtrMut,
        x: [S::V; N],
    ) -> [S::V; N] {
        if const { S::HAS_BF16 } && out.is_bf16() {
            args.activation.apply_for_bf16(s, x)
        } else {
            args.activation.apply(s, x)
        }
    }

    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, out: ElementPtrMut, offset: usize, n: usize, v: S::V) {
        // SAFETY: the caller guarantees `n` elements.
        unsafe { out.add(s, offset).store(s, n, v) };
    }
}
