//! The values of a payload.

use std::collections::HashMap;

use rushlight_format::ScalarType;
use rushlight_format::payload::vulkan::{ConstantData, Payload, TensorValue, Value};
use rushlight_graph::operators::aten;
use rushlight_graph::{Arg, Bytes, Constant, Error, Kind, TensorType, ValueId};

use super::super::importer::constant_data;
use super::Site;
use crate::front::part;

/// The values of a payload, and what those known so far are in the graph.
pub(super) struct Values<'a> {
    payload: &'a Bytes,
    parsed: Payload<'a>,
    /// Tensors, and integers that are sizes, by their numbers.
    known: HashMap<u32, Arg>,
    /// The number of copies of each constant.
    copies: HashMap<u32, usize>,
}

/// The layers that may have the same packed weights. Each has a copy of them, and a small payload must not need much memory.
const MAX_COPIES: usize = 4;

impl<'a> Values<'a> {
    pub fn new(payload: &'a Bytes, parsed: Payload<'a>) -> Self {
        Self { payload, parsed, known: HashMap::new(), copies: HashMap::new() }
    }

    /// Gives the inputs the arguments of the call. Tensors get the types that they have on the device.
    pub fn add_inputs(&mut self, site: &mut dyn Site) -> Result<(), Error> {
        let given = site.inputs().len();
        if given != self.parsed.inputs().len() {
            return Err(Error::invalid("the delegate has another number of inputs than its payload")
                .expected(self.parsed.inputs().len())
                .got(given));
        }
        for (index, id) in self.parsed.inputs().iter().enumerate() {
            let arg = site.inputs()[index].clone();
            let arg = match (self.value(id)?, arg) {
                (Value::Tensor(tensor), Arg::Value(value)) => cast(site, value, tensor.dtype)?.into(),
                (Value::SymInt, Arg::Int(size)) => Arg::Int(size),
                (Value::SymInt, Arg::Value(_)) => {
                    return Err(Error::unsupported("a size that is the element of an input of the delegate"));
                }
                _ => {
                    return Err(Error::invalid(format!(
                        "input {index} of the delegate has another kind in its payload"
                    )));
                }
            };
            self.known.insert(id, arg);
        }
        Ok(())
    }

    /// The value of a number, as the payload has it.
    pub fn value(&self, id: u32) -> Result<Value<'a>, Error> {
        self.parsed.value(id).ok_or_else(|| Error::invalid(format!("the delegate has no value {id}")))
    }

    /// The payload's tensor of a number.
    pub fn tensor_value(&self, id: u32) -> Result<TensorValue<'a>, Error> {
        match self.value(id)? {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(Error::invalid(format!("value {id} of the delegate is no tensor")).got(kind(&other))),
        }
    }

    /// The tensor of a number: an input, a constant, or the result of a call.
    pub fn tensor(&mut self, id: u32, site: &mut dyn Site) -> Result<ValueId, Error> {
        if let Some(known) = self.known.get(&id) {
            let wrong = || Error::invalid(format!("value {id} of the delegate is a size, and is read as a tensor"));
            return known.as_value().ok_or_else(wrong);
        }
        let tensor = self.tensor_value(id)?;
        let Some(index) = tensor.constant else {
            return Err(Error::invalid(format!("value {id} of the delegate is read before it is written")));
        };
        let sizes: Vec<i64> = tensor.dims.iter().map(i64::from).collect();
        let constant = Constant::dense(
            format!("vulkan_{index}"),
            TensorType::of(tensor.dtype, &sizes),
            self.bytes(id, index, TensorType::of(tensor.dtype, &sizes), site)?,
        )?;
        let value = site.constant(constant);
        self.known.insert(id, value.into());
        Ok(value)
    }

    /// An output of the delegate: a tensor or a size.
    pub fn output(&mut self, id: u32, site: &mut dyn Site) -> Result<Arg, Error> {
        match self.value(id)? {
            Value::SymInt | Value::Int(_) => self.size(id),
            _ => self.tensor(id, site).map(Arg::Value),
        }
    }

    /// The elements of a constant tensor, with their sizes, for the copy of a layer.
    pub fn constant(&mut self, id: u32, site: &dyn Site) -> Result<(Vec<usize>, Bytes), Error> {
        let tensor = self.tensor_value(id)?;
        let index = tensor.constant.ok_or_else(|| Error::unsupported("packed weights that are no constant"))?;
        let copies = self.copies.entry(index).or_default();
        *copies += 1;
        if *copies > MAX_COPIES {
            return Err(Error::unsupported(format!("packed weights that more than {MAX_COPIES} layers share")));
        }
        let sizes: Vec<i64> = tensor.dims.iter().map(i64::from).collect();
        let bytes = self.bytes(id, index, TensorType::of(tensor.dtype, &sizes), site)?;
        Ok((tensor.dims.iter().map(|size| size as usize).collect(), bytes))
    }

    fn bytes(&self, id: u32, index: u32, ty: TensorType, site: &dyn Site) -> Result<Bytes, Error> {
        let zeros = rushlight_graph::ConstantData::Zeros;
        let len = Constant { name: format!("vulkan_{index}"), ty, data: zeros }.len()?;
        let data = match self.parsed.constant(index) {
            Some(ConstantData::Bytes(bytes)) => part(self.payload, bytes).unwrap_or_else(|| bytes.to_vec().into()),
            Some(ConstantData::Named(key)) => constant_data(site, key)?,
            None => return Err(Error::invalid(format!("the delegate has no constant {index}"))),
        };
        // Data may be followed by padding.
        let got = data.len();
        data.slice(0..len).ok_or_else(|| {
            Error::invalid(format!("the constant of value {id} of the delegate is larger than its data"))
                .expected(format!("{len} bytes"))
                .got(format!("{got} bytes"))
        })
    }

    /// Lets a number be the result of a call.
    ///
    /// # Errors
    /// `Unsupported` for a second value: the delegate would have a state.
    pub fn write(&mut self, id: u32, result: Arg) -> Result<(), Error> {
        let is_given = matches!(self.value(id)?, Value::Tensor(TensorValue { constant: Some(_), .. }));
        if is_given || self.known.insert(id, result).is_some() {
            return Err(Error::unsupported(format!("value {id} of the delegate is written again, as a state is")));
        }
        Ok(())
    }

    /// The argument for a parameter of a kind. The payload has numbers that are equal in Python once, so that an integer may
    /// stand for a float, and a float for an integer: the parameter says which it is.
    pub fn argument(&mut self, kind: &Kind, id: u32, site: &mut dyn Site) -> Result<Arg, Error> {
        let value = self.value(id)?;
        Ok(match (kind, value) {
            (Kind::Tensor, _) => self.tensor(id, site)?.into(),
            (Kind::Optional(_), Value::Null) => Arg::None,
            (Kind::Optional(kind), _) => self.argument(kind, id, site)?,
            (Kind::List(item, _), _) => self.list(item, id, site)?,
            (Kind::DType | Kind::Layout | Kind::Device | Kind::MemoryFormat | Kind::Generator, _) => Arg::None,
            (Kind::Float, Value::Int(int)) => Arg::Float(int as f64),
            (Kind::Int, Value::Double(float)) if float == float.trunc() && float.abs() < 9e15 => (float as i64).into(),
            (_, Value::Int(int)) => int.into(),
            (_, Value::Double(float)) => Arg::Float(float),
            (_, Value::Bool(bool)) => Arg::Bool(bool),
            (_, Value::String(text)) => Arg::Str(text.to_owned()),
            (_, Value::SymInt) => self.size(id)?,
            (_, Value::Null) => Arg::None,
            (_, other) => return Err(Error::invalid(format!("value {id} of the delegate is {}", self::kind(&other)))),
        })
    }

    fn list(&mut self, item: &Kind, id: u32, site: &mut dyn Site) -> Result<Arg, Error> {
        let items = match self.value(id)? {
            Value::IntList(items) => items.iter().map(Arg::from).collect(),
            Value::DoubleList(items) => items.iter().map(Arg::Float).collect(),
            Value::BoolList(items) => items.iter().map(Arg::Bool).collect(),
            Value::ValueList(items) => {
                let nested = |id| Error::invalid(format!("value {id} of the delegate is a list in a list"));
                let mut args = Vec::with_capacity(items.len());
                for item_id in items.iter().map(|id| id as u32) {
                    let is_list = matches!(self.value(item_id)?, Value::ValueList(_));
                    args.push(if is_list { return Err(nested(id)) } else { self.argument(item, item_id, site)? });
                }
                args
            }
            // A single value is a list of one.
            _ => vec![self.argument(item, id, site)?],
        };
        Ok(Arg::List(items))
    }

    /// A size that an input or a call has given.
    pub fn size(&self, id: u32) -> Result<Arg, Error> {
        match (self.known.get(&id), self.value(id)?) {
            (Some(known), _) => Ok(known.clone()),
            (None, Value::Int(int)) => Ok(int.into()),
            _ => Err(Error::invalid(format!("the size {id} of the delegate is read before it is known"))),
        }
    }
}

/// A word for a value.
fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "None",
        Value::Int(_) | Value::SymInt => "an integer",
        Value::Double(_) => "a float",
        Value::Bool(_) => "a bool",
        Value::Tensor(_) => "a tensor",
        Value::IntList(_) | Value::DoubleList(_) | Value::BoolList(_) | Value::ValueList(_) => "a list",
        Value::String(_) => "a string",
    }
}

/// A tensor in a type.
pub(super) fn cast(site: &mut dyn Site, value: ValueId, dtype: ScalarType) -> Result<ValueId, Error> {
    if site.tensor(value)?.dtype == dtype {
        return Ok(value);
    }
    site.one_with(aten::_TO_COPY, vec![value.into()], &[("dtype", dtype.into())])
}
