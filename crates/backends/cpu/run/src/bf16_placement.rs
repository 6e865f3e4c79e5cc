//! Decides which intermediate results are stored as bf16.
//!
//! Programs with bf16 weights leave open in what type results are stored between steps. Where the processor has bf16 dot
//! products, GEMMs round what they read; so what only GEMMs read is written rounded, which is the same, and half as much to
//! write and to read. The results of GEMMs and depthwise convolutions other steps read as bf16 too, which rounds once more.
//!
//! A result takes the place that it would have as f32.

use std::collections::VecDeque;

use rushlight_cpu_payload::{
    Attention, Buffer, Convolution, ConvolutionKind, CpuProgram, Epilogue, FloatFormat, Half, KeyValueFormat, Matmul,
    MatmulKind, Reduce, Residual, Size, Step, TensorId,
};
use rushlight_engine::{
    MIN_GEMM_ROWS, attention_supports_bf16_input, attention_supports_bf16_output, gemm_supports_bf16_input,
    gemm_supports_bf16_output, gemm_supports_bf16_residual,
};
use rushlight_format::ScalarType;

const BF16: FloatFormat = FloatFormat::Half(Half::Bf16);

/// Makes tensors bf16 where all steps allow it.
pub(crate) fn choose(program: &mut CpuProgram) {
    let mut choice = Choice::new(program);
    let users = users(program);
    let mut waiting: VecDeque<usize> = (0..program.steps.len()).collect();
    let mut is_waiting = vec![true; program.steps.len()];
    // The types of a step's inputs and outputs depend on each other. A buffer changes twice at most, so that this is linear in
    // the number of uses of buffers.
    while let Some(index) = waiting.pop_front() {
        let (Some(step), Some(flag)) = (program.steps.get(index), is_waiting.get_mut(index)) else { continue };
        *flag = false;
        if !choice.restrict(step) {
            continue;
        }
        for user in choice.changed.drain(..).filter_map(|buffer| users.get(buffer)).flatten() {
            if let Some(flag) = is_waiting.get_mut(*user).filter(|flag| !**flag) {
                *flag = true;
                waiting.push_back(*user);
            }
        }
    }
    let Choice { buffers, .. } = choice;
    for tensor in &mut program.tensors {
        if buffers.get(tensor.buffer as usize).is_some_and(|buffer| buffer.may) {
            tensor.dtype = ScalarType::BFloat16;
        }
    }
}

/// Returns the steps that read or write each buffer.
fn users(program: &CpuProgram) -> Vec<Vec<usize>> {
    let mut users = vec![Vec::new(); program.buffers.len()];
    for (index, step) in program.steps.iter().enumerate() {
        let mut add = |tensor: TensorId| {
            let buffer = program.tensors.get(tensor as usize).map(|tensor| tensor.buffer as usize);
            if let Some(users) = buffer.and_then(|buffer| users.get_mut(buffer)) {
                users.push(index);
            }
        };
        add(step.output());
        step.for_each_input(&mut add);
    }
    users
}

struct Choice<'p> {
    program: &'p CpuProgram,
    buffers: Vec<State>,
    /// Buffers whose state changed since this was last cleared.
    changed: Vec<usize>,
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
    fn new(program: &'p CpuProgram) -> Self {
        let state = |buffer: &Buffer| State { may: matches!(buffer, Buffer::Arena { .. }), is_for_gemms: true };
        let mut buffers: Vec<_> = program.buffers.iter().map(state).collect();
        for tensor in &program.tensors {
            if let Some(slot) = buffers.get_mut(tensor.buffer as usize) {
                slot.may &= tensor.dtype == ScalarType::Float && tensor.affine.is_none();
            }
        }
        Self { program, buffers, changed: Vec::new() }
    }

    /// Takes back what a step does not support. True if that is anything.
    fn restrict(&mut self, step: &Step) -> bool {
        match step {
            Step::Convolution(Convolution { x, y, kind, .. }) => match kind {
                ConvolutionKind::Depthwise { epilogue, .. } => self.depthwise(*x, *y, epilogue),
                ConvolutionKind::Direct { groups, format: BF16, epilogue, .. }
                | ConvolutionKind::Direct3d { groups, format: BF16, epilogue, .. } => {
                    let taps = kind.kernel().iter().fold(1usize, |taps, size| taps.saturating_mul(*size as usize));
                    let channels = self.last(*x).map(|channels| channels / (*groups as usize).max(1));
                    self.gemm(*x, *y, epilogue, taps, channels)
                }
                _ => self.refuse_all(step),
            },
            Step::Matmul(Matmul { a, y, kind: MatmulKind::Packed { format: BF16, epilogue }, .. }) => {
                self.gemm(*a, *y, epilogue, 1, self.last(*a))
            }
            Step::Attention(step) if step.format == KeyValueFormat::Floats => self.attention(step),
            Step::Elementwise(step) => {
                let read = step.operands.iter().fold(false, |changed, operand| self.read(*operand) | changed);
                read | self.only_for_gemms(step.y)
            }
            Step::Normalization(step) => self.refuse(step.x) | self.only_for_gemms(step.y),
            Step::Reduce(step) if self.is_by_columns(step) => self.read(step.x) | self.refuse(step.y),
            Step::Pooling(step) => self.read(step.x) | self.both(step.x, step.y),
            Step::Copy(step) => {
                let is_for_gemms = self.state(step.y).is_some_and(|state| state.is_for_gemms);
                let read = !is_for_gemms && self.read(step.x);
                read | self.both(step.x, step.y)
            }
            other => self.refuse_all(other),
        }
    }

    /// Makes all tensors of a step floats.
    fn refuse_all(&mut self, step: &Step) -> bool {
        let mut changed = self.refuse(step.output());
        step.for_each_input(&mut |tensor| changed |= self.refuse(tensor));
        changed
    }

    /// Restricts a GEMM or convolution with `taps` kernel positions and `depth` channels per group, which multiplies bf16.
    fn gemm(&mut self, x: TensorId, y: TensorId, epilogue: &Epilogue, taps: usize, depth: Option<usize>) -> bool {
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

    /// Restricts attention: queries, keys and values have one type, which is multiplied as it is, since there are no bf16
    /// weights that would say that f32 may be rounded.
    fn attention(&mut self, step: &Attention) -> bool {
        let inputs = [step.q, step.k, step.v];
        let mut changed = inputs.iter().fold(false, |changed, input| self.read(*input) | changed);
        changed |= step.mask.is_some_and(|mask| self.refuse(mask));
        if !fixed(step.depth).is_some_and(attention_supports_bf16_input) || !inputs.iter().all(|input| self.may(*input))
        {
            changed |= inputs.iter().fold(false, |changed, input| self.refuse(*input) | changed);
        }
        if !fixed(step.keys).is_some_and(attention_supports_bf16_output) || !self.may(step.q) {
            changed |= self.refuse(step.y);
        }
        changed
    }

    /// Restricts a depthwise convolution: its input and output have one type.
    fn depthwise(&mut self, x: TensorId, y: TensorId, epilogue: &Epilogue) -> bool {
        let mut changed = self.read(x) | self.both(x, y);
        if let Some(residual) = epilogue.residual.map(Residual::tensor) {
            changed |= self.refuse(residual);
        }
        if epilogue.residual.is_some() || !epilogue.activation.is_fusable() {
            changed |= self.refuse(x) | self.refuse(y);
        }
        changed
    }

    /// Makes two tensors floats unless both may be bf16.
    fn both(&mut self, a: TensorId, b: TensorId) -> bool {
        if self.may(a) && self.may(b) { false } else { self.refuse(a) | self.refuse(b) }
    }

    /// Keeps f32 unless only GEMMs, which round it anyway, read it.
    fn only_for_gemms(&mut self, y: TensorId) -> bool {
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

    fn may(&self, tensor: TensorId) -> bool {
        self.state(tensor).is_some_and(|state| state.may)
    }

    /// Keeps a tensor f32. True if that is new.
    fn refuse(&mut self, tensor: TensorId) -> bool {
        self.take_back(tensor, |state| &mut state.may)
    }

    /// Notes a reader that is no GEMM. True if that is new.
    fn read(&mut self, tensor: TensorId) -> bool {
        self.take_back(tensor, |state| &mut state.is_for_gemms)
    }

    /// True if a reduction is along another dimension than the innermost.
    fn is_by_columns(&self, step: &Reduce) -> bool {
        let rank = self.program.tensors.get(step.x as usize).map_or(0, |tensor| tensor.dims.len());
        step.first.saturating_add(step.count) as usize + 1 == rank && self.last(step.x).is_some_and(|size| size > 1)
    }

    /// True if there are so few rows that they are better f32: they are computed by GEMV.
    fn has_few_rows(&self, y: TensorId) -> bool {
        let Some([rows @ .., _]) = self.program.tensors.get(y as usize).map(|tensor| tensor.dims.as_slice()) else {
            return true;
        };
        let fixed = |size: &Size| match size {
            Size::Fixed(size) => *size,
            Size::Computed(_) => MIN_GEMM_ROWS as u64,
        };
        rows.iter().fold(1u64, |rows, size| rows.saturating_mul(fixed(size))) < MIN_GEMM_ROWS as u64
    }

    /// The innermost size, if it is fixed.
    fn last(&self, tensor: TensorId) -> Option<usize> {
        fixed(*self.program.tensors.get(tensor as usize)?.dims.last()?)
    }
}

/// Returns a size if it is fixed.
fn fixed(size: Size) -> Option<usize> {
    match size {
        Size::Fixed(size) => usize::try_from(size).ok(),
        Size::Computed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_cpu_payload::{Elementwise, Instruction, Normalization, Operand, Tensor, Unary};

    /// The steps of a program whose tensors are all rows of 64 numbers, each in memory of its own, but for the first, which
    /// has weights.
    fn chosen(tensors: u32, steps: Vec<Step>) -> Vec<TensorId> {
        let tensor = |buffer, dtype| Tensor {
            dtype,
            buffer,
            offset: Size::Fixed(0),
            dims: vec![Size::Fixed(100), Size::Fixed(64)],
            affine: None,
        };
        let weights = [tensor(0, ScalarType::BFloat16)];
        let others = (1..tensors).map(|buffer| tensor(buffer, ScalarType::Float));
        let arena = (1..tensors).map(|buffer| Buffer::Arena { offset: u64::from(buffer) * 6400, len: 6400 });
        let mut program = CpuProgram {
            buffers: [Buffer::Blob(0)].into_iter().chain(arena).collect(),
            tensors: weights.into_iter().chain(others).collect(),
            steps,
            ..CpuProgram::default()
        };
        choose(&mut program);
        let is_bf16 = |id: &TensorId| program.tensors[*id as usize].dtype == ScalarType::BFloat16;
        (1..tensors).filter(is_bf16).collect()
    }

    fn gemm(a: TensorId, y: TensorId, residual: Option<TensorId>) -> Step {
        let epilogue = Epilogue { residual: residual.map(Residual::BeforeActivation), ..Epilogue::default() };
        Step::Matmul(Matmul { a, b: 0, y, kind: MatmulKind::Packed { format: BF16, epilogue } })
    }

    fn normalised(x: TensorId, y: TensorId) -> Step {
        Step::Normalization(Normalization { x, y, weight: None, bias: None, dims: 1, eps: 1e-5, centered: true })
    }

    #[test]
    fn what_gemms_read_is_bf16() {
        assert_eq!(chosen(4, vec![gemm(1, 2, None), gemm(2, 3, Some(1))]), [1, 2, 3]);
    }

    #[test]
    fn what_others_read_is_floats() {
        let softmax = Step::Softmax { x: 2, y: 3, log: false };
        assert_eq!(chosen(4, vec![gemm(1, 2, None), softmax]), [1]);
    }

    fn attention(q: TensorId, y: TensorId, keys: u64) -> Step {
        let (one, none) = (Size::Fixed(1), [Size::Fixed(0); 3]);
        Step::Attention(Attention {
            q,
            k: 1,
            v: 1,
            mask: None,
            format: KeyValueFormat::Floats,
            y,
            batch: one,
            heads: one,
            groups: one,
            rows: Size::Fixed(100),
            keys: Size::Fixed(keys),
            depth: Size::Fixed(64),
            value_depth: Size::Fixed(64),
            scale: 1.0,
            causal: None,
            strides: [none; 4],
        })
    }

    #[test]
    fn attention_takes_what_gemms_give() {
        let first = |step| chosen(5, vec![gemm(2, 1, None), step, gemm(3, 4, None)]);
        assert_eq!(first(attention(1, 3, 100)), [1, 2, 3, 4]);
        assert_eq!(first(attention(1, 3, 1000)), [1, 2, 4]);
        // A query that no GEMM gives.
        let steps = vec![gemm(2, 1, None), normalised(2, 3), attention(3, 4, 100)];
        assert_eq!(chosen(5, steps), []);
    }

    #[test]
    fn functions_are_rounded_for_gemms_alone() {
        assert_eq!(chosen(4, vec![normalised(1, 2), gemm(2, 3, None)]), [2, 3]);
        assert_eq!(chosen(4, vec![normalised(1, 2), gemm(2, 3, Some(2))]), [3]);
        let instructions = vec![Instruction::Unary { to: 0, function: Unary::Exp, x: Operand::Tensor(0) }];
        let step = Step::Elementwise(Elementwise { operands: vec![1], y: 2, instructions });
        assert_eq!(chosen(4, vec![step, gemm(2, 3, None)]), [1, 2, 3]);
    }
}
