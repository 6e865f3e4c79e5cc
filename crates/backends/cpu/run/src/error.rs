//! Errors of the engine, and of steps whose tensors contradict each other, as the runtime's.

use rushlight_cpu_payload::PayloadError;
use rushlight_runtime::{Code, Detail, Error};

/// A step that its tensors or its payload contradict. The compiler writes none, so that the payload is damaged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unfit {
    /// A tensor ends at element `end` of memory that has `len`.
    Beyond {
        end: usize,
        len: usize,
    },
    /// A tensor ends at element `end` of a state, which is shorter.
    BeyondState {
        end: usize,
    },
    /// Sizes whose product does not fit in `usize`.
    Overflow,
    /// A computed size that is negative.
    ComputedSize(i64),
    /// A size computed by a division by zero, or beyond `i64`.
    Division {
        by: i64,
    },
    /// A dimension of an input that it does not have.
    Dimension {
        dim: u32,
        rank: usize,
    },
    Rank {
        expected: &'static str,
        got: usize,
    },
    /// A size of an operand that is neither the result's nor 1.
    Size {
        dim: usize,
        expected: usize,
        got: usize,
    },
    /// A count that does not match: elements of the output, batches, dimensions of a kernel.
    Count {
        what: &'static str,
        expected: usize,
        got: usize,
    },
    /// A tensor is elsewhere than the step needs it: in the arena, an input, an output, among the constants.
    Place(&'static str),
    /// A part of the step that its kind needs is missing or of another form.
    Part(&'static str),
}

impl From<Unfit> for Error {
    #[cold]
    fn from(unfit: Unfit) -> Self {
        let detail = match unfit {
            Unfit::Beyond { end, len } => Detail::Elements { bound: len, got: end },
            Unfit::BeyondState { end } => Detail::Value {
                what: "the last element of a state that the call needs",
                expected: "one that it has: fewer positions, or a program that was compiled for more",
                got: i64::try_from(end).unwrap_or(i64::MAX),
            },
            Unfit::Overflow => Detail::Text("the number of elements of a tensor is beyond this machine's memory"),
            Unfit::ComputedSize(got) => {
                Detail::Value { what: "a computed size", expected: "a number that is not negative", got }
            }
            Unfit::Division { by } => {
                Detail::Value { what: "the divisor of a computed size", expected: "a number that is not 0", got: by }
            }
            Unfit::Dimension { dim, rank } => Detail::Dim { dim: dim.into(), rank },
            Unfit::Rank { expected, got } => Detail::Rank { expected, got },
            Unfit::Size { dim, expected, got } => Detail::Size { dim, expected, got },
            Unfit::Count { what, expected, got } => Detail::Count { what, expected, got },
            Unfit::Place(text) | Unfit::Part(text) => Detail::Text(text),
        };
        // Positions come from the caller.
        let code = match unfit {
            Unfit::BeyondState { .. } => Code::InvalidArgument,
            _ => Code::DelegateInvalidCompatibility,
        };
        Self::new(code, detail)
    }
}

/// Converts an error of the engine: an index comes from the caller, all else from the payload.
#[cold]
pub(crate) fn of_engine(error: rushlight_engine::Error) -> Error {
    use rushlight_engine::Error as Engine;
    let detail = match error {
        Engine::Index { what: "index", index, size } => return Detail::Index { index, size }.into(),
        Engine::Index { what, index, size } => {
            Detail::Count { what, expected: size, got: usize::try_from(index).unwrap_or(usize::MAX) }
        }
        Engine::Mismatch { what, expected, got } => Detail::Count { what, expected, got },
        Engine::Size { what } => Detail::UnsupportedSize { what },
        Engine::Type { what } => Detail::UnsupportedDtype { what },
        Engine::Unavailable(_) => Detail::Text("this machine does not have the instruction set"),
        _ => Detail::Text("the engine refuses the step"),
    };
    Error::new(Code::DelegateInvalidCompatibility, detail)
}

/// Converts the reason why a payload was refused.
#[cold]
pub(crate) fn of_payload(error: PayloadError) -> Error {
    let detail = Detail::Payload { place: error.site.place(), message: error.fault.sentence() };
    Error::new(Code::DelegateInvalidCompatibility, detail)
}
