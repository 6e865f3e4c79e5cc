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
mod reorder;
mod symbolic;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;

use crate::error::Error;
use crate::graph::Model;

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
pub use reorder::ReorderNodes;
pub use symbolic::LowerSymbolicSizes;

/// A transformation of a model.
pub trait Pass: fmt::Debug + Send {
    /// Short and unique, for reports and errors.
    fn name(&self) -> &str;

    /// Transforms the model. After an error the model is in no state to be used.
    ///
    /// # Errors
    /// Where the model holds what the pass cannot take.
    fn run(&self, model: &mut Model) -> Result<(), Error>;
}
