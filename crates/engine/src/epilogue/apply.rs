//! The kernel that turns stored accumulators into outputs, for every type of accumulator.

use crate::arch::{Arithmetic, Interleaved, Kernel, LANES, Simd};

/// A type of accumulator: f32, i32, or f32 sums of dequantized groups.
///
/// Outputs are computed in this order: convert to f32 ([`value`](Self::value)); add the residual if it comes first;
/// [`activate`](Self::activate); add the residual otherwise; convert to the output type ([`store`](Self::store)).
pub(crate) trait Accumulator: Copy {
    /// The epilogue of one kernel call.
    type Args: Copy;
    /// Pointer to outputs.
    type Out: Copy;

    /// True if several vectors are computed together, which hides the latency of exponentials but computes vectors
    /// twice in blocks that have fewer.
    const IS_INTERLEAVED: bool;

    /// Runs a specialized loop if there is one for this epilogue; returns false otherwise.
    ///
    /// # Safety
    /// As for [`ApplyEpilogue::run_on`].
    #[inline(always)]
    unsafe fn run_fast_path<S: Simd>(_: &ApplyEpilogue<'_, Self>, _: S) -> bool {
        false
    }

    /// Loads a vector of accumulators and converts them to real numbers: dequantizes and adds the bias, unless the
    /// accumulators started from it.
    ///
    /// # Safety
    /// The accumulators at `from`, and the operands of `args` for them, are readable.
    unsafe fn value<S: Simd>(s: S, args: &Self::Args, from: *const Self, at: VectorPosition) -> S::V;

    /// Returns true if there is a residual.
    fn has_residual(args: &Self::Args) -> bool;

    /// Returns true if the residual is added before the activation.
    fn is_residual_first(args: &Self::Args) -> bool;

    /// Loads the residual, which exists, as real numbers.
    ///
    /// # Safety
    /// It is readable at this position.
    unsafe fn residual<S: Simd>(s: S, args: &Self::Args, at: VectorPosition) -> S::V;

    /// Applies the activation to interleaved vectors, with the accuracy that the output type asks for.
    fn activate<S: Simd, const N: usize>(
        s: Interleaved<S, N>,
        args: &Self::Args,
        out: Self::Out,
        x: [S::V; N],
    ) -> [S::V; N];

    /// Converts real numbers to the output type and stores them `offset` elements after `out`.
    ///
    /// # Safety
    /// `n` elements are writable there.
    unsafe fn store<S: Simd>(s: S, out: Self::Out, offset: usize, n: usize, v: S::V);
}

/// Position of a vector in the output, as the operands of an epilogue count it.
#[derive(Clone, Copy)]
pub(crate) struct VectorPosition {
    pub(crate) row: usize,
    pub(crate) column: usize,
    /// Valid lanes.
    pub(crate) n: usize,
}

/// Applies an epilogue to a block of stored accumulators.
pub(crate) struct ApplyEpilogue<'a, A: Accumulator> {
    pub(crate) args: &'a A::Args,
    pub(crate) sums: *const A,
    /// Accumulators between rows, and between panels of 16 columns.
    pub(crate) row_stride: usize,
    pub(crate) panel_stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Position of the block in the output and in the operands of `args`.
    pub(crate) row: usize,
    pub(crate) column: usize,
    /// Start of the output, and the elements between its rows. Outputs may overwrite the accumulators.
    pub(crate) out: A::Out,
    pub(crate) out_stride: usize,
}

impl<A: Accumulator> ApplyEpilogue<'_, A> {
    /// Runs the kernel.
    ///
    /// # Safety
    /// The accumulators of all columns were written, or of whole panels if they are not f32; the operands of `args` and
    /// the output cover the block; nobody else accesses this part of the output; elements are bf16 only where `S`
    /// supports it.
    #[inline(always)]
    pub(crate) unsafe fn run_on<S: Simd>(self, s: S) {
        s.vectorize(self);
    }

    /// Computes `N` vectors at a time.
    #[inline(always)]
    fn interleaved<S: Simd, const N: usize>(self, s: S) {
        // A local copy: fields behind a reference would be reloaded after every store.
        let args = *self.args;
        let (several, panels) = (Interleaved::<S, N>(s), self.columns.div_ceil(LANES));
        let (mut row, mut panel) = (0, 0);
        while row < self.rows && panels > 0 {
            // The last vector is repeated if fewer than `N` are left.
            let mut vectors = [(row, panel, 0); N];
            for i in 0..N {
                vectors[i] = (row, panel, (self.columns - panel * LANES).min(LANES));
                let is_last = panel + 1 == panels;
                if is_last && row + 1 == self.rows && i + 1 < N {
                    continue;
                }
                (row, panel) = if is_last { (row + 1, 0) } else { (row, panel + 1) };
            }
            let position = |(row, panel, n): (usize, usize, usize)| VectorPosition {
                row: self.row + row,
                column: self.column + panel * LANES,
                n,
            };
            let mut values = [s.splat(0.0); N];
            let mut residuals = [s.splat(0.0); N];
            for i in 0..N {
                let (row, panel, _) = vectors[i];
                let from = self.sums.wrapping_add(row * self.row_stride + panel * self.panel_stride);
                // SAFETY: `run_on` requires the accumulators and the operands.
                values[i] = unsafe { A::value(s, &args, from, position(vectors[i])) };
                if A::has_residual(&args) {
                    // SAFETY: likewise.
                    residuals[i] = unsafe { A::residual(s, &args, position(vectors[i])) };
                }
            }
            if A::has_residual(&args) && A::is_residual_first(&args) {
                values = several.add(values, residuals);
            }
            values = A::activate(several, &args, self.out, values);
            if A::has_residual(&args) && !A::is_residual_first(&args) {
                values = several.add(values, residuals);
            }
            for i in 0..N {
                let VectorPosition { row, column, n } = position(vectors[i]);
                // SAFETY: `run_on` requires the output.
                unsafe { A::store(s, self.out, row * self.out_stride + column, n, values[i]) };
            }
        }
    }
}

impl<A: Accumulator> Kernel for ApplyEpilogue<'_, A> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `run_on` has the same contract.
        if unsafe { A::run_fast_path(&self, s) } {
            return;
        }
        match const { if A::IS_INTERLEAVED { S::INTERLEAVE } else { 1 } } {
            4 => self.interleaved::<S, 4>(s),
            2 => self.interleaved::<S, 2>(s),
            _ => self.interleaved::<S, 1>(s),
        }
    }
}
