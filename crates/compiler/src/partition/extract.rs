//! Takes nodes out of a graph into a model of their own.

use std::collections::{HashMap, HashSet};

use rushlight_graph::{
    Arg, Constant, Def, Delegate, Expr, Graph, Model, Node, NodeId, Op, OriginId, PartNode, Type, Value, ValueId,
};
use rushlight_graph::{Error, ErrorKind};

use rustc_hash::{FxHashMap, FxHashSet};

use super::levels::for_each_symbol;
use super::{Backend, Part, Payload};

/// Lets a backend compile some nodes of a block, and makes a node that runs the result. With it come the precisions of members, as
/// the back end says them of their copies in the part.
pub(super) fn delegate(
    model: &mut Model,
    method: &str,
    graph: &mut Graph,
    members: &[NodeId],
    copies: &FxHashSet<NodeId>,
    backend: &dyn Backend,
) -> Result<(NodeId, Vec<(NodeId, String)>), Error> {
    let outputs = outputs(graph, members);
    let all = with_copies(graph, members, copies);
    let (part, inputs) = part(model, method, graph, &all, &outputs)?;
    let Payload { data, compile_specs, named_data, precisions } =
        backend.compile(&part).map_err(|error| error.at(format!("backend `{}`", backend.name())))?;
    for (key, data) in named_data {
        match model.named_data.iter().find(|(known, _)| *known == key) {
            Some((_, known)) if *known == data => {}
            Some(_) => {
                let text = format!("backend `{}` gives two different blobs the key `{key}`", backend.name());
                return Err(Error::new(ErrorKind::Backend, text));
            }
            None => model.named_data.push((key, data)),
        }
    }
    let inner = part.graph()?;
    let originals: FxHashMap<NodeId, NodeId> = inner.blocks[inner.body].nodes.iter().copied().zip(all).collect();
    let precisions = precisions.into_iter().filter_map(|(copy, precision)| Some((*originals.get(&copy)?, precision)));
    let precisions = precisions.collect();
    let node_of = |node: &NodeId| {
        let node = &graph.nodes[*node];
        PartNode { op: node.op.name().into(), origin: graph.origins[node.origin].clone() }
    };
    let nodes = members.iter().map(node_of).collect();
    let delegate = Delegate { backend: backend.name().into(), payload: data, compile_specs, refusal: None, nodes };
    let id = model.delegates.push(delegate);
    let origin = members.first().map(|node| graph.nodes[*node].origin);
    let origin: OriginId = origin.unwrap_or_else(|| graph.origins.push(rushlight_graph::Origin::default()));
    let args = inputs.into_iter().map(Arg::Value).collect();
    // The values stay; only the node that defines them changes.
    let node = graph.nodes.push(Node { op: Op::Delegate(id), args, results: outputs.clone(), origin });
    for (index, output) in outputs.iter().enumerate() {
        graph.values[*output].def = Def::Result(node, index as u32);
    }
    Ok((node, precisions))
}

/// The results of `members` that others use.
fn outputs(graph: &Graph, members: &[NodeId]) -> Vec<ValueId> {
    let members: HashSet<NodeId> = members.iter().copied().collect();
    let mut used = HashSet::new();
    let mut visit = |value| {
        used.insert(value);
    };
    for block in graph.live_blocks() {
        let block = &graph.blocks[block];
        for node in block.nodes.iter().filter(|node| !members.contains(node)) {
            graph.nodes[*node].args.iter().for_each(|arg| arg.for_each_value(&mut visit));
        }
        block.results.iter().for_each(|arg| arg.for_each_value(&mut visit));
    }
    graph.outputs.iter().for_each(|arg| arg.for_each_value(&mut visit));
    graph.updates.iter().for_each(|update| visit(update.value));
    let mut outputs = Vec::new();
    let mut ordered: Vec<NodeId> = members.into_iter().collect();
    ordered.sort_unstable();
    for node in ordered {
        outputs.extend(graph.nodes[node].results.iter().filter(|result| used.contains(result)));
    }
    outputs
}

/// The members of a part, each after the nodes to be copied that it uses.
fn with_copies(graph: &Graph, members: &[NodeId], copies: &FxHashSet<NodeId>) -> Vec<NodeId> {
    fn add(
        graph: &Graph,
        node: NodeId,
        copies: &FxHashSet<NodeId>,
        seen: &mut FxHashSet<NodeId>,
        all: &mut Vec<NodeId>,
    ) {
        if !seen.insert(node) {
            return;
        }
        graph.for_each_use_by(node, &mut |value| {
            if let Def::Result(maker, _) = graph.values[value].def
                && copies.contains(&maker)
            {
                add(graph, maker, copies, seen, all);
            }
        });
        all.push(node);
    }
    let (mut seen, mut all) = (FxHashSet::default(), Vec::with_capacity(members.len()));
    members.iter().for_each(|node| add(graph, *node, copies, &mut seen, &mut all));
    all
}

/// The inputs of the method that give the sizes of a part which none of the part's inputs has: a tensor that is expanded to the
/// shape of another one, for example. Nothing reads their elements.
fn givers_of_sizes(graph: &Graph, members: &[NodeId], inputs: &[ValueId]) -> Vec<ValueId> {
    let (mut used, mut known) = (Vec::new(), FxHashSet::default());
    for node in members {
        graph.for_each_symbol_by(*node, &mut |symbol| used.push(symbol));
        let results = &graph.nodes[*node].results;
        results.iter().for_each(|result| for_each_symbol(graph.ty(*result), &mut |symbol| used.push(symbol)));
    }
    for input in inputs {
        for_each_symbol(graph.ty(*input), &mut |symbol| {
            known.insert(symbol);
        });
    }
    let mut givers = Vec::new();
    for symbol in used {
        if !known.insert(symbol) {
            continue;
        }
        let gives = |size: &Expr| size.linear().is_some_and(|(given, ..)| given == symbol);
        let has = |value: &&ValueId| graph.tensor(**value).is_ok_and(|ty| ty.shape.iter().any(gives));
        if let Some(giver) = graph.blocks[graph.body].params.iter().find(has) {
            givers.push(*giver);
            for_each_symbol(graph.ty(*giver), &mut |symbol| {
                known.insert(symbol);
            });
        }
    }
    givers
}

/// Copies the nodes into a model of their own. Returns it with the values of the method that are its inputs.
fn part(
    model: &Model,
    method: &str,
    graph: &Graph,
    members: &[NodeId],
    outputs: &[ValueId],
) -> Result<(Part, Vec<ValueId>), Error> {
    let mut part = Model { schemas: model.schemas.clone(), ..Model::default() };
    let mut inner = Graph::new();
    inner.symbols = graph.symbols.clone();
    let mut map: HashMap<ValueId, ValueId> = HashMap::new();
    let mut inputs = Vec::new();
    for id in members {
        let node = &graph.nodes[*id];
        let mut unknown = Vec::new();
        node.args.iter().for_each(|arg| arg.for_each_value(&mut |value| unknown.push(value)));
        for value in unknown {
            if map.contains_key(&value) {
                continue;
            }
            let Value { name, ty, def } = &graph.values[value];
            let copy = match def {
                Def::Constant(constant) => {
                    let constant: Constant = model.constants[*constant].clone();
                    let constant = part.constants.push(constant);
                    inner.constant(constant, &part.constants)
                }
                _ => {
                    inputs.push(value);
                    inner.input(name, ty.clone())
                }
            };
            map.insert(value, copy);
        }
        let mut args = node.args.clone();
        args.iter_mut().for_each(|arg| arg.map_values(&mut |value| map.get(&value).copied().unwrap_or(value)));
        let origin = inner.origins.push(graph.origins[node.origin].clone());
        let results: Vec<(String, Type)> =
            node.results.iter().map(|result| (graph.values[*result].name.clone(), graph.ty(*result).clone())).collect();
        let body = inner.body;
        let copy = inner.push_node(body, node.op.clone(), args, origin, results);
        map.extend(node.results.iter().copied().zip(inner.nodes[copy].results.clone()));
    }
    for value in givers_of_sizes(graph, members, &inputs) {
        let Value { name, ty, .. } = &graph.values[value];
        inputs.push(value);
        inner.input(name, ty.clone());
    }
    let output = |value: &ValueId| {
        map.get(value).copied().map(Arg::Value).ok_or_else(|| Error::invalid("a part loses an output"))
    };
    inner.outputs = outputs.iter().map(output).collect::<Result<_, _>>()?;
    part.add_method(Part::METHOD, inner);
    Ok((Part { model: part, method: method.into() }, inputs))
}
