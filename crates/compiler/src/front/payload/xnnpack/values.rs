//! The tensors of a payload.

use std::collections::{HashMap, HashSet};

use rushlight_format::ScalarType;
use rushlight_format::payload::xnnpack::{
    ConstantData, Datatype, Node, Operation, Payload, Quantization, Scales, TensorValue,
};

use crate::front::part;
use rushlight_graph::Bytes;
use rushlight_graph::Error;
use rushlight_graph::operators::{aten, quantized_decomposed, rushlight};
use rushlight_graph::{Arg, Constant, Expr, TensorType, ValueId};

use super::super::importer::constant_data;
use super::{Site, Written};

/// The tensors of a payload, and the values that those known so far have in the graph.
pub(super) struct Values<'a> {
    payload: &'a Bytes,
    parsed: Payload<'a>,
    tensors: HashMap<u32, TensorValue<'a>>,
    known: HashMap<u32, ValueId>,
    /// Of quantized tensors: their integers.
    integers: HashMap<u32, ValueId>,
    /// Tensors that are the images of convolutions.
    images: HashSet<u32>,
    /// Tensors that nodes have read.
    read: HashSet<u32>,
    /// Tensors that nodes have written.
    written: Vec<u32>,
}

/// Quantization of a tensor that nodes compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rounding {
    /// They are numbers as they are.
    None,
    /// With a scale and a zero point, between these bounds.
    Static { scale: f32, zero_point: i32, range: [i64; 2], dtype: ScalarType },
    /// Dynamic quantization, with a scale and zero point for each index of the dimensions before the last `dims`. Numbers are
    /// multiplied by an inverse scale of the type `factor`.
    Dynamic { dims: usize, factor: ScalarType },
}

impl<'a> Values<'a> {
    pub fn new(payload: &'a Bytes, parsed: Payload<'a>, site: &dyn Site) -> Result<Self, Error> {
        let mut tensors = HashMap::new();
        let (mut known, mut integers) = (HashMap::new(), HashMap::new());
        for tensor in parsed.values() {
            if let Some(position) = tensor.input {
                let missing = || Error::invalid(format!("the delegate is given no tensor for its input {position}"));
                let to = if tensor.quantization.is_some() { &mut integers } else { &mut known };
                let input = site.inputs().get(position as usize).and_then(Arg::as_value);
                to.insert(tensor.id, input.ok_or_else(missing)?);
            }
            if tensors.insert(tensor.id, tensor).is_some() {
                return Err(Error::invalid(format!("two tensors of the delegate have the number {}", tensor.id)));
            }
        }
        let image = |node: Node<'_>| match node.operation {
            Operation::Convolution(convolution) => Some(convolution.input),
            _ => None,
        };
        let images = parsed.nodes().filter_map(image).collect();
        let (read, written) = (HashSet::new(), Vec::new());
        Ok(Self { payload, parsed, tensors, known, integers, images, read, written })
    }

    /// The dtype of a tensor's numbers.
    ///
    /// # Errors
    /// `Unsupported` for datatypes that have no translation.
    pub fn dtype(&self, id: u32) -> Result<ScalarType, Error> {
        let tensor = self.tensor(id)?;
        let is_quantized = tensor.quantization.is_some();
        let dtype = match tensor.datatype {
            Datatype::Fp32 if !is_quantized => Some(ScalarType::Float),
            Datatype::Fp16 if !is_quantized => Some(ScalarType::Half),
            Datatype::Bf16 if !is_quantized => Some(ScalarType::BFloat16),
            Datatype::Int32 if !is_quantized => Some(ScalarType::Int),
            Datatype::Qint8
            | Datatype::Quint8
            | Datatype::Qint32
            | Datatype::Qcint8
            | Datatype::Qcint32
            | Datatype::Qcint4
            | Datatype::Qbint4
            | Datatype::Qdint8
                if is_quantized =>
            {
                Some(ScalarType::Float)
            }
            _ => None,
        };
        dtype.filter(|_| !tensor.is_quantized_later).ok_or_else(|| {
            let quantized = if is_quantized || tensor.is_quantized_later { "quantized " } else { "" };
            Error::unsupported(format!("a {quantized}tensor of the datatype {} in XNNPACK", tensor.datatype.name()))
        })
    }

    /// The rounding of the numbers that a node writes to a tensor. They are of the type `from` before.
    pub fn rounding(&self, id: u32, from: ScalarType) -> Result<Rounding, Error> {
        let tensor = self.tensor(id)?;
        let (dtype, range) = match tensor.datatype {
            Datatype::Qint8 => (ScalarType::Char, [-128, 127]),
            Datatype::Quint8 => (ScalarType::Byte, [0, 255]),
            Datatype::Qdint8 => return self.dynamic(tensor, from),
            _ if tensor.quantization.is_none() => return Ok(Rounding::None),
            datatype => {
                return Err(Error::unsupported(format!("computing a tensor of the datatype {}", datatype.name())));
            }
        };
        match tensor.quantization {
            Some(Quantization::PerTensor { scale, zero_point }) => {
                Ok(Rounding::Static { scale, zero_point, range, dtype })
            }
            _ => Err(Error::unsupported("a computed tensor with several scales")),
        }
    }

    fn dynamic(&self, tensor: &TensorValue<'_>, from: ScalarType) -> Result<Rounding, Error> {
        let Some(Quantization::PerToken { dims }) = tensor.quantization else {
            return Err(Error::unsupported("scales that are chosen when it runs, as parameters say that are not"));
        };
        let rank = tensor.dims.len();
        let dims = usize::try_from(dims).ok().filter(|dims| (1..=rank).contains(dims)).ok_or_else(|| {
            Error::invalid("scales for another number of dimensions than the tensor has")
                .expected(format!("1 to {rank}"))
                .got(dims)
        })?;
        // XNNPACK quantizes the rows of a fully connected layer within it, and computes such a layer in f32.
        let factor = if self.images.contains(&tensor.id) { from } else { ScalarType::Float };
        Ok(Rounding::Dynamic { dims, factor })
    }

    /// The real numbers of a tensor, which is a constant, an input, or a result of a node.
    pub fn read(&mut self, id: u32, site: &mut dyn Site) -> Result<ValueId, Error> {
        let dtype = self.dtype(id)?;
        self.read.insert(id);
        if let Some(known) = self.known.get(&id) {
            return Ok(*known);
        }
        let tensor = *self.tensor(id)?;
        let value = match tensor {
            TensorValue { constant: Some(index), dims, quantization: Some(quantization), .. }
                if matches!(tensor.datatype, Datatype::Qcint4 | Datatype::Qbint4) =>
            {
                let sizes: Vec<i64> = dims.iter().map(i64::from).collect();
                let integers = site.constant(self.four_bits(index, &sizes, site)?);
                self.dequantized_constant(id, integers, (ScalarType::Char, [-8, 7]), quantization, site)?
            }
            TensorValue { constant: Some(index), dims, quantization, .. } => {
                let stored = match tensor.datatype {
                    Datatype::Qint8 | Datatype::Qcint8 => ScalarType::Char,
                    Datatype::Quint8 => ScalarType::Byte,
                    Datatype::Qint32 | Datatype::Qcint32 => ScalarType::Int,
                    _ => dtype,
                };
                let sizes: Vec<i64> = dims.iter().map(i64::from).collect();
                let constant = self.constant(index, TensorType::of(stored, &sizes), site)?;
                let value = site.constant(constant);
                match quantization {
                    Some(quantization) => {
                        let range = match stored {
                            ScalarType::Char => [-128, 127],
                            ScalarType::Byte => [0, 255],
                            _ => [i64::from(i32::MIN), i64::from(i32::MAX)],
                        };
                        self.dequantized_constant(id, value, (stored, range), quantization, site)?
                    }
                    None => value,
                }
            }
            _ => {
                let Some(integers) = self.integers.get(&id).copied() else {
                    return Err(Error::invalid(format!("tensor {id} of the delegate is read before it is written")));
                };
                dequantized(site, integers, self.rounding(id, dtype)?)?
            }
        };
        self.known.insert(id, value);
        Ok(value)
    }

    /// The dequantized values of constant integers.
    fn dequantized_constant(
        &self,
        id: u32,
        integers: ValueId,
        (dtype, range): (ScalarType, [i64; 2]),
        quantization: Quantization<'_>,
        site: &mut dyn Site,
    ) -> Result<ValueId, Error> {
        let [min, max] = range;
        match quantization {
            Quantization::PerTensor { scale, zero_point } => {
                dequantized(site, integers, Rounding::Static { scale, zero_point, range, dtype })
            }
            Quantization::PerChannel { scales, dim } => {
                let channels = self.tensor(id)?.dims.get(usize::try_from(dim).unwrap_or(usize::MAX));
                let channels = channels.ok_or_else(|| Error::invalid("scales of a missing dimension"))?;
                let scales = match scales {
                    Scales::Here(scales) => {
                        floats(format!("xnnpack_scales_{id}"), &[scales.len() as i64], scales.iter())?
                    }
                    Scales::Constant(index) => {
                        self.constant(index, TensorType::of(ScalarType::Float, &[i64::from(channels)]), site)?
                    }
                };
                let scales = site.constant(scales);
                let args = vec![
                    integers.into(),
                    scales.into(),
                    Arg::None,
                    i64::from(dim).into(),
                    min.into(),
                    max.into(),
                    dtype.into(),
                ];
                site.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL, args)
            }
            Quantization::PerGroup { scales, group } => {
                let scales = site.constant(self.group_scales(id, scales, i64::from(group), site)?);
                let args = vec![
                    integers.into(),
                    scales.into(),
                    Arg::None,
                    min.into(),
                    max.into(),
                    dtype.into(),
                    i64::from(group).into(),
                    ScalarType::Float.into(),
                ];
                site.one(quantized_decomposed::DEQUANTIZE_PER_CHANNEL_GROUP, args)
            }
            _ => Err(Error::unsupported("a constant whose scales are chosen when it runs")),
        }
    }

    /// The scales of groups of a matrix's rows, which are bf16, as `[rows, groups]`.
    fn group_scales(&self, id: u32, scales: Scales<'_>, group: i64, site: &dyn Site) -> Result<Constant, Error> {
        let dims: Vec<i64> = self.tensor(id)?.dims.iter().map(i64::from).collect();
        let [rows, columns] = dims[..] else { return Err(Error::invalid("groups of what is no matrix")) };
        if group < 1 || columns % group != 0 {
            return Err(Error::invalid("groups that do not divide the rows of a matrix")
                .expected(format!("a divisor of {columns}"))
                .got(group));
        }
        let (name, sizes) = (format!("xnnpack_scales_{id}"), [rows, columns / group]);
        match scales {
            // The runtime makes bf16 of them, the nearest by this factor before it cuts them off.
            Scales::Here(scales) => floats(name, &sizes, scales.iter().map(|scale| cut_to_bf16(scale * 1.003_891))),
            Scales::Constant(index) => {
                let stored = self.constant(index, TensorType::of(ScalarType::BFloat16, &sizes), site)?;
                let bytes = stored.read()?;
                let pairs = bytes.as_chunks().0.iter();
                floats(name, &sizes, pairs.map(|pair| f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16)))
            }
        }
    }

    /// A matrix of integers from -8 to 7, two in a byte, the first in its low bits; rows begin with a byte.
    fn four_bits(&self, index: u32, sizes: &[i64], site: &dyn Site) -> Result<Constant, Error> {
        let [rows, columns] = sizes[..] else { return Err(Error::invalid("four bits of what is no matrix")) };
        let stored = [rows, (columns + 1) / 2];
        let packed = self.constant(index, TensorType::of(ScalarType::Byte, &stored), site)?.read()?;
        let (columns, each) = (columns as usize, stored[1] as usize);
        let mut integers = vec![0; packed.len() / each.max(1) * columns];
        for (to, from) in integers.chunks_exact_mut(columns.max(1)).zip(packed.chunks_exact(each.max(1))) {
            let (pairs, last) = to.as_chunks_mut::<2>();
            for (pair, byte) in pairs.iter_mut().zip(from) {
                *pair = [(byte & 15).wrapping_sub(8), (byte >> 4).wrapping_sub(8)];
            }
            if let (Some(last), Some(byte)) = (last.first_mut(), from.last()) {
                *last = (byte & 15).wrapping_sub(8);
            }
        }
        Constant::dense(format!("xnnpack_{index}"), TensorType::of(ScalarType::Char, sizes), integers)
    }

    /// Records the integers of a quantized tensor, and their dequantized values.
    pub fn write_integers(&mut self, id: u32, integers: ValueId, value: ValueId) -> Result<(), Error> {
        self.write(id, value)?;
        self.integers.insert(id, integers);
        Ok(())
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
        self.written.push(id);
        Ok(())
    }

    /// Returns the tensors that nodes write, that no node reads and that are not outputs.
    pub fn unread(&self) -> Vec<ValueId> {
        let is_output = |id: &u32| self.tensors.get(id).is_some_and(|tensor| tensor.output.is_some());
        let unread = self.written.iter().filter(|id| !self.read.contains(id) && !is_output(id));
        unread.filter_map(|id| self.known.get(id).copied()).collect()
    }

    /// Outputs of the delegate, with the positions of their arguments.
    pub fn outputs(&self) -> Result<Vec<Written>, Error> {
        let outputs = self.tensors.values().filter_map(|tensor| Some((tensor.output?, tensor.id)));
        let value = |(position, id)| {
            let value = self.integers.get(&id).or_else(|| self.known.get(&id)).copied();
            let missing = || Error::invalid(format!("output {position} of the delegate is never written"));
            Ok((position, Arg::Value(value.ok_or_else(missing)?)))
        };
        let mut outputs = outputs.map(value).collect::<Result<Vec<_>, Error>>()?;
        outputs.sort_unstable_by_key(|(position, _)| *position);
        Ok(outputs)
    }

    fn tensor(&self, id: u32) -> Result<&TensorValue<'a>, Error> {
        self.tensors.get(&id).ok_or_else(|| Error::invalid(format!("the delegate has no tensor {id}")))
    }

    fn constant(&self, index: u32, ty: TensorType, site: &dyn Site) -> Result<Constant, Error> {
        let name = format!("xnnpack_{index}");
        let len = Constant { name: name.clone(), ty: ty.clone(), data: rushlight_graph::ConstantData::Zeros }.len()?;
        let data = match self.parsed.constant(index) {
            Some(ConstantData::Bytes(bytes)) => part(self.payload, bytes).unwrap_or_else(|| bytes.to_vec().into()),
            Some(ConstantData::Named(key)) => constant_data(site, key)?,
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

/// A constant of numbers.
fn floats(name: String, sizes: &[i64], numbers: impl Iterator<Item = f32>) -> Result<Constant, Error> {
    let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
    Constant::dense(name, TensorType::of(ScalarType::Float, sizes), bytes)
}

/// A number with the upper 16 of its bits alone.
fn cut_to_bf16(number: f32) -> f32 {
    f32::from_bits(number.to_bits() & 0xFFFF_0000)
}

/// Dequantizes integers.
pub(super) fn dequantized(site: &mut dyn Site, integers: ValueId, rounding: Rounding) -> Result<ValueId, Error> {
    let Rounding::Static { scale, zero_point, range: [min, max], dtype } = rounding else {
        return Err(Error::unsupported("an input whose scales are chosen when it runs"));
    };
    let scale = Arg::Float(f64::from(scale));
    let args = vec![integers.into(), scale, i64::from(zero_point).into(), min.into(), max.into(), dtype.into()];
    site.one(quantized_decomposed::DEQUANTIZE_PER_TENSOR, args)
}

/// Quantizes numbers, and dequantizes the result.
pub(super) fn rounded(
    site: &mut dyn Site,
    value: ValueId,
    rounding: Rounding,
) -> Result<Option<(ValueId, ValueId)>, Error> {
    match rounding {
        Rounding::None => Ok(None),
        Rounding::Static { scale, zero_point, range: [min, max], dtype } => {
            let scale = Arg::Float(f64::from(scale));
            let args = vec![value.into(), scale, i64::from(zero_point).into(), min.into(), max.into(), dtype.into()];
            let integers = site.one(quantized_decomposed::QUANTIZE_PER_TENSOR, args)?;
            Ok(Some((integers, dequantized(site, integers, rounding)?)))
        }
        Rounding::Dynamic { dims, factor } if dims > 1 => {
            // The dimensions that share a scale become one row.
            let shape = site.tensor(value)?.shape.clone();
            let (outer, inner) = shape.split_at(shape.len().saturating_sub(dims));
            let rows: Vec<Expr> = outer.iter().cloned().chain([Expr::product(inner)]).collect();
            let rows = site.one(aten::VIEW_COPY, vec![value.into(), rows.into()])?;
            let Some((integers, value)) = rounded(site, rows, Rounding::Dynamic { dims: 1, factor })? else {
                return Ok(None);
            };
            let mut back = |value: ValueId| site.one(aten::VIEW_COPY, vec![value.into(), shape.clone().into()]);
            Ok(Some((back(integers)?, back(value)?)))
        }
        Rounding::Dynamic { factor, .. } => {
            let quantized = site.call(rushlight::QUANTIZE_ROWS, vec![value.into(), factor.into()], &[])?;
            let [integers, scales, zero_points] = quantized[..] else {
                return Err(Error::unsupported("quantized rows without scales and zero points"));
            };
            let mut args = vec![integers.into(), scales.into(), zero_points.into(), (-128).into(), 127.into()];
            args.extend([ScalarType::Char.into(), ScalarType::Float.into()]);
            Ok(Some((integers, site.one(quantized_decomposed::DEQUANTIZE_PER_TOKEN, args)?)))
        }
    }
}
