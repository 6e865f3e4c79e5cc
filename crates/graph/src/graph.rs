//! The graph of a method, in SSA form.

use rustc_hash::FxHashMap;

use crate::*;

pub type ValueId = Id<Value>;
pub type NodeId = Id<Node>;
pub type BlockId = Id<Block>;
pub type OriginId = Id<Origin>;

/// A method.
#[derive(Clone, Debug)]
pub struct Graph {
    pub values: Arena<Value>,
    pub nodes: Arena<Node>,
    pub blocks: Arena<Block>,
    pub symbols: Symbols,
    pub origins: Arena<Origin>,
    /// The block that a call runs.
    pub body: BlockId,
    /// Inputs of a call, in order.
    pub inputs: Vec<Input>,
    /// Results of a call, in order.
    pub outputs: Vec<Arg>,
    /// Stores to states and inputs at the end of a call.
    pub updates: Vec<Update>,
    /// Pytree text of the inputs and outputs; may be empty.
    pub input_encoding: String,
    pub output_encoding: String,
    constants: FxHashMap<ConstantId, ValueId>,
    states: FxHashMap<StateId, ValueId>,
}

/// An input of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A tensor or number of the caller's.
    Value(ValueId),
    /// A value that was fixed when the model was exported; the caller must pass the same.
    Literal(Arg),
}

/// A store at the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub target: Target,
    pub value: ValueId,
}

/// The target of an [`Update`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    State(StateId),
    /// An input of the method, by position: the caller sees the change.
    Input(u32),
}

/// A value: the input of a block, a constant, state, or a result of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique in the graph, as far as the front end gave unique names; for people.
    pub name: String,
    pub ty: Type,
    pub def: Def,
}

/// The definition of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// A parameter of a block; of the body, an input of the method.
    Param(BlockId),
    Constant(ConstantId),
    /// The content of a state when the call begins.
    State(StateId),
    /// A result of a node, by position.
    Result(NodeId, u32),
}

/// A sequence of nodes.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub params: Vec<ValueId>,
    pub nodes: Vec<NodeId>,
    /// Results of the block. The body of a method has [`Graph::outputs`] instead.
    pub results: Vec<Arg>,
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Graph {
    /// A method that does nothing.
    pub fn new() -> Self {
        let mut blocks = Arena::new();
        let body = blocks.push(Block::default());
        Self {
            values: Arena::new(),
            nodes: Arena::new(),
            blocks,
            symbols: Symbols::new(),
            origins: Arena::new(),
            body,
            inputs: Vec::new(),
            outputs: Vec::new(),
            updates: Vec::new(),
            input_encoding: String::new(),
            output_encoding: String::new(),
            constants: FxHashMap::default(),
            states: FxHashMap::default(),
        }
    }

    /// Adds an input of the method.
    pub fn input(&mut self, name: &str, ty: Type) -> ValueId {
        let id = self.param(self.body, name, ty);
        self.inputs.push(Input::Value(id));
        id
    }

    /// Adds a parameter to a block.
    pub fn param(&mut self, block: BlockId, name: &str, ty: Type) -> ValueId {
        let id = self.values.push(Value { name: name.into(), ty, def: Def::Param(block) });
        self.blocks[block].params.push(id);
        id
    }

    /// The value of a constant.
    pub fn constant(&mut self, id: ConstantId, constants: &Arena<Constant>) -> ValueId {
        let values = &mut self.values;
        *self.constants.entry(id).or_insert_with(|| {
            let Constant { name, ty, .. } = &constants[id];
            values.push(Value { name: name.clone(), ty: Type::Tensor(ty.clone()), def: Def::Constant(id) })
        })
    }

    /// The content of a state when a call begins.
    pub fn state(&mut self, id: StateId, states: &Arena<State>) -> ValueId {
        let values = &mut self.values;
        *self.states.entry(id).or_insert_with(|| {
            let State { name, ty, .. } = &states[id];
            values.push(Value { name: name.clone(), ty: Type::Tensor(ty.clone()), def: Def::State(id) })
        })
    }

    /// Adds a node at the end of a block, with new values for its results.
    pub fn push_node(
        &mut self,
        block: BlockId,
        op: Op,
        args: Vec<Arg>,
        origin: OriginId,
        results: impl IntoIterator<Item = (String, Type)>,
    ) -> NodeId {
        let node = self.nodes.push(Node { op, args, results: Vec::new(), origin });
        for (index, (name, ty)) in results.into_iter().enumerate() {
            let value = self.values.push(Value { name, ty, def: Def::Result(node, index as u32) });
            self.nodes[node].results.push(value);
        }
        self.blocks[block].nodes.push(node);
        node
    }

    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> &Type {
        &self.values[value].ty
    }

    /// The tensor type of a value.
    pub fn tensor(&self, value: ValueId) -> Result<&TensorType, Error> {
        let Value { name, ty, .. } = &self.values[value];
        ty.as_tensor().ok_or_else(|| Error::type_error(format!("`{name}` is not a tensor")))
    }

    /// The node that computes a value, if one does.
    pub fn producer(&self, value: ValueId) -> Option<&Node> {
        match self.values[value].def {
            Def::Result(node, _) => Some(&self.nodes[node]),
            _ => None,
        }
    }

    /// The constant that a value is, if it is one.
    pub fn constant_of(&self, value: ValueId) -> Option<ConstantId> {
        match self.values[value].def {
            Def::Constant(id) => Some(id),
            _ => None,
        }
    }

    /// Visits the nodes of a block and of the blocks in it, in the order in which they run; a node comes after those of
    /// its blocks' insides.
    pub fn for_each_node(&self, block: BlockId, visit: &mut impl FnMut(NodeId)) {
        for node in &self.blocks[block].nodes {
            for inner in self.nodes[*node].blocks() {
                self.for_each_node(inner, visit);
            }
            visit(*node);
        }
    }

    /// Every block that runs, outermost first.
    pub fn live_blocks(&self) -> Vec<BlockId> {
        self.blocks_within(self.body)
    }

    /// A block and the blocks in it, outermost first.
    pub fn blocks_within(&self, block: BlockId) -> Vec<BlockId> {
        let mut blocks = vec![block];
        let mut next = 0;
        while let Some(block) = blocks.get(next).copied() {
            for node in &self.blocks[block].nodes {
                blocks.extend(self.nodes[*node].blocks());
            }
            next += 1;
        }
        blocks
    }

    /// Visits every value that is used: by nodes of live blocks, results of blocks, outputs and updates.
    pub fn for_each_use(&self, visit: &mut impl FnMut(ValueId)) {
        for block in self.live_blocks() {
            let block = &self.blocks[block];
            for node in &block.nodes {
                self.nodes[*node].args.iter().for_each(|arg| arg.for_each_value(visit));
            }
            block.results.iter().for_each(|arg| arg.for_each_value(visit));
        }
        self.outputs.iter().for_each(|arg| arg.for_each_value(visit));
        self.updates.iter().for_each(|update| visit(update.value));
    }

    /// Returns the nodes that use each value, in the order of the blocks; `None` stands for the results of blocks and of the
    /// method.
    pub fn users(&self) -> FxHashMap<ValueId, Vec<Option<NodeId>>> {
        let mut users: FxHashMap<ValueId, Vec<Option<NodeId>>> = FxHashMap::default();
        let mut add = |arg: &Arg, user| arg.for_each_value(&mut |value| users.entry(value).or_default().push(user));
        for block in self.live_blocks() {
            let block = &self.blocks[block];
            for node in &block.nodes {
                self.nodes[*node].args.iter().for_each(|arg| add(arg, Some(*node)));
            }
            block.results.iter().for_each(|arg| add(arg, None));
        }
        self.outputs.iter().for_each(|arg| add(arg, None));
        self.updates.iter().for_each(|update| users.entry(update.value).or_default().push(None));
        users
    }

    /// Visits every value that a node uses, in its blocks too.
    pub fn for_each_use_by(&self, node: NodeId, visit: &mut impl FnMut(ValueId)) {
        self.nodes[node].args.iter().for_each(|arg| arg.for_each_value(visit));
        for block in self.nodes[node].blocks() {
            self.for_each_node(block, &mut |inner| {
                self.nodes[inner].args.iter().for_each(|arg| arg.for_each_value(visit));
            });
            for inner in self.blocks_within(block) {
                self.blocks[inner].results.iter().for_each(|arg| arg.for_each_value(visit));
            }
        }
    }

    /// Visits every symbol in the size arguments of a node, in its blocks too.
    pub fn for_each_symbol_by(&self, node: NodeId, visit: &mut impl FnMut(SymbolId)) {
        let mut of_args = |args: &[Arg]| {
            args.iter().for_each(|arg| arg.for_each_expr(&mut |size| size.for_each_symbol(visit)));
        };
        of_args(&self.nodes[node].args);
        for block in self.nodes[node].blocks() {
            self.for_each_node(block, &mut |inner| of_args(&self.nodes[inner].args));
            for inner in self.blocks_within(block) {
                of_args(&self.blocks[inner].results);
            }
        }
    }

    /// The error with the place of a node: its name, operator and line of Python.
    pub fn locate(&self, error: Error, node: NodeId) -> Error {
        let node = &self.nodes[node];
        let origin = &self.origins[node.origin];
        error.at(format!("node `{}` ({})", origin.node, node.op.name())).from_line(origin.line().as_deref())
    }
}
