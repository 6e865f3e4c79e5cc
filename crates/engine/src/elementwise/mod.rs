//! Fused elementwise programs with broadcasting.

mod loops;
mod tile;

use crate::arch::LANES;
use crate::error::{Error, at_least, size};
use crate::parallel::SharedOutput;
use crate::quantized::U8Quantizer;
use crate::{Activation, Affine, Engine, Isa, QuantOut};

use tile::{ElementwiseRun, TILE_ELEMENTS, Target};

/// Maximum rank of a tensor.
pub const MAX_DIMS: usize = 16;

/// Number of virtual registers.
pub const REGISTERS: usize = 8;

/// An operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand {
    /// The result of an earlier instruction.
    Register(u8),
    /// An element of an input tensor, by its index among the operands.
    Tensor(u8),
    Constant(f32),
}

/// An instruction, `to = op(operands)`, executed for each element.
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
    /// `a` if the condition is nonzero or NaN, else `b`.
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

/// Unary operators. Booleans are 1 and 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    Identity,
    Neg,
    Abs,
    Sqrt,
    /// `1 / sqrt(x)`
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
    /// Rounds to the nearest integer, ties to even.
    Round,
    Trunc,
    /// 1 if x is zero, else 0, also for NaN.
    Not,
    IsNan,
    /// `log(1 + x)`
    Log1p,
    /// `exp(x) - 1`
    Expm1,
    /// Rounds to [`Half::F16`](crate::Half) and back, ties to even.
    RoundF16,
    /// Rounds to [`Half::Bf16`](crate::Half) and back, ties to even.
    RoundBf16,
}

/// Binary operators. Booleans are 1 and 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// Maximum; NaN if either operand is.
    Max,
    /// Minimum; NaN if either operand is.
    Min,
    Pow,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// 1 if both operands are nonzero.
    And,
    /// 1 if at least one operand is nonzero.
    Or,
}

/// An input tensor: element `i` is `data[sum(i * strides)]`. There is a stride per dimension of the output, 0 in
/// broadcast dimensions.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub data: Data<'a>,
    pub strides: [usize; MAX_DIMS],
}

/// Input elements: f32, quantized u8, or bf16.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    Floats(&'a [f32]),
    Bytes(&'a [u8], Affine),
    /// Supported if [`Engine::supports_bf16`] returns true.
    Bf16(&'a [u16]),
}

/// Output elements; see [`Data`].
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
            Self::Bf16(bits) => bits.len(),
        }
    }
}

impl Data<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Bytes(bytes, _) => bytes.len(),
            Self::Bf16(bits) => bits.len(),
        }
    }
}

impl<'a> From<&'a [f32]> for Data<'a> {
    fn from(floats: &'a [f32]) -> Self {
        Self::Floats(floats)
    }
}

/// Executes the instructions for each element of an output of shape `dims`, and stores the result of the last one in
/// `y`, which is dense and row-major.
///
/// # Errors
/// If there is no instruction, a slice is too short, or there are more than [`MAX_DIMS`] dimensions. If an instruction
/// names an unknown operand or register, or reads a register before it is written. If an operand is bf16 and the
/// processor does not support it.
pub fn elementwise<'y>(
    engine: &Engine,
    instructions: &[Instruction],
    dims: &[usize],
    operands: &[Source<'_>],
    y: impl Into<DataMut<'y>>,
) -> Result<(), Error> {
    elementwise_impl(Some(engine), instructions, dims, operands, y.into())
}

/// Like [`elementwise`], with portable code on the calling thread. The result is the same on every machine, bit for
/// bit.
///
/// # Errors
/// Those of [`elementwise`]; bf16 is not supported.
pub fn elementwise_portable<'y>(
    instructions: &[Instruction],
    dims: &[usize],
    operands: &[Source<'_>],
    y: impl Into<DataMut<'y>>,
) -> Result<(), Error> {
    elementwise_impl(None, instructions, dims, operands, y.into())
}

/// Executes the instructions on an engine, or by portable code.
fn elementwise_impl(
    engine: Option<&Engine>,
    instructions: &[Instruction],
    dims: &[usize],
    operands: &[Source<'_>],
    y: DataMut<'_>,
) -> Result<(), Error> {
    let any_bf16 = operands.iter().any(|operand| matches!(operand.data, Data::Bf16(_)));
    let any_bf16 = any_bf16 || matches!(y, DataMut::Bf16(_));
    match engine {
        Some(engine) => engine.check_bf16_support(any_bf16)?,
        None if any_bf16 => return Err(Error::Unavailable(Isa::Avx512Bf16)),
        None => {}
    }
    let elements = check(instructions, dims, operands, y.len())?;
    if elements == 0 {
        return Ok(());
    }
    let mut plan = TilePlan::EMPTY;
    plan.compute(dims, operands);
    let y = match y {
        DataMut::Floats(floats) => Target::Floats(SharedOutput::new(floats)),
        DataMut::Bytes(bytes, affine) => Target::Bytes(SharedOutput::new(bytes), U8Quantizer::of(affine)),
        DataMut::Bf16(bits) => Target::Bf16(SharedOutput::new(bits)),
    };
    let tiles = ElementwiseRun { plan: &plan, instructions, operands, y };
    match engine {
        Some(engine) if elements > MIN_TASK_ELEMENTS => {
            let min_tiles = MIN_TASK_ELEMENTS.div_ceil(plan.rows * plan.row_elements);
            engine.parallel_for(plan.tiles(), min_tiles, |range| tiles.run(Some(engine), range));
        }
        _ => tiles.run(engine, 0..plan.tiles()),
    }
    Ok(())
}

/// Minimum elements of a task.
const MIN_TASK_ELEMENTS: usize = 16 << 10;

/// Division of the output into tiles of at most [`TILE_ELEMENTS`]. A row of a tile covers as many innermost dimensions
/// as fit. The rows of a tile are consecutive indices of the next dimension (`row_dim`), so that each operand has one
/// stride from row to row.
struct TilePlan {
    /// Sizes after merging dimensions that are contiguous in all operands.
    sizes: [usize; MAX_DIMS],
    /// The innermost original dimension of each merged one: its stride is that of the merged dimension.
    axes: [usize; MAX_DIMS],
    rank: usize,
    /// The merged dimension along which a tile has rows.
    row_dim: usize,
    /// Elements of a row: the product of the merged dimensions inside of `row_dim`.
    row_elements: usize,
    /// Maximum rows of a tile.
    rows: usize,
}

impl TilePlan {
    /// The plan of a scalar. Plans are made in place: copying a struct right after partial writes causes
    /// store-forwarding stalls.
    const EMPTY: Self =
        Self { sizes: [1; MAX_DIMS], axes: [0; MAX_DIMS], rank: 0, row_dim: 0, row_elements: 1, rows: 0 };

    fn compute(&mut self, dims: &[usize], operands: &[Source<'_>]) {
        self.merge_dims(dims, operands);
        self.choose_tile();
    }

    /// Merges dimensions that are contiguous in all operands.
    #[inline]
    fn merge_dims(&mut self, dims: &[usize], operands: &[Source<'_>]) {
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

    /// Chooses the dimension and the number of rows.
    #[inline]
    fn choose_tile(&mut self) {
        let Self { sizes, rank, row_dim, row_elements, rows, .. } = self;
        *row_dim = *rank - 1;
        while *row_dim > 0 && *row_elements * sizes[*row_dim] <= TILE_ELEMENTS {
            *row_elements *= sizes[*row_dim];
            *row_dim -= 1;
        }
        *rows = sizes[*row_dim];
        if *row_elements * *rows > TILE_ELEMENTS {
            let tiles = sizes[*row_dim].div_ceil(TILE_ELEMENTS / *row_elements);
            *rows = sizes[*row_dim].div_ceil(tiles);
        }
        if *row_elements == 1 {
            *rows = rows.next_multiple_of(LANES);
        }
    }

    /// Number of tiles along `row_dim`.
    fn tiles_along_rows(&self) -> usize {
        let size = self.sizes[self.row_dim];
        // The comparison avoids a division, which would dominate the time of the plan for a small output.
        if size <= self.rows { 1 } else { size.div_ceil(self.rows) }
    }

    /// Number of tiles of the output.
    fn tiles(&self) -> usize {
        self.sizes[..self.row_dim].iter().product::<usize>() * self.tiles_along_rows()
    }
}

/// Validates the program; returns the number of elements of the output.
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
            at_least("operand", operand.data.len(), min_len("operand", dims, &operand.strides)?)?;
        }
    }
    let mut written = [false; REGISTERS];
    for instruction in instructions {
        let readable = |operand: Operand| match operand {
            Operand::Constant(_) => Ok(()),
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

/// Returns the minimum length of a slice that strides index: one past the largest index. Sizes must not be zero.
pub(crate) fn min_len(what: &'static str, dims: &[usize], strides: &[usize]) -> Result<usize, Error> {
    dims.iter().zip(strides).try_fold(1, |len, (&dim, &stride)| {
        size(what, &[dim - 1, stride])?.checked_add(len).ok_or(Error::Size { what })
    })
}
