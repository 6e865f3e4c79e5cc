//! Operators of the delegate's own, which compute several of PyTorch's.

use rushlight_format::ScalarType;
use rushlight_format::payload::vulkan::Value;
use rushlight_graph::operators::{aten, quantized_decomposed};
use rushlight_graph::{Arg, Error, Expr, Kind, ValueId};

use super::calls::{Calls, clamped, last_size};
use super::values::cast;

/// The range of the integers of 8 bits.
const INT8: [i64; 2] = [-128, 127];

impl Calls<'_, '_> {
    /// Computes one of the delegate's own operators with one result.
    pub fn fused(&mut self, name: &str, given: &[u32], out: u32) -> Result<ValueId, Error> {
        match (name, given) {
            ("et_vk.conv_with_clamp.default", [convolution @ .., min, max]) => {
                self.convolution_with_clamp(convolution, [*min, *max])
            }
            ("et_vk.rms_norm.default", [x, weight, eps]) => self.rms_norm(*x, *weight, *eps),
            ("et_vk.linear_q4gsw.default" | "et_vk.q4gsw_linear.default", [x, weight, scales, group, bias]) => {
                let x = self.values.tensor(*x, self.site)?;
                let group = self.int(*group)?;
                let weight = self.group_weights(x, *weight, *scales, group, out)?;
                self.linear(x, weight, Some(*bias), out)
            }
            (
                "et_vk.linear_dq8ca_q4gsw.default",
                [x, input_scales, zero_points, weight, _sums, scales, group, bias],
            ) => {
                let x = self.rounded_rows(*x, *input_scales, *zero_points)?;
                let group = self.int(*group)?;
                let weight = self.group_weights(x, *weight, *scales, group, out)?;
                self.linear(x, weight, Some(*bias), out)
            }
            ("et_vk.linear_qcs4w.default", [x, weight, scales]) => {
                let x = self.values.tensor(*x, self.site)?;
                let weight = self.channel_weights_of_4_bits(x, *weight, *scales)?;
                self.linear(x, weight, None, out)
            }
            ("aten._weight_int8pack_mm.default", [x, weight, scales]) => {
                let x = self.values.tensor(*x, self.site)?;
                let weight = self.channel_weights(*weight, *scales)?;
                self.linear(x, weight, None, out)
            }
            ("et_vk.linear_q8ta_q8csw.default", [x, scale, zero_point, weight, _sums, scales, bias]) => {
                let x = self.rounded_tensor(*x, [*scale, *zero_point])?;
                let weight = self.channel_weights(*weight, *scales)?;
                self.linear(x, weight, Some(*bias), out)
            }
            (
                "et_vk.q8ta_linear.default" | "et_vk.q8ta_linear_gemv.default",
                [x, scale, zero_point, weight, _sums, scales, out_scale, out_zero, bias, activation],
            ) => {
                let x = self.dequantized(*x, [*scale, *zero_point])?;
                let weight = self.channel_weights(*weight, *scales)?;
                let y = self.linear(x, weight, Some(*bias), out)?;
                let y = self.activated(y, *activation)?;
                self.quantized(y, [*out_scale, *out_zero])
            }
            (
                "et_vk.q8ta_conv2d.default" | "et_vk.q8ta_conv2d_pw.default" | "et_vk.q8ta_conv2d_dw.default",
                [x, scale, zero_point, weight, _sums, scales, out_scale, out_zero, bias, window @ .., activation],
            ) => {
                let x = self.dequantized(*x, [*scale, *zero_point])?;
                let is_depthwise = name == "et_vk.q8ta_conv2d_dw.default";
                let y = self.quantized_convolution(x, [*weight, *scales, *bias], window, is_depthwise, out)?;
                let y = self.activated(y, *activation)?;
                self.quantized(y, [*out_scale, *out_zero])
            }
            ("et_vk.q8ta_add.default", [a, b, a_scale, a_zero, b_scale, b_zero, out_scale, out_zero, alpha]) => {
                let a = self.dequantized(*a, [*a_scale, *a_zero])?;
                let b = self.dequantized(*b, [*b_scale, *b_zero])?;
                let alpha = self.values.argument(&Kind::Float, *alpha, self.site)?;
                let sum = self.site.one_with(aten::ADD_TENSOR, vec![a.into(), b.into()], &[("alpha", alpha)])?;
                self.quantized(sum, [*out_scale, *out_zero])
            }
            _ => Err(Error::unsupported(format!("the operator {name} of Vulkan with {} arguments", given.len()))),
        }
    }

    /// A convolution with bounds for its results; the largest float is none.
    fn convolution_with_clamp(&mut self, given: &[u32], bounds: [u32; 2]) -> Result<ValueId, Error> {
        let schema = self.site.schema(aten::CONVOLUTION)?;
        if given.len() != schema.params.len() {
            return Err(Error::invalid("a convolution with another number of arguments")
                .expected(schema.params.len())
                .got(given.len()));
        }
        let params = schema.params.iter().zip(given);
        let args = params.map(|(param, id)| self.values.argument(&param.kind, *id, self.site));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        let value = self.one(aten::CONVOLUTION, args)?;
        let bounds = bounds.map(|id| self.bound(id));
        let [min, max] = bounds;
        clamped(self, value, [min?, max?])
    }

    /// A bound of a clamp; `None` for none, which a number outside of floats of 32 bits is.
    fn bound(&self, id: u32) -> Result<Option<f64>, Error> {
        let bound = match self.values.value(id)? {
            Value::Null => return Ok(None),
            Value::Int(int) => int as f64,
            Value::Double(float) => float,
            _ => return Err(Error::invalid("a bound that is no number")),
        };
        Ok(Some(bound).filter(|bound| bound.abs() <= f64::from(f32::MAX)))
    }

    /// The norm of the last dimension, which is computed in floats of 32 bits.
    fn rms_norm(&mut self, x: u32, weight: u32, eps: u32) -> Result<ValueId, Error> {
        let x = self.values.tensor(x, self.site)?;
        let weight = self.values.tensor(weight, self.site)?;
        let eps = self.values.argument(&Kind::Float, eps, self.site)?;
        let [x, weight] = [x, weight].map(|value| cast(self.site, value, ScalarType::Float));
        let x = x?;
        let last = Arg::List(vec![Arg::Int(last_size(self, x)?)]);
        self.one(aten::RMS_NORM, vec![x.into(), last, weight?.into(), eps])
    }

    /// A linear layer of floats. A bias may have padding behind its elements.
    pub fn linear(&mut self, x: ValueId, weight: ValueId, bias: Option<u32>, out: u32) -> Result<ValueId, Error> {
        let mut args = vec![x.into(), weight.into()];
        if let Some(bias) = bias {
            let rows = self.rows(out)?;
            args.push(self.bias(bias, rows)?);
        }
        self.one(aten::LINEAR, args)
    }

    /// A bias, without padding behind its elements; `None` if there is none.
    fn bias(&mut self, bias: u32, rows: usize) -> Result<Arg, Error> {
        if self.values.value(bias)? == Value::Null {
            return Ok(Arg::None);
        }
        let rows = i64::try_from(rows).map_err(|_| Error::invalid("too many rows"))?;
        let bias = self.values.tensor(bias, self.site)?;
        if self.site.tensor(bias)?.numel().is(rows) {
            return Ok(bias.into());
        }
        let args = vec![bias.into(), 0.into(), 0.into(), rows.into(), 1.into()];
        self.one(aten::SLICE_COPY_TENSOR, args).map(Arg::Value)
    }

    /// A convolution of images with weights of 8 bits. `window` is kernel, stride, padding, dilation and groups.
    fn quantized_convolution(
        &mut self,
        x: ValueId,
        [weight, scales, bias]: [u32; 3],
        window: &[u32],
        is_depthwise: bool,
        out: u32,
    ) -> Result<ValueId, Error> {
        let [kernel, stride, padding, dilation, groups] = window else {
            return Err(Error::invalid("a convolution with another number of arguments"));
        };
        let pair = Kind::List(Box::new(Kind::Int), Some(2));
        let lists = [kernel, stride, padding, dilation].map(|id| self.values.argument(&pair, *id, self.site));
        let [kernel, stride, padding, dilation] = lists;
        let groups = self.int(*groups)?;
        let rows = self.channels(out)?;
        let sizes = match &kernel? {
            Arg::List(sizes) => sizes.iter().filter_map(known_size).collect(),
            _ => Vec::new(),
        };
        let &[height, width] = sizes.as_slice() else {
            return Err(Error::invalid("a window that is not of two sizes"));
        };
        let channels = self.site.tensor(x)?.shape.get(1).and_then(Expr::as_int);
        let channels =
            channels.filter(|channels| groups > 0 && channels % groups == 0).map(|channels| channels / groups);
        let channels = channels.and_then(|channels| usize::try_from(channels).ok());
        let channels =
            channels.ok_or_else(|| Error::unsupported("a convolution of images whose channels are not known"))?;
        let shape = [rows, channels, height, width];
        let weight = self.window_weights(weight, scales, shape, is_depthwise)?;
        let bias = self.bias(bias, rows)?;
        let none = Arg::List(vec![0.into(), 0.into()]);
        let args =
            vec![x.into(), weight.into(), bias, stride?, padding?, dilation?, Arg::Bool(false), none, groups.into()];
        self.one(aten::CONVOLUTION, args)
    }

    /// Number of channels of a convolution's result.
    fn channels(&self, out: u32) -> Result<usize, Error> {
        let channels = self.values.tensor_value(out)?.dims.get(1);
        channels.map(|channels| channels as usize).ok_or_else(|| Error::invalid("images without channels"))
    }

    fn activated(&mut self, value: ValueId, activation: u32) -> Result<ValueId, Error> {
        match self.values.value(activation)? {
            Value::String("none") | Value::Null => Ok(value),
            Value::String("relu") => self.one(aten::RELU, vec![value.into()]),
            _ => Err(Error::unsupported("an activation of Vulkan other than none and relu")),
        }
    }

    /// The arguments that follow the tensor in a call of `quantize_per_tensor` or `dequantize_per_tensor`.
    fn scale_and_zero(&mut self, [scale, zero_point]: [u32; 2]) -> Result<Vec<Arg>, Error> {
        let [min, max] = INT8;
        let scale = self.values.argument(&Kind::Float, scale, self.site)?;
        let zero_point = self.values.argument(&Kind::Int, zero_point, self.site)?;
        Ok(vec![scale, zero_point, min.into(), max.into(), ScalarType::Char.into()])
    }

    fn dequantized(&mut self, id: u32, quantization: [u32; 2]) -> Result<ValueId, Error> {
        let mut args = vec![self.values.tensor(id, self.site)?.into()];
        args.extend(self.scale_and_zero(quantization)?);
        self.one(quantized_decomposed::DEQUANTIZE_PER_TENSOR, args)
    }

    fn quantized(&mut self, value: ValueId, quantization: [u32; 2]) -> Result<ValueId, Error> {
        let mut args = vec![value.into()];
        args.extend(self.scale_and_zero(quantization)?);
        self.one(quantized_decomposed::QUANTIZE_PER_TENSOR, args)
    }

    /// A tensor of integers as floats; a tensor of floats rounded to the integers.
    fn rounded_tensor(&mut self, id: u32, quantization: [u32; 2]) -> Result<ValueId, Error> {
        let value = self.values.tensor(id, self.site)?;
        if self.site.tensor(value)?.dtype == ScalarType::Char {
            return self.dequantized(id, quantization);
        }
        let integers = self.quantized(value, quantization)?;
        let mut args = vec![integers.into()];
        args.extend(self.scale_and_zero(quantization)?);
        self.one(quantized_decomposed::DEQUANTIZE_PER_TENSOR, args)
    }

    /// Rows, rounded with a scale and a zero point each.
    fn rounded_rows(&mut self, x: u32, scales: u32, zero_points: u32) -> Result<ValueId, Error> {
        let [x, scales, zero_points] = [x, scales, zero_points].map(|id| self.values.tensor(id, self.site));
        let (x, scales, zero_points) = (x?, scales?, zero_points?);
        let parameters = || -> Vec<Arg> {
            let [min, max] = INT8;
            vec![scales.into(), zero_points.into(), min.into(), max.into(), ScalarType::Char.into()]
        };
        let mut args = vec![x.into()];
        args.extend(parameters());
        let integers = self.one(quantized_decomposed::QUANTIZE_PER_TOKEN, args)?;
        let mut args = vec![integers.into()];
        args.extend(parameters());
        args.push(self.site.tensor(x)?.dtype.into());
        self.one(quantized_decomposed::DEQUANTIZE_PER_TOKEN, args)
    }

    fn int(&self, id: u32) -> Result<i64, Error> {
        match self.values.value(id)? {
            Value::Int(int) => Ok(int),
            _ => Err(Error::invalid("an argument that is no integer")),
        }
    }

    /// Number of channels of a layer's result.
    pub fn rows(&self, out: u32) -> Result<usize, Error> {
        let last = self.values.tensor_value(out)?.dims.iter().next_back();
        last.map(|rows| rows as usize).ok_or_else(|| Error::invalid("a layer whose result has no dimensions"))
    }
}

/// A size that is known.
fn known_size(arg: &Arg) -> Option<usize> {
    if let Arg::Int(size) = arg { usize::try_from(size.as_int()?).ok() } else { None }
}
