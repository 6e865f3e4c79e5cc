//! The values of a loaded method, which instructions name by index.

use core::cell::Cell;

use crate::fault::Kind;
use crate::tensor::TensorState;

/// One value: what ExecuTorch calls `EValue`. Copying a tensor value makes another handle on the same tensor, as `MoveCall` needs.
#[derive(Clone, Copy)]
pub(crate) enum EValue<'m> {
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

pub(crate) type Values<'m> = &'m [Cell<EValue<'m>>];

/// Value `index`; `None` past the end.
pub(crate) fn value<'m>(values: Values<'m>, index: u32) -> EValue<'m> {
    values.get(index as usize).map_or(EValue::None, Cell::get)
}

/// The tensor that is value `index`, if it is one.
pub(crate) fn tensor<'m>(values: Values<'m>, index: u32) -> Option<&'m TensorState<'m>> {
    match value(values, index) {
        EValue::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

impl EValue<'_> {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::None => Kind::None,
            Self::Int(_) => Kind::Int,
            Self::Double(_) => Kind::Double,
            Self::Bool(_) => Kind::Bool,
            Self::String(_) => Kind::String,
            Self::Tensor(_) => Kind::Tensor,
            Self::IntList(_) => Kind::IntList,
            Self::DoubleList(_) => Kind::DoubleList,
            Self::BoolList(_) => Kind::BoolList,
            Self::TensorList(_) => Kind::TensorList,
            Self::OptionalTensorList(_) => Kind::OptionalTensorList,
        }
    }
}
