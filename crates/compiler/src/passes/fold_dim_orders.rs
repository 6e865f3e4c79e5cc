//! Copies into another dim order.

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::graph::{Arg, Def, Graph, Model, NodeId, Op, TensorType, ValueId};

use super::Pass;

/// Lets convolutions read and write channels-last images where they would be copied into or out of that order. Every
/// runtime's convolution takes both orders.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoldDimOrders;

impl Pass for FoldDimOrders {
    fn name(&self) -> &'static str {
        "dim-orders"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        for graph in model.methods.values_mut() {
            let copies: Vec<NodeId> = graph.blocks[graph.body]
                .nodes
                .iter()
                .copied()
                .filter(|node| reordered(graph, *node).is_some())
                .collect();
            if !copies.is_empty() {
                read_in_place(graph);
                write_in_place(graph, &copies);
            }
        }
        Ok(())
    }
}

/// Convolutions read what was copied for them.
fn read_in_place(graph: &mut Graph) {
    for id in graph.blocks[graph.body].nodes.clone() {
        if !is_convolution(&graph.nodes[id].op) {
            continue;
        }
        let Some(Arg::Value(input)) = graph.nodes[id].args.first() else { continue };
        let Def::Result(copy, _) = graph.values[*input].def else { continue };
        let Some((from, _)) = reordered(graph, copy).filter(|(from, _)| is_channels_last(graph, *from)) else {
            continue;
        };
        if let Some(arg) = graph.nodes[id].args.first_mut() {
            *arg = Arg::Value(from);
        }
    }
}

/// Convolutions write in the order into which their results alone are copied.
fn write_in_place(graph: &mut Graph, copies: &[NodeId]) {
    let mut uses: FxHashMap<ValueId, usize> = FxHashMap::default();
    graph.for_each_use(&mut |value| *uses.entry(value).or_default() += 1);
    let mut replaced = FxHashMap::default();
    for copy in copies {
        let Some((from, to)) = reordered(graph, *copy) else { continue };
        let Def::Result(maker, _) = graph.values[from].def else { continue };
        let is_only_use = uses.get(&from) == Some(&1);
        if is_only_use && is_convolution(&graph.nodes[maker].op) && is_channels_last(graph, to) {
            graph.values[from].ty = graph.values[to].ty.clone();
            replaced.insert(to, from);
        }
    }
    graph.replace_uses(&replaced);
}

/// What a node copies into another order, and what it makes, if it does no more.
fn reordered(graph: &Graph, node: NodeId) -> Option<(ValueId, ValueId)> {
    let node = &graph.nodes[node];
    let (Some(Arg::Value(from)), Some(to)) = (node.args.first(), node.result()) else { return None };
    let (x, y) = (graph.tensor(*from).ok()?, graph.tensor(to).ok()?);
    let is_copy = node.op.name() == "dim_order_ops::_to_dim_order_copy" && x.dtype == y.dtype;
    (is_copy && x.dim_order != y.dim_order).then_some((*from, to))
}

fn is_convolution(op: &Op) -> bool {
    op.name() == "aten::convolution"
}

fn is_channels_last(graph: &Graph, value: ValueId) -> bool {
    graph.tensor(value).is_ok_and(|ty: &TensorType| ty.dim_order == [0, 2, 3, 1])
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;

    use super::*;
    use crate::graph::Type;
    use crate::passes::EliminateDeadCode;
    use crate::passes::testing::{Method, float};

    fn image(dim_order: [u8; 4]) -> Type {
        let mut ty = TensorType::of(ScalarType::Float, &[1, 3, 8, 8]);
        ty.dim_order = dim_order.to_vec();
        Type::Tensor(ty)
    }

    fn copy(m: &mut Method, from: ValueId, dim_order: [u8; 4]) -> ValueId {
        let order = Arg::List(dim_order.map(|dim| i64::from(dim).into()).to_vec());
        let args = vec![from.into(), Arg::None, Arg::None, Arg::None, Arg::None, Arg::Bool(false), order];
        m.call("dim_order_ops::_to_dim_order_copy", args, image(dim_order))
    }

    fn convolution(m: &mut Method, x: ValueId) -> ValueId {
        let weight = m.graph().input("weight", float(&[3, 3, 1, 1]));
        let pair = |number: i64| Arg::List(vec![number.into(), number.into()]);
        let args =
            vec![x.into(), weight.into(), Arg::None, pair(1), pair(0), pair(1), Arg::Bool(false), pair(0), 1.into()];
        m.call("aten::convolution", args, image([0, 1, 2, 3]))
    }

    #[test]
    fn convolutions_take_images_as_they_are() {
        let mut m = Method::new();
        let x = m.graph().input("x", image([0, 2, 3, 1]));
        let dense = copy(&mut m, x, [0, 1, 2, 3]);
        let y = convolution(&mut m, dense);
        let y = copy(&mut m, y, [0, 2, 3, 1]);
        m.graph().outputs = vec![y.into()];
        m.after(&FoldDimOrders);
        assert_eq!(m.after(&EliminateDeadCode), ["aten::convolution"]);
        let output = m.graph().outputs[0].as_value().unwrap();
        assert_eq!(*m.graph().ty(output), image([0, 2, 3, 1]));
    }

    #[test]
    fn what_others_use_too_keeps_its_order() {
        let mut m = Method::new();
        let x = m.graph().input("x", float(&[1, 3, 8, 8]));
        let y = convolution(&mut m, x);
        let copied = copy(&mut m, y, [0, 2, 3, 1]);
        let negative = m.call("aten::neg", vec![y.into()], image([0, 1, 2, 3]));
        m.graph().outputs = vec![copied.into(), negative.into()];
        m.after(&FoldDimOrders);
        let names = m.after(&EliminateDeadCode);
        assert_eq!(names, ["aten::convolution", "dim_order_ops::_to_dim_order_copy", "aten::neg"]);
    }
}
