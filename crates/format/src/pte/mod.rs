//! `.pte` programs: the container, and what `program.fbs` says inside it.

mod header;
mod instruction;
mod plan;
mod program;
mod scope;
mod tensor;
mod value;

pub use header::ExtendedHeader;
pub use instruction::Instruction;
pub use plan::{CompileSpec, DelegateDataRef, DelegateSpec, Frame, OperatorName, Plan};
pub use program::Program;
pub use tensor::{Device, DeviceType, MAX_RANK, ShapeDynamism, TensorSpec, TensorStorage};
pub use value::{OptionalIndices, Value};
