//! The tensors of a payload.

use std::collections::HashMap;

use rushlight_format::ScalarType;
use rushlight_format::xnnpack::{ConstantData, Datatype, Payload, Value};

use crate::Bytes;
use crate::error::Error;
use crate::front::part;
use crate::graph::{Constant, TensorType, ValueId};

use super::Site;

/// The tensors of a payload, and the values that those known so far have in the graph.
pub(super) struct Values<'a> {
    payload: &'a Bytes,
    parsed: Payload<'a>,
    tensors: HashMap<u32, Value<'a>>,
    known: HashMap<u32, ValueId>,
}

impl<'a> Values<'a> {
    pub fn new(payload: &'a Bytes, parsed: Payload<'a>, site: &dyn Site) -> Result<Self, Error> {
        let mut tensors = HashMap::new();
        let mut known = HashMap::new();
        for tensor in parsed.values() {
            if let Some(position) = tensor.input {
                let missing = || Error::invalid(format!("the delegate is given no tensor for its input {position}"));
                known.insert(tensor.id, site.input(position).ok_or_else(missing)?);
            }
            if tensors.insert(tensor.id, tensor).is_some() {
                return Err(Error::invalid(format!("two tensors of the delegate have the number {}", tensor.id)));
            }
        }
        Ok(Self { payload, parsed, tensors, known })
    }

    /// The dtype of a tensor.
    ///
    /// # Errors
    /// `Unsupported` for those that are quantized.
    pub fn dtype(&self, id: u32) -> Result<ScalarType, Error> {
        let tensor = self.tensor(id)?;
        let dtype = match tensor.datatype {
            Datatype::Fp32 => Some(ScalarType::Float),
            Datatype::Fp16 => Some(ScalarType::Half),
            Datatype::Bf16 => Some(ScalarType::BFloat16),
            Datatype::Int32 => Some(ScalarType::Int),
            _ => None,
        };
        dtype.filter(|_| !tensor.is_quantized).ok_or_else(|| {
            let dynamic = if tensor.is_quantized { "quantized " } else { "" };
            Error::unsupported(format!("a {dynamic}tensor of the datatype {} in XNNPACK", tensor.datatype.name()))
        })
    }

    /// The value of a tensor, which is a constant, an input, or what a node has given.
    pub fn read(&mut self, id: u32, site: &mut dyn Site) -> Result<ValueId, Error> {
        let dtype = self.dtype(id)?;
        if let Some(known) = self.known.get(&id) {
            return Ok(*known);
        }
        let Value { constant: Some(index), dims, .. } = *self.tensor(id)? else {
            return Err(Error::invalid(format!("tensor {id} of the delegate is read before it is written")));
        };
        let sizes: Vec<i64> = dims.iter().map(i64::from).collect();
        let ty = TensorType::of(dtype, &sizes);
        let constant = self.constant(index, ty, site)?;
        let value = site.constant(constant);
        self.known.insert(id, value);
        Ok(value)
    }

    /// Lets a tensor have a value.
    pub fn write(&mut self, id: u32, value: ValueId) -> Result<(), Error> {
        let tensor = self.tensor(id)?;
        if tensor.constant.is_some() || tensor.input.is_some() {
            return Err(Error::invalid(format!("a node of the delegate writes tensor {id}, which is given")));
        }
        if self.known.insert(id, value).is_some() {
            return Err(Error::invalid(format!("tensor {id} of the delegate is written twice")));
        }
        Ok(())
    }

    /// What the delegate writes, with the positions of the arguments.
    pub fn outputs(&self) -> Result<Vec<(u32, ValueId)>, Error> {
        let outputs = self.tensors.values().filter_map(|tensor| Some((tensor.output?, tensor.id)));
        let value = |(position, id)| {
            let value = self.known.get(&id).copied();
            let missing = || Error::invalid(format!("output {position} of the delegate is never written"));
            Ok((position, value.ok_or_else(missing)?))
        };
        let mut outputs = outputs.map(value).collect::<Result<Vec<_>, Error>>()?;
        outputs.sort_unstable();
        Ok(outputs)
    }

    fn tensor(&self, id: u32) -> Result<&Value<'a>, Error> {
        self.tensors.get(&id).ok_or_else(|| Error::invalid(format!("the delegate has no tensor {id}")))
    }

    fn constant(&self, index: u32, ty: TensorType, site: &dyn Site) -> Result<Constant, Error> {
        let name = format!("xnnpack_{index}");
        let len = Constant { name: name.clone(), ty: ty.clone(), data: crate::graph::ConstantData::Zeros }.len()?;
        let data = match self.parsed.constant(index) {
            Some(ConstantData::Bytes(bytes)) => part(self.payload, bytes).unwrap_or_else(|| bytes.to_vec().into()),
            Some(ConstantData::Named(key)) => site.named(key).ok_or_else(|| {
                Error::invalid(format!("the data `{key}` of the delegate is missing"))
                    .help("give the .ptd file that was saved with the program")
            })?,
            None => return Err(Error::invalid(format!("the delegate has no constant {index}"))),
        };
        // Data may be followed by padding.
        let too_short = || {
            Error::invalid(format!("constant {index} of the delegate is larger than its data"))
                .expected(format!("{len} bytes"))
                .got(format!("{} bytes", data.len()))
        };
        let data = data.slice(0..len).ok_or_else(too_short)?;
        Constant::dense(name, ty, data)
    }
}
