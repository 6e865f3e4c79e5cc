//! Faults of pickles.

use std::fmt;

/// Why a pickle is refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PickleFault {
    /// It ends within an instruction, or without the last one.
    Truncated,
    /// An instruction that `torch.save` does not use.
    Instruction { code: u8 },
    /// A version of the format that is not read.
    Protocol { version: u8 },
    /// An instruction needs more values, a mark, or a remembered value than there is.
    Stack { needs: &'static str },
    /// A function or class that is not on the list.
    Global { name: String },
    /// An allowed function with other arguments than PyTorch gives it, or in another place.
    Call { function: String, expected: &'static str },
    /// An integer that needs more than 64 bits.
    LargeInt,
    /// A string that is not UTF-8.
    NotUtf8,
    /// Values are nested, or repeated, far beyond what the size of the file justifies; or a value contains itself.
    TooComplex,
}

impl PickleFault {
    /// The remedy, where one is known.
    pub fn advice(&self) -> Option<&'static str> {
        Some(match self {
            Self::Global { .. } => {
                "replace it by tensors before the export (for a quantized model: \
                 torchao.utils.unwrap_tensor_subclass(model), or program.run_decompositions() before saving)"
            }
            Self::Protocol { .. } | Self::Instruction { .. } => {
                "save it with torch.save and its default pickle protocol"
            }
            Self::Truncated | Self::Stack { .. } | Self::NotUtf8 | Self::TooComplex => {
                "the file is damaged: copy or save it again"
            }
            Self::Call { .. } | Self::LargeInt => return None,
        })
    }
}

impl fmt::Display for PickleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the pickle ends too early"),
            Self::Instruction { code } => write!(f, "the pickle has the instruction {code:#04x}, which is not allowed"),
            Self::Protocol { version } => write!(f, "the pickle has protocol {version}, and 2 is expected"),
            Self::Stack { needs } => write!(f, "the pickle has an instruction without {needs}"),
            Self::Global { name } => write!(
                f,
                "the pickle names `{name}`, which is not among the functions and classes that may be used here, because \
                 a pickle can name any code"
            ),
            Self::Call { function, expected } => write!(f, "the pickle uses `{function}`, which needs {expected}"),
            Self::LargeInt => f.write_str("the pickle has an integer of more than 64 bits"),
            Self::NotUtf8 => f.write_str("the pickle has a string that is not UTF-8"),
            Self::TooComplex => {
                f.write_str("the values in the pickle are nested or repeated beyond what its size justifies")
            }
        }
    }
}
