//! Dead code elimination.

use rushlight_graph::Error;
use rushlight_graph::{Arg, BlockId, Def, Graph, Model, NodeId, Op, SymbolId, Type, ValueId};

use rushlight_graph::Pass;

/// Removes nodes whose results are unused. Three kinds of nodes stay:
/// - nodes that define sizes that depend on data, if these sizes are used,
/// - delegates, which may hold states,
/// - operators without results that are not PyTorch's, because their effects are unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct EliminateDeadCode;

impl Pass for EliminateDeadCode {
    fn name(&self) -> &'static str {
        "dead-code"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        model.methods.values_mut().for_each(eliminate);
        Ok(())
    }
}

fn eliminate(graph: &mut Graph) {
    let mut live = Liveness::new(graph);
    graph.outputs.iter().for_each(|output| live.arg(output));
    graph.updates.iter().for_each(|update| live.value(update.value));
    for block in graph.live_blocks() {
        for id in &graph.blocks[block].nodes {
            let node = &graph.nodes[*id];
            let may_have_effects = match &node.op {
                Op::Delegate(_) => true,
                Op::Call(schema) => node.results.is_empty() && !schema.name.starts_with("aten::"),
                _ => false,
            };
            if may_have_effects {
                live.node(*id);
            }
        }
    }
    live.close();
    let nodes = live.nodes;
    for block in graph.live_blocks() {
        graph.blocks[block].nodes.retain(|node| nodes.get(node.index()).copied().unwrap_or(true));
    }
}

/// Nodes that are known to be in use.
struct Liveness<'g> {
    graph: &'g Graph,
    nodes: Vec<bool>,
    /// Live nodes whose arguments are not visited yet.
    pending: Vec<NodeId>,
    /// By symbol: the node whose result defines it; `None` if an input does.
    makers: Vec<Option<NodeId>>,
    /// By node: the control flow node whose block it is in.
    around: Vec<Option<NodeId>>,
}

impl<'g> Liveness<'g> {
    fn new(graph: &'g Graph) -> Self {
        let mut makers: Vec<Option<Option<NodeId>>> = vec![None; graph.symbols.len()];
        let mut around = vec![None; graph.nodes.len()];
        let mut owners: Vec<(BlockId, Option<NodeId>)> = vec![(graph.body, None)];
        while let Some((block, owner)) = owners.pop() {
            let block = &graph.blocks[block];
            let mut note = |value: ValueId, maker: Option<NodeId>| {
                for_each_symbol(&graph.values[value].ty, &mut |symbol| {
                    if let Some(slot) = makers.get_mut(symbol.index()) {
                        slot.get_or_insert(maker);
                    }
                });
            };
            block.params.iter().for_each(|param| note(*param, None));
            for id in &block.nodes {
                let node = &graph.nodes[*id];
                node.results.iter().for_each(|value| note(*value, Some(*id)));
                if let Some(slot) = around.get_mut(id.index()) {
                    *slot = owner;
                }
                owners.extend(node.blocks().map(|block| (block, Some(*id))));
            }
        }
        let makers = makers.into_iter().map(Option::flatten).collect();
        Self { graph, nodes: vec![false; graph.nodes.len()], pending: Vec::new(), makers, around }
    }

    fn node(&mut self, id: NodeId) {
        let mut next = Some(id);
        while let Some(id) = next {
            match self.nodes.get_mut(id.index()) {
                Some(live) if !*live => *live = true,
                _ => return,
            }
            self.pending.push(id);
            next = self.around.get(id.index()).copied().flatten();
        }
    }

    fn value(&mut self, value: ValueId) {
        if let Def::Result(node, _) = self.graph.values[value].def {
            self.node(node);
        }
    }

    fn arg(&mut self, arg: &Arg) {
        match arg {
            Arg::Value(value) => self.value(*value),
            Arg::List(items) => items.iter().for_each(|item| self.arg(item)),
            Arg::Int(expr) => expr.for_each_symbol(&mut |symbol| {
                if let Some(maker) = self.makers.get(symbol.index()).copied().flatten() {
                    self.node(maker);
                }
            }),
            _ => {}
        }
    }

    /// Visits everything that live nodes use, until no node is pending.
    fn close(&mut self) {
        let graph = self.graph;
        while let Some(id) = self.pending.pop() {
            let node = &graph.nodes[id];
            node.args.iter().for_each(|arg| self.arg(arg));
            for block in node.blocks() {
                graph.blocks[block].results.iter().for_each(|result| self.arg(result));
            }
        }
    }
}

fn for_each_symbol(ty: &Type, visit: &mut impl FnMut(SymbolId)) {
    match ty {
        Type::Tensor(tensor) => tensor.shape.iter().for_each(|size| size.for_each_symbol(visit)),
        Type::Int(expr) => expr.for_each_symbol(visit),
        Type::Float | Type::Bool => {}
    }
}
