//! The payload of the CPU back end: what the compiler hands to the delegate that runs it.
//!
//! A [`CpuProgram`] is a list of [`Step`]s over [`Tensor`]s. A tensor is a dense window of a [`Buffer`]; its dimensions
//! stand in the order that they have in memory, the innermost last. Pictures lie with their channels innermost (NHWC).
//! Sizes are fixed, or computed from the sizes of the inputs at each call.
//!
//! [`CpuProgram::parse`] checks that every index is one of something, that steps read what was written before, and that
//! windows lie inside their buffers; sizes that are computed are checked when they are.
//!
//! Tensors between steps are of `f32`, or of `u8` with what their bytes stand for. A product whose left side is bytes has
//! weights of `i8`, and sums that are exact.

#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

extern crate alloc;

mod check;
mod codec;
mod error;
mod step;
mod text;
mod work;

use alloc::string::String;
use alloc::vec::Vec;

use rushlight_format::ScalarType;

pub use codec::HEADER;
pub use error::{Counted, List, Nonzero, PayloadError, PayloadFault, PayloadSite};
pub use step::{
    Activation, Attention, Binary, Choice, Convert, Convolution, Copy, Elementwise, Fold, Gather, Inner, Instruction,
    Integers, Matmul, Normalisation, Operand, Pooling, PoolingKind, Reduction, Register, Resize, ResizeMode, RoundRows,
    RowScales, Step, Tail, Unary, Winograd,
};
pub use work::{Sizes, Work};

/// The backend's id in programs.
pub const CPU_BACKEND: &str = "RushlightCpu";

/// Version of the format of payloads. A payload of another version is refused.
pub const VERSION: u8 = 7;

/// The registers of an elementwise step.
pub const REGISTERS: u8 = 8;

/// The most tensors that an elementwise step reads.
pub const MAX_OPERANDS: usize = 16;

/// A compiled part of a method.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuProgram {
    /// How sizes are computed; each may use the ones before it.
    pub sizes: Vec<SizeOp>,
    pub buffers: Vec<Buffer>,
    pub tensors: Vec<Tensor>,
    /// The tensors that the caller gives, by position.
    pub inputs: Vec<TensorId>,
    /// The tensors that the caller gets, by position.
    pub outputs: Vec<TensorId>,
    /// The sizes of each output as the caller sees it, in the order of the PyTorch tensor's dimensions.
    pub output_sizes: Vec<Vec<Size>>,
    /// Names of the blobs with large constants.
    pub blobs: Vec<String>,
    /// Small constants, as `f32`.
    pub small: Vec<f32>,
    /// Number of `f32` that intermediate results take at the largest sizes.
    pub arena: u64,
    /// Number of `f32` that one step may need besides for each thread.
    pub scratch: u64,
    pub steps: Vec<Step>,
    /// For each step what it was made from, for profiles.
    pub names: Vec<String>,
}

/// An index in [`CpuProgram::tensors`].
pub type TensorId = u32;

/// A size that is fixed, or an index in [`CpuProgram::sizes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    Fixed(u64),
    Computed(u32),
}

impl Default for Size {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

/// How a number is computed. Operands are indices of the numbers before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SizeOp {
    Fixed(i64),
    /// The size of a dimension of an input, as the caller sees it.
    Input {
        input: u32,
        dim: u32,
    },
    Add(u32, u32),
    Mul(u32, u32),
    /// Rounded down.
    FloorDiv(u32, u32),
    /// With the sign of the divisor.
    Mod(u32, u32),
    Max(u32, u32),
    Min(u32, u32),
}

/// Memory of the delegate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The memory of an input, by position.
    Input(u32),
    /// The memory of an output, by position.
    Output(u32),
    /// `len` elements of the arena, from `offset`.
    Arena { offset: u64, len: u64 },
    /// A blob, whole.
    Blob(u32),
    /// `len` elements of the small constants, from `offset`.
    Small { offset: u64, len: u64 },
}

/// A dense tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    pub dtype: ScalarType,
    /// An index in [`CpuProgram::buffers`].
    pub buffer: u32,
    /// The first element, counted from the start of the buffer.
    pub offset: Size,
    /// From the outermost dimension in memory to the innermost.
    pub dims: Vec<Size>,
    /// What bytes stand for; only and always of tensors of `u8` between steps.
    pub affine: Option<Affine>,
}

/// How bytes stand for numbers: `(byte - zero) * scale`. A number becomes the nearest byte from `min` to `max`, ties to even.
///
/// Signed integers are held as bytes too, 128 above themselves.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Affine {
    /// The bits of the scale, by which tensors are told apart.
    scale: u32,
    pub zero: u8,
    pub min: u8,
    pub max: u8,
}

impl Affine {
    /// What has such a scale.
    pub const fn new(scale: f32, zero: u8, [min, max]: [u8; 2]) -> Self {
        Self { scale: scale.to_bits(), zero, min, max }
    }

    /// What a step of one stands for.
    pub const fn scale(&self) -> f32 {
        f32::from_bits(self.scale)
    }
}

impl CpuProgram {
    /// Reads a payload.
    ///
    /// # Errors
    /// Truncated or damaged data, an unknown version, and indices that are those of nothing.
    pub fn parse(bytes: &[u8]) -> Result<Self, PayloadError> {
        let program = codec::read(bytes)?;
        check::check(&program)?;
        Ok(program)
    }

    /// Writes the payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::write(self)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn program() -> CpuProgram {
        let tensor = |buffer, dims: &[Size]| Tensor {
            dtype: ScalarType::Float,
            buffer,
            offset: Size::Fixed(0),
            dims: dims.to_vec(),
            affine: None,
        };
        let rows = Size::Computed(0);
        let tail = Tail { bias: Some(4), activation: Activation::Clamp { min: 0.0, max: 6.0 }, ..Tail::default() };
        let double = Instruction::Binary { to: 0, function: Binary::Add, a: Operand::Tensor(0), b: Operand::Tensor(0) };
        CpuProgram {
            sizes: vec![SizeOp::Input { input: 0, dim: 0 }, SizeOp::Fixed(-3), SizeOp::Max(0, 1)],
            buffers: vec![
                Buffer::Input(0),
                Buffer::Output(0),
                Buffer::Arena { offset: 0, len: 32 },
                Buffer::Blob(0),
                Buffer::Small { offset: 1, len: 4 },
            ],
            tensors: vec![
                tensor(0, &[rows, Size::Fixed(3)]),
                tensor(1, &[rows, Size::Fixed(4)]),
                tensor(2, &[rows, Size::Fixed(4)]),
                tensor(3, &[Size::Fixed(48)]),
                tensor(4, &[Size::Fixed(4)]),
            ],
            inputs: vec![0],
            outputs: vec![1],
            output_sizes: vec![vec![rows, Size::Fixed(4)]],
            blobs: vec!["weights".into()],
            small: vec![0.0, 1.0, -2.0, f32::INFINITY, 0.5],
            arena: 32,
            scratch: 7,
            steps: vec![
                Step::Matmul(Matmul { a: 0, b: 3, y: 2, packed: true, transposed: false, tail }),
                Step::Elementwise(Elementwise { operands: vec![2], y: 1, instructions: vec![double] }),
            ],
            names: vec!["linear".into(), "add".into()],
        }
    }

    fn fault(change: impl FnOnce(&mut CpuProgram)) -> PayloadError {
        let mut program = program();
        change(&mut program);
        CpuProgram::parse(&program.to_bytes()).expect_err("the program is wrong")
    }

    #[test]
    fn what_is_written_is_read() {
        let program = program();
        assert_eq!(CpuProgram::parse(&program.to_bytes()), Ok(program));
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = program().to_bytes();
        for len in 0..bytes.len() {
            assert!(CpuProgram::parse(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        assert_eq!(fault(|program| program.tensors[2].buffer = 9).site, PayloadSite::Tensor(2));
        assert_eq!(fault(|program| program.tensors[4].dims = vec![Size::Fixed(5)]).site, PayloadSite::Tensor(4));
        assert_eq!(
            fault(|program| program.buffers[2] = Buffer::Arena { offset: 1, len: 32 }).site,
            PayloadSite::Buffer(2)
        );
        assert_eq!(fault(|program| program.inputs[0] = 2).site, PayloadSite::Input(0));
        // What no step has written, and what none may write.
        assert_eq!(fault(|program| program.steps.swap(0, 1)).site, PayloadSite::Step(0));
        let write_input = |program: &mut CpuProgram| {
            program.steps[0] = Step::Softmax { x: 0, y: 0, log: false };
        };
        assert_eq!(fault(write_input).site, PayloadSite::Step(0));
        // Bytes of floats, and logarithms of bytes.
        let with_bytes = |index: usize, step: Step| {
            fault(move |program: &mut CpuProgram| {
                let affine = Some(Affine::new(0.5, 3, [0, 255]));
                program.tensors[2] = Tensor { dtype: ScalarType::Byte, affine, ..program.tensors[2].clone() };
                program.steps[index] = step;
            })
        };
        let (mode, align_corners, scales) = (ResizeMode::Nearest, false, [None; 2]);
        let resize = Step::Resize(Resize { x: 0, y: 2, mode, align_corners, scales });
        assert_eq!(with_bytes(0, resize).fault, PayloadFault::MixedTypes);
        assert_eq!(with_bytes(0, Step::Softmax { x: 0, y: 2, log: false }).fault, PayloadFault::MixedTypes);
        assert_eq!(with_bytes(1, Step::Softmax { x: 2, y: 2, log: true }).fault, PayloadFault::MixedTypes);
        assert_eq!(
            fault(|program| program.sizes[2] = SizeOp::Max(0, 2)),
            PayloadError {
                fault: PayloadFault::Index { list: List::Sizes, index: 2, len: 2 },
                site: PayloadSite::Size(2)
            }
        );
    }

    /// A step between the input and the output, which are tensors 0 and 1.
    fn fault_of(step: Step) -> PayloadFault {
        let error = fault(move |program| program.steps[1] = step);
        assert_eq!(error.site, PayloadSite::Step(1));
        error.fault
    }

    #[test]
    fn each_fault_says_what_is_wrong() {
        let of = |change: fn(&mut CpuProgram)| fault(change).fault;
        assert_eq!(
            of(|program| program.tensors[4].dims = vec![Size::Fixed(5)]),
            PayloadFault::Beyond { end: 5, len: 4 }
        );
        assert_eq!(of(|program| program.arena = 31), PayloadFault::Beyond { end: 32, len: 31 });
        let limit = isize::MAX as u64 / 8;
        assert_eq!(fault(|program| program.scratch = limit).fault, PayloadFault::TooLarge { size: limit, limit });
        assert_eq!(of(|program| program.inputs[0] = 2), PayloadFault::Memory);
        assert_eq!(of(|program| program.steps.swap(0, 1)), PayloadFault::Unwritten { tensor: 2 });
        assert_eq!(
            of(|program| program.tensors[2].dtype = ScalarType::Byte),
            PayloadFault::Quantized { dtype: ScalarType::Byte }
        );
        for affine in [Affine::new(0.0, 3, [0, 255]), Affine::new(f32::NAN, 3, [0, 255]), Affine::new(1.0, 3, [9, 8])] {
            let change = move |program: &mut CpuProgram| {
                program.tensors[2].dtype = ScalarType::Byte;
                program.tensors[2].affine = Some(affine);
            };
            assert_eq!(fault(change).fault, PayloadFault::Affine, "{affine:?}");
        }
        assert_eq!(
            of(|program| program.names.push("third".into())),
            PayloadFault::Count { what: Counted::Names, got: 3, limit: 2 }
        );
        assert_eq!(
            of(|program| program.tensors[1].dims = vec![Size::Fixed(1); 99]),
            PayloadFault::Count { what: Counted::Dimensions, got: 99, limit: rushlight_format::MAX_RANK as u64 }
        );
        assert_eq!(fault_of(Step::Softmax { x: 2, y: 3, log: false }), PayloadFault::Constant { tensor: 3 });
    }

    #[test]
    fn each_fault_of_a_step_says_what_is_wrong() {
        let elementwise = |instructions: Vec<Instruction>| {
            fault_of(Step::Elementwise(Elementwise { operands: vec![2], y: 1, instructions }))
        };
        assert_eq!(elementwise(vec![]), PayloadFault::NoInstructions);
        let neg = |x| Instruction::Unary { to: 0, function: Unary::Neg, x };
        assert_eq!(elementwise(vec![neg(Operand::Register(1))]), PayloadFault::Register { register: 1 });
        assert_eq!(
            elementwise(vec![neg(Operand::Tensor(1))]),
            PayloadFault::Index { list: List::Operands, index: 1, len: 1 }
        );
        let copy = |sizes: &[u64], strides: &[u64]| {
            let fixed = |sizes: &[u64]| sizes.iter().map(|size| Size::Fixed(*size)).collect::<Vec<_>>();
            fault_of(Step::Copy(Copy {
                x: 2,
                y: 1,
                sizes: fixed(sizes),
                x_offset: Size::Fixed(0),
                x_strides: fixed(strides),
                y_offset: Size::Fixed(0),
                y_strides: fixed(&vec![0; sizes.len()]),
                fill: None,
            }))
        };
        assert_eq!(copy(&[4, 4], &[1]), PayloadFault::Ranks { expected: 2, got: 1 });
        let range = RoundRows { x: 2, scales: 2, y: 1, range: [4, 4] };
        assert_eq!(fault_of(Step::RoundRows(range)), PayloadFault::Zero(Nonzero::Range));
    }
}
