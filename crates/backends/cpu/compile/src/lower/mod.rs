//! From nodes to steps.

pub(super) mod elementwise;
mod integer;
pub(super) mod pooling;
mod products;
mod rounded;
mod rows;
pub(super) mod shapes;

use std::collections::HashMap;

use rushlight_cpu_payload::{
    Affine, Convert, ConvertedType, Copy, CpuProgram, Direction, Elementwise, Gather, Instruction, Operand, Size, Step,
    TableFormat, TensorId, Unary,
};
use rushlight_format::ScalarType;

use rushlight_compiler::partition::Part;
use rushlight_graph::Bytes;
use rushlight_graph::Error;
use rushlight_graph::quantization::{self, PerTensor};
use rushlight_graph::{Constant, Def, Expr, Graph, Input, Model, NodeId, ValueId};

use super::call::Call;
use super::dynamic;
use super::fuse::Fusion;
use super::integer::WeightsAlone;
use super::plan::Plan;
use super::view::View;
use super::{Cpu, constants, error, held_as_float};

use rounded::Rows;

/// Makes a program of a part, and the blobs that it names, which so many threads pack.
pub(super) fn lower(part: &Part, threads: usize, cpu: &Cpu) -> Result<(CpuProgram, Vec<(String, Bytes)>), Error> {
    let graph = part.graph()?;
    let mut lowering = Lowering {
        model: &part.model,
        graph,
        plan: Plan::new(&graph.symbols, cpu.precision),
        views: HashMap::new(),
        arranged: HashMap::new(),
        arranged_bytes: HashMap::new(),
        rows: HashMap::new(),
        chosen: HashMap::new(),
        fusion: Fusion::of(graph, &part.model),
    };
    for input in &graph.inputs {
        let Input::Value(value) = input else { return Err(error("an input that is fixed")) };
        let ty = graph.tensor(*value)?;
        let view = lowering.plan.input(ty);
        lowering.views.insert(*value, view);
    }
    // All sizes are known once all inputs are.
    for input in &graph.inputs {
        if let Input::Value(value) = input {
            lowering.enter(*value)?;
        }
    }
    for node in &graph.blocks[graph.body].nodes {
        lowering.node(*node).map_err(|error| graph.locate(error, *node))?;
    }
    let mut outputs = Vec::with_capacity(graph.outputs.len());
    for output in &graph.outputs {
        let value = output.as_value().ok_or_else(|| error("an output that is no tensor"))?;
        let dtype = graph.tensor(value)?.dtype;
        let view = if is_integer(dtype) { lowering.held_dense(value)? } else { lowering.dense(value)? };
        outputs.push((view, dtype));
    }
    for (view, dtype) in &outputs {
        // What several outputs show is copied to each.
        let alone = outputs.iter().filter(|(other, _)| other.buffer == view.buffer).count() == 1;
        lowering.plan.output(view, *dtype, alone)?;
    }
    lowering.plan.finish(threads, cpu.keys)
}

/// Whether values of a type are held as bytes.
pub(super) fn is_integer(dtype: ScalarType) -> bool {
    matches!(dtype, ScalarType::Char | ScalarType::Byte)
}

/// How bytes stand for the integers of a type themselves.
fn integral(dtype: ScalarType) -> Affine {
    Affine::new(1.0, if dtype == ScalarType::Char { 128 } else { 0 }, [0, 255])
}

/// What bytes stand for before or after a node that quantizes or dequantizes. Signed integers are held 128 above themselves.
pub(super) fn affine_of(call: &Call<'_>) -> Option<Affine> {
    let PerTensor { scale, zero_point, range, dtype } = PerTensor::of(call.node)?;
    let above = match dtype {
        ScalarType::Char => 128,
        ScalarType::Byte => 0,
        _ => return None,
    };
    let byte = |integer: i64| u8::try_from(integer.checked_add(above)?).ok();
    Some(Affine::new(scale, byte(zero_point)?, [byte(range.0)?, byte(range.1)?]))
}

/// A part being lowered.
pub(super) struct Lowering<'a> {
    model: &'a Model,
    graph: &'a Graph,
    plan: Plan<'a>,
    /// How the values that are there lie in memory. Those of quantized numbers, and of integers, are bytes.
    views: HashMap<ValueId, View>,
    /// Constants, and copies of what is computed, with their dimensions in some order in memory.
    arranged: HashMap<(ValueId, Vec<usize>), View>,
    /// The same of bytes.
    arranged_bytes: HashMap<(ValueId, Vec<usize>), View>,
    /// Rows that are bytes with scales of their own.
    rows: HashMap<ValueId, Rows>,
    /// What was chosen for rows, by the value of the scales.
    chosen: HashMap<ValueId, View>,
    fusion: Fusion,
}

impl<'a> Lowering<'a> {
    /// Converts an input to floats, if it is held so and comes as something else.
    fn enter(&mut self, value: ValueId) -> Result<(), Error> {
        let ty = self.graph.tensor(value)?;
        let affine = match ty.dtype {
            dtype if is_integer(dtype) => Some(integral(dtype)),
            ScalarType::Float => return Ok(()),
            dtype if !held_as_float(dtype) => return Ok(()),
            _ => None,
        };
        let from = self.view(value)?;
        let order = (0..ty.shape.len()).collect();
        let to = self.plan.ordered_as(ty.shape.clone(), order, affine)?;
        let x = self.plan.window_of(&from, &from.dims(), ty.dtype)?;
        let element = ConvertedType::of(ty.dtype).ok_or_else(|| error("an input of a type that is not held"))?;
        let step = Convert { x, y: self.plan.tensor(&to)?, element, direction: Direction::Enter };
        self.plan.step(self.graph.values[value].name.clone(), Step::Convert(step));
        self.views.insert(value, to);
        Ok(())
    }

    fn node(&mut self, id: NodeId) -> Result<(), Error> {
        if self.fusion.inner.contains(&id) || self.fusion.absorbed.contains(&id) {
            return Ok(());
        }
        // A product is computed where its tail ends.
        let id = self.fusion.ends.get(&id).copied().unwrap_or(id);
        let call = Call::new(self.graph, id);
        match call.name() {
            "aten::convolution" => self.convolution(id),
            "aten::addmm" | "aten::mm" => self.linear(id),
            "aten::bmm" => self.batched(&call),
            "aten::scaled_dot_product_attention" => self.attention(&call),
            "aten::max_pool2d_with_indices" | "aten::avg_pool2d" => self.pool(&call),
            "aten::max_pool3d_with_indices" | "aten::avg_pool3d" => self.pool_volume(&call),
            "aten::_adaptive_avg_pool2d" => self.adaptive_pool(&call),
            "aten::upsample_bilinear2d.vec" | "aten::upsample_nearest2d.vec" => self.resize(&call),
            name if pooling::fold(name).is_some() => self.reduce(&call),
            "aten::_softmax" | "aten::_log_softmax" => self.softmax(&call),
            "aten::native_layer_norm" => self.layer_norm(&call),
            "aten::embedding" => self.embedding(&call),
            name if dynamic::role(name).is_some() => self.rounding_of_rows(id),
            _ if self.shows_rows(&call) => self.rows_in_another_shape(&call),
            name if quantization::is_dequantize(name) => self.dequantize(&call),
            name if quantization::is_quantize(name) => self.quantize(id),
            _ if elementwise::takes(&call) => self.elementwise(id),
            _ => self.shape(&call),
        }
    }

    /// The name of a step in profiles: the node that it computes, or the value if that is not known.
    fn label(&self, call: &Call<'_>) -> String {
        let origin = &self.graph.origins[call.node.origin];
        if !origin.node.is_empty() {
            return origin.node.clone();
        }
        let name = call.result().map(|result| self.graph.values[result].name.clone());
        name.unwrap_or_else(|_| call.name().to_owned())
    }

    fn constant_of(&self, value: ValueId) -> Option<&'a Constant> {
        match self.graph.values[value].def {
            Def::Constant(id) => Some(&self.model.constants[id]),
            _ => None,
        }
    }

    /// How a value lies in memory; its elements may be bytes.
    fn view(&mut self, value: ValueId) -> Result<View, Error> {
        if let Some(view) = self.views.get(&value) {
            return Ok(view.clone());
        }
        if self.constant_of(value).is_some() {
            return self.dense(value);
        }
        if let Some(rows) = self.rows.get(&value).cloned() {
            let view = self.numbers_of_rows(&rows)?;
            self.views.insert(value, view.clone());
            return Ok(view);
        }
        Err(error(format!("`{}` is used before it is computed", self.graph.values[value].name)))
    }

    /// Stores a constant with its dimensions in some order in memory.
    fn store(&mut self, constant: &Constant, order: &[usize]) -> Result<View, Error> {
        let permuted = match constant.permuted(order) {
            Some(permuted) => permuted,
            // How its elements lie is only known when they are there.
            None => Constant::dense(&constant.name, constant.ty.clone(), constant.read()?)?
                .permuted(order)
                .ok_or_else(|| error(format!("`{}` has other dimensions", constant.name)))?,
        };
        let buffer = match permuted.in_place() {
            Some(bytes) if constant.ty.dtype == ScalarType::Float && constants::stays(&bytes) => {
                self.plan.constant_in_place(&constant.name, bytes)
            }
            _ => self.plan.constant(&constant.name, &constants::floats(&permuted)?),
        };
        Ok(View::ordered(buffer, constant.ty.shape.clone(), order.to_vec()))
    }

    /// A value with its elements in row-major order, as floats.
    fn dense(&mut self, value: ValueId) -> Result<View, Error> {
        let rank = self.graph.tensor(value)?.rank();
        self.in_order(value, &(0..rank).collect::<Vec<_>>())
    }

    /// The same, as it is held: as floats or bytes.
    fn held_dense(&mut self, value: ValueId) -> Result<View, Error> {
        let rank = self.graph.tensor(value)?.rank();
        self.held_in_order(value, &(0..rank).collect::<Vec<_>>())
    }

    /// A value with its dimensions in some order in memory, as it is held: as floats or bytes.
    fn held_in_order(&mut self, value: ValueId, order: &[usize]) -> Result<View, Error> {
        let is_constant = self.constant_of(value).is_some();
        if is_constant || self.view(value)?.affine.is_none() {
            return self.in_order(value, order);
        }
        let key = (value, order.to_vec());
        if let Some(view) = self.arranged_bytes.get(&key) {
            return Ok(view.clone());
        }
        let view = self.view(value)?;
        let view = self.reordered(&view, order)?;
        self.arranged_bytes.insert(key, view.clone());
        Ok(view)
    }

    /// A value with its dimensions in some order in memory, as floats.
    fn in_order(&mut self, value: ValueId, order: &[usize]) -> Result<View, Error> {
        let key = (value, order.to_vec());
        if let Some(view) = self.arranged.get(&key) {
            return Ok(view.clone());
        }
        let view = match self.constant_of(value) {
            Some(constant) => self.store(constant, order)?,
            None if self.view(value)?.affine.is_some() => {
                let bytes = self.held_in_order(value, order)?;
                self.converted("dequantize", &bytes, None)?
            }
            None => {
                let view = self.view(value)?;
                self.reordered(&view, order)?
            }
        };
        self.arranged.insert(key, view.clone());
        Ok(view)
    }

    /// A view with its dimensions in some order in memory; copies if they are not.
    fn reordered(&mut self, view: &View, order: &[usize]) -> Result<View, Error> {
        if view.is_in(order) {
            return Ok(View { order: order.to_vec(), ..view.clone() });
        }
        let to = self.plan.ordered_as(view.shape.clone(), order.to_vec(), view.affine)?;
        self.copy("reorder", view, &to, None)?;
        Ok(to)
    }

    /// The elements of a view that fills memory as floats, or as bytes that stand for something.
    fn converted(&mut self, name: &str, from: &View, affine: Option<Affine>) -> Result<View, Error> {
        let to = self.plan.ordered_as(from.shape.clone(), from.order.clone(), affine)?;
        let x = self.plan.tensor(from)?;
        self.broadcast(name, x, &to)?;
        Ok(to)
    }

    /// Writes a tensor to a view, element by element; sizes of 1 broadcast.
    fn broadcast(&mut self, name: &str, x: TensorId, to: &View) -> Result<(), Error> {
        let identity = Instruction::Unary { to: 0, function: Unary::Identity, x: Operand::Tensor(0) };
        let y = self.plan.tensor(to)?;
        self.plan.step(name, Step::Elementwise(Elementwise { operands: vec![x], y, instructions: vec![identity] }));
        Ok(())
    }

    /// A value as floats, in whatever way it lies in memory.
    fn floats(&mut self, value: ValueId) -> Result<View, Error> {
        let view = self.view(value)?;
        if view.affine.is_none() { Ok(view) } else { self.in_order(value, &view.order) }
    }

    /// Integers as the numbers that they stand for: the same bytes.
    fn dequantize(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (input, result) = (call.value("input")?, call.result()?);
        let affine = affine_of(call).ok_or_else(|| call.missing("scale", "a known scale"))?;
        let view = match self.constant_of(input) {
            Some(constant) => self.integers(constant)?,
            None => self.view(input)?,
        };
        self.views.insert(result, view.of_bytes(Some(affine)));
        Ok(())
    }

    /// Constant integers, which become bytes of the arena.
    fn integers(&mut self, constant: &Constant) -> Result<View, Error> {
        let dtype = constant.ty.dtype;
        let numbers: Vec<f32> = match dtype {
            ScalarType::Char => constant.read()?.iter().map(|byte| f32::from(byte.cast_signed())).collect(),
            ScalarType::Byte => constant.read()?.iter().map(|byte| f32::from(*byte)).collect(),
            _ => return Err(error(format!("`{}` has no integers of 8 bits", constant.name))),
        };
        let view = View::dense(self.plan.constant(&constant.name, &numbers), constant.ty.shape.clone());
        self.converted("quantize", &view, Some(integral(dtype)))
    }

    /// Numbers as integers. What is held as the same bytes stays as it is.
    fn quantize(&mut self, id: NodeId) -> Result<(), Error> {
        let call = Call::new(self.graph, id);
        let (input, result) = (call.value("input")?, call.result()?);
        let affine = affine_of(&call).ok_or_else(|| call.missing("scale", "a known scale"))?;
        if self.views.contains_key(&result) {
            // What it quantizes was computed as bytes.
            return Ok(());
        }
        if let Some(view) = self.views.get(&input)
            && view.affine == Some(affine)
        {
            let view = view.clone();
            self.views.insert(result, view);
            return Ok(());
        }
        self.elementwise(id)
    }

    /// What the bytes are of the node that quantizes a value, if nothing else uses it, with what it gives: the value is
    /// computed as bytes then.
    fn quantized_result(&self, value: ValueId) -> Option<(Affine, ValueId)> {
        let node = self.fusion.quantized.get(&value)?;
        let call = Call::new(self.graph, *node);
        Some((affine_of(&call)?, call.result().ok()?))
    }

    /// What a node computes with that takes bytes if it is to give bytes: its input, as bytes if that is how it is held
    /// and the node's result is rounded, and as floats otherwise. With it what the bytes of the result are, and which
    /// value they are.
    fn rounded_with(
        &mut self,
        input: ValueId,
        order: &[usize],
        result: ValueId,
    ) -> Result<(View, Option<Affine>, ValueId), Error> {
        match self.quantized_result(result) {
            Some((affine, quantized)) if self.view(input)?.affine.is_some() => {
                Ok((self.held_in_order(input, order)?, Some(affine), quantized))
            }
            _ => Ok((self.in_order(input, order)?, None, result)),
        }
    }

    /// A value that fills memory, in whichever order it is.
    fn solid(&mut self, value: ValueId) -> Result<View, Error> {
        let order = self.view(value)?.order;
        self.in_order(value, &order)
    }

    /// Copies the elements of one view to another of the same shape; `fill` is what the rest of its buffer becomes.
    fn copy(&mut self, name: &str, from: &View, to: &View, fill: Option<f32>) -> Result<(), Error> {
        let plan = &mut self.plan;
        // In the order of what is written.
        let mut dims: Vec<usize> = to.order.clone();
        dims.retain(|dim| !to.shape[*dim].is(1));
        let all = |plan: &mut Plan<'_>, exprs: &[Expr]| {
            dims.iter().map(|dim| plan.size(&exprs[*dim])).collect::<Result<Vec<_>, _>>()
        };
        let whole = plan.whole(to)?;
        let copy = Copy {
            x: plan.window(from, &[from.span()])?,
            y: plan.window(&whole, &whole.shape)?,
            sizes: all(plan, &to.shape)?,
            x_offset: Size::Fixed(0),
            x_strides: all(plan, &from.strides)?,
            y_offset: plan.size(&to.offset)?,
            y_strides: all(plan, &to.strides)?,
            fill,
        };
        plan.step(name, Step::Copy(copy));
        Ok(())
    }

    /// Rows of a table of constants.
    fn embedding(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (table, indices) = (call.value("weight")?, call.value("indices")?);
        let result = call.result()?;
        let constant = self.constant_of(table);
        let (table, format) = match constant.and_then(|constant| Some((constant, WeightsAlone::of_rows(constant)?))) {
            Some((constant, weights)) => {
                let format = TableFormat::Quantized { format: weights.format(), rows: weights.matrix.n as u32 };
                (self.integer_matrix(&constant.name, weights)?, format)
            }
            None => {
                let table = self.dense(table)?;
                (self.plan.tensor(&table)?, TableFormat::F32)
            }
        };
        let ty = self.graph.tensor(indices)?;
        let (view, dtype) = (self.solid(indices)?, ty.dtype);
        let indices = self.plan.window_of(&view, &view.dims(), dtype)?;
        let to = self.plan.dense(self.graph.tensor(result)?.shape.clone())?;
        let y = self.plan.tensor(&to)?;
        self.plan.step(self.label(call), Step::Gather(Gather { table, format, indices, y }));
        self.views.insert(result, to);
        Ok(())
    }
}
