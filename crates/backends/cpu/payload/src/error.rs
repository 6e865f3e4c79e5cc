//! Errors of payloads: the defect and its place.

use core::fmt;

use rushlight_format::{ScalarType, Sentence};

/// The reason why a payload was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadError {
    pub fault: PayloadFault,
    pub site: PayloadSite,
}

/// The place of a defect in a payload.
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
    /// The bytes do not begin with the magic of the CPU backend's payloads.
    Magic,
    /// The payload was written in another version of this format.
    Version { expected: u8, got: u8 },
    /// The bytes end too early.
    Truncated { needed: u64, available: u64 },
    /// A tag of an enum that has no such variant.
    UnknownTag { tag: u8 },
    /// A number of more than 64 bits.
    Overflow,
    /// A number above its limit.
    OutOfRange { value: u64, limit: u64 },
    /// A name that is not UTF-8.
    InvalidUtf8,
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
    /// A quantized tensor outside of the arena, or a u8 tensor in the arena without a quantization.
    Quantized { dtype: ScalarType },
    /// A scale that is not a positive number, or a range that is empty.
    Affine,
    /// A tensor of the caller's is not in the memory of that input or output.
    Memory,
    /// A tensor is read before any step has written it.
    Unwritten { tensor: u32 },
    /// A step writes an input or a constant.
    Constant { tensor: u32 },
    /// A tensor is quantized where the step takes a float tensor, or the reverse.
    MixedTypes,
    /// The element type of a tensor differs from the step's format.
    Dtype { expected: ScalarType, got: ScalarType },
    /// The number of weights differs from the number that their format has for the sizes of the step.
    WeightSize { expected: u64, got: u64 },
    /// An operand is a register that no earlier instruction has written.
    Register { register: u8 },
    /// Lists of sizes and strides that differ in length.
    Ranks { expected: usize, got: usize },
    /// Two states have the same key.
    SameState { state: usize },
    /// The step has no instructions.
    NoInstructions,
    /// The format of the experts' GEMM cannot be split by columns.
    Experts,
    /// The work of the step is out of proportion to the elements of its tensors.
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
    States,
    Operands,
    Registers,
}

/// Parts of a payload whose count is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Dimensions,
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
    Experts,
}

impl PayloadError {
    pub(crate) const fn new(fault: PayloadFault) -> Self {
        Self { fault, site: PayloadSite::Anywhere }
    }

    /// Adds the place of the defect, unless it is known already.
    pub(crate) fn at(self, site: PayloadSite) -> Self {
        if self.site == PayloadSite::Anywhere { Self { site, ..self } } else { self }
    }
}

impl PayloadSite {
    /// Returns the kind of the place and its index; `None` for [`PayloadSite::Anywhere`].
    pub const fn place(self) -> Option<(&'static str, usize)> {
        Some(match self {
            Self::Anywhere => return None,
            Self::Byte(at) => ("byte", at),
            Self::Size(at) => ("size", at),
            Self::Buffer(at) => ("buffer", at),
            Self::Tensor(at) => ("tensor", at),
            Self::Input(at) => ("input", at),
            Self::Output(at) => ("output", at),
            Self::Step(at) => ("step", at),
        })
    }
}

impl PayloadFault {
    /// Returns the defect as a sentence.
    pub const fn sentence(&self) -> Sentence {
        let (text, numbers) = match *self {
            Self::Magic => ("not a payload of the CPU backend", [0, 0]),
            Self::Version { expected, got } => {
                ("version {} of the CPU payload; this runtime reads version {}", [got as u64, expected as u64])
            }
            Self::Truncated { needed, available } => {
                ("the payload is truncated: {} more bytes are needed, and there are {}", [needed, available])
            }
            Self::UnknownTag { tag } => {
                ("unknown tag {}: the bytes are damaged, or of a newer compiler", [tag as u64, 0])
            }
            Self::Overflow => ("a number of more than 64 bits", [0, 0]),
            Self::OutOfRange { value, limit } => ("{} is out of range: at most {} is allowed", [value, limit]),
            Self::InvalidUtf8 => ("a name is not UTF-8", [0, 0]),
            Self::Index { list, index, len } => (list.sentence(), [index, len]),
            Self::Count { what, got, limit } => (what.sentence(), [limit, got]),
            Self::Beyond { end, len } => ("it ends at element {} of memory that has {}", [end, len]),
            Self::TooLarge { size, limit } => ("a size of {} is beyond the {} of this machine", [size, limit]),
            Self::Zero(what) => (what.sentence(), [0, 0]),
            Self::Quantized { dtype } => (
                "a tensor of element type {}: quantized tensors are bytes in the arena, and only these have a scale",
                [dtype as u64, 0],
            ),
            Self::Affine => ("a scale must be above 0, and its lower bound at most the upper one", [0, 0]),
            Self::Memory => ("the tensor is not in the memory of this position", [0, 0]),
            Self::Unwritten { tensor } => ("tensor {} is read before any step has written it", [tensor as u64, 0]),
            Self::Constant { tensor } => ("tensor {} is written, but is an input or a constant", [tensor as u64, 0]),
            Self::MixedTypes => {
                ("a tensor is quantized where the step takes none, or is not where it takes one", [0, 0])
            }
            Self::Dtype { expected, got } => {
                ("a tensor of element type {}, where the step takes {}", [got as u64, expected as u64])
            }
            Self::WeightSize { expected, got } => {
                ("weights of {} elements, where their format takes {}", [got, expected])
            }
            Self::Register { register } => ("register {} is read before it is written", [register as u64, 0]),
            Self::Ranks { expected, got } => {
                ("lists of sizes: expected {} in each, got {}", [expected as u64, got as u64])
            }
            Self::SameState { state } => ("state {} has the key of another one", [state as u64, 0]),
            Self::NoInstructions => ("an elementwise step without instructions", [0, 0]),
            Self::Experts => (
                "GEMM of experts: columns of each in panels of 16, dynamically quantized rows or floats, no bias, no residual",
                [0, 0],
            ),
            Self::Work { operations, limit } => {
                ("{} operations on tensors whose elements allow {}", [operations, limit])
            }
        };
        Sentence { text, numbers }
    }
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((what, index)) = self.site.place() {
            write!(f, "{what} {index}: ")?;
        }
        fmt::Display::fmt(&self.fault, f)
    }
}

impl fmt::Display for PayloadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.sentence(), f)
    }
}

impl List {
    /// Checks that a position is within a list of `len` entries.
    pub(crate) fn check(self, index: u32, len: usize) -> Result<(), PayloadError> {
        if (index as usize) < len {
            return Ok(());
        }
        Err(PayloadError::new(PayloadFault::Index { list: self, index: index.into(), len: len as u64 }))
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Sizes => "size {} does not exist; there are {} sizes before it",
            Self::Buffers => "buffer {} does not exist; there are {} buffers",
            Self::Tensors => "tensor {} does not exist; there are {} tensors",
            Self::Inputs => "input {} does not exist; there are {} inputs",
            Self::Outputs => "output {} does not exist; there are {} outputs",
            Self::Blobs => "blob {} does not exist; there are {} blobs",
            Self::States => "state {} does not exist; there are {} states",
            Self::Operands => "operand {} does not exist; there are {} operands",
            Self::Registers => "register {} does not exist; there are {} registers",
        }
    }
}

impl Counted {
    /// Checks that a count is at most its limit.
    pub(crate) fn check(self, got: usize, limit: usize) -> Result<(), PayloadError> {
        if got <= limit {
            return Ok(());
        }
        Err(PayloadError::new(PayloadFault::Count { what: self, got: got as u64, limit: limit as u64 }))
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Dimensions => "dimensions: expected at most {}, got {}",
            Self::Operands => "operands: expected at most {}, got {}",
            Self::Names => "names of steps: expected at most {}, got {}",
            Self::OutputSizes => "outputs with sizes: expected at most {}, got {}",
        }
    }
}

impl Nonzero {
    /// Checks that none of some numbers is zero.
    pub(crate) fn check(self, numbers: &[u32]) -> Result<(), PayloadError> {
        if numbers.contains(&0) { Err(PayloadError::new(PayloadFault::Zero(self))) } else { Ok(()) }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Groups => "groups must not be 0",
            Self::Kernel => "a size of the kernel must not be 0",
            Self::Stride => "a stride must not be 0",
            Self::Dilation => "a dilation must not be 0",
            Self::Range => "the width of a range must not be 0",
            Self::Experts => "the number of experts must not be 0",
        }
    }
}

impl core::error::Error for PayloadError {}
