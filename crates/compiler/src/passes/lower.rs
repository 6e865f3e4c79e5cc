//! Decomposes composite operators until kernels have all operators of the graph.

use std::collections::HashSet;

use rushlight_graph::operators::aten;
use rushlight_graph::ops::{self, Operands};
use rushlight_graph::{Action, Arg, Builder, Graph, Kind, Model, NodeId, Op, Param, Schema, ValueId};
use rushlight_graph::{Error, ErrorKind};

use rushlight_graph::Pass;

/// Decomposes composite operators, except some by name.
#[derive(Debug, Default)]
pub struct LowerComposites {
    /// Full names of operators that stay.
    pub keep: HashSet<String>,
}

/// Maximum nesting of composite operators that decompose to composite operators.
const MAX_LEVELS: usize = 32;

impl Pass for LowerComposites {
    fn name(&self) -> &'static str {
        "lower-composites"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        decompose(model, |_, graph, node| self.keep.contains(graph.nodes[node].op.name()))
    }
}

/// Decomposes composite operators until kernels have all operators of a model. The calls for which `keeps` is true, by method
/// and node, stay. A backend that wants less than the canonical form decomposes its part with it.
///
/// # Errors
/// Errors of the definitions, and `Verification` if the decomposition does not end.
pub fn decompose(model: &mut Model, keeps: impl Fn(&str, &Graph, NodeId) -> bool) -> Result<(), Error> {
    for _ in 0..MAX_LEVELS {
        let changed = model.rewrite_methods(|method, builder, id| {
            if keeps(method, builder.graph, id) { Ok(Action::Keep) } else { decomposed(builder, id) }
        })?;
        if !changed {
            return Ok(());
        }
    }
    let first = model.methods.values().find_map(still_composite).unwrap_or_default();
    Err(Error::new(ErrorKind::Verification, format!("lowering `{first}` does not end")))
}

/// Replaces a composite by the operators of its definition.
fn decomposed(builder: &mut Builder<'_>, id: NodeId) -> Result<Action, Error> {
    let node = &builder.graph.nodes[id];
    let Op::Call(schema) = &node.op else { return Ok(Action::Keep) };
    let (schema, args, results) = (schema.clone(), node.args.clone(), node.results.clone());
    if let Some(values) = numbers_for_tensors(builder, &schema, &args)? {
        return Ok(Action::Replace(values));
    }
    let Some(lower) = ops::definition(&schema.name).and_then(|definition| definition.lower) else {
        return Ok(Action::Keep);
    };
    let operands = Operands::new(&schema, &args).with_results(&results);
    Ok(lower(builder, &operands)?.map_or(Action::Keep, Action::Replace))
}

/// Handles numbers where the schema takes tensors, as PyTorch allows. Calls the overload that takes numbers there, or
/// makes tensors of the numbers. `None` if all arguments match the schema.
fn numbers_for_tensors(
    builder: &mut Builder<'_>,
    schema: &Schema,
    args: &[Arg],
) -> Result<Option<Vec<ValueId>>, Error> {
    let graph = &*builder.graph;
    let is_number = |arg: &Arg| match arg {
        Arg::Value(value) => graph.tensor(*value).is_err(),
        arg => matches!(arg, Arg::Int(_) | Arg::Float(_) | Arg::Bool(_) | Arg::Complex(..)),
    };
    let is_misplaced = |(param, arg): (&Param, &Arg)| param.kind == Kind::Tensor && is_number(arg);
    if !schema.params.iter().zip(args).any(is_misplaced) {
        return Ok(None);
    }
    let takes_them = |other: &Schema| {
        let kinds =
            schema.params.iter().zip(args).map(|pair| if is_misplaced(pair) { &Kind::Scalar } else { &pair.0.kind });
        other.params.len() == args.len() && other.params.iter().map(|param| &param.kind).eq(kinds)
    };
    // In programs, complex numbers are only in tensors.
    let is_real = !args.iter().any(|arg| matches!(arg, Arg::Complex(..)));
    for overload in ["Scalar", "Tensor_Scalar", "Scalar_mode"].into_iter().filter(|_| is_real) {
        let name = format!("{}.{overload}", schema.base_name());
        if builder.schemas().get(&name).is_some_and(|other| takes_them(&other)) {
            return builder.call(&name, args.to_vec()).map(Some);
        }
    }
    let operands: Vec<&Arg> = args.iter().filter(|arg| is_number(arg) || arg.as_value().is_some()).collect();
    let dtype = ops::promote(&operands, builder.graph)?;
    let misplaced: Vec<bool> = schema.params.iter().zip(args).map(is_misplaced).collect();
    let mut args = args.to_vec();
    for (arg, is_misplaced) in args.iter_mut().zip(misplaced) {
        if is_misplaced {
            *arg = match *arg {
                Arg::Complex(real, imaginary) => builder.complex(real, imaginary, dtype)?.into(),
                _ => builder.one_with(aten::SCALAR_TENSOR, vec![arg.clone()], &[("dtype", dtype.into())])?.into(),
            };
        }
    }
    builder.call(&schema.name, args).map(Some)
}

fn still_composite(graph: &Graph) -> Option<String> {
    let lowers = |name: &str| ops::definition(name).is_some_and(|definition| definition.lower.is_some());
    graph.nodes.iter().map(|(_, node)| node.op.name()).find(|name| lowers(name)).map(ToOwned::to_owned)
}
