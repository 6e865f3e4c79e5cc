//! What is done to a product's results while they are in registers or in the first-level cache.
#![allow(unsafe_code)]

use crate::arch::math;
use crate::arch::{Arithmetic, Job, LANES, Several, Simd};
use crate::error::{Error, at_least, span};
use crate::numbers::{Number, Readable};
use crate::{Engine, Numbers};

/// The steps after a product, in this order: add the bias, add the residual if `residual_first`, apply the activation, add
/// the residual otherwise.
///
/// The default does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tail<'a> {
    /// One value for each output column (channel).
    pub bias: Option<&'a [f32]>,
    /// A tensor of the output's shape to add.
    pub residual: Option<Residual<'a>>,
    /// Whether the residual is added before the activation rather than after it.
    pub residual_first: bool,
    pub activation: Activation,
}

/// A tensor of the output's shape whose rows (pixels) begin `stride` floats apart.
#[derive(Debug, Clone, Copy)]
pub struct Residual<'a> {
    pub data: Numbers<'a>,
    pub stride: usize,
}

/// A function of each result.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Activation {
    #[default]
    None,
    /// At least `min` and at most `max`, neither of which may be NaN; NaN stays NaN.
    Clamp {
        min: f32,
        max: f32,
    },
    /// x where x is positive, `slope` x elsewhere.
    LeakyRelu {
        slope: f32,
    },
    /// x where x is positive, `alpha` (exp(x) - 1) elsewhere.
    Elu {
        alpha: f32,
    },
    /// x clamp(x + 3, 0, 6) / 6
    HardSwish,
    /// clamp(x + 3, 0, 6) / 6
    HardSigmoid,
    /// 1 / (1 + exp(-x))
    Sigmoid,
    /// x sigmoid(x)
    Silu,
    Tanh,
    /// x (1 + erf(x / sqrt 2)) / 2
    GeluErf,
    /// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
    GeluTanh,
}

impl Activation {
    pub const RELU: Activation = Activation::Clamp { min: 0.0, max: f32::INFINITY };
    pub const RELU6: Activation = Activation::Clamp { min: 0.0, max: 6.0 };

    /// Whether it is computed in a product's registers: bounds and hard-swish are.
    pub fn is_short(self) -> bool {
        matches!(self, Self::None | Self::Clamp { .. } | Self::HardSwish)
    }

    /// [`apply`](Self::apply) for results that are rounded to bf16.
    #[inline(always)]
    fn apply_for_bf16<S: Arithmetic>(self, s: S, x: S::V) -> S::V {
        if self == Activation::GeluErf { math::gelu_for_bf16(s, x) } else { self.apply(s, x) }
    }

    #[inline(always)]
    pub(crate) fn apply<S: Arithmetic>(self, s: S, x: S::V) -> S::V {
        let zero = s.splat(0.0);
        match self {
            Activation::None => x,
            Activation::Clamp { min, max } => s.min(s.splat(max), s.max(s.splat(min), x)),
            Activation::LeakyRelu { slope } => s.select_less(zero, x, x, s.mul(x, s.splat(slope))),
            Activation::Elu { alpha } => {
                let negative = s.mul(s.splat(alpha), s.sub(math::exp(s, x), s.splat(1.0)));
                s.select_less(zero, x, x, negative)
            }
            Activation::HardSwish => s.mul(x, hard_sigmoid(s, x)),
            Activation::HardSigmoid => hard_sigmoid(s, x),
            Activation::Sigmoid => math::sigmoid(s, x),
            Activation::Silu => s.mul(x, math::sigmoid(s, x)),
            Activation::Tanh => math::tanh(s, x),
            Activation::GeluErf => math::gelu(s, x),
            Activation::GeluTanh => {
                let cube = s.mul(s.mul(x, x), x);
                let inner = s.mul(s.fma(s.splat(0.044_715), cube, x), s.splat(0.797_884_6));
                let halved = s.mul(x, s.splat(0.5));
                s.fma(halved, math::tanh(s, inner), halved)
            }
        }
    }
}

#[inline(always)]
fn hard_sigmoid<S: Arithmetic>(s: S, x: S::V) -> S::V {
    let shifted = s.add(x, s.splat(3.0));
    s.mul(s.min(s.splat(6.0), s.max(s.splat(0.0), shifted)), s.splat(1.0 / 6.0))
}

impl Tail<'_> {
    /// That bias and residual fit an output of `rows` rows and `columns` columns, and that the residual is no bf16, which few
    /// kernels take.
    pub(crate) fn check(&self, rows: usize, columns: usize) -> Result<(), Error> {
        self.check_sizes(rows, columns)?;
        match self.residual {
            Some(Residual { data: Numbers::Bf16(_), .. }) => Err(Error::Type { what: "residual" }),
            _ => Ok(()),
        }
    }

    /// The same for kernels that take a residual of bf16, if the engine does.
    pub(crate) fn check_any(&self, engine: &Engine, rows: usize, columns: usize) -> Result<(), Error> {
        engine.check_numbers(self.residual.is_some_and(|residual| residual.data.is_bf16()))?;
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

    /// Where kernels find the steps.
    pub(crate) fn steps(&self) -> Steps {
        let (residual, residual_stride) = match self.residual {
            Some(residual) => (residual.data.place(), residual.stride),
            None => (Readable::NOWHERE, 0),
        };
        let bias = self.bias.map_or(core::ptr::null(), <[f32]>::as_ptr);
        let (min, max) = match self.activation {
            Activation::Clamp { min, max } => (min, max),
            _ => (f32::NEG_INFINITY, f32::INFINITY),
        };
        let after_residual = self.residual_first || self.residual.is_none() || self.activation == Activation::None;
        let is_hard_swish = self.activation == Activation::HardSwish;
        let is_plain = after_residual && self.activation.is_short();
        let (residual_first, activation) = (self.residual_first, self.activation);
        Steps { bias, residual, residual_stride, residual_first, activation, is_plain, is_hard_swish, min, max }
    }
}

/// A [`Tail`] for kernels, in the calls of which the borrowed slices live.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    /// Null for none.
    pub(crate) bias: *const f32,
    /// Null for none.
    pub(crate) residual: Readable,
    pub(crate) residual_stride: usize,
    residual_first: bool,
    activation: Activation,
    /// Whether adding the residual and [`short`](Self::short) is all that follows the bias, so that kernels do it in
    /// registers; otherwise they store their sums and leave the rest to [`Finish`].
    pub(crate) is_plain: bool,
    pub(crate) is_hard_swish: bool,
    pub(crate) min: f32,
    pub(crate) max: f32,
}

// SAFETY: the pointers are to slices that are only read, and whose borrow lasts for the call that made the steps.
unsafe impl Sync for Steps {}

impl Steps {
    /// The activation of plain steps: bounds, or a hard-swish.
    #[inline(always)]
    pub(crate) fn short<S: Simd>(&self, s: S, x: S::V) -> S::V {
        if self.is_hard_swish {
            return Activation::HardSwish.apply(s, x);
        }
        s.min(s.splat(self.max), s.max(s.splat(self.min), x))
    }

    /// All steps but the bias. Results are for bf16 where that is said.
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

/// The steps after the bias, applied to sums that were just stored.
pub(crate) struct Finish<'a> {
    pub(crate) steps: &'a Steps,
    pub(crate) sums: *mut f32,
    /// Floats between rows.
    pub(crate) stride: usize,
    /// Where results go as bf16, and the numbers between rows; otherwise they take the place of the sums.
    pub(crate) rounded: Option<(*mut u16, usize)>,
    /// The residual's element for the first of the sums; not read without a residual.
    pub(crate) residual: Readable,
    /// Numbers between the residual's rows.
    pub(crate) residual_stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Finish<'_> {
    /// # Safety
    /// `rows` rows of `columns` floats are writable at `sums`, and so many numbers where results go and, if there is a
    /// residual, readable at `residual`; numbers are bf16 only where `S` takes them.
    #[inline(always)]
    pub(crate) unsafe fn run_on<S: Simd>(self, simd: S) {
        simd.vectorize(self);
    }

    #[inline(always)]
    fn side_by_side<S: Simd, const N: usize>(self, s: S) {
        // A copy, as what is behind a reference would be read again after every store.
        let steps = *self.steps;
        let (several, panels) = (Several::<S, N>(s), self.columns.div_ceil(LANES));
        let (mut row, mut panel) = (0, 0);
        while row < self.rows && panels > 0 {
            // Row, column and number of columns of each vector; the last one again where there are no more.
            let mut places = [(row, panel * LANES, 0); N];
            for i in 0..N {
                let column = panel * LANES;
                places[i] = (row, column, (self.columns - column).min(LANES));
                let is_last = panel + 1 == panels;
                if is_last && row + 1 == self.rows && i + 1 < N {
                    continue;
                }
                (row, panel) = if is_last { (row + 1, 0) } else { (row, panel + 1) };
            }
            let mut sums = [s.splat(0.0); N];
            let mut residuals = [s.splat(0.0); N];
            for i in 0..N {
                let (row, column, n) = places[i];
                // SAFETY: `run_on` asks for these floats.
                sums[i] = unsafe { <f32 as Number>::load(s, self.sums.wrapping_add(row * self.stride + column), n) };
                if !steps.residual.is_null() {
                    let residual = self.residual.plus(s, row * self.residual_stride + column);
                    // SAFETY: likewise.
                    residuals[i] = unsafe { residual.load(s, n) };
                }
            }
            let residuals = (!steps.residual.is_null()).then_some(residuals);
            let results = steps.apply(several, sums, residuals, S::TAKES_BF16 && self.rounded.is_some());
            for i in 0..N {
                let (row, column, n) = places[i];
                match self.rounded {
                    Some((to, stride)) if const { S::TAKES_BF16 } => {
                        // SAFETY: likewise.
                        unsafe { s.store_bf16(to.wrapping_add(row * stride + column), n, results[i]) };
                    }
                    _ => {
                        let to = self.sums.wrapping_add(row * self.stride + column);
                        // SAFETY: likewise.
                        unsafe { <f32 as Number>::store(s, to, n, results[i]) };
                    }
                }
            }
        }
    }
}

impl Job for Finish<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match const { S::SIDE_BY_SIDE } {
            4 => self.side_by_side::<S, 4>(s),
            2 => self.side_by_side::<S, 2>(s),
            _ => self.side_by_side::<S, 1>(s),
        }
    }
}
