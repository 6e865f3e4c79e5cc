//! The five instructions of a method.

use crate::error::{ErrorKind, FormatError};
use crate::flatbuf::{Field, Table, Vector};

/// One step of a method. Operands are indices of the plan's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction<'a> {
    /// Calls an operator: its arguments in schema order with the out arguments, then the results again.
    Kernel { operator: u32, args: Vector<'a, u32> },
    /// Runs a delegate: its inputs, then its outputs.
    Delegate { delegate: u32, args: Vector<'a, u32> },
    /// Makes `to` the same value as `from`; a tensor then shares its data.
    Move { from: u32, to: u32 },
    /// Goes on at instruction `destination` (the number of instructions means the end) when `cond` is false.
    JumpFalse { cond: u32, destination: u32 },
    /// Drops the data of a tensor.
    Free { value: u32 },
}

const ARGS_TYPE: Field = Field::new(0, "Instruction", "instr_args_type");
const ARGS: Field = Field::new(1, "Instruction", "instr_args");
const OP_INDEX: Field = Field::new(0, "KernelCall", "op_index");
const KERNEL_ARGS: Field = Field::new(1, "KernelCall", "args");
const DELEGATE_INDEX: Field = Field::new(0, "DelegateCall", "delegate_index");
const DELEGATE_ARGS: Field = Field::new(1, "DelegateCall", "args");
const MOVE_FROM: Field = Field::new(0, "MoveCall", "move_from");
const MOVE_TO: Field = Field::new(1, "MoveCall", "move_to");
const COND: Field = Field::new(0, "JumpFalseCall", "cond_value_index");
const DESTINATION: Field = Field::new(1, "JumpFalseCall", "destination_instruction");
const FREE_VALUE: Field = Field::new(0, "FreeCall", "value_index");

/// How many there are of everything that an instruction may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub values: usize,
    pub operators: usize,
    pub delegates: usize,
    pub instructions: usize,
}

impl<'a> Instruction<'a> {
    /// Decodes an instruction and checks every index in it.
    #[inline]
    pub(crate) fn decode(table: Table<'a>, limits: &Limits) -> Result<Self, FormatError> {
        let tag = table.scalar(&ARGS_TYPE, 0u8)?;
        let call = table.required_table(&ARGS)?;
        Ok(match tag {
            1 => Self::Kernel {
                operator: index(call, &OP_INDEX, limits.operators)?,
                args: indices(call, &KERNEL_ARGS, limits.values)?,
            },
            2 => Self::Delegate {
                delegate: index(call, &DELEGATE_INDEX, limits.delegates)?,
                args: indices(call, &DELEGATE_ARGS, limits.values)?,
            },
            3 => {
                Self::Move { from: index(call, &MOVE_FROM, limits.values)?, to: index(call, &MOVE_TO, limits.values)? }
            }
            4 => Self::JumpFalse {
                cond: index(call, &COND, limits.values)?,
                // One past the last instruction ends the method.
                destination: index(call, &DESTINATION, limits.instructions + 1)?,
            },
            5 => Self::Free { value: index(call, &FREE_VALUE, limits.values)? },
            tag => return Err(table.error(&ARGS_TYPE, ErrorKind::UnknownTag { tag: u32::from(tag) })),
        })
    }
}

/// An index field below `limit`. On the wire it is a signed number; a negative one reads as too large.
#[inline]
fn index(table: Table<'_>, field: &'static Field, limit: usize) -> Result<u32, FormatError> {
    let value = table.scalar(field, 0u32)?;
    if value as usize >= limit {
        return Err(out_of_range(table, field, value, limit));
    }
    Ok(value)
}

/// A list of indices, each below `limit`.
#[inline]
pub(crate) fn indices<'a>(
    table: Table<'a>,
    field: &'static Field,
    limit: usize,
) -> Result<Vector<'a, u32>, FormatError> {
    let list = table.required_vector::<u32>(field)?;
    check_indices(table, field, list, limit)?;
    Ok(list)
}

#[inline]
pub(crate) fn check_indices(
    table: Table<'_>,
    field: &'static Field,
    list: Vector<'_, u32>,
    limit: usize,
) -> Result<(), FormatError> {
    let largest = list.iter().fold(0, u32::max);
    if !list.is_empty() && largest as usize >= limit {
        return Err(out_of_range(table, field, largest, limit));
    }
    Ok(())
}

#[cold]
fn out_of_range(table: Table<'_>, field: &'static Field, value: u32, limit: usize) -> FormatError {
    let kind = match i64::from(value as i32) {
        value if value < 0 => ErrorKind::Negative { value },
        _ => ErrorKind::OutOfRange { value: u64::from(value), limit: limit as u64 },
    };
    table.error(field, kind)
}
