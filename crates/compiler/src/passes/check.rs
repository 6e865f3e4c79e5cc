//! Checks that runtimes have every operator of a lowered model.

use std::collections::HashSet;
use std::sync::OnceLock;

use rushlight_kernels::ALL;

use rushlight_graph::once;
use rushlight_graph::{Error, ErrorKind};
use rushlight_graph::{Graph, Model, NodeId, Op};

use rushlight_graph::Pass;

/// Checks that runtimes have every operator. Operators of other namespaces than PyTorch's and ExecuTorch's are taken to be the user's own,
/// and left for the runtime to find.
#[derive(Debug)]
pub struct CheckOperators;

impl Pass for CheckOperators {
    fn name(&self) -> &'static str {
        "check-operators"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        for (method, graph) in &model.methods {
            let mut missing: Vec<NodeId> = Vec::new();
            graph.for_each_node(graph.body, &mut |node| {
                if !is_available(model, &graph.nodes[node].op) {
                    missing.push(node);
                }
            });
            if let Some(first) = missing.first() {
                return Err(graph.locate(error(graph, &missing), *first).at(format!("method `{method}`")));
            }
        }
        Ok(())
    }
}

fn is_available(model: &Model, op: &Op) -> bool {
    let Op::Call(schema) = op else { return true };
    if !schema.is_built_in() {
        return true;
    }
    let is_number = model.schemas.get(&schema.name).is_some() && has_kernel(&schema.name);
    schema.out_variant.as_deref().is_some_and(has_kernel) || is_number
}

/// True if the reference operators have one of this name.
pub(super) fn has_kernel(name: &str) -> bool {
    static NAMES: OnceLock<HashSet<&str>> = OnceLock::new();
    once(&NAMES, || ALL.iter().flat_map(|set| set.iter()).map(|op| op.name).collect()).contains(name)
}

fn error(graph: &Graph, missing: &[NodeId]) -> Error {
    let mut names: Vec<&str> = missing.iter().map(|node| graph.nodes[*node].op.name()).collect();
    names.sort_unstable();
    names.dedup();
    let error = match names.as_slice() {
        [name] => format!("operator `{name}` is not supported"),
        names => format!("{} operators are not supported: `{}`", names.len(), names.join("`, `")),
    };
    Error::new(ErrorKind::Operator, error)
        .help("write the model without it, or register a kernel for it under a namespace of your own")
}
