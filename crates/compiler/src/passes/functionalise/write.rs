//! Functionalizes nodes that write to their arguments.

use std::sync::Arc;

use rushlight_graph::operators::aten;
use rushlight_graph::ops::{self, Operands};
use rushlight_graph::{
    Arg, BlockId, Builder, Def, Id, Node, NodeId, Op, Schema, Schemas, TensorType, Type, Value, ValueId, bind,
};
use rushlight_graph::{Error, ErrorKind};

use super::Walk;
use super::memory::{Owner, TrackedTensor};
use super::view::{converted, copied};

/// The arguments that a node writes to.
#[derive(Debug)]
pub(super) struct Writes {
    /// Positions of the parameters that are written.
    params: Vec<usize>,
    /// True if the results are the written tensors, in order.
    results_are_written: bool,
}

/// Batch normalizations update their statistics although their schemas do not say so.
const BATCH_NORMS: [&str; 2] = [aten::BATCH_NORM, aten::NATIVE_BATCH_NORM];
const FUNCTIONAL_BATCH_NORM: &str = aten::_NATIVE_BATCH_NORM_LEGIT_FUNCTIONAL;

impl Writes {
    /// Returns the written arguments; `None` for a node that writes nothing.
    pub fn of(node: &Node) -> Option<Self> {
        let schema = node.op.schema()?;
        if BATCH_NORMS.contains(&schema.name.as_str()) {
            let trains = node.arg("training") == Some(&Arg::Bool(true));
            let params = ["running_mean", "running_var"].into_iter().map(|name| schema.position(name));
            let params = params.collect::<Option<Vec<_>>>()?;
            let given = params.iter().all(|param| node.args.get(*param).is_some_and(|arg| !arg.is_none()));
            return (trains && given).then_some(Self { params, results_are_written: false });
        }
        let params = schema.params.iter().enumerate().filter(|(_, param)| param.writes).map(|(index, _)| index);
        let params: Vec<usize> = params.collect();
        let keyword = params.last().and_then(|last| schema.params.get(*last));
        let is_out = keyword.is_some_and(|param| !schema.flags.in_place && param.default.is_none());
        let results_are_written = is_out || schema.base_name().ends_with('_');
        (!params.is_empty()).then_some(Self { params, results_are_written })
    }
}

impl Walk<'_> {
    /// Replaces a node that writes.
    pub(super) fn writing_node(&mut self, node: NodeId, writes: &Writes, block: BlockId) -> Result<(), Error> {
        let Some(schema) = self.graph.nodes[node].op.schema().cloned() else { return Ok(()) };
        if !ops::written_caches(&schema).is_empty() {
            return self.cache_node(node, &schema, writes, block);
        }
        let twin = self.twin(&schema)?;
        if twin.flags.view {
            // The node changes the shape of the tensor in place: from here on the tensor's name stands for a view of
            // it.
            let args = rename(&schema, &twin, &self.graph.nodes[node].args)?;
            self.set_op(node, Op::Call(twin), args);
            return self.view_node(node, block);
        }
        let targets = self.targets(node, writes, block)?;
        if let [target] = targets.as_slice()
            && let Some(content) = self.overwritten(&schema, node, *target, block)?
        {
            self.write(*target, content, block)?;
            self.hand_over_name(node, content);
            self.name_results(node, writes, &targets);
            return Ok(());
        }
        self.read_args(node, block)?;
        let args = rename(&schema, &twin, &self.graph.nodes[node].args)?;
        let contents = self.become_twin(node, twin, args, writes, &targets, block)?;
        for (target, content) in targets.iter().zip(contents) {
            self.write(*target, content, block)?;
        }
        self.name_results(node, writes, &targets);
        Ok(())
    }

    /// Replaces a node that writes to KV caches.
    fn cache_node(&mut self, node: NodeId, schema: &Schema, writes: &Writes, block: BlockId) -> Result<(), Error> {
        let targets = self.targets(node, writes, block)?;
        self.read_args(node, block)?;
        let (args, results) = (self.graph.nodes[node].args.clone(), self.graph.nodes[node].results.clone());
        let mut builder = self.builder(block);
        let Some(update) = ops::update_caches(&mut builder, &Operands::new(schema, &args))? else { return Ok(()) };
        for (target, (_, content)) in targets.into_iter().zip(update.caches) {
            self.write(target, content, block)?;
        }
        for result in results {
            let Type::Tensor(ty) = self.graph.ty(result).clone() else { continue };
            let value = match update.result {
                Some(value) => value,
                // A placeholder without content.
                None => {
                    let dtype = [("dtype", ty.dtype.into())];
                    let shape = ty.shape.clone().into();
                    self.builder(block).one_with(aten::FULL, vec![shape, 0.into()], &dtype)?
                }
            };
            let tensor = self.memory.add_base(value, ty, Owner::Node, block);
            self.memory.add_name(result, tensor);
        }
        Ok(())
    }

    /// Returns the functional operator that computes what `schema` writes.
    fn twin(&self, schema: &Schema) -> Result<Arc<Schema>, Error> {
        let functional = |out: &str| {
            let known = Schemas::table().flatten().find(|known| known.out_variant.as_deref() == Some(out));
            known.map(|known| known.name)
        };
        let name = match &schema.twin {
            Some(twin) => Some(twin.clone()),
            None if BATCH_NORMS.contains(&schema.name.as_str()) => Some(FUNCTIONAL_BATCH_NORM.into()),
            None => functional(&schema.name),
        };
        let name = name.ok_or_else(|| {
            let written: Vec<_> = schema.params.iter().filter(|param| param.writes).map(|param| &param.name).collect();
            Error::unsupported(format!("`{}` writes to {written:?} and has no functional form", schema.name))
        })?;
        self.schemas.expect(&name)
    }

    /// Returns the tensors that a node writes.
    fn targets(&mut self, node: NodeId, writes: &Writes, block: BlockId) -> Result<Vec<Id<TrackedTensor>>, Error> {
        let mut targets = Vec::new();
        for param in &writes.params {
            let arg = self.graph.nodes[node].args.get(*param).cloned().unwrap_or(Arg::None);
            let items = match &arg {
                Arg::List(items) => items.as_slice(),
                one => std::slice::from_ref(one),
            };
            for item in items {
                let value =
                    item.as_value().ok_or_else(|| Error::type_error("a write to a value that is not a tensor"))?;
                let target = self.tensor_of(value, block);
                targets.push(target.ok_or_else(|| Error::type_error("a write to a value that is not a tensor"))?);
            }
        }
        Ok(targets)
    }

    /// Returns the new content, for operators that do not read the old one.
    fn overwritten(
        &mut self,
        schema: &Schema,
        node: NodeId,
        target: Id<TrackedTensor>,
        block: BlockId,
    ) -> Result<Option<ValueId>, Error> {
        let ty = self.memory.tensor(target).ty.clone();
        let fill = |walk: &mut Self, value: Arg| {
            let schema = walk.schemas.expect(aten::FULL)?;
            let args = bind(&schema, vec![ty.shape.clone().into(), value], &[("dtype", ty.dtype.into())])?;
            let ty = Type::Tensor(TensorType::new(ty.dtype, ty.shape.clone()));
            Ok(walk.builder(block).push(Op::Call(schema), args, vec![ty]).first().copied())
        };
        match schema.name.as_str() {
            aten::ZERO_ => fill(self, Arg::from(0)),
            aten::FILL__SCALAR => {
                let value = self.graph.nodes[node].args.get(1).cloned().unwrap_or(Arg::None);
                if matches!(value, Arg::Value(_)) { Ok(None) } else { fill(self, value) }
            }
            aten::COPY_ | aten::FILL__TENSOR => {
                self.read_args(node, block)?;
                let source = Operands::new(schema, &self.graph.nodes[node].args).value(1)?;
                copied(&mut self.builder(block), source, &ty).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Makes a node a call of its functional variant, and returns the new contents of the tensors that it wrote.
    fn become_twin(
        &mut self,
        node: NodeId,
        twin: Arc<Schema>,
        args: Vec<Arg>,
        writes: &Writes,
        targets: &[Id<TrackedTensor>],
        block: BlockId,
    ) -> Result<Vec<ValueId>, Error> {
        let returned = if writes.results_are_written { 0 } else { self.graph.nodes[node].results.len() };
        let types = match ops::infer(&Operands::new(&twin, &args), self.graph) {
            Ok(types) if types.len() >= returned + targets.len() => types,
            // Lowering computes types that the compiler does not know; here the exported types suffice.
            Ok(_) => self.exported_types(node, &twin, returned, targets),
            Err(error) if error.kind() == ErrorKind::Unsupported => self.exported_types(node, &twin, returned, targets),
            Err(error) => return Err(error),
        };
        let first = types.len() - targets.len();
        let names: Vec<_> = targets.iter().map(|target| self.name_of(*target)).collect();
        for (index, ty) in types.into_iter().enumerate() {
            if let Some(result) = self.graph.nodes[node].results.get(index).copied() {
                if index >= returned {
                    self.graph.values[result].ty = ty;
                }
                continue;
            }
            let stem = index.checked_sub(first).and_then(|at| names.get(at)).map_or("unused", String::as_str);
            let name = format!("{stem}_{}", self.graph.values.len());
            let value = self.graph.values.push(Value { name, ty, def: Def::Result(node, index as u32) });
            self.graph.nodes[node].results.push(value);
        }
        self.set_op(node, Op::Call(twin), args);
        self.place(node, block);
        let results = self.graph.nodes[node].results.clone();
        let mut contents = Vec::new();
        for (target, result) in targets.iter().zip(results.into_iter().skip(first)) {
            let wanted = self.memory.tensor(*target).ty.clone();
            let got = self.graph.tensor(result)?.clone();
            let differs =
                |(a, b): (&rushlight_graph::Expr, &rushlight_graph::Expr)| a.is_static() && b.is_static() && a != b;
            if got.rank() != wanted.rank() || got.shape.iter().zip(&wanted.shape).any(differs) {
                return Err(Error::type_error(format!("a write gives `{}` another shape", self.name_of(*target)))
                    .expected(Type::Tensor(wanted).display(&self.graph.symbols))
                    .got(Type::Tensor(got).display(&self.graph.symbols)));
            }
            let same = got.dtype == wanted.dtype;
            contents.push(if same { result } else { converted(&mut self.builder(block), result, wanted.dtype)? });
        }
        Ok(contents)
    }

    /// Returns the types of a twin's results, as far as the exported program has them.
    fn exported_types(&self, node: NodeId, twin: &Schema, returned: usize, targets: &[Id<TrackedTensor>]) -> Vec<Type> {
        let target = |target: &Id<TrackedTensor>| {
            let TensorType { dtype, shape, .. } = &self.memory.tensor(*target).ty;
            Type::Tensor(TensorType::new(*dtype, shape.clone()))
        };
        let mut types: Vec<Type> =
            self.graph.nodes[node].results.iter().take(returned).map(|value| self.graph.ty(*value).clone()).collect();
        // The statistics of the batch, which a batch norm with one result does not return.
        let hidden = twin.returns.len().saturating_sub(returned + targets.len());
        types.extend(targets.iter().cycle().take(hidden).map(target));
        types.extend(targets.iter().map(target));
        types
    }

    /// Records that the results of a node are the tensors that it wrote.
    fn name_results(&mut self, node: NodeId, writes: &Writes, targets: &[Id<TrackedTensor>]) {
        if writes.results_are_written {
            for (result, target) in self.graph.nodes[node].results.iter().zip(targets) {
                self.memory.add_name(*result, *target);
            }
        }
    }

    /// Gives the content that replaces a node the name of the node's result.
    fn hand_over_name(&mut self, node: NodeId, content: ValueId) {
        let Some(result) = self.graph.nodes[node].results.first() else { return };
        let name = self.graph.values[*result].name.clone();
        let Value { name: known, def, .. } = &mut self.graph.values[content];
        if matches!(def, Def::Result(..)) && known.ends_with(&format!("_{}", content.index())) {
            *known = name;
        }
    }

    fn write(&mut self, target: Id<TrackedTensor>, content: ValueId, block: BlockId) -> Result<(), Error> {
        let storage = self.memory.storage(target);
        let name = self.name_of(storage.base);
        if storage.owner == Owner::Constant {
            return Err(Error::unsupported(format!("a write to `{name}`, which is constant"))
                .help("only buffers and inputs may be written; register what changes as a buffer"));
        }
        if storage.owner == Owner::Carried || storage.block != block {
            return Err(Error::unsupported(format!(
                "a write in control flow to `{name}`, which is from outside of it"
            ))
            .help("return the new value from the branch or the loop's body"));
        }
        let mut b = Builder::new(self.graph, self.constants, self.schemas, block, self.origin);
        self.memory.write(&mut b, target, content)
    }

    fn name_of(&self, tensor: Id<TrackedTensor>) -> String {
        self.graph.values[self.memory.tensor(tensor).value()].name.clone()
    }

    fn builder(&mut self, block: BlockId) -> Builder<'_> {
        Builder::new(self.graph, self.constants, self.schemas, block, self.origin)
    }
}

/// Returns the arguments of `from` for the schema `to`: by name, else by position.
fn rename(from: &Schema, to: &Schema, args: &[Arg]) -> Result<Vec<Arg>, Error> {
    let named: Vec<(&str, Arg)> = from
        .params
        .iter()
        .zip(args)
        .enumerate()
        .filter_map(|(index, (param, arg))| {
            let known = to.position(&param.name).and_then(|position| to.params.get(position));
            // A parameter with another name is matched by its position.
            let by_place = || to.params.get(index).filter(|param| from.position(&param.name).is_none());
            Some((known.or_else(by_place)?.name.as_str(), arg.clone()))
        })
        .collect();
    bind(to, Vec::new(), &named)
}
