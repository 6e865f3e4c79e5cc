//! What turns the graph of a front end into one that runtimes can run, step by step. `pipeline.rs` lists the order.

mod check;
mod constants;
mod cse;
mod cut;
mod dce;
mod dim_orders;
mod fold;
mod fold_batch_norm;
mod functionalise;
mod lower;
mod raise_attention;
mod raise_linear;
mod reorder;
mod symbolic;

pub use check::CheckOperators;
pub use constants::{FreezeStates, MergeConstants};
pub use cse::MergeCommonSubexpressions;
pub use dce::EliminateDeadCode;
pub use dim_orders::AssignDimOrders;
pub use fold::FoldConstants;
pub use fold_batch_norm::FoldBatchNorms;
pub use functionalise::Functionalise;
pub use lower::LowerComposites;
pub use raise_attention::RaiseAttention;
pub use raise_linear::RaiseLinear;
pub use reorder::ReorderNodes;
pub use symbolic::LowerSymbolicSizes;
