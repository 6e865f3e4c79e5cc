//! Methods for the tests of passes.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    reason = "only tests call it, which fail by panics"
)]

pub mod filetests;

use rushlight_format::ScalarType;

use crate::{Arg, Block, BlockId, Graph, Model, Op, Origin, OriginId, Schemas, TensorType, Type, ValueId, bind};

use crate::Pass;

/// A model with one method.
#[derive(Debug)]
pub struct Method {
    pub model: Model,
}

/// The type of a tensor of floats.
pub fn float(sizes: &[i64]) -> Type {
    Type::Tensor(TensorType::of(ScalarType::Float, sizes))
}

impl Method {
    pub fn new() -> Self {
        let mut model = Model::default();
        model.add_method("forward", Graph::new()).origins.push(Origin::default());
        Self { model }
    }

    pub fn graph(&mut self) -> &mut Graph {
        &mut self.model.methods["forward"]
    }

    /// Calls an operator with one result in the body.
    pub fn call(&mut self, name: &str, args: Vec<Arg>, ty: Type) -> ValueId {
        let body = self.graph().body;
        self.call_in(body, name, args, ty)
    }

    /// Calls an operator with one result.
    pub fn call_in(&mut self, block: BlockId, name: &str, args: Vec<Arg>, ty: Type) -> ValueId {
        let schema = Schemas::new().expect(name).unwrap();
        let args = bind(&schema, args, &[]).unwrap();
        let graph = self.graph();
        let name = format!("v{}", graph.values.len());
        let node = graph.push_node(block, Op::Call(schema), args, OriginId::new(0), [(name, ty)]);
        graph.nodes[node].results[0]
    }

    /// Calls an operator in the body, with results of the types that it infers.
    pub fn calls(&mut self, name: &str, args: Vec<Arg>) -> Vec<ValueId> {
        let (body, origin) = (self.graph().body, OriginId::new(0));
        self.model.builder("forward", body, origin).unwrap().call(name, args).unwrap()
    }

    /// A condition between two blocks that `fill` fills, each with one result.
    pub fn cond(&mut self, mut fill: impl FnMut(&mut Self, BlockId) -> ValueId) -> ValueId {
        let blocks = [(); 2].map(|()| {
            let block = self.graph().blocks.push(Block::default());
            let result = fill(self, block);
            self.graph().blocks[block].results = vec![result.into()];
            block
        });
        let graph = self.graph();
        let ty = graph.ty(graph.blocks[blocks[0]].results[0].as_value().unwrap()).clone();
        let args = vec![Arg::Bool(true), Arg::Block(blocks[0]), Arg::Block(blocks[1])];
        let node = graph.push_node(graph.body, Op::Cond, args, OriginId::new(0), [("cond".into(), ty)]);
        graph.nodes[node].results[0]
    }

    /// Runs a pass, and returns the names of the operators that are left, those in blocks before what runs these.
    pub fn after(&mut self, pass: &impl Pass) -> Vec<String> {
        self.model.verify().unwrap();
        pass.run(&mut self.model).unwrap();
        self.model.verify().unwrap();
        let graph = self.graph();
        let mut names = Vec::new();
        graph.for_each_node(graph.body, &mut |node| names.push(graph.nodes[node].op.name().to_owned()));
        names
    }
}
