//! Makes the nodes that compute sizes.
//!
//! Before this pass, sizes stand in arguments as expressions. A runtime needs values. The pass reads each symbol from
//! its input dimension, or from the node or block parameter that computes it. Each expression becomes arithmetic on
//! numbers, once in each block that uses it.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use std::sync::Arc;

use rushlight_graph::Error;
use rushlight_graph::expr::Function;
use rushlight_graph::operators::{aten, executorch_prim};
use rushlight_graph::{
    Arena, Arg, BlockId, Builder, Constant, Def, Expr, Graph, Model, NodeId, Op, Origin, OriginId, Schemas, SymbolId,
    Type, ValueId,
};

use rushlight_graph::Pass;

/// Makes the nodes that compute sizes.
#[derive(Debug)]
pub struct LowerSymbolicSizes;

impl Pass for LowerSymbolicSizes {
    fn name(&self) -> &'static str {
        "lower-symbolic-sizes"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let Model { methods, constants, schemas, .. } = model;
        for (name, graph) in methods {
            if graph.symbols.is_empty() {
                continue;
            }
            let body = graph.body;
            let mut visible = Visible::default();
            lower_block(graph, constants, schemas, &mut visible, body)
                .and_then(|()| lower_outputs(graph, constants, schemas, &mut visible))
                .map_err(|error| error.at(format!("method `{name}`")))?;
        }
        Ok(())
    }
}

/// The source of a symbol's value at run time.
#[derive(Clone, Copy)]
enum Definition {
    /// A dimension of a tensor, which is `factor * symbol + offset`.
    Dimension { tensor: ValueId, dim: usize, factor: i64, offset: i64 },
    /// A number.
    Number(ValueId),
}

/// Sources of numbers that are visible to a node.
#[derive(Clone, Default)]
struct Visible {
    definitions: FxHashMap<SymbolId, Definition>,
    /// Values of expressions that nodes have computed.
    numbers: FxHashMap<Expr, ValueId>,
}

impl Visible {
    /// Adds the symbols in the types of `values`. Keeps earlier definitions. Prefers a dimension that is the symbol
    /// itself, because it needs no division.
    fn define(&mut self, graph: &Graph, values: &[ValueId]) {
        let mut found: FxHashMap<SymbolId, Definition> = FxHashMap::default();
        for value in values.iter().copied() {
            match graph.ty(value) {
                Type::Int(Expr::Symbol(symbol)) => {
                    found.entry(*symbol).or_insert(Definition::Number(value));
                }
                Type::Tensor(tensor) => {
                    for (dim, size) in tensor.shape.iter().enumerate() {
                        let Some((symbol, factor, offset)) = linear(size) else { continue };
                        let definition = Definition::Dimension { tensor: value, dim, factor, offset };
                        match found.get(&symbol) {
                            Some(Definition::Dimension { factor: 1, offset: 0, .. } | Definition::Number(_)) => {}
                            Some(_) if factor != 1 || offset != 0 => {}
                            _ => {
                                found.insert(symbol, definition);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        for (symbol, definition) in found {
            self.definitions.entry(symbol).or_insert(definition);
        }
    }
}

/// A size as `factor * symbol + offset`.
fn linear(size: &Expr) -> Option<(SymbolId, i64, i64)> {
    match size {
        Expr::Symbol(symbol) => Some((*symbol, 1, 0)),
        Expr::Int(_) => None,
        Expr::Call(call) => match (call.function, call.args.as_slice()) {
            (Function::Mul, [Expr::Int(factor), Expr::Symbol(symbol)]) => Some((*symbol, *factor, 0)),
            (Function::Add, [Expr::Int(offset), rest] | [rest, Expr::Int(offset)]) => {
                let (symbol, factor, zero) = linear(rest)?;
                (zero == 0).then_some((symbol, factor, *offset))
            }
            _ => None,
        },
    }
}

fn lower_block(
    graph: &mut Graph,
    constants: &mut Arena<Constant>,
    schemas: &Arc<Schemas>,
    visible: &mut Visible,
    block: BlockId,
) -> Result<(), Error> {
    let nodes = std::mem::take(&mut graph.blocks[block].nodes);
    visible.define(graph, &graph.blocks[block].params);
    if block == graph.body {
        // Sizes of inputs are read first, so that the inputs need not be kept for their sizes.
        let origin = graph.origins.push(Origin::default());
        let symbols = symbols_of_inputs(graph, &nodes, &visible.definitions);
        let mut maker = Maker { builder: Builder::new(graph, constants, schemas, block, origin), visible };
        for symbol in symbols {
            maker.number(&symbol.into())?;
        }
    }
    for node in nodes {
        let origin = graph.nodes[node].origin;
        let mut args = std::mem::take(&mut graph.nodes[node].args);
        let mut maker = Maker { builder: Builder::new(graph, constants, schemas, block, origin), visible };
        args.iter_mut().try_for_each(|arg| maker.lower(arg)).map_err(|error| graph.locate(error, node))?;
        graph.nodes[node].args = args;
        let inner: Vec<BlockId> = graph.nodes[node].blocks().collect();
        for inner in inner {
            // Values that a block computes are not visible outside of it.
            lower_block(graph, constants, schemas, &mut visible.clone(), inner)?;
        }
        graph.blocks[block].nodes.push(node);
        visible.define(graph, &graph.nodes[node].results);
    }
    if block != graph.body {
        let mut results = std::mem::take(&mut graph.blocks[block].results);
        let origin = last_origin(graph, block);
        let mut maker = Maker { builder: Builder::new(graph, constants, schemas, block, origin), visible };
        results.iter_mut().try_for_each(|arg| maker.lower(arg))?;
        graph.blocks[block].results = results;
    }
    Ok(())
}

/// The symbols that inputs define and that nodes use, in the body or in nested blocks.
fn symbols_of_inputs(
    graph: &Graph,
    nodes: &[NodeId],
    definitions: &FxHashMap<SymbolId, Definition>,
) -> BTreeSet<SymbolId> {
    let mut used = BTreeSet::new();
    let mut insert = |symbol| {
        used.insert(symbol);
    };
    let mut note = |arg: &Arg| arg.for_each_expr(&mut |expr| expr.for_each_symbol(&mut insert));
    let mut visit = |node: NodeId| graph.nodes[node].args.iter().for_each(&mut note);
    for node in nodes {
        for block in graph.nodes[*node].blocks() {
            graph.for_each_node(block, &mut visit);
        }
        visit(*node);
    }
    graph.outputs.iter().for_each(note);
    used.retain(|symbol| match definitions.get(symbol) {
        Some(Definition::Dimension { tensor, .. }) => graph.values[*tensor].def == Def::Param(graph.body),
        _ => false,
    });
    used
}

fn lower_outputs(
    graph: &mut Graph,
    constants: &mut Arena<Constant>,
    schemas: &Arc<Schemas>,
    visible: &mut Visible,
) -> Result<(), Error> {
    let (body, mut outputs) = (graph.body, std::mem::take(&mut graph.outputs));
    let origin = last_origin(graph, body);
    let mut maker = Maker { builder: Builder::new(graph, constants, schemas, body, origin), visible };
    outputs.iter_mut().try_for_each(|arg| maker.lower(arg))?;
    graph.outputs = outputs;
    Ok(())
}

fn last_origin(graph: &mut Graph, block: BlockId) -> OriginId {
    let last: Option<&NodeId> = graph.blocks[block].nodes.last();
    match last {
        Some(node) => graph.nodes[*node].origin,
        None => graph.origins.push(Origin::default()),
    }
}

struct Maker<'a, 'm> {
    builder: Builder<'m>,
    visible: &'a mut Visible,
}

impl Maker<'_, '_> {
    /// Replaces the expressions of an argument with numbers that nodes compute.
    fn lower(&mut self, arg: &mut Arg) -> Result<(), Error> {
        match arg {
            Arg::Int(expr) if !expr.is_static() => *arg = self.number(&expr.clone())?,
            Arg::List(items) => items.iter_mut().try_for_each(|item| self.lower(item))?,
            _ => {}
        }
        Ok(())
    }

    /// An expression as a literal or a computed number.
    fn number(&mut self, expr: &Expr) -> Result<Arg, Error> {
        if let Some(value) = self.visible.numbers.get(expr) {
            return Ok(Arg::Value(*value));
        }
        let value = match expr {
            Expr::Int(_) => return Ok(Arg::Int(expr.clone())),
            Expr::Symbol(symbol) => self.symbol(*symbol)?,
            Expr::Call(call) => {
                let name = match call.function {
                    Function::Add => executorch_prim::ADD_SCALAR,
                    Function::Mul => executorch_prim::MUL_SCALAR,
                    Function::FloorDiv => executorch_prim::FLOORDIV_SCALAR,
                    Function::Mod => executorch_prim::MOD_SCALAR,
                    Function::Max => executorch_prim::SYM_MAX_SCALAR,
                    Function::Min => executorch_prim::SYM_MIN_SCALAR,
                };
                self.fold(name, call.function, &call.args)?
            }
        };
        self.visible.numbers.insert(expr.clone(), value);
        Ok(Arg::Value(value))
    }

    /// A function of two or more numbers, as calls with two.
    fn fold(&mut self, name: &str, function: Function, args: &[Expr]) -> Result<ValueId, Error> {
        let (first, rest) = args.split_first().ok_or_else(|| Error::invalid("a function of nothing"))?;
        let (mut so_far, mut value) = (first.clone(), self.number(first)?);
        for arg in rest {
            so_far = match function {
                Function::Add => so_far.add(arg.clone()),
                Function::Mul => so_far.mul(arg.clone()),
                Function::FloorDiv => so_far.floor_div(arg.clone()),
                Function::Mod => so_far.modulo(arg.clone()),
                Function::Max => so_far.at_least(arg.clone()),
                Function::Min => so_far.at_most(arg.clone()),
            };
            let other = self.number(arg)?;
            value = Arg::Value(self.call(name, vec![value, other], so_far.clone())?);
        }
        value.as_value().ok_or_else(|| Error::invalid("a function of one literal"))
    }

    fn symbol(&mut self, symbol: SymbolId) -> Result<ValueId, Error> {
        let name = &self.builder.graph.symbols[symbol].name;
        let undefined = || {
            Error::unsupported(format!("the size `{name}` is used, and no dimension of an input is equal to it"))
                .help("pass a tensor with that size to the model, or export with a fixed size")
        };
        match self.visible.definitions.get(&symbol).copied().ok_or_else(undefined)? {
            Definition::Number(value) => Ok(value),
            Definition::Dimension { tensor, dim, factor, offset } => {
                let size = Expr::Symbol(symbol).mul(factor).add(offset);
                let args = vec![Arg::Value(tensor), Arg::from(dim as i64)];
                let mut value = self.call(aten::SYM_SIZE_INT, args, size)?;
                if offset != 0 {
                    let rest = Expr::Symbol(symbol).mul(factor);
                    value = self.call(executorch_prim::SUB_SCALAR, vec![value.into(), Arg::from(offset)], rest)?;
                }
                if factor != 1 {
                    let args = vec![value.into(), Arg::from(factor)];
                    value = self.call(executorch_prim::FLOORDIV_SCALAR, args, symbol.into())?;
                }
                Ok(value)
            }
        }
    }

    fn call(&mut self, name: &str, args: Vec<Arg>, value: Expr) -> Result<ValueId, Error> {
        let schema = self.builder.schemas().expect(name)?;
        let results = self.builder.push(Op::Call(schema), args, vec![Type::Int(value)]);
        results.first().copied().ok_or_else(|| Error::invalid("a number without a value"))
    }
}
