//! Lowers a part to operators on int8.
//!
//! An image `[N, C, H, W]` may exist row-major, channels-last, or in both orders. Convolutions and pooling read and write
//! channels-last images. Elementwise operators compute in an order in which their operands exist. Other operators are row-major.
//! An image with one channel or one pixel is the same in both orders, and has a row-major type.

mod elementwise;
mod layers;
mod movement;
mod pooling;
mod scratch;

use rushlight_compiler::partition::Part;
use rushlight_format::ScalarType;
use rushlight_graph::operators::{aten, dim_order_ops};
use rushlight_graph::types::contiguous;
use rushlight_graph::{
    Arg, Builder, Call, Constant, Error, Graph, Input, Model, NodeId, Op, OriginId, TensorType, Type, ValueId, bind,
};
use rustc_hash::FxHashMap;

use crate::affine::Affine;
use crate::operators::{DEQUANTIZE, QUANTIZE};
use crate::select::{Context, Step};
use crate::target::{Runtime, Target};

pub(crate) use scratch::ScratchBytes;

/// The order of an image's dimensions in memory, from the outermost to the innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    RowMajor,
    ChannelsLast,
}

const CHANNELS_LAST: [u8; 4] = [0, 2, 3, 1];

impl Order {
    /// Numbers of the dimensions `[N, C, H, W]`, in this order.
    fn arranged(self, [batch, channels, rows, columns]: [i64; 4]) -> [i64; 4] {
        match self {
            Self::RowMajor => [batch, channels, rows, columns],
            Self::ChannelsLast => [batch, rows, columns, channels],
        }
    }
}

/// The orders in which a tensor exists.
#[derive(Clone, Copy, Debug, Default)]
struct Forms {
    row_major: Option<ValueId>,
    channels_last: Option<ValueId>,
}

/// Lowers a part: each pattern becomes an operator.
///
/// # Errors
/// `InvalidProgram` for a part with nodes that were not claimed.
pub(crate) fn lower(part: &Part, target: Target) -> Result<Model, Error> {
    let graph = part.graph()?;
    let context = Context::new(graph, &part.model);
    let mut model = part.model.clone();
    let Some(inner) = model.methods.get_mut(Part::METHOD) else {
        return Err(Error::invalid("a part without its method"));
    };
    let body = inner.body;
    inner.blocks[body].nodes.clear();
    let inputs = inner.inputs.clone();
    let mut to = Lowering { part: graph, model, target, origin: OriginId::new(0), forms: FxHashMap::default() };
    for input in &inputs {
        if let Input::Value(value) = input {
            let order = to.order_of(*value)?;
            to.define(*value, *value, order);
        }
    }
    for node in &graph.blocks[body].nodes {
        to.origin = graph.nodes[*node].origin;
        to.node(&context, *node)?;
    }
    let outputs: Vec<Arg> = graph.outputs.iter().map(|output| to.output(output)).collect::<Result<_, _>>()?;
    to.graph()?.outputs = outputs;
    Ok(to.model)
}

/// A part while it is lowered. Tensors are named by their values in the part; [`Forms`] has the lowered values.
pub(crate) struct Lowering<'p> {
    part: &'p Graph,
    model: Model,
    target: Target,
    /// The origin of new nodes.
    origin: OriginId,
    forms: FxHashMap<ValueId, Forms>,
}

impl Lowering<'_> {
    /// Lowers a node that ends a pattern. Other nodes are lowered with the pattern that they are in.
    fn node(&mut self, context: &Context<'_>, node: NodeId) -> Result<(), Error> {
        let call = Call::new(self.part, node);
        if context.is_order_copy(node) {
            return self.alias(call.value("self")?, call.result()?);
        }
        if let Some(affine) = context.quantize(node) {
            return match context.pattern(node) {
                Ok(pattern) => self.step(&pattern.step, call.result()?),
                Err(_) => self.convert(QUANTIZE, (call.value("input")?, call.result()?), affine, ScalarType::Char),
            };
        }
        let result = call.result()?;
        // A node that was copied into the part is in it only for the patterns that read it.
        let is_read = || {
            let is_output = self.part.outputs.iter().any(|output| output.as_value() == Some(result));
            is_output || context.users(result).iter().flatten().any(|user| context.is_order_copy(*user))
        };
        match context.dequantize(node).filter(|_| is_read()) {
            Some(operand) => self.convert(DEQUANTIZE, (operand.value, result), operand.affine, ScalarType::Float),
            None => Ok(()),
        }
    }

    /// Adds the operator of a pattern with this result.
    fn step(&mut self, step: &Step, result: ValueId) -> Result<(), Error> {
        match step {
            Step::Convolution(step) => layers::convolution(step, self, result),
            Step::Linear(step) => layers::linear(step, self, result),
            Step::Matmul(step) => layers::matmul(step, self, result),
            Step::Add(step) => elementwise::add(step, self, result),
            Step::Mul(step) => elementwise::mul(step, self, result),
            Step::Div(step) => elementwise::div(step, self, result),
            Step::Extremum(step) => elementwise::extremum(step, self, result),
            Step::Lookup(step) => elementwise::lookup(step, self, result),
            Step::Requantize(step) => match &step.table {
                Some(table) => elementwise::table(&step.input, table, self, result),
                None => self.alias(step.input.value, result),
            },
            Step::Softmax(step) => elementwise::softmax(step, self, result),
            Step::Pad(step) => movement::pad(step, self, result),
            Step::Transpose(step) => movement::transpose(step, self, result),
            Step::Move(step) => movement::other(step, self, result),
            Step::Average(step) => pooling::average(step, self, result),
            Step::Maximum(step) => pooling::maximum(step, self, result),
        }
    }

    /// Adds the operator that quantizes or dequantizes a tensor.
    fn convert(
        &mut self,
        name: &str,
        (from, result): (ValueId, ValueId),
        affine: Affine,
        dtype: ScalarType,
    ) -> Result<(), Error> {
        let Affine { scale, zero_point, range: (min, max) } = affine;
        let (value, order) = self.any(from)?;
        let [zero_point, min, max] = [zero_point, min, max].map(|int| Arg::from(i64::from(int)));
        let args = vec![value.into(), Arg::Float(scale), zero_point, min, max, Arg::DType(ScalarType::Char)];
        self.add(name, args, (result, dtype, order))
    }

    fn output(&mut self, output: &Arg) -> Result<Arg, Error> {
        let Some(value) = output.as_value() else { return Ok(output.clone()) };
        let order = self.order_of(value)?;
        let lowered = match order {
            Order::RowMajor => self.row_major(value),
            // Also for an image that is the same in both orders: the output has a channels-last type.
            Order::ChannelsLast => self.ordered(value, Order::ChannelsLast),
        };
        lowered.map(Arg::Value)
    }

    fn graph(&mut self) -> Result<&mut Graph, Error> {
        self.model.methods.get_mut(Part::METHOD).ok_or_else(|| Error::invalid("a part without its method"))
    }

    /// A builder that adds to the end of the lowered part.
    fn builder(&mut self) -> Result<Builder<'_>, Error> {
        let (body, origin) = (self.part.body, self.origin);
        self.model.builder(Part::METHOD, body, origin).ok_or_else(|| Error::invalid("a part without its method"))
    }

    /// The core and the runtime.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The type of a tensor of the part.
    pub fn ty(&self, value: ValueId) -> Result<TensorType, Error> {
        self.part.tensor(value).cloned()
    }

    /// The order of a tensor by its type.
    fn order_of(&self, value: ValueId) -> Result<Order, Error> {
        let ty = self.part.tensor(value)?;
        Ok(if ty.dim_order == CHANNELS_LAST { Order::ChannelsLast } else { Order::RowMajor })
    }

    /// True if an image is the same in both orders.
    fn is_same_in_both(&self, value: ValueId) -> Result<bool, Error> {
        let sizes = self.part.tensor(value)?.static_sizes();
        Ok(matches!(sizes.as_deref(), Some([_, channels, height, width]) if *channels == 1 || height * width == 1))
    }

    fn forms(&self, value: ValueId) -> Result<Forms, Error> {
        if let Some(forms) = self.forms.get(&value) {
            return Ok(*forms);
        }
        if self.part.constant_of(value).is_none() {
            let name = &self.part.values[value].name;
            return Err(Error::invalid(format!("`{name}` is in a part of int8, and is not int8")));
        }
        Ok(Forms { row_major: Some(value), channels_last: None })
    }

    fn define(&mut self, value: ValueId, lowered: ValueId, order: Order) {
        let forms = self.forms.entry(value).or_default();
        match order {
            Order::RowMajor => forms.row_major = Some(lowered),
            Order::ChannelsLast => forms.channels_last = Some(lowered),
        }
    }

    /// Makes the result the same tensor as another one.
    pub fn alias(&mut self, from: ValueId, result: ValueId) -> Result<(), Error> {
        let forms = self.forms(from)?;
        self.forms.insert(result, forms);
        Ok(())
    }

    /// A tensor in an order in which it exists; channels-last if it exists in both.
    pub fn any(&mut self, value: ValueId) -> Result<(ValueId, Order), Error> {
        Ok(match self.forms(value)? {
            Forms { channels_last: Some(lowered), .. } => (lowered, Order::ChannelsLast),
            Forms { row_major: Some(lowered), .. } => (lowered, Order::RowMajor),
            _ => (self.row_major(value)?, Order::RowMajor),
        })
    }

    /// A tensor in row-major order.
    pub fn row_major(&mut self, value: ValueId) -> Result<ValueId, Error> {
        self.ordered(value, Order::RowMajor)
    }

    /// An image with channels-last elements, and the order of its type.
    pub fn image(&mut self, value: ValueId) -> Result<(ValueId, Order), Error> {
        let Forms { row_major, channels_last } = self.forms(value)?;
        if let (Some(lowered), None) = (row_major, channels_last)
            && self.is_same_in_both(value)?
        {
            return Ok((lowered, Order::RowMajor));
        }
        Ok((self.ordered(value, Order::ChannelsLast)?, Order::ChannelsLast))
    }

    /// The order of the type of a result that is an image.
    pub fn image_order(&self, result: ValueId) -> Result<Order, Error> {
        Ok(if self.is_same_in_both(result)? { Order::RowMajor } else { Order::ChannelsLast })
    }

    /// A tensor with a type of this order; copied if it does not exist in it.
    pub fn ordered(&mut self, value: ValueId, order: Order) -> Result<ValueId, Error> {
        let Forms { row_major, channels_last } = self.forms(value)?;
        let (wanted, other) = match order {
            Order::RowMajor => (row_major, channels_last),
            Order::ChannelsLast => (channels_last, row_major),
        };
        if let Some(lowered) = wanted {
            return Ok(lowered);
        }
        let other = other.ok_or_else(|| Error::invalid("a tensor of a part that was not lowered"))?;
        let ty = self.graph()?.tensor(other)?.clone();
        let ty = in_order(ty, order);
        let dim_order: Vec<i64> = ty.dim_order.iter().map(|dim| i64::from(*dim)).collect();
        let mut builder = self.builder()?;
        let schema = builder.schemas().expect(dim_order_ops::_TO_DIM_ORDER_COPY)?;
        let args = bind(&schema, vec![other.into()], &[("dim_order", Arg::from(dim_order.as_slice()))])?;
        let copy = one(&builder.push(Op::Call(schema), args, vec![Type::Tensor(ty)]))?;
        self.define(value, copy, order);
        Ok(copy)
    }

    /// Adds an operator that computes the tensor `result` of the part, with this element type and order.
    pub fn add(
        &mut self,
        name: &str,
        args: Vec<Arg>,
        (result, dtype, order): (ValueId, ScalarType, Order),
    ) -> Result<(), Error> {
        let ty = in_order(TensorType { dtype, quantization: None, ..self.ty(result)? }, order);
        let lowered = self.call(name, args, ty)?;
        self.define(result, lowered, order);
        Ok(())
    }

    /// Adds an operator with an int8 result.
    pub fn add_int8(&mut self, name: &str, args: Vec<Arg>, result: ValueId, order: Order) -> Result<(), Error> {
        self.add(name, args, (result, ScalarType::Char, order))
    }

    /// Adds an operator whose result has this type.
    pub fn call(&mut self, name: &str, args: Vec<Arg>, ty: TensorType) -> Result<ValueId, Error> {
        let mut builder = self.builder()?;
        let schema = builder.schemas().expect(name)?;
        one(&builder.push(Op::Call(schema), args, vec![Type::Tensor(ty)]))
    }

    /// Adds a constant.
    pub fn constant(&mut self, constant: Constant) -> Result<ValueId, Error> {
        Ok(self.builder()?.constant(constant))
    }

    /// Adds a constant vector.
    pub fn vector(&mut self, name: &str, numbers: &[i32]) -> Result<ValueId, Error> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.constant(Constant::dense(name, TensorType::of(ScalarType::Int, &[numbers.len() as i64]), bytes)?)
    }

    /// Adds scratch memory for a kernel of CMSIS-NN; an empty constant for Rushlight's kernels, which need none.
    pub fn scratch(&mut self, bytes: ScratchBytes) -> Result<ValueId, Error> {
        let bytes = if self.target.runtime == Runtime::ExecuTorch { bytes.0 } else { 0 };
        let ty = TensorType::of(ScalarType::Byte, &[bytes]);
        if bytes == 0 {
            return self.constant(Constant::dense("no_scratch", ty, Vec::new())?);
        }
        let mut builder = self.builder()?;
        let named = [("dtype", Arg::DType(ScalarType::Byte))];
        builder.one_with(aten::EMPTY_MEMORY_FORMAT, vec![Arg::from([bytes].as_slice())], &named)
    }
}

/// A type with another dim order.
pub(crate) fn in_order(ty: TensorType, order: Order) -> TensorType {
    let dim_order = match order {
        Order::RowMajor => contiguous(ty.rank()),
        Order::ChannelsLast => CHANNELS_LAST.to_vec(),
    };
    TensorType { dim_order, ..ty }
}

fn int(value: i32) -> Arg {
    Arg::from(i64::from(value))
}

fn pair(sizes: [i64; 2]) -> Arg {
    Arg::from(sizes.as_slice())
}

fn one(results: &[ValueId]) -> Result<ValueId, Error> {
    results.first().copied().ok_or_else(|| Error::invalid("an operator without a result"))
}
