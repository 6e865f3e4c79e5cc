//! Decides which intermediate results are stored as bf16.
//!
//! Programs with bf16 weights leave open in what type results are stored between steps. Where the processor has bf16 dot
//! products, GEMMs round what they read; so what only GEMMs read is written rounded, which is the same, and half as much to
//! write and to read. The results of GEMMs and depthwise convolutions other steps read as bf16 too, which rounds once more.
//!
//! A result takes the place that it would have as f32.

use std::collections::VecDeque;

use rushlight_cpu_payload::{CpuProgram, TensorId, match_step};
use rushlight_format::ScalarType;

use crate::bf16_choice::Choice;
use crate::steps::RunStep;

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
        if !match_step!(step, step => step.restrict_bf16(&mut choice)) {
            continue;
        }
        for user in choice.changed.drain(..).filter_map(|buffer| users.get(buffer)).flatten() {
            if let Some(flag) = is_waiting.get_mut(*user).filter(|flag| !**flag) {
                *flag = true;
                waiting.push_back(*user);
            }
        }
    }
    let chosen = choice.chosen();
    for tensor in &mut program.tensors {
        if chosen.get(tensor.buffer as usize) == Some(&true) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_cpu_payload::{
        Attention, Buffer, Elementwise, Epilogue, Instruction, KeyValueFormat, Matmul, MatmulKind, Normalization,
        Operand, Residual, Size, Softmax, Step, Tensor, Unary,
    };

    use crate::bf16_choice::BF16;

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
        let softmax = Step::Softmax(Softmax { x: 2, y: 3, log: false });
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
