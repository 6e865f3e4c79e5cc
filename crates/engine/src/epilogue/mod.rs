//! The epilogue of a GEMM or convolution: bias, residual and activation, applied while the results are in registers or
//! in the L1 cache.
#![allow(unsafe_code)]

mod activation;

pub use activation::Activation;

use crate::arch::{Arithmetic, Interleaved, Kernel, LANES, Simd};
use crate::element::{Element, ElementPtr};
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
    /// True if nothing follows the bias.
    pub(crate) fn is_bias_alone(&self) -> bool {
        self.residual.is_null() && self.activation == Activation::None
    }

    /// Applies the activation of a fused epilogue: clamp or hard-swish.
    #[inline(always)]
    pub(crate) fn fused_activation<S: Simd>(&self, s: S, x: S::V) -> S::V {
        if self.is_hard_swish {
            return Activation::HardSwish.apply(s, x);
        }
        s.clamp(x, s.splat(self.min), s.splat(self.max))
    }

    /// Applies everything but the bias. `for_bf16`: the result is rounded to bf16.
    #[inline(always)]
    fn apply<S: Arithmetic>(&self, s: S, sums: S::V, residual: Option<S::V>, for_bf16: bool) -> S::V {
        let sums = match residual {
            Some(residual) if self.residual_first => s.add(sums, residual),
            _ => sums,
        };
        let y = if for_bf16 { self.activation.apply_for_bf16(s, sums) } else { self.activation.apply(s, sums) };
        match residual {
            Some(residual) if !self.residual_first => s.add(y, residual),
            _ => y,
        }
    }
}

/// Applies the epilogue, except for the bias, to a block of sums that was just stored.
///
/// Not one generic kernel with the epilogue of int8 accumulators: here sums are overwritten in place, and a loop for
/// both compiles to slower code.
pub(crate) struct ApplyEpilogue<'a> {
    pub(crate) epilogue: &'a EpilogueArgs,
    pub(crate) sums: *mut f32,
    /// Elements between rows.
    pub(crate) stride: usize,
    /// Output as bf16 and its row stride; `None` overwrites the sums.
    pub(crate) rounded: Option<(*mut u16, usize)>,
    /// Residual of the first element; not read if there is none.
    pub(crate) residual: ElementPtr,
    /// Elements between rows of the residual.
    pub(crate) residual_stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl ApplyEpilogue<'_> {
    /// Runs the kernel.
    ///
    /// # Safety
    /// `rows` rows of `columns` floats are writable at `sums`; as many elements are writable at the bf16 output and
    /// readable at `residual`, if these exist; elements are bf16 only where `S` supports it.
    #[inline(always)]
    pub(crate) unsafe fn run_on<S: Simd>(self, simd: S) {
        simd.vectorize(self);
    }

    #[inline(always)]
    fn side_by_side<S: Simd, const N: usize>(self, s: S) {
        // A local copy: fields behind a reference would be reloaded after every store.
        let epilogue = *self.epilogue;
        let (several, panels) = (Interleaved::<S, N>(s), self.columns.div_ceil(LANES));
        let (mut row, mut panel) = (0, 0);
        while row < self.rows && panels > 0 {
            // Row, column and width of each vector; the last vector is repeated at the end.
            let mut positions = [(row, panel * LANES, 0); N];
            for i in 0..N {
                let column = panel * LANES;
                positions[i] = (row, column, (self.columns - column).min(LANES));
                let is_last = panel + 1 == panels;
                if is_last && row + 1 == self.rows && i + 1 < N {
                    continue;
                }
                (row, panel) = if is_last { (row + 1, 0) } else { (row, panel + 1) };
            }
            let mut sums = [s.splat(0.0); N];
            let mut residuals = [s.splat(0.0); N];
            for i in 0..N {
                let (row, column, n) = positions[i];
                // SAFETY: `run_on` requires these floats.
                sums[i] = unsafe { <f32 as Element>::load(s, self.sums.wrapping_add(row * self.stride + column), n) };
                if !epilogue.residual.is_null() {
                    let residual = self.residual.add(s, row * self.residual_stride + column);
                    // SAFETY: likewise.
                    residuals[i] = unsafe { residual.load(s, n) };
                }
            }
            let residuals = (!epilogue.residual.is_null()).then_some(residuals);
            let results = epilogue.apply(several, sums, residuals, S::HAS_BF16 && self.rounded.is_some());
            for i in 0..N {
                let (row, column, n) = positions[i];
                match self.rounded {
                    Some((to, stride)) if const { S::HAS_BF16 } => {
                        // SAFETY: likewise.
                        unsafe { s.store_bf16(to.wrapping_add(row * stride + column), n, results[i]) };
                    }
                    _ => {
                        let to = self.sums.wrapping_add(row * self.stride + column);
                        // SAFETY: likewise.
                        unsafe { <f32 as Element>::store(s, to, n, results[i]) };
                    }
                }
            }
        }
    }
}

impl Kernel for ApplyEpilogue<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match const { S::INTERLEAVE } {
            4 => self.side_by_side::<S, 4>(s),
            2 => self.side_by_side::<S, 2>(s),
            _ => self.side_by_side::<S, 1>(s),
        }
    }
}
