//! The model being compiled: its methods and what they share.

use std::sync::Arc;

use indexmap::IndexMap;
use rushlight_format::Blob;

use crate::{Arena, Bytes, Constant, ConstantData, Error, Graph, Id, Origin, Schemas, TensorType};

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
    pub named_data: Vec<(String, Blob<'static>)>,
    /// Schemas of the operators.
    pub schemas: Arc<Schemas>,
}

pub type ConstantId = Id<Constant>;
pub type StateId = Id<State>;
pub type DelegateId = Id<Delegate>;

/// A tensor that keeps its value between calls, such as a KV cache.
#[derive(Clone, Debug)]
pub struct State {
    /// The name of the buffer in the PyTorch module. Methods that share state refer to one [`State`].
    pub name: String,
    pub ty: TensorType,
    /// The value before the first call.
    pub initial: ConstantData,
}

/// A part of a graph that a back end compiled.
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

impl Model {
    /// Adds state, or finds the one of that name.
    pub fn state(&mut self, name: &str) -> Option<StateId> {
        self.states.iter().find(|(_, state)| state.name == name).map(|(id, _)| id)
    }
}
