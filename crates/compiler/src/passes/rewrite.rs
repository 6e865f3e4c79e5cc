//! Rewriting without dead code.

use rushlight_graph::{Action, Builder, Error, Model, NodeId, Pass};

use super::dce::EliminateDeadCode;

/// Rewrites the nodes of a model as [`Model::rewrite`] does, and removes nodes that then have no user.
///
/// # Errors
/// Errors of `visit`.
pub fn rewrite(
    model: &mut Model,
    visit: impl FnMut(&mut Builder<'_>, NodeId) -> Result<Action, Error>,
) -> Result<(), Error> {
    if model.rewrite(visit)? { EliminateDeadCode.run(model) } else { Ok(()) }
}
