//! Elementwise computations of several operands.

use alloc::vec::Vec;

use rushlight_engine::{Binary, Instruction, Operand, Unary};

use crate::codec::{structure, union};
use crate::error::{Counted, List};
use crate::tensors::Tensors;
use crate::{PayloadError, PayloadFault, Sizes, StepKind, TensorId};

/// Number of registers of an elementwise step.
pub const REGISTERS: u8 = rushlight_engine::REGISTERS as u8;

/// Maximum number of tensors that an elementwise step reads.
pub const MAX_OPERANDS: usize = 16;

/// Executes instructions for each element and stores the result of the last one. The operands have the rank of `y`;
/// each size is that of `y` or one. [`Operand::Tensor`](rushlight_engine::Operand::Tensor) is a position in `operands`.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    pub operands: Vec<TensorId>,
    pub y: TensorId,
    pub instructions: Vec<Instruction>,
}

/// A register of an elementwise step, below [`REGISTERS`].
pub type Register = u8;

structure! { Elementwise { operands, y, instructions } }

union! {
    Operand { 0 Register(register), 1 Tensor(index), 2 Constant(value) }
    Instruction {
        0 Unary { to, function, x }, 1 Binary { to, function, a, b }, 2 Select { to, condition, a, b },
        3 Activate { to, activation, x }
    }
    Unary {
        0 Identity, 1 Neg, 2 Abs, 3 Sqrt, 4 Rsqrt, 5 Reciprocal, 6 Square, 7 Exp, 8 Log, 9 Sin, 10 Cos, 11 Tanh, 12 Sigmoid,
        13 Erf, 14 Floor, 15 Ceil, 16 Round, 17 Trunc, 18 Not, 19 IsNan, 20 Log1p, 21 Expm1,
        22 RoundF16, 23 RoundBf16
    }
    Binary {
        0 Add, 1 Sub, 2 Mul, 3 Div, 4 Max, 5 Min, 6 Pow, 7 Eq, 8 Ne, 9 Lt, 10 Le, 11 Gt, 12 Ge, 13 And, 14 Or
    }
}

impl StepKind for Elementwise {
    fn name(&self) -> &'static str {
        "elementwise"
    }

    fn output(&self) -> TensorId {
        self.y
    }

    fn for_each_input(&self, visit: &mut dyn FnMut(TensorId)) {
        self.operands.iter().for_each(|operand| visit(*operand));
    }

    fn check(&self, _tensors: &Tensors<'_>) -> Result<(), PayloadError> {
        let mut written = [false; REGISTERS as usize];
        Counted::Operands.check(self.operands.len(), MAX_OPERANDS)?;
        if self.instructions.is_empty() {
            return Err(PayloadError::new(PayloadFault::NoInstructions));
        }
        self.instructions.iter().try_for_each(|instruction| self.check_instruction(instruction, &mut written))
    }

    fn flops(&self, sizes: &dyn Sizes) -> f64 {
        sizes.elements(self.y) as f64 * self.instructions.len() as f64
    }
}

impl Elementwise {
    /// Checks that an instruction reads operands and registers that are `written`, and marks the one that it writes.
    fn check_instruction(
        &self,
        instruction: &Instruction,
        written: &mut [bool; REGISTERS as usize],
    ) -> Result<(), PayloadError> {
        let (to, reads): (Register, &[Operand]) = match instruction {
            Instruction::Unary { to, x, .. } | Instruction::Activate { to, x, .. } => (*to, &[*x]),
            Instruction::Binary { to, a, b, .. } => (*to, &[*a, *b]),
            Instruction::Select { to, condition, a, b } => (*to, &[*condition, *a, *b]),
        };
        for operand in reads {
            match *operand {
                Operand::Register(register) => {
                    List::Registers.check(register.into(), written.len())?;
                    if !written.get(register as usize).copied().unwrap_or(false) {
                        return Err(PayloadError::new(PayloadFault::Register { register }));
                    }
                }
                Operand::Tensor(index) => List::Operands.check(index.into(), self.operands.len())?,
                Operand::Constant(_) => {}
            }
        }
        List::Registers.check(to.into(), written.len())?;
        if let Some(flag) = written.get_mut(to as usize) {
            *flag = true;
        }
        Ok(())
    }
}

#[cfg(test)]
impl crate::examples::Examples for Elementwise {
    fn examples() -> impl IntoIterator<Item = (Self, &'static str)> {
        use alloc::vec;

        use rushlight_engine::Activation;

        use Binary::{Add, And, Div, Eq, Ge, Gt, Le, Lt, Max, Min, Mul, Ne, Or, Pow, Sub};
        use Unary::{
            Abs, Ceil, Cos, Erf, Exp, Expm1, Floor, Identity, IsNan, Log, Log1p, Neg, Not, Reciprocal, Round,
            RoundBf16, RoundF16, Rsqrt, Sigmoid, Sin, Sqrt, Square, Tanh, Trunc,
        };
        let unary = [
            Identity, Neg, Abs, Sqrt, Rsqrt, Reciprocal, Square, Exp, Log, Sin, Cos, Tanh, Sigmoid, Erf, Floor, Ceil,
            Round, Trunc, Not, IsNan, Log1p, Expm1, RoundF16, RoundBf16,
        ];
        let binary = [Add, Sub, Mul, Div, Max, Min, Pow, Eq, Ne, Lt, Le, Gt, Ge, And, Or];
        let activations = [
            Activation::None,
            Activation::Clamp { min: -1.0, max: 6.0 },
            Activation::LeakyRelu { slope: 0.5 },
            Activation::HardSwish,
            Activation::HardSigmoid,
            Activation::Sigmoid,
            Activation::Silu,
            Activation::Tanh,
            Activation::GeluErf,
            Activation::GeluTanh,
            Activation::Elu { alpha: 2.0 },
        ];
        let (x, a, b) = (Operand::Tensor(1), Operand::Register(2), Operand::Constant(-0.5));
        let step = |instructions| Elementwise { operands: vec![1, 300], y: 2, instructions };
        [
            (
                step(unary.map(|function| Instruction::Unary { to: 3, function, x }).to_vec()),
                "020201ac0202180003000101000301010100030201010003030101000304010100030501010003060101000307010100\
             03080101000309010100030a010100030b010100030c010100030d010100030e010100030f0101000310010100031101\
             01000312010100031301010003140101000315010100031601010003170101",
            ),
            (
                step(binary.map(|function| Instruction::Binary { to: 3, function, a, b }).to_vec()),
                "020201ac02020f010300000202000000bf010301000202000000bf010302000202000000bf010303000202000000bf01\
             0304000202000000bf010305000202000000bf010306000202000000bf010307000202000000bf010308000202000000\
             bf010309000202000000bf01030a000202000000bf01030b000202000000bf01030c000202000000bf01030d00020200\
             0000bf01030e000202000000bf",
            ),
            (
                step(activations.map(|activation| Instruction::Activate { to: 3, activation, x }).to_vec()),
                "020201ac02020b0303000101030301000080bf0000c04001010303020000003f01010303030101030304010103030501\
             01030306010103030701010303080101030309010103030a000000400101",
            ),
            (step(vec![Instruction::Select { to: 3, condition: x, a, b }]), "020201ac02020102030101000202000000bf"),
        ]
    }
}
