//! Which intermediate results lie in memory as bf16.
//!
//! Programs with weights of bf16 leave open in what type results lie between steps. Where the processor multiplies pairs of bf16,
//! products round what they read; so what only products read is written rounded, which is the same, and half as much to write
//! and to read. What products and depthwise convolutions give, others read as bf16 too, which rounds once more.
//!
//! A result takes the place that it would have as floats.

use std::collections::VecDeque;

use rushlight_cpu_payload::{
    Attention, Buffer, Convolution, CpuProgram, Matmul, Reduction, Size, Step, Tail, TensorId,
};
use rushlight_engine::{
    MIN_GEMM_ROWS, attention_supports_bf16_input, attention_supports_bf16_output, gemm_supports_bf16_input,
    gemm_supports_bf16_output, gemm_supports_bf16_residual,
};
use rushlight_format::ScalarType;

use crate::prepared::activation;

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

/// What is known of a buffer.
#[derive(Clone, Copy)]
struct State {
    /// Whether it may hold bf16.
    may: bool,
    /// Whether products alone read it, and copies of which this holds.
    is_for_products: bool,
}

impl<'p> Choice<'p> {
    /// Everything that could be, for all that tensors say.
    fn new(program: &'p CpuProgram) -> Self {
        let state = |buffer: &Buffer| State { may: matches!(buffer, Buffer::Arena { .. }), is_for_products: true };
        let mut buffers: Vec<_> = program.buffers.iter().map(state).collect();
        for tensor in &program.tensors {
            if let Some(slot) = buffers.get_mut(tensor.buffer as usize) {
                slot.may &= tensor.dtype == ScalarType::Float && tensor.affine.is_none();
            }
        }
        Self { program, buffers, changed: Vec::new() }
    }

    /// Takes back what a step does not allow; whether that is anything.
    fn restrict(&mut self, step: &Step) -> bool {
        match step {
            Step::Convolution(step) if is_direct(step) && step.depthwise => self.depthwise(step),
            Step::Convolution(step) if is_direct(step) && self.is_bf16(step.w) => {
                let taps = step.kernel.iter().fold(1usize, |taps, size| taps.saturating_mul(*size as usize));
                let channels = self.last(step.x).map(|channels| channels / (step.groups as usize).max(1));
                self.product(step.x, step.y, &step.tail, taps, channels)
            }
            Step::Matmul(Matmul { a, b, y, packed: true, tail, .. }) if tail.integers.is_none() && self.is_bf16(*b) => {
                self.product(*a, *y, tail, 1, self.last(*a))
            }
            Step::Attention(step) => self.attention(step),
            Step::Elementwise(step) => {
                let read = step.operands.iter().fold(false, |changed, operand| self.read(*operand) | changed);
                read | self.only_for_products(step.y)
            }
            Step::Normalisation(step) => self.refuse(step.x) | self.only_for_products(step.y),
            Step::Reduction(step) if self.is_by_columns(step) => self.read(step.x) | self.refuse(step.y),
            Step::Pooling(step) => self.read(step.x) | self.both(step.x, step.y),
            Step::Copy(step) => {
                let is_for_products = self.state(step.y).is_some_and(|state| state.is_for_products);
                let read = !is_for_products && self.read(step.x);
                read | self.both(step.x, step.y)
            }
            other => {
                let mut changed = self.refuse(other.output());
                other.for_each_input(&mut |tensor| changed |= self.refuse(tensor));
                changed
            }
        }
    }

    /// A product over windows of so many taps, of so many elements each.
    fn product(&mut self, x: TensorId, y: TensorId, tail: &Tail, taps: usize, depth: Option<usize>) -> bool {
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
        if let Some(residual) = tail.residual {
            changed |= self.read(residual);
            if !depth.is_some_and(|depth| gemm_supports_bf16_residual(taps, depth)) {
                changed |= self.refuse(residual);
            }
        }
        changed
    }

    /// Queries, keys and values are of one type, which is multiplied as it is: it has no weights of bf16 that would say that
    /// floats may be rounded.
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

    /// Both sides of a depthwise convolution are of one type.
    fn depthwise(&mut self, step: &Convolution) -> bool {
        let Convolution { x, y, tail, .. } = step;
        let mut changed = self.read(*x) | self.both(*x, *y);
        if let Some(residual) = tail.residual {
            changed |= self.refuse(residual);
        }
        if tail.residual.is_some() || !activation(tail.activation).is_fusable() {
            changed |= self.refuse(*x) | self.refuse(*y);
        }
        changed
    }

    /// Makes two tensors floats unless both may be bf16.
    fn both(&mut self, a: TensorId, b: TensorId) -> bool {
        if self.may(a) && self.may(b) { false } else { self.refuse(a) | self.refuse(b) }
    }

    /// What is computed in floats is rounded only for those that round it anyway.
    fn only_for_products(&mut self, y: TensorId) -> bool {
        self.state(y).is_some_and(|state| !state.is_for_products) && self.refuse(y)
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

    /// Leaves floats; whether that is new.
    fn refuse(&mut self, tensor: TensorId) -> bool {
        self.take_back(tensor, |state| &mut state.may)
    }

    /// Something else than a product reads it; whether that is new.
    fn read(&mut self, tensor: TensorId) -> bool {
        self.take_back(tensor, |state| &mut state.is_for_products)
    }

    /// Whether a fold goes along another dimension than the innermost.
    fn is_by_columns(&self, step: &Reduction) -> bool {
        let rank = self.program.tensors.get(step.x as usize).map_or(0, |tensor| tensor.dims.len());
        step.first.saturating_add(step.count) as usize + 1 == rank && self.last(step.x).is_some_and(|size| size > 1)
    }

    fn is_bf16(&self, weights: TensorId) -> bool {
        self.program.tensors.get(weights as usize).is_some_and(|tensor| tensor.dtype == ScalarType::BFloat16)
    }

    /// Whether there are so few rows that they are better floats.
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

/// A size that no run changes.
fn fixed(size: Size) -> Option<usize> {
    match size {
        Size::Fixed(size) => usize::try_from(size).ok(),
        Size::Computed(_) => None,
    }
}

/// Whether a convolution is computed as it is defined, in floats.
fn is_direct(step: &Convolution) -> bool {
    step.tail.integers.is_none() && step.winograd.is_none() && step.output_padding.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_cpu_payload::{Elementwise, Instruction, Normalisation, Operand, Tensor, Unary};

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

    fn product(a: TensorId, y: TensorId, residual: Option<TensorId>) -> Step {
        let tail = Tail { residual, ..Tail::default() };
        Step::Matmul(Matmul { a, b: 0, y, packed: true, transposed: false, tail })
    }

    fn normalised(x: TensorId, y: TensorId) -> Step {
        Step::Normalisation(Normalisation { x, y, weight: None, bias: None, dims: 1, eps: 1e-5, centred: true })
    }

    #[test]
    fn what_products_read_is_bf16() {
        assert_eq!(chosen(4, vec![product(1, 2, None), product(2, 3, Some(1))]), [1, 2, 3]);
    }

    #[test]
    fn what_others_read_is_floats() {
        let softmax = Step::Softmax { x: 2, y: 3, log: false };
        assert_eq!(chosen(4, vec![product(1, 2, None), softmax]), [1]);
    }

    fn attention(q: TensorId, y: TensorId, keys: u64) -> Step {
        let (one, none) = (Size::Fixed(1), [Size::Fixed(0); 3]);
        Step::Attention(Attention {
            q,
            k: 1,
            v: 1,
            mask: None,
            y,
            batch: one,
            heads: one,
            groups: one,
            rows: Size::Fixed(100),
            keys: Size::Fixed(keys),
            depth: Size::Fixed(64),
            value_depth: Size::Fixed(64),
            scale: 1.0,
            causal: false,
            strides: [none; 4],
        })
    }

    #[test]
    fn attention_takes_what_products_give() {
        let first = |step| chosen(5, vec![product(2, 1, None), step, product(3, 4, None)]);
        assert_eq!(first(attention(1, 3, 100)), [1, 2, 3, 4]);
        assert_eq!(first(attention(1, 3, 1000)), [1, 2, 4]);
        // A query that no product gives.
        let steps = vec![product(2, 1, None), normalised(2, 3), attention(3, 4, 100)];
        assert_eq!(chosen(5, steps), []);
    }

    #[test]
    fn functions_are_rounded_for_products_alone() {
        assert_eq!(chosen(4, vec![normalised(1, 2), product(2, 3, None)]), [2, 3]);
        assert_eq!(chosen(4, vec![normalised(1, 2), product(2, 3, Some(2))]), [3]);
        let instructions = vec![Instruction::Unary { to: 0, function: Unary::Exp, x: Operand::Tensor(0) }];
        let step = Step::Elementwise(Elementwise { operands: vec![1], y: 2, instructions });
        assert_eq!(chosen(4, vec![step, product(2, 3, None)]), [1, 2, 3]);
    }
}
