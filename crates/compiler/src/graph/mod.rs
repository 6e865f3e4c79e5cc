//! The compiler's intermediate form: what front ends produce, passes transform and the emitter writes.
//!
//! A [`Model`] has methods, each a [`Graph`], and what they share: constants and state. A graph is in SSA form: nodes
//! call operators on values and define new ones, nothing is written twice, and tensors never alias. Control flow nests
//! [`Block`]s, which may use the values of the blocks around them.
//!
//! Sizes are [`Expr`]essions over the graph's symbols, and stand directly in arguments: no node computes a size until
//! the passes at the end make the ones that the program needs.

mod arena;
mod builder;
mod constant;
pub mod expr;
mod gather;
pub mod schema;
pub mod text;
pub mod types;
mod verify;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use rushlight_format::ScalarType;

use crate::Bytes;
use crate::error::Error;

pub use arena::{Arena, Id};
pub use builder::{Action, Builder, bind};
pub(crate) use builder::{substitute, substitute_outputs};
pub(crate) use constant::row_major_strides;
pub use constant::{Computed, Constant, ConstantData};
pub use expr::{Expr, MAX_NODES, Symbol, SymbolId, Symbols};
pub use schema::{Kind, Param, Schema, Schemas};
pub use types::{Granularity, Quantization, TensorType, Type};

/// A program being compiled.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// By name, in the order of the file.
    pub methods: IndexMap<String, Graph>,
    /// Tensors whose content is known.
    pub constants: Arena<Constant>,
    /// Tensors that live from call to call.
    pub states: Arena<State>,
    /// Parts that backends compiled.
    pub delegates: Arena<Delegate>,
    /// Methods that return constants: names with their values.
    pub constant_methods: IndexMap<String, Vec<Literal>>,
    /// Blobs that delegates find by key.
    pub named_data: Vec<(String, Bytes)>,
    /// What the operators take and give.
    pub schemas: Arc<Schemas>,
}

pub type ConstantId = Id<Constant>;
pub type StateId = Id<State>;
pub type DelegateId = Id<Delegate>;
pub type ValueId = Id<Value>;
pub type NodeId = Id<Node>;
pub type BlockId = Id<Block>;
pub type OriginId = Id<Origin>;

/// A tensor that keeps its value between calls, such as a KV cache.
#[derive(Clone, Debug)]
pub struct State {
    /// The name of the buffer in the PyTorch module. Methods that share state refer to one [`State`].
    pub name: String,
    pub ty: TensorType,
    /// The value before the first call.
    pub initial: ConstantData,
}

/// What a backend made of a part of a graph.
#[derive(Clone, Debug)]
pub struct Delegate {
    pub backend: String,
    pub payload: Bytes,
    pub compile_specs: Vec<(String, Vec<u8>)>,
    /// Why the nodes in it do not stand in the graph, if a front end was asked for that.
    pub refusal: Option<Error>,
    /// The nodes that a backend compiled to it, for the debug map.
    pub nodes: Vec<PartNode>,
}

/// A node that a backend compiled: the full name of its operator, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct PartNode {
    pub op: String,
    pub origin: Origin,
}

/// A value that a method returns as it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    None,
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    Tensor(ConstantId),
}

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
    /// What a call takes, in order.
    pub inputs: Vec<Input>,
    /// What a call returns, in order.
    pub outputs: Vec<Arg>,
    /// What a call stores when it ends.
    pub updates: Vec<Update>,
    /// Pytree text of the inputs and outputs; may be empty.
    pub input_encoding: String,
    pub output_encoding: String,
    constants: HashMap<ConstantId, ValueId>,
    states: HashMap<StateId, ValueId>,
}

/// An input of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A tensor or number that the caller gives.
    Value(ValueId),
    /// A value that was fixed when the model was exported; the caller must give the same.
    Literal(Arg),
}

/// A store at the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub target: Target,
    pub value: ValueId,
}

/// What a call stores to.
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

/// Where a value comes from.
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

/// A call of an operator.
#[derive(Clone, Debug)]
pub struct Node {
    pub op: Op,
    /// For an operator, one for each parameter of its schema. For control flow, see [`Op`].
    pub args: Vec<Arg>,
    /// The results. A list of tensors counts as its elements.
    pub results: Vec<ValueId>,
    pub origin: OriginId,
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum Op {
    /// An operator with a schema.
    Call(Arc<Schema>),
    /// `cond(predicate, then block, else block)`: the blocks have no parameters and give the results.
    Cond,
    /// `while_loop(condition block, body block, [carried…])`: both blocks take the carried values; the condition gives
    /// one boolean, the body the next carried values; the last are the results.
    While,
    /// `scan(body block, [carried…], [sequences…])`: the body takes the carried values and a slice of each sequence
    /// along dimension 0; it gives the next carried values and slices of the results, which are stacked. The results
    /// are the last carried values and the stacks. Without carried values this is a map.
    Scan,
    /// Runs a delegate on its arguments.
    Delegate(DelegateId),
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    None,
    /// A tensor, or a number that a node computes.
    Value(ValueId),
    /// An integer, or the size that an expression gives.
    Int(Expr),
    Float(f64),
    Bool(bool),
    Str(String),
    Complex(f64, f64),
    DType(ScalarType),
    Layout(Layout),
    Device(String),
    MemoryFormat(MemoryFormat),
    List(Vec<Arg>),
    Block(BlockId),
}

/// How a tensor's elements are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Strided,
    /// Any of the sparse layouts, which no runtime takes.
    Sparse,
}

/// PyTorch's orders of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFormat {
    Contiguous,
    Preserve,
    ChannelsLast,
    ChannelsLast3d,
}

/// A sequence of nodes.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub params: Vec<ValueId>,
    pub nodes: Vec<NodeId>,
    /// What the block gives. The body of a method gives [`Graph::outputs`] instead.
    pub results: Vec<Arg>,
}

/// Where a node comes from in the model's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The node of the exported program.
    pub node: String,
    /// The path of the module that was called, such as `encoder.layers.0.self_attn`.
    pub module: String,
    /// The Python stack, outermost call first.
    pub frames: Arc<[SourceFrame]>,
}

/// A line of Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceFrame {
    pub file: String,
    pub line: u32,
    pub function: String,
    pub code: String,
}

impl Origin {
    /// The innermost frame of the model's own code: lines of PyTorch's modules are the same for every layer. Where there
    /// is no other, one of these.
    pub fn frame(&self) -> Option<&SourceFrame> {
        self.frames.iter().rev().find(|frame| !frame.is_torch()).or(self.frames.last())
    }

    /// `file:line in function: code` of [`frame`](Self::frame).
    pub fn line(&self) -> Option<String> {
        let frame = self.frame()?;
        Some(format!("{}:{} in {}: {}", frame.file, frame.line, frame.function, frame.code))
    }
}

impl SourceFrame {
    /// Reads `file:line in function: code`, as [`Origin::line`] writes it; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (place, rest) = text.split_once(" in ")?;
        let (file, line) = place.rsplit_once(':')?;
        let (function, code) = rest.split_once(": ")?;
        let line = line.parse().ok()?;
        Some(Self { file: file.to_owned(), line, function: function.to_owned(), code: code.to_owned() })
    }

    /// Whether the file is one of an installed PyTorch, or of its modules wherever it is.
    fn is_torch(&self) -> bool {
        let path: Vec<&str> = self.file.split(['/', '\\']).collect();
        path.windows(2).any(|pair| matches!(pair, ["site-packages" | "dist-packages", "torch"] | ["torch", "nn"]))
    }
}

impl Model {
    /// Adds state, or finds the one of that name.
    pub fn state(&mut self, name: &str) -> Option<StateId> {
        self.states.iter().find(|(_, state)| state.name == name).map(|(id, _)| id)
    }
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
            constants: HashMap::new(),
            states: HashMap::new(),
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
        ty.as_tensor().ok_or_else(|| Error::type_error(format!("`{name}` is no tensor")))
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

impl Op {
    /// The full name of the operator, or of the control flow.
    pub fn name(&self) -> &str {
        match self {
            Self::Call(schema) => &schema.name,
            Self::Cond => "cond",
            Self::While => "while_loop",
            Self::Scan => "scan",
            Self::Delegate(_) => "delegate",
        }
    }

    /// The schema, if it has one.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        match self {
            Self::Call(schema) => Some(schema),
            _ => None,
        }
    }
}

impl Node {
    /// The blocks that it runs.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.args.iter().filter_map(|arg| match arg {
            Arg::Block(block) => Some(*block),
            _ => None,
        })
    }

    /// The argument of a parameter.
    pub fn arg(&self, param: &str) -> Option<&Arg> {
        self.args.get(self.op.schema()?.position(param)?)
    }

    /// Its only result, or the first.
    pub fn result(&self) -> Option<ValueId> {
        self.results.first().copied()
    }
}

impl Arg {
    /// Visits every value in it.
    pub fn for_each_value(&self, visit: &mut impl FnMut(ValueId)) {
        match self {
            Self::Value(value) => visit(*value),
            Self::List(items) => items.iter().for_each(|item| item.for_each_value(visit)),
            _ => {}
        }
    }

    /// Replaces every value in it.
    pub fn map_values(&mut self, replace: &mut impl FnMut(ValueId) -> ValueId) {
        match self {
            Self::Value(value) => *value = replace(*value),
            Self::List(items) => items.iter_mut().for_each(|item| item.map_values(replace)),
            _ => {}
        }
    }

    /// Visits every integer expression in it.
    pub fn for_each_expr(&self, visit: &mut impl FnMut(&Expr)) {
        match self {
            Self::Int(expr) => visit(expr),
            Self::List(items) => items.iter().for_each(|item| item.for_each_expr(visit)),
            _ => {}
        }
    }

    /// The value, if it is one.
    pub const fn as_value(&self) -> Option<ValueId> {
        match self {
            Self::Value(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether it is nothing.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl From<ValueId> for Arg {
    fn from(value: ValueId) -> Self {
        Self::Value(value)
    }
}

impl From<Option<ValueId>> for Arg {
    fn from(value: Option<ValueId>) -> Self {
        value.map_or(Self::None, Self::Value)
    }
}

impl From<Expr> for Arg {
    fn from(expr: Expr) -> Self {
        Self::Int(expr)
    }
}

impl From<i64> for Arg {
    fn from(int: i64) -> Self {
        Self::Int(Expr::Int(int))
    }
}

impl From<f64> for Arg {
    fn from(float: f64) -> Self {
        Self::Float(float)
    }
}

impl From<bool> for Arg {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<ScalarType> for Arg {
    fn from(dtype: ScalarType) -> Self {
        Self::DType(dtype)
    }
}

impl From<Vec<Expr>> for Arg {
    fn from(items: Vec<Expr>) -> Self {
        Self::List(items.into_iter().map(Self::Int).collect())
    }
}

impl From<&[i64]> for Arg {
    fn from(items: &[i64]) -> Self {
        Self::List(items.iter().map(|item| Self::from(*item)).collect())
    }
}

impl<const N: usize> From<[i64; N]> for Arg {
    fn from(items: [i64; N]) -> Self {
        Self::from(items.as_slice())
    }
}

impl From<Vec<ValueId>> for Arg {
    fn from(items: Vec<ValueId>) -> Self {
        Self::List(items.into_iter().map(Self::Value).collect())
    }
}

impl MemoryFormat {
    /// c10's number of the format.
    pub const fn code(self) -> i64 {
        match self {
            Self::Contiguous => 0,
            Self::Preserve => 1,
            Self::ChannelsLast => 2,
            Self::ChannelsLast3d => 3,
        }
    }
}

impl fmt::Display for MemoryFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contiguous => "contiguous_format",
            Self::Preserve => "preserve_format",
            Self::ChannelsLast => "channels_last",
            Self::ChannelsLast3d => "channels_last_3d",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_models_own_where_there_are_any() {
        let frame = |file: &str, line| SourceFrame { file: file.into(), line, ..SourceFrame::default() };
        let torch = [frame("/usr/lib/torch/nn/modules/linear.py", 2), frame("C:\\site-packages\\torch\\_ops.py", 3)];
        let origin = |frames: &[SourceFrame]| Origin { frames: frames.into(), ..Origin::default() };
        assert_eq!(origin(&torch).frame(), torch.last());
        let mut frames = vec![frame("main.py", 9), frame("/home/me/torch/model.py", 1)];
        frames.extend(torch);
        assert_eq!(origin(&frames).frame().map(|frame| frame.line), Some(1));
        assert_eq!(origin(&[]).line(), None);
    }
}
