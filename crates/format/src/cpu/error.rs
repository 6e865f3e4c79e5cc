//! What can be wrong with a payload, and where.

use core::fmt;

use crate::error::ErrorKind;
use crate::scalar_type::ScalarType;

use super::TensorId;

/// Why a payload was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadError {
    pub fault: PayloadFault,
    pub site: PayloadSite,
}

/// Where a payload is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadSite {
    #[default]
    Anywhere,
    /// An offset in its bytes.
    Byte(usize),
    Size(usize),
    Buffer(usize),
    Tensor(usize),
    Input(usize),
    Output(usize),
    Step(usize),
}

/// A defect of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadFault {
    /// The bytes are no payload.
    Bytes(ErrorKind),
    /// A position beyond the end of a list.
    Index { list: List, index: u64, len: u64 },
    /// A count above its limit.
    Count { what: Counted, got: u64, limit: u64 },
    /// A range that ends beyond its memory.
    Beyond { end: u64, len: u64 },
    /// A size beyond the address space.
    TooLarge { size: u64, limit: u64 },
    /// A number that must not be zero is.
    Zero(Nonzero),
    /// A quantized tensor outside of the arena, or a tensor of bytes in the arena without a scale.
    Quantized { dtype: ScalarType },
    /// A scale that is no number above zero, or a range that is empty.
    Affine,
    /// A tensor of the caller's is not in the memory of that input or output.
    Memory,
    /// A tensor is read before any step has written it.
    Unwritten { tensor: TensorId },
    /// A step writes an input or a constant.
    Constant { tensor: TensorId },
    /// A step mixes quantized tensors with others, or takes none.
    MixedTypes,
    /// An operand is a register that no instruction before has written.
    Register { register: u8 },
    /// Sizes of a window or strides that differ in number.
    Ranks { expected: usize, got: usize },
    /// The step has no instructions.
    NoInstructions,
    /// The step would do more than in proportion to the elements of its tensors.
    Work { operations: u64, limit: u64 },
}

/// A list of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Sizes,
    Buffers,
    Tensors,
    Inputs,
    Outputs,
    Blobs,
    Operands,
    Registers,
}

/// Parts of a payload whose count is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Dimensions,
    KernelDimensions,
    Operands,
    Names,
    OutputSizes,
}

/// A number that must not be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonzero {
    Groups,
    Kernel,
    Stride,
    Dilation,
    Range,
}

impl PayloadError {
    pub(super) const fn new(fault: PayloadFault) -> Self {
        Self { fault, site: PayloadSite::Anywhere }
    }

    /// Says where it is, unless that is known.
    pub(super) fn at(self, site: PayloadSite) -> Self {
        if self.site == PayloadSite::Anywhere { Self { site, ..self } } else { self }
    }
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.site {
            PayloadSite::Anywhere => {}
            PayloadSite::Byte(at) => write!(f, "byte {at}: ")?,
            PayloadSite::Size(at) => write!(f, "size {at}: ")?,
            PayloadSite::Buffer(at) => write!(f, "buffer {at}: ")?,
            PayloadSite::Tensor(at) => write!(f, "tensor {at}: ")?,
            PayloadSite::Input(at) => write!(f, "input {at}: ")?,
            PayloadSite::Output(at) => write!(f, "output {at}: ")?,
            PayloadSite::Step(at) => write!(f, "step {at}: ")?,
        }
        fmt::Display::fmt(&self.fault, f)
    }
}

impl fmt::Display for PayloadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(kind) => fmt::Display::fmt(kind, f),
            Self::Index { list, index, len } => {
                let (one, all) = list.words();
                write!(f, "{one} {index} does not exist; there are {len} {all}")
            }
            Self::Count { what, got, limit } => write!(f, "{}: expected at most {limit}, got {got}", what.words()),
            Self::Beyond { end, len } => write!(f, "it ends at element {end} of memory that has {len}"),
            Self::TooLarge { size, limit } => write!(f, "a size of {size} is beyond the {limit} of this machine"),
            Self::Zero(what) => write!(f, "{} must not be 0", what.words()),
            Self::Quantized { dtype } => {
                write!(f, "a tensor of {dtype}: quantized tensors are bytes in the arena, and only these have a scale")
            }
            Self::Affine => f.write_str("a scale must be above 0, and its lower bound at most the upper one"),
            Self::Memory => f.write_str("the tensor is not in the memory of this position"),
            Self::Unwritten { tensor } => write!(f, "tensor {tensor} is read before any step has written it"),
            Self::Constant { tensor } => write!(f, "tensor {tensor} is written, but is an input or a constant"),
            Self::MixedTypes => f.write_str("quantized tensors together with others, or in a step that takes none"),
            Self::Register { register } => write!(f, "register {register} is read before it is written"),
            Self::Ranks { expected, got } => write!(f, "lists of sizes: expected {expected} in each, got {got}"),
            Self::NoInstructions => f.write_str("an elementwise step without instructions"),
            Self::Work { operations, limit } => {
                write!(f, "{operations} operations on tensors whose elements allow {limit}")
            }
        }
    }
}

impl List {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Sizes => ("size", "sizes before it"),
            Self::Buffers => ("buffer", "buffers"),
            Self::Tensors => ("tensor", "tensors"),
            Self::Inputs => ("input", "inputs"),
            Self::Outputs => ("output", "outputs"),
            Self::Blobs => ("blob", "blobs"),
            Self::Operands => ("operand", "operands"),
            Self::Registers => ("register", "registers"),
        }
    }
}

impl Counted {
    const fn words(self) -> &'static str {
        match self {
            Self::Dimensions => "dimensions",
            Self::KernelDimensions => "dimensions of a kernel",
            Self::Operands => "operands",
            Self::Names => "names of steps",
            Self::OutputSizes => "outputs with sizes",
        }
    }
}

impl Nonzero {
    const fn words(self) -> &'static str {
        match self {
            Self::Groups => "groups",
            Self::Kernel => "a size of the kernel",
            Self::Stride => "a stride",
            Self::Dilation => "a dilation",
            Self::Range => "the width of a range",
        }
    }
}

impl core::error::Error for PayloadError {}
