//! The compiled model: its methods, and the constants and states that they share.

use std::sync::Arc;

use indexmap::IndexMap;
use rushlight_format::Blob;
use rushlight_format::signature::{SIGNATURE_KEY, Signature};

use crate::{Arena, Bytes, Constant, ConstantData, Error, Graph, Id, Origin, Schemas, TensorType};

/// A program being compiled.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The methods by name, in the order of the file.
    pub methods: IndexMap<String, Graph>,
    /// Tensors whose content is known.
    pub constants: Arena<Constant>,
    /// Tensors that keep their values between calls.
    pub states: Arena<State>,
    /// Parts that backends compiled.
    pub delegates: Arena<Delegate>,
    /// Methods that return constants: names with their values.
    pub constant_methods: IndexMap<String, Vec<Literal>>,
    /// Blobs that delegates look up by key.
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

/// A part of a graph that a backend compiled.
#[derive(Clone, Debug)]
pub struct Delegate {
    pub backend: String,
    pub payload: Bytes,
    pub compile_specs: Vec<(String, Vec<u8>)>,
    /// The reason why its nodes could not be lifted into the graph, if a front end was asked to lift them.
    pub refusal: Option<Error>,
    /// The nodes that the backend compiled into it, for the debug map.
    pub nodes: Vec<PartNode>,
}

/// A node that a backend compiled: the full name of its operator, and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct PartNode {
    pub op: String,
    pub origin: Origin,
}

/// A constant that a method returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    None,
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    Tensor(ConstantId),
}

impl State {
    /// The bytes of an element before the first call, if all elements are the same and stored only once.
    pub fn repeated(&self) -> Option<Vec<u8>> {
        let Self { name, ty, initial } = self;
        let size = ty.dtype.size();
        if let ConstantData::Zeros = initial {
            return Some(vec![0; size]);
        }
        let bytes = Constant { name: name.clone(), ty: ty.clone(), data: initial.clone() }.in_place()?;
        let first = bytes.get(..size)?;
        bytes.chunks_exact(size).all(|element| element == first).then(|| first.to_vec())
    }

    /// True if all elements are zeros before the first call.
    pub fn is_zeros(&self) -> bool {
        self.repeated().is_some_and(|element| element.iter().all(|byte| *byte == 0))
    }
}

impl Model {
    /// The names and nesting of a method's inputs and outputs, if the model has them.
    pub fn signature(&self, method: &str) -> Option<Signature> {
        let (_, blob) = self.named_data.iter().find(|(key, _)| key == SIGNATURE_KEY)?;
        let graph = self.methods.get(method)?;
        let signature = Signature::of(blob.in_place()?, method).ok()??;
        Some(signature).filter(|signature| signature.fits(graph.inputs.len(), graph.outputs.len()))
    }

    /// Adds state, or finds the one of that name.
    pub fn state(&mut self, name: &str) -> Option<StateId> {
        self.states.iter().find(|(_, state)| state.name == name).map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use rushlight_format::ScalarType;

    use super::*;

    #[test]
    fn elements_of_states_are_compared() {
        let state = |initial| State { name: "s".into(), ty: TensorType::of(ScalarType::Float, &[2, 2]), initial };
        let floats = |numbers: [f32; 4]| -> Bytes { numbers.map(f32::to_le_bytes).concat().into() };
        let strided = |numbers, strides: [usize; 2]| {
            let strides = strides.to_vec();
            state(ConstantData::Strided { storage: floats(numbers), offset: 0, strides })
        };
        assert!(state(ConstantData::Zeros).is_zeros());
        assert!(strided([0.0; 4], [2, 1]).is_zeros());
        let ones = state(ConstantData::Dense(floats([1.0; 4])));
        assert_eq!((ones.repeated(), ones.is_zeros()), (Some(1.0f32.to_le_bytes().to_vec()), false));
        assert_eq!(strided([0.0, 0.0, 0.0, 1.0], [2, 1]).repeated(), None);
        assert_eq!(strided([0.0; 4], [1, 2]).repeated(), None);
    }
}
