//! Extracts nodes of a graph into a model of their own.

use rushlight_graph::{
    Arg, Constant, Def, Delegate, Expr, Graph, Model, Node, NodeId, Op, OriginId, PartNode, StateId, SymbolId, Target,
    Type, Update, Value, ValueId,
};
use rushlight_graph::{Error, ErrorKind, Progress};

use rustc_hash::{FxHashMap, FxHashSet};

use super::levels::for_each_symbol;
use super::tags::Tag;
use super::{Backend, Compiled, Part, Payload, SourceNode, operators};

/// The nodes of a part.
pub(super) struct Cut<'c> {
    /// Nodes that become a delegate.
    pub members: &'c [NodeId],
    /// Nodes that the part copies where they are used.
    pub copies: &'c FxHashSet<NodeId>,
    /// Nodes that nothing outside of parts uses.
    pub needless: &'c FxHashSet<NodeId>,
    /// States that belong to the backend whose parts use them.
    pub owned: &'c FxHashSet<StateId>,
    /// The tag of the members.
    pub tag: &'c Tag,
}

impl Cut<'_> {
    /// True if the part holds a state.
    pub fn holds_state(&self, graph: &Graph) -> bool {
        let mut holds = false;
        let is_held =
            |value: ValueId| matches!(graph.values[value].def, Def::State(state) if self.owned.contains(&state));
        for node in self.members {
            graph.for_each_use_by(*node, &mut |value| holds |= is_held(value));
        }
        holds || self.updates(graph).next().is_some()
    }

    /// The updates of states that the part holds.
    fn updates<'g>(&'g self, graph: &'g Graph) -> impl Iterator<Item = (StateId, ValueId)> + use<'g> {
        graph.updates.iter().filter_map(|update| match (update.target, graph.values[update.value].def) {
            (Target::State(state), Def::Result(node, _)) if self.owned.contains(&state) => {
                self.members.contains(&node).then_some((state, update.value))
            }
            _ => None,
        })
    }
}

/// The nodes that take the place of a part.
pub(super) struct Replacement {
    /// A call of a delegate, or operators in their order.
    pub nodes: Vec<NodeId>,
    /// The precisions that the backend reports for the part's nodes.
    pub precisions: Vec<(NodeId, String)>,
}

/// Lets a backend compile some nodes of a block, and makes the nodes that run the result.
pub(super) fn compile(
    model: &mut Model,
    method: &str,
    graph: &mut Graph,
    cut: &Cut<'_>,
    backend: &dyn Backend,
    progress: &Progress,
) -> Result<Replacement, Error> {
    let members = cut.members;
    let outputs = outputs(graph, cut);
    let all = with_copies(graph, members, cut.copies);
    let (part_model, inputs) = part(model, graph, cut, &all, &outputs)?;
    let debug_handles: FxHashMap<NodeId, u32> = members.iter().copied().zip(0..).collect();
    let source = |node: &NodeId| SourceNode { node: *node, debug_handle: debug_handles.get(node).copied() };
    let Tag { name: tag, options } = cut.tag.clone();
    let sources = all.iter().map(source).collect();
    let part = Part { model: part_model, method: method.into(), tag, options, sources, progress: progress.clone() };
    let in_backend = |error: Error| error.at(format!("backend `{}`", backend.name()));
    operators::declare(backend, &part.model.schemas).map_err(in_backend)?;
    let origin = members.first().map(|node| graph.nodes[*node].origin);
    let origin: OriginId = origin.unwrap_or_else(|| graph.origins.push(rushlight_graph::Origin::default()));
    match backend.compile(&part).map_err(in_backend)? {
        Compiled::Operators(given) => {
            operators::check(&part, &given, backend).map_err(in_backend)?;
            let nodes = operators::splice(model, graph, &given, &inputs, &outputs, origin)?;
            Ok(Replacement { nodes, precisions: Vec::new() })
        }
        Compiled::Delegate(payload) => {
            let precisions = precisions(&part, &payload, &all)?;
            let node = delegate(model, graph, cut, backend.name(), payload, (inputs, outputs), origin)?;
            Ok(Replacement { nodes: vec![node], precisions })
        }
    }
}

/// Maps the precisions that a payload names for nodes of a part to the nodes of the graph.
fn precisions(part: &Part, payload: &Payload, all: &[NodeId]) -> Result<Vec<(NodeId, String)>, Error> {
    let inner = part.graph()?;
    let copies = inner.blocks[inner.body].nodes.iter().copied();
    let originals: FxHashMap<NodeId, NodeId> = copies.zip(all.iter().copied()).collect();
    let known = payload.precisions.iter();
    Ok(known.filter_map(|(copy, precision)| Some((*originals.get(copy)?, precision.clone()))).collect())
}

/// Makes the node that calls a delegate with a payload.
fn delegate(
    model: &mut Model,
    graph: &mut Graph,
    cut: &Cut<'_>,
    backend: &str,
    payload: Payload,
    (inputs, outputs): (Vec<ValueId>, Vec<ValueId>),
    origin: OriginId,
) -> Result<NodeId, Error> {
    let Payload { data, compile_specs, named_data, .. } = payload;
    for (key, data) in named_data {
        match model.named_data.iter().find(|(known, _)| *known == key) {
            Some((_, known)) if *known == data => {}
            Some(_) => {
                let text = format!("backend `{backend}` gives two different blobs the key `{key}`");
                return Err(Error::new(ErrorKind::Backend, text));
            }
            None => model.named_data.push((key, data)),
        }
    }
    let node_of = |node: &NodeId| {
        let node = &graph.nodes[*node];
        PartNode { op: node.op.name().into(), origin: graph.origins[node.origin].clone() }
    };
    let nodes = cut.members.iter().map(node_of).collect();
    let delegate = Delegate { backend: backend.into(), payload: data, compile_specs, refusal: None, nodes };
    let id = model.delegates.push(delegate);
    let args = inputs.into_iter().map(Arg::Value).collect();
    // The values stay; only the node that defines them changes.
    let node = graph.nodes.push(Node { op: Op::Delegate(id), args, results: outputs.clone(), origin });
    let held: Vec<StateId> = cut.updates(graph).map(|(state, _)| state).collect();
    graph.updates.retain(|update| !matches!(update.target, Target::State(state) if held.contains(&state)));
    for (index, output) in outputs.iter().enumerate() {
        graph.values[*output].def = Def::Result(node, index as u32);
    }
    Ok(node)
}

/// Returns the results of the part's nodes that others use.
fn outputs(graph: &Graph, cut: &Cut<'_>) -> Vec<ValueId> {
    let members: FxHashSet<NodeId> = cut.members.iter().copied().collect();
    let mut used = FxHashSet::default();
    let mut visit = |value| {
        used.insert(value);
    };
    for block in graph.live_blocks() {
        let block = &graph.blocks[block];
        for node in block.nodes.iter().filter(|node| !members.contains(node) && !cut.needless.contains(node)) {
            graph.nodes[*node].args.iter().for_each(|arg| arg.for_each_value(&mut visit));
        }
        block.results.iter().for_each(|arg| arg.for_each_value(&mut visit));
    }
    graph.outputs.iter().for_each(|arg| arg.for_each_value(&mut visit));
    let is_held = |target: Target| matches!(target, Target::State(state) if cut.owned.contains(&state));
    graph.updates.iter().filter(|update| !is_held(update.target)).for_each(|update| visit(update.value));
    // Other parts copy needless nodes, and use what these use.
    let mut open: Vec<ValueId> = used.iter().copied().collect();
    while let Some(value) = open.pop() {
        match graph.values[value].def {
            Def::Result(maker, _) if cut.needless.contains(&maker) => graph.for_each_use_by(maker, &mut |value| {
                if used.insert(value) {
                    open.push(value);
                }
            }),
            _ => {}
        }
    }
    let mut outputs = Vec::new();
    let mut ordered: Vec<NodeId> = members.into_iter().collect();
    ordered.sort_unstable();
    for node in ordered {
        outputs.extend(graph.nodes[node].results.iter().filter(|result| used.contains(result)));
    }
    outputs
}

/// Returns the nodes of a part. Each comes after the copied nodes whose results or symbols it uses.
fn with_copies(graph: &Graph, members: &[NodeId], copies: &FxHashSet<NodeId>) -> Vec<NodeId> {
    fn add(
        graph: &Graph,
        node: NodeId,
        copies: &FxHashSet<NodeId>,
        numbers: &FxHashMap<SymbolId, NodeId>,
        seen: &mut FxHashSet<NodeId>,
        all: &mut Vec<NodeId>,
    ) {
        if !seen.insert(node) {
            return;
        }
        let mut makers = Vec::new();
        graph.for_each_use_by(node, &mut |value| {
            if let Def::Result(maker, _) = graph.values[value].def {
                makers.push(maker);
            }
        });
        for_each_symbol_of(graph, node, &mut |symbol| makers.extend(numbers.get(&symbol)));
        for maker in makers.into_iter().filter(|maker| copies.contains(maker)) {
            add(graph, maker, copies, numbers, seen, all);
        }
        all.push(node);
    }
    let numbers = copies.iter().flat_map(|node| {
        let results = graph.nodes[*node].results.iter();
        results.filter_map(|result| Some((graph.ty(*result).symbol()?, *node)))
    });
    let numbers: FxHashMap<SymbolId, NodeId> = numbers.collect();
    let (mut seen, mut all) = (FxHashSet::default(), Vec::with_capacity(members.len()));
    members.iter().for_each(|node| add(graph, *node, copies, &numbers, &mut seen, &mut all));
    all
}

/// Visits the symbols in the arguments of a node, and in the sizes of its results.
fn for_each_symbol_of(graph: &Graph, node: NodeId, visit: &mut impl FnMut(SymbolId)) {
    graph.for_each_symbol_by(node, visit);
    graph.nodes[node].results.iter().for_each(|result| for_each_symbol(graph.ty(*result), visit));
}

/// Finds inputs of the method that define sizes of a part which none of the part's own inputs has. An example is a
/// tensor that is expanded to the shape of another one. Nothing reads the elements of such inputs.
fn givers_of_sizes(graph: &Graph, members: &[NodeId], inputs: &[ValueId]) -> Vec<ValueId> {
    let (mut used, mut known) = (Vec::new(), FxHashSet::default());
    for node in members {
        for_each_symbol_of(graph, *node, &mut |symbol| used.push(symbol));
        known.extend(graph.nodes[*node].results.iter().filter_map(|result| graph.ty(*result).symbol()));
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
    graph: &Graph,
    cut: &Cut<'_>,
    members: &[NodeId],
    outputs: &[ValueId],
) -> Result<(Model, Vec<ValueId>), Error> {
    let mut part = Model { schemas: model.schemas.clone(), ..Model::default() };
    let mut inner = Graph::new();
    inner.symbols = graph.symbols.clone();
    let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut inputs = Vec::new();
    let mut states: FxHashMap<StateId, StateId> = FxHashMap::default();
    let held = |part: &mut Model, states: &mut FxHashMap<StateId, StateId>, state: StateId| {
        *states.entry(state).or_insert_with(|| part.states.push(model.states[state].clone()))
    };
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
                Def::State(state) if cut.owned.contains(state) => {
                    let state = held(&mut part, &mut states, *state);
                    inner.state(state, &part.states)
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
    for (state, value) in cut.updates(graph) {
        let value = map.get(&value).copied().ok_or_else(|| Error::invalid("a part loses the update of a state"))?;
        inner.updates.push(Update { target: Target::State(held(&mut part, &mut states, state)), value });
    }
    part.add_method(Part::METHOD, inner);
    Ok((part, inputs))
}
