//! `.pte` programs: the container, and what `program.fbs` says inside it.

mod header;
mod instruction;
#[cfg(feature = "alloc")]
mod model;
mod plan;
mod program;
mod scope;
mod tensor;
mod value;
#[cfg(feature = "alloc")]
mod write;

pub use crate::layout::MAX_RANK;
pub use header::ExtendedHeader;
pub use instruction::Instruction;
#[cfg(feature = "alloc")]
pub use model::{
    DelegateModel, FrameModel, InstructionModel, OperatorModel, PlanModel, ProgramModel, StorageModel, TensorModel,
    ValueModel,
};
pub use plan::{CompileSpec, DelegateDataRef, DelegateSpec, Frame, OperatorName, Plan};
pub use program::Program;
pub use tensor::{Device, DeviceType, ShapeDynamism, TensorSpec, TensorStorage};
pub use value::{OptionalIndices, ValueSpec, WideIndices};
#[cfg(feature = "alloc")]
pub use write::{Placement, WriteOptions};

#[cfg(all(test, feature = "alloc"))]
mod tests;
