//! The epilogue of int8 kernels: dequantization of i32 accumulators, bias, residual, activation and requantization.

use alloc::vec::Vec;

use super::GroupwiseEpilogue;
use crate::Activation;
use crate::arch::{Arithmetic, I32, Kernel, LANES, Scalar, Simd, U8Clamp};
use crate::error::{Error, at_least, span};

/// Affine quantization to u8: a byte stands for `(byte - zero) * scale`. Values are rounded to nearest, ties to even,
/// and clamped to `min..=max`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    pub scale: f32,
    pub zero_point: u8,
    pub min: u8,
    pub max: u8,
}

/// Operations applied to each i32 accumulator, in this order: multiply by the column's (and row's) scale; add the bias;
/// `inner` activation and fake quantization; add the residual; apply the activation.
///
/// Activations with exponentials are not allowed if the output is u8, whose values are the same on every instruction
/// set.
#[derive(Debug, Clone, Copy)]
pub struct QuantEpilogue<'a> {
    /// Initial accumulator of each column: minus the zero point of the left side times the sum of the column's weights,
    /// and more. With [`rows`](Self::rows), just the sum of the column's weights. Each phase of a transposed
    /// convolution has its own.
    pub offsets: &'a [i32],
    /// Scale of each column's accumulators.
    pub scales: &'a [f32],
    /// Quantization of the left side, per row, or one for all rows as convolutions require; `None` if it is part of
    /// `offsets` and `scales`.
    pub rows: Option<RowQparams<'a>>,
    /// Value added to each column after scaling.
    pub bias: Option<&'a [f32]>,
    /// Activation and fake quantization (to u8 and back) before the residual is added, as in a quantized network.
    pub inner: Option<(Activation, Affine)>,
    /// Quantized tensor of the output's shape to add.
    pub residual: Option<QuantResidual<'a>>,
    pub activation: Activation,
}

/// Quantization parameters of each row, or one for all rows: `(byte - zero) * scale`, with integral zero points in
/// 0..=255.
#[derive(Debug, Clone, Copy)]
pub struct RowQparams<'a> {
    pub scales: &'a [f32],
    pub zero_points: &'a [f32],
}

impl RowQparams<'_> {
    pub(super) fn check(&self, rows: usize) -> Result<(), Error> {
        let rows = if self.scales.len() == 1 { 1 } else { rows };
        at_least("scales of rows", self.scales.len(), rows)?;
        at_least("zeros of rows", self.zero_points.len(), rows)
    }

    /// Elements from one row's parameters to the next row's: 0 if all rows share them.
    pub(super) fn step(&self) -> usize {
        usize::from(self.scales.len() > 1)
    }
}

/// A quantized tensor of the output's shape whose rows (pixels) begin `stride` bytes apart.
#[derive(Debug, Clone, Copy)]
pub struct QuantResidual<'a> {
    pub data: &'a [u8],
    pub stride: usize,
    pub affine: Affine,
}

/// Output of an int8 kernel: f32, or requantized to u8.
#[derive(Debug)]
pub enum QuantOut<'a> {
    Floats(&'a mut [f32]),
    Bytes(&'a mut [u8], Affine),
}

impl<'a> From<&'a mut [f32]> for QuantOut<'a> {
    fn from(floats: &'a mut [f32]) -> Self {
        Self::Floats(floats)
    }
}

impl<'a> From<&'a mut Vec<f32>> for QuantOut<'a> {
    fn from(floats: &'a mut Vec<f32>) -> Self {
        Self::Floats(floats)
    }
}

impl QuantOut<'_> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Bytes(bytes, _) => bytes.len(),
        }
    }

    pub(super) fn start(&mut self) -> OutPtr {
        match self {
            Self::Floats(floats) => OutPtr::Floats(floats.as_mut_ptr()),
            Self::Bytes(bytes, _) => OutPtr::Bytes(bytes.as_mut_ptr()),
        }
    }
}

/// Pointer to the start of an output.
#[derive(Clone, Copy)]
pub(super) enum OutPtr {
    Floats(*mut f32),
    Bytes(*mut u8),
}

impl OutPtr {
    /// Advances by `offset` elements.
    pub(super) fn at(self, offset: usize) -> Self {
        match self {
            Self::Floats(floats) => Self::Floats(floats.wrapping_add(offset)),
            Self::Bytes(bytes) => Self::Bytes(bytes.wrapping_add(offset)),
        }
    }
}

impl QuantEpilogue<'_> {
    /// Checks that all operands fit an output of `rows` rows and `columns` columns.
    pub(super) fn check(&self, rows: usize, columns: usize) -> Result<(), Error> {
        at_least("offsets", self.offsets.len(), columns)?;
        at_least("scales", self.scales.len(), columns)?;
        if let Some(bias) = self.bias {
            at_least("bias", bias.len(), columns)?;
        }
        if let Some(row_scales) = self.rows {
            row_scales.check(rows)?;
        }
        if let Some(residual) = self.residual {
            at_least("residual", residual.data.len(), span("residual stride", rows, columns, residual.stride)?)?;
        }
        Ok(())
    }

    /// Like [`check`](Self::check) for a convolution, which pads with a single zero point.
    pub(super) fn check_windows(&self, pixels: usize, channels: usize) -> Result<(), Error> {
        match self.rows {
            Some(rows) if rows.scales.len() != 1 => {
                Err(Error::Mismatch { what: "scales of a convolution's input", expected: 1, got: rows.scales.len() })
            }
            _ => self.check(pixels, channels),
        }
    }

    /// Returns the fast path for u8 output, if there is one for this epilogue.
    fn fast_path(&self, to: U8Quantizer) -> Option<FastPath> {
        let is_bounds = |activation| matches!(activation, Activation::None | Activation::Clamp { .. });
        // A clamp before rounding equals a clamp of the rounded value.
        let inner = match self.inner {
            Some((activation, affine)) if is_bounds(activation) => {
                let inner = U8Quantizer::of(affine).within(activation);
                Some((inner.centered(), inner.bytes(), affine.scale))
            }
            Some(_) => return None,
            None => None,
        };
        match (inner, self.residual, self.activation) {
            (None, None, activation) if is_bounds(activation) => {
                Some(FastPath::Scale { inverse: to.inverse, to: to.within(activation).bytes() })
            }
            (Some((inner, _, scale)), Some(residual), activation) if is_bounds(activation) => {
                Some(FastPath::AddResidual {
                    inner,
                    factor: scale * to.inverse,
                    other: residual.affine.scale * to.inverse,
                    shift: -f32::from(residual.affine.zero_point) * (residual.affine.scale * to.inverse),
                    to: to.within(activation).bytes(),
                })
            }
            (Some((inner, index, scale)), None, Activation::HardSwish) => {
                Some(FastPath::HardSwish { inner, index, scale, inverse: to.inverse, to: to.bytes() })
            }
            _ => None,
        }
    }

    /// Converts to the form that kernels use.
    pub(super) fn args(&self, out: &QuantOut<'_>) -> QuantEpilogueArgs {
        let to = match out {
            QuantOut::Floats(_) => None,
            QuantOut::Bytes(_, affine) => Some(U8Quantizer::of(*affine)),
        };
        let (residual, residual_stride, residual_affine) = match self.residual {
            Some(residual) => (residual.data.as_ptr(), residual.stride, residual.affine),
            None => (core::ptr::null(), 0, Affine { scale: 0.0, zero_point: 0, min: 0, max: 0 }),
        };
        let has_fast_path = self.bias.is_none() && self.rows.is_none();
        let fast_path = to.filter(|_| has_fast_path).and_then(|to| self.fast_path(to));
        QuantEpilogueArgs {
            offsets: self.offsets.as_ptr(),
            column_vector: self.scales.as_ptr(),
            bias: self.bias.map_or(core::ptr::null(), <[f32]>::as_ptr),
            inner: self.inner.map(|(activation, affine)| (activation, affine.scale, U8Quantizer::of(affine))),
            residual,
            residual_stride,
            residual_scale: residual_affine.scale,
            residual_zero_point: f32::from(residual_affine.zero_point),
            activation: self.activation,
            to,
            fast_path,
            table: fast_path.map_or([0; TABLE_LEN], |path| path.table()),
            row_scales: self.rows.map_or(core::ptr::null(), |rows| rows.scales.as_ptr()),
            row_zero_points: self.rows.map_or(core::ptr::null(), |rows| rows.zero_points.as_ptr()),
            row_step: self.rows.map_or(0, |rows| rows.step()),
        }
    }
}

/// Rounding and clamping of f32 values to u8.
#[derive(Clone, Copy)]
pub(crate) struct U8Quantizer {
    inverse: f32,
    zero: f32,
    min: f32,
    max: f32,
}

impl U8Quantizer {
    pub(crate) fn of(affine: Affine) -> Self {
        Self::with_factor(affine, 1.0 / affine.scale)
    }

    /// The same for values that are multiplied by `factor`, which need not be exactly the reciprocal of the scale.
    pub(crate) fn with_factor(affine: Affine, factor: f32) -> Self {
        let Affine { zero_point, min, max, .. } = affine;
        Self { inverse: factor, zero: f32::from(zero_point), min: f32::from(min), max: f32::from(max) }
    }

    /// The same after a clamp of the argument: rounding is monotonic.
    fn within(self, activation: Activation) -> Self {
        let Activation::Clamp { min, max } = activation else { return self };
        let quantized = |x: f32| {
            let quantized = libm::rintf(x * self.inverse) + self.zero;
            quantized.max(self.min).min(self.max)
        };
        Self { min: quantized(min), max: quantized(max), ..self }
    }

    /// The same with values relative to the zero point.
    fn centered(self) -> Self {
        Self { zero: 0.0, min: self.min - self.zero, max: self.max - self.zero, ..self }
    }

    /// Converts to the integer form; must not be relative to the zero point.
    fn bytes(self) -> U8Clamp {
        U8Clamp { zero: self.zero as u8, min: self.min as u8, max: self.max as u8 }
    }

    /// Quantizes to integral f32 values in `min..=max`.
    #[inline(always)]
    pub(crate) fn round<S: Simd>(&self, s: S, x: S::V) -> S::V {
        self.bounded(s, s.add(s.round(s.mul(x, s.splat(self.inverse))), s.splat(self.zero)))
    }

    #[inline(always)]
    fn bounded<S: Simd>(&self, s: S, quantized: S::V) -> S::V {
        s.clamp(quantized, s.splat(self.min), s.splat(self.max))
    }
}

/// The epilogue of one kernel call; borrows its operands as pointers.
#[derive(Clone, Copy)]
pub(super) struct QuantEpilogueArgs {
    pub(super) offsets: *const i32,
    /// The per-column operand of the accumulators, see [`Accumulator`].
    column_vector: *const f32,
    /// Null if there is none.
    bias: *const f32,
    inner: Option<(Activation, f32, U8Quantizer)>,
    /// Null if there is none.
    residual: *const u8,
    residual_stride: usize,
    residual_scale: f32,
    residual_zero_point: f32,
    activation: Activation,
    /// `None` for f32 output.
    to: Option<U8Quantizer>,
    fast_path: Option<FastPath>,
    /// With [`FastPath::HardSwish`], its results; only where [`Simd::LOOKS_UP_ACTIVATIONS`].
    table: [u8; TABLE_LEN],
    /// Null if there are none.
    row_scales: *const f32,
    /// Null if there are none. Otherwise accumulators start at minus the zero point times `offsets`.
    row_zero_points: *const f32,
    /// Elements from one row's parameters to the next row's.
    row_step: usize,
}

impl QuantEpilogueArgs {
    /// Returns the initial accumulators of a row.
    ///
    /// # Safety
    /// There is a zero point for the row, if rows have them.
    #[inline(always)]
    pub(super) unsafe fn start<S: Simd>(&self, s: S, offsets: I32<S>, row: usize) -> I32<S> {
        if self.row_zero_points.is_null() {
            return offsets;
        }
        // SAFETY: the caller guarantees it.
        let zero = unsafe { *self.row_zero_points.wrapping_add(row * self.row_step) };
        // A zero point comes from the payload and may be any number; those out of range give an unspecified result.
        s.mul_i32(offsets, (zero as i32).wrapping_neg())
    }

    /// True if [`start`](Self::start) returns the offsets of the columns for all rows.
    pub(super) fn starts_alike(&self) -> bool {
        self.row_zero_points.is_null()
    }

    /// The same for output rows counted from a pixel, `step` pixels apart.
    pub(super) fn at_pixel(&self, pixel: usize, step: usize) -> Self {
        let residual = self.residual.wrapping_add(pixel * self.residual_stride);
        Self { residual, residual_stride: self.residual_stride * step, ..*self }
    }
}

impl GroupwiseEpilogue<'_> {
    /// Converts to the form that kernels use, with f32 accumulators and output.
    pub(super) fn args(&self) -> QuantEpilogueArgs {
        QuantEpilogueArgs {
            offsets: core::ptr::null(),
            column_vector: self.sums.as_ptr(),
            bias: self.bias.map_or(core::ptr::null(), <[f32]>::as_ptr),
            inner: None,
            residual: core::ptr::null(),
            residual_stride: 0,
            residual_scale: 0.0,
            residual_zero_point: 0.0,
            activation: self.activation,
            to: None,
            fast_path: None,
            table: [0; TABLE_LEN],
            row_scales: self.rows.scales.as_ptr(),
            row_zero_points: self.rows.zero_points.as_ptr(),
            row_step: self.rows.step(),
        }
    }
}

/// Frequent epilogues with u8 output, reduced to as few operations as possible.
#[derive(Clone, Copy)]
enum FastPath {
    /// Scale to output units, round and clamp.
    Scale { inverse: f32, to: U8Clamp },
    /// Round to `inner` relative to its zero point; multiply by `factor`, add the residual times `other` plus `shift`,
    /// all in output units; round and clamp.
    AddResidual { inner: U8Quantizer, factor: f32, other: f32, shift: f32, to: U8Clamp },
    /// Round to `inner` relative to its zero point; multiply by `scale`; hard-swish; scale to output units, round and
    /// clamp. `index` is `inner` as bytes, see [`QuantEpilogueArgs::table`].
    HardSwish { inner: U8Quantizer, index: U8Clamp, scale: f32, inverse: f32, to: U8Clamp },
}

impl FastPath {
    /// Returns the results of a hard-swish for each byte that the inner quantization gives.
    fn table(&self) -> [u8; TABLE_LEN] {
        let mut table = [0; TABLE_LEN];
        let &Self::HardSwish { index, scale, inverse, to, .. } = self else { return table };
        let s = Scalar::new();
        for (part, bytes) in table.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let centered = |lane: usize| (part * LANES + lane) as f32 - f32::from(index.zero);
            let x = s.mul(s.load_slice(&core::array::from_fn::<_, LANES, _>(centered)), s.splat(scale));
            let y = to.round(s, s.mul(Activation::HardSwish.apply(s, x), s.splat(inverse)));
            *bytes = s.to_array(y).map(|byte| byte as u8);
        }
        table
    }
}

/// Entries of a table of an activation; none for instruction sets that do not look up.
const TABLE_LEN: usize = if cfg!(target_arch = "aarch64") { 256 } else { 0 };

// SAFETY: the pointers are to slices that are only read, and whose borrow lasts for the call that made the epilogue.
unsafe impl Sync for QuantEpilogueArgs {}

/// The accumulators of a quantized GEMM: i32, or f32 where every group of K has scales of its own.
pub(super) trait Accumulator: Copy {
    /// True if [`FastPath`]s exist.
    const HAS_FAST_PATHS: bool;

    /// True if the zero point of the row times the column's sum of weights is subtracted from accumulators. False if
    /// zero points are part of the initial accumulators, which are multiplied by the column's scale.
    const SUBTRACTS_ZERO_POINTS: bool;

    /// Loads 16 accumulators as f32.
    ///
    /// # Safety
    /// 16 accumulators are readable at `from`.
    unsafe fn load<S: Simd>(s: S, from: *const Self) -> S::V;
}

impl Accumulator for i32 {
    const HAS_FAST_PATHS: bool = true;
    const SUBTRACTS_ZERO_POINTS: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const i32) -> S::V {
        // SAFETY: the caller guarantees 16 elements.
        s.i32_to_f32(unsafe { s.load_i32(from) })
    }
}

impl Accumulator for f32 {
    const HAS_FAST_PATHS: bool = false;
    const SUBTRACTS_ZERO_POINTS: bool = true;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const f32) -> S::V {
        // SAFETY: the caller guarantees 16 elements.
        unsafe { s.load(from) }
    }
}

/// Applies the epilogue to a tile of stored accumulators.
pub(super) struct ApplyQuantEpilogue<'a, A> {
    pub(super) epilogue: &'a QuantEpilogueArgs,
    /// `[panels][rows][16]`.
    pub(super) sums: *const A,
    pub(super) panels: usize,
    pub(super) rows: usize,
    /// First row and column of the tile in the output, and its number of columns, at most `16 * panels`.
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
    /// Start of the whole output.
    pub(super) out: OutPtr,
    pub(super) out_stride: usize,
}

impl<A: Accumulator> ApplyQuantEpilogue<'_, A> {
    /// Runs the kernel.
    ///
    /// # Safety
    /// The accumulators were written; there are offsets, scales and a bias for all columns; residual and output cover
    /// the tile, which nobody else accesses.
    #[inline(always)]
    pub(super) unsafe fn run_on<S: Simd>(self, s: S) {
        s.vectorize(self);
    }

    #[inline(always)]
    fn sum<S: Simd>(&self, s: S, row: usize, panel: usize) -> S::V {
        // SAFETY: `run_on` requires the sums.
        unsafe { A::load(s, self.sums.wrapping_add((panel * self.rows + row) * LANES)) }
    }

    /// Stores the u8 results of all rows of the panels from `panel` on; returns the number of panels.
    #[inline(always)]
    fn store<S: Simd>(&self, s: S, stage: &impl ToOutputUnits<S>, to: U8Clamp, panel: usize, out: *mut u8) -> usize {
        let columns = self.columns - panel * LANES;
        if const { S::PACKS_U8_TOGETHER } && columns >= 2 * LANES && self.rows >= 2 {
            self.store_whole::<S, 2>(s, stage, to, panel, out);
            return 2;
        }
        if const { S::PACKS_U8_TOGETHER } && columns >= LANES && self.rows >= 4 {
            self.store_whole::<S, 1>(s, stage, to, panel, out);
            return 1;
        }
        for row in 0..self.rows {
            let value = stage.convert(s, self.sum(s, row, panel), self.row + row, 0);
            // SAFETY: `run_on` requires the output.
            unsafe { s.store_u8(self.address(out, row, panel), columns.min(LANES), value, to) };
        }
        1
    }

    /// Stores the entries of the table for all rows of a panel; returns the number of panels.
    #[inline(always)]
    fn look_up<S: Simd>(&self, s: S, stage: &ScaleOnly<S>, index: U8Clamp, panel: usize, out: *mut u8) -> usize {
        let columns = (self.columns - panel * LANES).min(LANES);
        for row in 0..self.rows {
            let value = stage.convert(s, self.sum(s, row, panel), self.row + row, 0);
            // SAFETY: `run_on` requires the output.
            unsafe { s.store_lookup([self.address(out, row, panel)], columns, [value], index, &self.epilogue.table) };
        }
        1
    }

    /// Stores `P` whole panels; there are enough rows for four vectors.
    #[inline(always)]
    fn store_whole<S: Simd, const P: usize>(
        &self,
        s: S,
        stage: &impl ToOutputUnits<S>,
        to: U8Clamp,
        panel: usize,
        out: *mut u8,
    ) {
        let rows = const { 4 / P };
        for row in (0..self.rows).step_by(rows) {
            // The last rows overlap the ones before and are recomputed.
            let row = row.min(self.rows - rows);
            let mut v = [s.splat(0.0); 4];
            let mut addresses = [self.address(out, row, panel); 4];
            for i in 0..4 {
                let (down, at) = (i / P, i % P);
                v[i] = stage.convert(s, self.sum(s, row + down, panel + at), self.row + row + down, at);
                addresses[i] = addresses[i].wrapping_add(down * self.out_stride + at * LANES);
            }
            // SAFETY: `run_on` requires the output.
            unsafe { s.store_u8x4(addresses, v, to) };
        }
    }

    #[inline(always)]
    fn address(&self, out: *mut u8, row: usize, panel: usize) -> *mut u8 {
        out.wrapping_add((self.row + row) * self.out_stride + self.column + panel * LANES)
    }
}

/// Conversion of accumulators to output units, before rounding.
trait ToOutputUnits<S: Simd> {
    /// Converts the accumulators of a row of the output, in the first or second panel.
    fn convert(&self, s: S, sum: S::V, row: usize, panel: usize) -> S::V;
}

/// Multiplies by a scale.
struct ScaleOnly<S: Simd> {
    scales: [S::V; 2],
}

impl<S: Simd> ScaleOnly<S> {
    /// Loads the scales of `n` columns (at most 32) and multiplies them by `inverse`, the reciprocal output scale.
    #[inline(always)]
    fn new(s: S, epilogue: &QuantEpilogueArgs, column: usize, n: usize, inverse: f32) -> Self {
        let (first, second) = (n.min(LANES), n.saturating_sub(LANES).min(LANES));
        let from = epilogue.column_vector.wrapping_add(column);
        // SAFETY: there is a scale for each column.
        let (first, second) =
            (unsafe { s.load_partial(from, first) }, unsafe { s.load_partial(from.wrapping_add(first), second) });
        let unit = s.splat(inverse);
        Self { scales: [s.mul(first, unit), s.mul(second, unit)] }
    }
}

impl<S: Simd> ToOutputUnits<S> for ScaleOnly<S> {
    #[inline(always)]
    fn convert(&self, s: S, sum: S::V, _row: usize, panel: usize) -> S::V {
        s.mul(sum, self.scales[panel])
    }
}

/// Scales, rounds to `inner`, and adds a residual.
struct ScaleAddResidual<S: Simd> {
    scaled: ScaleOnly<S>,
    inner: U8Quantizer,
    factor: S::V,
    /// Residual of the first row.
    residual: *const u8,
    residual_stride: usize,
    /// Columns of the first panel.
    n: usize,
    other: S::V,
    shift: S::V,
}

impl<S: Simd> ToOutputUnits<S> for ScaleAddResidual<S> {
    #[inline(always)]
    fn convert(&self, s: S, sum: S::V, row: usize, panel: usize) -> S::V {
        let quantized = self.inner.bounded(s, s.round(self.scaled.convert(s, sum, row, panel)));
        let from = self.residual.wrapping_add(row * self.residual_stride + panel * LANES);
        // SAFETY: the residual has the output's shape.
        let byte = s.i32_to_f32(unsafe { s.load_u8(from, self.n) });
        s.add(s.mul(quantized, self.factor), s.add(s.mul(byte, self.other), self.shift))
    }
}

/// Scales, rounds to `inner`, and applies hard-swish.
struct ScaleHardSwish<S: Simd> {
    scaled: ScaleOnly<S>,
    inner: U8Quantizer,
    unit: S::V,
    inverse: S::V,
}

impl<S: Simd> ToOutputUnits<S> for ScaleHardSwish<S> {
    #[inline(always)]
    fn convert(&self, s: S, sum: S::V, row: usize, panel: usize) -> S::V {
        let quantized = self.inner.bounded(s, s.round(self.scaled.convert(s, sum, row, panel)));
        s.mul(Activation::HardSwish.apply(s, s.mul(quantized, self.unit)), self.inverse)
    }
}

/// Evaluates code for each row of a tile, in which the row is a constant: LLVM does not unroll long loops, and accumulators must be
/// indexed by constants.
macro_rules! each_row {
    ($n:ident, |$row:ident| $code:block) => {
        each_row!(@ $n, $row, $code, 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    (@ $n:ident, $row:ident, $code:block, $($number:literal)*) => {$(
        if const { $number < $n } {
            let $row: usize = $number;
            $code
        }
    )*};
}

/// Accumulators of `N` rows and `P` panels in registers.
pub(super) struct RegisterTile<'a, S: Simd, const N: usize, const P: usize> {
    pub(super) sums: &'a [[I32<S>; P]; N],
    /// First row and column in the output, and the number of columns.
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
    pub(super) out_stride: usize,
}

impl<S: Simd, const N: usize, const P: usize> RegisterTile<'_, S, N, P> {
    /// True if this instruction set stores tiles of this many rows and columns from registers.
    #[inline(always)]
    pub(super) fn exists_for(columns: usize) -> bool {
        if const { !S::FINISHES_INT8_IN_REGISTERS || (S::PACKS_U8_TOGETHER && N < 4) } {
            return false;
        }
        (const { !S::PACKS_U8_TOGETHER }) || columns == P * LANES
    }

    /// Stores the u8 results directly from registers if the epilogue only scales and clamps; returns false otherwise.
    /// The loops of other epilogues are not unrolled and would force the accumulators into memory from the start. Where tiles are
    /// small, the other fast paths are unrolled, too.
    ///
    /// # Safety
    /// As for [`ApplyQuantEpilogue::run_on`].
    #[inline(always)]
    pub(super) unsafe fn run_on(self, s: S, epilogue: &QuantEpilogueArgs, out: OutPtr) -> bool {
        let (Some(path), OutPtr::Bytes(out)) = (epilogue.fast_path, out) else { return false };
        if const { !S::PACKS_U8_TOGETHER } {
            return self.run_fast_path(s, epilogue, path, out);
        }
        let FastPath::Scale { inverse, to } = path else { return false };
        let Self { sums, row, column, out_stride, .. } = self;
        let stage = ScaleOnly::new(s, epilogue, column, P * LANES, inverse);
        // Four vectors at a time; the last rows overlap the ones before and are recomputed.
        let rows = const { 4 / P };
        for part in 0..N.div_ceil(rows) {
            let first = if part * rows + rows > N { N - rows } else { part * rows };
            let mut v = [s.splat(0.0); 4];
            let mut addresses = [out; 4];
            for i in 0..4 {
                let (at, panel) = (first + i / P, i % P);
                v[i] = stage.convert(s, s.i32_to_f32(sums[at][panel]), row + at, panel);
                addresses[i] = out.wrapping_add((row + at) * out_stride + column + panel * LANES);
            }
            // SAFETY: the caller guarantees the output.
            unsafe { s.store_u8x4(addresses, v, to) };
        }
        true
    }

    /// Stores the u8 results of a tile of one panel, if this fast path exists for registers.
    #[inline(always)]
    fn run_fast_path(self, s: S, epilogue: &QuantEpilogueArgs, path: FastPath, out: *mut u8) -> bool {
        debug_assert!(P == 1, "a panel");
        if self.columns == LANES {
            self.run_fast_path_of::<true>(s, epilogue, path, out)
        } else {
            self.run_fast_path_of::<false>(s, epilogue, path, out)
        }
    }

    /// Does so for 16 columns if `WHOLE`.
    #[inline(always)]
    fn run_fast_path_of<const WHOLE: bool>(
        self,
        s: S,
        epilogue: &QuantEpilogueArgs,
        path: FastPath,
        out: *mut u8,
    ) -> bool {
        let (column, columns) = (self.column, if const { WHOLE } { LANES } else { self.columns });
        // No closures: they are not always inlined into the `target_feature` function.
        match path {
            FastPath::Scale { inverse, to } => {
                let stage = ScaleOnly::new(s, epilogue, column, columns, inverse);
                self.store_rows(s, &stage, to, columns, out);
            }
            FastPath::AddResidual { inner, factor, other, shift, to } => {
                let scaled = ScaleOnly::new(s, epilogue, column, columns, inner.inverse);
                let (factor, other, shift) = (s.splat(factor), s.splat(other), s.splat(shift));
                let (residual, residual_stride) = (epilogue.residual.wrapping_add(column), epilogue.residual_stride);
                let n = columns;
                let stage = ScaleAddResidual { scaled, inner, factor, residual, residual_stride, n, other, shift };
                self.store_rows(s, &stage, to, columns, out);
            }
            FastPath::HardSwish { inner, index, .. } if const { S::LOOKS_UP_ACTIVATIONS } => {
                let stage = ScaleOnly::new(s, epilogue, column, columns, inner.inverse);
                let (values, addresses) = self.convert_rows(s, &stage, out);
                // SAFETY: the caller of `run_on` guarantees the output.
                unsafe { s.store_lookup(addresses, columns, values, index, &epilogue.table) };
            }
            FastPath::HardSwish { .. } => return false,
        }
        true
    }

    /// Rounds and stores the values of all rows.
    #[inline(always)]
    fn store_rows(&self, s: S, stage: &impl ToOutputUnits<S>, to: U8Clamp, columns: usize, out: *mut u8) {
        let (values, addresses) = self.convert_rows(s, stage, out);
        each_row!(N, |r| {
            // SAFETY: the caller of `run_on` guarantees the output.
            unsafe { s.store_u8(addresses[r], columns, values[r], to) };
        });
    }

    /// Returns the values of all rows of the first panel, and their addresses.
    #[inline(always)]
    fn convert_rows(&self, s: S, stage: &impl ToOutputUnits<S>, out: *mut u8) -> ([S::V; N], [*mut u8; N]) {
        let first = out.wrapping_add(self.row * self.out_stride + self.column);
        let (mut values, mut addresses) = ([s.splat(0.0); N], [first; N]);
        each_row!(N, |r| {
            values[r] = stage.convert(s, s.i32_to_f32(self.sums[r][0]), self.row + r, 0);
            if r > 0 {
                addresses[r] = addresses[r - 1].wrapping_add(self.out_stride);
            }
        });
        (values, addresses)
    }
}

impl<A: Accumulator> Kernel for ApplyQuantEpilogue<'_, A> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let epilogue = self.epilogue;
        let mut panel = 0;
        while panel < self.panels {
            let left = self.columns - panel * LANES;
            let (column, n) = (self.column + panel * LANES, left.min(LANES));
            if const { A::HAS_FAST_PATHS }
                && let (Some(path), OutPtr::Bytes(out)) = (epilogue.fast_path, self.out)
            {
                let scaled = |inverse: f32| ScaleOnly::new(s, epilogue, column, left, inverse);
                panel += match path {
                    FastPath::Scale { inverse, to } => self.store(s, &scaled(inverse), to, panel, out),
                    FastPath::AddResidual { inner, factor, other, shift, to } => {
                        let (factor, other, shift) = (s.splat(factor), s.splat(other), s.splat(shift));
                        let (residual, residual_stride) =
                            (epilogue.residual.wrapping_add(column), epilogue.residual_stride);
                        let scaled = scaled(inner.inverse);
                        let added =
                            ScaleAddResidual { scaled, inner, factor, residual, residual_stride, n, other, shift };
                        self.store(s, &added, to, panel, out)
                    }
                    FastPath::HardSwish { inner, index, .. } if const { S::LOOKS_UP_ACTIVATIONS } => {
                        self.look_up(s, &scaled(inner.inverse), index, panel, out)
                    }
                    FastPath::HardSwish { inner, scale, inverse, to, .. } => {
                        let (unit, inverse) = (s.splat(scale), s.splat(inverse));
                        let swish = ScaleHardSwish { scaled: scaled(inner.inverse), inner, unit, inverse };
                        self.store(s, &swish, to, panel, out)
                    }
                };
                continue;
            }
            // SAFETY: there is an element for each column.
            let column_vector = unsafe { s.load_partial(epilogue.column_vector.wrapping_add(column), n) };
            let columns = GeneralPanel { finish: &self, epilogue, panel, n, column, column_vector };
            match (self.out, epilogue.to) {
                (OutPtr::Bytes(out), Some(quantizer)) => columns.bytes(s, out, quantizer),
                (OutPtr::Floats(out), _) => columns.floats(s, out),
                (OutPtr::Bytes(_), None) => {}
            }
            panel += 1;
        }
    }
}

/// Up to 16 columns with an arbitrary epilogue.
struct GeneralPanel<'a, S: Simd, A> {
    finish: &'a ApplyQuantEpilogue<'a, A>,
    epilogue: &'a QuantEpilogueArgs,
    panel: usize,
    n: usize,
    column: usize,
    column_vector: S::V,
}

impl<S: Simd, A: Accumulator> GeneralPanel<'_, S, A> {
    #[inline(always)]
    fn bias(&self, s: S) -> S::V {
        if self.epilogue.bias.is_null() {
            return s.splat(0.0);
        }
        // SAFETY: there is a bias for each column.
        unsafe { s.load_partial(self.epilogue.bias.wrapping_add(self.column), self.n) }
    }

    /// Computes the value of a row before the final activation.
    #[inline(always)]
    fn value(&self, s: S, row: usize, bias: S::V) -> S::V {
        let Self { finish, epilogue, .. } = *self;
        let own = (finish.row + row) * epilogue.row_step;
        let mut v = finish.sum(s, row, self.panel);
        v = if const { A::SUBTRACTS_ZERO_POINTS } {
            // SAFETY: there is a zero point for each row.
            s.sub(v, s.mul(s.splat(unsafe { *epilogue.row_zero_points.wrapping_add(own) }), self.column_vector))
        } else {
            s.mul(v, self.column_vector)
        };
        if !epilogue.row_scales.is_null() {
            // SAFETY: there is a scale for each row.
            v = s.mul(v, s.splat(unsafe { *epilogue.row_scales.wrapping_add(own) }));
        }
        v = s.add(v, bias);
        if let Some((activation, scale, quantizer)) = epilogue.inner {
            let quantized = quantizer.round(s, apply_exact(s, activation, v));
            v = s.mul(s.sub(quantized, s.splat(quantizer.zero)), s.splat(scale));
        }
        if !epilogue.residual.is_null() {
            let from = epilogue.residual.wrapping_add((finish.row + row) * epilogue.residual_stride + self.column);
            // SAFETY: the residual has the output's shape.
            let byte = s.i32_to_f32(unsafe { s.load_u8(from, self.n) });
            let other = s.mul(s.sub(byte, s.splat(epilogue.residual_zero_point)), s.splat(epilogue.residual_scale));
            v = s.add(v, other);
        }
        v
    }

    #[inline(always)]
    fn bytes(&self, s: S, out: *mut u8, quantizer: U8Quantizer) {
        let bias = self.bias(s);
        for row in 0..self.finish.rows {
            let v = apply_exact(s, self.epilogue.activation, self.value(s, row, bias));
            let at = (self.finish.row + row) * self.finish.out_stride + self.column;
            // SAFETY: `ApplyQuantEpilogue::run_on` requires the output.
            unsafe { s.store_as_u8(out.wrapping_add(at), self.n, quantizer.round(s, v)) };
        }
    }

    #[inline(always)]
    fn floats(&self, s: S, out: *mut f32) {
        let bias = self.bias(s);
        for row in 0..self.finish.rows {
            let v = self.epilogue.activation.apply(s, self.value(s, row, bias));
            let at = (self.finish.row + row) * self.finish.out_stride + self.column;
            // SAFETY: `ApplyQuantEpilogue::run_on` requires the output.
            unsafe { s.store_partial(out.wrapping_add(at), self.n, v) };
        }
    }
}

/// Applies an activation that is bit-exact on every instruction set; others are ignored.
#[inline(always)]
fn apply_exact<S: Simd>(s: S, activation: Activation, x: S::V) -> S::V {
    match activation {
        Activation::Clamp { .. } | Activation::HardSwish | Activation::HardSigmoid | Activation::LeakyRelu { .. } => {
            activation.apply(s, x)
        }
        _ => x,
    }
}
