//! Errors carry data: a code with ExecuTorch's number, the site, and the expected and actual values.

use core::fmt;

#[cfg(feature = "alloc")]
use rushlight_format::Sentence;
use rushlight_format::{FormatError, ScalarType};

use crate::fault::{Fault, Kind, Numbers};
use crate::interrupt::Stop;
use crate::options::OptionSpec;

/// Error codes, with the numbers that ExecuTorch uses for the same conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    Internal = 0x01,
    InvalidState = 0x02,
    EndOfMethod = 0x03,
    AlreadyLoaded = 0x04,
    NotSupported = 0x10,
    NotImplemented = 0x11,
    InvalidArgument = 0x12,
    InvalidType = 0x13,
    OperatorMissing = 0x14,
    NotFound = 0x20,
    MemoryAllocationFailed = 0x21,
    AccessFailed = 0x22,
    InvalidProgram = 0x23,
    InvalidExternalData = 0x24,
    OutOfResources = 0x25,
    DelegateInvalidCompatibility = 0x30,
    DelegateMemoryAllocationFailed = 0x31,
    DelegateInvalidHandle = 0x32,
}

/// The site of an error. Each part is filled in by the layer that knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Index of the instruction in its method.
    pub instruction: Option<u32>,
    /// Full operator name, such as `aten::add.out`.
    pub operator: Option<&'static str>,
    /// Index of the step of the delegate that the instruction calls.
    pub step: Option<u32>,
    /// The meaning of `index`: an argument, an input, an output, a value.
    pub role: Role,
    /// Index of the argument, input, output or value; meaningless when `role` is `None`.
    pub index: u32,
}

/// The subject of [`Site::index`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    #[default]
    None,
    Argument,
    Input,
    Output,
    Value,
    Delegate,
}

/// The detail of an error: the expected and the actual value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detail {
    /// A fixed sentence, lower case and without a full stop.
    Text(&'static str),
    /// A fault that the runtime itself finds, with two numbers: the needed and the available amount, unless the fault
    /// says otherwise. Numbers that its sentence does not mention have no meaning.
    Fault(Fault, usize, usize),
    /// A tensor has none of the element types that are supported.
    Dtype { expected: &'static str, got: ScalarType },
    /// A tensor has another element type than `expected`.
    ElementType { expected: ScalarType, got: ScalarType },
    /// A value has another kind than `expected`.
    Kind { expected: Kind, got: Kind },
    /// A tensor has another rank than `expected`.
    Rank { expected: &'static str, got: usize },
    /// A dimension index outside `-rank..rank`.
    Dim { dim: i64, rank: usize },
    /// A size does not fit the others.
    Size { dim: usize, expected: usize, got: usize },
    /// A size exceeds the upper bound of the exported program.
    Bound { dim: usize, bound: usize, got: usize },
    /// A tensor has more elements than its memory holds.
    Elements { bound: usize, got: usize },
    /// A scalar outside its domain.
    Value { what: &'static str, expected: &'static str, got: i64 },
    /// A floating-point scalar outside its domain.
    Number { what: &'static str, expected: &'static str, got: f64 },
    /// An index outside `0..size`.
    Index { index: i64, size: usize },
    /// A count that does not match.
    Count { what: &'static str, expected: usize, got: usize },
    /// The execution was stopped before step `step` of `steps`, counted from 1. A step is an instruction of the method,
    /// or a step of a delegate.
    Stopped { stop: Stop, step: u32, steps: u32 },
    /// The bytes are not a well-formed file.
    Format(FormatError),
    /// The bytes are not a well-formed payload of a backend. `place` is the place of the error, such as step 3, if it
    /// is known.
    #[cfg(feature = "alloc")]
    Payload { place: Option<(&'static str, usize)>, message: Sentence },
    /// A size, or several together, that a kernel does not support: zero, larger than memory, or above its limits.
    UnsupportedSize { what: &'static str },
    /// An argument whose element type the kernel does not support at that position.
    UnsupportedDtype { what: &'static str },
    /// A step would do more operations than its tensors justify; both numbers saturate.
    Work { operations: u64, limit: u64 },
    /// A backend has no option of the given name; `known` lists its options.
    UnknownOption { known: &'static [OptionSpec] },
    /// An option does not accept the given value: it has another type, or is none of the choices.
    OptionType { option: &'static OptionSpec },
}

/// An error of the runtime. `Display` writes one sentence: code, site, expected, got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Error {
    pub code: Code,
    pub site: Site,
    pub detail: Detail,
}

/// Result of the runtime's functions.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    #[cold]
    pub const fn new(code: Code, detail: Detail) -> Self {
        Self { code, site: Site { instruction: None, operator: None, step: None, role: Role::None, index: 0 }, detail }
    }

    /// Makes an error that the runtime itself finds; see [`Detail::Fault`] for the numbers.
    #[cold]
    pub const fn fault(fault: Fault, needed: usize, available: usize) -> Self {
        Self::new(fault.code(), Detail::Fault(fault, needed, available))
    }

    /// An `InvalidArgument` error with a fixed sentence.
    #[cold]
    pub const fn invalid(text: &'static str) -> Self {
        Self::new(Code::InvalidArgument, Detail::Text(text))
    }

    /// An `InvalidProgram` error with a fixed sentence.
    #[cold]
    pub const fn program(text: &'static str) -> Self {
        Self::new(Code::InvalidProgram, Detail::Text(text))
    }

    /// Points the error at an argument, input, output or value, unless it already points at something.
    #[must_use]
    pub const fn at(mut self, role: Role, index: usize) -> Self {
        if matches!(self.site.role, Role::None) {
            self.site.role = role;
            self.site.index = index as u32;
        }
        self
    }

    /// Points the error at argument `index` of the operator.
    #[must_use]
    pub const fn arg(self, index: usize) -> Self {
        self.at(Role::Argument, index)
    }

    /// Adds the step of a delegate that failed.
    #[must_use]
    pub const fn step(mut self, step: usize) -> Self {
        self.site.step = Some(step as u32);
        self
    }

    pub(crate) const fn instruction(mut self, index: usize, operator: Option<&'static str>) -> Self {
        self.site.instruction = Some(index as u32);
        self.site.operator = operator;
        self
    }
}

impl From<Detail> for Error {
    /// Faults have their own codes. Details about a kind or element type are `InvalidType`, about the file
    /// `InvalidProgram`, about a stopped execution `OutOfResources` or `InvalidState`. All others are
    /// `InvalidArgument`.
    #[cold]
    fn from(detail: Detail) -> Self {
        let code = match detail {
            Detail::Fault(fault, ..) => fault.code(),
            Detail::Dtype { .. } | Detail::ElementType { .. } | Detail::Kind { .. } | Detail::OptionType { .. } => {
                Code::InvalidType
            }
            Detail::UnknownOption { .. } => Code::NotFound,
            Detail::Format(_) => Code::InvalidProgram,
            Detail::Stopped { stop: Stop::TimeLimit { .. }, .. } => Code::OutOfResources,
            Detail::Stopped { stop: Stop::Cancelled, .. } => Code::InvalidState,
            _ => Code::InvalidArgument,
        };
        Self::new(code, detail)
    }
}

impl From<FormatError> for Error {
    #[cold]
    fn from(error: FormatError) -> Self {
        Detail::Format(error).into()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        match self.role {
            Role::None => {}
            Role::Argument => write!(f, "argument {}", self.index)?,
            Role::Input => write!(f, "input {}", self.index)?,
            Role::Output => write!(f, "output {}", self.index)?,
            Role::Value => write!(f, "value {}", self.index)?,
            Role::Delegate => write!(f, "delegate {}", self.index)?,
        }
        if self.role != Role::None {
            separator = " of ";
        }
        if let Some(operator) = self.operator {
            write!(f, "{separator}{operator}")?;
            separator = " at ";
        }
        if let Some(step) = self.step {
            write!(f, "{separator}step {step}")?;
            separator = " of ";
        }
        if let Some(instruction) = self.instruction {
            write!(f, "{separator}instruction {instruction}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Text(text) => f.write_str(text),
            Self::Fault(fault, a, b) => fault.describe(&Numbers { a, b }, f),
            Self::ElementType { expected, got } => write!(f, "expected a tensor of {expected}, got {got}"),
            Self::Dtype { expected, got } => write!(f, "expected a tensor of {expected}, got {got}"),
            Self::Kind { expected, got } => write!(f, "expected {expected}, got {got}"),
            Self::Rank { expected, got } => write!(f, "expected rank {expected}, got rank {got}"),
            Self::Dim { dim, rank } => write!(f, "dimension {dim} does not exist in a tensor of rank {rank}"),
            Self::Size { dim, expected, got } => write!(f, "size of dimension {dim}: expected {expected}, got {got}"),
            Self::Bound { dim, bound, got } => {
                write!(f, "size of dimension {dim}: the program was exported for at most {bound}, got {got}")
            }
            Self::Elements { bound, got } => {
                write!(f, "the tensor's memory holds {bound} elements, {got} are needed")
            }
            Self::Value { what, expected, got } => write!(f, "{what}: expected {expected}, got {got}"),
            Self::Number { what, expected, got } => write!(f, "{what}: expected {expected}, got {got}"),
            Self::Index { index, size } => write!(f, "index {index} is outside of a dimension of size {size}"),
            Self::Count { what, expected, got } => write!(f, "{what}: expected {expected}, got {got}"),
            Self::Stopped { stop, step, steps } => write!(f, "{stop} before step {step} of {steps}"),
            Self::Format(error) => error.fmt(f),
            #[cfg(feature = "alloc")]
            Self::Payload { place: Some((what, index)), message } => write!(f, "{what} {index}: {message}"),
            #[cfg(feature = "alloc")]
            Self::Payload { place: None, message } => message.fmt(f),
            Self::UnsupportedSize { what } => write!(f, "{what}: the size is not supported"),
            Self::UnsupportedDtype { what } => write!(f, "{what}: the element type is not supported"),
            Self::Work { operations, limit } => {
                write!(f, "{operations} operations on tensors whose elements allow {limit}")
            }
            #[cfg(not(feature = "alloc"))]
            Self::UnknownOption { .. } | Self::OptionType { .. } => f.write_str("an option that there is not"),
            #[cfg(feature = "alloc")]
            Self::UnknownOption { known: [] } => f.write_str("the backend has no options"),
            #[cfg(feature = "alloc")]
            Self::UnknownOption { known } => {
                f.write_str("the backend has no such option, only ")?;
                known
                    .iter()
                    .enumerate()
                    .try_for_each(|(i, option)| write!(f, "{}`{}`", if i == 0 { "" } else { ", " }, option.name))
            }
            #[cfg(feature = "alloc")]
            Self::OptionType { option } => write!(f, "option `{}`: expected {}", option.name, option.values()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} 0x{:02x}", self.code, self.code as u32)?;
        if self.site != Site::default() {
            write!(f, " at {}", self.site)?;
        }
        write!(f, ": {}", self.detail)
    }
}

impl core::error::Error for Error {}
