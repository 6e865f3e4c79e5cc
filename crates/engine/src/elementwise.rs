//! Programs of elementwise instructions, with broadcasting.

mod functions;
mod tile;

use crate::arch::LANES;
use crate::error::{Error, at_least, size};
use crate::quantized::Levels;
use crate::split::Output;
use crate::{Activation, Affine, Engine, QuantOut};

use tile::{TILE, Target, Tiles};

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
    /// The nearest number of [`Half::F16`](crate::Half), ties to even.
    RoundF16,
    /// The nearest number of [`Half::Bf16`](crate::Half), ties to even.
    RoundBf16,
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
    pub data: Data<'a>,
    pub strides: [usize; MAX_DIMS],
}

/// Numbers, or bytes that stand for some.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    Floats(&'a [f32]),
    Bytes(&'a [u8], Affine),
    /// As in [`Numbers`](crate::Numbers).
    Bf16(&'a [u16]),
}

/// What is written; as in [`Data`].
#[derive(Debug)]
pub enum DataMut<'a> {
    Floats(&'a mut [f32]),
    Bytes(&'a mut [u8], Affine),
    Bf16(&'a mut [u16]),
}

impl<'a, T: Into<QuantOut<'a>>> From<T> for DataMut<'a> {
    fn from(out: T) -> Self {
        match out.into() {
            QuantOut::Floats(floats) => Self::Floats(floats),
            QuantOut::Bytes(bytes, affine) => Self::Bytes(bytes, affine),
        }
    }
}

impl DataMut<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Bytes(bytes, _) => bytes.len(),
            Self::Bf16(halves) => halves.len(),
        }
    }
}

impl Data<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Bytes(bytes, _) => bytes.len(),
            Self::Bf16(halves) => halves.len(),
        }
    }
}

impl<'a> From<&'a [f32]> for Data<'a> {
    fn from(floats: &'a [f32]) -> Self {
        Self::Floats(floats)
    }
}

/// Runs the instructions for each element of a result of sizes `dims`, and stores the last one's value in `y`, which is
/// dense and in row-major order.
///
/// # Errors
/// When there is no instruction, more than [`MAX_DIMS`] dimensions, an instruction that names an operand or register that
/// is not there or reads a register that none before it has written, a slice that is too short, or bf16 where the processor does
/// not take them.
pub fn elementwise<'y>(
    engine: &Engine,
    instructions: &[Instruction],
    dims: &[usize],
    operands: &[Source<'_>],
    y: impl Into<DataMut<'y>>,
) -> Result<(), Error> {
    let y = y.into();
    let any_bf16 = operands.iter().any(|operand| matches!(operand.data, Data::Bf16(_)));
    engine.check_numbers(any_bf16 || matches!(y, DataMut::Bf16(_)))?;
    let elements = check(instructions, dims, operands, y.len())?;
    if elements == 0 {
        return Ok(());
    }
    let mut plan = Plan::EMPTY;
    plan.make(dims, operands);
    let y = match y {
        DataMut::Floats(floats) => Target::Floats(Output::new(floats)),
        DataMut::Bytes(bytes, affine) => Target::Bytes(Output::new(bytes), Levels::of(affine)),
        DataMut::Bf16(halves) => Target::Bf16(Output::new(halves)),
    };
    let tiles = Tiles { plan: &plan, instructions, operands, y };
    if elements <= LEAST {
        engine.level.run(tiles.range(0..plan.tiles()));
    } else {
        let least = LEAST.div_ceil(plan.rows * plan.unit);
        engine.for_ranges(plan.tiles(), least, |range| engine.level.run(tiles.range(range)));
    }
    Ok(())
}

/// Elements for which a task is worth handing over.
const LEAST: usize = 16 << 10;

/// How the result is cut into tiles: the innermost dimensions that fit together are whole, and a tile has several rows of
/// them along the next dimension, in which all operands advance by a constant.
struct Plan {
    /// Sizes, after dimensions that are contiguous in all operands became one.
    sizes: [usize; MAX_DIMS],
    /// The innermost of the original dimensions of each.
    axes: [usize; MAX_DIMS],
    rank: usize,
    /// The dimension along which tiles have rows.
    row: usize,
    /// Elements of a row: of the dimensions inside of it.
    unit: usize,
    /// Rows of a tile.
    rows: usize,
}

impl Plan {
    /// Of no dimensions. A plan is made in place: moving what has just been written in parts stalls the processor.
    const EMPTY: Self = Self { sizes: [1; MAX_DIMS], axes: [0; MAX_DIMS], rank: 0, row: 0, unit: 1, rows: 0 };

    fn make(&mut self, dims: &[usize], operands: &[Source<'_>]) {
        self.join(dims, operands);
        self.cut();
    }

    /// Joins dimensions that are contiguous in all operands.
    #[inline]
    fn join(&mut self, dims: &[usize], operands: &[Source<'_>]) {
        let Self { sizes, axes, rank, .. } = self;
        for (axis, &size) in dims.iter().enumerate().filter(|(_, size)| **size != 1) {
            let continues = |operand: &Source| operand.strides[axes[*rank - 1]] == operand.strides[axis] * size;
            if *rank > 0 && operands.iter().all(continues) {
                sizes[*rank - 1] *= size;
                axes[*rank - 1] = axis;
            } else {
                sizes[*rank] = size;
                axes[*rank] = axis;
                *rank += 1;
            }
        }
        *rank = (*rank).max(1);
    }

    /// Cuts the joined dimensions into tiles.
    #[inline]
    fn cut(&mut self) {
        let Self { sizes, rank, row, unit, rows, .. } = self;
        *row = *rank - 1;
        while *row > 0 && *unit * sizes[*row] <= TILE {
            *unit *= sizes[*row];
            *row -= 1;
        }
        *rows = sizes[*row];
        if *unit * *rows > TILE {
            let tiles = sizes[*row].div_ceil(TILE / *unit);
            *rows = sizes[*row].div_ceil(tiles);
        }
        if *unit == 1 {
            *rows = rows.next_multiple_of(LANES);
        }
    }

    /// Tiles along the dimension of rows.
    fn tiles_per_row(&self) -> usize {
        let size = self.sizes[self.row];
        // Small results have one, and a division takes as long as the rest of their plan.
        if size <= self.rows { 1 } else { size.div_ceil(self.rows) }
    }

    fn tiles(&self) -> usize {
        self.sizes[..self.row].iter().product::<usize>() * self.tiles_per_row()
    }
}

/// How many elements the result has.
fn check(instructions: &[Instruction], dims: &[usize], operands: &[Source<'_>], y: usize) -> Result<usize, Error> {
    if instructions.is_empty() {
        return Err(Error::Size { what: "instructions" });
    }
    if dims.len() > MAX_DIMS {
        return Err(Error::Index { what: "dimension", index: dims.len() as i64 - 1, size: MAX_DIMS });
    }
    let elements = size("y", dims)?;
    at_least("y", y, elements)?;
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
