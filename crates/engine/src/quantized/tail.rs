//! What follows sums of products of bytes.

use alloc::vec::Vec;

use crate::Activation;
use crate::arch::{ByteLevels, Job, LANES, Simd};
use crate::error::{Error, at_least, span};

/// How bytes stand for numbers: `(byte - zero) * scale`. A number becomes the nearest byte from `min` to `max`, ties to
/// even.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    pub scale: f32,
    pub zero: u8,
    pub min: u8,
    pub max: u8,
}

/// The steps after a product of bytes, in this order: times the column's scale, plus its bias; the inner activation and
/// rounding; plus the residual; the activation.
///
/// The activations may not be those with exponentials where the results are bytes, which are the same on every instruction
/// set.
#[derive(Debug, Clone, Copy)]
pub struct QuantTail<'a> {
    /// What the integer sum of each column begins with: less the zero of the left side times the sum of the column's
    /// weights, for a start. With [`rows`](Self::rows), it is the sum of the column's weights. Each phase of a
    /// transposed convolution has its own.
    pub offsets: &'a [i32],
    /// The number that one unit of each column's sum stands for.
    pub scales: &'a [f32],
    /// A scale and a zero for each row of the left side, or one for all of them, as convolutions have it.
    pub rows: Option<RowScales<'a>>,
    /// A number to add for each column, after scaling.
    pub bias: Option<&'a [f32]>,
    /// Rounds to bytes and back in between, as a quantized network does before it adds.
    pub inner: Option<(Activation, Affine)>,
    /// Bytes of the output's shape to add.
    pub residual: Option<QuantResidual<'a>>,
    pub activation: Activation,
}

/// What the bytes of each row, or of all rows, stand for: `(byte - zero) * scale`, with whole zeros from 0 to 255.
#[derive(Debug, Clone, Copy)]
pub struct RowScales<'a> {
    pub scales: &'a [f32],
    pub zeros: &'a [f32],
}

impl RowScales<'_> {
    pub(super) fn check(&self, rows: usize) -> Result<(), Error> {
        let rows = if self.scales.len() == 1 { 1 } else { rows };
        at_least("scales of rows", self.scales.len(), rows)?;
        at_least("zeros of rows", self.zeros.len(), rows)
    }

    /// From the scale of one row to that of the next.
    pub(super) fn step(&self) -> usize {
        usize::from(self.scales.len() > 1)
    }
}

/// A tensor of the output's shape whose rows (pixels) begin `stride` bytes apart.
#[derive(Debug, Clone, Copy)]
pub struct QuantResidual<'a> {
    pub data: &'a [u8],
    pub stride: usize,
    pub affine: Affine,
}

/// Where results go: as they are, or as bytes.
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
    /// Elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Bytes(bytes, _) => bytes.len(),
        }
    }

    pub(super) fn start(&mut self) -> Start {
        match self {
            Self::Floats(floats) => Start::Floats(floats.as_mut_ptr()),
            Self::Bytes(bytes, _) => Start::Bytes(bytes.as_mut_ptr()),
        }
    }
}

/// The start of an output.
#[derive(Clone, Copy)]
pub(super) enum Start {
    Floats(*mut f32),
    Bytes(*mut u8),
}

impl Start {
    /// So many elements further.
    pub(super) fn at(self, offset: usize) -> Self {
        match self {
            Self::Floats(floats) => Self::Floats(floats.wrapping_add(offset)),
            Self::Bytes(bytes) => Self::Bytes(bytes.wrapping_add(offset)),
        }
    }
}

impl QuantTail<'_> {
    /// That all of it fits an output of `rows` rows and `columns` columns.
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

    /// The same of a convolution, which pads with one zero alone.
    pub(super) fn check_windows(&self, pixels: usize, channels: usize) -> Result<(), Error> {
        match self.rows {
            Some(rows) if rows.scales.len() != 1 => {
                Err(Error::Mismatch { what: "scales of a convolution's input", expected: 1, got: rows.scales.len() })
            }
            _ => self.check(pixels, channels),
        }
    }

    /// The short way of the most common steps.
    fn way(&self, to: Levels) -> Option<Way> {
        let is_bounds = |activation| matches!(activation, Activation::None | Activation::Clamp { .. });
        // Bounds are bounds of bytes.
        let inner = match self.inner {
            Some((activation, affine)) if is_bounds(activation) => {
                Some((Levels::of(affine).within(activation).centred(), affine.scale))
            }
            Some(_) => return None,
            None => None,
        };
        match (inner, self.residual, self.activation) {
            (None, None, activation) if is_bounds(activation) => {
                Some(Way::Scaled { inverse: to.inverse, to: to.within(activation).bytes() })
            }
            (Some((inner, scale)), Some(residual), activation) if is_bounds(activation) => Some(Way::Added {
                inner,
                factor: scale * to.inverse,
                other: residual.affine.scale * to.inverse,
                shift: -f32::from(residual.affine.zero) * (residual.affine.scale * to.inverse),
                to: to.within(activation).bytes(),
            }),
            (Some((inner, scale)), None, Activation::HardSwish) => {
                Some(Way::HardSwish { inner, scale, inverse: to.inverse, to: to.bytes() })
            }
            _ => None,
        }
    }

    /// Where kernels find the steps.
    pub(super) fn steps(&self, out: &QuantOut<'_>) -> ByteSteps {
        let to = match out {
            QuantOut::Floats(_) => None,
            QuantOut::Bytes(_, affine) => Some(Levels::of(*affine)),
        };
        let (residual, residual_stride, residual_affine) = match self.residual {
            Some(residual) => (residual.data.as_ptr(), residual.stride, residual.affine),
            None => (core::ptr::null(), 0, Affine { scale: 0.0, zero: 0, min: 0, max: 0 }),
        };
        ByteSteps {
            offsets: self.offsets.as_ptr(),
            scales: self.scales.as_ptr(),
            bias: self.bias.map_or(core::ptr::null(), <[f32]>::as_ptr),
            inner: self.inner.map(|(activation, affine)| (activation, affine.scale, Levels::of(affine))),
            residual,
            residual_stride,
            residual_scale: residual_affine.scale,
            residual_zero: f32::from(residual_affine.zero),
            activation: self.activation,
            to,
            way: to.filter(|_| self.bias.is_none() && self.rows.is_none()).and_then(|to| self.way(to)),
            row_scales: self.rows.map_or(core::ptr::null(), |rows| rows.scales.as_ptr()),
            row_zeros: self.rows.map_or(core::ptr::null(), |rows| rows.zeros.as_ptr()),
            row_step: self.rows.map_or(0, |rows| rows.step()),
        }
    }
}

/// How numbers become bytes.
#[derive(Clone, Copy)]
pub(crate) struct Levels {
    inverse: f32,
    zero: f32,
    min: f32,
    max: f32,
}

impl Levels {
    pub(crate) fn of(affine: Affine) -> Self {
        let Affine { scale, zero, min, max } = affine;
        Self { inverse: 1.0 / scale, zero: f32::from(zero), min: f32::from(min), max: f32::from(max) }
    }

    /// The same after an activation that bounds its argument: rounding keeps the order.
    fn within(self, activation: Activation) -> Self {
        let Activation::Clamp { min, max } = activation else { return self };
        let level = |x: f32| {
            let level = libm::rintf(x * self.inverse) + self.zero;
            level.max(self.min).min(self.max)
        };
        Self { min: level(min), max: level(max), ..self }
    }

    /// The same levels, counted from the zero.
    fn centred(self) -> Self {
        Self { zero: 0.0, min: self.min - self.zero, max: self.max - self.zero, ..self }
    }

    /// The same as bytes, of levels that are not centred.
    fn bytes(self) -> ByteLevels {
        ByteLevels { zero: self.zero as u8, min: self.min as u8, max: self.max as u8 }
    }

    /// Whole numbers from `min` to `max`.
    #[inline(always)]
    pub(crate) fn round<S: Simd>(&self, s: S, x: S::V) -> S::V {
        self.bounded(s, s.add(s.round(s.mul(x, s.splat(self.inverse))), s.splat(self.zero)))
    }

    #[inline(always)]
    fn bounded<S: Simd>(&self, s: S, level: S::V) -> S::V {
        s.min(s.splat(self.max), s.max(s.splat(self.min), level))
    }
}

/// A [`QuantTail`] for kernels, in the calls of which the borrowed slices live.
#[derive(Clone, Copy)]
pub(super) struct ByteSteps {
    pub(super) offsets: *const i32,
    pub(super) scales: *const f32,
    /// Null for none.
    bias: *const f32,
    inner: Option<(Activation, f32, Levels)>,
    /// Null for none.
    residual: *const u8,
    residual_stride: usize,
    residual_scale: f32,
    residual_zero: f32,
    activation: Activation,
    /// `None` if floats are stored.
    to: Option<Levels>,
    way: Option<Way>,
    /// Null for none.
    row_scales: *const f32,
    /// Null for none; sums then begin with minus that times their offsets.
    row_zeros: *const f32,
    /// From the scale and the zero of one row to those of the next.
    row_step: usize,
}

impl ByteSteps {
    /// What the sums of a row begin with, whose columns have these offsets.
    ///
    /// # Safety
    /// There is a zero for the row, if rows have zeros.
    #[inline(always)]
    pub(super) unsafe fn start<S: Simd>(&self, s: S, offsets: S::V, row: usize) -> S::V {
        if self.row_zeros.is_null() {
            return offsets;
        }
        // SAFETY: the caller vouches for it.
        let zero = unsafe { *self.row_zeros.wrapping_add(row * self.row_step) };
        // A zero may be any number of a payload: what is beyond bytes gives some result.
        s.times(offsets, (zero as i32).wrapping_neg())
    }

    /// The same for rows of the output that are counted from a pixel, and lie so many pixels apart.
    pub(super) fn at_pixel(&self, pixel: usize, step: usize) -> Self {
        let residual = self.residual.wrapping_add(pixel * self.residual_stride);
        Self { residual, residual_stride: self.residual_stride * step, ..*self }
    }
}

/// Steps that most products of bytes have, in as few operations as they take.
#[derive(Clone, Copy)]
enum Way {
    /// Scaled, in units of the result, and bounded.
    Scaled { inverse: f32, to: ByteLevels },
    /// Rounded to `inner`, counted from its zero; times `factor`, plus the residual times `other` plus `shift`, in units of
    /// the result; bounded.
    Added { inner: Levels, factor: f32, other: f32, shift: f32, to: ByteLevels },
    /// Rounded to `inner`, counted from its zero, times `scale`; a hard-swish.
    HardSwish { inner: Levels, scale: f32, inverse: f32, to: ByteLevels },
}

// SAFETY: the pointers are to slices that are only read, and whose borrow lasts for the call that made the steps.
unsafe impl Sync for ByteSteps {}

/// Sums of rows below each other, and where their results go.
pub(super) struct Finish<'a> {
    pub(super) steps: &'a ByteSteps,
    /// `[panels][rows][16]`, with integers as bits.
    pub(super) sums: *const f32,
    pub(super) panels: usize,
    pub(super) rows: usize,
    /// The first row and column in the output, and how many columns there are, at most `16 * panels`.
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
    /// The whole output.
    pub(super) out: Start,
    pub(super) out_stride: usize,
}

impl Finish<'_> {
    /// # Safety
    /// The sums are there, the columns have their offsets, scales and bias, and the residual and the output all places, which
    /// nobody else touches.
    #[inline(always)]
    pub(super) unsafe fn run_on<S: Simd>(self, s: S) {
        s.vectorize(self);
    }

    #[inline(always)]
    fn sum<S: Simd>(&self, s: S, row: usize, panel: usize) -> S::V {
        // SAFETY: `run_on` asks for the sums.
        s.floats(unsafe { s.load(self.sums.wrapping_add((panel * self.rows + row) * LANES)) })
    }

    /// Stores the bytes of all rows of the panels from `panel` on, and says how many panels these were.
    #[inline(always)]
    fn store<S: Simd>(&self, s: S, numbers: &impl Numbers<S>, to: ByteLevels, panel: usize, out: *mut u8) -> usize {
        let columns = self.columns - panel * LANES;
        if columns >= 2 * LANES && self.rows >= 2 {
            self.store_whole::<S, 2>(s, numbers, to, panel, out);
            return 2;
        }
        if columns >= LANES && self.rows >= 4 {
            self.store_whole::<S, 1>(s, numbers, to, panel, out);
            return 1;
        }
        for row in 0..self.rows {
            let number = numbers.number(s, self.sum(s, row, panel), self.row + row, 0);
            // SAFETY: `run_on` asks for the output.
            unsafe { s.store_bytes(self.place(out, row, panel), columns.min(LANES), to.round(s, number)) };
        }
        1
    }

    /// The same of `P` whole panels, and at least as many rows as make four vectors.
    #[inline(always)]
    fn store_whole<S: Simd, const P: usize>(
        &self,
        s: S,
        numbers: &impl Numbers<S>,
        to: ByteLevels,
        panel: usize,
        out: *mut u8,
    ) {
        let rows = const { 4 / P };
        for row in (0..self.rows).step_by(rows) {
            // The last rows overlap those before, and are computed again.
            let row = row.min(self.rows - rows);
            let mut v = [s.splat(0.0); 4];
            let mut places = [self.place(out, row, panel); 4];
            for i in 0..4 {
                let (down, at) = (i / P, i % P);
                v[i] = numbers.number(s, self.sum(s, row + down, panel + at), self.row + row + down, at);
                places[i] = places[i].wrapping_add(down * self.out_stride + at * LANES);
            }
            // SAFETY: `run_on` asks for the output.
            unsafe { s.store_levels(places, v, to) };
        }
    }

    #[inline(always)]
    fn place(&self, out: *mut u8, row: usize, panel: usize) -> *mut u8 {
        out.wrapping_add((self.row + row) * self.out_stride + self.column + panel * LANES)
    }
}

/// What becomes of sums before they are bytes, in units of the result, from a column on.
trait Numbers<S: Simd> {
    /// Of the sums in a row of the output, in the first panel or the second, which is whole.
    fn number(&self, s: S, sum: S::V, row: usize, panel: usize) -> S::V;
}

/// Sums times a scale.
struct Scaled<S: Simd> {
    scales: [S::V; 2],
}

impl<S: Simd> Scaled<S> {
    /// Of `n` columns, at most 32, in units of which there are `inverse` in one.
    #[inline(always)]
    fn new(s: S, steps: &ByteSteps, column: usize, n: usize, inverse: f32) -> Self {
        let (first, second) = (n.min(LANES), n.saturating_sub(LANES).min(LANES));
        let from = steps.scales.wrapping_add(column);
        // SAFETY: there is a scale for each column.
        let (first, second) =
            (unsafe { s.load_part(from, first) }, unsafe { s.load_part(from.wrapping_add(first), second) });
        let unit = s.splat(inverse);
        Self { scales: [s.mul(first, unit), s.mul(second, unit)] }
    }
}

impl<S: Simd> Numbers<S> for Scaled<S> {
    #[inline(always)]
    fn number(&self, s: S, sum: S::V, _row: usize, panel: usize) -> S::V {
        s.mul(sum, self.scales[panel])
    }
}

/// The same rounded to `inner`, times a factor, plus a residual.
struct Added<S: Simd> {
    scaled: Scaled<S>,
    inner: Levels,
    factor: S::V,
    /// The column of the first row.
    residual: *const u8,
    residual_stride: usize,
    /// Bytes of a row of the first panel.
    n: usize,
    other: S::V,
    shift: S::V,
}

impl<S: Simd> Numbers<S> for Added<S> {
    #[inline(always)]
    fn number(&self, s: S, sum: S::V, row: usize, panel: usize) -> S::V {
        let level = self.inner.bounded(s, s.round(self.scaled.number(s, sum, row, panel)));
        let from = self.residual.wrapping_add(row * self.residual_stride + panel * LANES);
        // SAFETY: the residual has the output's shape.
        let byte = s.floats(unsafe { s.load_bytes(from, self.n) });
        s.add(s.mul(level, self.factor), s.add(s.mul(byte, self.other), self.shift))
    }
}

/// Sums rounded to `inner`, and their hard-swish.
struct HardSwish<S: Simd> {
    scaled: Scaled<S>,
    inner: Levels,
    unit: S::V,
    inverse: S::V,
}

impl<S: Simd> Numbers<S> for HardSwish<S> {
    #[inline(always)]
    fn number(&self, s: S, sum: S::V, row: usize, panel: usize) -> S::V {
        let level = self.inner.bounded(s, s.round(self.scaled.number(s, sum, row, panel)));
        s.mul(Activation::HardSwish.apply(s, s.mul(level, self.unit)), self.inverse)
    }
}

/// Sums of `N` rows and `P` whole panels in registers.
pub(super) struct Registers<'a, S: Simd, const N: usize, const P: usize> {
    pub(super) sums: &'a [[S::V; P]; N],
    /// The first row and column in the output.
    pub(super) row: usize,
    pub(super) column: usize,
    pub(super) out_stride: usize,
}

impl<S: Simd, const N: usize, const P: usize> Registers<'_, S, N, P> {
    /// Stores their bytes, if all that follows is to scale and to bound them: the loops of other steps are not unrolled, and
    /// would have the sums in memory from the start.
    ///
    /// # Safety
    /// As of [`Finish::run_on`].
    #[inline(always)]
    pub(super) unsafe fn run_on(self, s: S, steps: &ByteSteps, out: Start) -> bool {
        let (Some(Way::Scaled { inverse, to }), Start::Bytes(out)) = (steps.way, out) else { return false };
        let Self { sums, row, column, out_stride } = self;
        let numbers = Scaled::new(s, steps, column, P * LANES, inverse);
        // Four vectors at a time, of as many rows as that is; the last rows overlap those before, and are computed again.
        let rows = const { 4 / P };
        for part in 0..N.div_ceil(rows) {
            let first = if part * rows + rows > N { N - rows } else { part * rows };
            let mut v = [s.splat(0.0); 4];
            let mut places = [out; 4];
            for i in 0..4 {
                let (at, panel) = (first + i / P, i % P);
                v[i] = numbers.number(s, s.floats(sums[at][panel]), row + at, panel);
                places[i] = out.wrapping_add((row + at) * out_stride + column + panel * LANES);
            }
            // SAFETY: the caller vouches for the output.
            unsafe { s.store_levels(places, v, to) };
        }
        true
    }
}

impl Job for Finish<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let steps = self.steps;
        let mut panel = 0;
        while panel < self.panels {
            let left = self.columns - panel * LANES;
            let (column, n) = (self.column + panel * LANES, left.min(LANES));
            if let (Some(way), Start::Bytes(out)) = (steps.way, self.out) {
                let scaled = |inverse: f32| Scaled::new(s, steps, column, left, inverse);
                panel += match way {
                    Way::Scaled { inverse, to } => self.store(s, &scaled(inverse), to, panel, out),
                    Way::Added { inner, factor, other, shift, to } => {
                        let (factor, other, shift) = (s.splat(factor), s.splat(other), s.splat(shift));
                        let (residual, residual_stride) = (steps.residual.wrapping_add(column), steps.residual_stride);
                        let scaled = scaled(inner.inverse);
                        let added = Added { scaled, inner, factor, residual, residual_stride, n, other, shift };
                        self.store(s, &added, to, panel, out)
                    }
                    Way::HardSwish { inner, scale, inverse, to } => {
                        let (unit, inverse) = (s.splat(scale), s.splat(inverse));
                        let swish = HardSwish { scaled: scaled(inner.inverse), inner, unit, inverse };
                        self.store(s, &swish, to, panel, out)
                    }
                };
                continue;
            }
            // SAFETY: there is a scale for each column.
            let scale = unsafe { s.load_part(steps.scales.wrapping_add(column), n) };
            let columns = Columns { finish: &self, steps, panel, n, column, scale };
            match (self.out, steps.to) {
                (Start::Bytes(out), Some(levels)) => columns.bytes(s, out, levels),
                (Start::Floats(out), _) => columns.floats(s, out),
                (Start::Bytes(_), None) => {}
            }
            panel += 1;
        }
    }
}

/// Up to 16 columns, with all steps.
struct Columns<'a, S: Simd> {
    finish: &'a Finish<'a>,
    steps: &'a ByteSteps,
    panel: usize,
    n: usize,
    column: usize,
    scale: S::V,
}

impl<S: Simd> Columns<'_, S> {
    #[inline(always)]
    fn bias(&self, s: S) -> S::V {
        if self.steps.bias.is_null() {
            return s.splat(0.0);
        }
        // SAFETY: there is a bias for each column.
        unsafe { s.load_part(self.steps.bias.wrapping_add(self.column), self.n) }
    }

    /// The result of a row before the activation.
    #[inline(always)]
    fn number(&self, s: S, row: usize, bias: S::V) -> S::V {
        let Self { finish, steps, .. } = *self;
        let mut v = s.mul(finish.sum(s, row, self.panel), self.scale);
        if !steps.row_scales.is_null() {
            // SAFETY: there is a scale for each row.
            v = s.mul(v, s.splat(unsafe { *steps.row_scales.wrapping_add((finish.row + row) * steps.row_step) }));
        }
        v = s.add(v, bias);
        if let Some((activation, scale, levels)) = steps.inner {
            let level = levels.round(s, exactly(s, activation, v));
            v = s.mul(s.sub(level, s.splat(levels.zero)), s.splat(scale));
        }
        if !steps.residual.is_null() {
            let from = steps.residual.wrapping_add((finish.row + row) * steps.residual_stride + self.column);
            // SAFETY: the residual has the output's shape.
            let byte = s.floats(unsafe { s.load_bytes(from, self.n) });
            let other = s.mul(s.sub(byte, s.splat(steps.residual_zero)), s.splat(steps.residual_scale));
            v = s.add(v, other);
        }
        v
    }

    #[inline(always)]
    fn bytes(&self, s: S, out: *mut u8, levels: Levels) {
        let bias = self.bias(s);
        for row in 0..self.finish.rows {
            let v = exactly(s, self.steps.activation, self.number(s, row, bias));
            let at = (self.finish.row + row) * self.finish.out_stride + self.column;
            // SAFETY: `Finish::run_on` asks for the output.
            unsafe { s.store_bytes(out.wrapping_add(at), self.n, levels.round(s, v)) };
        }
    }

    #[inline(always)]
    fn floats(&self, s: S, out: *mut f32) {
        let bias = self.bias(s);
        for row in 0..self.finish.rows {
            let v = self.steps.activation.apply(s, self.number(s, row, bias));
            let at = (self.finish.row + row) * self.finish.out_stride + self.column;
            // SAFETY: `Finish::run_on` asks for the output.
            unsafe { s.store_part(out.wrapping_add(at), self.n, v) };
        }
    }
}

/// An activation that is the same on every instruction set; others do nothing.
#[inline(always)]
fn exactly<S: Simd>(s: S, activation: Activation, x: S::V) -> S::V {
    match activation {
        Activation::Clamp { .. } | Activation::HardSwish | Activation::HardSigmoid | Activation::LeakyRelu { .. } => {
            activation.apply(s, x)
        }
        _ => x,
    }
}
