//! The five instructions of a method.

use crate::flatbuf::{Table, Vector};
use crate::schema::*;

use super::scope::{Scope, index, indices};

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

impl<'a> Instruction<'a> {
    /// Decodes an instruction. With a `scope`, every index in it is checked; without, that has been done before.
    #[cfg_attr(target_os = "none", inline(never))]
    #[cfg_attr(not(target_os = "none"), inline)]
    pub(crate) fn decode(table: Table<'_, 'a>, scope: Option<&Scope<'_, 'a>>) -> Option<Self> {
        let tag = table.scalar(INSTRUCTION_ARGS_TYPE, 0u8);
        let call = table.required_table(INSTRUCTION_ARGS)?;
        let values = scope.map(|scope| scope.num_values);
        Some(match tag {
            1 => Self::Kernel {
                operator: index(call, KERNEL_CALL_OP_INDEX, scope.map(|scope| scope.num_operators)),
                args: indices(call, KERNEL_CALL_ARGS, scope),
            },
            2 => Self::Delegate {
                delegate: index(call, DELEGATE_CALL_INDEX, scope.map(|scope| scope.num_delegates)),
                args: indices(call, DELEGATE_CALL_ARGS, scope),
            },
            3 => Self::Move { from: index(call, MOVE_FROM, values), to: index(call, MOVE_TO, values) },
            4 => Self::JumpFalse {
                cond: index(call, JUMP_COND, values),
                // One past the last instruction ends the method.
                destination: index(call, JUMP_DESTINATION, scope.map(|scope| scope.num_instructions + 1)),
            },
            5 => Self::Free { value: index(call, FREE_VALUE, values) },
            tag => {
                table.unknown(INSTRUCTION_ARGS_TYPE, tag);
                return None;
            }
        })
    }
}
