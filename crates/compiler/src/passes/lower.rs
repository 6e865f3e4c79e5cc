//! Replaces operators that kernels do not have by simpler ones, until all that is left is what they have.

use crate::error::{Error, ErrorKind};
use crate::graph::{Action, Graph, Model, Op};
use crate::ops::{self, Operands};

use super::Pass;

/// See the [module](self).
#[derive(Debug)]
pub struct LowerComposites;

/// A composite operator is made of composites that are made of … this many levels at most.
const MAX_LEVELS: usize = 32;

impl Pass for LowerComposites {
    fn name(&self) -> &'static str {
        "lower-composites"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        for _ in 0..MAX_LEVELS {
            let changed = model.rewrite(|builder, node| {
                let node = &builder.graph.nodes[node];
                let Op::Call(schema) = &node.op else { return Ok(Action::Keep) };
                let Some(lower) = ops::definition(&schema.name).and_then(|definition| definition.lower) else {
                    return Ok(Action::Keep);
                };
                let (schema, args, results) = (schema.clone(), node.args.clone(), node.results.clone());
                let operands = Operands::new(&schema, &args).with_results(&results);
                Ok(lower(builder, &operands)?.map_or(Action::Keep, Action::Replace))
            })?;
            if !changed {
                return Ok(());
            }
        }
        let first = model.methods.values().find_map(still_composite).unwrap_or_default();
        Err(Error::new(ErrorKind::Verification, format!("lowering `{first}` does not end")))
    }
}

fn still_composite(graph: &Graph) -> Option<String> {
    let lowers = |name: &str| ops::definition(name).is_some_and(|definition| definition.lower.is_some());
    graph.nodes.iter().map(|(_, node)| node.op.name()).find(|name| lowers(name)).map(ToOwned::to_owned)
}
