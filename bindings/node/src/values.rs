//! Inputs and outputs of calls.

use napi::bindgen_prelude::{ArrayBuffer, BigInt, Either6, Env, Null, Object, ToNapiValue, Uint8Array, Unknown};
use napi_derive::napi;
use rushlight::runtime::{Output, Outputs};
use rushlight::{Code, Error, Input, ScalarType, Tensor, TensorView, Value};
use rushlight_js_plain::Plain;

use crate::error::{Problem, Result};
use crate::into_js::IntoJs;

/// A tensor in JavaScript's memory.
#[napi(object, object_to_js = false)]
pub struct GivenTensor {
    /// PyTorch's number of the element type.
    pub dtype: u8,
    pub shape: Vec<f64>,
    pub data: Uint8Array,
    /// True if nothing else uses the buffer of `data`, so that it does not change.
    pub is_own: bool,
}

/// A value of JavaScript: a bigint is an int, and a number is a double. The types are tried in this order.
pub type Given = Either6<GivenTensor, BigInt, f64, bool, String, Null>;

/// An argument of a call.
pub enum Argument {
    /// A tensor in JavaScript's memory.
    Lent { dtype: ScalarType, shape: Vec<usize>, data: Uint8Array, is_own: bool },
    /// Any other value, copied.
    Own(Value),
}

impl Argument {
    pub fn of(given: Given) -> Result<Self> {
        Ok(Self::Own(match given {
            // JavaScript has checked that the bigint has 64 bits.
            Either6::B(value) => Value::Int(value.get_i64().0),
            Either6::C(value) => Value::Double(value),
            Either6::D(value) => Value::Bool(value),
            Either6::E(value) => Value::String(value),
            Either6::F(Null) => Value::None,
            Either6::A(GivenTensor { dtype, shape, data, is_own }) => {
                let dtype = ScalarType::from_code(dtype)
                    .ok_or(Problem::Own(Code::InvalidArgument, "no element type has this number"))?;
                let shape = shape.into_iter().map(|size| size as usize).collect();
                return Ok(Self::Lent { dtype, shape, data, is_own });
            }
        }))
    }

    /// Makes the argument independent of JavaScript: copies its memory if JavaScript uses it, too.
    pub fn detached(self) -> Result<Self> {
        match self {
            lent @ Self::Lent { is_own: false, .. } => lent.into_value().map(Self::Own),
            own => Ok(own),
        }
    }

    /// Returns the value, copied if necessary.
    pub fn into_value(self) -> Result<Value> {
        match self {
            Self::Lent { dtype, shape, data, .. } => Ok(Value::Tensor(Tensor::from_bytes(dtype, &shape, &data)?)),
            Self::Own(value) => Ok(value),
        }
    }

    pub fn nbytes(&self) -> usize {
        match self {
            Self::Lent { data, .. } => data.len(),
            Self::Own(Value::Tensor(tensor)) => tensor.bytes().len(),
            Self::Own(_) => 0,
        }
    }
}

impl<'a> TryFrom<&'a Argument> for Input<'a> {
    type Error = Error;

    fn try_from(argument: &'a Argument) -> std::result::Result<Self, Error> {
        match argument {
            Argument::Lent { dtype, shape, data, .. } => Ok(TensorView::new(*dtype, shape, data)?.into()),
            Argument::Own(value) => value.try_into(),
        }
    }
}

/// An output of a call, copied out of the memory of its method.
pub enum Returned {
    Tensor { dtype: u8, shape: Vec<usize>, data: Vec<u8> },
    Other(Plain),
}

/// Copies the outputs of a call.
pub fn returned(outputs: &Outputs<'_, '_>) -> std::result::Result<Vec<Returned>, Error> {
    let copied = |index| -> std::result::Result<Returned, Error> {
        Ok(Returned::Other(match outputs.get(index)? {
            Output::Tensor(tensor) => {
                let mut data = vec![0; tensor.numel() * tensor.dtype().size()];
                let (dtype, shape) = (tensor.dtype().code(), tensor.sizes().to_vec());
                TensorView::from(tensor).copy_to_row_major(&mut data);
                return Ok(Returned::Tensor { dtype, shape, data });
            }
            Output::Int(value) => Plain::BigInt(value),
            Output::Double(value) => value.into(),
            Output::Bool(value) => value.into(),
            Output::String(text) => text.into(),
            Output::None => Plain::Null,
        }))
    };
    (0..outputs.len()).map(copied).collect()
}

/// Results up to this size are copied once more, to JavaScript's own memory. Node.js does not transfer memory of addons
/// to workers, and the garbage collector calls a finalizer for each.
const MAX_COPIED: usize = 1 << 20;

impl IntoJs for Vec<Returned> {
    fn into_js(self, env: &Env) -> napi::Result<Unknown<'_>> {
        let mut array = env.create_array(self.len() as u32)?;
        for (at, value) in (0..).zip(self) {
            match value {
                Returned::Tensor { dtype, shape, data } => {
                    let mut tensor = Object::new(env)?;
                    tensor.set("dtype", dtype)?;
                    tensor.set("shape", shape.into_iter().map(|size| size as f64).collect::<Vec<_>>())?;
                    let is_copied = data.len() <= MAX_COPIED;
                    // If the engine refuses external memory, `from_data` copies, too.
                    let buffer =
                        if is_copied { ArrayBuffer::copy_from(env, data) } else { ArrayBuffer::from_data(env, data) };
                    tensor.set("buffer", buffer?)?;
                    array.set(at, tensor)?;
                }
                Returned::Other(value) => array.set(at, value.into_js(env)?)?,
            }
        }
        array.into_unknown(env)
    }
}
