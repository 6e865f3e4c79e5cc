//! Nodes of a program.

use rushlight_format::ScalarType;
use rushlight_graph::Error;
use rushlight_graph::operators::{aten, executorch_prim, export};
use rushlight_graph::ops::{self, Operands};
use rushlight_graph::{Arg, BlockId, Expr, Kind, NodeId, Op, OriginId, Schema, TensorType, Type, ValueId, bind};

use super::super::schema::{
    Argument, Graph as Source, NamedArgument, Node, OptionalTensorArgument, SymBoolArgument, SymFloatArgument,
    SymIntArgument, Text,
};
use super::effects::is_check;
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

/// Operators for whose states torch records wrong shapes.
const RECURRENT: &[&str] = &["aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"];

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
            Some(name) if is_check(&name) => self.check(scope, import, &name, &node.inputs),
            Some(name) if name == export::ACCESS_SUBCLASS_INNER_TENSOR => self.access_subclass(scope, node),
            Some(name) => self.call(scope, import, &name),
            None => self.python_operator(scope, import),
        }
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
        // The namespace of torchao's operators before torchao 0.11.
        let current = name.strip_prefix("quant::").map(|name| format!("torchao::{name}"));
        let current = current.filter(|name| self.model.schemas.get(name).is_some());
        let name = current.as_deref().unwrap_or(name);
        let schema = match self.model.schemas.get(name) {
            Some(schema) => schema,
            None => {
                self.custom.insert(name.to_owned());
                self.model.schemas.add(opaque(name, node))
            }
        };
        // Exports omit arguments that have their defaults, and only the operator's author knows the defaults.
        let is_same_call = schema.params.len() == node.inputs.len();
        if self.custom.contains(name) && !is_same_call {
            return Err(Error::unsupported(format!("`{name}` is called with different numbers of arguments"))
                .expected(schema.params.len())
                .got(node.inputs.len())
                .help("pass all of its arguments at each call, those with defaults too"));
        }
        let mut named = Vec::with_capacity(node.inputs.len());
        for (index, NamedArgument { name, arg, .. }) in node.inputs.iter().enumerate() {
            if is_default_of_torchao(&schema.name, name, arg)? {
                continue;
            }
            let arg = self.argument(scope, source, arg)?;
            let name = schema.position(name).or(Some(index)).and_then(|at| schema.params.get(at));
            let name = name.ok_or_else(|| Error::invalid(format!("too many arguments for `{}`", schema.name)))?;
            named.push((name.name.as_str(), arg));
        }
        let mut args = bind(&schema, Vec::new(), &named)?;
        if self.is_autocast {
            self.autocast(import, &schema, &mut args)?;
        }
        self.count_from_start(&schema, &mut args);
        let id = self.push(scope, import, Op::Call(schema), args)?;
        self.trust_inference(id);
        self.bound_data_dependent(id);
        self.bound_part(id);
        Ok(())
    }

    /// Replaces recorded types by inferred ones where torch is known to record wrong types. Up to 2.11 it records an extra dimension for
    /// the states of recurrent layers, and so wrong shapes for the values computed from them. It records integers for a boolean to the
    /// power of one, which is a boolean, and `f32` for `ldexp` of an integer and a 16-bit float.
    fn trust_inference(&mut self, id: NodeId) {
        let node = &self.graph.nodes[id];
        let Op::Call(schema) = &node.op else { return };
        let is_truth = |arg: Option<&Arg>| matches!(arg, Some(Arg::Bool(_)));
        let is_power = *schema.name == *aten::POW_TENSOR_SCALAR && is_truth(node.args.get(1));
        let mut is_wrong = RECURRENT.contains(&schema.base_name()) || is_power || *schema.name == *aten::LDEXP_TENSOR;
        node.args.iter().for_each(|arg| arg.for_each_value(&mut |value| is_wrong |= self.corrected.contains(&value)));
        if !is_wrong {
            return;
        }
        let operands = Operands::new(schema, &node.args).with_results(&node.results);
        let Ok(types) = ops::infer(&operands, &self.graph) else { return };
        if types.len() != node.results.len() {
            return;
        }
        for (ty, result) in types.into_iter().zip(node.results.clone()) {
            self.replace_shape(result, ty);
        }
    }

    /// Replaces the type of a tensor by `ty` if both have the same dtype and contradictory shapes. Also replaces an integer by a boolean,
    /// and `f32` by a 16-bit float.
    pub(super) fn replace_shape(&mut self, value: ValueId, ty: Type) {
        if let (Type::Tensor(wanted), Type::Tensor(recorded)) = (&ty, self.graph.ty(value))
            && match (wanted.dtype, recorded.dtype) {
                (ScalarType::Bool, ScalarType::Long) | (ScalarType::Half | ScalarType::BFloat16, ScalarType::Float) => {
                    true
                }
                (wanted_dtype, dtype) => wanted_dtype == dtype && !agree(&wanted.shape, &recorded.shape),
            }
        {
            self.graph.values[value].ty = ty;
            self.corrected.insert(value);
        }
    }

    /// Converts the tensor arguments of an operator as `torch.autocast` does: to the recorded dtype of the result, if the operator would
    /// return another dtype.
    fn autocast(&mut self, import: NodeImport<'_, 'a>, schema: &Schema, args: &mut [Arg]) -> Result<(), Error> {
        let NodeImport { source, node, block, origin } = import;
        let mut recorded = Vec::new();
        for output in &node.outputs {
            self.results(source, output, &mut recorded)?;
        }
        let Ok(types) = ops::infer(&Operands::new(schema, args), &self.graph) else { return Ok(()) };
        let mut dtypes = types.iter().zip(&recorded).filter_map(|(ty, (_, recorded))| {
            let (ty, recorded) = (ty.as_tensor()?.dtype, recorded.as_tensor()?.dtype);
            (ty != recorded && ty.is_floating() && recorded.is_floating()).then_some(recorded)
        });
        let Some(dtype) = dtypes.next_back() else { return Ok(()) };
        let cast = self.model.schemas.expect(aten::_TO_COPY)?;
        let items = args.iter_mut().flat_map(|arg| match arg {
            Arg::List(items) => items.iter_mut().collect::<Vec<_>>(),
            arg => vec![arg],
        });
        for arg in items {
            let Some(value) = arg.as_value() else { continue };
            let Type::Tensor(ty) = self.graph.ty(value) else { continue };
            if !ty.dtype.is_floating() || ty.dtype == dtype || ty.dtype == ScalarType::Double {
                continue;
            }
            let ty = TensorType { dtype, ..ty.clone() };
            let name = format!("{}_cast", self.graph.values[value].name);
            let to = bind(&cast, vec![value.into()], &[("dtype", dtype.into())])?;
            let node = self.graph.push_node(block, Op::Call(cast.clone()), to, origin, [(name, Type::Tensor(ty))]);
            *arg = self.graph.nodes[node].result().into();
        }
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
                | aten::_UNIQUE2
                | aten::UNIQUE_DIM
                | aten::UNIQUE_CONSECUTIVE
                | aten::TENSOR_SPLIT_TENSOR_INDICES_OR_SECTIONS
        );
        let Some(input) = node.args.first().and_then(Arg::as_value).filter(|_| picks) else { return };
        let Type::Tensor(input) = self.graph.ty(input) else { return };
        let Some(upper_bound) = self.sizes.upper_bound(&input.numel()) else { return };
        let results = node.results.clone();
        for result in results {
            if let Type::Tensor(tensor) = self.graph.ty(result) {
                let sizes: Vec<Expr> = tensor.shape.clone();
                sizes.iter().for_each(|size| self.sizes.bound(size, upper_bound));
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
        if node.target.starts_with("torch._functorch.predispatch.") {
            return Err(Error::unsupported("`torch.vmap`, which the program has not resolved")
                .got(&*node.target)
                .help("resolve it before saving: `program = program.run_decompositions({})`"));
        }
        let unknown = || {
            Error::unsupported(format!("`{}` on numbers", node.target))
                .help("compute it with tensors, or from sizes that are fixed at export")
        };
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
            "_operator.pos" => {
                let arg = self.plain_arguments(scope, source, node)?.pop().ok_or_else(unknown)?;
                bind_results(scope, node, &arg);
                return Ok(());
            }
            "_operator.and_" | "_operator.or_" => return self.logical(scope, import),
            "math.floor" => {
                let args = self.plain_arguments(scope, source, node)?;
                let schema = self.model.schemas.expect(executorch_prim::FLOORDIV_SCALAR)?;
                let args = [args, vec![Arg::from(1)]].concat();
                let floor =
                    self.graph.push_node(block, Op::Call(schema), args, origin, [("floor".to_owned(), Type::Float)]);
                let floor = self.graph.nodes[floor].result().ok_or_else(unknown)?;
                let schema = self.model.schemas.expect(executorch_prim::TRUNC_SCALAR)?;
                self.push(scope, import, Op::Call(schema), vec![floor.into()])?;
                return Ok(());
            }
            "_operator.pow" => return self.by_tensors(scope, import, aten::POW_TENSOR_TENSOR),
            "torch.sym_sqrt" | "torch._sym_sqrt" | "math.sqrt" => return self.by_tensors(scope, import, aten::SQRT),
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

    /// `a and b` as `b if a else False`, and `a or b` as `True if a else b`.
    fn logical(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>) -> Result<(), Error> {
        let NodeImport { source, node, .. } = import;
        let args = self.plain_arguments(scope, source, node)?;
        let [a, b] = args.as_slice() else {
            return Err(Error::invalid(format!("`{}` takes two operands", node.target)));
        };
        let is_and = &*node.target == "_operator.and_";
        for (one, other) in [(a, b), (b, a)] {
            if let Arg::Bool(known) = one {
                let result = if *known == is_and { other.clone() } else { Arg::Bool(*known) };
                bind_results(scope, node, &result);
                return Ok(());
            }
        }
        let is_truth = |arg: &Arg| arg.as_value().is_some_and(|value| *self.graph.ty(value) == Type::Bool);
        if !is_truth(a) || !is_truth(b) {
            return Err(Error::unsupported(format!("`{}` on integers that the program computes", node.target))
                .help("combine conditions instead, or compute with tensors"));
        }
        let args = if is_and {
            vec![a.clone(), b.clone(), Arg::Bool(false)]
        } else {
            vec![a.clone(), Arg::Bool(true), b.clone()]
        };
        let schema = self.model.schemas.expect(executorch_prim::SYM_ITE_SCALAR)?;
        self.push(scope, import, Op::Call(schema), args)?;
        Ok(())
    }

    /// Imports a function of numbers that runtimes have for tensors alone: converts each number to a tensor of one double, and reads the
    /// result back.
    fn by_tensors(&mut self, scope: &mut Scope, import: NodeImport<'_, 'a>, name: &str) -> Result<(), Error> {
        let NodeImport { source, node, block, origin } = import;
        let double = || Type::Tensor(TensorType::new(ScalarType::Double, Vec::new()));
        let call = |importer: &mut Self, name: &str, args: Vec<Arg>, named: &[(&str, Arg)], ty: Type| {
            let schema = importer.model.schemas.expect(name)?;
            let args = bind(&schema, args, named)?;
            let label = name.trim_start_matches("aten::").replace('.', "_");
            let node = importer.graph.push_node(block, Op::Call(schema), args, origin, [(label, ty)]);
            importer.graph.nodes[node].result().ok_or_else(|| Error::invalid("a call without a result"))
        };
        let mut operands = Vec::new();
        for arg in self.plain_arguments(scope, source, node)? {
            let dtype = [("dtype", ScalarType::Double.into())];
            operands.push(call(self, aten::SCALAR_TENSOR, vec![arg], &dtype, double())?.into());
        }
        let result = call(self, name, operands, &[], double())?;
        if let [Argument::SymFloat(_)] = &*node.outputs {
            let schema = self.model.schemas.expect(aten::_LOCAL_SCALAR_DENSE)?;
            self.push(scope, import, Op::Call(schema), vec![result.into()])?;
        } else {
            let number = call(self, aten::_LOCAL_SCALAR_DENSE, vec![result.into()], &[], Type::Float)?;
            let schema = self.model.schemas.expect(executorch_prim::SYM_INT_SCALAR)?;
            self.push(scope, import, Op::Call(schema), vec![number.into()])?;
        }
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

/// Binds the results of a node to `arg`, its operand.
fn bind_results(scope: &mut Scope, node: &Node<'_>, arg: &Arg) {
    for output in &node.outputs {
        let (Argument::SymInt(SymIntArgument::Name(name))
        | Argument::SymFloat(SymFloatArgument::Name(name))
        | Argument::SymBool(SymBoolArgument::Name(name))) = output
        else {
            continue;
        };
        scope.insert(name.to_string(), Binding::Arg(arg.clone()));
    }
}

/// True if shapes do not contradict each other.
fn agree(a: &[Expr], b: &[Expr]) -> bool {
    let same = |(a, b): (&Expr, &Expr)| !a.is_static() || !b.is_static() || a == b;
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// True for an argument of older torchao versions with the only value that later versions support.
fn is_default_of_torchao(schema: &str, name: &str, arg: &Argument<'_>) -> Result<bool, Error> {
    if !schema.starts_with("torchao::") {
        return Ok(false);
    }
    let is_known = match (name, arg) {
        ("zero_point_domain", Argument::String(domain)) => &**domain == "INT",
        ("preserve_zero", Argument::Bool(preserve)) => *preserve,
        ("zero_point_domain" | "preserve_zero" | "min_val" | "max_val", Argument::None) => true,
        ("zero_point_domain" | "preserve_zero", _) => false,
        _ => return Ok(false),
    };
    if is_known {
        return Ok(true);
    }
    Err(Error::unsupported(format!("`{schema}` with the argument `{name}`"))
        .expected("zero points that are integers, and a zero that is kept")
        .got(format!("{arg:?}"))
        .help("quantize the model with torchao 0.11 or later, or with another configuration"))
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
