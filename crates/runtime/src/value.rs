//! The values of a method, which instructions name by index.

use core::cell::Cell;

use crate::tensor::TensorState;

/// One value. Copying a tensor value makes another handle on the same tensor, as `MoveCall` needs.
#[derive(Clone, Copy)]
pub(crate) enum Value<'m> {
    None,
    Int(i64),
    Double(f64),
    Bool(bool),
    String(&'m str),
    Tensor(&'m TensorState<'m>),
    /// Indices of `Int` values.
    IntList(&'m [u32]),
    DoubleList(&'m [f64]),
    BoolList(&'m [bool]),
    /// Indices of tensor values.
    TensorList(&'m [u32]),
    /// Indices of tensor values; [`ABSENT`] for `None`.
    OptionalTensorList(&'m [u32]),
}

/// The entry of an optional tensor list that stands for `None`.
pub(crate) const ABSENT: u32 = u32::MAX;

pub(crate) type Values<'m> = &'m [Cell<Value<'m>>];

impl Value<'_> {
    /// Name for messages.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Int(_) => "an int",
            Self::Double(_) => "a double",
            Self::Bool(_) => "a bool",
            Self::String(_) => "a string",
            Self::Tensor(_) => "a tensor",
            Self::IntList(_) => "a list of ints",
            Self::DoubleList(_) => "a list of doubles",
            Self::BoolList(_) => "a list of bools",
            Self::TensorList(_) => "a list of tensors",
            Self::OptionalTensorList(_) => "a list of optional tensors",
        }
    }
}
