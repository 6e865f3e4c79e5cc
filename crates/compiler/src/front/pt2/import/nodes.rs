//! Nodes of a program.

use rushlight_graph::Error;
use rushlight_graph::operators::{aten, executorch_prim, export};
use rushlight_graph::{Arg, BlockId, Expr, Kind, NodeId, Op, OriginId, Schema, Type, bind};

use super::super::schema::{
    Argument, Graph as Source, NamedArgument, Node, OptionalTensorArgument, SymBool, SymBoolArgument, SymFloatArgument,
    SymIntArgument, Text,
};
use super::guards;
use super::{Binding, Importer, Scope};

/// The full name of an operator that a node calls; `None` for Python's operators and higher-order ones.
pub(super) fn operator_name(target: &str) -> Option<String> {
    let path = target.strip_prefix("torch.ops.")?;
    let (namespace, rest) = path.split_once('.')?;
    if namespace == "higher_order" {
        return None;
    }
    let (name, overload) = rest.rsplit_once('.')?;
    Some(match overload {
        "default" => format!("{namespace}::{name}"),
        overload => format!("{namespace}::{name}.{overload}"),
    })
}

/// Operators that only check or promise something.
const CHECKS: &[&str] = &[
    aten::_ASSERT_ASYNC,
    aten::_ASSERT_ASYNC_MSG,
    aten::_ASSERT_SCALAR,
    aten::_ASSERT_TENSOR_METADATA,
    aten::SYM_CONSTRAIN_RANGE,
    aten::SYM_CONSTRAIN_RANGE_FOR_SIZE,
    aten::_FUNCTIONAL_ASSERT_SCALAR,
    aten::_FUNCTIONAL_ASSERT_ASYNC_MSG,
    // Without tensors it is not among the schemas, and has no constant.
    "aten::_print",
];

/// A serialized node, and where it is imported.
#[derive(Clone, Copy)]
pub(super) struct NodeImport<'n, 'a> {
    /// The serialized graph that the node is in.
    pub(super) source: &'n Source<'a>,
    pub(super) node: &'n Node<'a>,
    /// The block that it is imported into.
    pub(super) block: BlockId,
    pub(super) origin: OriginId,
}

impl<'a> Importer<'_, '_, 'a> {
    /// The nodes of a graph of the program, into a block.
    pub(super) fn nodes(&mut self, scope: &mut Scope, block: BlockId, source: &Source<'a>) -> Result<(), Error> {
        for node in &source.nodes {
            let origin = self.origin(node);
            self.node(scope, NodeImport { source, node, block, origin }).map_err(|error| {
                let line = self.graph.origins[origin].line();
                let name = node.name.as_deref().unwrap_or_default();
                error.at(format!("node `{name}` ({})", node.target)).from_line(line.as_deref())
            })?;
        }
        Ok(())
    }

    fn node(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>) -> Result<(), Error> {
        let node = import.node;
        if let Some(hop) = node.target.strip_prefix("torch.ops.higher_order.") {
            return self.higher_order(scope, import, hop);
        }
        match operator_name(&node.target) {
            Some(name) if CHECKS.contains(&name.as_str()) => self.check(import, &name),
            Some(name) if name == export::ACCESS_SUBCLASS_INNER_TENSOR => self.access_subclass(scope, node),
            Some(name) => self.call(scope, import, &name),
            None => self.python_operator(scope, import),
        }
    }

    /// Notes a condition on sizes, which becomes a rule about the inputs. Others are left to the operators, which check the
    /// sizes and indices that they are given.
    fn check(&mut self, import: NodeImport<'_, 'a>, name: &str) -> Result<(), Error> {
        let NodeImport { source, node, block, .. } = import;
        let asserts = matches!(name, aten::_ASSERT_SCALAR | aten::_FUNCTIONAL_ASSERT_SCALAR);
        // What a branch asserts need not hold where another is taken.
        let condition = node.inputs.first().filter(|_| asserts && block == self.graph.body);
        let Some(Argument::SymBool(SymBoolArgument::Name(condition))) = condition.map(|input| &input.arg) else {
            return Ok(());
        };
        let Some(SymBool::Expr(expr)) = source.sym_bool_values.get(condition) else { return Ok(()) };
        let message = node.inputs.get(1).and_then(|input| match &input.arg {
            Argument::String(text) => Some(text.as_str()),
            _ => None,
        });
        let text = message.and_then(|message| message.strip_prefix("Runtime assertion failed for expression "));
        let text = text.map_or(&*expr.expr_str, |text| text.split_once(" on node").map_or(text, |(text, _)| text));
        if !self.sizes.is_of_inputs(&expr.expr_str) {
            return Ok(());
        }
        match self.sizes.formula(&expr.expr_str) {
            Some(formula) => self.asserted.push((formula, text.to_owned())),
            None => return Err(guards::not_understood(text)),
        }
        Ok(())
    }

    fn call(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>, name: &str) -> Result<(), Error> {
        let NodeImport { source, node, .. } = import;
        // A size that an expression gives needs no node.
        if let [Argument::SymInt(SymIntArgument::Name(result))] = &*node.outputs
            && let name = name
            && matches!(name, aten::SYM_SIZE_INT | aten::SYM_NUMEL | aten::SYM_STRIDE_INT)
        {
            let expr = self.sym_int(source, result)?;
            scope.insert(result.to_string(), Binding::Arg(Arg::Int(expr)));
            return Ok(());
        }
        let name = if name == aten::ITEM { aten::_LOCAL_SCALAR_DENSE } else { name };
        let schema = match self.model.schemas.get(name) {
            Some(schema) => schema,
            None => self.model.schemas.add(opaque(name, node)),
        };
        let mut named = Vec::with_capacity(node.inputs.len());
        for (index, NamedArgument { name, arg, .. }) in node.inputs.iter().enumerate() {
            let arg = self.argument(scope, source, arg)?;
            let name = schema.position(name).or(Some(index)).and_then(|at| schema.params.get(at));
            let name = name.ok_or_else(|| Error::invalid(format!("too many arguments for `{}`", schema.name)))?;
            named.push((name.name.as_str(), arg));
        }
        let args = bind(&schema, Vec::new(), &named)?;
        let id = self.push(scope, import, Op::Call(schema), args)?;
        self.bound_data_dependent(id);
        Ok(())
    }

    /// Adds a node, and binds the names of its results.
    pub(super) fn push(
        &mut self,
        scope: &mut Scope,
        import: NodeImport<'_, 'a>,
        op: Op,
        args: Vec<Arg>,
    ) -> Result<NodeId, Error> {
        let NodeImport { source, node, block, origin } = import;
        let mut results: Vec<(String, Type)> = Vec::new();
        for output in &node.outputs {
            self.results(source, output, &mut results)?;
        }
        let names: Vec<String> = results.iter().map(|(name, _)| name.clone()).collect();
        let id = self.graph.push_node(block, op, args, origin, results);
        for (name, value) in names.into_iter().zip(self.graph.nodes[id].results.clone()) {
            let arg = match self.graph.ty(value) {
                Type::Int(expr) => Arg::Int(expr.clone()),
                _ => Arg::Value(value),
            };
            scope.insert(name, Binding::Arg(arg));
        }
        Ok(id)
    }

    fn results(
        &mut self,
        source: &Source<'a>,
        output: &Argument<'a>,
        results: &mut Vec<(String, Type)>,
    ) -> Result<(), Error> {
        let mut tensor = |importer: &mut Self, name: &Text<'a>| -> Result<(), Error> {
            results.push((name.to_string(), Type::Tensor(importer.tensor_type_in(source, name, false)?)));
            Ok(())
        };
        match output {
            Argument::Tensor(result) => tensor(self, &result.name)?,
            Argument::OptionalTensor(OptionalTensorArgument::Tensor(result)) => tensor(self, &result.name)?,
            Argument::Tensors(items) => items.iter().try_for_each(|item| tensor(self, &item.name))?,
            Argument::OptionalTensors(items) => items.iter().try_for_each(|item| match item {
                OptionalTensorArgument::Tensor(item) => tensor(self, &item.name),
                _ => Ok(()),
            })?,
            Argument::SymInt(SymIntArgument::Name(name)) => {
                results.push((name.to_string(), Type::Int(self.sym_int(source, name)?)));
            }
            Argument::SymFloat(SymFloatArgument::Name(name)) => results.push((name.to_string(), Type::Float)),
            Argument::SymBool(SymBoolArgument::Name(name)) => results.push((name.to_string(), Type::Bool)),
            Argument::None | Argument::OptionalTensor(OptionalTensorArgument::None) => {}
            other => return Err(Error::unsupported(format!("a result of the kind `{}`", other.tag()))),
        }
        Ok(())
    }

    /// The number of elements that a condition picks is at most how many there are.
    fn bound_data_dependent(&mut self, id: NodeId) {
        let node = &self.graph.nodes[id];
        let picks = matches!(
            node.op.name(),
            aten::NONZERO
                | aten::NONZERO_NUMPY
                | aten::MASKED_SELECT
                | aten::ARGWHERE
                | aten::INDEX_TENSOR
                | aten::WHERE
        );
        let Some(input) = node.args.first().and_then(Arg::as_value).filter(|_| picks) else { return };
        let Type::Tensor(input) = self.graph.ty(input) else { return };
        let Some(most) = self.sizes.upper_bound(&input.numel()) else { return };
        let results = node.results.clone();
        for result in results {
            if let Type::Tensor(tensor) = self.graph.ty(result) {
                let sizes: Vec<Expr> = tensor.shape.clone();
                sizes.iter().for_each(|size| self.sizes.bound(size, most));
            }
        }
    }

    fn access_subclass(&mut self, scope: &mut Scope, node: &Node<'a>) -> Result<(), Error> {
        let [source, attribute] = &*node.inputs else {
            return Err(Error::invalid("`access_subclass_inner_tensor` takes a tensor and a name"));
        };
        let (Argument::Tensor(tensor), Argument::String(attribute), [Argument::Tensor(result)]) =
            (&source.arg, &attribute.arg, &*node.outputs)
        else {
            return Err(Error::invalid("`access_subclass_inner_tensor` takes a tensor and a name"));
        };
        let Some(Binding::Subclass(subclass)) = scope.get(&*tensor.name).cloned() else {
            return Err(Error::invalid(format!("`{}` wraps no tensors", tensor.name)));
        };
        let binding = self.inner_tensor(&subclass, attribute)?;
        scope.insert(result.name.to_string(), binding);
        Ok(())
    }

    /// Python's operators on numbers: those on integers are expressions, and need no node.
    fn python_operator(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>) -> Result<(), Error> {
        let NodeImport { source, node, block, origin } = import;
        if let [Argument::SymInt(SymIntArgument::Name(result))] = &*node.outputs {
            let expr = self.sym_int(source, result)?;
            if !self.is_opaque(&expr) {
                scope.insert(result.to_string(), Binding::Arg(Arg::Int(expr)));
                return Ok(());
            }
        }
        let unknown = || Error::unsupported(format!("`{}` on numbers", node.target));
        let name = match &*node.target {
            "_operator.add" => "add",
            "_operator.sub" => "sub",
            "_operator.mul" => "mul",
            "_operator.truediv" => "truediv",
            "_operator.floordiv" => "floordiv",
            "_operator.mod" => "mod",
            "_operator.neg" => "neg",
            "_operator.eq" => "eq",
            "_operator.lt" => "lt",
            "_operator.le" => "le",
            "_operator.gt" => "gt",
            "_operator.ge" => "ge",
            "torch.sym_float" => "sym_float",
            "torch.sym_int" => "sym_int",
            "torch.sym_not" => "sym_not",
            "torch.sym_ite" => "sym_ite",
            "torch.sym_max" => "sym_max",
            "torch.sym_min" => "sym_min",
            "math.trunc" => "trunc",
            "math.ceil" => "ceil",
            "round" => "round",
            // Not equal is not (equal).
            "_operator.ne" => {
                let args = self.plain_arguments(scope, source, node)?;
                let schema = self.model.schemas.expect(executorch_prim::EQ_SCALAR)?;
                let result = ("equal".to_owned(), Type::Bool);
                let equal = self.graph.push_node(block, Op::Call(schema), args, origin, [result]);
                let equal = self.graph.nodes[equal].result().ok_or_else(unknown)?;
                let schema = self.model.schemas.expect(executorch_prim::SYM_NOT_SCALAR)?;
                self.push(scope, import, Op::Call(schema), vec![equal.into()])?;
                return Ok(());
            }
            _ => return Err(unknown()),
        };
        let schema = self.model.schemas.expect(&format!("executorch_prim::{name}.Scalar"))?;
        let args = self.plain_arguments(scope, source, node)?;
        self.push(scope, import, Op::Call(schema), args)?;
        Ok(())
    }

    fn plain_arguments(&mut self, scope: &Scope, source: &Source<'a>, node: &Node<'a>) -> Result<Vec<Arg>, Error> {
        node.inputs.iter().map(|input| self.argument(scope, source, &input.arg)).collect()
    }

    /// True if an expression is just the symbol of a number that a node computes.
    fn is_opaque(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Symbol(symbol) if self.sizes.is_opaque(*symbol))
    }
}

/// A schema for an operator that no table knows, from how it is called.
fn opaque(name: &str, node: &Node<'_>) -> Schema {
    let kind = |arg: &Argument<'_>| match arg {
        Argument::Tensor(_) => Kind::Tensor,
        Argument::None | Argument::OptionalTensor(_) => Kind::Optional(Box::new(Kind::Tensor)),
        Argument::Tensors(_) => Kind::List(Box::new(Kind::Tensor), None),
        Argument::OptionalTensors(_) => Kind::List(Box::new(Kind::Optional(Box::new(Kind::Tensor))), None),
        Argument::Int(_) | Argument::SymInt(_) => Kind::Int,
        Argument::Ints(_) | Argument::SymInts(_) => Kind::List(Box::new(Kind::Int), None),
        Argument::Float(_) | Argument::SymFloat(_) => Kind::Float,
        Argument::Floats(_) => Kind::List(Box::new(Kind::Float), None),
        Argument::Bool(_) | Argument::SymBool(_) => Kind::Bool,
        Argument::Bools(_) => Kind::List(Box::new(Kind::Bool), None),
        Argument::String(_) => Kind::Str,
        other => Kind::Other(other.tag().to_owned()),
    };
    let params = node.inputs.iter().enumerate().map(|(index, input)| {
        let name = if input.name.is_empty() { format!("arg{index}") } else { input.name.to_string() };
        (name, kind(&input.arg))
    });
    Schema::opaque(name, params.collect(), node.outputs.iter().map(kind).collect())
}
