//! The intermediate results of a program that may be stored as bf16, which its steps restrict.

use rushlight_cpu_payload::{Buffer, CpuProgram, Epilogue, FloatFormat, Half, Residual, Size, StepKind, TensorId};
use rushlight_engine::{
    MIN_GEMM_ROWS, gemm_supports_bf16_input, gemm_supports_bf16_output, gemm_supports_bf16_residual,
};
use rushlight_format::ScalarType;

/// Weights that say that the numbers which they multiply may be rounded.
pub(crate) const BF16: FloatFormat = FloatFormat::Half(Half::Bf16);

/// The intermediate results that may still be bf16.
pub(crate) struct Choice<'p> {
    program: &'p CpuProgram,
    buffers: Vec<State>,
    /// Buffers whose state changed since this was last cleared.
    pub changed: Vec<usize>,
}

/// The demands of the steps that use a buffer.
#[derive(Clone, Copy)]
struct State {
    /// True if every reader and writer supports bf16.
    may: bool,
    /// True if only GEMMs read it, and copies that only GEMMs read.
    is_for_gemms: bool,
}

impl<'p> Choice<'p> {
    /// Starts with all tensors that could be bf16 by their type and place.
    pub fn new(program: &'p CpuProgram) -> Self {
        let state = |buffer: &Buffer| State { may: matches!(buffer, Buffer::Arena { .. }), is_for_gemms: true };
        let mut buffers: Vec<_> = program.buffers.iter().map(state).collect();
        for tensor in &program.tensors {
            if let Some(slot) = buffers.get_mut(tensor.buffer as usize) {
                slot.may &= tensor.dtype == ScalarType::Float && tensor.affine.is_none();
            }
        }
        Self { program, buffers, changed: Vec::new() }
    }

    /// Makes all tensors of a step floats.
    pub fn refuse_all<S: StepKind + ?Sized>(&mut self, step: &S) -> bool {
        let mut changed = self.refuse(step.output());
        step.for_each_input(&mut |tensor| changed |= self.refuse(tensor));
        changed
    }

    /// Restricts a GEMM or convolution with `taps` kernel positions and `depth` channels per group, which multiplies bf16.
    pub fn gemm(&mut self, x: TensorId, y: TensorId, epilogue: &Epilogue, taps: usize, depth: Option<usize>) -> bool {
        let mut changed = false;
        if self.has_few_rows(y) {
            changed |= self.refuse(x) | self.refuse(y);
        }
        if !depth.is_some_and(|depth| gemm_supports_bf16_input(taps, depth)) {
            changed |= self.refuse(x);
        }
        let from_bf16 = self.may(x);
        if !depth.is_some_and(|depth| gemm_supports_bf16_output(taps, depth, from_bf16)) {
            changed |= self.refuse(y);
        }
        if let Some(residual) = epilogue.residual.map(Residual::tensor) {
            changed |= self.read(residual);
            if !depth.is_some_and(|depth| gemm_supports_bf16_residual(taps, depth)) {
                changed |= self.refuse(residual);
            }
        }
        changed
    }

    /// Makes two tensors floats unless both may be bf16.
    pub fn both(&mut self, a: TensorId, b: TensorId) -> bool {
        if self.may(a) && self.may(b) { false } else { self.refuse(a) | self.refuse(b) }
    }

    /// Keeps f32 unless only GEMMs, which round it anyway, read it.
    pub fn only_for_gemms(&mut self, y: TensorId) -> bool {
        self.state(y).is_some_and(|state| !state.is_for_gemms) && self.refuse(y)
    }

    fn state(&self, tensor: TensorId) -> Option<&State> {
        self.buffers.get(self.program.tensors.get(tensor as usize)?.buffer as usize)
    }

    /// Clears a flag of a tensor's buffer. True if it was set.
    fn take_back(&mut self, tensor: TensorId, flag: impl Fn(&mut State) -> &mut bool) -> bool {
        let Some(tensor) = self.program.tensors.get(tensor as usize) else { return false };
        let buffer = tensor.buffer as usize;
        let is_new = self.buffers.get_mut(buffer).is_some_and(|state| core::mem::replace(flag(state), false));
        if is_new {
            self.changed.push(buffer);
        }
        is_new
    }

    /// True if a copy may round a tensor: only GEMMs read it.
    pub fn is_for_gemms(&self, tensor: TensorId) -> bool {
        self.state(tensor).is_some_and(|state| state.is_for_gemms)
    }

    /// Returns for each buffer whether its tensors are bf16.
    pub fn chosen(self) -> Vec<bool> {
        self.buffers.iter().map(|buffer| buffer.may).collect()
    }

    /// True if nothing forbids bf16 so far.
    pub fn may(&self, tensor: TensorId) -> bool {
        self.state(tensor).is_some_and(|state| state.may)
    }

    /// Keeps a tensor f32. True if that is new.
    pub fn refuse(&mut self, tensor: TensorId) -> bool {
        self.take_back(tensor, |state| &mut state.may)
    }

    /// Notes a reader that is no GEMM. True if that is new.
    pub fn read(&mut self, tensor: TensorId) -> bool {
        self.take_back(tensor, |state| &mut state.is_for_gemms)
    }

    /// True if there are so few rows that they are better f32: they are computed by GEMV.
    fn has_few_rows(&self, y: TensorId) -> bool {
        let [rows @ .., _] = self.dims(y) else { return true };
        let rows = rows.iter().map(|size| size.fixed().unwrap_or(MIN_GEMM_ROWS as u64));
        rows.fold(1u64, u64::saturating_mul) < MIN_GEMM_ROWS as u64
    }

    /// Returns the sizes of a tensor.
    pub fn dims(&self, tensor: TensorId) -> &[Size] {
        self.program.tensors.get(tensor as usize).map_or(&[][..], |tensor| &tensor.dims)
    }

    /// Returns the innermost size of a tensor, if it is fixed.
    pub fn last(&self, tensor: TensorId) -> Option<usize> {
        fixed(*self.dims(tensor).last()?)
    }
}

/// Returns a size if it is fixed.
pub(crate) fn fixed(size: Size) -> Option<usize> {
    usize::try_from(size.fixed()?).ok()
}
