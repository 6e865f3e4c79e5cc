//! Memory of the caller's: bump allocation at load, planned buffers, temporary memory during execution.
//!
//! This folder, the tensor accessors and the binding of an execution's inputs are the only places of the crate with
//! `unsafe`.

mod bind;
mod bump;
#[cfg(feature = "alloc")]
mod heap;
mod planned;
mod send;
mod shared;
mod temp;

pub(crate) use bind::{bind_borrowed, bind_constant, bind_planned};
pub use bump::Bump;
#[cfg(feature = "alloc")]
pub(crate) use heap::{Allocation, SharedBytes};
#[cfg(feature = "alloc")]
pub use heap::{HeapBlock, StableBytes};
pub use planned::Memory;
pub(crate) use planned::{PLANNED_ALIGNMENT, PlannedBuffer};
pub(crate) use send::{Confined, Lent};
#[cfg(target_has_atomic = "8")]
pub use shared::Arena;
pub use shared::SharedArenas;
pub(crate) use shared::{Hold, SharedRef};
pub(crate) use temp::Temp;

/// Minimum alignment of planned arenas, constants and temporary memory, in bytes.
pub const ALIGNMENT: usize = 16;
