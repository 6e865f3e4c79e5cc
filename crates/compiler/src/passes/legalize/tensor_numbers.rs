//! Numbers that are read from tensors, and become tensors again.

use rushlight_format::ScalarType;
use rushlight_graph::operators::aten;
use rushlight_graph::{Action, Arg, Builder, Call, Error, Expr, Graph, Model, NodeId, Pass, SymbolId, Type, ValueId};
use rustc_hash::FxHashMap;

use crate::passes::rewrite::rewrite;

/// Replaces a number that was read from a tensor by that tensor where integers are added or compared, or where the
/// number becomes a tensor again. As a tensor, a position needs no bound; as a size it would.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadNumbersAsTensors;

impl Pass for ReadNumbersAsTensors {
    fn name(&self) -> &'static str {
        "read-numbers-as-tensors"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let sources: Vec<FxHashMap<SymbolId, ValueId>> = model.methods.values().map(sources).collect();
        if sources.iter().all(FxHashMap::is_empty) {
            return Ok(());
        }
        // Symbols belong to one method, and this pass runs on models with one method.
        let sources: FxHashMap<SymbolId, ValueId> = match <[_; 1]>::try_from(sources) {
            Ok([sources]) => sources,
            Err(_) => return Ok(()),
        };
        rewrite(model, |builder, node| {
            Ok(replaced(builder, node, &sources)?.map_or(Action::Keep, |value| Action::Replace(vec![value])))
        })
    }
}

/// Finds the tensor of one element that each symbol was read from.
fn sources(graph: &Graph) -> FxHashMap<SymbolId, ValueId> {
    let mut sources = FxHashMap::default();
    for node in &graph.blocks[graph.body].nodes {
        let call = Call::new(graph, *node);
        if call.name() == aten::_LOCAL_SCALAR_DENSE
            && let (Some(source), Ok(result)) = (call.optional("self"), call.result())
            && let (Some(symbol), Type::Tensor(ty)) = (graph.ty(result).symbol(), graph.ty(source))
            && ty.dtype == ScalarType::Long
            && ty.rank() == 0
        {
            sources.insert(symbol, source);
        }
    }
    sources
}

/// Returns the replacement of a node with a scalar argument that was read from a tensor.
fn replaced(
    builder: &mut Builder<'_>,
    node: NodeId,
    sources: &FxHashMap<SymbolId, ValueId>,
) -> Result<Option<ValueId>, Error> {
    let call = Call::new(builder.graph, node);
    let source = |name: &str| match call.expr(name)? {
        Expr::Symbol(symbol) => sources.get(&symbol).copied(),
        _ => None,
    };
    if call.name() == aten::SCALAR_TENSOR {
        let Some(source) = source("s") else { return Ok(None) };
        let dtype = builder.tensor(call.result()?)?.dtype;
        let is_whole = matches!(dtype, ScalarType::Long | ScalarType::Int);
        return is_whole
            .then(|| builder.one_with(aten::_TO_COPY, vec![source.into()], &[("dtype", dtype.into())]))
            .transpose();
    }
    let of_tensors = match call.name() {
        aten::ADD_SCALAR => aten::ADD_TENSOR,
        aten::SUB_SCALAR => aten::SUB_TENSOR,
        aten::EQ_SCALAR => aten::EQ_TENSOR,
        aten::NE_SCALAR => aten::NE_TENSOR,
        aten::LT_SCALAR => aten::LT_TENSOR,
        aten::LE_SCALAR => aten::LE_TENSOR,
        aten::GT_SCALAR => aten::GT_TENSOR,
        aten::GE_SCALAR => aten::GE_TENSOR,
        _ => return Ok(None),
    };
    let (Some(source), Some(x)) = (source("other"), call.optional("self")) else { return Ok(None) };
    if builder.tensor(x)?.dtype != ScalarType::Long {
        return Ok(None);
    }
    let mut args = vec![x.into(), Arg::Value(source)];
    args.extend(call.arg("alpha").cloned());
    builder.one(of_tensors, args).map(Some)
}
