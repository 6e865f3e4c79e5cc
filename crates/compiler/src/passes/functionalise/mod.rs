//! Makes graphs functional. Programs of `torch.export` may change tensors in place, and views see such changes. In the
//! functional graph, every write is a new value, and each read gets the value that it would have seen.
//!
//! Writes to states and inputs become updates at the end of the call. Views stay operators, but their results are
//! tensors of their own.

mod layout;
mod memory;
mod view;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::FxHashSet;

use rushlight_graph::Error;
use rushlight_graph::operators::aten;
use rushlight_graph::{
    Arena, Arg, BlockId, Builder, Constant, Def, Expr, Graph, Id, Input, Model, Node, NodeId, Op, OriginId, Schemas,
    Target, Type, Update, ValueId,
};

pub(super) use layout::StridedLayout;
use memory::{Memory, Owner, TrackedTensor};
use rushlight_graph::Pass;
use view::{View, Views, returns_its_argument};
use write::Writes;

/// Replaces in-place operators by functional ones, and makes their effects on views, states and inputs explicit.
///
/// # Errors
/// Writes to constants, writes inside of control flow to tensors outside of it, and writes that have no functional
/// operator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Functionalise;

impl Pass for Functionalise {
    fn name(&self) -> &'static str {
        "functionalise"
    }

    fn run(&self, model: &mut Model) -> Result<(), Error> {
        let Model { methods, constants, schemas, .. } = model;
        for (name, graph) in methods {
            if needs_it(graph) {
                let origin = OriginId::new(0);
                let mut walk = Walk { graph, constants, schemas, memory: Memory::default(), origin };
                walk.method().map_err(|error| error.at(format!("method `{name}`")))?;
            }
        }
        Ok(())
    }
}

/// True if a graph writes to tensors, or accesses a storage directly (`as_strided`).
fn needs_it(graph: &Graph) -> bool {
    graph.live_blocks().into_iter().flat_map(|block| &graph.blocks[block].nodes).any(|node| {
        let node = &graph.nodes[*node];
        let of_storage = |schema: &Arc<rushlight_graph::Schema>| schema.base_name() == aten::AS_STRIDED;
        Writes::of(node).is_some() || node.op.schema().is_some_and(of_storage)
    })
}

/// Returns the layouts of a view's results, or those of its copying variant, in the storage of the first argument.
/// `None` for views that strides cannot express.
pub(super) fn layouts(node: &Node, graph: &Graph, of: &StridedLayout) -> Option<Vec<StridedLayout>> {
    match View::read(node, graph, Some(of)).ok()? {
        Views::Of(views) => views.into_iter().map(|(_, layout)| layout).collect(),
        Views::OfStorage { .. } | Views::Copies => None,
    }
}

/// A walk through a method in the order of execution.
struct Walk<'m> {
    graph: &'m mut Graph,
    constants: &'m mut Arena<Constant>,
    schemas: &'m Arc<Schemas>,
    memory: Memory,
    /// The origin of the visited node.
    origin: OriginId,
}

impl Walk<'_> {
    fn method(&mut self) -> Result<(), Error> {
        let body = self.graph.body;
        self.block(body)?;
        let mut outputs = std::mem::take(&mut self.graph.outputs);
        self.read_all(&mut outputs, body)?;
        self.graph.outputs = outputs;
        let mut updates = std::mem::take(&mut self.graph.updates);
        for update in &mut updates {
            update.value = self.read(update.value, body)?;
        }
        let written = self.memory.storages().filter(|storage| storage.generation > 0);
        let written: Vec<_> = written.map(|storage| (storage.owner, storage.base)).collect();
        for (owner, base) in written {
            let target = match owner {
                Owner::State(state) => Target::State(state),
                Owner::Input(input) => match self.graph.inputs.iter().position(|known| *known == Input::Value(input)) {
                    Some(position) => Target::Input(position as u32),
                    None => continue,
                },
                Owner::Node | Owner::Constant | Owner::Carried => continue,
            };
            // The program's own updates come after all of its writes.
            if updates.iter().all(|update| update.target != target) {
                let value = self.read_tensor(base, body)?;
                updates.push(Update { target, value });
            }
        }
        self.graph.updates = updates;
        Ok(())
    }

    /// Visits the nodes of a block, and replaces them.
    fn block(&mut self, block: BlockId) -> Result<(), Error> {
        for node in std::mem::take(&mut self.graph.blocks[block].nodes) {
            self.origin = self.graph.nodes[node].origin;
            self.node(node, block).map_err(|error| self.graph.locate(error, node))?;
        }
        if block != self.graph.body {
            let mut results = std::mem::take(&mut self.graph.blocks[block].results);
            self.read_all(&mut results, block)?;
            self.graph.blocks[block].results = results;
        }
        Ok(())
    }

    fn node(&mut self, node: NodeId, block: BlockId) -> Result<(), Error> {
        let inner: Vec<BlockId> = self.graph.nodes[node].blocks().collect();
        if !inner.is_empty() {
            self.read_captures(&inner, block)?;
            let origin = self.origin;
            inner.into_iter().try_for_each(|inner| self.block(inner))?;
            self.origin = origin;
        }
        if let Some(writes) = Writes::of(&self.graph.nodes[node]) {
            return self.writing_node(node, &writes, block);
        }
        let schema = self.graph.nodes[node].op.schema();
        if schema.is_some_and(|schema| schema.flags.view) || returns_its_argument(&self.graph.nodes[node]) {
            return self.view_node(node, block);
        }
        self.read_args(node, block)?;
        self.place(node, block);
        Ok(())
    }

    /// Puts a node at the end of a block, and records its results as tensors of their own.
    fn place(&mut self, node: NodeId, block: BlockId) {
        self.graph.blocks[block].nodes.push(node);
        for value in self.graph.nodes[node].results.clone() {
            if let Type::Tensor(ty) = self.graph.ty(value).clone() {
                self.memory.add_base(value, ty, Owner::Node, block);
            }
        }
    }

    fn view_node(&mut self, node: NodeId, block: BlockId) -> Result<(), Error> {
        let of = self.graph.nodes[node].args.first().and_then(Arg::as_value);
        let Some(tensor) = of.and_then(|of| self.tensor_of(of, block)) else {
            self.read_args(node, block)?;
            self.place(node, block);
            return Ok(());
        };
        self.read_args(node, block)?;
        let views = View::read(&self.graph.nodes[node], self.graph, self.memory.tensor(tensor).layout.as_ref())?;
        let (parent, views) = match views {
            Views::Copies => {
                self.place(node, block);
                return Ok(());
            }
            Views::Of(views) => (tensor, views),
            Views::OfStorage { size, stride, offset } => {
                let TrackedTensor { layout, .. } = self.memory.tensor(tensor);
                let base = self.memory.storage(tensor).base;
                let own = layout.as_ref().map_or(Expr::Int(0), |layout| layout.offset.clone());
                let offset = offset.unwrap_or(own);
                let content = self.read_tensor(base, block)?;
                if !self.memory.tensor(base).ty.is_contiguous() {
                    return Err(Error::unsupported("strides over a tensor whose dimensions are in another order"));
                }
                let args = [content.into(), size.clone(), stride.clone(), offset.clone().into()];
                self.graph.nodes[node].args = args.to_vec();
                (base, vec![(View::Strided { size, stride, offset }, None)])
            }
        };
        self.graph.blocks[block].nodes.push(node);
        let results = self.graph.nodes[node].results.clone();
        for (value, (view, layout)) in results.into_iter().zip(views) {
            if let Type::Tensor(ty) = self.graph.ty(value).clone() {
                self.memory.add_view(value, ty, parent, view, layout);
            }
        }
        Ok(())
    }

    /// Updates the tensors that the blocks of a control flow node use, so that no update is needed inside.
    fn read_captures(&mut self, inner: &[BlockId], block: BlockId) -> Result<(), Error> {
        let mut used = Vec::new();
        let mut seen = FxHashSet::default();
        let mut note = |value| {
            if seen.insert(value) {
                used.push(value);
            }
        };
        let mut blocks = inner.to_vec();
        while let Some(block) = blocks.pop() {
            let block = &self.graph.blocks[block];
            for node in &block.nodes {
                let node = &self.graph.nodes[*node];
                node.args.iter().for_each(|arg| arg.for_each_value(&mut note));
                blocks.extend(node.blocks());
            }
            block.results.iter().for_each(|arg| arg.for_each_value(&mut note));
        }
        for value in used {
            if let Some(tensor) = self.memory.find(value) {
                self.read_tensor(tensor, block)?;
            }
        }
        Ok(())
    }

    /// Returns the tensor of a value; `None` for a number.
    fn tensor_of(&mut self, value: ValueId, block: BlockId) -> Option<Id<TrackedTensor>> {
        if let Some(tensor) = self.memory.find(value) {
            return Some(tensor);
        }
        let Type::Tensor(ty) = self.graph.ty(value).clone() else { return None };
        let body = self.graph.body;
        let (owner, block) = match self.graph.values[value].def {
            Def::Param(of) if of == body => (Owner::Input(value), body),
            Def::Param(of) => (Owner::Carried, of),
            Def::State(state) => (Owner::State(state), body),
            Def::Constant(_) => (Owner::Constant, body),
            Def::Result(..) => (Owner::Node, block),
        };
        Some(self.memory.add_base(value, ty, owner, block))
    }

    /// Returns the current value of a value of the original graph.
    fn read(&mut self, value: ValueId, block: BlockId) -> Result<ValueId, Error> {
        match self.memory.find(value) {
            Some(tensor) => self.read_tensor(tensor, block),
            None => Ok(value),
        }
    }

    fn read_tensor(&mut self, tensor: Id<TrackedTensor>, block: BlockId) -> Result<ValueId, Error> {
        let mut b = Builder::new(self.graph, self.constants, self.schemas, block, self.origin);
        self.memory.read(&mut b, tensor)
    }

    fn read_args(&mut self, node: NodeId, block: BlockId) -> Result<(), Error> {
        let mut args = std::mem::take(&mut self.graph.nodes[node].args);
        let done = self.read_all(&mut args, block);
        self.graph.nodes[node].args = args;
        done
    }

    fn read_all(&mut self, args: &mut [Arg], block: BlockId) -> Result<(), Error> {
        let mut failed = None;
        for arg in args {
            arg.map_values(&mut |value| match self.read(value, block) {
                Ok(value) => value,
                Err(error) => {
                    failed.get_or_insert(error);
                    value
                }
            });
        }
        failed.map_or(Ok(()), Err)
    }

    /// Replaces the operator and the arguments of a node.
    fn set_op(&mut self, node: NodeId, op: Op, args: Vec<Arg>) {
        let node = &mut self.graph.nodes[node];
        (node.op, node.args) = (op, args);
    }
}
