//! Steps in the engine's own terms, as far as that can be settled before a call.

use rushlight_cpu_payload as payload;
use rushlight_engine::{self as engine, Activation, Data, Engine, Isa, QuantOut, Reduction, SoftmaxTable, Source};

use rushlight_runtime::{Code, Detail, Error, Result};

use crate::memory::affine;
use crate::shapes::Shapes;
use crate::steps::{ByteSoftmax, Elementwise};

/// A step that is ready to run.
pub(crate) enum Prepared {
    Elementwise(Elementwise),
    Softmax(ByteSoftmax),
    Other(Box<payload::Step>),
}

impl Prepared {
    /// Checks that the operations of the step are in proportion to the present elements of its tensors.
    pub fn check_work(&self, shapes: &Shapes) -> Result<()> {
        match self {
            Self::Elementwise(_) | Self::Softmax(_) => Ok(()),
            Self::Other(step) => {
                let work = step.work(shapes);
                if work.is_bounded() {
                    return Ok(());
                }
                let [operations, limit] = work.saturated();
                Err(Error::new(Code::DelegateInvalidCompatibility, Detail::Work { operations, limit }))
            }
        }
    }

    /// Gives the step copies of its tensors.
    #[cfg(feature = "isolate")]
    pub fn isolate(&self, site: &mut crate::memory::Site<'_, '_, '_, '_>) {
        let mut reads = Vec::new();
        let written = match self {
            Self::Elementwise(step) => {
                reads.extend_from_slice(&step.operands);
                step.y
            }
            Self::Softmax(step) => {
                reads.push(step.x);
                step.y
            }
            Self::Other(step) => {
                step.for_each_input(&mut |tensor| reads.push(tensor));
                step.output()
            }
        };
        site.isolated = crate::isolated::Isolated::of(site, &reads, written);
    }

    pub fn new(step: &payload::Step, program: &payload::CpuProgram) -> Self {
        let affine_of = |id: u32| program.tensors.get(id as usize)?.affine.map(affine);
        match step {
            payload::Step::Softmax { x, y, log: false } if let Some(from) = affine_of(*x) => {
                Self::Softmax(ByteSoftmax { x: *x, y: *y, table: SoftmaxTable::new(from) })
            }
            payload::Step::Elementwise(step) => {
                let instructions: Vec<_> = step.instructions.iter().map(instruction).collect();
                let table = table(step, &instructions, program);
                Self::Elementwise(Elementwise { operands: step.operands.clone(), y: step.y, instructions, table })
            }
            other => Self::Other(Box::new(other.clone())),
        }
    }
}

/// What each byte becomes. It is computed by portable code, so that functions with exponentials give the same on all
/// machines.
fn table(
    step: &payload::Elementwise,
    instructions: &[engine::Instruction],
    program: &payload::CpuProgram,
) -> Option<Box<[u8; 256]>> {
    let affine_of = |id: u32| program.tensors.get(id as usize)?.affine.map(affine);
    let [x] = step.operands.as_slice() else { return None };
    let (from, to) = (affine_of(*x)?, affine_of(step.y)?);
    let engine = Engine::with_isa(Isa::Scalar, 1).ok()?;
    let bytes: [u8; 256] = core::array::from_fn(|byte| byte as u8);
    let mut strides = [0; engine::MAX_DIMS];
    *strides.first_mut()? = 1;
    let source = Source { data: Data::Bytes(&bytes, from), strides };
    let mut table = Box::new([0; 256]);
    engine::elementwise(&engine, instructions, &[256], &[source], QuantOut::Bytes(&mut *table, to)).ok()?;
    Some(table)
}

fn instruction(instruction: &payload::Instruction) -> engine::Instruction {
    use engine::Instruction;
    match *instruction {
        payload::Instruction::Unary { to, function, x } => {
            Instruction::Unary { to, function: unary(function), x: operand(x) }
        }
        payload::Instruction::Binary { to, function, a, b } => {
            Instruction::Binary { to, function: binary(function), a: operand(a), b: operand(b) }
        }
        payload::Instruction::Select { to, condition, a, b } => {
            Instruction::Select { to, condition: operand(condition), a: operand(a), b: operand(b) }
        }
        payload::Instruction::Activate { to, activation: function, x } => {
            Instruction::Activate { to, activation: activation(function), x: operand(x) }
        }
    }
}

fn operand(operand: payload::Operand) -> engine::Operand {
    match operand {
        payload::Operand::Register(register) => engine::Operand::Register(register),
        payload::Operand::Tensor(index) => engine::Operand::Tensor(index),
        payload::Operand::Number(number) => engine::Operand::Number(number),
    }
}

/// The engine's name for each of the format's functions.
macro_rules! same {
    ($name:ident: $from:ty => $to:ty { $($variant:ident),* }) => {
        pub(crate) fn $name(function: $from) -> $to {
            match function { $( <$from>::$variant => <$to>::$variant ),* }
        }
    };
}

same!(unary: payload::Unary => engine::Unary {
    Identity, Neg, Abs, Sqrt, Rsqrt, Reciprocal, Square, Exp, Log, Sin, Cos, Tanh, Sigmoid, Erf, Floor, Ceil, Round, Trunc,
    Not, IsNan, Log1p, Expm1, RoundF16, RoundBf16
});
same!(binary: payload::Binary => engine::Binary {
    Add, Sub, Mul, Div, Max, Min, Pow, Eq, Ne, Lt, Le, Gt, Ge, And, Or
});
same!(fold: payload::Fold => Reduction { Sum, Mean, Max, Min });

pub(crate) fn activation(activation: payload::Activation) -> Activation {
    match activation {
        payload::Activation::None => Activation::None,
        payload::Activation::Clamp { min, max } => Activation::Clamp { min, max },
        payload::Activation::LeakyRelu { slope } => Activation::LeakyRelu { slope },
        payload::Activation::Elu { alpha } => Activation::Elu { alpha },
        payload::Activation::HardSwish => Activation::HardSwish,
        payload::Activation::HardSigmoid => Activation::HardSigmoid,
        payload::Activation::Sigmoid => Activation::Sigmoid,
        payload::Activation::Silu => Activation::Silu,
        payload::Activation::Tanh => Activation::Tanh,
        payload::Activation::Gelu => Activation::GeluErf,
        payload::Activation::GeluTanh => Activation::GeluTanh,
    }
}
