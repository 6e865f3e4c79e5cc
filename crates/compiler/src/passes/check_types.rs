//! Checks that the kernels of a lowered model take its element types.

use rushlight_format::ScalarType;
use rushlight_graph::{Arg, Error, Expr, Graph, Model, Node, NodeId, Op, Origin, Pass, Schemas, SymbolId, TensorType};
use rushlight_graph::{Type, ValueId};
use rushlight_runtime::Detail;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

use crate::emit::{EmitOptions, emit};
use crate::interpret::{Datum, TensorData, try_run};

use super::check::has_kernel;

/// Checks that no kernel refuses the types of its arguments when the program runs.
///
/// Calls each kernel once for each set of types, in a program of its own, with zeros. Errors about sizes are ignored, since the sizes of
/// the real call may differ.
#[derive(Debug)]
pub struct CheckTypes;

/// Maximum number of elements in all tensors of a call that has the program's own sizes. Larger calls have each size reduced to at most 2,
/// which elementwise operators support too.
const MAX_ELEMENTS: i64 = 1 << 12;

/// An operator, and the types of its operands and results.
type Signature<'a> = (&'a str, Vec<Option<ScalarType>>);

impl Pass for CheckTypes {
    fn name(&self) -> &'static str {
        "check-types"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        for (method, graph) in &model.methods {
            let mut known: FxHashSet<Signature<'_>> = FxHashSet::default();
            let mut nodes = Vec::new();
            graph.for_each_node(graph.body, &mut |node| nodes.push(node));
            for node in nodes {
                let Some(signature) = signature(graph, &graph.nodes[node]) else { continue };
                if known.contains(&signature) {
                    continue;
                }
                if let Some(reason) = refusal(graph, &graph.nodes[node], &model.schemas) {
                    return Err(graph.locate(error(graph, node, &reason), node).at(format!("method `{method}`")));
                }
                known.insert(signature);
            }
        }
        Ok(())
    }
}

/// Returns the operator and types of a call; `None` if no kernel computes it.
fn signature<'a>(graph: &'a Graph, node: &'a Node) -> Option<Signature<'a>> {
    let Op::Call(schema) = &node.op else { return None };
    schema.out_variant.as_deref().is_some_and(has_kernel).then_some(())?;
    let mut types = Vec::new();
    let mut add = |value: ValueId| types.push(graph.tensor(value).ok().map(|ty| ty.dtype));
    node.args.iter().for_each(|arg| arg.for_each_value(&mut add));
    node.results.iter().copied().for_each(&mut add);
    Some((&schema.name, types))
}

fn error(graph: &Graph, node: NodeId, reason: &str) -> Error {
    let name = graph.nodes[node].op.name();
    Error::unsupported(format!("no kernel of `{name}` takes these types: {reason}")).help(
        "convert before it to a type that the kernel takes, as with `x.to(torch.float32)`, and back behind it; or register a kernel \
         for it under a namespace of your own",
    )
}

/// The reason why the kernel of a node refuses its types; `None` if it accepts them, or fails for another reason.
fn refusal(graph: &Graph, node: &Node, schemas: &Arc<Schemas>) -> Option<String> {
    let (file, inputs) = call(graph, node, schemas)?;
    let refused = try_run(&file, "forward", &inputs).err()?;
    matches!(refused.detail, Detail::Dtype { .. } | Detail::ElementType { .. }).then(|| refused.detail.to_string())
}

/// Builds a program of one call, and its inputs. `None` if the call does not work with reduced sizes.
fn call(graph: &Graph, node: &Node, schemas: &Arc<Schemas>) -> Option<(Vec<u8>, Vec<Datum>)> {
    let mut values = Vec::new();
    node.args.iter().for_each(|arg| arg.for_each_value(&mut |value| values.push(value)));
    let tensors = values.iter().chain(&node.results).filter_map(|value| graph.tensor(*value).ok());
    let elements = |ty: &TensorType| sizes(graph, ty, i64::MAX)?.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
    let total = tensors.map(elements).try_fold(0i64, |total, n| total.checked_add(n?));
    let largest = if total.is_some_and(|total| total <= MAX_ELEMENTS) { i64::MAX } else { 2 };
    let of = |ty: &TensorType| Some(TensorType::of(ty.dtype, &sizes(graph, ty, largest)?));
    let mut alone = Graph::new();
    let mut replaced: FxHashMap<ValueId, Arg> = FxHashMap::default();
    let mut inputs = Vec::new();
    for value in values {
        if replaced.contains_key(&value) {
            continue;
        }
        let arg = match graph.ty(value) {
            Type::Tensor(ty) => {
                let ty = of(ty)?;
                let sizes: Vec<usize> =
                    ty.shape.iter().map(|size| usize::try_from(size.as_int()?).ok()).collect::<Option<_>>()?;
                let bytes = vec![0; sizes.iter().product::<usize>() * ty.dtype.size()];
                inputs.push(Datum::Tensor(TensorData { dtype: ty.dtype, sizes, bytes }));
                Arg::Value(alone.input("x", Type::Tensor(ty)))
            }
            Type::Int(size) => Arg::from(known(graph, size)?),
            Type::Float => Arg::Float(1.0),
            Type::Bool => Arg::from(false),
        };
        replaced.insert(value, arg);
    }
    let args = node.args.iter().map(|arg| substituted(graph, arg, &replaced)).collect::<Option<_>>()?;
    let results = node.results.iter().map(|value| match graph.ty(*value) {
        Type::Tensor(ty) => Some(("y".to_owned(), Type::Tensor(of(ty)?))),
        _ => None,
    });
    let results: Vec<_> = results.collect::<Option<_>>()?;
    let origin = alone.origins.push(Origin::default());
    let id = alone.push_node(alone.body, node.op.clone(), args, origin, results);
    alone.outputs = alone.nodes[id].results.iter().map(|value| Arg::Value(*value)).collect();
    let mut model = Model { schemas: schemas.clone(), ..Model::default() };
    model.add_method("forward", alone);
    let options = EmitOptions { plan_inputs: false, ..EmitOptions::default() };
    Some((emit(&model, &options).ok()?.program.to_bytes().ok()?, inputs))
}

/// Replaces the symbols of an argument by numbers, and its values by those of `replaced`.
fn substituted(graph: &Graph, arg: &Arg, replaced: &FxHashMap<ValueId, Arg>) -> Option<Arg> {
    Some(match arg {
        Arg::Value(value) => replaced.get(value)?.clone(),
        Arg::Int(size) => Arg::from(known(graph, size)?),
        Arg::List(items) => {
            Arg::List(items.iter().map(|item| substituted(graph, item, replaced)).collect::<Option<_>>()?)
        }
        Arg::Block(_) => return None,
        other => other.clone(),
    })
}

/// The sizes of a tensor, none above `largest`.
fn sizes(graph: &Graph, ty: &TensorType, largest: i64) -> Option<Vec<i64>> {
    ty.shape.iter().map(|size| Some(known(graph, size)?.min(largest))).collect()
}

/// A size that an expression can have.
fn known(graph: &Graph, size: &Expr) -> Option<i64> {
    let value = |symbol: SymbolId| {
        let symbol = &graph.symbols[symbol];
        Some(symbol.min.max(2).min(symbol.max.unwrap_or(i64::MAX)))
    };
    size.evaluate(&value)
}
