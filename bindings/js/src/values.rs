//! Tensors, and the arguments and results of a call.

use std::rc::Rc;

use rushlight::{Error, Input, ScalarType, Value};
use wasm_bindgen::prelude::*;

use crate::plain;

/// A row-major tensor, whose elements JavaScript reads and writes in place between calls.
#[wasm_bindgen]
#[derive(Clone, Debug)]
pub struct Tensor {
    tensor: Rc<rushlight::Tensor>,
    address: usize,
}

#[wasm_bindgen]
impl Tensor {
    /// Zeros, to be written. `dtype` is PyTorch's number of the element type.
    #[wasm_bindgen(constructor)]
    pub fn new(dtype: u8, shape: &[u32]) -> Result<Self, JsValue> {
        let shape: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
        let dtype = ScalarType::from_code(dtype).ok_or_else(|| JsValue::from("no element type has this number"))?;
        plain::map(rushlight::Tensor::zeros(dtype, &shape).map(Self::from))
    }

    #[wasm_bindgen(getter)]
    pub fn address(&self) -> usize {
        self.address
    }

    #[wasm_bindgen(getter)]
    pub fn nbytes(&self) -> usize {
        self.tensor.bytes().len()
    }

    #[wasm_bindgen(getter)]
    pub fn dtype(&self) -> u8 {
        self.tensor.dtype().code()
    }

    #[wasm_bindgen(getter)]
    pub fn shape(&self) -> Vec<u32> {
        self.tensor.shape().iter().map(|&size| size as u32).collect()
    }
}

impl From<rushlight::Tensor> for Tensor {
    fn from(mut tensor: rushlight::Tensor) -> Self {
        let address = tensor.bytes_mut().as_mut_ptr() as usize;
        Self { tensor: Rc::new(tensor), address }
    }
}

/// The inputs of a call in order, with names or without, or its outputs.
#[wasm_bindgen]
#[derive(Debug, Default)]
pub struct Values {
    values: Vec<Shared>,
    names: Vec<String>,
}

/// A value that is not a tensor, or a tensor that JavaScript may have, too.
#[derive(Debug)]
enum Shared {
    Tensor(Tensor),
    Other(Value),
}

impl<'a> TryFrom<&'a Shared> for Input<'a> {
    type Error = Error;

    fn try_from(value: &'a Shared) -> Result<Self, Error> {
        match value {
            Shared::Tensor(tensor) => tensor.tensor.view().map(Self::from),
            Shared::Other(value) => value.try_into(),
        }
    }
}

#[wasm_bindgen]
impl Values {
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the next input.
    #[wasm_bindgen(js_name = pushName)]
    pub fn push_name(&mut self, name: String) {
        self.names.push(name);
    }

    #[wasm_bindgen(js_name = pushTensor)]
    pub fn push_tensor(&mut self, tensor: &Tensor) {
        self.values.push(Shared::Tensor(tensor.clone()));
    }

    #[wasm_bindgen(js_name = pushInt)]
    pub fn push_int(&mut self, value: i64) {
        self.values.push(Shared::Other(Value::Int(value)));
    }

    #[wasm_bindgen(js_name = pushDouble)]
    pub fn push_double(&mut self, value: f64) {
        self.values.push(Shared::Other(Value::Double(value)));
    }

    #[wasm_bindgen(js_name = pushBool)]
    pub fn push_bool(&mut self, value: bool) {
        self.values.push(Shared::Other(Value::Bool(value)));
    }

    #[wasm_bindgen(js_name = pushString)]
    pub fn push_string(&mut self, value: String) {
        self.values.push(Shared::Other(Value::String(value)));
    }

    #[wasm_bindgen(js_name = pushNone)]
    pub fn push_none(&mut self) {
        self.values.push(Shared::Other(Value::None));
    }

    #[wasm_bindgen(getter)]
    pub fn length(&self) -> usize {
        self.values.len()
    }

    /// Returns a tensor, which shares its memory with this; `undefined` for another value.
    pub fn tensor(&self, index: usize) -> Option<Tensor> {
        match self.values.get(index) {
            Some(Shared::Tensor(tensor)) => Some(tensor.clone()),
            _ => None,
        }
    }

    /// Returns a value that is not a tensor: a bigint for an int, `null` for none.
    pub fn other(&self, index: usize) -> JsValue {
        match self.values.get(index) {
            Some(Shared::Other(value)) => match value {
                Value::Int(value) => (*value).into(),
                Value::Double(value) => (*value).into(),
                Value::Bool(value) => (*value).into(),
                Value::String(value) => value.as_str().into(),
                Value::None | Value::Tensor(_) => JsValue::NULL,
            },
            _ => JsValue::UNDEFINED,
        }
    }
}

impl Values {
    pub fn inputs(&self) -> Result<Vec<Input<'_>>, Error> {
        self.values.iter().map(Input::try_from).collect()
    }

    /// Copies tensors that JavaScript still has.
    #[cfg(feature = "compile")]
    pub fn into_values(self) -> Result<Vec<Value>, Error> {
        let value = |value| match value {
            Shared::Tensor(tensor) => match Rc::try_unwrap(tensor.tensor) {
                Ok(tensor) => Ok(Value::Tensor(tensor)),
                Err(shared) => rushlight::Tensor::copy_of(&shared.view()?).map(Value::Tensor),
            },
            Shared::Other(value) => Ok(value),
        };
        self.values.into_iter().map(value).collect()
    }

    /// The names of all inputs, if they have some.
    pub fn names(&self) -> Option<&[String]> {
        (!self.names.is_empty() && self.names.len() == self.values.len()).then_some(&self.names)
    }
}

impl From<Vec<Value>> for Values {
    fn from(values: Vec<Value>) -> Self {
        let shared = |value| match value {
            Value::Tensor(tensor) => Shared::Tensor(tensor.into()),
            other => Shared::Other(other),
        };
        Self { values: values.into_iter().map(shared).collect(), names: Vec::new() }
    }
}
