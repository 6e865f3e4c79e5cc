//! The values of a method: tensors, numbers, strings and lists of them.

use crate::flatbuf::{Element, Table, Vector};
use crate::schema::*;

use super::scope::{Scope, indices, out_of_range};
use super::tensor::TensorSpec;

/// One entry of a plan's value table. Lists of tensors and of integers hold indices of other values,
/// because their elements may change while the method runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueSpec<'a> {
    None,
    Int(i64),
    Bool(bool),
    Double(f64),
    String(&'a str),
    Tensor(TensorSpec<'a>),
    /// Indices of `Int` values.
    IntList(WideIndices<'a>),
    DoubleList(Vector<'a, f64>),
    BoolList(Vector<'a, bool>),
    /// Indices of `Tensor` values.
    TensorList(Vector<'a, u32>),
    OptionalTensorList(OptionalIndices<'a>),
}

/// Indices that the file stores in 64 bits each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WideIndices<'a>(pub(crate) Vector<'a, u64>);

impl<'a> WideIndices<'a> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, at: usize) -> Option<u32> {
        self.0.get(at).map(|index| index as u32)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        // Each is below the number of values, which fits.
        self.0.iter().map(|index| index as u32)
    }
}

/// Indices of tensors, some of which are absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionalIndices<'a>(pub(crate) Vector<'a, i32>);

impl<'a> OptionalIndices<'a> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry at `at`, if the list is that long: an index or, for an absent tensor, `None`.
    pub fn get(&self, at: usize) -> Option<Option<u32>> {
        self.0.get(at).map(|i| u32::try_from(i).ok())
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<u32>> + use<'a> {
        self.0.iter().map(|i| u32::try_from(i).ok())
    }
}

impl<'a> ValueSpec<'a> {
    /// Decodes a value. With a `scope`, it is also checked against its plan and program; without,
    /// that has been done before.
    #[cfg_attr(target_os = "none", inline(never))]
    #[cfg_attr(not(target_os = "none"), inline)]
    pub(crate) fn decode(table: Table<'_, 'a>, scope: Option<&Scope<'_, 'a>>) -> Self {
        let tag = table.scalar(VALUE_TYPE, 0u8);
        if tag == 1 {
            return Self::None;
        }
        let Some(val) = table.required_table(VALUE_VALUE) else { return Self::None };
        match tag {
            2 => Self::Int(val.scalar(INT_VAL, 0)),
            3 => Self::Bool(val.scalar(BOOL_VAL, false)),
            4 => Self::Double(val.scalar(DOUBLE_VAL, 0.0)),
            5 => Self::Tensor(TensorSpec::decode(val, scope)),
            6 => {
                let text = val.required_string(STRING_VAL);
                val.spend(text.len());
                Self::String(text)
            }
            7 => Self::IntList(wide_indices(val, scope)),
            8 => Self::DoubleList(numbers(val)),
            9 => Self::BoolList(numbers(val)),
            10 => Self::TensorList(indices(val, LIST_ITEMS, scope)),
            11 => Self::OptionalTensorList(optional_indices(val, scope)),
            tag => {
                table.unknown(VALUE_TYPE, tag);
                Self::None
            }
        }
    }
}

fn numbers<'a, T: Element>(table: Table<'_, 'a>) -> Vector<'a, T> {
    let items = table.required_vector::<T>(LIST_ITEMS);
    table.spend(T::SIZE * items.len());
    items
}

fn wide_indices<'a>(table: Table<'_, 'a>, scope: Option<&Scope<'_, 'a>>) -> WideIndices<'a> {
    let items = numbers::<u64>(table);
    if let Some(scope) = scope
        && let Some(value) = items.iter().find(|item| *item >= scope.num_values as u64)
    {
        table.out_of_range(LIST_ITEMS, value, scope.num_values);
    }
    WideIndices(items)
}

fn optional_indices<'a>(table: Table<'_, 'a>, scope: Option<&Scope<'_, 'a>>) -> OptionalIndices<'a> {
    let items = numbers::<i32>(table);
    if let Some(scope) = scope {
        // An absent tensor is -1.
        if let Some(item) = items.iter().find(|item| *item != -1 && *item as u32 as usize >= scope.num_values) {
            out_of_range(table, LIST_ITEMS, item as u32, scope.num_values);
        }
    }
    OptionalIndices(items)
}
