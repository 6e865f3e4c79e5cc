//! Passes: rewrite the graph of a front end until runtimes can run it. `pipeline.rs` lists their order.

mod check;
mod check_types;
pub(crate) mod composites;
mod constants;
mod cse;
mod cut;
mod dce;
mod dim_orders;
mod fold;
mod fold_batch_norm;
mod functionalise;
mod integer_interface;
pub mod legalize;
mod lower;
pub mod raise;
mod reorder;
mod rewrite;
mod store_caches;
mod symbolic;

pub use check::CheckOperators;
pub use check_types::CheckTypes;
pub use composites::{CANONICAL_COMPOSITES, CompositeFamily};
pub use constants::{FreezeStates, MergeConstants};
pub use cse::MergeCommonSubexpressions;
pub use dce::EliminateDeadCode;
pub use dim_orders::AssignDimOrders;
pub use fold::FoldConstants;
pub use fold_batch_norm::FoldBatchNorms;
pub use functionalise::Functionalise;
pub use integer_interface::IntegerInterface;
pub use lower::{LowerComposites, decompose};
pub use reorder::ReorderNodes;
pub use rewrite::rewrite;
pub use store_caches::{CacheFormat, StoreCaches};
pub use symbolic::LowerSymbolicSizes;

use rushlight_graph::Pass;

use legalize::{ReadNumbersAsTensors, RoundQdqInt16};
use raise::{RaiseActivations, RaiseAttention, RaiseExperts, RaiseLinear, RaiseRmsNorms, ShareHeads, UngroupExperts};

/// Every pass, with default options. A pass that is not here cannot be named in the tests of `tests/filetests`.
pub fn all() -> Vec<Box<dyn Pass>> {
    let mut all: Vec<Box<dyn Pass>> = vec![
        Box::new(AssignDimOrders),
        Box::new(CheckOperators),
        Box::new(CheckTypes),
        Box::new(EliminateDeadCode),
        Box::new(FoldBatchNorms),
        Box::new(FoldConstants::default()),
        Box::new(FreezeStates),
        Box::new(Functionalise),
        Box::new(IntegerInterface),
        Box::new(LowerComposites::default()),
        Box::new(LowerSymbolicSizes),
        Box::new(MergeCommonSubexpressions),
        Box::new(MergeConstants),
        Box::new(RaiseActivations),
        Box::new(RaiseAttention),
        Box::new(RaiseExperts::default()),
        Box::new(RaiseLinear),
        Box::new(RaiseRmsNorms),
        Box::new(ReadNumbersAsTensors),
        Box::new(ReorderNodes),
        Box::new(RoundQdqInt16),
        Box::new(ShareHeads),
        Box::new(UngroupExperts::default()),
    ];
    all.extend(CacheFormat::ALL.map(|format| -> Box<dyn Pass> { Box::new(StoreCaches(format)) }));
    all
}

/// The pass whose [`Pass::name`] this is, with default options.
pub fn named(name: &str) -> Option<Box<dyn Pass>> {
    all().into_iter().find(|pass| pass.name() == name)
}
