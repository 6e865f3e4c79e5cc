//! Rewriting of graphs: visits nodes in the order of execution, and keeps, replaces or removes each.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use indexmap::IndexMap;
use rustc_hash::FxHashMap;

use crate::{
    Arena, Arg, BlockId, Builder, Constant, Def, Error, ErrorKind, Expr, Graph, Input, Model, NodeId, OriginId,
    Schemas, SymbolId, Type, ValueId,
};

/// The decision of a rewrite on a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The node stays.
    Keep,
    /// The node is removed. These values replace its results, one for each.
    Replace(Vec<ValueId>),
    /// The node is removed. Its results must not be used.
    Remove,
}

impl Model {
    /// Calls `visit` for every node of every method, in the order of execution, and applies the action that it returns. A
    /// node's arguments are already replaced when it is visited. Nodes that `visit` adds through the builder come before
    /// the visited one and are not visited themselves. Returns true if anything changed.
    pub fn rewrite(
        &mut self,
        mut visit: impl FnMut(&mut Builder<'_>, NodeId) -> Result<Action, Error>,
    ) -> Result<bool, Error> {
        self.rewrite_methods(|_, builder, node| visit(builder, node))
    }

    /// As [`rewrite`](Self::rewrite); `visit` also gets the name of the method.
    pub fn rewrite_methods(
        &mut self,
        mut visit: impl FnMut(&str, &mut Builder<'_>, NodeId) -> Result<Action, Error>,
    ) -> Result<bool, Error> {
        let Self { methods, constants, schemas, .. } = self;
        let mut changed = false;
        for (name, graph) in methods {
            let mut visit = |builder: &mut Builder<'_>, node| visit(name, builder, node);
            changed |= rewrite_graph(graph, constants, schemas, &mut visit)
                .map_err(|error| error.at(format!("method `{name}`")))?;
        }
        Ok(changed)
    }

    /// A builder for a method; `None` if there is none of that name.
    pub fn builder(&mut self, method: &str, block: BlockId, origin: OriginId) -> Option<Builder<'_>> {
        let graph = self.methods.get_mut(method)?;
        Some(Builder::new(graph, &mut self.constants, &self.schemas, block, origin))
    }

    /// Adds an empty method, replacing one of that name.
    pub fn add_method(&mut self, name: &str, graph: Graph) -> &mut Graph {
        let methods: &mut IndexMap<String, Graph> = &mut self.methods;
        let (index, _) = methods.insert_full(name.into(), graph);
        &mut methods[index]
    }
}

fn rewrite_graph(
    graph: &mut Graph,
    constants: &mut Arena<Constant>,
    schemas: &Arc<Schemas>,
    visit: &mut impl FnMut(&mut Builder<'_>, NodeId) -> Result<Action, Error>,
) -> Result<bool, Error> {
    let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut changed = false;
    // Blocks are visited after the nodes around them, whose results they use.
    for block in graph.live_blocks() {
        for node in std::mem::take(&mut graph.blocks[block].nodes) {
            substitute(&mut graph.nodes[node].args, &replaced);
            let origin = graph.nodes[node].origin;
            let action = visit(&mut Builder::new(graph, constants, schemas, block, origin), node)
                .map_err(|error| graph.locate(error, node))?;
            changed |= action != Action::Keep;
            match action {
                Action::Keep => graph.blocks[block].nodes.push(node),
                Action::Remove => {}
                Action::Replace(values) => {
                    prepare_replacements(graph, node, &values).map_err(|error| graph.locate(error, node))?;
                    replaced.extend(graph.nodes[node].results.iter().copied().zip(values));
                }
            }
        }
    }
    if !replaced.is_empty() {
        substitute_results(graph, &replaced);
    }
    Ok(changed)
}

impl Graph {
    /// Replaces values by others in all nodes and results.
    pub fn replace_uses(&mut self, replaced: &FxHashMap<ValueId, ValueId>) {
        for block in self.live_blocks() {
            for node in &self.blocks[block].nodes {
                substitute(&mut self.nodes[*node].args, replaced);
            }
        }
        substitute_results(self, replaced);
    }

    /// Replaces symbols by others in all types, nodes and results.
    pub fn replace_symbols(&mut self, replaced: &FxHashMap<SymbolId, SymbolId>) {
        for value in self.values.ids() {
            replace_in_type(&mut self.values[value].ty, replaced);
        }
        for block in self.live_blocks() {
            for node in &self.blocks[block].nodes {
                substitute_symbols(&mut self.nodes[*node].args, replaced);
            }
            substitute_symbols(&mut self.blocks[block].results, replaced);
        }
        substitute_symbols(&mut self.outputs, replaced);
    }

    /// Replaces symbols by others in the arguments and the result types of a node.
    pub fn replace_symbols_of(&mut self, node: NodeId, replaced: &FxHashMap<SymbolId, SymbolId>) {
        let node = &mut self.nodes[node];
        substitute_symbols(&mut node.args, replaced);
        for result in &node.results {
            replace_in_type(&mut self.values[*result].ty, replaced);
        }
    }
}

fn replace_in_type(ty: &mut Type, replaced: &FxHashMap<SymbolId, SymbolId>) {
    match ty {
        Type::Tensor(tensor) => tensor.shape.iter_mut().for_each(|size| replace(size, replaced)),
        Type::Int(expr) => replace(expr, replaced),
        Type::Float | Type::Bool => {}
    }
}

/// Replaces symbols in the expressions of arguments.
fn substitute_symbols(args: &mut [Arg], replaced: &FxHashMap<SymbolId, SymbolId>) {
    for arg in args {
        match arg {
            Arg::Int(expr) => replace(expr, replaced),
            Arg::List(items) => substitute_symbols(items, replaced),
            _ => {}
        }
    }
}

fn replace(expr: &mut Expr, replaced: &FxHashMap<SymbolId, SymbolId>) {
    if !matches!(expr, Expr::Int(_)) {
        *expr = expr.substitute(&|symbol| replaced.get(&symbol).copied().unwrap_or(symbol).into());
    }
}

/// Replaces values in the results of blocks and of the method.
fn substitute_results(graph: &mut Graph, replaced: &FxHashMap<ValueId, ValueId>) {
    for block in graph.live_blocks() {
        substitute(&mut graph.blocks[block].results, replaced);
    }
    substitute_outputs(graph, replaced);
}

/// Replaces values in the results and updates of the method.
pub fn substitute_outputs<S: BuildHasher>(graph: &mut Graph, replaced: &HashMap<ValueId, ValueId, S>) {
    substitute(&mut graph.outputs, replaced);
    for update in &mut graph.updates {
        update.value = replaced.get(&update.value).copied().unwrap_or(update.value);
    }
}

/// Replaces values in arguments.
pub fn substitute<S: BuildHasher>(args: &mut [Arg], replaced: &HashMap<ValueId, ValueId, S>) {
    for arg in args {
        arg.map_values(&mut |value| replaced.get(&value).copied().unwrap_or(value));
    }
}

/// Checks that `values` can replace a node's results. New values get the names of the results that they replace.
fn prepare_replacements(graph: &mut Graph, node: NodeId, values: &[ValueId]) -> Result<(), Error> {
    let results = graph.nodes[node].results.clone();
    if results.len() != values.len() {
        return Err(Error::new(ErrorKind::Verification, "a rewrite gave the wrong number of results")
            .expected(results.len())
            .got(values.len()));
    }
    for (old, new) in results.into_iter().zip(values.iter().copied()) {
        let (from, to) = (graph.ty(old), graph.ty(new));
        if !compatible(from, to) {
            let (from, to) = (from.display(&graph.symbols).to_string(), to.display(&graph.symbols).to_string());
            return Err(Error::new(ErrorKind::Verification, "a rewrite changed the type of a result")
                .expected(from)
                .got(to));
        }
        let name = graph.values[old].name.clone();
        if let Def::Result(..) = graph.values[new].def
            && graph.values[new].name.ends_with(&format!("_{}", new.index()))
        {
            graph.values[new].name = name;
            keep_symbols(graph, old, new);
        }
    }
    Ok(())
}

/// Copies symbolic sizes from `old` to `new`, except for those that an input has. A later node may use such a symbol, and
/// `old` may be the only value that defines it.
fn keep_symbols(graph: &mut Graph, old: ValueId, new: ValueId) {
    let (Type::Tensor(from), Type::Tensor(to)) = (graph.ty(old), graph.ty(new)) else { return };
    let is_input = |size: &Expr| {
        let mut types = graph.inputs.iter().filter_map(|input| match input {
            Input::Value(value) => graph.ty(*value).as_tensor(),
            Input::Literal(_) => None,
        });
        types.any(|ty| ty.shape.contains(size))
    };
    let is_kept =
        |(old, new): (&Expr, &Expr)| matches!(old, Expr::Symbol(_)) && old != new && !new.is_static() && !is_input(old);
    let kept: Vec<bool> = from.shape.iter().zip(&to.shape).map(is_kept).collect();
    if kept.contains(&true) {
        let sizes = from.shape.clone();
        if let Type::Tensor(to) = &mut graph.values[new].ty {
            for ((size, old), kept) in to.shape.iter_mut().zip(sizes).zip(kept) {
                if kept {
                    *size = old;
                }
            }
        }
    }
}

/// True if values of these types can replace each other. Symbolic sizes count as equal: one size has several expressions.
fn compatible(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            let same = |(x, y): (&Expr, &Expr)| !x.is_static() || !y.is_static() || x == y;
            a.dtype == b.dtype && a.rank() == b.rank() && a.shape.iter().zip(&b.shape).all(same)
        }
        (Type::Int(_), Type::Int(_)) | (Type::Float, Type::Float) | (Type::Bool, Type::Bool) => true,
        _ => false,
    }
}
