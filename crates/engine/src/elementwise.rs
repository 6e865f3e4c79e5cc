//! Programs of elementwise instructions, with broadcasting.

use crate::error::{Error, at_least, size};
use crate::{Activation, Engine};

/// The most dimensions of a tensor here.
pub const MAX_DIMS: usize = 16;

/// How many registers instructions have.
pub const REGISTERS: usize = 8;

/// What an instruction reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand {
    /// The result of an earlier instruction.
    Register(u8),
    /// An element of a tensor, by its position among the operands.
    Tensor(u8),
    Number(f32),
}

/// One instruction, `to = function(operands)`, on each element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Instruction {
    Unary {
        to: u8,
        function: Unary,
        x: Operand,
    },
    Binary {
        to: u8,
        function: Binary,
        a: Operand,
        b: Operand,
    },
    /// `a` where the condition is not zero (NaN is not), `b` elsewhere.
    Select {
        to: u8,
        condition: Operand,
        a: Operand,
        b: Operand,
    },
    Activate {
        to: u8,
        activation: Activation,
        x: Operand,
    },
}

/// Functions of one number. Truth is 1 and 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unary {
    Identity,
    Neg,
    Abs,
    Sqrt,
    /// 1 / sqrt(x)
    Rsqrt,
    Reciprocal,
    Square,
    Exp,
    Log,
    Sin,
    Cos,
    Tanh,
    Sigmoid,
    Erf,
    Floor,
    Ceil,
    /// To the nearest integer, ties to even.
    Round,
    Trunc,
    /// Whether x is zero; NaN is not.
    Not,
    IsNan,
    /// log(1 + x)
    Log1p,
    /// exp(x) - 1
    Expm1,
}

/// Functions of two numbers. Truth is 1 and 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// The greater; NaN if either is.
    Max,
    /// The lesser; NaN if either is.
    Min,
    Pow,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Whether neither is zero.
    And,
    /// Whether not both are zero.
    Or,
}

/// A tensor that is read: element `i` is `data[sum of i * strides]`, with a stride for each dimension of the result, 0
/// where it is broadcast.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub data: &'a [f32],
    pub strides: [usize; MAX_DIMS],
}

/// Runs the instructions for each element of a result of sizes `dims`, and stores the last one's value in `y`, which is
/// dense and in row-major order.
///
/// # Errors
/// When there is no instruction, more than [`MAX_DIMS`] dimensions, an instruction that names an operand or register that
/// is not there or reads a register that none before it has written, or a slice that is too short.
pub fn elementwise(
    engine: &Engine,
    instructions: &[Instruction],
    dims: &[usize],
    operands: &[Source<'_>],
    y: &mut [f32],
) -> Result<(), Error> {
    let elements = check(instructions, dims, operands, y)?;
    let _ = engine;
    let mut registers = [0.0f32; REGISTERS];
    for (i, y) in y[..elements].iter_mut().enumerate() {
        let read = |operand: Operand, registers: &[f32; REGISTERS]| match operand {
            Operand::Register(r) => registers[r as usize],
            Operand::Number(x) => x,
            Operand::Tensor(t) => {
                let (mut rest, mut at) = (i, 0);
                for (d, &size) in dims.iter().enumerate().rev() {
                    at += rest % size * operands[t as usize].strides[d];
                    rest /= size;
                }
                operands[t as usize].data[at]
            }
        };
        for instruction in instructions {
            let (to, value) = match *instruction {
                Instruction::Unary { to, function, x } => (to, unary(function, read(x, &registers))),
                Instruction::Binary { to, function, a, b } => {
                    (to, binary(function, read(a, &registers), read(b, &registers)))
                }
                Instruction::Select { to, condition, a, b } => {
                    (to, if read(condition, &registers) == 0.0 { read(b, &registers) } else { read(a, &registers) })
                }
                Instruction::Activate { to, activation, x } => {
                    struct One(Activation, f32);
                    impl crate::arch::Job for One {
                        type Out = f32;
                        #[inline(always)]
                        fn run<S: crate::arch::Simd>(self, s: S) -> f32 {
                            let mut lanes = [0.0; 16];
                            // SAFETY: 16 floats.
                            #[allow(unsafe_code)]
                            unsafe {
                                s.store(lanes.as_mut_ptr(), self.0.apply(s, s.splat(self.1)));
                            }
                            lanes[0]
                        }
                    }
                    (to, engine.level.run(One(activation, read(x, &registers))))
                }
            };
            registers[to as usize] = value;
            *y = value;
        }
    }
    Ok(())
}

fn unary(function: Unary, x: f32) -> f32 {
    let truth = |t: bool| f32::from(u8::from(t));
    match function {
        Unary::Identity => x,
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sqrt => libm::sqrtf(x),
        Unary::Rsqrt => 1.0 / libm::sqrtf(x),
        Unary::Reciprocal => 1.0 / x,
        Unary::Square => x * x,
        Unary::Exp => libm::expf(x),
        Unary::Log => libm::logf(x),
        Unary::Sin => libm::sinf(x),
        Unary::Cos => libm::cosf(x),
        Unary::Tanh => libm::tanhf(x),
        Unary::Sigmoid => 1.0 / (1.0 + libm::expf(-x)),
        Unary::Erf => libm::erff(x),
        Unary::Floor => libm::floorf(x),
        Unary::Ceil => libm::ceilf(x),
        Unary::Round => libm::rintf(x),
        Unary::Trunc => libm::truncf(x),
        Unary::Not => truth(x == 0.0),
        Unary::IsNan => truth(x.is_nan()),
        Unary::Log1p => libm::log1pf(x),
        Unary::Expm1 => libm::expm1f(x),
    }
}

fn binary(function: Binary, a: f32, b: f32) -> f32 {
    let truth = |t: bool| f32::from(u8::from(t));
    match function {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max => {
            if a.is_nan() || a > b {
                a
            } else {
                b
            }
        }
        Binary::Min => {
            if a.is_nan() || a < b {
                a
            } else {
                b
            }
        }
        Binary::Pow => libm::powf(a, b),
        Binary::Eq => truth(a == b),
        Binary::Ne => truth(a != b),
        Binary::Lt => truth(a < b),
        Binary::Le => truth(a <= b),
        Binary::Gt => truth(a > b),
        Binary::Ge => truth(a >= b),
        Binary::And => truth(a != 0.0 && b != 0.0),
        Binary::Or => truth(a != 0.0 || b != 0.0),
    }
}

/// How many elements the result has.
fn check(instructions: &[Instruction], dims: &[usize], operands: &[Source<'_>], y: &[f32]) -> Result<usize, Error> {
    if instructions.is_empty() {
        return Err(Error::Size { what: "instructions" });
    }
    if dims.len() > MAX_DIMS {
        return Err(Error::Index { what: "dimension", index: dims.len() as i64 - 1, size: MAX_DIMS });
    }
    let elements = size("y", dims)?;
    at_least("y", y.len(), elements)?;
    if elements > 0 {
        for operand in operands {
            at_least("operand", operand.data.len(), reach("operand", dims, &operand.strides)?)?;
        }
    }
    let mut written = [false; REGISTERS];
    for instruction in instructions {
        let readable = |operand: Operand| match operand {
            Operand::Number(_) => Ok(()),
            Operand::Tensor(t) if usize::from(t) < operands.len() => Ok(()),
            Operand::Tensor(t) => Err(Error::Index { what: "operand", index: t.into(), size: operands.len() }),
            Operand::Register(r) if written.get(usize::from(r)) == Some(&true) => Ok(()),
            Operand::Register(r) => Err(Error::Index { what: "register", index: r.into(), size: 0 }),
        };
        let to = match *instruction {
            Instruction::Unary { to, x, .. } | Instruction::Activate { to, x, .. } => {
                readable(x)?;
                to
            }
            Instruction::Binary { to, a, b, .. } => {
                readable(a)?;
                readable(b)?;
                to
            }
            Instruction::Select { to, condition, a, b } => {
                readable(condition)?;
                readable(a)?;
                readable(b)?;
                to
            }
        };
        match written.get_mut(usize::from(to)) {
            Some(written) => *written = true,
            None => return Err(Error::Index { what: "register", index: to.into(), size: REGISTERS }),
        }
    }
    Ok(elements)
}

/// One past the greatest index that strides reach; the sizes are not zero.
pub(crate) fn reach(what: &'static str, dims: &[usize], strides: &[usize]) -> Result<usize, Error> {
    dims.iter().zip(strides).try_fold(1, |reach, (&dim, &stride)| {
        size(what, &[dim - 1, stride])?.checked_add(reach).ok_or(Error::Size { what })
    })
}
