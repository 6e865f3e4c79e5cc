//! Higher-order operators: control flow, and wrappers that mean nothing when a model runs.

use rushlight_graph::Error;
use rushlight_graph::{Arg, BlockId, Op, Type, ValueId};

use super::super::schema::{Argument, Graph as Source, Node, SymBoolArgument};
use super::nodes::NodeImport;
use super::{Binding, Importer, Scope};

impl<'a> Importer<'_, '_, 'a> {
    pub(super) fn higher_order(
        &mut self,
        scope: &mut Scope,
        import: NodeImport<'_, 'a>,
        name: &str,
    ) -> Result<(), Error> {
        match name {
            "cond" => self.cond(scope, import),
            "while_loop" => self.while_loop(scope, import),
            "map_impl" => self.scan(scope, import, true),
            "scan" => self.scan(scope, import, false),
            "wrap_with_set_grad_enabled" => self.wrapped(scope, import),
            "wrap_with_autocast" => self.autocast_region(scope, import),
            "with_effects" => self.with_effects(scope, import),
            // A program prints nothing.
            "print" => Ok(()),
            other => Err(Error::unsupported(format!("the higher-order operator `{other}`"))
                .help("control flow that compiles: torch.cond, while_loop, map and scan")),
        }
    }

    fn cond(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>) -> Result<(), Error> {
        let NodeImport { source, node, .. } = import;
        let [predicate, yes, no, operands] = &*node.inputs else { return Err(malformed("cond", node)) };
        let predicate = self.argument(scope, source, &predicate.arg)?;
        let operands = self.items(scope, source, &operands.arg)?;
        let mut args = vec![predicate];
        let mut given = Vec::new();
        for branch in [yes, no] {
            let Argument::Graph(graph) = &branch.arg else { return Err(malformed("cond", node)) };
            let inner = self.new_block();
            self.inner(scope, inner, &graph.graph, &operands)?;
            given.push(self.graph.blocks[inner].results.clone());
            args.push(Arg::Block(inner));
        }
        let id = self.push(scope, import, Op::Cond, args)?;
        // The import of the branch may have corrected the recorded shapes of its results.
        for (result, branch) in
            self.graph.nodes[id].results.clone().into_iter().zip(given.first().into_iter().flatten())
        {
            if let Some(value) = branch.as_value().filter(|value| self.corrected.contains(value)) {
                let ty = self.graph.ty(value).clone();
                self.replace_shape(result, ty);
            }
        }
        Ok(())
    }

    fn while_loop(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>) -> Result<(), Error> {
        let NodeImport { source, node, .. } = import;
        let [condition, body, carried, rest @ ..] = &*node.inputs else { return Err(malformed("while_loop", node)) };
        let carried = self.items(scope, source, &carried.arg)?;
        let mut captured = Vec::new();
        for list in rest {
            captured.extend(self.items(scope, source, &list.arg)?);
        }
        let mut args = Vec::new();
        for part in [condition, body] {
            let Argument::Graph(graph) = &part.arg else { return Err(malformed("while_loop", node)) };
            let inner = self.new_block();
            let mut operands = Vec::new();
            for (input, initial) in graph.graph.inputs.iter().zip(&carried) {
                operands.push(self.loop_param(inner, &graph.graph, input, initial)?);
            }
            operands.extend(captured.iter().cloned());
            self.inner(scope, inner, &graph.graph, &operands)?;
            args.push(Arg::Block(inner));
        }
        args.push(Arg::List(carried));
        self.push(scope, import, Op::While, args)?;
        Ok(())
    }

    /// `map_impl(body, sequences, captured)` and `scan(body, carried, sequences, captured)`.
    fn scan(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>, is_map: bool) -> Result<(), Error> {
        let NodeImport { source, node, .. } = import;
        let name = if is_map { "map" } else { "scan" };
        let (body, rest) = node.inputs.split_first().ok_or_else(|| malformed(name, node))?;
        let Argument::Graph(graph) = &body.arg else { return Err(malformed(name, node)) };
        let mut lists = rest.iter().map(|list| self.items(scope, source, &list.arg)).collect::<Result<Vec<_>, _>>()?;
        if is_map {
            lists.insert(0, Vec::new());
        }
        let [carried, sequences, captured @ ..] = lists.as_slice() else { return Err(malformed(name, node)) };
        let inner = self.new_block();
        let mut operands = Vec::new();
        for (input, initial) in graph.graph.inputs.iter().zip(carried.iter().chain(sequences)) {
            operands.push(self.loop_param(inner, &graph.graph, input, initial)?);
        }
        operands.extend(captured.iter().flatten().cloned());
        self.inner(scope, inner, &graph.graph, &operands)?;
        let args = vec![Arg::Block(inner), Arg::List(carried.clone()), Arg::List(sequences.clone())];
        self.push(scope, import, Op::Scan, args)?;
        Ok(())
    }

    /// `wrap_with_autocast(device, dtype, is enabled, caches, graph, arguments…)`.
    fn autocast_region(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>) -> Result<(), Error> {
        let is_enabled = match import.node.inputs.get(2).map(|input| &input.arg) {
            Some(Argument::Bool(is_enabled) | Argument::SymBool(SymBoolArgument::Bool(is_enabled))) => *is_enabled,
            _ => return Err(malformed("wrap_with_autocast", import.node)),
        };
        let outer = std::mem::replace(&mut self.is_autocast, is_enabled);
        let result = self.wrapped(scope, import);
        self.is_autocast = outer;
        result
    }

    /// A graph that is called once, in place.
    fn wrapped(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>) -> Result<(), Error> {
        let NodeImport { source, node, block, .. } = import;
        let graph = node.inputs.iter().enumerate().find_map(|(at, input)| match &input.arg {
            Argument::Graph(graph) => Some((at, graph)),
            _ => None,
        });
        let (at, graph) = graph.ok_or_else(|| malformed("wrapper", node))?;
        let mut operands = Vec::new();
        for input in node.inputs.iter().skip(at + 1) {
            operands.push(self.argument(scope, source, &input.arg)?);
        }
        let results = self.inline(scope, block, &graph.graph, &operands)?;
        let names = node.outputs.iter().flat_map(names);
        for (name, result) in names.zip(results) {
            scope.insert(name, Binding::Arg(result));
        }
        Ok(())
    }

    /// A parameter of a loop's block.
    fn loop_param(
        &mut self,
        block: BlockId,
        source: &Source<'a>,
        input: &Argument<'a>,
        initial: &Arg,
    ) -> Result<Arg, Error> {
        let name = names(input).into_iter().next().unwrap_or_default();
        let ty = match (input, initial) {
            (Argument::Tensor(tensor), _) => Type::Tensor(self.tensor_type_in(source, &tensor.name, false)?),
            (Argument::SymInt(_), _) => Type::Int(self.sym_int(source, &name)?),
            (_, Arg::Value(value)) => self.graph.ty(*value).clone(),
            // A literal that the loop does not change.
            _ => return Ok(initial.clone()),
        };
        let arg = match &ty {
            Type::Int(expr) => Some(Arg::Int(expr.clone())),
            _ => None,
        };
        let value: ValueId = self.graph.param(block, &name, ty);
        Ok(arg.unwrap_or(Arg::Value(value)))
    }

    /// The nodes of a graph into a block of its own, with its inputs bound to `operands`.
    fn inner(&mut self, scope: &Scope, block: BlockId, graph: &Source<'a>, operands: &[Arg]) -> Result<(), Error> {
        let results = self.inline(scope, block, graph, operands)?;
        self.graph.blocks[block].results = results;
        Ok(())
    }

    fn inline(
        &mut self,
        scope: &Scope,
        block: BlockId,
        graph: &Source<'a>,
        operands: &[Arg],
    ) -> Result<Vec<Arg>, Error> {
        if graph.inputs.len() != operands.len() {
            return Err(Error::invalid("a graph is called with the wrong number of arguments")
                .expected(graph.inputs.len())
                .got(operands.len()));
        }
        // Weights that wrap tensors are seen inside; all other names are the graph's own.
        let wraps = |(name, binding): (&String, &Binding)| match binding {
            Binding::Subclass(_) => Some((name.clone(), binding.clone())),
            Binding::Arg(_) | Binding::Token => None,
        };
        let mut inner: Scope = scope.iter().filter_map(wraps).collect();
        for (input, operand) in graph.inputs.iter().zip(operands) {
            for name in names(input) {
                inner.insert(name, Binding::Arg(operand.clone()));
            }
        }
        self.nodes(&mut inner, block, graph)?;
        let mut results = Vec::new();
        for output in &graph.outputs {
            match self.argument(&inner, graph, output)? {
                Arg::List(items) => results.extend(items),
                arg => results.push(arg),
            }
        }
        Ok(results)
    }

    fn items(&mut self, scope: &Scope, source: &Source<'a>, list: &Argument<'a>) -> Result<Vec<Arg>, Error> {
        Ok(match self.argument(scope, source, list)? {
            Arg::List(items) => items,
            Arg::None => Vec::new(),
            arg => vec![arg],
        })
    }
}

/// The names that an input or result binds.
fn names(argument: &Argument<'_>) -> Vec<String> {
    use super::super::schema::{SymBoolArgument, SymFloatArgument, SymIntArgument};
    match argument {
        Argument::Tensor(tensor) => vec![tensor.name.to_string()],
        Argument::Tensors(tensors) => tensors.iter().map(|tensor| tensor.name.to_string()).collect(),
        Argument::SymInt(SymIntArgument::Name(name))
        | Argument::SymFloat(SymFloatArgument::Name(name))
        | Argument::SymBool(SymBoolArgument::Name(name)) => vec![name.to_string()],
        _ => Vec::new(),
    }
}

pub(super) fn malformed(name: &str, node: &Node<'_>) -> Error {
    Error::invalid(format!("a `{name}` with unusual arguments")).got(format!("{} arguments", node.inputs.len()))
}
